package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/flue-go/flue/journal"
)

// tools runs the calls of the latest turn side by side and commits them.
func (d *driver) tools() error {
	resp := &d.state.Response
	if resp.Truncated {
		return d.closeBatch(truncatedCall)
	}
	if d.plan == nil { // the render that offered the tools is gone
		return d.closeBatch(interruptedCall)
	}
	// The message that asks for the calls must be durable before they run.
	if err := d.commit(); err != nil {
		return err
	}
	b := &openBatch{driver: d, turn: resp.Turn, running: make(map[string]*Call), scratch: newScratch(d.state.Vars)}
	b.results = make(chan ended, len(resp.Calls))
	var cancel context.CancelFunc
	b.ctx, cancel = context.WithCancel(d.attempt)
	defer cancel()
	for _, c := range resp.Calls {
		if resp.Outcomes[c.Call] == nil {
			b.start(c)
		}
	}
	return b.wait()
}

// An openBatch is a set of calls that run side by side.
type openBatch struct {
	*driver
	ctx     context.Context
	turn    string
	running map[string]*Call
	scratch *scratch
	waiting int        // bytes of results that are staged
	results chan ended // has room for every call, so that none blocks
}

// largeBatch is how many bytes of results are staged before they are appended
// without waiting for more.
const largeBatch = 8 << 20

// ended is a call that has returned.
type ended struct {
	call   *Call
	result Result
	took   time.Duration
}

// start runs one call in a goroutine of its own.
func (b *openBatch) start(block journal.Block) {
	call := &Call{ID: block.Call, Key: callKey(b.state.Born.Incarnation, b.turn, block.Call), Tool: block.Name, scratch: b.scratch}
	call.Log = slog.New(&callLog{emit: b.logTo(call)})
	b.running[call.ID] = call
	b.e.cfg.Observe(Event{
		Type: EventToolStarted, Time: time.Now(), Instance: b.slot.addr, Submission: b.state.Active.Submission,
		Turn: b.turn, Call: call.ID, Tool: call.Tool, Input: block.Arguments,
	})
	tool := b.plan.tool(block.Name)
	if tool == nil {
		b.results <- ended{call: call, result: Result{Failed: true, Content: fmt.Sprintf("Tool %s not found", block.Name)}}
		return
	}
	b.e.wg.Go(func() {
		began := time.Now()
		r := b.call(tool, call, block.Arguments)
		b.results <- ended{call, r, time.Since(began)}
	})
}

// callKey derives the key of a call. The derivation must never change: other
// systems keep the keys.
func callKey(incarnation, turn, call string) string {
	sum := sha256.Sum256([]byte("flue-call-1\x00" + incarnation + "\x00" + turn + "\x00" + call))
	return "call_" + hex.EncodeToString(sum[:16])
}

// logTo returns where the lines go that a call logs.
func (b *openBatch) logTo(call *Call) func(LogLine) {
	e, addr, sub, turn := b.e, b.slot.addr, b.state.Active.Submission, b.turn
	return func(line LogLine) {
		e.cfg.Observe(Event{
			Type: EventLog, Time: time.Now(), Instance: addr, Submission: sub, Turn: turn, Call: call.ID, Tool: call.Tool, Log: &line,
		})
	}
}

// call runs a tool's function within its time. A function that ignores its
// context is left behind when its time is up; what it returns then is dropped.
func (b *openBatch) call(tool *Tool, call *Call, arguments string) Result {
	ctx, cancel := b.ctx, context.CancelFunc(func() {})
	var expired <-chan time.Time
	if tool.Timeout > 0 {
		ctx, cancel = context.WithCancel(ctx)
		timer := time.NewTimer(tool.Timeout)
		defer timer.Stop()
		expired = timer.C
	}
	defer cancel()
	done := make(chan Result, 1)
	b.e.wg.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				b.e.cfg.Log.Error("a tool panicked", "tool", tool.Spec.Name, "instance", b.slot.addr.String(), "call", call.ID, "panic", p, "stack", string(debug.Stack()))
				done <- Result{Failed: true, Content: fmt.Sprintf("Tool %q failed: internal error (panic).", tool.Spec.Name)}
				return
			}
			select { // a function that ends its goroutine returns nothing
			case done <- Result{Failed: true, Content: fmt.Sprintf("Tool %q failed: it ended without a result.", tool.Spec.Name)}:
			default:
			}
		}()
		done <- tool.Run(ctx, call, arguments)
	})
	select {
	case r := <-done:
		return r
	case <-expired:
		cancel()
		return Result{Failed: true, Content: fmt.Sprintf("Tool %q timed out after %dms", tool.Spec.Name, tool.Timeout.Milliseconds())}
	}
}

// wait records outcomes as they come, and commits the batch when all are there
// or the attempt has ended.
func (b *openBatch) wait() error {
	done := b.ctx.Done()
	var grace <-chan time.Time
	for len(b.running) > 0 {
		select {
		case r := <-b.results:
			if err := b.record(r); err != nil {
				return err
			}
		case <-done:
			// Give the calls a moment to return of their own accord.
			done = nil
			timer := time.NewTimer(b.e.cfg.Grace)
			defer timer.Stop()
			grace = timer.C
		case <-grace:
			for _, call := range b.running {
				call.end()
			}
			return b.closeBatch(abandonedCall)
		case <-b.slot.wake:
			if err := b.intake(); err != nil {
				return err
			}
		}
	}
	return b.stage(&journal.ToolBatch{Turn: b.turn})
}

// record stages an outcome, with all others that are ready. It appends them
// unless the batch is complete, when they go with what follows it.
func (b *openBatch) record(r ended) error {
	for {
		if err := b.outcome(r); err != nil {
			return err
		}
		if b.waiting += len(r.result.Content) + len(r.result.Output); b.waiting > largeBatch {
			b.waiting = 0
			if err := b.commit(); err != nil {
				return err
			}
		}
		if len(b.running) == 0 {
			return nil
		}
		select {
		case r = <-b.results:
		default:
			b.waiting = 0
			return b.commit()
		}
	}
}

func (b *openBatch) outcome(r ended) error {
	delete(b.running, r.call.ID)
	ms := r.took.Milliseconds()
	o := &journal.Outcome{
		Turn: b.turn, Response: b.state.Response.ID, Call: r.call.ID, Tool: r.call.Tool,
		Failed: r.result.Failed, Content: r.result.Content, Output: []byte(r.result.Output),
		EndTurn: r.result.EndTurn && !r.result.Failed, DurationMS: &ms, Writes: r.call.end(),
	}
	b.emit(Event{
		Type: EventToolDone, Turn: b.turn, Call: r.call.ID, Tool: r.call.Tool, Text: o.Content, OK: !o.Failed, Took: r.took,
	})
	return b.stage(o)
}
