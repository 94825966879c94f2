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
		Foreign: func(t *testing.T) map[string]error {
			errs := make(map[string]error)
			for name, file := range foreign(t) {
				var s *sqlite.Store
				if s, errs[name] = sqlite.Open(t.Context(), file, sqlite.Options{}); errs[name] == nil {
					closeStore(t, s)
				}
			}
			return errs
		},
	})
}

func TestModel(t *testing.T) {
	checkModel(t, func(s *sqlite.Store) store.Store { return s })
}

func TestModelWithoutCache(t *testing.T) {
	checkModel(t, func(s *sqlite.Store) store.Store { return forgetful{s} })
}

func checkModel(t *testing.T, wrap func(*sqlite.Store) store.Store) {
	o := sqlite.Options{Sync: sqlite.SyncNormal}
	n := 0
	modeltest.Check(t, func(t *testing.T) store.Store {
		n++
		return wrap(open(t, filepath.Join(t.TempDir(), fmt.Sprint(n, ".db")), o))
	}, func(t *testing.T, s store.Store) store.Store {
		closeStore(t, s)
		return wrap(open(t, s.(interface{ Path() string }).Path(), o))
	})
}
