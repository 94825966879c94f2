package postgres_test

import (
	"log/slog"
	"os"
	"strconv"
	"sync"
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
	pgtest.Exec(t, url, emptySQL)
	all := &schemas{url: url, of: make(map[store.Store]string)}
	storetest.Run(t, func(t *testing.T) store.Store { return all.open(t, all.take(t)) }, &storetest.Options{
		RealTime:  true,
		Takeovers: takeoversWanted(t),
		Reopen: func(t *testing.T, s store.Store) store.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return all.open(t, all.schema(s))
		},
		Another: func(t *testing.T, s store.Store) store.Store { return all.open(t, all.schema(s)) },
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

// schemas are those that checks have a store each in, of which a number run at the same
// time. To make one takes longer than most of the checks, so those that are done leave
// it to others.
type schemas struct {
	url string

	mu   sync.Mutex
	of   map[store.Store]string
	free []string
}

// take returns an empty schema for a test, or the name of one that does not exist.
func (ss *schemas) take(t *testing.T) string {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	schema := pgtest.Name()
	if n := len(ss.free); n > 0 {
		schema, ss.free = ss.free[n-1], ss.free[:n-1]
	}
	t.Cleanup(func() { // when all stores of the test are closed
		if !t.Failed() && pgtest.Value[int](t, ss.url, `SELECT empty($1)`, schema) < 1000 {
			ss.mu.Lock()
			defer ss.mu.Unlock()
			ss.free = append(ss.free, schema)
		}
	})
	return schema
}

func (ss *schemas) open(t *testing.T, schema string) store.Store {
	s := open(t, ss.url, schema)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.of[s] = schema
	return s
}

func (ss *schemas) schema(s store.Store) string {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.of[s]
}

// emptySQL makes a function that deletes all that a store holds and returns how many
// rows that were. For few of them it takes less time than to truncate the tables.
const emptySQL = `CREATE FUNCTION empty(schema text) RETURNS bigint LANGUAGE plpgsql AS $$
	DECLARE t regclass; n bigint; total bigint := 0; BEGIN
		FOR t IN SELECT oid FROM pg_class WHERE relnamespace = schema::regnamespace AND relkind = 'r' AND relname <> 'meta' LOOP
			EXECUTE format('DELETE FROM %s', t);
			GET DIAGNOSTICS n = ROW_COUNT;
			total := total + n;
		END LOOP;
		RETURN total;
	END $$`
