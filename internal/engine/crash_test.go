package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
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
		{name: "two messages", sends: []delivery{{0, "work"}, {30 * time.Second, "hello"}}},
		{name: "join during a tool", sends: []delivery{{0, "work"}, {1500 * time.Millisecond, "hello"}}},
		{name: "join during the last turn", sends: []delivery{{0, "slow"}, {500 * time.Millisecond, "hello"}, {600 * time.Millisecond, "work"}}},
		{name: "abort of a stream", sends: []delivery{{0, "slow"}, {100 * time.Millisecond, "hello"}, {20 * time.Second, "hello again"}}, abort: 700 * time.Millisecond},
		{name: "abort of tools", sends: []delivery{{0, "work"}, {100 * time.Millisecond, "hello"}}, abort: 1500 * time.Millisecond},
	}
}

// script is the model of the scenarios: what it answers depends only on the
// conversation.
func script(w *world) {
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
		case text == "flaky" && w.calls == 1:
			yield(nil, &model.Error{Class: model.Retryable, Message: "try again"})
		default:
			say(yield, "re: "+text)
		}
	}
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
		script(w)
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
				return
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // a crash gives nobody time
			if err := e.Close(ctx); err != nil {
				t.Fatal(err)
			}
			fs.Flush()
			durable = durable.Reopen()
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
			_, err := e.Admit(t.Context(), engine.Admission{
				Address: chat, Submission: submissionOf(i), Identity: []byte(d.body), Origin: "direct",
				Message: journal.Message{Kind: journal.User, Body: d.body},
			})
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
	st := &fold.State{Head: -1}
	ends := make(map[string][]string)
	succeeded := make(map[string]bool)
	var covered map[string]bool // by an abort
	for _, r := range records(t, s, chat) {
		if _, ok := r.(*journal.Abort); ok {
			covered = coveredNow(st, covered)
		}
		if err := st.Apply(r); err != nil {
			t.Errorf("folding the journal: %v", err)
		}
		switch r := r.(type) {
		case *journal.Settled:
			ends[r.Submission] = append(ends[r.Submission], r.Outcome)
			if covered[r.Submission] && r.Outcome != journal.Aborted {
				t.Errorf("submission %s was aborted and settled %s", r.Submission, r.Outcome)
			}
		case *journal.Outcome:
			if !r.Failed {
				succeeded[r.Call] = true
			}
			if w.count("tool:"+r.Call) > 1 {
				t.Errorf("call %s ran %d times", r.Call, w.count("tool:"+r.Call))
			}
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
	for i, d := range sc.sends {
		if !acked[i] {
			continue
		}
		switch got := ends[submissionOf(i)]; {
		case len(got) != 1:
			t.Errorf("%q has the settlements %q, want exactly one", d.body, got)
		case got[0] == "failed", got[0] == "aborted" && sc.abort == 0:
			t.Errorf("%q settled %s", d.body, got[0])
		case got[0] == "completed" && d.body != "finish" && d.body != "slow" && !strings.Contains(answers, "re: "+d.body) && !sc.joined(i):
			t.Errorf("%q settled completed and has no answer in:\n%s", d.body, answers)
		}
	}
	for _, effect := range w.effects {
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

// joined reports whether a later message may have been answered in its stead:
// of messages that are read together the script answers the last.
func (sc scenario) joined(i int) bool { return i+1 < len(sc.sends) }

var modes = []faultstore.Mode{faultstore.Before, faultstore.After, faultstore.Late}

// TestCrashEverywhere kills the process at every write in every way, then at
// every pair of writes, then at a sample of triples.
func TestCrashEverywhere(t *testing.T) {
	runs := 0
	rng := rand.New(rand.NewPCG(1, 2))
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			var attempt func(prefix []crash)
			attempt = func(prefix []crash) {
				writes := sc.run(t, prefix...)
				runs++
				if t.Failed() {
					t.Fatalf("after the crashes %v", prefix)
				}
				if len(prefix) == 3 || len(writes) <= len(prefix) {
					return
				}
				for n := 1; n <= writes[len(prefix)]; n++ {
					for _, mode := range modes {
						if len(prefix) == 2 && rng.IntN(20) != 0 || len(prefix) == 1 && testing.Short() {
							continue
						}
						attempt(append(prefix[:len(prefix):len(prefix)], crash{n, mode}))
					}
				}
			}
			attempt(nil)
		})
	}
	t.Logf("%d runs", runs)
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
						for _, effect := range w.effects {
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
