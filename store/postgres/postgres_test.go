package postgres_test

import (
	"log/slog"
	"os"
	"strconv"
	"testing"

	"github.com/flue-go/flue/internal/pgtest"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/postgres"
	"github.com/flue-go/flue/store/storetest"
)

// takeoversWanted is FLUE_TAKEOVERS, or zero.
func takeoversWanted(t *testing.T) int {
	t.Helper()
	text := os.Getenv("FLUE_TAKEOVERS")
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("FLUE_TAKEOVERS: %v", err)
	}
	return n
}

// open opens a store in a schema, which is made if it is missing, and closes it at
// the end of the test.
func open(t testing.TB, url, schema string) *postgres.Store {
	t.Helper()
	return openWith(t, url, postgres.Options{Schema: schema})
}

func openWith(t testing.TB, url string, o postgres.Options) *postgres.Store {
	t.Helper()
	o.Migrate = true
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s, err := postgres.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

func closeStore(t testing.TB, s *postgres.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestContract(t *testing.T) { contract(t, pgtest.Database(t)) }

// A database whose transactions are by default not as a store wants them holds one
// all the same.
func TestDatabaseOfOtherDefaults(t *testing.T) {
	if testing.Short() {
		t.Skip("the whole contract once more")
	}
	server := pgtest.Database(t)
	name := pgtest.Value[string](t, server, `SELECT current_database()`)
	pgtest.Exec(t, server, `ALTER DATABASE `+name+` SET default_transaction_isolation = 'serializable'`)
	contract(t, server)
}

// contract runs the checks of every store in a database.
func contract(t *testing.T, url string) {
	t.Helper()
	schemas := make(map[store.Store]string)
	storetest.Run(t, func(t *testing.T) store.Store {
		schema := pgtest.Name()
		s := open(t, url, schema)
		schemas[s] = schema
		return s
	}, &storetest.Options{
		RealTime:  true,
		Takeovers: takeoversWanted(t),
		Reopen: func(t *testing.T, s store.Store) store.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			again := open(t, url, schemas[s])
			schemas[again] = schemas[s]
			return again
		},
		Another: func(t *testing.T, s store.Store) store.Store { return open(t, url, schemas[s]) },
		Foreign: func(t *testing.T) map[string]error {
			errs := make(map[string]error)
			for name, statements := range map[string][]string{
				"tables of something else":       {`CREATE TABLE @.orders (id int)`},
				"a table meta of something else": {`CREATE TABLE @.meta (id int)`},
				"a marker of something else":     {`CREATE TABLE @.meta (key text, value text)`, `INSERT INTO @.meta VALUES ('application', 'other'), ('format', '1')`},
				"no marker":                      {`CREATE TABLE @.meta (key text, value text)`},
				"a newer format":                 {`CREATE TABLE @.meta (key text, value text)`, `INSERT INTO @.meta VALUES ('application', 'flue'), ('format', '1000')`},
			} {
				schema := foreign(t, url, statements...)
				s, err := postgres.Open(t.Context(), url, postgres.Options{Schema: schema, Migrate: true})
				if err == nil {
					closeStore(t, s)
				}
				errs[name] = err
			}
			return errs
		},
	})
}
