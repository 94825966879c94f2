package memstore_test

import (
	"testing"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/internal/modeltest"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest"
)

func TestContract(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return memstore.New() }, &storetest.Options{
		Reopen: func(_ *testing.T, s store.Store) store.Store {
			return s.(*memstore.Store).Reopen()
		},
		Exclusive: true,
		Another: func(_ *testing.T, s store.Store) store.Store {
			return s.(*memstore.Store).Share()
		},
	})
}

// TestTakeovers makes processes take instances from each other ten thousand times.
func TestTakeovers(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 1000
	}
	s := memstore.New()
	storetest.Takeovers(t, func(*testing.T) store.Store { return s.Share() }, n)
}

func TestModel(t *testing.T) {
	modeltest.Check(t, func(*testing.T) store.Store { return memstore.New() }, func(_ *testing.T, s store.Store) store.Store {
		return s.(*memstore.Store).Reopen()
	})
}
