package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// A scenario is a conversation that is held while the store fails under it.
type scenario struct {
	name  string
	sends []delivery
	abort time.Duration // when to abort; 0 means never

	timeout time.Duration // of a submission; 0 means an hour
	setup   func(w *world)
	look    func(s store.Store) // at the end
	limits  *journal.Budget     // nil means none
}

// A delivery is sent at a time, until a send of it is acknowledged.
type delivery struct {
	at   time.Duration
	body string
}

func scenarios() []scenario {
	return []scenario{
		{name: "text", sends: []delivery{{0, "hello"}}},
		{name: "tools", sends: []delivery{{0, "work"}}},
		{name: "end turn", sends: []delivery{{0, "finish"}}},
		{name: "slow text", sends: []delivery{{0, "slow"}}},
		{name: "flaky model", sends: []delivery{{0, "flaky"}}},
		{name: "fallback", sends: []delivery{{0, "fall"}}},
		{name: "long result", sends: []delivery{{0, "long"}}},
		{name: "two messages", sends: []delivery{{0, "work"}, {30 * time.Second, "hello"}}},
		{name: "join during a tool", sends: []delivery{{0, "work"}, {1500 * time.Millisecond, "hello"}}},
		{name: "join during the last turn", sends: []delivery{{0, "slow"}, {500 * time.Millisecond, "hello"}, {600 * time.Millisecond, "work"}}},
		{name: "budget of turns", sends: []delivery{{0, "spend"}, {500 * time.Millisecond, "spend"}}, limits: submissionLimits(journal.Limits{Turns: 1})},
		{name: "budget of calls", sends: []delivery{{0, "spend"}}, limits: submissionLimits(journal.Limits{ToolCalls: 3})},
		{name: "budget of time", sends: []delivery{{0, "spend"}}, limits: submissionLimits(journal.Limits{WorkMS: 500})},
		{name: "answer cut by the time", sends: []delivery{{0, "dawdle"}, {30 * time.Second, "dawdle"}}, limits: submissionLimits(journal.Limits{WorkMS: 1000})},
		{name: "mute last turn", sends: []delivery{{0, "mute"}}, limits: submissionLimits(journal.Limits{Turns: 1})},
		{name: "answer cut by the tokens", sends: []delivery{{0, "endless"}}, limits: submissionLimits(journal.Limits{Tokens: 3000})},
		{name: "call in a filtered answer", sends: []delivery{{0, "filtered"}}},
		{name: "refused images", sends: []delivery{{0, "picture"}}},
		{name: "out of time", sends: []delivery{{0, "slow"}, {20 * time.Second, "hello"}}, timeout: 1500 * time.Millisecond},
		{name: "abort of a stream", sends: []delivery{{0, "slow"}, {100 * time.Millisecond, "hello"}, {20 * time.Second, "hello again"}}, abort: 700 * time.Millisecond},
		{name: "abort of tools", sends: []delivery{{0, "work"}, {100 * time.Millisecond, "hello"}}, abort: 1500 * time.Millisecond},
	}
}

// script sets the stage for the scenario.
func (sc scenario) script(w *world) {
	script(w)
	w.limits = sc.limits
	if sc.setup != nil {
		sc.setup(w)
	}
}

// script is the model of the scenarios: what it answers depends only on the
// conversation.
func script(w *world) {
	w.fallbacks = []string{"test/n"}
	w.tools = []engine.Tool{
		w.tool("work", func(ctx context.Context, c *engine.Work) engine.Result {
			pause(ctx, time.Second)
			if ctx.Err() != nil {
				return engine.Result{Failed: true, Content: "stopped"}
			}
			err := c.Update("done:"+c.ID, func(json.RawMessage) (json.RawMessage, error) { return mustJSON(true), nil })
			if err != nil {
				return engine.Result{Failed: true, Content: err.Error()}
			}
			w.effect("returned:%s", c.ID)
			return engine.Result{Content: "ok"}
		}),
		w.tool("long", func(context.Context, *engine.Work) engine.Result {
			return engine.Result{Content: strings.Repeat("line\n", 10_000)}
		}),
		w.tool("finish", func(context.Context, *engine.Work) engine.Result { return engine.Result{Content: "bye", EndTurn: true} }),
	}
	w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
		if err := wellFormed(req.Messages); err != nil {
			w.effect("malformed: %v", err)
		}
		text, results := asked(req)
		switch {
		case text == "work" && results < 2:
			call(yield, fmt.Sprintf("work w%d-a", len(req.Messages)), fmt.Sprintf("work w%d-b", len(req.Messages)))
		case text == "spend" && !req.ToolsOff:
			call(yield, fmt.Sprintf("work s%d-a", len(req.Messages)), fmt.Sprintf("work s%d-b", len(req.Messages)))
		case text == "mute" && len(req.Tools) > 0:
			call(yield, fmt.Sprintf("work m%d-a", len(req.Messages)))
		case strings.HasPrefix(text, "[The tool answered"): // without tools, what they said is told
			say(yield, "re: mute")
		case text == "endless" && !req.ToolsOff:
			yield(model.BlockDone{Block: model.Block{Kind: model.Text, Text: "no end"}}, nil)
			yield(model.Done{Stop: model.StopLength, Usage: model.Usage{Input: 10, Output: req.MaxOutput / 2}}, nil)
		case strings.HasPrefix(text, "dawdle") && !req.ToolsOff:
			dawdle(ctx, yield)
		case text == "filtered":
			yield(model.BlockDone{Block: model.Block{Kind: model.Text, Text: "re: filtered"}}, nil)
			yield(model.BlockDone{Index: 1, Block: model.Block{Kind: model.ToolCall, CallID: "x1", Name: "work", Arguments: "{}"}}, nil)
			yield(model.Done{Stop: model.StopFiltered}, nil)
			if req.Messages[len(req.Messages)-1].Role == model.RoleTool {
				w.effect("malformed: the model is asked again after a refusal")
			}
		case text == "picture" && showsImage(req):
			yield(nil, &model.Error{Class: model.Invalid, Status: 400, Message: "no images"})
		case text == "finish":
			call(yield, fmt.Sprintf("finish f%d", len(req.Messages)))
		case text == "slow":
			for range 10 {
				if !yield(model.Delta{Kind: model.Text, Text: "slow "}, nil) || !pause(ctx, 300*time.Millisecond) {
					return
				}
			}
			yield(model.BlockDone{Block: model.Block{Kind: model.Text, Text: strings.Repeat("slow ", 10)}}, nil)
			yield(model.Done{Stop: model.StopEnd}, nil)
		case text == "flaky" && w.asked() == 1:
			yield(model.Delta{Kind: model.Text, Text: "half"}, nil)
			yield(nil, &model.Error{Class: model.Retryable, Message: "try again"})
		case text == "long" && results == 0:
			call(yield, fmt.Sprintf("long l%d", len(req.Messages)))
		case text == "fall" && results == 0 && req.Model == "m":
			yield(nil, &model.Error{Class: model.Overloaded, Message: "no capacity"})
		case text == "fall" && results == 0:
			call(yield, fmt.Sprintf("work f%d", len(req.Messages)))
		case text == "fall" && req.Model == "m":
			w.effect("malformed: the response went back to the model that it had left")
		default:
			say(yield, "re: "+text)
		}
	}
}

// dawdle says one word after another until its call is cut.
func dawdle(ctx context.Context, yield func(model.Event, error) bool) {
	for yield(model.Delta{Kind: model.Text, Text: "well, "}, nil) && pause(ctx, 300*time.Millisecond) {
	}
}

func showsImage(req *model.Request) bool {
	return slices.ContainsFunc(req.Messages, func(m model.Message) bool {
		return slices.ContainsFunc(m.Blocks, func(b model.Block) bool { return b.Kind == model.Image })
	})
}

// wellFormed checks what every provider demands of a conversation: each call
// is answered by the very next message, once, and no result is without a call.
func wellFormed(messages []model.Message) error {
	var open []string
	for i, m := range messages {
		if m.Role == model.RoleTool {
			if len(m.Blocks) != len(open) {
				return fmt.Errorf("message %d has %d results for %d calls", i, len(m.Blocks), len(open))
			}
			for j, b := range m.Blocks {
				if b.CallID != open[j] {
					return fmt.Errorf("message %d answers %q, want %q", i, b.CallID, open[j])
				}
			}
			open = nil
			continue
		}
		if len(open) > 0 {
			return fmt.Errorf("message %d: calls %q have no results", i, open)
		}
		if m.Role == model.RoleAssistant {
			for _, b := range m.Blocks {
				if b.Kind == model.ToolCall {
					open = append(open, b.CallID)
				}
			}
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("calls %q have no results", open)
	}
	return nil
}

// A crash is a write at which the process dies, and what becomes of the write.
type crash struct {
	n    int
	mode faultstore.Mode
}

// run holds the scenario, crashing as planned, and returns how many writes each
// life made. It ends with a life that does not crash, and checks everything.
func (sc scenario) run(t *testing.T, crashes ...crash) (writes []int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		sc.script(w)
		if sc.timeout > 0 {
			w.budget.Timeout = sc.timeout
		}
		if len(crashes) > 0 && crashes[0].n%3 == 0 {
			w.every = 0 // as in earnest: the conversations are too short for a checkpoint
		}
		w.merge = time.Second
		durable := memstore.New()
		began := time.Now()
		acked := make(map[int]bool)
		abortSent := false
		var e *engine.Engine
		defer func() { stop(t, e) }()
		for life := 0; ; life++ {
			fs := faultstore.New(durable)
			last := life >= len(crashes)
			if !last {
				fs.Crash(crashes[life].n, crashes[life].mode)
			}
			var err error
			if e, err = w.open(fs); err != nil {
				t.Fatal(err)
			}
			dead := sc.live(t, e, fs, began, acked, &abortSent)
			writes = append(writes, fs.Calls().Total())
			if !dead { // look at it with another process, as one would
				stop(t, e)
				durable = durable.Reopen()
				e = w.start(t, durable)
				sc.check(t, w, e, durable, acked)
				if sc.look != nil {
					sc.look(durable)
				}
				return
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // a crash gives nobody time
			if err := e.Close(ctx); err != nil {
				t.Fatal(err)
			}
			fs.Flush()
			durable = durable.Reopen()
			if _, err := engine.LoadsAlike(t.Context(), durable, chat); err != nil && !errors.Is(err, store.ErrNotFound) {
				t.Error(err)
			}
		}
	})
	return writes
}

func submissionOf(i int) string { return fmt.Sprintf("sub_%d", i) }

// live sends what is due and waits for all settlements. It reports whether the
// store crashed first.
func (sc scenario) live(t *testing.T, e *engine.Engine, fs *faultstore.Store, began time.Time, acked map[int]bool, abortSent *bool) (dead bool) {
	t.Helper()
	for range 20_000 { // 50 ms each: 1,000 s
		elapsed := time.Since(began)
		for i, d := range sc.sends {
			if acked[i] || d.at > elapsed {
				continue
			}
			a := engine.Admission{
				Address: chat, Submission: submissionOf(i), Identity: []byte(d.body), Origin: "direct",
				Message: d.message(t, e),
			}
			if d.body == "picture" {
				addImage(&a, i)
			}
			_, err := e.Admit(t.Context(), a)
			acked[i] = err == nil
			if err != nil && !errors.Is(err, faultstore.ErrInjected) {
				t.Fatalf("admitting %d: %v", i, err)
			}
		}
		if sc.abort > 0 && sc.abort <= elapsed && !*abortSent {
			_, err := e.Abort(t.Context(), chat)
			*abortSent = err == nil
		}
		synctest.Wait()
		if fs.Crashed() {
			return true
		}
		if sc.finished(e, acked) && (sc.abort == 0 || *abortSent) {
			return fs.Crashed()
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("not settled in time: acknowledged %v", acked)
	return false
}

func (sc scenario) finished(e *engine.Engine, acked map[int]bool) bool {
	for i := range sc.sends {
		if !acked[i] {
			return false
		}
		s, err := e.Submission(context.Background(), chat, submissionOf(i))
		if err != nil || s.Outcome == "" {
			return false
		}
	}
	return true
}

// check holds the journal and the world to the promise.
func (sc scenario) check(t *testing.T, w *world, e *engine.Engine, s store.Store, acked map[int]bool) {
	t.Helper()
	sc.checkBudget(t, batches(t, s, chat))
	checkCuts(t, records(t, s, chat))
	checkSummaries(t, w, s)
	st := &fold.State{Head: -1}
	ends := make(map[string][]string)
	last := "" // of what was admitted: of messages that are read together the script answers the last
	succeeded := make(map[string]bool)
	// An abort that lands while the batch after it is on its way covers what that
	// batch does not settle.
	var covered, late map[string]bool
	for _, batch := range batches(t, s, chat) {
		for _, r := range batch {
			if _, ok := r.(*journal.Abort); ok {
				late = coveredNow(st, late)
			}
			var rule *fold.RuleError
			if err := st.Apply(r); err != nil && (!errors.As(err, &rule) || !rule.Undoes) { // which takes a replay
				t.Errorf("folding the journal: %v", err)
			}
			switch r := r.(type) {
			case *journal.Admitted:
				last = r.Submission
			case *journal.Settled:
				ends[r.Submission] = append(ends[r.Submission], r.Outcome)
				if covered[r.Submission] && r.Outcome != journal.Aborted {
					t.Errorf("submission %s was aborted and settled %s", r.Submission, r.Outcome)
				}
			case *journal.Outcome:
				if !r.Failed {
					succeeded[r.Call] = true
				}
				if kept := r.Kept; kept != nil {
					if at, err := s.Attachment(t.Context(), chat, kept.ID); err != nil || len(at.Data) != 50_000 {
						t.Errorf("the result of %s: %d bytes, %v", r.Call, len(at.Data), err)
					}
				} else if strings.HasPrefix(r.Call, "l") && !r.Failed {
					t.Errorf("the result of %s was not kept", r.Call)
				}
				if w.count("tool:"+r.Call) > 1 {
					t.Errorf("call %s ran %d times", r.Call, w.count("tool:"+r.Call))
				}
			}
		}
		if owned(batch) {
			covered, late = merge(covered, late), nil
		}
	}
	if st.Phase != fold.Idle || st.Unsettled() {
		t.Errorf("the journal ends in phase %s", st.Phase)
	}
	for id := range succeeded {
		if strings.HasPrefix(id, "w") && string(st.Vars["done:"+id]) != "true" {
			t.Errorf("call %s succeeded and its write is lost", id)
		}
		if w.count("tool:"+id) != 1 {
			t.Errorf("call %s succeeded and ran %d times", id, w.count("tool:"+id))
		}
	}
	answers := strings.Join(transcript(t, e, chat), "\n")
	if strings.Contains(answers, `"half" done`) {
		t.Errorf("what a failed call had said is there, although the call was made again:\n%s", answers)
	}
	for i, d := range sc.sends {
		if !acked[i] {
			continue
		}
		switch got := ends[submissionOf(i)]; {
		case len(got) != 1:
			t.Errorf("%q has the settlements %q, want exactly one", d.body, got)
		case got[0] == "failed" && sc.timeout > 0:
		case got[0] == "failed", got[0] == "aborted" && sc.abort == 0:
			t.Errorf("%q settled %s", d.body, got[0])
		case strings.HasPrefix(d.body, "/"): // it has no answer
		case got[0] == "completed" && d.body != "finish" && d.body != "slow" && !strings.Contains(answers, "re: "+d.body) && submissionOf(i) == last:
			t.Errorf("%q settled completed and has no answer in:\n%s", d.body, answers)
		}
	}
	for _, effect := range w.did() {
		if strings.HasPrefix(effect, "malformed") {
			t.Error(effect)
		}
	}
	// Whatever happened, the next message works.
	id := send(t, e, chat, "and now")
	if got := settled(t, e, chat, id); got != "completed" {
		t.Errorf("the next message settled %s", got)
	}
	if got := strings.Join(transcript(t, e, chat), "\n"); !strings.Contains(got, `"re: and now"`) {
		t.Errorf("the next message has no answer in:\n%s", got)
	}
	if strings.Contains(strings.Join(transcript(t, e, chat), "\n"), " streaming") {
		t.Error("a part is still streaming")
	}
}

// owned reports whether the owner has written the batch.
func owned(batch []journal.Record) bool {
	switch batch[0].(type) {
	case *journal.Born, *journal.Admitted, *journal.Abort:
		return false
	}
	return true
}

func merge(a, b map[string]bool) map[string]bool {
	out := make(map[string]bool)
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

// coveredNow adds to the submissions that an abort at this point covers: all that
// are not settled, but for those whose response is complete.
func coveredNow(st *fold.State, covered map[string]bool) map[string]bool {
	if covered == nil {
		covered = make(map[string]bool)
	}
	open := st.Queue
	if st.Active != nil && st.Phase != fold.Finish && st.Phase != fold.Closed {
		open = append(append([]*fold.Submission{st.Active}, st.Joined...), open...)
	}
	for _, sub := range open {
		covered[sub.Submission] = true
	}
	return covered
}

var modes = []faultstore.Mode{faultstore.Before, faultstore.After, faultstore.Late}

// TestCrashEverywhere kills the process at every write in every way, then at
// every pair of writes, then at one in twenty of the triples, or at all of them
// when FLUE_CRASHES is "all".
func TestCrashEverywhere(t *testing.T) {
	var runs atomic.Int64
	share := 1.0 / 20
	if os.Getenv("FLUE_CRASHES") == "all" {
		share = 1
	}
	t.Run("scenarios", func(t *testing.T) {
		for i, sc := range scenarios() {
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(1, uint64(i)))
				var attempt func(prefix []crash)
				attempt = func(prefix []crash) {
					writes := sc.run(t, prefix...)
					runs.Add(1)
					if t.Failed() {
						t.Fatalf("after the crashes %v", prefix)
					}
					if len(prefix) == 3 || len(writes) <= len(prefix) {
						return
					}
					for n := 1; n <= writes[len(prefix)]; n++ {
						for _, mode := range modes {
							if len(prefix) == 2 && rng.Float64() >= share || len(prefix) == 1 && testing.Short() {
								continue
							}
							attempt(append(prefix[:len(prefix):len(prefix)], crash{n, mode}))
						}
					}
				}
				attempt(nil)
			})
		}
	})
	t.Logf("%d runs", runs.Load())
}

// A process that dies while it stops gracefully loses nothing either: at most
// the release is missing, which costs one attempt.
func TestCrashWhileStopping(t *testing.T) {
	for n := 1; n <= 6; n++ {
		for _, mode := range modes {
			for _, patience := range []time.Duration{0, 800 * time.Millisecond} {
				t.Run(fmt.Sprint(n, mode, patience), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld()
						script(w)
						w.budget.MaxAttempts = 2
						durable := memstore.New()
						fs := faultstore.New(durable)
						fs.Crash(n, mode)
						e := w.start(t, fs)
						var acked bool
						admit := func(e *engine.Engine) {
							_, err := e.Admit(t.Context(), engine.Admission{
								Address: chat, Submission: "sub_0", Identity: []byte("work"), Origin: "direct",
								Message: journal.Message{Kind: journal.User, Body: "work"},
							})
							acked = acked || err == nil
						}
						admit(e)
						time.Sleep(500 * time.Millisecond) // simulated: the tools are at work
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						if err := e.Close(ctx); err != nil {
							t.Fatal(err)
						}
						cancel()
						fs.Flush()
						e = w.start(t, durable.Reopen())
						defer stop(t, e)
						if !acked {
							admit(e)
						}
						if got := settled(t, e, chat, "sub_0"); got != "completed" {
							t.Errorf("settled %s", got)
						}
						for _, effect := range w.did() {
							if w.count(effect) > 1 || strings.HasPrefix(effect, "malformed") {
								t.Errorf("%s happened %d times", effect, w.count(effect))
							}
						}
					})
				})
			}
		}
	}
}
