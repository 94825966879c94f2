package storetest_test

import (
	"testing"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest"
)

// The test of an implementation is one call.
func ExampleRun() {
	_ = func(t *testing.T) { // func TestContract(t *testing.T)
		storetest.Run(t, func(t *testing.T) store.Store {
			return memstore.New()
		}, nil)
	}
}
