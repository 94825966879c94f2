package sqlite_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/internal/modeltest"
	"github.com/flue-go/flue/store/sqlite"
	"github.com/flue-go/flue/store/storetest"
)

// open opens a store, in the test's directory if path is relative. The caller
// closes it.
func open(t testing.TB, path string, o sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		return open(t, filepath.Join(t.TempDir(), "flue.db"), sqlite.Options{})
	}, &storetest.Options{
		Reopen: func(t *testing.T, s store.Store) store.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return open(t, s.(*sqlite.Store).Path(), sqlite.Options{})
		},
		Exclusive: true,
	})
}

func TestModel(t *testing.T) {
	n := 0
	modeltest.Check(t, func(t *testing.T) store.Store {
		n++
		return open(t, filepath.Join(t.TempDir(), fmt.Sprint(n, ".db")), sqlite.Options{Sync: sqlite.SyncNormal})
	}, func(t *testing.T, s store.Store) store.Store {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return open(t, s.(*sqlite.Store).Path(), sqlite.Options{Sync: sqlite.SyncNormal})
	})
}
