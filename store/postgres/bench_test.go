package postgres_test

import (
	"testing"

	"github.com/flue-go/flue/internal/pgtest"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/storetest"
)

func BenchmarkStore(b *testing.B) {
	url := pgtest.Database(b)
	storetest.Bench(b, func(b *testing.B) store.Store { return open(b, url, pgtest.Name()) })
}
