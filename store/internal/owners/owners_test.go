package owners_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/internal/owners"
)

func renew(t *testing.T, tab *owners.Table[int], node string, ttl time.Duration) {
	t.Helper()
	if err := tab.Renew(node, ttl); err != nil {
		t.Fatal(err)
	}
}

func TestEpochsStartAboveTheLast(t *testing.T) {
	tab := owners.New[int](1 << 40)
	renew(t, tab, "n1", time.Minute)
	last := int64(1 << 40)
	for i := range 10 {
		epoch, ok := tab.Claim(i, "n1")
		if !ok || epoch <= last {
			t.Errorf("claim %d gave epoch %d, %v after %d", i, epoch, ok, last)
		}
		last = epoch
	}
	if tab.Epoch() != last {
		t.Errorf("Epoch = %d, want %d", tab.Epoch(), last)
	}
}

func TestNobodyOwnsAnythingUnderNoEpoch(t *testing.T) {
	tab := owners.New[int](0)
	if tab.Current(1, "", 0) {
		t.Error("the zero lease is current")
	}
	tab.Release(1, "", 0)
	if _, ok := tab.Claim(1, ""); ok {
		t.Error("a node without a name was given an instance")
	}
}

func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := owners.New[int](0)
		renew(t, tab, "n1", time.Minute)
		first, _ := tab.Claim(1, "n1")
		time.Sleep(time.Minute - 1)
		if !tab.Alive("n1") || tab.Free(1) {
			t.Error("the lease is over before its time")
		}
		time.Sleep(time.Nanosecond)
		if tab.Alive("n1") || !tab.Free(1) {
			t.Error("the lease is not over at its time")
		}
		if !tab.Current(1, "n1", first) {
			t.Error("time alone has fenced the owner")
		}
		if _, err := tab.Take(1, "n1"); !errors.Is(err, store.ErrNoLease) {
			t.Errorf("Take by a lapsed node: error %v, want ErrNoLease", err)
		}
		renew(t, tab, "n2", time.Minute)
		second, err := tab.Take(1, "n2")
		if err != nil || second <= first || tab.Current(1, "n1", first) {
			t.Errorf("Take = %d, %v after %d", second, err, first)
		}
		renew(t, tab, "n1", time.Minute)
		if _, err := tab.Take(1, "n1"); !errors.Is(err, store.ErrOwned) {
			t.Errorf("Take from a live node: error %v, want ErrOwned", err)
		}
		tab.Release(1, "n1", first) // not theirs any more
		if !tab.Current(1, "n2", second) {
			t.Error("a release by the earlier owner took effect")
		}
		tab.Release(1, "n2", second)
		if tab.Len() != 0 {
			t.Errorf("%d entries are left after the release", tab.Len())
		}
	})
}

func TestOwnersAndNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := owners.New[int](0)
		if o, ok := tab.Owner(1); ok {
			t.Errorf("nobody's is owned by %+v", o)
		}
		renew(t, tab, "n1", time.Minute)
		epoch, _ := tab.Claim(1, "n1")
		if o, ok := tab.Owner(1); !ok || o != (owners.Owner{Node: "n1", Epoch: epoch, Live: true}) {
			t.Errorf("Owner = %+v, %v", o, ok)
		}
		time.Sleep(2 * time.Minute)
		if o, ok := tab.Owner(1); !ok || o.Live {
			t.Errorf("after the lapse Owner = %+v, %v", o, ok)
		}
		renew(t, tab, "n2", time.Minute)
		if got := tab.Nodes(); len(got) != 2 || got["n1"] != -time.Minute || got["n2"] != time.Minute {
			t.Errorf("Nodes = %v", got)
		}
		if tab.Release(1, "n1", epoch+1) || !tab.Release(1, "n1", epoch) || tab.Release(1, "n1", epoch) {
			t.Error("Release does not say what it has done")
		}
		time.Sleep(time.Hour)
		renew(t, tab, "n3", time.Minute)
		if got := tab.Nodes(); len(got) != 2 || got["n2"] != -59*time.Minute || got["n3"] != time.Minute {
			t.Errorf("an hour later Nodes = %v", got)
		}
	})
}

func TestRenewRefusesNonsense(t *testing.T) {
	tab := owners.New[int](0)
	for _, tt := range []struct {
		node string
		ttl  time.Duration
	}{{"", time.Minute}, {"n1", 0}, {"n1", -1}, {"\xff", time.Minute}} {
		if err := tab.Renew(tt.node, tt.ttl); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("Renew(%q, %v): error %v, want ErrInvalid", tt.node, tt.ttl, err)
		}
	}
}
