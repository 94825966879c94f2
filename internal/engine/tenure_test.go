package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/flue-go/flue/store/storetest/faultstore"
)

var errNoRenewal = errors.New("no renewal today")

// A node is a process among several that share a store.
type node struct {
	*world
	name string
	fs   *faultstore.Store
	e    *engine.Engine
}

// join opens an engine for a node on a shared store.
func (w *world) join(t testing.TB, name string, s store.Store) *node {
	t.Helper()
	n := &node{world: w, name: name, fs: faultstore.New(s)}
	e, err := engine.Open(context.Background(), engine.Config{
		Store: n.fs, Programs: map[string]engine.Program{"chat": w}, Models: w, Observe: w.observe, Node: name, Log: testLog(),
	})
	if err != nil {
		t.Fatal(err)
	}
	n.e = e
	return n
}

// observed returns the times of events of a type.
func (w *world) observed(typ engine.EventType) []time.Time {
	var out []time.Time
	for _, ev := range w.seen() {
		if ev.Type == typ {
			out = append(out, ev.Time)
		}
	}
	return out
}

// The default lease is of ten seconds. It is renewed every 2.5 seconds, and lapses
// here five seconds after the last renewal that succeeded was asked for.
//
// breaks are the ways in which a node can lose its store.
var breaks = []struct {
	name string
	cut  func(*faultstore.Store)
}{
	{"renewals fail", func(s *faultstore.Store) { s.RefuseRenewals(errNoRenewal) }},
	{"calls hang", func(s *faultstore.Store) { s.Cut(faultstore.Before, false) }},
	{"calls hang whatever", func(s *faultstore.Store) { s.Cut(faultstore.Before, true) }},
	{"answers hang", func(s *faultstore.Store) { s.Cut(faultstore.After, false) }},
	{"answers hang whatever", func(s *faultstore.Store) { s.Cut(faultstore.After, true) }},
}

func mendLine(s *faultstore.Store) {
	s.RefuseRenewals(nil)
	s.Mend()
}

// A process that cannot renew its lease stops all work half a lease after the last
// renewal, with a cause that says so, writes nothing, and goes on by itself when it
// can. Nothing is done twice that must not be, and no attempt is counted.
func TestWorkStopsWhileTheLeaseHasLapsed(t *testing.T) {
	for _, how := range breaks {
		t.Run(how.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.budget.ParallelCalls = 2
				causes := make(map[string]error)
				work := func(ctx context.Context, c *engine.Work) engine.Result {
					if !pause(ctx, 20*time.Second) {
						w.mu.Lock()
						causes[c.ID] = context.Cause(ctx)
						w.mu.Unlock()
						return engine.Result{Failed: true, Content: "stopped", Err: ctx.Err()}
					}
					return engine.Result{Content: "ok"}
				}
				plain, durable := w.tool("plain", work), w.tool("durable", work)
				durable.Again = true
				w.tools = []engine.Tool{plain, durable}
				w.reply = callsThenSays("plain p1", "durable d1", "plain p2")
				n := w.join(t, "a", memstore.New())
				defer stop(t, n.e)
				began := time.Now()
				id := send(t, n.e, chat, "go")
				time.Sleep(6 * time.Second) // simulated: the latest renewal was asked for at 5 s
				how.cut(n.fs)
				written := n.fs.Calls().Append
				time.Sleep(4*time.Second - time.Millisecond)
				if len(causes) > 0 || len(w.observed(engine.EventLeaseLapsed)) > 0 {
					t.Error("the work has stopped too soon")
				}
				time.Sleep(2 * time.Millisecond)
				synctest.Wait()
				for _, call := range []string{"p1", "d1"} {
					if !errors.Is(causes[call], engine.ErrLeaseLapsed) {
						t.Errorf("the cause of %s is %v", call, causes[call])
					}
				}
				if got := w.observed(engine.EventLeaseLapsed); len(got) != 1 || got[0].Sub(began) != 10*time.Second {
					t.Errorf("the lapse was told at %v", got)
				}
				time.Sleep(time.Minute) // simulated
				if got := n.fs.Calls().Append; got != written {
					t.Errorf("%d appends while the lease had lapsed", got-written)
				}
				if w.calls != 1 || w.count("tool:p2") != 0 || len(w.effects) != 2 {
					t.Errorf("meanwhile there were %d model calls and the effects %q", w.calls, w.effects)
				}
				mendLine(n.fs)
				if got := settled(t, n.e, chat, id); got != "completed" {
					t.Errorf("settled %s", got)
				}
				if got := w.observed(engine.EventLeaseRenewed); len(got) != 1 {
					t.Errorf("the renewal was told at %v", got)
				}
				got := outcomes(t, n.fs)
				for call, want := range map[string]string{"p1": wordsUnknown, "d1": "ok", "p2": "ok"} {
					if !strings.HasPrefix(got[call].Content, want) {
						t.Errorf("%s reads %q, want %s", call, got[call].Content, want)
					}
				}
				for effect, want := range map[string]int{"tool:p1": 1, "tool:d1": 2, "tool:p2": 1} {
					if n := w.count(effect); n != want {
						t.Errorf("%s happened %d times", effect, n)
					}
				}
				attempts, released := 0, 0
				for _, r := range records(t, n.fs, chat) {
					switch r := r.(type) {
					case *journal.Attempt:
						attempts = r.Ordinal
					case *journal.Release:
						released++
					}
				}
				if attempts != 1 || released != 1 {
					t.Errorf("the last attempt is number %d, and %d were given back", attempts, released)
				}
				if epochs := epochsOf(t, n.fs); len(epochs) != 2 {
					t.Errorf("the epochs are %v, want a new one", epochs)
				}
			})
		})
	}
}

// epochsOf are the epochs under which a journal was written, in order.
func epochsOf(t testing.TB, s store.Store) []int64 {
	t.Helper()
	page, err := s.Read(context.Background(), chat, -1, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []int64
	for _, b := range page.Batches {
		if b.Epoch != 0 && (len(out) == 0 || out[len(out)-1] != b.Epoch) {
			out = append(out, b.Epoch)
		}
	}
	return out
}

// What is accepted while the lease has lapsed waits, and so does what is begun
// anew; an abort is heeded.
func TestIntakeWhileTheLeaseHasLapsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			text, _ := asked(req)
			w.effect("asked %s", text)
			if text == "long" && !pause(ctx, time.Minute) {
				return
			}
			echo(ctx, req, yield)
		}
		n := w.join(t, "a", memstore.New())
		defer stop(t, n.e)
		addr := func(id string) store.Address { return store.Address{Agent: "chat", ID: id} }
		quiet := addr("quiet")
		if got := settled(t, n.e, quiet, send(t, n.e, quiet, "before")); got != "completed" {
			t.Fatalf("settled %s", got)
		}
		long := send(t, n.e, chat, "long")
		time.Sleep(time.Second) // simulated
		n.fs.RefuseRenewals(errNoRenewal)
		time.Sleep(9 * time.Second) // simulated: it has lapsed, but not for the store
		known, fresh := send(t, n.e, quiet, "known"), send(t, n.e, addr("new"), "new")
		time.Sleep(20 * time.Second) // simulated: it has lapsed for the store, too
		late := send(t, n.e, addr("late"), "late")
		if ok, err := n.e.Abort(t.Context(), chat); !ok || err != nil {
			t.Error(ok, err)
		}
		time.Sleep(time.Minute) // simulated
		if want := []string{"asked before", "asked long"}; fmt.Sprint(w.effects) != fmt.Sprint(want) {
			t.Errorf("while the lease had lapsed it did %q", w.effects)
		}
		n.fs.RefuseRenewals(nil)
		for _, m := range []struct {
			addr     store.Address
			id, want string
		}{{quiet, known, "completed"}, {addr("new"), fresh, "completed"}, {addr("late"), late, "completed"}, {chat, long, "aborted"}} {
			if got := settled(t, n.e, m.addr, m.id); got != m.want {
				t.Errorf("%s settled %s", m.addr, got)
			}
		}
	})
}

// Another node that has taken an idle instance meanwhile, and given it back, is
// not overlooked.
func TestIdleInstanceAfterALapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		durable := memstore.New()
		wa, wb := newWorld(), newWorld()
		wa.reply, wb.reply = echo, echo
		a := wa.join(t, "a", durable)
		defer stop(t, a.e)
		settled(t, a.e, chat, send(t, a.e, chat, "one"))
		a.fs.Cut(faultstore.Before, false)
		time.Sleep(20 * time.Second) // simulated
		b := wb.join(t, "b", durable)
		if got := settled(t, b.e, chat, send(t, b.e, chat, "two")); got != "completed" {
			t.Fatalf("settled %s", got)
		}
		stop(t, b.e)
		a.fs.Mend()
		time.Sleep(time.Second) // simulated
		if got := settled(t, a.e, chat, send(t, a.e, chat, "three")); got != "completed" {
			t.Fatalf("settled %s", got)
		}
		if n := len(wa.last.Messages); n != 5 {
			t.Errorf("the model was shown %d messages, want all five", n)
		}
		if wa.calls != 2 {
			t.Errorf("node a made %d model calls, want one a message", wa.calls)
		}
	})
}

// A slowLease is a store that takes its time to renew a lease, whatever the context says.
type slowLease struct {
	store.Store
	mu   sync.Mutex
	wait time.Duration
}

func (s *slowLease) takes(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wait = d
}

func (s *slowLease) Renew(ctx context.Context, node string, ttl time.Duration) error {
	s.mu.Lock()
	wait := s.wait
	s.mu.Unlock()
	time.Sleep(wait)
	return s.Store.Renew(context.WithoutCancel(ctx), node, ttl)
}

// A renewal says when it was asked for, not when it was answered: one that takes
// too long proves nothing.
func TestSlowRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply = func(ctx context.Context, _ *model.Request, _ func(model.Event, error) bool) { pause(ctx, time.Hour) }
		s := &slowLease{Store: memstore.New()}
		n := w.join(t, "a", s)
		defer stop(t, n.e)
		send(t, n.e, chat, "go")
		s.takes(2 * time.Second)
		time.Sleep(5 * time.Minute) // simulated
		if got := len(w.observed(engine.EventLeaseLapsed)); got != 0 {
			t.Errorf("with renewals that take two seconds the lease has lapsed %d times", got)
		}
		s.takes(6 * time.Second)
		time.Sleep(5 * time.Minute) // simulated
		if lapsed, renewed := len(w.observed(engine.EventLeaseLapsed)), len(w.observed(engine.EventLeaseRenewed)); lapsed != 1 || renewed != 0 {
			t.Errorf("with renewals that take six seconds the lease has lapsed %d times and was renewed %d times", lapsed, renewed)
		}
		s.takes(0)
		time.Sleep(10 * time.Second) // simulated
		if got := len(w.observed(engine.EventLeaseRenewed)); got != 1 {
			t.Errorf("the lease was renewed %d times after it had lapsed", got)
		}
	})
}

// A process that has no store can be closed, and so can one whose store has never
// answered since.
func TestCloseWithoutAStore(t *testing.T) {
	for _, how := range breaks {
		for _, wait := range []time.Duration{0, time.Second, time.Minute} {
			t.Run(fmt.Sprint(how.name, wait), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld()
					script(w)
					durable := memstore.New()
					n := w.join(t, "a", durable)
					id := send(t, n.e, chat, "work")
					settled(t, n.e, store.Address{Agent: "chat", ID: "other"}, send(t, n.e, store.Address{Agent: "chat", ID: "other"}, "hello"))
					time.Sleep(500 * time.Millisecond) // simulated
					how.cut(n.fs)
					time.Sleep(wait)
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
					defer cancel()
					began := time.Now()
					err := n.e.Close(ctx)
					took := time.Since(began)
					if deaf := strings.HasSuffix(how.name, "whatever"); err != nil && !deaf {
						t.Error(err)
					}
					if took > 15*time.Second {
						t.Errorf("closing took %v", took)
					}
					mendLine(n.fs)
					time.Sleep(time.Minute) // simulated
					e := w.start(t, durable.Reopen())
					defer stop(t, e)
					if got := settled(t, e, chat, id); got != "completed" {
						t.Errorf("settled %s", got)
					}
				})
			})
		}
	}
}

// A happening is something that a node did outside.
type happening struct {
	node string
	what string
	at   time.Time
}

// A duel is two nodes on one store, and all that they do outside.
type duel struct {
	durable *memstore.Store
	began   time.Time

	mu  sync.Mutex
	did []happening
}

func (d *duel) note(node, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.did = append(d.did, happening{node, fmt.Sprintf(format, args...), time.Now()})
}

// world is the agent as a node runs it: it uses start and finish hooks, durable and
// ordinary tools, of which two may run at once, state and steps.
func (d *duel) world(node string) *world {
	w := newWorld()
	w.budget.ParallelCalls = 2
	run := func(again bool) func(ctx context.Context, c *engine.Work) engine.Result {
		return func(ctx context.Context, c *engine.Work) engine.Result {
			d.note(node, "tool %s", c.ID)
			if again {
				pause(context.WithoutCancel(ctx), 500*time.Millisecond)
				for _, name := range []string{"one", "two"} {
					_, err := c.Step(ctx, name, false, func(ctx context.Context) (json.RawMessage, error) {
						d.note(node, "step %s %s", c.ID, name)
						pause(context.WithoutCancel(ctx), 600*time.Millisecond) // deaf to its context
						return mustJSON(true), nil
					})
					if err != nil {
						return engine.Result{Failed: true, Content: err.Error(), Err: err}
					}
				}
			}
			if !pause(ctx, 700*time.Millisecond) {
				return engine.Result{Failed: true, Content: "stopped", Err: ctx.Err()}
			}
			if err := addOne(c); err != nil {
				return engine.Result{Failed: true, Content: err.Error(), Err: err}
			}
			return engine.Result{Content: "ok"}
		}
	}
	plain := w.tool("plain", run(false))
	durable := w.tool("durable", run(true))
	durable.Again = true
	hook := func(name string) engine.Hook {
		return engine.Hook{Name: name, Run: func(ctx context.Context, h *engine.Work) error {
			d.note(node, "hook %s", name)
			pause(ctx, 500*time.Millisecond)
			return ctx.Err()
		}}
	}
	w.render = func(engine.View) (*engine.Plan, error) {
		return &engine.Plan{
			Settings: journal.Settings{Model: "test/m"}, Tools: []engine.Tool{plain, durable},
			Start: []engine.Hook{hook("start")}, Finish: []engine.Hook{hook("finish")}, ResponseFinish: []engine.Hook{hook("response finish")},
		}, nil
	}
	w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
		d.note(node, "model")
		if !pause(ctx, 800*time.Millisecond) {
			return
		}
		callsThenSays("plain p1", "durable d1", "plain p2", "durable d2", "plain p3")(ctx, req, yield)
	}
	return w
}

// TestTakeoverWhileTheLeaseHasLapsed cuts a node off from the store at any moment
// of a response, in every way, and lets another node take over. Once it has, the
// first one does nothing any more, nothing that it writes is accepted, and it
// comes back to find that there is nothing to do.
func TestTakeoverWhileTheLeaseHasLapsed(t *testing.T) {
	step := 100 * time.Millisecond
	if testing.Short() {
		step = 400 * time.Millisecond
	}
	overtaken := 0
	phase := time.Duration(0) // of the response among the renewals
	for _, how := range breaks {
		for at := time.Duration(0); at < 8*time.Second; at += step {
			synctest.Test(t, func(t *testing.T) {
				d := &duel{durable: memstore.New(), began: time.Now()}
				wa, wb := d.world("a"), d.world("b")
				a := wa.join(t, "a", d.durable)
				defer stop(t, a.e)
				phase = (phase + 370*time.Millisecond) % (2500 * time.Millisecond)
				time.Sleep(phase)
				id := send(t, a.e, chat, "go")
				time.Sleep(at)
				how.cut(a.fs)
				b := wb.join(t, "b", d.durable)
				defer stop(t, b.e)
				time.Sleep(30 * time.Second) // simulated: the lease has lapsed for the store, too
				mendLine(a.fs)
				if got := settled(t, b.e, chat, id); got != "completed" {
					t.Errorf("settled %s", got)
				}
				time.Sleep(time.Minute) // simulated
				owner := a
				if got := wa.observed(engine.EventLeaseLapsed); len(got) != 1 {
					t.Errorf("the lease has lapsed at %v", got)
				} else if d.check(t, got[0]) {
					owner = b
					overtaken++
				}
				if got := settled(t, owner.e, chat, send(t, owner.e, chat, "next")); got != "completed" {
					t.Errorf("the next message settled %s", got)
				}
			})
			if t.Failed() {
				t.Fatalf("%s at %v", how.name, at)
			}
		}
	}
	t.Logf("in %d runs the other node took over", overtaken)
	if overtaken == 0 {
		t.Error("no node was ever overtaken")
	}
}

// check holds what the nodes did to what the journal says, and to the time at which
// the first one's lease has lapsed. It reports whether the second has taken over.
func (d *duel) check(t *testing.T, lapsed time.Time) bool {
	t.Helper()
	page, err := d.durable.Read(t.Context(), chat, -1, 0)
	if err != nil {
		t.Fatal(err)
	}
	var takeover time.Time
	epoch, settlements := int64(0), 0
	plain := make(map[string]int)
	for _, b := range page.Batches {
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			t.Fatal(err)
		}
		if b.Epoch != 0 && b.Epoch < epoch {
			t.Errorf("an append of epoch %d was accepted after one of %d", b.Epoch, epoch)
		}
		epoch = max(epoch, b.Epoch)
		for _, r := range batch.Records {
			switch r := r.(type) {
			case *journal.Attempt:
				if r.Node == "b" && takeover.IsZero() {
					takeover = batch.At
				}
			case *journal.Settled:
				settlements++
			}
		}
	}
	if settlements != 1 {
		t.Errorf("%d settlements", settlements)
	}
	for _, h := range d.did {
		if h.node == "a" && (h.at.After(lapsed) || !takeover.IsZero() && h.at.After(takeover)) {
			t.Errorf("%s at %v, after the lapse at %v and the takeover at %v", h.what, h.at.Sub(d.began), lapsed.Sub(d.began), takeover.Sub(d.began))
		}
		if call, ok := strings.CutPrefix(h.what, "tool p"); ok {
			if plain[call]++; plain[call] > 1 {
				t.Errorf("call p%s ran again", call)
			}
		}
	}
	return !takeover.IsZero()
}
