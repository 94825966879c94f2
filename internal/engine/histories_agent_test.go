package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
)

// plan is the agent.
func (r *trial) plan(v engine.View) (*engine.Plan, error) {
	r.mu.Lock()
	d := r.release
	r.delivered[v.ID] = form(v.Delivery)
	r.mu.Unlock()
	r.balanced("a render", v.Vars)
	p := &engine.Plan{
		Settings:     journal.Settings{Model: "test/m", Compaction: &journal.Compaction{KeepRecentTokens: 60}},
		Instructions: v.ID + strings.Repeat(" again", d.Words),
		Writers:      []string{"progress"},
		Tools: []engine.Tool{
			r.durableTool("durable", false), r.durableTool("once", true),
			r.tool("finish", false, func(context.Context, *engine.Work) engine.Result { return engine.Result{Content: "bye", EndTurn: true} }),
			r.tool("fails", false, func(_ context.Context, c *engine.Work) engine.Result {
				return engine.Result{Failed: true, Content: fmt.Sprint("no luck ", r.mark(c, "done:"+c.ID))}
			}),
			r.tool("stuck", false, r.stuck),
		},
	}
	if !d.NoPlain {
		p.Tools = append(p.Tools, r.tool("plain", d.PlainAgain, r.plain))
	}
	body := v.Delivery.Body
	if d.Start {
		p.Start = []engine.Hook{
			{Name: "first", Run: func(ctx context.Context, w *engine.Work) error { return r.greet(ctx, w, v.ID, body) }},
			{Name: "second", Run: func(_ context.Context, w *engine.Work) error {
				return errors.Join(w.Append(signalOf("second")), r.mark(w, "second:"+body))
			}},
		}
	}
	if d.Finish {
		p.Finish = []engine.Hook{{Name: "review", Run: func(_ context.Context, w *engine.Work) error { return r.review(w, v.ID) }}}
		p.ResponseFinish = []engine.Hook{{Name: "sum", Run: func(_ context.Context, w *engine.Work) error {
			return w.Attach(mustJSON(map[string]any{"sum": len(w.Response.Calls)}))
		}}}
	}
	return p, nil
}

// balanced checks that of what a work writes as one, all is there or nothing:
// each mark comes with one more of n.
func (r *trial) balanced(who string, vars map[string]json.RawMessage) {
	n, marks := 0, 0
	for name, value := range vars {
		if name == "n" {
			if err := json.Unmarshal(value, &n); err != nil {
				panic(err)
			}
		} else {
			marks++
		}
	}
	if n != marks {
		r.breaks("67: the writes of code that runs are all there or none", "%s sees n=%d and %d marks: %s", who, n, marks, mustJSON(vars))
	}
}

// mark writes a name and counts it.
func (r *trial) mark(w *engine.Work, name string) error {
	if w.Var(name) != nil {
		return nil
	}
	return errors.Join(addOne(w), w.Set(name, mustJSON(true)))
}

// tool makes a tool that notes its runs and checks that its call may run.
func (r *trial) tool(name string, again bool, fn func(ctx context.Context, c *engine.Work) engine.Result) engine.Tool {
	return engine.Tool{
		Spec:  model.Tool{Name: name, Description: name, Schema: []byte(`{"type":"object"}`)},
		Again: again,
		Run: func(ctx context.Context, c *engine.Work, _ string) engine.Result {
			r.begins("call " + c.ID)
			r.mu.Lock()
			before := r.ran[c.ID]
			r.ran[c.ID] = append(before[:len(before):len(before)], again)
			turn := c.ID[:strings.LastIndexByte(c.ID, '.')]
			r.running[turn]++
			n := r.running[turn]
			r.mu.Unlock()
			defer func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.running[turn]--
			}()
			if most := r.Parallel; most > 0 && n > most && !r.uses('s') {
				r.breaks("no more calls run at once than may", "%d of %s", n, turn)
			}
			if len(before) > 0 && (!again || !before[0]) {
				r.breaks("55: an ordinary call is not run again", "%s runs after %v", c.ID, before)
			}
			asked, named := false, false
			for _, rec := range r.recorded(c.ID) {
				switch rec := rec.(type) {
				case *journal.Called:
					named = named || slices.Contains(rec.Calls, c.ID)
				case *journal.TurnDone:
					asked = asked || slices.ContainsFunc(rec.Blocks, func(b journal.Block) bool { return b.Call == c.ID })
				case *journal.Outcome:
					if rec.Call == c.ID {
						r.breaks("54: a call that has an outcome is not run again", "%s has %+v", c.ID, rec)
					}
				}
			}
			if !asked || !named {
				r.breaks("52: a call runs when the message that asks for it and the record that names it are durable", "%s", c.ID)
			}
			result := fn(ctx, c)
			if !result.Failed && c.Var("done:"+c.ID) != nil {
				r.mu.Lock()
				r.marked[c.ID] = true
				r.mu.Unlock()
			}
			return result
		},
	}
}

// recorded is the journal of the instance that a call belongs to: its id begins
// with the instance's.
func (r *trial) recorded(call string) []journal.Record {
	var out []journal.Record
	for _, b := range r.read(store.Address{Agent: "chat", ID: call[:2]}) {
		out = append(out, b.Records...)
	}
	return out
}

func failedBy(err error) engine.Result {
	return engine.Result{Failed: true, Content: err.Error(), Err: err}
}

func (r *trial) plain(ctx context.Context, c *engine.Work) engine.Result {
	if err := r.show(ctx, c); err != nil {
		return failedBy(err)
	}
	if !pause(ctx, 300*time.Millisecond) {
		return failedBy(ctx.Err())
	}
	if err := r.mark(c, "done:"+c.ID); err != nil {
		return failedBy(err)
	}
	return engine.Result{Content: "did " + c.ID}
}

// stuck writes, then does not stop when it is told to, and writes again.
func (r *trial) stuck(_ context.Context, c *engine.Work) engine.Result {
	if err := r.mark(c, "done:"+c.ID); err != nil {
		return failedBy(err)
	}
	time.Sleep(10 * time.Second)
	if err := r.mark(c, "late:"+c.ID); err != nil {
		return failedBy(err)
	}
	return engine.Result{Content: "did " + c.ID}
}

func (r *trial) show(ctx context.Context, c *engine.Work) error {
	value := mustJSON(c.ID + r.fresh())
	if err := c.Show(ctx, "progress", value); err != nil {
		return err
	}
	if !slices.ContainsFunc(r.recorded(c.ID), func(rec journal.Record) bool {
		d, ok := rec.(*journal.Data)
		return ok && string(d.Value) == string(value)
	}) {
		r.breaks("75: what a tool has shown is durable", "%s of %s", value, c.ID)
	}
	return nil
}

// fresh is a text that no other call of it has returned.
func (r *trial) fresh() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.minted++
	return fmt.Sprintf("-%d", r.minted)
}

func (r *trial) durableTool(name string, once bool) engine.Tool {
	return r.tool(name, true, func(ctx context.Context, c *engine.Work) engine.Result {
		a, err := r.work(ctx, c, c.ID[:2], journal.CallScope(c.ID), "a", once)
		if err != nil && !errors.Is(err, engine.ErrOutcomeUnknown) {
			return failedBy(err)
		}
		if !pause(ctx, 200*time.Millisecond) {
			return failedBy(ctx.Err())
		}
		b, err := r.work(ctx, c, c.ID[:2], journal.CallScope(c.ID), "b", false)
		if err != nil {
			return failedBy(err)
		}
		if _, err := c.Step(ctx, "b", false, nil); !errors.Is(err, engine.ErrStepReused) && ctx.Err() == nil {
			r.breaks("64: a name is used once in a run", "%v", err)
		}
		if err := r.mark(c, "done:"+c.ID); err != nil {
			return failedBy(err)
		}
		return engine.Result{Content: a + b}
	})
}

// work runs one step and holds it to what is promised of steps.
func (r *trial) work(ctx context.Context, w *engine.Work, instance, scope, name string, once bool) (string, error) {
	key := instance + " " + scope + " " + name
	steps := func() (values []string) {
		for _, rec := range r.recorded(instance) {
			if s, ok := rec.(*journal.Step); ok && s.Scope == scope && s.Name == name && len(s.Value) > 0 {
				values = append(values, string(s.Value))
			}
		}
		return values
	}
	raw, err := w.Step(ctx, name, once, func(ctx context.Context) (json.RawMessage, error) {
		r.begins("step " + key)
		if got := steps(); len(got) > 0 {
			r.breaks("62: a step that is recorded is not run again", "%s has %q", key, got)
		}
		r.mu.Lock()
		r.once[key]++
		runs := r.once[key]
		r.mu.Unlock()
		if once && runs > 1 {
			r.breaks("62: a step that must run once runs once", "%s", key)
		}
		pause(ctx, 50*time.Millisecond)
		return mustJSON(key + r.fresh()), nil
	})
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	before, again := r.values[key]
	r.values[key] = string(raw)
	r.mu.Unlock()
	if again && before != string(raw) {
		r.breaks("63: a step has one value", "%s was %s and is %s", key, before, raw)
	}
	if got := steps(); !slices.Equal(got, []string{string(raw)}) {
		r.breaks("60: a step's value is durable, once, when the step returns", "%s returns %s, recorded are %q", key, raw, got)
	}
	return string(raw), nil
}

// greet is a start hook: it runs a step, dispatches, appends and writes.
func (r *trial) greet(ctx context.Context, w *engine.Work, instance, body string) error {
	r.mu.Lock()
	say := r.say[body]
	r.mu.Unlock()
	n, id := number(body), submissionFor(body)
	if _, err := r.work(ctx, w, instance, journal.StartScope(id), "greet", false); err != nil {
		return err
	}
	if say.Dispatch {
		// It may fail, as the store does: then nothing is sent.
		_, _ = r.engine().Admit(ctx, engine.Admission{
			Address: store.Address{Agent: "chat", ID: instance}, Submission: "disp_" + id, Identity: []byte(id), Origin: "dispatch",
			Message: journal.Message{Kind: journal.User, Body: fmt.Sprintf("#%d", 1000+n)},
		})
	}
	pause(ctx, 100*time.Millisecond) // the second one has ended long ago
	return errors.Join(w.Append(signalOf("first")), r.mark(w, "first:"+body))
}

// number is the number of a message.
func number(body string) int {
	n, err := strconv.Atoi(body[1:])
	if err != nil {
		panic(err)
	}
	return n
}

// submissionFor is the id under which a message was sent.
func submissionFor(body string) string {
	switch n := number(body); {
	case n >= 2000:
		return "sub_last"
	case n >= 1000:
		return fmt.Sprintf("disp_sub_%d", n-1000)
	default:
		return fmt.Sprintf("sub_%d", n)
	}
}

// review is the finish hook: it sends the model back to work once for each
// message that says so.
func (r *trial) review(w *engine.Work, instance string) error {
	r.mu.Lock()
	r.finished[instance] = append(r.finished[instance], time.Now())
	var again []string
	for _, m := range r.sent {
		if m.addr.ID == instance && r.say[m.body].Cycle {
			again = append(again, m.body)
		}
	}
	r.mu.Unlock()
	for _, body := range again {
		if w.Var("reviewed:"+body) == nil && w.Var("first:"+body) != nil {
			return errors.Join(w.Append(signalOf("review")), r.mark(w, "reviewed:"+body))
		}
	}
	return nil
}

// answer is the model.
func (r *trial) answer(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
	if err := wellFormed(req.Messages); err != nil {
		r.breaks("53: every call has its result in the next message", "%v", err)
	}
	r.begins("a model call")
	if isSummary(req) {
		if pause(ctx, 200*time.Millisecond) {
			say(yield, "so far")
		}
		return
	}
	instance := req.System[:2]
	shown, latest := requestForm(req)
	body, k := asked(req)
	if strings.Contains(shown, "<compaction\n") {
		k = max(k, r.asksMade(instance, body))
	}
	r.mu.Lock()
	if r.forms[instance] == nil {
		r.forms[instance] = make(map[string]bool)
	}
	r.forms[instance][shown] = true
	delivered := r.delivered[instance]
	say := r.say[body]
	flaky := r.flaky[body] > 0
	if flaky {
		r.flaky[body]--
	}
	r.mu.Unlock()
	if latest != delivered {
		r.breaks("76: the render has the message in front that is before the model", "%q, and the model %q", delivered, latest)
	}
	switch {
	case flaky:
		yield(nil, &model.Error{Class: model.Retryable, Message: "try again"})
	case k < len(say.Batches):
		r.ask(instance+body, k, say.Batches[k], yield)
	case say.End == "fatal":
		yield(nil, &model.Error{Class: model.Invalid, Message: "no"})
	case say.End == "hang":
		yield(model.Delta{Kind: model.Text, Text: "well"}, nil)
		<-ctx.Done()
	case say.End == "silent":
		yield(model.Done{Stop: model.StopEnd}, nil)
	case say.End == "length":
		yield(model.Delta{Kind: model.Text, Text: "too lo"}, nil)
		yield(model.Done{Stop: model.StopLength}, nil)
	case say.End == "slow":
		for i := range 5 {
			if !yield(model.Delta{Kind: model.Text, Text: fmt.Sprint("slow ", i, " ")}, nil) || !pause(ctx, 300*time.Millisecond) {
				return
			}
		}
		yield(model.Done{Stop: model.StopEnd}, nil)
	default:
		yield(model.Delta{Kind: model.Text, Text: "re: " + body}, nil)
		yield(model.Done{Stop: model.StopEnd, Usage: model.Usage{Input: 1}}, nil)
	}
}

var callTools = map[rune]string{'p': "plain", 'd': "durable", 'o': "once", 'e': "finish", 'f': "fails", 's': "stuck", 'g': "gone", 't': "plain"}

// ask is an answer that asks for calls; with a t among them it is cut by its
// length.
func (r *trial) ask(prefix string, k int, kinds string, yield func(model.Event, error) bool) {
	yield(model.Delta{Kind: model.Text, Text: "let me see"}, nil)
	for i, kind := range kinds {
		id := fmt.Sprintf("%s.%d.%d", prefix, k, i)
		if !yield(model.BlockDone{Index: i + 1, Block: model.Block{Kind: model.ToolCall, Name: callTools[kind], CallID: id, Arguments: fmt.Sprintf(`{"n":%d}`, i)}}, nil) {
			return
		}
	}
	stop := model.StopToolUse
	if strings.Contains(kinds, "t") {
		stop = model.StopLength
	}
	yield(model.Done{Stop: stop}, nil)
}

// asksMade is how many batches of calls were asked for by the journal: of those
// before a compaction the request shows nothing.
func (r *trial) asksMade(instance, body string) int {
	made := 0
	for _, p := range r.read(store.Address{Agent: "chat", ID: instance}) {
		for _, rec := range p.Records {
			t, ok := rec.(*journal.TurnDone)
			if !ok {
				continue
			}
			for _, b := range t.Blocks {
				if rest, ok := strings.CutPrefix(b.Call, instance+body+"."); ok {
					k, _, _ := strings.Cut(rest, ".")
					if n, err := strconv.Atoi(k); err == nil {
						made = max(made, n+1)
					}
				}
			}
		}
	}
	return made
}
