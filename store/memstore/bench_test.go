package memstore_test

import (
	"testing"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest"
)

func Benchmark(b *testing.B) {
	storetest.Bench(b, func(*testing.B) store.Store { return memstore.New() })
}
