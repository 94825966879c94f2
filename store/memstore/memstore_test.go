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
	})
}

func TestModel(t *testing.T) {
	modeltest.Check(t, func(*testing.T) store.Store { return memstore.New() }, func(_ *testing.T, s store.Store) store.Store {
		return s.(*memstore.Store).Reopen()
	})
}
