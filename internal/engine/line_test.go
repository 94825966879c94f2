package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// onEach runs a test on a store that serves one process, and on one that processes
// share, where what waits does so in the store.
func onEach(t *testing.T, test func(t *testing.T, s store.Store)) {
	for name, open := range map[string]func() store.Store{
		"alone":  func() store.Store { return struct{ unshared }{memstore.New()} },
		"shared": func() store.Store { return memstore.New() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, open()) })
		})
	}
}

// unshared is a store that serves one process.
type unshared interface {
	store.Store
	store.Checkpointer
	store.Lister
}

func conversation(format string, args ...any) store.Address {
	return store.Address{Agent: "chat", ID: fmt.Sprintf(format, args...)}
}

// Conversations that wait for a place get one in the order in which they have
// asked for it, and no more are worked on at the same time than there are places.
func TestPlacesInOrder(t *testing.T) {
	for _, places := range []int{1, 3} {
		t.Run(fmt.Sprint(places), func(t *testing.T) {
			onEach(t, func(t *testing.T, s store.Store) {
				w := newWorld()
				w.concurrent = places
				at, most := 0, 0
				w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
					text, _ := asked(req)
					w.effect("%s", text)
					w.mu.Lock()
					at++
					most = max(most, at)
					w.mu.Unlock()
					pause(ctx, time.Second)
					w.mu.Lock()
					at--
					w.mu.Unlock()
					say(yield, "yes")
				}
				e := w.start(t, s)
				defer stop(t, e)
				var ids, want []string
				for i := range 10 {
					body := fmt.Sprint("m", i)
					want = append(want, body)
					ids = append(ids, send(t, e, conversation("c%d", i), body))
					synctest.Wait()
				}
				for i, id := range ids {
					if got := settled(t, e, conversation("c%d", i), id); got != journal.Completed {
						t.Errorf("%d: %s", i, got)
					}
				}
				if most != places {
					t.Errorf("%d were worked on at the same time, there are %d places", most, places)
				}
				if got := w.did(); places == 1 && !slices.Equal(got, want) {
					t.Errorf("%q", got)
				}
			})
		})
	}
}

// A conversation that is spoken to without end keeps nobody waiting for longer
// than one response.
func TestFairness(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		w := newWorld()
		w.concurrent, w.every = 1, -1
		const total, others = 300, 5
		var e *engine.Engine
		fed := 0
		since := make(map[string]int) // answers of the busy one when another was sent
		answers := 0
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			text, _ := asked(req)
			if strings.HasPrefix(text, "busy") {
				answers++
				if fed < total { // the next one is there before this one has its answer
					fed++
					send(t, e, conversation("busy"), fmt.Sprint("busy", fed))
				}
				if fed%50 == 0 && fed/50 <= others {
					other := fmt.Sprint("other", fed/50)
					since[other] = answers
					send(t, e, conversation("%s", other), other)
				}
			} else {
				if waited := answers - since[text]; waited > 1 {
					t.Errorf("%s has waited for %d answers of a busy conversation", text, waited)
				}
				delete(since, text)
			}
			pause(ctx, time.Second)
			say(yield, "yes")
		}
		e = w.start(t, s)
		defer stop(t, e)
		send(t, e, conversation("busy"), "busy0")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if len(since) > 0 || fed != total {
			t.Errorf("never answered: %v; %d were sent", since, fed)
		}
		for i := 1; i <= others; i++ {
			sub, err := s.(store.Lister).Unsettled(t.Context(), conversation("other%d", i))
			if err != nil || len(sub) > 0 {
				t.Errorf("%d: %v, %v", i, sub, err)
			}
		}
		if sub, err := s.(store.Lister).Unsettled(t.Context(), conversation("busy")); err != nil || len(sub) > 0 {
			t.Errorf("%d messages of the busy one are not settled: %v", len(sub), err)
		}
	})
}

// Two that are both spoken to without end get on alike.
func TestFairnessOfTwo(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		w := newWorld()
		w.concurrent, w.every = 1, -1
		var e *engine.Engine
		n := map[string]int{}
		ahead := 0
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			text, _ := asked(req)
			who, _, _ := strings.Cut(text, " ")
			w.mu.Lock()
			n[who]++
			ahead = max(ahead, n["a"]-n["b"], n["b"]-n["a"])
			nth := n[who]
			w.mu.Unlock()
			if nth < 100 {
				send(t, e, conversation("%s", who), fmt.Sprint(who, " ", nth))
			}
			pause(ctx, time.Second)
			say(yield, "yes")
		}
		e = w.start(t, s)
		defer stop(t, e)
		send(t, e, conversation("a"), "a 0")
		send(t, e, conversation("b"), "b 0")
		time.Sleep(time.Hour)
		w.mu.Lock()
		defer w.mu.Unlock()
		if n["a"] != 100 || n["b"] != 100 || ahead > 1 {
			t.Errorf("%v; one was ahead by %d", n, ahead)
		}
	})
}

// What waits can be aborted, and does not wait for that.
func TestAbortInTheLine(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		w := newWorld()
		w.concurrent = 1
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			text, _ := asked(req)
			w.effect("%s", text)
			pause(ctx, time.Minute)
			say(yield, "yes")
		}
		e := w.start(t, s)
		defer stop(t, e)
		a := send(t, e, conversation("a"), "a")
		synctest.Wait()
		b := send(t, e, conversation("b"), "b")
		c := send(t, e, conversation("c"), "c")
		synctest.Wait()
		if ok, err := e.Abort(t.Context(), conversation("b")); !ok || err != nil {
			t.Fatalf("%v, %v", ok, err)
		}
		synctest.Wait()
		if sub, err := e.Submission(t.Context(), conversation("b"), b); err != nil || sub.Outcome != journal.Aborted {
			t.Errorf("%q, %v", sub.Outcome, err)
		}
		time.Sleep(2 * time.Second) // what waits in the store is counted
		if h := e.Health(); h.Working != 1 || h.Waiting != 1 {
			t.Errorf("%d are worked on and %d wait", h.Working, h.Waiting)
		}
		// It takes the next message as if nothing had been.
		b = send(t, e, conversation("b"), "b again")
		for addr, id := range map[string]string{"a": a, "c": c, "b": b} {
			if got := settled(t, e, conversation("%s", addr), id); got != journal.Completed {
				t.Errorf("%s: %s", addr, got)
			}
		}
		if got, want := w.did(), []string{"a", "c", "b again"}; !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	})
}

// What makes way for others while it is aborted does not wait either.
func TestAbortOnTheWayToTheLine(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		w := newWorld()
		w.concurrent = 1
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if text, _ := asked(req); text == "long" {
				pause(ctx, time.Hour)
			}
			pause(ctx, 10*time.Second)
			say(yield, "yes")
		}
		var e *engine.Engine
		a, b := conversation("a"), conversation("b")
		w.watch = func(ev engine.Event) {
			if ev.Type == engine.EventSettled && ev.Instance == a && ev.Outcome == journal.Completed {
				if ok, err := e.Abort(context.Background(), a); !ok || err != nil {
					t.Errorf("%v, %v", ok, err)
				}
			}
		}
		e = w.start(t, s)
		defer stop(t, e)
		send(t, e, a, "first")
		synctest.Wait()
		send(t, e, b, "long")
		time.Sleep(5 * time.Second)
		second := send(t, e, a, "second") // begins a response of its own, since another one waits
		time.Sleep(30 * time.Second)
		if sub, err := e.Submission(t.Context(), a, second); err != nil || sub.Outcome != journal.Aborted {
			t.Errorf("%q, %v", sub.Outcome, err)
		}
	})
}

// A tool may wait for another instance, and that one's tool for a third, although
// there is one place.
func TestNestedWaits(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		w := newWorld()
		w.concurrent = 1
		const depth = 5
		var e *engine.Engine
		w.tools = []engine.Tool{w.tool("ask", func(ctx context.Context, c *engine.Work) engine.Result {
			var n int
			if _, err := fmt.Sscanf(c.ID, "ask%d", &n); err != nil {
				return engine.Result{Failed: true, Content: err.Error()}
			}
			next := conversation("c%d", n+1)
			id := send(t, e, next, fmt.Sprint(n+1))
			back := c.Away()
			defer back()
			return engine.Result{Content: settled(t, e, next, id)}
		})}
		w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
			text, results := asked(req)
			if results > 0 || text == fmt.Sprint(depth) {
				say(yield, "done")
				return
			}
			call(yield, "ask ask"+text)
		}
		e = w.start(t, s)
		defer stop(t, e)
		if got := settled(t, e, conversation("c0"), send(t, e, conversation("c0"), "0")); got != journal.Completed {
			t.Fatal(got)
		}
		synctest.Wait()
		if h := e.Health(); h.Working != 0 || h.Waiting != 0 {
			t.Errorf("%d places are taken, %d wait", h.Working, h.Waiting)
		}
		for i := range depth {
			if got := transcript(t, e, conversation("c%d", i)); !strings.Contains(strings.Join(got, "\n"), `output-available: "completed"`) {
				t.Errorf("c%d: %q", i, got)
			}
		}
	})
}

// A tool that is left behind while it waits for another instance keeps no place and
// gives none away that is not its own.
func TestNestedWaitIsLeftBehind(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		w := newWorld()
		w.concurrent = 1
		release := make(chan struct{})
		w.tools = []engine.Tool{w.tool("ask", func(_ context.Context, c *engine.Work) engine.Result {
			back := c.Away()
			<-release // whatever becomes of its context
			back()
			return engine.Result{Content: "late"}
		})}
		w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
			text, results := asked(req)
			if text == "ask" && results == 0 {
				call(yield, "ask a1")
				return
			}
			say(yield, "done")
		}
		e := w.start(t, s)
		defer stop(t, e)
		id := send(t, e, conversation("a"), "ask")
		synctest.Wait()
		if h := e.Health(); h.Working != 0 {
			t.Errorf("%d places are taken while the tool waits", h.Working)
		}
		if _, err := e.Abort(t.Context(), conversation("a")); err != nil {
			t.Fatal(err)
		}
		if got := settled(t, e, conversation("a"), id); got != journal.Aborted {
			t.Error(got)
		}
		synctest.Wait()
		if h := e.Health(); h.Working != 0 || h.Waiting != 0 {
			t.Errorf("%d places are taken, %d wait", h.Working, h.Waiting)
		}
		close(release)
		synctest.Wait()
		if h := e.Health(); h.Working != 0 {
			t.Errorf("%d places are taken after the tool has returned", h.Working)
		}
		if got := settled(t, e, conversation("b"), send(t, e, conversation("b"), "go")); got != journal.Completed {
			t.Error(got)
		}
	})
}

// Who pauses before a failed call is made again leaves its place to others, and is
// the first to get one when the pause is over.
func TestPauseLeavesThePlace(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		w := newWorld()
		w.concurrent = 1
		began := time.Now()
		failed := false
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			text, _ := asked(req)
			w.effect("%s@%s", text, time.Since(began).Round(time.Second))
			if text == "a" && !failed {
				failed = true
				limited := failure(model.RateLimited)
				limited.RetryAfter = 25 * time.Second
				yield(nil, limited)
				return
			}
			pause(ctx, 10*time.Second)
			say(yield, "yes")
		}
		e := w.start(t, s)
		defer stop(t, e)
		a := send(t, e, conversation("a"), "a")
		synctest.Wait()
		for _, id := range []string{"b", "c", "d", "e"} {
			send(t, e, conversation("%s", id), id)
			synctest.Wait()
		}
		if got := settled(t, e, conversation("a"), a); got != journal.Completed {
			t.Error(got)
		}
		time.Sleep(time.Minute)
		want := []string{"a@0s", "b@0s", "c@10s", "d@20s", "a@30s", "e@40s"}
		if got := w.did(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// Not more may pause than there are places: what pauses is held in memory.
func TestPausesAreBounded(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		w := newWorld()
		w.concurrent = 2
		w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
			text, _ := asked(req)
			w.effect("%s", text)
			limited := failure(model.RateLimited)
			limited.RetryAfter = time.Minute
			yield(nil, limited)
		}
		e := w.start(t, s)
		defer stop(t, e)
		for i := range 10 {
			send(t, e, conversation("c%d", i), fmt.Sprint(i))
		}
		synctest.Wait()
		time.Sleep(10 * time.Second)
		if got := w.did(); len(got) != 4 {
			t.Errorf("%d conversations pause or have a place: %q", len(got), got)
		}
	})
}

// What comes for a conversation that waits is read from the journal if it is much,
// and what it remembers is, too.
func TestWaitingHoldsLittle(t *testing.T) {
	for name, cache := range map[string]int{"kept": 0, "dropped": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(), struct{ unshared }{memstore.New()}
				w.concurrent, w.cache = 1, cache
				w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
					text, _ := asked(req)
					if text == "hold" {
						pause(ctx, time.Minute)
					}
					say(yield, fmt.Sprint(len(text)))
				}
				e := w.start(t, s)
				defer stop(t, e)
				old := conversation("old")
				settled(t, e, old, send(t, e, old, "before"))
				send(t, e, conversation("hold"), "hold")
				synctest.Wait()
				young := conversation("young")
				var last [2]string
				for _, size := range []int{10, 10_000, 20_000, 30} {
					body := strings.Repeat("x", size)
					last[0], last[1] = send(t, e, old, body), send(t, e, young, body)
				}
				if held := engine.Queued(e); held > 40_000 {
					t.Errorf("those that wait hold %d bytes", held)
				}
				for i, addr := range []store.Address{old, young} {
					if got := settled(t, e, addr, last[i]); got != journal.Completed {
						t.Errorf("%s: %s", addr, got)
					}
					if got := transcript(t, e, addr); !strings.Contains(strings.Join(got, "\n"), `"30" done`) {
						t.Errorf("%.500q", got)
					}
				}
			})
		})
	}
}

// A runtime that closes while conversations wait gives them back at once, and the
// next one works on all of them.
func TestCloseWithALine(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		w := newWorld()
		w.concurrent = 2
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if pause(ctx, time.Second) {
				say(yield, "yes")
			}
		}
		e := w.start(t, s)
		ids := map[store.Address]string{}
		for i := range 20 {
			addr := conversation("c%d", i)
			ids[addr] = send(t, e, addr, "hi")
		}
		stop(t, e)
		e = w.start(t, s)
		defer stop(t, e)
		for addr, id := range ids {
			if got := settled(t, e, addr, id); got != journal.Completed {
				t.Errorf("%s: %s", addr, got)
			}
		}
		time.Sleep(2 * time.Second) // what waits in the store is counted
		if h := e.Health(); h.Working > 2 || h.Waiting != 0 {
			t.Errorf("%d are worked on, %d wait", h.Working, h.Waiting)
		}
	})
}
