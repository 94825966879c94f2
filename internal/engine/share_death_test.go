package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// kill ends a node as SIGKILL does: nothing that it does reaches the store any more.
func (n *node) kill(t *testing.T) {
	t.Helper()
	n.fs.CrashNow()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.e.Close(ctx); err != nil {
		t.Error(err)
	}
}

// attemptsOf are the attempts at what an instance was sent, by node, and how many
// were given back.
func attemptsOf(t *testing.T, s store.Store, addr store.Address) (nodes []string, last, released int) {
	t.Helper()
	for _, r := range records(t, s, addr) {
		switch r := r.(type) {
		case *journal.Attempt:
			nodes, last = append(nodes, r.Node), r.Ordinal
		case *journal.Release:
			released++
		}
	}
	return nodes, last, released
}

// A process that is killed in the middle of a call is followed by another one as soon
// as its lease has lapsed. The call, which may have been run, is not run again, and a
// reader elsewhere misses nothing.
func TestKilledOwner(t *testing.T) {
	for _, h := range hearings {
		t.Run(h.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, durable := fleet(t, 3, h, toolScript)
				a, b, c := nodes[0], nodes[1], nodes[2]
				defer stopAll(t, []*node{a, c})
				id := send(t, b.e, chat, "work")
				reader := newWatcher(t, c.e, chat)
				time.Sleep(3700 * time.Millisecond) // simulated
				if b.count("tool:w1") != 1 {
					t.Errorf("who has accepted the message did %q", b.did())
				}
				began := time.Now()
				b.kill(t)
				if got := settled(t, c.e, chat, id); got != journal.Completed {
					t.Errorf("settled %s", got)
				}
				// A lease of ten seconds, which was renewed up to 2.5 seconds ago, and a look
				// once a second at what is free and, if nobody tells of it, at what has come.
				within(t, "the takeover", began, 13*time.Second)
				if took := time.Since(began); took < 7*time.Second {
					t.Errorf("the takeover took %v: before the lease has lapsed", took)
				}
				if n := a.count("tool:w1") + b.count("tool:w1") + c.count("tool:w1"); n != 1 {
					t.Errorf("the call was run %d times", n)
				}
				if !strings.HasPrefix(outcomes(t, durable)["w1"].Content, wordsUnknown) {
					t.Errorf("the call is said to have come to %q", outcomes(t, durable)["w1"].Content)
				}
				time.Sleep(2 * time.Second) // simulated
				if got, want := reader.stop(), transcript(t, c.e, chat); !slices.Equal(got, want) {
					t.Errorf("the reader has\n%s\nof\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			})
		})
	}
}

// A process that is closed in order hands over at once: what it works on, what waits
// and what is idle. That counts as no attempt.
func TestHandover(t *testing.T) {
	for _, h := range hearings {
		t.Run(h.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				said := new(sync.Map)
				nodes, durable := fleet(t, 2, h, liveScript(100, said))
				a, b := nodes[0], nodes[1]
				defer stop(t, b.e)
				idle := store.Address{Agent: "chat", ID: "idle"}
				settled(t, a.e, idle, send(t, a.e, idle, "hello"))
				id := send(t, a.e, chat, "speak")
				reader := newWatcher(t, b.e, chat)
				time.Sleep(3 * time.Second) // simulated
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				if err := a.e.Close(ctx); err != nil {
					t.Error(err)
				}
				closed := time.Since(began)
				for b.asked() == 0 && time.Since(began) < time.Minute {
					time.Sleep(10 * time.Millisecond)
				}
				within(t, "the handover", began.Add(closed), time.Second)
				if got := settled(t, b.e, chat, id); got != journal.Completed {
					t.Errorf("settled %s", got)
				}
				owners, last, released := attemptsOf(t, durable, chat)
				if !slices.Equal(owners, []string{"a", "b"}) || last != 1 || released != 1 {
					t.Errorf("attempts by %v, the last one is number %d, %d were given back", owners, last, released)
				}
				settled(t, b.e, idle, send(t, b.e, idle, "hello"))
				if owners, _, _ := attemptsOf(t, durable, idle); !slices.Equal(owners, []string{"a", "b"}) {
					t.Errorf("the idle one was worked on by %v", owners)
				}
				time.Sleep(2 * time.Second) // simulated
				if got, want := reader.stop(), transcript(t, b.e, chat); !slices.Equal(got, want) {
					t.Errorf("the reader has\n%s\nof\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				leases, err := durable.Nodes(t.Context())
				if err != nil || len(leases) != 2 || leases[0].Left > 0 || leases[0].Owned != 0 {
					t.Errorf("who has closed is told as %+v, %v", leases, err)
				}
			})
		})
	}
}

// A process that was stopped as a whole, with all of its calls to the store, and goes
// on long after another one has taken over, writes nothing and starts nothing. It goes
// on to read and to accept like any other.
func TestZombie(t *testing.T) {
	for _, mode := range []faultstore.Mode{faultstore.Before, faultstore.After} {
		for at := 100 * time.Millisecond; at < 4*time.Second; at += 300 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				d := &duel{durable: memstore.New(), began: time.Now()}
				wa, wb := d.world("a"), d.world("b")
				a, b := wa.join(t, "a", d.durable), wb.join(t, "b", d.durable)
				defer stopAll(t, []*node{a, b})
				id := send(t, a.e, chat, "go")
				reader := newWatcher(t, b.e, chat)
				time.Sleep(at)
				a.fs.Cut(mode, true)         // no call returns, whatever its context says
				time.Sleep(40 * time.Second) // simulated
				if got := settled(t, b.e, chat, id); got != journal.Completed {
					t.Errorf("settled %s", got)
				}
				a.fs.Mend()
				time.Sleep(3 * time.Second) // simulated
				lapsed := wa.observed(engine.EventLeaseLapsed)
				if len(lapsed) != 1 || !d.check(t, lapsed[0]) {
					t.Errorf("the lease has lapsed at %v, and the other process has not taken over", lapsed)
				}
				next := send(t, a.e, chat, "next")
				if got := settled(t, a.e, chat, next); got != journal.Completed {
					t.Errorf("the next message settled %s", got)
				}
				want := transcript(t, a.e, chat)
				time.Sleep(2 * time.Second) // simulated
				if got := reader.stop(); !slices.Equal(got, want) {
					t.Errorf("the reader has\n%s\nof\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			})
			if t.Failed() {
				t.Fatalf("%s at %v", mode, at)
			}
		}
	}
}

// An amnesiac store loses the answers to what gives a node something, when it is told
// to.
type amnesiac struct {
	*faultstore.Store
	mu     sync.Mutex
	claims int // whose answers are lost
	admits int
	takes  int
}

var errLost = errors.New("the answer is lost")

func (s *amnesiac) lose(n *int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *n == 0 {
		return false
	}
	*n--
	return true
}

func (s *amnesiac) Claim(ctx context.Context, node string, limit int, agents ...string) ([]store.Lease, error) {
	leases, err := s.Store.Claim(ctx, node, limit, agents...)
	if len(leases) > 0 && s.lose(&s.claims) {
		return nil, errLost
	}
	return leases, err
}

func (s *amnesiac) Admit(ctx context.Context, a *store.Admission) (store.Receipt, error) {
	r, err := s.Store.Admit(ctx, a)
	if err == nil && s.lose(&s.admits) {
		return store.Receipt{}, errLost
	}
	return r, err
}

func (s *amnesiac) Take(ctx context.Context, node string, addr store.Address) (store.Lease, error) {
	l, err := s.Store.Take(ctx, node, addr)
	if err == nil && s.lose(&s.takes) {
		return store.Lease{}, errLost
	}
	return l, err
}

// What a process was given by an answer that was lost is worked on by it all the same,
// soon: nobody else can take it as long as that process lives.
func TestLostAnswers(t *testing.T) {
	for what, lose := range map[string]func(*amnesiac){
		"claim":                   func(s *amnesiac) { s.claims = 1 },
		"admission":               func(s *amnesiac) { s.admits = 1 },
		"claim and take":          func(s *amnesiac) { s.claims, s.takes = 1, 2 },
		"admission and its retry": func(s *amnesiac) { s.admits = 2 },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				durable := memstore.New()
				w := newWorld()
				w.reply = echo
				s := &amnesiac{Store: faultstore.New(durable)}
				if strings.HasPrefix(what, "claim") { // somebody has accepted a message and died
					admitTo(t, durable, chat, "sub_0", "hello")
				}
				lose(s)
				e, err := engine.Open(t.Context(), engine.Config{
					Store: s, Programs: map[string]engine.Program{"chat": w}, Models: w, Observe: w.observe, Node: "a", Log: testLog(),
				})
				if err != nil {
					t.Fatal(err)
				}
				defer stop(t, e)
				time.Sleep(100 * time.Millisecond) // simulated: it is the first to claim
				other := w.join(t, "b", durable)
				defer stop(t, other.e)
				if strings.HasPrefix(what, "admission") {
					for range 2 {
						admitWithin(e, "sub_0", "hello")
					}
				}
				time.Sleep(5 * time.Second) // simulated
				if sub, err := e.Submission(t.Context(), chat, "sub_0"); err != nil || sub.Outcome != journal.Completed {
					t.Errorf("after five seconds: %+v, %v", sub, err)
				}
				if owners, _, _ := attemptsOf(t, durable, chat); !slices.Equal(owners, []string{"a"}) {
					t.Errorf("it was worked on by %v", owners)
				}
			})
		})
	}
}

// admitTo admits a message as a process would that dies before anything else.
func admitTo(t *testing.T, s store.Store, addr store.Address, id, body string) {
	t.Helper()
	born, err := journal.Encode(journal.Batch{At: time.Now(), Records: []journal.Record{&journal.Born{
		Agent: addr.Agent, ID: addr.ID, UID: "inst_1", Incarnation: "inc_1",
	}}})
	if err != nil {
		t.Fatal(err)
	}
	payload, err := journal.Encode(journal.Batch{At: time.Now(), Records: []journal.Record{&journal.Admitted{
		Submission: id, Message: journal.Message{Kind: journal.User, Body: body}, Origin: "direct",
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admit(t.Context(), &store.Admission{
		Address: addr, Submission: id, Identity: []byte(body), AcceptedAt: time.Now(), Payload: payload,
		Birth: &store.Birth{UID: "inst_1", Incarnation: "inc_1", Payload: born},
	}); err != nil {
		t.Fatal(err)
	}
}

// While a release is rolled out that has a new agent, processes without it leave its
// instances alone: they accept messages for them, and those that have it work.
func TestAgentsOfSomeProcesses(t *testing.T) {
	fresh := store.Address{Agent: "fresh", ID: "1"}
	open := func(t *testing.T, w *world, s store.Store, name string, agents ...string) *engine.Engine {
		programs := make(map[string]engine.Program)
		for _, a := range agents {
			programs[a] = w
		}
		e, err := engine.Open(t.Context(), engine.Config{Store: s, Programs: programs, Models: w, Observe: w.observe, Node: name, Log: testLog()})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	synctest.Test(t, func(t *testing.T) {
		durable := memstore.New()
		wa, wb := newWorld(), newWorld()
		wa.reply, wb.reply = echo, echo
		a := open(t, wa, durable, "a", "chat")
		defer stop(t, a)
		none := open(t, newWorld(), durable, "none")
		defer stop(t, none)

		// Nobody has it yet: that is told, once.
		id := send(t, a, fresh, "hello")
		time.Sleep(5 * time.Minute) // simulated
		var stalled []engine.Event
		for _, ev := range wa.seen() {
			if ev.Type == engine.EventStalled {
				stalled = append(stalled, ev)
			}
		}
		if len(stalled) != 1 || stalled[0].Instance != fresh || stalled[0].Took < time.Minute {
			t.Errorf("it was told as %+v", stalled)
		}
		if n, err := durable.Unowned(t.Context(), 10); n != 1 || err != nil {
			t.Errorf("%d instances wait for an owner, %v", n, err)
		}

		b := open(t, wb, durable, "b", "chat", "fresh")
		began := time.Now()
		if got := settled(t, b, fresh, id); got != journal.Completed {
			t.Errorf("settled %s", got)
		}
		within(t, "taking it up", began, time.Second)
		began = time.Now()
		if got := settled(t, a, fresh, send(t, a, fresh, "again")); got != journal.Completed {
			t.Errorf("settled %s", got)
		}
		within(t, "the answer to what a process without the agent has accepted", began, time.Second)
		stop(t, b)
		send(t, a, fresh, "a third")
		time.Sleep(10 * time.Second) // simulated
		if n, err := durable.Unowned(t.Context(), 10); n != 1 || err != nil || wa.asked() != 0 {
			t.Errorf("%d instances wait for an owner, %v; the process without the agent made %d model calls", n, err, wa.asked())
		}
	})
}

// An instance that a node owns by name, of an agent that its program has no more, is
// given back.
func TestOwnedWithoutItsAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		durable := memstore.New()
		admitTo(t, durable, store.Address{Agent: "gone", ID: "1"}, "sub_0", "hello")
		if err := durable.Renew(t.Context(), "a", time.Minute); err != nil {
			t.Fatal(err)
		}
		if leases, err := durable.Claim(t.Context(), "a", 10); len(leases) != 1 || err != nil {
			t.Fatal(leases, err)
		}
		w := newWorld()
		e := w.join(t, "a", durable).e
		defer stop(t, e)
		time.Sleep(4 * time.Second) // simulated
		if n, err := durable.Unowned(t.Context(), 10); n != 1 || err != nil {
			t.Errorf("%d instances wait for an owner, %v", n, err)
		}
	})
}

// What has been idle for long is given back, so that any process may take the next
// message on, and one that is spoken to stays.
func TestIdleInstancesAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, durable := fleet(t, 2, hearings[0], func(w *world) { w.reply = echo })
		a, b := nodes[0], nodes[1]
		defer stopAll(t, nodes)
		busy := store.Address{Agent: "chat", ID: "busy"}
		for i := range 150 {
			addr := store.Address{Agent: "chat", ID: fmt.Sprint("idle ", i)}
			settled(t, a.e, addr, send(t, a.e, addr, "hello"))
		}
		for range 5 {
			settled(t, a.e, busy, send(t, a.e, busy, "hello"))
			time.Sleep(30 * time.Second) // simulated
		}
		leases, err := durable.Nodes(t.Context())
		if err != nil || leases[0].Owned != 1 {
			t.Errorf("two minutes later the node owns %d instances, %v", leases[0].Owned, err)
		}
		addr := store.Address{Agent: "chat", ID: "idle 7"}
		if got := settled(t, b.e, addr, send(t, b.e, addr, "again")); got != journal.Completed {
			t.Errorf("settled %s", got)
		}
		if owners, _, _ := attemptsOf(t, durable, addr); !slices.Equal(owners, []string{"a", "b"}) {
			t.Errorf("it was worked on by %v", owners)
		}
		if n := len(b.last.Messages); n != 3 {
			t.Errorf("the model was shown %d messages", n)
		}
	})
}

// ruin makes the journal of an instance one that no driver can continue.
func ruin(t *testing.T, s store.Store, node string, addr store.Address) {
	t.Helper()
	l, err := s.Take(t.Context(), node, addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), l, store.Write{Payload: []byte("no batch")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Release(t.Context(), l); err != nil {
		t.Fatal(err)
	}
}

// damages counts how often a node has set an instance aside.
func (n *node) damages() int { return len(n.observed(engine.EventDamaged)) }

// An instance whose journal cannot be continued is tried by one process, and by the
// next one when that is gone, and by none again and again.
func TestDamageAmongProcesses(t *testing.T) {
	for _, end := range []string{"closed", "killed"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, durable := fleet(t, 3, hearings[0], func(w *world) { w.reply, w.every = echo, -1 })
				a, b, c := nodes[0], nodes[1], nodes[2]
				defer stop(t, c.e)
				settled(t, a.e, chat, send(t, a.e, chat, "hello"))
				time.Sleep(2 * time.Minute) // simulated: it is given back
				ruin(t, durable, "b", chat)
				id := send(t, a.e, chat, "and now")
				time.Sleep(time.Hour) // simulated
				if a.damages() != 1 || b.damages()+c.damages() != 0 {
					t.Errorf("it was set aside %d, %d and %d times", a.damages(), b.damages(), c.damages())
				}
				if err := a.e.Wait(t.Context(), chat, 1<<40); !errors.Is(err, engine.ErrDamaged) {
					t.Errorf("waiting for it: %v", err)
				}
				for i, n := range nodes[:2] {
					if end == "closed" {
						stop(t, n.e)
					} else {
						n.kill(t)
					}
					time.Sleep(time.Hour) // simulated
					total := a.damages() + b.damages() + c.damages()
					if want := i + 2; total > want || total < 2 {
						t.Errorf("with %d processes gone it was set aside %d times", i+1, total)
					}
				}
				if sub, err := c.e.Submission(t.Context(), chat, id); err != nil || sub.Outcome != "" {
					t.Errorf("%+v, %v", sub, err)
				}
				if got := settled(t, c.e, store.Address{Agent: "chat", ID: "other"}, send(t, c.e, store.Address{Agent: "chat", ID: "other"}, "hello")); got != journal.Completed {
					t.Errorf("another one settled %s", got)
				}
			})
		})
	}
}

// An instance that an operator has repaired while the process lives that has set it
// aside is worked on again, by whoever is sent a message or looks for it.
func TestRepairAmongProcesses(t *testing.T) {
	for _, sender := range []string{"the process that has set it aside", "another one"} {
		t.Run(sender, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, durable := fleet(t, 2, hearings[0], func(w *world) { w.reply, w.every = echo, -1 })
				a, b := nodes[0], nodes[1]
				defer stopAll(t, nodes)
				settled(t, a.e, chat, send(t, a.e, chat, "hello"))
				time.Sleep(2 * time.Minute) // simulated: it is given back
				ruin(t, durable, "b", chat)
				id := send(t, a.e, chat, "and now")
				time.Sleep(time.Minute) // simulated
				if h := a.e.Health(); h.Damaged != 1 || a.damages() != 1 {
					t.Fatalf("%+v", h)
				}
				if _, err := a.e.Admit(t.Context(), engine.Admission{Address: chat, Submission: "refused", Message: journal.Message{Kind: journal.User, Body: "x"}}); !errors.Is(err, engine.ErrDamaged) {
					t.Errorf("a message to it: %v", err)
				}
				mendOver(t, durable, chat, id)
				n := b
				if sender != "another one" {
					n = a
				}
				if got := settled(t, n.e, chat, send(t, n.e, chat, "thanks")); got != journal.Completed {
					t.Errorf("settled %s", got)
				}
				if got := settled(t, n.e, chat, id); got != journal.Failed {
					t.Errorf("what has waited settled %s", got)
				}
				time.Sleep(time.Minute) // simulated
				if got := settled(t, a.e, chat, send(t, a.e, chat, "again")); got != journal.Completed {
					t.Errorf("later it settled %s", got)
				}
				if h := a.e.Health(); h.Damaged != 0 {
					t.Errorf("%+v", h)
				}
			})
		})
	}
}

// mendOver passes over the last batch that is no batch, as an operator does while
// processes live, and ends the submission that is open.
func mendOver(t *testing.T, s *memstore.Store, addr store.Address, open string) {
	t.Helper()
	at := int64(-1)
	for b, err := range store.Batches(t.Context(), s, addr, -1) {
		if err != nil {
			t.Fatal(err)
		}
		if string(b.Payload) == "no batch" {
			at = b.Offset
		}
	}
	repairOver(t, s, addr, &journal.Repair{From: at, To: at, Open: []string{open}}, &journal.Settled{Submission: open, Outcome: journal.Failed, AnsweredBy: open})
}

// An operated store is one that an operator can use while processes live.
type operated interface {
	store.Store
	store.Seizer
}

// repairOver appends the records as an operator does while processes live.
func repairOver(t *testing.T, s operated, addr store.Address, records ...journal.Record) {
	t.Helper()
	if err := s.Renew(t.Context(), "operator", time.Minute); err != nil {
		t.Fatal(err)
	}
	l, err := s.Seize(t.Context(), "operator", addr)
	if err != nil {
		t.Fatal(err)
	}
	var w store.Write
	for _, r := range records {
		if r, ok := r.(*journal.Settled); ok {
			w.Settle = append(w.Settle, store.Settlement{Submission: r.Submission, Outcome: r.Outcome})
		}
	}
	if w.Payload, err = journal.Encode(journal.Batch{At: time.Now(), Records: records}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), l, w); err != nil {
		t.Fatal(err)
	}
	if err := s.Release(t.Context(), l); err != nil {
		t.Fatal(err)
	}
}

// A rotting store cannot read one batch of the instance chat, from some time on.
type rotting struct {
	*memstore.Store
	bad atomic.Int64
}

func (s *rotting) Read(ctx context.Context, addr store.Address, after int64, limit int) (store.Page, error) {
	p, err := s.Store.Read(ctx, addr, after, limit)
	for _, b := range p.Batches {
		if bad := s.bad.Load(); addr == chat && bad > 0 && b.Offset == bad {
			return store.Page{}, fmt.Errorf("%w: batch %d", store.ErrCorrupt, bad)
		}
	}
	return p, err
}

// A process that remembers a conversation from before its journal was damaged goes on
// with it when it has been repaired: what it remembers is not what counts any more.
func TestRepairOfWhatIsRemembered(t *testing.T) {
	for _, at := range []string{"rest", "work"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(), &rotting{Store: memstore.New()}
				w.reply = slowEcho
				a := w.joinHearing(t, "a", s, hearings[0].signals)
				defer stop(t, a.e)
				settled(t, a.e, chat, send(t, a.e, chat, "one"))
				bad := holding(t, s, 2, isDelta)
				repair := []journal.Record{&journal.Repair{From: bad, To: bad}}
				if at == "work" {
					id := send(t, a.e, chat, "two")
					time.Sleep(4 * time.Second) // simulated: it is being answered
					repair = []journal.Record{&journal.Repair{From: bad, To: bad, Open: []string{id}}, &journal.Settled{Submission: id, Outcome: journal.Failed, AnsweredBy: id}}
				}
				synctest.Wait()
				s.bad.Store(bad)
				repairOver(t, s, chat, repair...)
				synctest.Wait()
				if h := a.e.Health(); h.Damaged != 0 || a.damages() != 0 {
					t.Errorf("it is set aside: %+v", h)
				}
				if got := settled(t, a.e, chat, send(t, a.e, chat, "thanks")); got != journal.Completed {
					t.Errorf("settled %s", got)
				}
			})
		})
	}
}

// A logging does something when it logs an error for the first time.
type logging struct {
	slog.Handler
	once *sync.Once
	do   func()
}

func (h logging) Enabled(context.Context, slog.Level) bool { return true }

func (h logging) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		h.once.Do(h.do)
	}
	return nil
}

// A repair that comes while a process is about to set an instance aside, because it has
// read it just before, is heeded.
func TestRepairWhileItIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(), memstore.New()
		w.reply = echo
		e, err := engine.Open(context.Background(), engine.Config{
			Store: s, Programs: map[string]engine.Program{"chat": w}, Models: w, Observe: w.observe, Node: "a", CheckpointEvery: -1,
			Log: slog.New(logging{slog.DiscardHandler, new(sync.Once), func() { mendOver(t, s, chat, "sub_open") }}),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer stop(t, e)
		settled(t, e, chat, send(t, e, chat, "hello"))
		time.Sleep(2 * time.Minute) // simulated: it is given back
		ruin(t, s, "a", chat)
		if _, err := e.Admit(t.Context(), engine.Admission{Address: chat, Submission: "sub_open", Message: journal.Message{Kind: journal.User, Body: "x"}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if h := e.Health(); h.Damaged != 1 {
			t.Fatalf("it is not set aside: %+v", h)
		}
		if got := settled(t, e, chat, send(t, e, chat, "thanks")); got != journal.Completed {
			t.Errorf("settled %s", got)
		}
		if h := e.Health(); h.Damaged != 0 {
			t.Errorf("%+v", h)
		}
	})
}

// Processes on a store that several may have open have names of their own without
// being given any.
func TestNodeNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		durable := memstore.New()
		for range 3 {
			w := newWorld()
			e := w.start(t, durable)
			defer stop(t, e)
		}
		nodes, err := durable.Nodes(t.Context())
		if err != nil || len(nodes) != 3 {
			t.Fatalf("%+v, %v", nodes, err)
		}
		for _, n := range nodes {
			if err := store.ValidateNode(n.Name); err != nil {
				t.Error(err)
			}
		}
	})
}

// Who asks anew is told what has been written anywhere, though this process has not
// heard of it, and readers here have not either.
func TestReadYourWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := fleet(t, 2, hearing{signals: faultstore.Signals{Lost: 1}}, func(w *world) {
			w.reply = func(ctx context.Context, _ *model.Request, yield func(model.Event, error) bool) {
				pause(ctx, time.Hour)
			}
		})
		a, b := nodes[0], nodes[1]
		defer stopAll(t, nodes)
		send(t, a.e, chat, "one")
		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan struct{})
		go func() { // somebody follows there
			defer close(waits)
			for after := int64(-1); ctx.Err() == nil; {
				u, err := b.e.More(ctx, chat, after, 100)
				if err != nil {
					continue
				}
				after = u.Next
				_ = b.e.Wait(ctx, chat, after)
			}
		}()
		time.Sleep(10 * time.Second) // simulated
		before, err := b.e.Updates(t.Context(), chat, -1, 100)
		if err != nil || !before.UpToDate {
			t.Fatalf("%+v, %v", before, err)
		}
		for i := range 5 {
			send(t, a.e, chat, fmt.Sprint("more ", i))
			after := before.Next - 1 // of which the process has something
			for {
				u, err := b.e.Updates(t.Context(), chat, after, 100)
				if err != nil {
					t.Fatal(err)
				}
				after = u.Next
				if u.UpToDate {
					break
				}
			}
			if in, err := a.e.Instance(t.Context(), chat); err != nil || after != in.Head {
				t.Errorf("the end is said to be at %d, and is at %d, %v", after, in.Head, err)
			}
			time.Sleep(170 * time.Millisecond) // simulated
		}
		cancel()
		<-waits
	})
}

// However many read an instance in a process that does not own it, each batch is read
// from the store once.
func TestManyReadersCostOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := new(sync.Map)
		durable := memstore.New()
		wa, wb := newWorld(), newWorld()
		liveScript(50, said)(wa)
		liveScript(50, said)(wb)
		a := wa.join(t, "a", durable)
		defer stop(t, a.e)
		counting := &counted{Store: durable}
		b, err := engine.Open(t.Context(), engine.Config{
			Store: counting, Programs: map[string]engine.Program{"chat": wb}, Models: wb, Node: "b", Log: testLog(),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer stop(t, b)
		settled(t, a.e, chat, send(t, a.e, chat, "one"))
		var readers []*watcher
		for range 50 {
			readers = append(readers, newWatcher(t, b, chat))
		}
		time.Sleep(time.Second) // simulated
		counting.mu.Lock()
		before := counting.reads
		counting.mu.Unlock()
		first, _ := a.e.Instance(t.Context(), chat)
		settled(t, a.e, chat, send(t, a.e, chat, "two"))
		time.Sleep(time.Second) // simulated
		last, _ := a.e.Instance(t.Context(), chat)
		counting.mu.Lock()
		reads := counting.reads - before
		counting.mu.Unlock()
		if n := int(last.Head - first.Head); n < 40 || reads > n+5 {
			t.Errorf("%d batches were read %d times", n, reads)
		}
		want := transcript(t, a.e, chat)
		for _, r := range readers {
			if got := r.stop(); !slices.Equal(got, want) {
				t.Fatalf("a reader has\n%s\nof\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	})
}
