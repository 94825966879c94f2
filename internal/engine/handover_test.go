package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// replicas are engines on one store, each a world of its own.
type replicas struct {
	t  *testing.T
	s  *memstore.Store
	ws []*world
	es []*engine.Engine
}

// replicate opens engines on one store. Models are told which of them asks.
func replicate(t *testing.T, n, concurrent int, reply func(node string) func(context.Context, *model.Request, func(model.Event, error) bool)) *replicas {
	t.Helper()
	r := &replicas{t: t, s: memstore.New()}
	for i := range n {
		w := newWorld()
		w.node, w.concurrent = fmt.Sprint("n", i), concurrent
		w.reply = reply(w.node)
		r.ws = append(r.ws, w)
		r.es = append(r.es, w.start(t, r.s.Share()))
	}
	return r
}

// within fails the test unless the submission is completed in time.
func (r *replicas) within(limit time.Duration, addr store.Address, id string) {
	r.t.Helper()
	time.Sleep(limit)
	sub, err := r.s.Submission(context.Background(), addr, id)
	if err != nil || sub.Outcome != journal.Completed {
		r.t.Errorf("%s: %q after %s, %v", addr, sub.Outcome, limit, err)
	}
}

// A process that is about to end gives back what it does not work on, and takes
// nothing: others go on with all of it in less than a second, and with what it works on
// when its response has ended.
func TestRetire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		by := map[string]string{}
		r := replicate(t, 2, 0, func(node string) func(context.Context, *model.Request, func(model.Event, error) bool) {
			return func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
				text, _ := asked(req)
				mu.Lock()
				by[text] = node
				mu.Unlock()
				if strings.HasPrefix(text, "long") {
					pause(ctx, 10*time.Second)
				}
				say(yield, "yes")
			}
		})
		old, young := r.es[0], r.es[1]
		defer stop(t, young)
		idle := conversation("idle")
		settled(t, old, idle, send(t, old, idle, "first"))
		busy := conversation("busy")
		first := send(t, old, busy, "long one")
		synctest.Wait()

		old.Retire()
		if h := old.Health(); !h.Leaving || h.Closing {
			t.Errorf("%+v", h)
		}
		synctest.Wait()
		r.within(time.Second, idle, send(t, young, idle, "to the idle one"))
		fresh := conversation("fresh")
		r.within(time.Second, fresh, send(t, old, fresh, "to the old one"))
		time.Sleep(10 * time.Second)
		if got := settled(t, young, busy, first); got != journal.Completed {
			t.Error(got)
		}
		r.within(time.Second, busy, send(t, old, busy, "next"))
		for text, want := range map[string]string{"first": "n0", "long one": "n0", "to the idle one": "n1", "to the old one": "n1", "next": "n1"} {
			if by[text] != want {
				t.Errorf("%s was answered by %q", text, by[text])
			}
		}
		began := time.Now()
		stop(t, old)
		if took := time.Since(began); took > time.Second {
			t.Errorf("with nothing left to do it has taken %s to close", took)
		}
		if n := len(r.ws[1].seen()); n == 0 {
			t.Error("nothing was seen")
		}
		for _, ev := range r.ws[1].seen() {
			if ev.Type == engine.EventAttemptStarted && ev.Attempt != 1 {
				t.Errorf("an attempt was counted: %+v", ev)
			}
		}
	})
}

// While a process that closes waits for a call that runs, others have what it waited
// with, what was idle, and what pauses.
func TestCloseHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		by := map[string][]string{}
		r := replicate(t, 2, 3, func(node string) func(context.Context, *model.Request, func(model.Event, error) bool) {
			return func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
				text, _ := asked(req)
				mu.Lock()
				by[text] = append(by[text], node)
				mu.Unlock()
				switch {
				case text == "long" && node == "n0":
					pause(ctx, 20*time.Second)
				case text == "limited" && node == "n0":
					limited := failure(model.RateLimited)
					limited.RetryAfter = 50 * time.Second
					yield(nil, limited)
					return
				}
				say(yield, "yes")
			}
		})
		old, young := r.es[0], r.es[1]
		defer stop(t, young)
		idle, long, limited := conversation("idle"), conversation("long"), conversation("limited")
		settled(t, old, idle, send(t, old, idle, "first"))
		l := send(t, old, long, "long")
		p := send(t, old, limited, "limited")
		synctest.Wait()

		closed := make(chan time.Time, 1)
		began := time.Now()
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := old.Close(ctx); err != nil {
				t.Error(err)
			}
			closed <- time.Now()
		}()
		synctest.Wait()
		time.Sleep(time.Second)
		owned, err := r.s.Owned(t.Context(), "n1", store.Address{}, 10)
		if err != nil || len(owned) != 1 || owned[0].Address != limited { // it pauses there
			t.Errorf("%v, %v", owned, err)
		}
		r.within(time.Second, idle, send(t, young, idle, "second"))
		fresh := conversation("fresh")
		r.within(time.Second, fresh, send(t, old, fresh, "third"))
		select {
		case at := <-closed:
			t.Fatalf("it has closed after %s, in the middle of a call", at.Sub(began))
		default:
		}
		if took := (<-closed).Sub(began); took < 19*time.Second || took > 21*time.Second {
			t.Errorf("it has closed after %s", took)
		}
		r.within(time.Second, long, l)
		r.within(time.Minute, limited, p)
		for text, want := range map[string][]string{"limited": {"n0", "n1"}, "second": {"n1"}, "third": {"n1"}, "long": {"n0"}} {
			if !slices.Equal(by[text], want) {
				t.Errorf("%s was asked of %q, want %q", text, by[text], want)
			}
		}
	})
}

// Two processes with one place each share the work of many conversations: neither takes
// more than it can work on, and a place that comes free is used at once.
func TestReplicasShareTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		by := map[string]int{}
		r := replicate(t, 2, 1, func(node string) func(context.Context, *model.Request, func(model.Event, error) bool) {
			return func(ctx context.Context, _ *model.Request, yield func(model.Event, error) bool) {
				mu.Lock()
				by[node]++
				mu.Unlock()
				pause(ctx, time.Second)
				say(yield, "yes")
			}
		})
		began := time.Now()
		ids := map[store.Address]string{}
		for i := range 20 { // all by one of them
			addr := conversation("c%d", i)
			ids[addr] = send(t, r.es[0], addr, "hello")
		}
		synctest.Wait()
		time.Sleep(3500 * time.Millisecond) // what waits in the store is counted, and all are at work
		for i, e := range r.es {
			if h := e.Health(); h.Working != 1 || h.Waiting < 10 {
				t.Errorf("%d: %d are worked on, %d wait", i, h.Working, h.Waiting)
			}
		}
		nodes, err := r.s.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			if n.Working > 1 {
				t.Errorf("%s owns %d with work", n.Name, n.Working)
			}
		}
		for addr, id := range ids {
			if got := settled(t, r.es[1], addr, id); got != journal.Completed {
				t.Errorf("%s: %s", addr, got)
			}
		}
		if took := time.Since(began); took > 12*time.Second {
			t.Errorf("20 responses of a second each have taken two processes %s", took)
		}
		if by["n0"] < 8 || by["n1"] < 8 {
			t.Errorf("%v", by)
		}
		for _, e := range r.es {
			stop(t, e)
		}
	})
}

// A message for a conversation that this process owns and has no place for is
// answered at once by one that has.
func TestNoPlaceIsNoReasonToWait(t *testing.T) {
	// Whatever looks once a second must not be what finds it.
	for after := 100 * time.Millisecond; after < time.Second; after += 200 * time.Millisecond {
		noPlace(t, after)
	}
}

func noPlace(t *testing.T, after time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		r := replicate(t, 2, 1, func(string) func(context.Context, *model.Request, func(model.Event, error) bool) {
			return func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
				if text, _ := asked(req); text == "long" {
					pause(ctx, 10*time.Second)
				}
				say(yield, "yes")
			}
		})
		idle, busy := conversation("idle"), conversation("busy")
		settled(t, r.es[0], idle, send(t, r.es[0], idle, "hello"))
		send(t, r.es[0], busy, "long")
		time.Sleep(after) // simulated
		r.within(500*time.Millisecond, idle, send(t, r.es[0], idle, "hello again"))
		for _, e := range r.es {
			stop(t, e)
		}
	})
}

// What there is no place for is not lost if it cannot be given back: it waits here.
func TestHandOffFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(), &unreleased{Store: memstore.New()}
		w.concurrent = 1
		w.reply = func(ctx context.Context, _ *model.Request, yield func(model.Event, error) bool) {
			pause(ctx, time.Second)
			say(yield, "yes")
		}
		e := w.start(t, s)
		defer stop(t, e)
		a, b := conversation("a"), conversation("b")
		settled(t, e, a, send(t, e, a, "hello"))
		synctest.Wait()
		first := send(t, e, b, "hello")
		synctest.Wait()
		second := send(t, e, a, "again") // it is idle here, and there is no place
		synctest.Wait()
		if s.refused() == 0 {
			t.Error("nothing was given back")
		}
		for addr, id := range map[store.Address]string{b: first, a: second} {
			if got := settled(t, e, addr, id); got != journal.Completed {
				t.Errorf("%s: %s", addr, got)
			}
		}
	})
}

// What could not be given back has one driver as before, whatever the store does
// instead of taking it: no call is made twice.
func TestGivingUpFails(t *testing.T) {
	for name, fails := range map[string][]func() error{
		"once":                 {refuse},
		"twice":                {refuse, refuse},
		"by a panic":           {panics},
		"by a panic, then not": {panics, refuse},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(), &unwilling{Store: memstore.New(), fails: fails}
				w.concurrent = 1
				w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
					text, _ := asked(req)
					w.effect("%s", text)
					pause(ctx, 10*time.Second)
					say(yield, "yes")
				}
				e := w.start(t, s)
				defer stop(t, e)
				a, b := conversation("a"), conversation("b")
				ids := map[string]store.Address{send(t, e, a, "a"): a}
				synctest.Wait()
				ids[send(t, e, b, "b")] = b // it has no place, so a makes way for it
				ids[send(t, e, a, "a again")] = a
				for id, addr := range ids {
					if got := settled(t, e, addr, id); got != journal.Completed {
						t.Errorf("%s: %s", addr, got)
					}
				}
				if n := s.left(); n > 0 {
					t.Errorf("nothing was given back: it would have failed %d times", n)
				}
				for _, text := range []string{"a", "a again", "b"} {
					if n := w.count(text); n != 1 {
						t.Errorf("the model was asked %d times for %q", n, text)
					}
				}
				time.Sleep(time.Minute)
				if h := e.Health(); h.Working != 0 || h.Waiting != 0 {
					t.Errorf("%d are worked on and %d wait", h.Working, h.Waiting)
				}
			})
		})
	}
}

func refuse() error { return fmt.Errorf("%w: a test says so", store.ErrUnavailable) }

func panics() error { panic("a test says so") }

// An unwilling store fails to take back what it is given at first.
type unwilling struct {
	*memstore.Store
	mu    sync.Mutex
	fails []func() error
}

func (u *unwilling) Release(ctx context.Context, leases ...store.Lease) error {
	if fail := u.next(); fail != nil {
		return fail()
	}
	return u.Store.Release(ctx, leases...)
}

func (u *unwilling) next() (fail func() error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.fails) > 0 {
		fail, u.fails = u.fails[0], u.fails[1:]
	}
	return fail
}

func (u *unwilling) left() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.fails)
}

// An unreleased store takes nothing back.
type unreleased struct {
	*memstore.Store
	mu sync.Mutex
	n  int
}

func (u *unreleased) Release(context.Context, ...store.Lease) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n++
	return fmt.Errorf("%w: a test says so", store.ErrUnavailable)
}

func (u *unreleased) refused() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.n
}

// What has come to rest is not driven on by a driver that fails after that.
func TestGivingIdleBackPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(), &unwilling{Store: memstore.New(), fails: []func() error{panics}}
		w.cache = -1 // nothing stays idle
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			text, _ := asked(req)
			w.effect("%s", text)
			pause(ctx, 10*time.Second)
			say(yield, "yes")
		}
		e := w.start(t, s)
		defer stop(t, e)
		settled(t, e, chat, send(t, e, chat, "first"))
		for i := range 3 {
			text := fmt.Sprint("next ", i)
			if got := settled(t, e, chat, send(t, e, chat, text)); got != journal.Completed {
				t.Error(got)
			}
			if n := w.count(text); n != 1 {
				t.Errorf("the model was asked %d times for %q", n, text)
			}
		}
		if n := s.left(); n > 0 {
			t.Error("nothing was given back")
		}
		for _, ev := range w.seen() {
			if ev.Type == engine.EventStalled {
				t.Errorf("it is begun again: %+v", ev)
			}
		}
	})
}
