package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// A hooked is a response to one message whose hooks are held to their promises
// while the process dies under them.
type hooked struct {
	// plan gives the world its hooks. What is durable can be looked up at any
	// time.
	plan func(t *testing.T, w *world, durable func() [][]journal.Record) *engine.Plan

	// check looks at what is left when the submission has settled after some
	// crashes.
	check func(t *testing.T, w *world, batches [][]journal.Record, crashes int)
}

// everywhere crashes at every write in every mode, then at every two writes.
func (h hooked) everywhere(t *testing.T) {
	t.Helper()
	runs := 0
	var attempt func(prefix []crash)
	attempt = func(prefix []crash) {
		writes := h.run(t, prefix)
		runs++
		if t.Failed() {
			t.Fatalf("after the crashes %v", prefix)
		}
		if len(prefix) == 2 || len(prefix) == 1 && testing.Short() || len(writes) <= len(prefix) {
			return
		}
		for n := 1; n <= writes[len(prefix)]; n++ {
			for _, mode := range modes {
				attempt(append(prefix[:len(prefix):len(prefix)], crash{n, mode}))
			}
		}
	}
	attempt(nil)
	t.Logf("%d runs", runs)
}

// run holds the response once, with the crashes, and returns how many writes
// each life made.
func (h hooked) run(t *testing.T, crashes []crash) (writes []int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		durable := memstore.New()
		plan := h.plan(t, w, func() [][]journal.Record { return batchesOf(t, durable) })
		plan.Settings = journal.Settings{Model: "test/m"}
		w.render = func(engine.View) (*engine.Plan, error) { p := *plan; return &p, nil }
		w.reply = func(_ context.Context, _ *model.Request, yield func(model.Event, error) bool) { say(yield, "fine") }
		sc := scenario{sends: []delivery{{0, "go"}}}
		acked, began, aborted := make(map[int]bool), time.Now(), false
		for life := 0; ; life++ {
			fs := faultstore.New(durable)
			if life < len(crashes) {
				fs.Crash(crashes[life].n, crashes[life].mode)
			}
			e, err := w.open(fs)
			if err != nil {
				t.Fatal(err)
			}
			dead := sc.live(t, e, fs, began, acked, &aborted)
			writes = append(writes, fs.Calls().Total())
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := e.Close(ctx); err != nil {
				t.Fatal(err)
			}
			fs.Flush()
			if !dead {
				break
			}
			durable = durable.Reopen()
		}
		batches := batchesOf(t, durable)
		var ends []string
		st := &fold.State{Head: -1}
		for _, r := range slices.Concat(batches...) {
			if err := st.Apply(r); err != nil {
				t.Error(err)
			}
			if s, ok := r.(*journal.Settled); ok {
				ends = append(ends, s.Outcome)
			}
		}
		if !slices.Equal(ends, []string{journal.Completed}) {
			t.Errorf("the submission has the outcomes %q", ends)
		}
		h.check(t, w, batches, len(crashes))
	})
	return writes
}

// batchesOf reads the journal of the chat, batch by batch.
func batchesOf(t *testing.T, s store.Store) [][]journal.Record {
	t.Helper()
	page, err := s.Read(context.Background(), chat, -1, 10_000)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var out [][]journal.Record
	for _, b := range page.Batches {
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, batch.Records)
	}
	return out
}

// seamRecords names what the seams have left, in order and each batch apart.
func seamRecords(batches [][]journal.Record) [][]string {
	var out [][]string
	for _, records := range batches {
		var names []string
		for _, r := range records {
			switch r := r.(type) {
			case *journal.Entry:
				names = append(names, "entry "+string(r.Purpose)+" "+r.Message.Type)
			case *journal.State:
				names = append(names, "state "+r.Name+"="+string(r.Value))
			case *journal.Seam:
				names = append(names, "seam "+string(r.Name))
			case *journal.Metadata:
				names = append(names, "metadata "+string(r.Value))
			}
		}
		if len(names) > 0 {
			out = append(out, names)
		}
	}
	return out
}

// countRecords counts the records of a kind that satisfy a condition.
func countRecords[R journal.Record](batches [][]journal.Record, is func(r R) bool) int {
	n := 0
	for _, r := range slices.Concat(batches...) {
		if r, ok := r.(R); ok && is(r) {
			n++
		}
	}
	return n
}

func signalOf(typ string) journal.Message {
	return journal.Message{Kind: journal.Signal, Type: typ, Body: typ}
}

// A seam lands whole, with the message that it belongs to, and once.
func TestSeamIsAtomic(t *testing.T) {
	hooked{
		plan: func(_ *testing.T, w *world, _ func() [][]journal.Record) *engine.Plan {
			step := func(ctx context.Context, c *engine.Work, name string, once bool) error {
				_, err := c.Step(ctx, name, once, func(context.Context) (json.RawMessage, error) {
					w.effect("step %s", name)
					return mustJSON(name), nil
				})
				if once && errors.Is(err, engine.ErrOutcomeUnknown) {
					return nil // it was begun, and is not begun again
				}
				return err
			}
			return &engine.Plan{
				Start: []engine.Hook{
					{Name: "first", Run: func(ctx context.Context, c *engine.Work) error {
						w.effect("start first")
						if err := step(ctx, c, "recorded", false); err != nil {
							return err
						}
						if err := step(ctx, c, "once", true); err != nil {
							return err
						}
						time.Sleep(time.Second) // the other one has ended long ago
						return errors.Join(c.Append(signalOf("one")), addOne(c))
					}},
					{Name: "second", Run: func(_ context.Context, c *engine.Work) error {
						w.effect("start second")
						return errors.Join(c.Append(signalOf("two")), addOne(c))
					}},
				},
				Finish: []engine.Hook{
					{Name: "third", Run: func(_ context.Context, c *engine.Work) error {
						w.effect("finish third")
						if string(c.Var("n")) != "2" {
							return nil
						}
						return errors.Join(c.Append(signalOf("three")), addOne(c))
					}},
					{Name: "fourth", Run: func(_ context.Context, c *engine.Work) error {
						w.effect("finish fourth")
						if string(c.Var("n")) != "3" || c.Var("done") != nil {
							return nil
						}
						return errors.Join(c.Append(signalOf("four")), c.Set("done", mustJSON(true)))
					}},
				},
			}
		},
		check: func(t *testing.T, w *world, batches [][]journal.Record, crashes int) {
			want := [][]string{
				{"entry input ", "entry appended one", "entry appended two", "state n=1", "state n=2", "seam start"},
				{"entry appended three", "entry appended four", "state n=3", "state done=true", "seam cycle"},
				{"seam closed"},
			}
			if diff := cmp.Diff(want, seamRecords(batches)); diff != "" {
				t.Errorf("what the seams have left, a batch a line (-want +got):\n%s", diff)
			}
			for _, hook := range []string{"start first", "start second", "finish third", "finish fourth"} {
				if n := w.count(hook); n < 1 || n > 2+crashes {
					t.Errorf("%s ran %d times with %d crashes", hook, n, crashes)
				}
			}
			if n := w.count("step once"); n > 1 || n == 0 && crashes == 0 {
				t.Errorf("the step that is begun once ran %d times", n)
			}
			if n := w.count("step recorded"); n < 1 || n > 1+crashes {
				t.Errorf("the step that is recorded ran %d times with %d crashes", n, crashes)
			}
			if n := countRecords(batches, func(s *journal.Step) bool { return s.Name == "recorded" && len(s.Value) > 0 }); n != 1 {
				t.Errorf("the step that is recorded has %d records", n)
			}
		},
	}.everywhere(t)
}

// A cycle of finish hooks that is recorded is not run again, nor are its signals
// appended twice; one that was interrupted is run again from its first hook.
func TestFinishCycleIsACheckpoint(t *testing.T) {
	hooked{
		plan: func(t *testing.T, w *world, durable func() [][]journal.Record) *engine.Plan {
			// done is how many cycles are recorded: no hook may run for one of them.
			done := func() int {
				return countRecords(durable(), func(s *journal.Seam) bool { return s.Name == journal.SeamCycle })
			}
			hook := func(name string) engine.Hook {
				return engine.Hook{Name: name, Run: func(_ context.Context, c *engine.Work) error {
					cycle := done()
					w.effect("%s in cycle %d", name, cycle)
					if cycle == 2 {
						return nil
					}
					time.Sleep(time.Second)
					if now := done(); now != cycle {
						t.Errorf("%s runs for cycle %d, and %d are recorded", name, cycle, now)
					}
					return errors.Join(c.Append(signalOf(fmt.Sprintf("%s-%d", name, cycle))), addOne(c))
				}}
			}
			return &engine.Plan{Finish: []engine.Hook{hook("a"), hook("b")}}
		},
		check: func(t *testing.T, w *world, batches [][]journal.Record, crashes int) {
			want := [][]string{
				{"entry input ", "seam start"},
				{"entry appended a-0", "entry appended b-0", "state n=1", "state n=2", "seam cycle"},
				{"entry appended a-1", "entry appended b-1", "state n=3", "state n=4", "seam cycle"},
				{"seam closed"},
			}
			if diff := cmp.Diff(want, seamRecords(batches)); diff != "" {
				t.Errorf("what the cycles have left, a batch a line (-want +got):\n%s", diff)
			}
			if n := countRecords(batches, func(d *journal.TurnDone) bool { return d.Stop == journal.StopEnd }); n != 3 {
				t.Errorf("the response has %d whole turns, want 3", n)
			}
			effects := w.did()
			for i, effect := range effects {
				if strings.HasPrefix(effect, "b") && (i == 0 || effects[i-1] != "a"+effect[1:]) {
					t.Errorf("a cycle was not run from its first hook: %q", effects)
				}
			}
			if n := len(effects); n < 6 || n > 6+2*crashes {
				t.Errorf("with %d crashes the hooks ran %d times: %q", crashes, n, effects)
			}
		},
	}.everywhere(t)
}

// The hooks of a response's start run until the start is durable, and then never
// again.
func TestResponseStartAfterACrash(t *testing.T) {
	hooked{
		plan: func(t *testing.T, w *world, durable func() [][]journal.Record) *engine.Plan {
			return &engine.Plan{
				ResponseStart: []engine.Hook{{Name: "open", Run: func(_ context.Context, c *engine.Work) error {
					w.effect("open")
					time.Sleep(time.Second)
					if got := seamRecords(durable()); len(got) > 0 {
						t.Errorf("the hook of the start runs although the response has begun: %q", got)
					}
					return c.Attach(mustJSON(map[string]any{"opened": true}))
				}}},
				Start: []engine.Hook{{Name: "start", Run: func(_ context.Context, c *engine.Work) error {
					w.effect("start")
					return c.Append(signalOf("started"))
				}}},
				Finish: []engine.Hook{{Name: "again", Run: func(_ context.Context, c *engine.Work) error {
					if string(c.Var("n")) == "1" {
						return nil
					}
					return errors.Join(c.Append(signalOf("again")), addOne(c))
				}}},
			}
		},
		check: func(t *testing.T, w *world, batches [][]journal.Record, crashes int) {
			want := []string{"entry input ", "entry appended started", `metadata {"opened":true}`, "seam start"}
			if got := seamRecords(batches); len(got) == 0 || !slices.Equal(got[0], want) {
				t.Errorf("the start has left %q, want %q", got, want)
			}
			if n := countRecords(batches, func(*journal.Metadata) bool { return true }); n != 1 {
				t.Errorf("there are %d records of metadata", n)
			}
			if n := w.count("open"); n < 1 || n > 1+crashes || w.count("start") > n {
				t.Errorf("with %d crashes the hook of the response's start ran %d times and that of the message's %d times", crashes, n, w.count("start"))
			}
		},
	}.everywhere(t)
}
