package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// killed ends an engine as SIGKILL would, and returns the store as the next
// process finds it.
func killed(t *testing.T, e *engine.Engine, s *memstore.Store) *memstore.Store {
	t.Helper()
	s = s.Reopen()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Close(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// outcomes are the outcomes of calls in a journal, by call.
func outcomes(t *testing.T, s store.Store) map[string]*journal.Outcome {
	t.Helper()
	out := make(map[string]*journal.Outcome)
	for _, r := range records(t, s, chat) {
		if o, ok := r.(*journal.Outcome); ok {
			if out[o.Call] != nil {
				t.Errorf("call %s has two outcomes", o.Call)
			}
			out[o.Call] = o
		}
	}
	return out
}

// folded is the state that a journal folds to.
func folded(t *testing.T, s store.Store) *fold.State {
	t.Helper()
	st := &fold.State{Head: -1}
	for _, r := range records(t, s, chat) {
		if err := st.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	return st
}

// callsThenSays makes the model ask for the calls once in answer to a message,
// and then say done.
func callsThenSays(calls ...string) func(context.Context, *model.Request, func(model.Event, error) bool) {
	return func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
		if _, results := asked(req); results == 0 {
			call(yield, calls...)
			return
		}
		say(yield, "done")
	}
}

// results are the tool results of a request, in order.
func results(req *model.Request) []model.Block {
	var out []model.Block
	for _, m := range req.Messages {
		for _, b := range m.Blocks {
			if b.Kind == model.ToolResult {
				out = append(out, b)
			}
		}
	}
	return out
}

// A batch that has ended the turn has ended it for good: whatever dies once its
// outcomes are durable, the model is not called again.
func TestEndTurnSurvivesACrash(t *testing.T) {
	between := 0 // crashes after the outcomes and before the settlement
	run := func(t *testing.T, crashAt int, mode faultstore.Mode) (writes int) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.tools = []engine.Tool{w.tool("finish", func(ctx context.Context, c *engine.Work) engine.Result {
				if c.ID == "b" { // so that every run makes the same writes
					pause(ctx, time.Millisecond)
				}
				return engine.Result{Content: "bye", Output: mustJSON("bye"), EndTurn: true}
			})}
			w.render = func(engine.View) (*engine.Plan, error) {
				return &engine.Plan{
					Settings: journal.Settings{Model: "test/m"}, Tools: w.tools,
					// A hook before which everything is made durable: there is something to die in.
					Finish: []engine.Hook{{Name: "UseAgentFinish", Run: func(context.Context, *engine.Work) error { return nil }}},
				}, nil
			}
			w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
				if len(results(req)) > 0 {
					say(yield, "one word more")
					return
				}
				call(yield, "finish a", "finish b")
			}
			durable := memstore.New()
			fs := faultstore.New(durable)
			if crashAt > 0 {
				fs.Crash(crashAt, mode)
			}
			e := w.start(t, fs)
			_, err := e.Admit(t.Context(), engine.Admission{
				Address: chat, Submission: "sub_0", Identity: []byte("go"), Origin: "direct", Message: journal.Message{Kind: journal.User, Body: "go"},
			})
			synctest.Wait()
			time.Sleep(time.Minute) // simulated
			if writes = fs.Calls().Total(); crashAt == 0 {
				if w.calls != 1 {
					t.Errorf("%d model calls without a crash", w.calls)
				}
				stop(t, e)
				return
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := e.Close(ctx); err != nil {
				t.Fatal(err)
			}
			fs.Flush()
			durable = durable.Reopen()
			ended, settledBefore := 0, false
			for _, r := range records(t, durable, chat) {
				switch r := r.(type) {
				case *journal.Outcome:
					if r.EndTurn {
						ended++
					}
				case *journal.Settled:
					settledBefore = true
				}
			}
			if ended == 2 && !settledBefore {
				between++
			}
			before := w.calls
			e = w.start(t, durable)
			defer stop(t, e)
			if err != nil && len(records(t, durable, chat)) == 0 {
				return // it was never admitted
			}
			if got := settled(t, e, chat, "sub_0"); got != "completed" {
				t.Errorf("settled %s", got)
			}
			if ended == 2 && w.calls != before {
				t.Errorf("both outcomes were durable, and the model was called again: %q", transcript(t, e, chat))
			}
			if n := w.count("tool:a") + w.count("tool:b"); n > 2 {
				t.Errorf("the tools ran %d times", n)
			}
		})
		return writes
	}
	writes := run(t, 0, "")
	for n := 1; n <= writes; n++ {
		for _, mode := range modes {
			t.Run(fmt.Sprint(n, mode), func(t *testing.T) { run(t, n, mode) })
		}
	}
	if between == 0 {
		t.Error("no crash came after the outcomes and before the settlement")
	}
}

// A call that fails in the same way again and again is warned, then its response
// fails. Other arguments have a count of their own, a success begins anew, and a
// crash forgets nothing.
func TestRepeatedFailure(t *testing.T) {
	fails := func(w *world) engine.Tool {
		tool := w.tool("try", nil)
		tool.Run = func(ctx context.Context, c *engine.Work, arguments string) engine.Result {
			w.effect("try:%s", arguments)
			if strings.Contains(arguments, "good") {
				return engine.Result{Content: "fine"}
			}
			if strings.Contains(arguments, "wait") && w.count("try:"+arguments) == 5 {
				<-ctx.Done() // the process dies here
			}
			return engine.Result{Failed: true, Content: "no luck"}
		}
		return tool
	}
	// attempts makes the model try the arguments one after the other, the last
	// of them for ever.
	attempts := func(arguments ...string) func(context.Context, *model.Request, func(model.Event, error) bool) {
		return func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
			n := len(results(req))
			if n >= len(arguments) && arguments[len(arguments)-1] == "" {
				say(yield, "I give up")
				return
			}
			call(yield, fmt.Sprintf("try c%d %s", n, arguments[min(n, len(arguments)-1)]))
		}
	}
	warning := func(n int) string {
		return fmt.Sprintf("no luck\n\nThis is failure number %d of the same call with the same arguments.", n)
	}

	t.Run("to the bound", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.tools = []engine.Tool{fails(w)}
			w.reply = attempts(`{"a":1,"b":2}`, `{"b":2,"a":1}`, `{"a":1,"b":2}`) // the same thing, however it is written
			s := memstore.New()
			e := w.start(t, s)
			defer stop(t, e)
			id := send(t, e, chat, "go")
			if got := settled(t, e, chat, id); got != "failed" {
				t.Errorf("settled %s", got)
			}
			if w.calls != 8 {
				t.Errorf("%d model calls, want 8", w.calls)
			}
			got := outcomes(t, s)
			for i := range 8 {
				content := got[fmt.Sprintf("c%d", i)].Content
				if i < 2 && content != "no luck" || i >= 2 && !strings.HasPrefix(content, warning(i+1)) {
					t.Errorf("failure %d reads %q", i+1, content)
				}
			}
			// The next message begins anew.
			w.reply = echo
			if got := settled(t, e, chat, send(t, e, chat, "and now")); got != "completed" {
				t.Errorf("the next message settled %s", got)
			}
			var reason error
			for _, ev := range w.seen() {
				if ev.Type == engine.EventSettled && ev.Submission == id {
					reason = ev.Error
				}
			}
			if reason == nil || !strings.Contains(reason.Error(), `tool "try" failed 8 times in a row with the same arguments`) {
				t.Errorf("the reason is %v", reason)
			}
		})
	})

	t.Run("counted apart", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.tools = []engine.Tool{fails(w)}
			// Seven failures of one call, a success of that same call is not to be
			// had here, so other arguments fail and succeed in between.
			w.reply = attempts(`{"n":1}`, `{"n":1}`, `{"n":2}`, `{"n":2}`, `{"n":1}`, `{"good":1}`, `{"n":2}`, `{"n":3}`, "")
			s := memstore.New()
			e := w.start(t, s)
			defer stop(t, e)
			if got := settled(t, e, chat, send(t, e, chat, "go")); got != "completed" {
				t.Errorf("settled %s", got)
			}
			got := outcomes(t, s)
			for id, want := range map[string]string{
				"c0": "no luck", "c1": "no luck", "c2": "no luck", "c3": "no luck", "c5": "fine", "c7": "no luck",
			} {
				if got[id].Content != want {
					t.Errorf("call %s reads %q, want %q", id, got[id].Content, want)
				}
			}
			for _, id := range []string{"c4", "c6"} {
				if !strings.HasPrefix(got[id].Content, warning(3)) {
					t.Errorf("call %s reads %q, want the warning of a third failure", id, got[id].Content)
				}
			}
		})
	})

	t.Run("a success begins anew", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			flaky := w.tool("try", nil)
			flaky.Run = func(_ context.Context, c *engine.Work, arguments string) engine.Result {
				w.effect("try")
				if n := w.count("try"); n%8 == 0 { // each eighth call succeeds
					return engine.Result{Content: "fine"}
				}
				return engine.Result{Failed: true, Content: "no luck"}
			}
			w.tools = []engine.Tool{flaky}
			w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
				if n := len(results(req)); n < 18 {
					call(yield, fmt.Sprintf("try c%d {}", n))
					return
				}
				say(yield, "done")
			}
			s := memstore.New()
			e := w.start(t, s)
			defer stop(t, e)
			if got := settled(t, e, chat, send(t, e, chat, "go")); got != "completed" {
				t.Errorf("settled %s", got)
			}
			got := outcomes(t, s)
			if !strings.HasPrefix(got["c6"].Content, warning(7)) || got["c7"].Content != "fine" || got["c8"].Content != "no luck" || !strings.HasPrefix(got["c10"].Content, warning(3)) {
				t.Errorf("%q, %q, %q, %q", got["c6"].Content, got["c7"].Content, got["c8"].Content, got["c10"].Content)
			}
		})
	})

	t.Run("over crashes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.tools = []engine.Tool{fails(w)}
			w.reply = attempts(`{"wait":1}`)
			s := memstore.New()
			e := w.start(t, s)
			id := send(t, e, chat, "go")
			time.Sleep(time.Minute) // simulated: the fifth call is at work
			s = killed(t, e, s)
			e = w.start(t, s)
			defer stop(t, e)
			if got := settled(t, e, chat, id); got != "failed" {
				t.Errorf("settled %s", got)
			}
			if n := w.count(`try:{"wait":1}`); n != 8 {
				t.Errorf("the tool ran %d times, want 8 in both lives together", n)
			}
			got := outcomes(t, s)
			if o := got["c4"]; !strings.Contains(o.Content, "unknown") {
				t.Errorf("the interrupted call reads %q", o.Content)
			}
			if o := got["c5"]; !strings.HasPrefix(o.Content, warning(6)) {
				t.Errorf("the first failure of the second life reads %q", o.Content)
			}
		})
	})
}

// What counts is how often the model has tried in vain, not how many calls it
// made at once: it reads the warning before its response fails.
func TestRepeatedFailureOfCallsSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.tools = []engine.Tool{w.tool("try", func(context.Context, *engine.Work) engine.Result {
			return engine.Result{Failed: true, Content: "no luck"}
		})}
		w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
			n := len(results(req))
			if n > 0 && strings.Contains(results(req)[n-1].Text, "failure number 3") {
				say(yield, "I give up")
				return
			}
			var calls []string
			for i := range 8 {
				calls = append(calls, fmt.Sprintf("try c%d {}", n+i))
			}
			call(yield, calls...)
		}
		e := w.start(t, memstore.New())
		defer stop(t, e)
		if got := settled(t, e, chat, send(t, e, chat, "go")); got != "completed" || w.calls != 4 {
			t.Errorf("settled %s after %d model calls: the model has not read the warning", got, w.calls)
		}
	})
}

// A plain call that a crash interrupts is not run again: the model and the
// clients read that its outcome is unknown, and the response goes on.
func TestInterruptedCallIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.tools = []engine.Tool{
			w.tool("slow", func(ctx context.Context, _ *engine.Work) engine.Result {
				<-ctx.Done()
				return engine.Result{Failed: true, Content: "stopped", Err: ctx.Err()}
			}),
			w.tool("quick", func(context.Context, *engine.Work) engine.Result {
				return engine.Result{Content: "charged", Output: mustJSON("charged")}
			}),
		}
		w.reply = callsThenSays("slow s", "quick q")
		s := memstore.New()
		e := w.start(t, s)
		id := send(t, e, chat, "go")
		time.Sleep(time.Second) // simulated: quick has its outcome, slow is at work
		s = killed(t, e, s)
		e = w.start(t, s)
		defer stop(t, e)
		if got := settled(t, e, chat, id); got != "completed" {
			t.Fatalf("settled %s", got)
		}
		if w.count("tool:s") != 1 || w.count("tool:q") != 1 {
			t.Errorf("the tools ran %d and %d times", w.count("tool:s"), w.count("tool:q"))
		}
		const unknown = `{"type":"interrupted","message":"Tool execution was interrupted before completion. The outcome is unknown."}`
		want := []model.Block{
			{Kind: model.ToolResult, CallID: "s", Name: "slow", Text: unknown, IsError: true},
			{Kind: model.ToolResult, CallID: "q", Name: "quick", Text: "charged"},
		}
		if diff := cmp.Diff(want, results(w.last)); diff != "" {
			t.Errorf("what the model reads (-want +got):\n%s", diff)
		}
		seen := []string{
			`user text "go" done`, "assistant slow({}) output-error: " + unknown, `assistant quick({}) output-available: "charged"`,
			`assistant text "done" done`, "settled completed",
		}
		if diff := cmp.Diff(seen, transcript(t, e, chat)); diff != "" {
			t.Errorf("what clients see (-want +got):\n%s", diff)
		}
	})
}

// What ends the response before a tool's own timeout is told as what it is, and
// a tool's timeout never outlasts the submission's.
func TestAbortBeatsToolTimeout(t *testing.T) {
	tests := []struct {
		name    string
		timeout time.Duration // of the tool
		budget  time.Duration
		deaf    time.Duration // how long the tool ignores its context
		stop    func(t *testing.T, e *engine.Engine)
		at      time.Duration // when stop is called
		took    time.Duration // until the submission is settled, or given up
		outcome string
	}{
		{name: "abort", timeout: time.Minute, stop: abort, at: 30 * time.Second, took: 30 * time.Second, outcome: "aborted"},
		{name: "abort, and the timeout within the grace", timeout: time.Minute, deaf: time.Hour, stop: abort, at: 59 * time.Second, took: 61 * time.Second, outcome: "aborted"},
		{name: "deadline", timeout: time.Minute, budget: 30 * time.Second, took: 30 * time.Second, outcome: "failed"},
		{name: "deadline, and the timeout within the grace", timeout: 31 * time.Second, budget: 30 * time.Second, deaf: time.Hour, took: 32 * time.Second, outcome: "failed"},
		{name: "timeout longer than the budget", timeout: 48 * time.Hour, budget: time.Hour, took: time.Hour, outcome: "failed"},
		{name: "close", timeout: time.Minute, stop: closeNow, at: 30 * time.Second, took: 30 * time.Second},
		{name: "close, and the timeout within the grace", timeout: time.Minute, deaf: time.Hour, stop: closeNow, at: 59 * time.Second, took: 61 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				forever := make(chan struct{})
				tool := w.tool("bounded", func(ctx context.Context, c *engine.Work) engine.Result {
					if tt.deaf > 0 {
						<-forever
					}
					<-ctx.Done()
					return engine.Result{Failed: true, Content: ctx.Err().Error(), Err: ctx.Err()}
				})
				tool.Timeout = tt.timeout
				w.tools = []engine.Tool{tool}
				w.reply = callsThenSays("bounded c1")
				if tt.budget > 0 {
					w.budget.Timeout = tt.budget
				}
				s := memstore.New()
				e := w.start(t, s)
				began := time.Now()
				id := send(t, e, chat, "go")
				if tt.stop != nil {
					time.Sleep(tt.at) // simulated
					if tt.deaf > 0 && tt.outcome == "" {
						go func() { time.Sleep(4 * time.Second); close(forever) }()
					}
					tt.stop(t, e)
				}
				if tt.outcome != "" {
					if got := settled(t, e, chat, id); got != tt.outcome {
						t.Errorf("settled %s, want %s", got, tt.outcome)
					}
					if took := time.Since(began); took != tt.took {
						t.Errorf("it took %v, want %v", took, tt.took)
					}
					if tt.deaf > 0 {
						close(forever)
					}
					defer stop(t, e)
				}
				o := outcomes(t, s)["c1"]
				if o == nil {
					t.Fatal("the call has no outcome")
				}
				if !o.Failed || !strings.HasPrefix(o.Content, `{"type":"interrupted"`) || strings.Contains(o.Content, "timed out") {
					t.Errorf("the call reads %q", o.Content)
				}
			})
		})
	}
}

func abort(t *testing.T, e *engine.Engine) {
	t.Helper()
	if ok, err := e.Abort(t.Context(), chat); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

// closeNow closes an engine without giving its work any time.
func closeNow(t *testing.T, e *engine.Engine) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// A call that has seen what another one wrote gets its outcome only with that
// one's, through any number of calls between them. One that has only written,
// or touched nothing that others did, waits for nobody.
func TestOutcomeWaitsForWhatItStandsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.tools = []engine.Tool{w.tool("work", func(_ context.Context, c *engine.Work) engine.Result {
			step := func(n int) { time.Sleep(time.Duration(n) * time.Second) } // simulated
			var err error
			switch c.ID {
			case "first":
				err = addOne(c)
				step(10)
			case "second": // sees first
				step(1)
				err = addOne(c)
				c.Set("m", mustJSON(1))
			case "third": // sees second, and through it first
				step(2)
				err = c.Update("m", func(raw json.RawMessage) (json.RawMessage, error) { return mustJSON(string(raw) + "!"), nil })
			case "blind": // overwrites without having looked
				step(3)
				err = c.Set("n", mustJSON(100))
			case "apart":
				step(4)
				err = c.Set("other", mustJSON(true))
			}
			if err != nil {
				return engine.Result{Failed: true, Content: err.Error()}
			}
			return engine.Result{Content: "ok"}
		})}
		w.reply = callsThenSays("work first", "work second", "work third", "work blind", "work apart")
		s := memstore.New()
		e := w.start(t, s)
		defer stop(t, e)
		id := send(t, e, chat, "go")
		time.Sleep(5 * time.Second) // simulated: all but first have returned
		var early []string
		for call := range outcomes(t, s) {
			early = append(early, call)
		}
		slices.Sort(early)
		if want := []string{"apart", "blind"}; !slices.Equal(early, want) {
			t.Errorf("while the first call works, %q have outcomes, want %q", early, want)
		}
		if got := settled(t, e, chat, id); got != "completed" {
			t.Errorf("settled %s", got)
		}
		if n := len(outcomes(t, s)); n != 5 {
			t.Errorf("%d outcomes", n)
		}
		st := folded(t, s)
		if got := fmt.Sprintf("%s %s %s", st.Vars["n"], st.Vars["m"], st.Vars["other"]); got != `100 "1!" true` {
			t.Errorf("the state is %s", got)
		}
	})
}

// What stands on the write of a call that is lost is lost with it, directly and
// through others: nobody can know what it would have made without. Other calls
// keep their results.
func TestDependentsOfALostCallAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		forever := make(chan struct{})
		var late error
		w.tools = []engine.Tool{w.tool("work", func(_ context.Context, c *engine.Work) engine.Result {
			var err error
			switch c.ID {
			case "lost":
				err = errors.Join(addOne(c), c.Set("key", mustJSON("lost")))
				<-forever
				late = c.Set("n", mustJSON(-1))
			case "b":
				time.Sleep(time.Second) // simulated
				err = errors.Join(addOne(c), c.Set("through", mustJSON("b")))
			case "c":
				time.Sleep(2 * time.Second) // simulated
				err = c.Update("through", func(raw json.RawMessage) (json.RawMessage, error) { return raw, nil })
			case "other":
				err = errors.Join(c.Set("key", mustJSON("other")), c.Set("mine", mustJSON(1)))
			}
			if err != nil {
				return engine.Result{Failed: true, Content: err.Error()}
			}
			return engine.Result{Content: "ok"}
		})}
		w.reply = callsThenSays("work lost", "work b", "work c", "work other")
		s := memstore.New()
		e := w.start(t, s)
		defer stop(t, e)
		id := send(t, e, chat, "go")
		time.Sleep(3 * time.Second) // simulated: all others have returned, and b and c wait
		if got := outcomes(t, s); len(got) != 1 || got["other"] == nil {
			t.Errorf("there are %d outcomes while the call that others stand on works", len(got))
		}
		abort(t, e)
		if got := settled(t, e, chat, id); got != "aborted" {
			t.Errorf("settled %s", got)
		}
		close(forever)
		synctest.Wait()
		if !errors.Is(late, engine.ErrOver) {
			t.Errorf("the late write: %v", late)
		}
		got := outcomes(t, s)
		if !got["lost"].Failed || !got["b"].Failed || !got["c"].Failed || got["other"].Failed {
			t.Errorf("failed: %v %v %v %v, want all but the last", got["lost"].Failed, got["b"].Failed, got["c"].Failed, got["other"].Failed)
		}
		st := folded(t, s)
		if st.Vars["n"] != nil || st.Vars["through"] != nil || string(st.Vars["key"]) != `"other"` || string(st.Vars["mine"]) != "1" {
			t.Errorf("the state is %s", st.Vars)
		}
	})
}

// A durable call that is run again stands on what the calls beside it have
// written: their outcomes are there, and no update is lost.
func TestUpdatesBesideACallThatIsRunAgain(t *testing.T) {
	for _, first := range []string{"durable", "plain"} { // who updated first in the first life
		t.Run(first, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				lives := 1
				durable := w.tool("durable", func(ctx context.Context, c *engine.Work) engine.Result {
					if first == "plain" {
						time.Sleep(time.Second) // simulated
					}
					before := string(c.Var("n"))
					for range 10 {
						if err := addOne(c); err != nil {
							return engine.Result{Failed: true, Content: err.Error()}
						}
					}
					w.effect("life %d from %q", lives, before)
					if lives == 1 {
						<-ctx.Done()
					}
					return engine.Result{Content: "ok"}
				})
				durable.Again = true
				plain := w.tool("plain", func(_ context.Context, c *engine.Work) engine.Result {
					var err error
					if first == "durable" {
						time.Sleep(time.Second) // simulated
						err = c.Set("n", mustJSON(100))
					} else {
						err = addOne(c)
					}
					if err != nil {
						return engine.Result{Failed: true, Content: err.Error()}
					}
					return engine.Result{Content: "ok"}
				})
				w.tools = []engine.Tool{durable, plain}
				w.reply = callsThenSays("durable d", "plain p")
				s := memstore.New()
				e := w.start(t, s)
				id := send(t, e, chat, "go")
				time.Sleep(2 * time.Second) // simulated: plain has its outcome, durable is at work
				s = killed(t, e, s)
				if n := len(outcomes(t, s)); n != 1 {
					t.Fatalf("%d outcomes before the crash", n)
				}
				lives++
				e = w.start(t, s)
				defer stop(t, e)
				if got := settled(t, e, chat, id); got != "completed" {
					t.Errorf("settled %s", got)
				}
				want := map[string]string{"durable": "110", "plain": "11"}[first]
				if got := string(folded(t, s).Vars["n"]); got != want {
					t.Errorf("n is %s, want %s; %q", got, want, w.did())
				}
			})
		})
	}
}

// durableLives runs a durable call through the crashes, ends with a life that
// does not crash, and holds everything to the promise. It returns how many
// writes each life made, and what became of the steps.
func durableLives(t *testing.T, crashes ...crash) (writes []int, p *provisioning) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p = &provisioning{world: w, recorded: map[string]string{}}
		w.tools = []engine.Tool{p.tool()}
		w.reply = callsThenSays("provision c1")
		sc := scenario{sends: []delivery{{0, "go"}}}
		durable := memstore.New()
		began, acked, abortSent := time.Now(), make(map[int]bool), false
		for life := 0; ; life++ {
			fs := faultstore.New(durable)
			if life < len(crashes) {
				fs.Crash(crashes[life].n, crashes[life].mode)
			}
			p.life = life
			e := w.start(t, fs)
			dead := sc.live(t, e, fs, began, acked, &abortSent)
			writes = append(writes, fs.Calls().Total())
			if !dead {
				stop(t, e)
				p.check(t, durable.Reopen())
				return
			}
			closeNow(t, e)
			fs.Flush()
			durable = durable.Reopen()
			p.remember(t, durable)
		}
	})
	return writes, p
}

// A provisioning is a durable tool of three steps, the second of which must not
// run twice, and what is known of its lives.
type provisioning struct {
	*world
	life int

	mu       sync.Mutex
	recorded map[string]string // values of steps that were durable when a life began
	again    []string          // steps that ran although they were recorded
	unknown  bool              // the tool was told that the second step's outcome is unknown
}

func (p *provisioning) tool() engine.Tool {
	tool := p.world.tool("provision", nil)
	tool.Again = true
	tool.Run = func(ctx context.Context, c *engine.Work, _ string) engine.Result {
		p.effect("run")
		var values []string
		for _, name := range []string{"account", "mail", "dns"} {
			raw, err := c.Step(ctx, name, name == "mail", func(context.Context) (json.RawMessage, error) {
				p.effect("step:%s", name)
				p.mu.Lock()
				defer p.mu.Unlock()
				if p.recorded[name] != "" {
					p.again = append(p.again, name)
				}
				return mustJSON(fmt.Sprintf("%s of life %d", name, p.life)), nil
			})
			if errors.Is(err, engine.ErrOutcomeUnknown) {
				p.mu.Lock()
				p.unknown = true
				p.mu.Unlock()
				raw, err = mustJSON("unknown"), nil
			}
			if err != nil {
				return engine.Result{Failed: true, Content: err.Error(), Err: err}
			}
			values = append(values, string(raw))
		}
		if err := c.Set("done", json.RawMessage(values[0])); err != nil {
			return engine.Result{Failed: true, Content: err.Error(), Err: err}
		}
		return engine.Result{Content: strings.Join(values, ", ")}
	}
	return tool
}

// remember takes note of what is durable between two lives.
func (p *provisioning) remember(t *testing.T, s store.Store) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, values := range stepValues(t, s) {
		p.recorded[name] = values[0]
	}
}

// stepValues are the recorded values of steps, by name.
func stepValues(t *testing.T, s store.Store) map[string][]string {
	t.Helper()
	out := make(map[string][]string)
	for _, r := range records(t, s, chat) {
		if step, ok := r.(*journal.Step); ok && len(step.Value) > 0 {
			out[step.Name] = append(out[step.Name], string(step.Value))
		}
	}
	return out
}

func (p *provisioning) check(t *testing.T, s store.Store) {
	t.Helper()
	var outcome []*journal.Outcome
	var settlements []string
	begun := 0
	for _, r := range records(t, s, chat) {
		switch r := r.(type) {
		case *journal.Outcome:
			outcome = append(outcome, r)
		case *journal.Settled:
			settlements = append(settlements, r.Outcome)
		case *journal.Step:
			if len(r.Value) == 0 {
				begun++
			}
		}
	}
	if len(p.again) > 0 {
		t.Errorf("steps %q ran although they were recorded", p.again)
	}
	if n := p.count("step:mail"); n > 1 || begun != 1 {
		t.Errorf("the step that must not run twice ran %d times and was begun %d times", n, begun)
	}
	values := stepValues(t, s)
	var want []string
	for _, name := range []string{"account", "mail", "dns"} {
		if name == "mail" && p.unknown {
			if len(values[name]) != 0 {
				t.Errorf("the outcome of %s is unknown, and recorded", name)
			}
			want = append(want, `"unknown"`)
			continue
		}
		if len(values[name]) != 1 || p.count("step:"+name) < 1 {
			t.Fatalf("step %s was recorded %d times and ran %d times", name, len(values[name]), p.count("step:"+name))
		}
		if old := p.recorded[name]; old != "" && old != values[name][0] {
			t.Errorf("step %s was recorded as %s and is %s", name, old, values[name][0])
		}
		want = append(want, values[name][0])
	}
	if len(outcome) != 1 || outcome[0].Failed || outcome[0].Content != strings.Join(want, ", ") {
		t.Errorf("the outcomes are %+v, want one: %s", outcome, strings.Join(want, ", "))
	}
	if !slices.Equal(settlements, []string{"completed"}) {
		t.Errorf("settled %q", settlements)
	}
	if st := folded(t, s); len(st.Steps) != 0 || string(st.Vars["done"]) != values["account"][0] {
		t.Errorf("%d scopes of steps are left, and the call's write is %s", len(st.Steps), st.Vars["done"])
	}
}

// TestCrashInADurableTool kills the process at every write of a durable call in
// every way, then at every pair of writes, then at a sample of triples.
func TestCrashInADurableTool(t *testing.T) {
	runs, unknown, replayed, repeated := 0, 0, 0, 0
	rng := rand.New(rand.NewPCG(3, 4))
	var attempt func(prefix []crash)
	attempt = func(prefix []crash) {
		writes, p := durableLives(t, prefix...)
		runs++
		if p.unknown {
			unknown++
		}
		if len(p.recorded) > 0 {
			replayed++
		}
		if p.count("step:account") > 1 || p.count("step:dns") > 1 {
			repeated++
		}
		if t.Failed() {
			t.Fatalf("after the crashes %v", prefix)
		}
		if len(prefix) == 3 || len(writes) <= len(prefix) {
			return
		}
		for n := 1; n <= writes[len(prefix)]; n++ {
			for _, mode := range modes {
				if len(prefix) == 2 && rng.IntN(20) != 0 || len(prefix) == 1 && testing.Short() && rng.IntN(5) != 0 {
					continue
				}
				attempt(append(prefix[:len(prefix):len(prefix)], crash{n, mode}))
			}
		}
	}
	attempt(nil)
	t.Logf("%d runs: in %d a step was replayed, in %d one was repeated, in %d one was unknown", runs, replayed, repeated, unknown)
	if replayed == 0 || repeated == 0 || unknown == 0 {
		t.Error("the crashes have missed what they are for")
	}
}

// A shutdown that has lost its patience interrupts a durable call as a crash
// would, not worse: the next process completes it.
func TestDurableCallOutlivesAShutdown(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprintf("deaf=%v", deaf), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				first := true
				tool := w.tool("provision", nil)
				tool.Again = true
				tool.Run = func(ctx context.Context, c *engine.Work, _ string) engine.Result {
					raw, err := c.Step(ctx, "account", false, func(context.Context) (json.RawMessage, error) {
						w.effect("account")
						return mustJSON("acc_1"), nil
					})
					if err != nil {
						return engine.Result{Failed: true, Content: err.Error(), Err: err}
					}
					if first {
						first = false
						<-ctx.Done()
						if deaf {
							time.Sleep(4 * time.Second) // simulated
						}
						return engine.Result{Failed: true, Content: ctx.Err().Error(), Err: ctx.Err()}
					}
					return engine.Result{Content: string(raw)}
				}
				plain := w.tool("plain", func(ctx context.Context, _ *engine.Work) engine.Result {
					<-ctx.Done()
					return engine.Result{Failed: true, Content: ctx.Err().Error(), Err: ctx.Err()}
				})
				w.tools = []engine.Tool{tool, plain}
				w.reply = callsThenSays("provision c1", "plain c2")
				s := memstore.New()
				e := w.start(t, s)
				id := send(t, e, chat, "go")
				time.Sleep(time.Second) // simulated: both are at work
				closeNow(t, e)
				e = w.start(t, s)
				defer stop(t, e)
				if got := settled(t, e, chat, id); got != "completed" {
					t.Errorf("settled %s", got)
				}
				got := outcomes(t, s)
				if o := got["c1"]; o.Failed || o.Content != `"acc_1"` {
					t.Errorf("the durable call reads %q", o.Content)
				}
				if o := got["c2"]; !o.Failed || !strings.HasPrefix(o.Content, `{"type":"interrupted"`) || w.count("tool:c2") != 1 {
					t.Errorf("the plain call reads %q and ran %d times", o.Content, w.count("tool:c2"))
				}
				if n := w.count("account"); n != 1 {
					t.Errorf("the step ran %d times", n)
				}
			})
		})
	}
}

// A filter may cut an answer within a call, whose arguments are then less than the
// model meant: the call is not run, and the model is not asked again.
func TestFilteredCall(t *testing.T) {
	for name, tt := range map[string]struct{ text, outcome string }{
		"with text": {"Let me see.", journal.Completed},
		"alone":     {"", journal.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.tools = []engine.Tool{w.tool("wipe", nil)}
			w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
				if w.asked() > 1 {
					if err := wellFormed(req.Messages); err != nil {
						t.Error(err)
					}
					say(yield, "ok")
					return
				}
				at := 0
				if tt.text != "" {
					yield(model.BlockDone{Block: model.Block{Kind: model.Text, Text: tt.text}}, nil)
					at = 1
				}
				yield(model.BlockDone{Index: at, Block: model.Block{Kind: model.ToolCall, CallID: "c1", Name: "wipe"}}, nil)
				yield(model.Done{Stop: model.StopFiltered}, nil)
			}
			e := w.start(t, memstore.New())
			defer stop(t, e)
			if got := settled(t, e, chat, send(t, e, chat, "go")); got != tt.outcome || w.asked() != 1 || len(w.did()) > 0 {
				t.Errorf("settled %s after %d calls, ran %v", got, w.asked(), w.did())
			}
			if got := settled(t, e, chat, send(t, e, chat, "again")); got != journal.Completed {
				t.Errorf("the next message settled %s", got)
			}
		})
	}
}
