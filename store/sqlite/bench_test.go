package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
	"github.com/flue-go/flue/store/storetest"
)

func BenchmarkSyncFull(b *testing.B) {
	storetest.Bench(b, func(b *testing.B) store.Store {
		return open(b, filepath.Join(b.TempDir(), "flue.db"), sqlite.Options{})
	})
}

func BenchmarkSyncNormal(b *testing.B) {
	storetest.Bench(b, func(b *testing.B) store.Store {
		return open(b, filepath.Join(b.TempDir(), "flue.db"), sqlite.Options{Sync: sqlite.SyncNormal})
	})
}
