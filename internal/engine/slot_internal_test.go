package engine

import (
	"testing"

	"github.com/flue-go/flue/store"
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
