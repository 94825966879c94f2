package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// A tool call that fails in the same way again and again is a loop that the
// model does not leave by itself: it is warned, and then its response fails.
const (
	warnRepeats = 3
	maxRepeats  = 8
)

// tools runs the calls of the latest turn side by side and commits them.
func (d *driver) tools() error {
	resp := &d.state.Response
	if resp.Truncated {
		return d.closeBatch(truncatedCall)
	}
	if resp.Refused {
		return d.closeBatch(filteredCall)
	}
	if resp.Concluding != nil {
		return d.closeBatch(overBudgetCall)
	}
	if d.draining() {
		return d.giveUp(d.state.Active.Submission) // the next process runs them
	}
	if d.resumed {
		if ok, err := d.resume(); !ok {
			return err
		}
	}
	b := &openBatch{
		driver: d, turn: resp.Turn, most: d.program.Budget().calls(),
		running: make(map[string]*Work), lost: make(map[*Work]bool), unit: d.newUnit(),
	}
	defer b.unit.close()
	b.unit.goOn(resp.Outcomes)
	b.results = make(chan ended, len(resp.Calls))
	var cancel context.CancelFunc
	b.ctx, cancel = context.WithCancel(d.attempt)
	defer cancel()
	var err error
	if b.queue, err = d.ration(); err != nil {
		return err
	}
	if err := b.advance(); err != nil {
		return err
	}
	return b.wait()
}

// resume goes on with a batch that an earlier driver began. Calls that cannot
// have begun are run. So are those whose tool said when they were made that they
// may be run again, and still does. Others may have had their effect, and get an
// outcome that says so. It reports false if the batch cannot be run.
func (d *driver) resume() (ok bool, err error) {
	resp := &d.state.Response
	if err := d.render(d.attempt, *d.state.Delivery); err != nil {
		if errors.Is(d.ended(), errClosing) {
			return false, nil // the next process tries it
		}
		if err := d.closeBatch(interruptedCall); err != nil {
			return false, err
		}
		return false, d.endWith(err)
	}
	if d.plan == nil {
		return false, nil
	}
	run := false
	for _, c := range resp.Calls {
		switch {
		case resp.Outcomes[c.Call] != nil:
			continue
		case !resp.MayHaveRun(c.Call):
			run = true
			d.recovered(Event{Turn: resp.Turn, Call: c.Call, Tool: c.Name, Reason: "the call had not begun and is run now"})
			continue
		case d.again(c):
			run = true
			d.recovered(Event{Turn: resp.Turn, Call: c.Call, Tool: c.Name, Reason: "the call was interrupted and is run again"})
			continue
		}
		d.recovered(Event{Turn: resp.Turn, Call: c.Call, Tool: c.Name, Reason: "the call was interrupted and its outcome is unknown"})
		if err := d.stage(&journal.Outcome{Turn: resp.Turn, Response: resp.ID, Call: c.Call, Tool: c.Name, Failed: true, Content: interruptedCall}); err != nil {
			return false, err
		}
	}
	if !run {
		return false, d.closeBatch(interruptedCall)
	}
	d.resumed = false
	return true, nil
}

// again reports whether a call may be run again.
func (d *driver) again(c journal.Block) bool {
	if d.plan == nil || !c.Again {
		return false
	}
	tool := d.plan.tool(c.Name)
	return tool != nil && tool.Again
}

// goOn makes a unit stand on what calls of the same batch have written in an
// earlier process.
func (u *unit) goOn(outcomes map[string]*journal.Outcome) {
	var writes []journal.VarWrite
	for _, o := range outcomes {
		writes = append(writes, o.Writes...)
	}
	slices.SortFunc(writes, func(a, b journal.VarWrite) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, v := range writes {
		u.vars[v.Name], u.at[v.Name], u.seq = json.RawMessage(v.Value), v.Seq, v.Seq
	}
}

// leavesOpen reports whether a call that has no result yet is left to the next
// process: this one closes, and the call has not begun, may be run again, or was
// begun by another driver and not yet looked at.
func (d *driver) leavesOpen(c journal.Block) bool {
	return errors.Is(d.ended(), errClosing) && (d.resumed || d.again(c) || !d.state.Response.MayHaveRun(c.Call))
}

// An openBatch is a set of calls that run side by side.
type openBatch struct {
	*driver
	ctx     context.Context
	turn    string
	most    int             // that may run side by side
	queue   []journal.Block // calls that have not been let go, in order
	running map[string]*Work
	unit    *unit
	held    []ended        // have ended, and stand on writes of calls that have not
	lost    map[*Work]bool // are left without an outcome, for this process
	waiting int            // bytes of results that are staged
	results chan ended     // has room for every call, so that none blocks
}

// largeBatch is how many bytes of results are staged before they are appended
// without waiting for more.
const largeBatch = 8 << 20

// ended is a call that has returned.
type ended struct {
	call   *Work
	result Result
	took   time.Duration
}

// start runs one call in a goroutine of its own.
func (b *openBatch) start(block journal.Block) {
	scope := journal.CallScope(block.Call)
	call := b.unit.add(&Work{
		ID: block.Call, Key: callKey(b.state.Born.Incarnation, b.turn, block.Call), Tool: block.Name,
		Epoch: b.lease.Epoch,
		scope: scope, memo: maps.Clone(b.state.Steps[scope]), // which this run's own steps change
	})
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
		r := b.e.runTool(b.ctx, b.slot.addr, tool, call, block.Arguments)
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
func (b *openBatch) logTo(call *Work) func(LogLine) {
	e, addr, sub, turn := b.e, b.slot.addr, b.state.Active.Submission, b.turn
	return func(line LogLine) {
		if e.hasEnded() {
			return
		}
		e.cfg.Observe(Event{
			Type: EventLog, Time: time.Now(), Instance: addr, Submission: sub, Turn: turn, Call: call.ID, Tool: call.Tool, Log: &line,
		})
	}
}

// runTool runs a tool's function within its time. A function that ignores its
// context is left behind when its time is up; what it returns then is dropped.
func (e *Engine) runTool(ctx context.Context, addr store.Address, tool *Tool, call *Work, arguments string) Result {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var expired <-chan time.Time
	if tool.Timeout > 0 {
		timer := time.NewTimer(tool.Timeout)
		defer timer.Stop()
		expired = timer.C
	}
	done := make(chan Result, 1)
	e.wg.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				e.cfg.Log.Error("a tool panicked", "tool", tool.Spec.Name, "instance", addr.String(), "call", call.ID, "panic", p, "stack", string(debug.Stack()))
				done <- Result{Failed: true, Content: fmt.Sprintf("Tool %q failed: internal error (panic).", tool.Spec.Name), Err: fmt.Errorf("panic: %v", p)}
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
	case <-ctx.Done():
	case <-expired:
	}
	if ctx.Err() != nil { // it was stopped before its time was up, and ends as that
		return <-done
	}
	timeout := &TimeoutError{Tool: tool.Spec.Name, After: tool.Timeout}
	cancel(timeout)
	return Result{Failed: true, Content: timeout.Error(), Err: timeout}
}

// wait records outcomes as they come, and commits the batch when all are there
// or the attempt has ended.
func (b *openBatch) wait() error {
	done := b.ctx.Done()
	var grace <-chan time.Time
	for len(b.running) > 0 {
		select {
		case r := <-b.results:
			if b.holds() != nil { // nothing can be made of it here any more
				delete(b.running, r.call.ID)
				continue
			}
			if err := b.record(r); err != nil {
				return err
			}
		case req := <-b.unit.requests:
			if err := b.serve(b.unit, req); err != nil {
				return err
			}
		case <-done:
			// Give the calls a moment to return of their own accord.
			done = nil
			timer := time.NewTimer(b.e.cfg.Grace)
			defer timer.Stop()
			grace = timer.C
		case <-grace:
			return b.abandon()
		case <-b.slot.wake:
			if err := b.intake(); err != nil {
				return err
			}
		}
	}
	return b.end()
}

// abandon leaves the calls behind that still run. With them those are lost that
// have ended and have seen what the lost ones wrote: their results stand on
// nothing.
func (b *openBatch) abandon() error {
	for _, call := range b.running {
		b.lost[call] = true
	}
	for call := range b.lost {
		call.end()
	}
	for _, r := range b.held {
		if r.call.standsOn(b.lost) {
			continue
		}
		if err := b.outcome(r); err != nil {
			return err
		}
	}
	return b.closeBatch(abandonedCall)
}

// record stages an outcome, with all others that are ready. It appends them
// unless the batch is complete, when they go with what follows it.
func (b *openBatch) record(r ended) error {
	for {
		if err := b.take(r); err != nil {
			return err
		}
		if len(b.running) == 0 && !b.goesOn() {
			return nil
		}
		select {
		case r = <-b.results:
		default:
			b.waiting = 0
			return b.advance()
		}
	}
}

// take stages the outcome of a call, unless the call has seen what another one
// wrote that is still running: if that one was interrupted, what it wrote is
// lost, and this outcome would stand on nothing. Then it waits for the other.
func (b *openBatch) take(r ended) error {
	delete(b.running, r.call.ID)
	if r.result.Failed && b.leavesOpen(b.block(r.call.ID)) {
		b.lost[r.call] = true // interrupted, and not ended: the next process runs it again
		return nil
	}
	r.call.end()
	b.held = append(b.held, r)
	held := b.held[:0:0]
	for _, r := range b.held {
		if !r.call.ready() {
			held = append(held, r)
			continue
		}
		if err := b.outcome(r); err != nil {
			return err
		}
	}
	b.held = held
	return nil
}

func (b *openBatch) outcome(r ended) error {
	if r.result.Failed && b.stoppedBy(r.result.Err) {
		r.result.Content = stoppedCall
	}
	if n := b.failures(r); n >= warnRepeats {
		r.result.Content += fmt.Sprintf("\n\nThis is failure number %d of the same call with the same arguments. Do not repeat it: change the arguments, do something else, or tell the user.", n)
	}
	var kept *store.Attachment
	r.result.Content, kept = keep(b.plan.tool(r.call.Tool), r.call.Key, r.result.Content)
	ms := r.took.Milliseconds()
	o := &journal.Outcome{
		Turn: b.turn, Response: b.state.Response.ID, Call: r.call.ID, Tool: r.call.Tool,
		Failed: r.result.Failed, Content: r.result.Content, Output: []byte(r.result.Output),
		EndTurn: r.result.EndTurn && !r.result.Failed, DurationMS: &ms, Writes: r.call.written(),
	}
	b.waiting += len(o.Content) + len(o.Output)
	if kept != nil {
		o.Kept = b.attach(kept)
		b.waiting += o.Kept.Size
	}
	for _, v := range o.Writes {
		b.waiting += len(v.Value)
	}
	b.emit(Event{
		Type: EventToolDone, Turn: b.turn, Call: r.call.ID, Tool: r.call.Tool, Text: o.Content, OK: !o.Failed, Took: r.took, Error: r.result.Err,
	})
	if err := b.stage(o); err != nil || b.waiting <= largeBatch && len(b.attached) < store.MaxAttachments {
		return err
	}
	b.waiting = 0
	return b.commit()
}

// stoppedBy reports whether the error of a call is that its context has ended,
// with the batch.
func (b *openBatch) stoppedBy(err error) bool {
	end := b.ctx.Err()
	return end != nil && (errors.Is(err, end) || errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(b.ctx)))
}

// failures is how often in a row the call has failed, this time included, or 0
// if it has not.
func (b *openBatch) failures(r ended) int {
	if !r.result.Failed {
		return 0
	}
	return b.state.Response.Failed(b.block(r.call.ID)) + 1
}

// block returns what the model said to make the call.
func (b *openBatch) block(call string) journal.Block {
	i := slices.IndexFunc(b.state.Response.Calls, func(c journal.Block) bool { return c.Call == call })
	return b.state.Response.Calls[i]
}
