package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
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

// The words for a call that was not run, and for one of which nothing is known.
const (
	wordsNotRun  = `{"type":"not_run",`
	wordsUnknown = `{"type":"interrupted",`
)

// A gauge knows how many calls run, and how many have run at once.
type gauge struct {
	mu       sync.Mutex
	now, top int
	order    []string // of beginnings
}

func (g *gauge) enter(call string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now++
	g.top = max(g.top, g.now)
	g.order = append(g.order, call)
}

func (g *gauge) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now--
}

// calls are n calls of the tool.
func calls(tool string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%s c%02d", tool, i))
	}
	return out
}

// As many calls of a turn run side by side as the agent allows, in their order;
// the others follow as soon as there is room. It costs no write more.
func TestParallelCalls(t *testing.T) {
	for _, tt := range []struct {
		calls, most int // most 0 means the default
		took        time.Duration
		top         int
	}{
		{calls: 5, most: 1, took: 5 * time.Second, top: 1},
		{calls: 5, most: 2, took: 3 * time.Second, top: 2},
		{calls: 5, most: 5, took: time.Second, top: 5},
		{calls: 5, most: 50, took: time.Second, top: 5},
		{calls: 16, took: time.Second, top: 16},
		{calls: 40, took: 3 * time.Second, top: 16},
	} {
		t.Run(fmt.Sprintf("%d calls, %d at once", tt.calls, tt.most), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, g := newWorld(), &gauge{}
				w.budget.ParallelCalls = tt.most
				w.tools = []engine.Tool{w.tool("work", func(ctx context.Context, c *engine.Work) engine.Result {
					g.enter(c.ID)
					defer g.leave()
					pause(ctx, time.Second)
					return engine.Result{Content: "ok"}
				})}
				w.reply = callsThenSays(calls("work", tt.calls)...)
				fs := faultstore.New(memstore.New())
				e := w.start(t, fs)
				defer stop(t, e)
				began := time.Now()
				if got := settled(t, e, chat, send(t, e, chat, "go")); got != "completed" {
					t.Fatalf("settled %s", got)
				}
				if took := time.Since(began); took != tt.took {
					t.Errorf("it took %v, want %v", took, tt.took)
				}
				if g.top != tt.top {
					t.Errorf("%d calls ran at once, want %d", g.top, tt.top)
				}
				if n := fs.Written().Total(); n > 5+tt.calls {
					t.Errorf("%d writes for %d calls", n, tt.calls)
				}
				if got := outcomes(t, fs); len(got) != tt.calls {
					t.Errorf("%d outcomes", len(got))
				}
			})
		})
	}
}

// Whatever the bound, the calls cost as many writes as they have ends.
func TestParallelCallsCostNoWrites(t *testing.T) {
	for most := range 7 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.budget.ParallelCalls = most
			var ends time.Duration
			w.tools = []engine.Tool{w.tool("work", func(ctx context.Context, c *engine.Work) engine.Result {
				w.mu.Lock()
				ends += time.Millisecond // no two end at once
				wait := ends
				w.mu.Unlock()
				pause(ctx, wait)
				return engine.Result{Content: "ok"}
			})}
			w.reply = callsThenSays(calls("work", 5)...)
			fs := faultstore.New(memstore.New())
			e := w.start(t, fs)
			defer stop(t, e)
			if got := settled(t, e, chat, send(t, e, chat, "go")); got != "completed" {
				t.Fatalf("settled %s", got)
			}
			// admitted; begun; the calls; the end of each, the last with the next turn; the answer
			if n := fs.Written().Total(); n != 3+5+1 {
				t.Errorf("%d writes with %d calls at once, want 9", n, most)
			}
		})
	}
}

// One after another means in the order in which the model asked, each with the
// state that the one before it has left.
func TestCallsOneAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := newWorld(), &gauge{}
		w.budget.ParallelCalls = 1
		var seen []string
		w.tools = []engine.Tool{w.tool("work", func(ctx context.Context, c *engine.Work) engine.Result {
			g.enter(c.ID)
			defer g.leave()
			seen = append(seen, string(c.Var("n")))
			pause(ctx, time.Duration(10-len(seen))*time.Second) // later ones would overtake
			if err := addOne(c); err != nil {
				return engine.Result{Failed: true, Content: err.Error()}
			}
			return engine.Result{Content: "ok"}
		})}
		w.reply = callsThenSays(calls("work", 4)...)
		s := memstore.New()
		e := w.start(t, s)
		defer stop(t, e)
		if got := settled(t, e, chat, send(t, e, chat, "go")); got != "completed" {
			t.Errorf("settled %s", got)
		}
		if want := []string{"c00", "c01", "c02", "c03"}; !slices.Equal(g.order, want) || g.top != 1 {
			t.Errorf("the order is %q, and %d ran at once", g.order, g.top)
		}
		if want := []string{"", "1", "2", "3"}; !slices.Equal(seen, want) {
			t.Errorf("they saw %q, want %q", seen, want)
		}
		if got := string(folded(t, s).Vars["n"]); got != "4" {
			t.Errorf("n is %s", got)
		}
	})
}

// A call that has ended and waits for the result of another one, whose writes it
// has read, gives its place to the next.
func TestCallThatWaitsForAnotherHoldsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.budget.ParallelCalls = 2
		began := make(map[string]time.Duration)
		start := time.Now()
		w.tools = []engine.Tool{w.tool("work", func(ctx context.Context, c *engine.Work) engine.Result {
			w.mu.Lock()
			began[c.ID] = time.Since(start)
			w.mu.Unlock()
			if c.ID != "c00" {
				pause(ctx, time.Second) // the first has written by then
			}
			if err := addOne(c); err != nil {
				return engine.Result{Failed: true, Content: err.Error()}
			}
			if c.ID == "c00" {
				pause(ctx, time.Minute)
			}
			return engine.Result{Content: "ok"}
		})}
		w.reply = callsThenSays(calls("work", 5)...)
		s := memstore.New()
		e := w.start(t, s)
		defer stop(t, e)
		if got := settled(t, e, chat, send(t, e, chat, "go")); got != "completed" {
			t.Errorf("settled %s", got)
		}
		for i := range 4 {
			if got := began[fmt.Sprintf("c%02d", i+1)]; got != time.Duration(i)*time.Second {
				t.Errorf("call %d began after %v", i+1, got)
			}
		}
		if got := string(folded(t, s).Vars["n"]); got != "5" {
			t.Errorf("n is %s", got)
		}
	})
}

// namedCalls are the calls that a journal has named.
func namedCalls(t testing.TB, s store.Store) map[string]bool {
	t.Helper()
	out := make(map[string]bool)
	for _, r := range records(t, s, chat) {
		if c, ok := r.(*journal.Called); ok {
			for _, call := range c.Calls {
				out[call] = true
			}
		}
	}
	return out
}

// A herd is a turn of five calls, of which two may run at once, and what is known
// of it when a process dies: the second may be run again, and all count in the
// same state.
type herd struct {
	*world
	gauge   *gauge
	durable *memstore.Store
	unnamed []map[string]bool // at each death: calls that were asked for, without a name and an outcome
	named   map[string]bool   // at a death: calls with a name and without an outcome
}

func newHerd() *herd {
	h := &herd{world: newWorld(), durable: memstore.New(), named: make(map[string]bool)}
	h.budget.ParallelCalls = 2
	work := h.tool("work", func(ctx context.Context, c *engine.Work) engine.Result { return h.run(ctx, c) })
	again := h.tool("again", func(ctx context.Context, c *engine.Work) engine.Result { return h.run(ctx, c) })
	again.Again = true
	h.tools = []engine.Tool{work, again}
	h.reply = callsThenSays("work c1", "again c2", "work c3", "work c4", "work c5")
	return h
}

var herdOf = []string{"c1", "c2", "c3", "c4", "c5"}

func (h *herd) run(ctx context.Context, c *engine.Work) engine.Result {
	h.mu.Lock()
	g := h.gauge
	h.mu.Unlock()
	g.enter(c.ID)
	defer g.leave()
	st := &fold.State{Head: -1}
	for _, r := range h.recorded() {
		if st.Apply(r) != nil {
			h.effect("the journal does not fold")
		}
	}
	if !st.Response.Called[c.ID] {
		h.effect("%s runs and is not named", c.ID)
	}
	n := time.Duration(c.ID[1] - '0') // no two count or end at once
	pause(ctx, n*10*time.Millisecond)
	if err := addOne(c); err != nil {
		return engine.Result{Failed: true, Content: err.Error(), Err: err}
	}
	pause(ctx, n*time.Second)
	if err := ctx.Err(); err != nil {
		return engine.Result{Failed: true, Content: err.Error(), Err: err}
	}
	return engine.Result{Content: "ok"}
}

// recorded is what is durable.
func (h *herd) recorded() []journal.Record {
	page, err := h.durable.Read(context.Background(), chat, -1, 0)
	if err != nil {
		return nil
	}
	var out []journal.Record
	for _, b := range page.Batches {
		if batch, err := journal.Decode(b.Payload); err == nil {
			out = append(out, batch.Records...)
		}
	}
	return out
}

// note takes down what a death has left.
func (h *herd) note(t *testing.T) {
	t.Helper()
	st := folded(t, h.durable)
	open := make(map[string]bool)
	for _, c := range st.Response.Calls {
		switch {
		case st.Response.Outcomes[c.Call] != nil:
		case st.Response.MayHaveRun(c.Call):
			h.named[c.Call] = true
		default:
			open[c.Call] = true
		}
	}
	h.unnamed = append(h.unnamed, open)
}

// lives runs the herd through the crashes and ends with a life that does not
// crash. It returns how many writes each life made.
func (h *herd) lives(t *testing.T, crashes ...crash) (writes []int) {
	t.Helper()
	sc := scenario{sends: []delivery{{0, "go"}}}
	began, acked, abortSent := time.Now(), make(map[int]bool), false
	for life := 0; ; life++ {
		fs := faultstore.New(h.durable)
		if life < len(crashes) {
			fs.Crash(crashes[life].n, crashes[life].mode)
		}
		h.mu.Lock()
		h.gauge = &gauge{}
		h.mu.Unlock()
		e := h.start(t, fs)
		dead := sc.live(t, e, fs, began, acked, &abortSent)
		if h.gauge.top > 2 {
			t.Errorf("%d calls ran at once", h.gauge.top)
		}
		writes = append(writes, fs.Calls().Total())
		if !dead {
			stop(t, e)
			h.check(t)
			return writes
		}
		closeNow(t, e)
		fs.Flush()
		h.durable = h.durable.Reopen()
		if len(h.recorded()) > 0 {
			h.note(t)
		}
	}
}

// check holds what has become of the calls to what the deaths had left.
func (h *herd) check(t *testing.T) {
	t.Helper()
	got := outcomes(t, h.durable)
	ok := 0
	for _, call := range herdOf {
		o := got[call]
		if o == nil {
			t.Errorf("%s has no outcome", call)
			continue
		}
		runs := h.count("tool:" + call)
		if !o.Failed {
			ok++
		}
		switch {
		case runs > 1 && call != "c2":
			t.Errorf("%s ran %d times", call, runs)
		case !h.named[call] && (o.Failed || runs != 1):
			t.Errorf("%s was never under way when the process died; it ran %d times and reads %q", call, runs, o.Content)
		case o.Failed && !strings.HasPrefix(o.Content, wordsUnknown):
			t.Errorf("%s reads %q", call, o.Content)
		case !o.Failed && runs == 0:
			t.Errorf("%s succeeded without being run", call)
		}
	}
	st := folded(t, h.durable)
	if n := string(st.Vars["n"]); n != fmt.Sprint(ok) && (ok > 0 || n != "") {
		t.Errorf("%d calls have succeeded and n is %s", ok, n)
	}
	if st.Phase != fold.Idle || st.Unsettled() {
		t.Errorf("the journal ends in phase %s", st.Phase)
	}
	for _, effect := range h.effects {
		if !strings.HasPrefix(effect, "tool:") {
			t.Error(effect)
		}
	}
}

// TestCrashBesideCallsThatWait kills the process at every write of a turn of five
// calls of which two may run at once, in every way, then at pairs of writes, and at
// a sample of triples. A call that was not let go is run by the next process, and
// nobody is told that its outcome is unknown.
func TestCrashBesideCallsThatWait(t *testing.T) {
	runs, waited := 0, 0
	rng := rand.New(rand.NewPCG(5, 6))
	var attempt func(prefix []crash)
	attempt = func(prefix []crash) {
		var writes []int
		synctest.Test(t, func(t *testing.T) {
			h := newHerd()
			writes = h.lives(t, prefix...)
			if slices.ContainsFunc(h.unnamed, func(open map[string]bool) bool { return len(open) > 0 }) {
				waited++
			}
		})
		runs++
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
	t.Logf("%d runs, in %d a call waited when the process died", runs, waited)
	if waited == 0 {
		t.Error("no crash came while a call waited")
	}
}

// What has not been let go when the response is ended is told as not run, and so
// it is. What runs is told as what it is.
func TestEndOfAResponseWithCallsThatWait(t *testing.T) {
	for _, tt := range []struct {
		name    string
		budget  time.Duration
		end     func(t *testing.T, e *engine.Engine)
		outcome string
	}{
		{"abort", time.Hour, abort, "aborted"},
		{"deadline", 1500 * time.Millisecond, nil, "failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHerd()
				h.budget.Timeout = tt.budget
				h.gauge = &gauge{}
				e := h.start(t, h.durable)
				defer stop(t, e)
				id := send(t, e, chat, "go")
				time.Sleep(1200 * time.Millisecond) // simulated: c1 has ended, c2 and c3 are at work
				if tt.end != nil {
					tt.end(t, e)
				}
				if got := settled(t, e, chat, id); got != tt.outcome {
					t.Errorf("settled %s", got)
				}
				got := outcomes(t, h.durable)
				for call, want := range map[string]string{
					"c1": "ok", "c2": wordsUnknown, "c3": wordsUnknown, "c4": wordsNotRun, "c5": wordsNotRun,
				} {
					if o := got[call]; o == nil || !strings.HasPrefix(o.Content, want) {
						t.Errorf("%s has %+v, want %s", call, o, want)
					}
				}
				for _, call := range []string{"c4", "c5"} {
					if h.count("tool:"+call) > 0 {
						t.Errorf("%s has run", call)
					}
				}
				h.reply = echo
				if got := settled(t, e, chat, send(t, e, chat, "next")); got != "completed" {
					t.Errorf("the next message settled %s", got)
				}
			})
		})
	}
}

// A process that takes over an aborted response says of calls that have not begun
// that they were not run, and of others that nobody knows.
func TestAbortedBeforeATakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHerd()
		h.gauge = &gauge{}
		e := h.start(t, h.durable)
		id := send(t, e, chat, "go")
		time.Sleep(1200 * time.Millisecond) // simulated
		h.durable = killed(t, e, h.durable)
		payload, err := journal.Encode(journal.Batch{At: time.Now(), Records: []journal.Record{&journal.Abort{}}})
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := h.durable.Abort(t.Context(), chat, payload); !ok || err != nil {
			t.Fatal(ok, err)
		}
		e = h.start(t, h.durable)
		defer stop(t, e)
		if got := settled(t, e, chat, id); got != "aborted" {
			t.Errorf("settled %s", got)
		}
		for call, o := range outcomes(t, h.durable) {
			want := map[string]string{"c1": "ok", "c2": wordsUnknown, "c3": wordsUnknown, "c4": wordsNotRun, "c5": wordsNotRun}[call]
			if !strings.HasPrefix(o.Content, want) {
				t.Errorf("%s reads %q, want %s", call, o.Content, want)
			}
		}
	})
}

// A process that closes lets no further call go. What runs may come to its end, and
// the next process runs the rest.
func TestCloseBesideCallsThatWait(t *testing.T) {
	for _, tt := range []struct {
		name     string
		patience time.Duration
		ok       string // calls that succeed
	}{
		{"in time", time.Minute, "c1 c2 c3 c4 c5"},
		{"at once", 0, "c1 c2 c4 c5"}, // c3 is ordinary, and was cut
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHerd()
				h.gauge = &gauge{}
				e := h.start(t, h.durable)
				id := send(t, e, chat, "go")
				time.Sleep(1200 * time.Millisecond) // simulated: c1 has ended, c2 and c3 are at work
				ctx, cancel := context.WithTimeout(t.Context(), tt.patience)
				defer cancel()
				if err := e.Close(ctx); err != nil {
					t.Fatal(err)
				}
				if h.count("tool:c4")+h.count("tool:c5") > 0 {
					t.Error("a call was let go while the process closed")
				}
				st := folded(t, h.durable)
				if st.Active == nil || st.Active.Attempts != 0 || len(st.Response.Called) != 3 {
					t.Errorf("active is %+v, named are %v", st.Active, st.Response.Called)
				}
				h.gauge = &gauge{}
				e = h.start(t, h.durable)
				defer stop(t, e)
				if got := settled(t, e, chat, id); got != "completed" {
					t.Errorf("settled %s", got)
				}
				var ok []string
				got := outcomes(t, h.durable)
				for _, call := range herdOf {
					if !got[call].Failed {
						ok = append(ok, call)
					}
					if n := h.count("tool:" + call); n > 1 && call != "c2" {
						t.Errorf("%s ran %d times", call, n)
					}
				}
				if strings.Join(ok, " ") != tt.ok {
					t.Errorf("%q have succeeded, want %s", ok, tt.ok)
				}
			})
		})
	}
}

// A process that closes while the model asks for calls runs none of them.
func TestCloseBeforeTheCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHerd()
		h.gauge = &gauge{}
		reply := h.reply
		h.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			pause(ctx, time.Second)
			reply(ctx, req, yield)
		}
		e := h.start(t, h.durable)
		id := send(t, e, chat, "go")
		time.Sleep(500 * time.Millisecond) // simulated
		stop(t, e)
		if len(h.effects) > 0 {
			t.Errorf("it did %q", h.effects)
		}
		e = h.start(t, h.durable)
		defer stop(t, e)
		if got := settled(t, e, chat, id); got != "completed" {
			t.Errorf("settled %s", got)
		}
		for call, o := range outcomes(t, h.durable) {
			if o.Failed || h.count("tool:"+call) != 1 {
				t.Errorf("%s ran %d times and reads %q", call, h.count("tool:"+call), o.Content)
			}
		}
		if w := h.calls; w != 2 {
			t.Errorf("%d model calls", w)
		}
	})
}

// A call that waited, and whose tool the next release does not have, fails as any
// call of a tool that is not there.
func TestCallThatWaitedWithoutItsTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHerd()
		h.gauge = &gauge{}
		e := h.start(t, h.durable)
		id := send(t, e, chat, "go")
		time.Sleep(1200 * time.Millisecond) // simulated
		h.durable = killed(t, e, h.durable)
		h.tools = nil
		e = h.start(t, h.durable)
		defer stop(t, e)
		if got := settled(t, e, chat, id); got != "completed" {
			t.Errorf("settled %s", got)
		}
		for call, o := range outcomes(t, h.durable) {
			want := map[string]string{"c1": "ok", "c2": wordsUnknown, "c3": wordsUnknown, "c4": "Tool work not found", "c5": "Tool work not found"}[call]
			if !strings.HasPrefix(o.Content, want) {
				t.Errorf("%s reads %q, want %s", call, o.Content, want)
			}
		}
	})
}

// When the agent cannot be rendered any more, calls that waited were not run.
func TestCallsThatWaitedWithoutTheirAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHerd()
		h.gauge = &gauge{}
		e := h.start(t, h.durable)
		id := send(t, e, chat, "go")
		time.Sleep(1200 * time.Millisecond) // simulated
		h.durable = killed(t, e, h.durable)
		h.render = func(engine.View) (*engine.Plan, error) { panic("no more") }
		e = h.start(t, h.durable)
		defer stop(t, e)
		if got := settled(t, e, chat, id); got != "failed" {
			t.Errorf("settled %s", got)
		}
		for call, o := range outcomes(t, h.durable) {
			want := map[string]string{"c1": "ok", "c2": wordsUnknown, "c3": wordsUnknown, "c4": wordsNotRun, "c5": wordsNotRun}[call]
			if !strings.HasPrefix(o.Content, want) {
				t.Errorf("%s reads %q, want %s", call, o.Content, want)
			}
		}
	})
}

// older is a journal as it was written before calls were named: its turn does not
// say so, and there is no record that names them.
func older(t *testing.T, s *memstore.Store) *memstore.Store {
	t.Helper()
	out := memstore.New()
	if err := out.Renew(t.Context(), "node", time.Minute); err != nil {
		t.Fatal(err)
	}
	page, err := s.Read(t.Context(), chat, -1, 0)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := s.Unsettled(t.Context(), chat)
	if err != nil || len(sub) != 1 {
		t.Fatal(sub, err)
	}
	r, err := out.Admit(t.Context(), &store.Admission{
		Address: chat, Submission: sub[0].ID, Identity: []byte("go"), AcceptedAt: sub[0].AcceptedAt, Payload: page.Batches[1].Payload, Node: "node",
		Birth: &store.Birth{UID: page.UID, Incarnation: page.Incarnation, Payload: page.Batches[0].Payload},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range page.Batches[2:] {
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			t.Fatal(err)
		}
		batch.Records = slices.DeleteFunc(batch.Records, func(r journal.Record) bool { _, called := r.(*journal.Called); return called })
		for _, r := range batch.Records {
			if done, ok := r.(*journal.TurnDone); ok {
				done.Named = false
			}
		}
		payload, err := journal.Encode(batch)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch.Records) == 0 {
			continue
		}
		if _, err := out.Append(t.Context(), *r.Lease, store.Write{Payload: payload}); err != nil {
			t.Fatal(err)
		}
	}
	return out.Reopen()
}

// Of a journal that is older than the names nothing is assumed: any call may have
// begun.
func TestCallsOfAnOlderJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHerd()
		h.budget.ParallelCalls = 1
		h.reply = callsThenSays("again c1", "again c2", "work c3", "again c4")
		for i := range h.tools {
			h.tools[i] = h.tool(h.tools[i].Spec.Name, func(ctx context.Context, c *engine.Work) engine.Result {
				h.gauge.enter(c.ID)
				defer h.gauge.leave()
				pause(ctx, time.Second)
				return engine.Result{Content: "ok"}
			})
			h.tools[i].Again = i == 1
		}
		h.gauge = &gauge{}
		e := h.start(t, h.durable)
		id := send(t, e, chat, "go")
		time.Sleep(1200 * time.Millisecond) // simulated: c1 has ended, c2 is at work
		h.durable = older(t, killed(t, e, h.durable))
		if len(namedCalls(t, h.durable)) > 0 {
			t.Fatal("the journal is not older")
		}
		h.gauge = &gauge{}
		e = h.start(t, h.durable)
		defer stop(t, e)
		if got := settled(t, e, chat, id); got != "completed" {
			t.Errorf("settled %s", got)
		}
		got := outcomes(t, h.durable)
		for call, want := range map[string]string{"c1": "ok", "c2": "ok", "c3": wordsUnknown, "c4": "ok"} {
			if !strings.HasPrefix(got[call].Content, want) {
				t.Errorf("%s reads %q, want %s", call, got[call].Content, want)
			}
		}
		if h.gauge.top != 1 {
			t.Errorf("%d calls ran at once", h.gauge.top)
		}
		if len(namedCalls(t, h.durable)) > 0 {
			t.Error("calls of a turn that does not say so are named")
		}
	})
}

// Steps and updates of calls that follow each other stand on what the journal has,
// whatever process ran the one before.
func TestUpdateAfterACallOfAnEarlierProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.budget.ParallelCalls = 1
		w.tools = []engine.Tool{w.tool("work", func(ctx context.Context, c *engine.Work) engine.Result {
			err := c.Update("log", func(raw json.RawMessage) (json.RawMessage, error) {
				var all []string
				if raw != nil {
					if err := json.Unmarshal(raw, &all); err != nil {
						return nil, err
					}
				}
				return mustJSON(append(all, c.ID)), nil
			})
			if err != nil {
				return engine.Result{Failed: true, Content: err.Error()}
			}
			if !pause(ctx, time.Second) {
				return engine.Result{Failed: true, Content: "stopped"}
			}
			return engine.Result{Content: "ok"}
		})}
		w.reply = callsThenSays(calls("work", 4)...)
		s := memstore.New()
		e := w.start(t, s)
		id := send(t, e, chat, "go")
		time.Sleep(1500 * time.Millisecond) // simulated: the first has ended, the second is at work
		s = killed(t, e, s)
		e = w.start(t, s)
		defer stop(t, e)
		if got := settled(t, e, chat, id); got != "completed" {
			t.Errorf("settled %s", got)
		}
		// The second was lost, and what it wrote with it.
		if got, want := string(folded(t, s).Vars["log"]), `["c00","c02","c03"]`; got != want {
			t.Errorf("the log is %s, want %s", got, want)
		}
	})
}
