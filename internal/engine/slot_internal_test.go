package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// A slot can come to rest, or be given up, between being found and being started.
func TestSlotsBetweenFindAndStart(t *testing.T) {
	addr, other := store.Address{Agent: "chat", ID: "one"}, store.Address{Agent: "chat", ID: "other"}
	own := func(ts *slots, a store.Address) *slot {
		s := ts.adopt(store.Lease{Address: a, Epoch: 1}, nil)
		if !ts.occupy(s) {
			t.Fatalf("%s has a driver", a)
		}
		return s
	}
	rest := func(ts *slots, s *slot) []*slot {
		t.Helper()
		given, ok := ts.rest(s, newMemory())
		if !ok {
			t.Fatalf("%s does not rest", s.addr)
		}
		return given
	}

	t.Run("it rests", func(t *testing.T) {
		var ts slots
		ts.init(1)
		s := own(&ts, addr)
		found := ts.find(addr)
		rest(&ts, s)
		if !ts.occupy(found) || ts.gone(found) {
			t.Fatal("it cannot be started")
		}
		// Another one does not push out what is worked on.
		if given := rest(&ts, own(&ts, other)); len(given) != 0 {
			t.Errorf("%s is given back while it is worked on", given[0].addr)
		}
		if given := rest(&ts, found); len(given) != 1 || given[0].addr != other {
			t.Errorf("%d slots are given back, want the other one", len(given))
		}
		if ts.idle.Len() != 1 || ts.size != found.size {
			t.Errorf("%d slots are idle, and count as %d", ts.idle.Len(), ts.size)
		}
	})
	t.Run("another one has come in its place", func(t *testing.T) {
		var ts slots
		ts.init(1 << 20)
		s := own(&ts, addr)
		ts.drop(s)
		young := own(&ts, addr)
		if given := rest(&ts, s); len(given) != 1 || given[0] != s {
			t.Errorf("%d slots are given back", len(given))
		}
		if ts.idle.Len() != 0 || ts.size != 0 || ts.peek(addr) != young {
			t.Errorf("%d slots are idle, and count as %d", ts.idle.Len(), ts.size)
		}
		rest(&ts, young)
		ts.drop(s)
		if got := ts.takeIdle(); len(got) != 1 || got[0] != young {
			t.Errorf("%d slots are idle", len(got))
		}
	})
	t.Run("it is given up", func(t *testing.T) {
		var ts slots
		ts.init(1)
		s := own(&ts, addr)
		found := ts.find(addr)
		rest(&ts, s)
		if given := rest(&ts, own(&ts, other)); len(given) != 1 || given[0] != s {
			t.Fatalf("%d slots are given back", len(given))
		}
		if ts.occupy(found) || !ts.gone(found) {
			t.Error("what was given back can be started")
		}
	})
}

// A closed book takes messages in, and nothing else.
type closedBook struct {
	store.Store
	untaken bool // nor gives ownership
}

func (*closedBook) Append(context.Context, store.Lease, store.Write) (int64, error) {
	return 0, store.ErrUnavailable
}

func (c *closedBook) Take(ctx context.Context, node string, addr store.Address) (store.Lease, error) {
	if c.untaken {
		return store.Lease{}, store.ErrUnavailable
	}
	return c.Store.Take(ctx, node, addr)
}

// A brief program is never asked anything but its budget.
type brief struct{ Program }

func (brief) Budget() Budget { return Budget{MaxAttempts: 1, Timeout: time.Hour} }

// While a driver cannot go on, what arrives for it is in the journal and not held here.
func TestIntakeOfADriverThatPauses(t *testing.T) {
	t.Run("in its own pause", func(t *testing.T) { intakeOfPauses(t, false) })
	t.Run("while it has no lease", func(t *testing.T) { intakeOfPauses(t, true) })
}

func intakeOfPauses(t *testing.T, untaken bool) {
	synctest.Test(t, func(t *testing.T) {
		e, err := Open(t.Context(), Config{
			Store: &closedBook{Store: memstore.New(), untaken: untaken}, Programs: map[string]Program{"chat": brief{}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close(context.Background()) }()
		addr := store.Address{Agent: "chat", ID: "one"}
		for i := range 200 {
			if i == 1 {
				time.Sleep(time.Minute) // the pauses are long by now
			}
			if _, err := e.Admit(t.Context(), Admission{
				Address: addr, Submission: fmt.Sprint("sub_", i), Origin: "direct",
				Message: journal.Message{Kind: journal.User, Body: strings.Repeat("a", 4096)},
			}); err != nil {
				t.Fatal(err)
			}
		}
		s := e.slots.peek(addr)
		s.mu.Lock()
		defer s.mu.Unlock()
		size := 0
		for _, in := range s.inbox {
			size += in.size
		}
		if size > maxQueued {
			t.Errorf("%d bytes are held of %d messages", size, len(s.inbox))
		}
	})
}

// An abort that comes for what is on its way, into the line or back to the store, is not
// kept waiting there.
func TestAbortOnTheWay(t *testing.T) {
	for name, there := range map[string]func(*Engine, *slot){
		"into the line":     (*Engine).queue,
		"back to the store": (*Engine).handOff,
		"given up": func(e *Engine, s *slot) {
			e.slots.drop(s)
			e.handOff(s)
		},
	} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", shared ", shared), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { abortOnTheWay(t, shared, there) })
			})
		}
	}
}

func abortOnTheWay(t *testing.T, shared bool, there func(*Engine, *slot)) {
	m := memstore.New()
	var st store.Store = m
	if !shared {
		st = struct{ store.Store }{m}
	}
	e, err := Open(t.Context(), Config{Store: st, Programs: map[string]Program{"chat": brief{}}, Concurrent: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close(context.Background()) }()
	e.line.force() // there is no place
	defer e.line.leave()
	addr := store.Address{Agent: "chat", ID: "one"}
	if _, err := e.Admit(t.Context(), Admission{
		Address: addr, Submission: "sub", Origin: "direct", Message: journal.Message{Kind: journal.User, Body: "hello"},
	}); err != nil {
		t.Fatal(err)
	}
	e.line.clear(false)
	lease, err := m.Take(t.Context(), e.cfg.Node, addr)
	if err != nil {
		t.Fatal(err)
	}
	s := e.slots.adopt(lease, e.tenure.now())
	e.slots.occupy(s)

	if ok, err := e.Abort(t.Context(), addr); !ok || err != nil {
		t.Fatal(ok, err)
	}
	there(e, s)
	synctest.Wait()
	if sub, err := m.Submission(t.Context(), addr, "sub"); err != nil || sub.Outcome != journal.Aborted {
		t.Errorf("%q, %v", sub.Outcome, err)
	}
}
