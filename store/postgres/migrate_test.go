package postgres_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/flue-go/flue/internal/pgtest"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/postgres"
)

// foreign makes a schema of something else. "@" stands for its name.
func foreign(t *testing.T, server string, statements ...string) string {
	t.Helper()
	schema := pgtest.Name()
	all := []string{"CREATE SCHEMA " + schema}
	for _, s := range statements {
		all = append(all, strings.ReplaceAll(s, "@", schema))
	}
	pgtest.Exec(t, server, all...)
	return schema
}

// contents describes all that is in a schema, to see whether it has changed.
func contents(t *testing.T, server, schema string) string {
	t.Helper()
	return pgtest.Value[string](t, server, `SELECT coalesce(string_agg(c.relname || ' ' || c.relfilenode || ' ' || pg_relation_size(c.oid), ', ' ORDER BY c.relname), '')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1`, schema)
}

// What is not a store, or is one of a newer program, is refused and left as it is.
func TestForeignIsLeftAlone(t *testing.T) {
	server := pgtest.Database(t)
	for name, statements := range map[string][]string{
		"other tables":   {`CREATE TABLE @.orders (id int)`},
		"a newer format": {`CREATE TABLE @.meta (key text, value text)`, `INSERT INTO @.meta VALUES ('application', 'flue'), ('format', '1000')`},
	} {
		schema := foreign(t, server, statements...)
		before := contents(t, server, schema)
		o := postgres.Options{Schema: schema, Migrate: true}
		if s, err := postgres.Open(t.Context(), server, o); !errors.Is(err, store.ErrFormat) {
			t.Errorf("%s: Open: %v", name, err)
			if err == nil {
				closeStore(t, s)
			}
		}
		if _, _, err := postgres.Migrate(t.Context(), server, o); !errors.Is(err, store.ErrFormat) {
			t.Errorf("%s: Migrate: %v", name, err)
		}
		if after := contents(t, server, schema); after != before {
			t.Errorf("%s: the schema was %q and is %q", name, before, after)
		}
	}
}

// Without Options.Migrate nothing is created, and the error says what to do.
func TestOpenWithoutMigration(t *testing.T) {
	server := pgtest.Database(t)
	s, err := postgres.Open(t.Context(), server, postgres.Options{})
	if err == nil {
		closeStore(t, s)
	}
	if !errors.Is(err, store.ErrFormat) || !strings.Contains(err.Error(), "migrate command") {
		t.Errorf("Open of a database without tables: %v", err)
	}
	if n := pgtest.Value[int](t, server, `SELECT count(*) FROM pg_namespace WHERE nspname = 'flue'`); n != 0 {
		t.Error("the schema has been created")
	}
	version, known, err := postgres.Format(t.Context(), server, postgres.Options{})
	if version != 0 || known < 1 || err != nil {
		t.Errorf("Format = %d, %d, %v", version, known, err)
	}
	from, to, err := postgres.Migrate(t.Context(), server, postgres.Options{})
	if from != 0 || to != known || err != nil {
		t.Errorf("Migrate = %d, %d, %v", from, to, err)
	}
	if from, to, err = postgres.Migrate(t.Context(), server, postgres.Options{}); from != known || to != known || err != nil {
		t.Errorf("Migrate again = %d, %d, %v", from, to, err)
	}
	if version, _, err = postgres.Format(t.Context(), server, postgres.Options{}); version != known || err != nil {
		t.Errorf("Format after the migration = %d, %v", version, err)
	}
	if s, err = postgres.Open(t.Context(), server, postgres.Options{}); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
}

// Processes that start at the same time migrate once, and all can use the result,
// whatever transactions of the database are by default.
func TestConcurrentMigration(t *testing.T) {
	server := pgtest.Database(t)
	name := pgtest.Value[string](t, server, `SELECT current_database()`)
	levels := []string{"read committed", "repeatable read", "serializable"}
	for round := range many(12) {
		pgtest.Exec(t, server, `ALTER DATABASE `+name+` SET default_transaction_isolation = '`+levels[round%len(levels)]+`'`)
		schema := fmt.Sprintf(`"Odd" schema %d; --`, round) // has to be quoted
		const n = 6
		concurrently(n, func(i int) {
			s, err := postgres.Open(t.Context(), server, postgres.Options{Schema: schema, Migrate: true})
			if err != nil {
				t.Errorf("Open: %v", err)
				return
			}
			defer closeStore(t, s)
			admit(t, s, admission(other(i), "s1"))
		})
		s := open(t, server, schema)
		if rows := must[[]store.Instance](t)(s.Instances(t.Context(), store.Address{}, 100)); len(rows) != n {
			t.Errorf("%d instances, want %d", len(rows), n)
		}
		closeStore(t, s)
	}
}

// A schema of every format there has been is brought to the present one, with all
// that is in it.
func TestUpgrades(t *testing.T) {
	server := pgtest.Database(t)
	_, known, err := postgres.Format(t.Context(), server, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for from := range known {
		schema := pgtest.Name()
		if err := postgres.MigrateTo(t.Context(), server, schema, from); err != nil {
			t.Fatal(err)
		}
		if from > 0 {
			pgtest.Exec(t, server, sample(t, schema, from)...)
		}
		var got, to int
		if got, to, err = postgres.Migrate(t.Context(), server, postgres.Options{Schema: schema}); got != from || to != known || err != nil {
			t.Errorf("Migrate from %d = %d, %d, %v", from, got, to, err)
		}
		s := open(t, server, schema)
		if from > 0 {
			if got := journal(t, s, addr); len(got) != 2 {
				t.Errorf("format %d: the journal is %q", from, got)
			}
		}
		admit(t, s, admission(addr, "s2"))
		appendTo(t, s, take(t, s, "n1", addr), "work", store.Settlement{Submission: "s2", Outcome: "completed"})
	}
}

// sample returns statements that fill a schema of a format with one instance, as a
// program of its time did. A new format adds here what the one before it held.
func sample(t *testing.T, schema string, format int) []string {
	t.Helper()
	t.Fatalf("no sample of format %d for schema %s", format, schema)
	return nil
}

// A role that may create nothing can use tables that others have made.
func TestRoleWithoutRights(t *testing.T) {
	server := pgtest.Database(t)
	role := pgtest.Name()
	if _, _, err := postgres.Migrate(t.Context(), server, postgres.Options{}); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, server, `CREATE ROLE `+role+` LOGIN`)
	t.Cleanup(func() { pgtest.Exec(t, pgtest.URL(t), `DROP ROLE `+role) })
	t.Cleanup(func() { pgtest.Exec(t, server, `DROP OWNED BY `+role) })
	as := pgtest.With(t, server, func(u *url.URL) { u.User = url.User(role) })
	s, err := postgres.Open(t.Context(), as, postgres.Options{})
	if err == nil {
		closeStore(t, s)
	}
	if err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("Open without any right: %v", err)
	}
	pgtest.Exec(t, server, `GRANT USAGE ON SCHEMA flue TO `+role, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA flue TO `+role)
	if s, err = postgres.Open(t.Context(), as, postgres.Options{}); err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	there := listen(t, s)
	r := admit(t, s, admission(addr, "s1"))
	there.await(t, store.Signal{Kind: store.Grown, Address: addr, Head: r.Offset})
	l := take(t, s, "n1", addr)
	appendTo(t, s, l, "work")
	if err := s.SaveCheckpoint(t.Context(), l, store.Checkpoint{Offset: 2}); err != nil {
		t.Error(err)
	}
	if err := s.Prune(t.Context(), l, nil); err != nil {
		t.Error(err)
	}
	if _, err := s.EndStuck(t.Context()); err != nil {
		t.Error(err)
	}
}

// What has come to the tables of a format is added to older ones when they are
// migrated, and once.
func TestAdditions(t *testing.T) {
	server := pgtest.Database(t)
	s := open(t, server, "flue")
	admit(t, s, admission(addr, "s1"))
	closeStore(t, s)
	pgtest.Exec(t, server, `DROP INDEX flue.instances_ready`,
		`CREATE INDEX instances_work ON flue.instances (owner, ready_at, id) WHERE ready_at IS NOT NULL`)
	s, err := postgres.Open(t.Context(), server, postgres.Options{}) // it can do without
	if err != nil {
		t.Fatal(err)
	}
	renew(t, s, "n1")
	if ls := must[[]store.Lease](t)(s.Claim(t.Context(), "n1", 1, addr.Agent)); len(ls) != 1 {
		t.Errorf("claimed %v", ls)
	}
	closeStore(t, s)
	var all []string
	for range 2 {
		if _, _, err := postgres.Migrate(t.Context(), server, postgres.Options{}); err != nil {
			t.Fatal(err)
		}
		all = append(all, contents(t, server, "flue"))
	}
	if !strings.Contains(all[0], "instances_ready") || strings.Contains(all[0], "instances_work") || all[0] != all[1] {
		t.Errorf("the schema is %q, then %q", all[0], all[1])
	}
}
