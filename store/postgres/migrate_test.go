package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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

// age makes the tables of a store as they were before anything was added to them.
func age(t *testing.T, server string) {
	t.Helper()
	pgtest.Exec(t, server, `DROP INDEX flue.instances_ready`,
		`CREATE INDEX instances_work ON flue.instances (owner, ready_at, id) WHERE ready_at IS NOT NULL`)
}

// added reports whether all has been added.
func added(t *testing.T, server string) bool {
	t.Helper()
	c := contents(t, server, "flue")
	return strings.Contains(c, "instances_ready") && !strings.Contains(c, "instances_work")
}

// What has come to the tables of a format is added to older ones when they are
// migrated, and once.
func TestAdditions(t *testing.T) {
	server := pgtest.Database(t)
	s := open(t, server, "flue")
	admit(t, s, admission(addr, "s1"))
	closeStore(t, s)
	age(t, server)
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
	if !added(t, server) || all[0] != all[1] {
		t.Errorf("the schema is %q, then %q", all[0], all[1])
	}
}

// Processes that migrate at the same time add what is missing while others work, and
// nobody is in anybody's way for long.
func TestAdditionsDuringWork(t *testing.T) {
	server := pgtest.Database(t)
	s := open(t, server, "flue")
	renew(t, s, "n1")
	for range many(10) {
		age(t, server)
		working, enough := context.WithCancel(t.Context())
		var work sync.WaitGroup
		for i := range 8 {
			work.Go(func() {
				for n := 0; working.Err() == nil; n++ {
					a := admission(other(i), pgtest.Name())
					a.Node = "n1"
					began := time.Now()
					admit(t, s, a)
					l := take(t, s, "n1", a.Address)
					appendTo(t, s, l, "work", settled(a.Submission))
					if took := time.Since(began); took > 5*time.Second {
						t.Errorf("a message took %v", took)
					}
				}
			})
		}
		concurrently(4, func(int) {
			if _, _, err := postgres.Migrate(t.Context(), server, postgres.Options{}); err != nil {
				t.Error(err)
			}
		})
		enough()
		work.Wait()
		if !added(t, server) {
			t.Fatalf("the schema is %s", contents(t, server, "flue"))
		}
	}
}

// transaction begins a transaction on a connection of its own.
func transaction(t *testing.T, server string) pgx.Tx {
	t.Helper()
	c, err := pgx.Connect(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func execute(t *testing.T, tx pgx.Tx, sql string) {
	t.Helper()
	if _, err := tx.Exec(t.Context(), sql); err != nil {
		t.Errorf("%s: %v", sql, err)
	}
}

// Who has read a table and goes on to write to it does not meet a migration that has
// the one lock and waits for the other.
func TestAdditionsMeetAWriter(t *testing.T) {
	server := pgtest.Database(t)
	closeStore(t, open(t, server, "flue"))
	age(t, server)
	tx := transaction(t, server)
	execute(t, tx, `SELECT count(*) FROM flue.instances`)
	migrated := make(chan error, 1)
	go func() {
		_, _, err := postgres.Migrate(t.Context(), server, postgres.Options{})
		migrated <- err
	}()
	waits := func() bool {
		return pgtest.Value[bool](t, server, `SELECT EXISTS (SELECT 1 FROM pg_locks
			WHERE NOT granted AND mode = 'AccessExclusiveLock' AND relation = 'flue.instances'::regclass)`)
	}
	for late := time.Now().Add(20 * time.Second); !waits(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("the migration waits for nothing")
		}
	}
	execute(t, tx, `UPDATE flue.instances SET head = head`)
	if err := tx.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-migrated; err != nil {
		t.Error(err)
	}
	if !added(t, server) {
		t.Errorf("the schema is %s", contents(t, server, "flue"))
	}
}

// A migration does not keep all others waiting behind somebody who reads for long. What
// it cannot do for that is done by the next one.
func TestAdditionsMeetABackup(t *testing.T) {
	server := pgtest.Database(t)
	s := open(t, server, "flue")
	age(t, server)
	tx := transaction(t, server)
	execute(t, tx, `SELECT count(*) FROM flue.instances`)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, _, err := postgres.Migrate(t.Context(), server, postgres.Options{}); err != nil {
			t.Error(err)
		}
	}()
	for n, migrating := 0, true; migrating; n++ {
		select {
		case <-done:
			migrating = false
		default:
		}
		began := time.Now()
		admit(t, s, admission(other(n), "s1"))
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("a message waited for %v", took)
		}
	}
	if c := contents(t, server, "flue"); !strings.Contains(c, "instances_ready") {
		t.Errorf("the schema is %s", c)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if _, _, err := postgres.Migrate(t.Context(), server, postgres.Options{}); err != nil || !added(t, server) {
		t.Errorf("the schema is %s, %v", contents(t, server, "flue"), err)
	}
}

// A migration that others were in the way of is tried again, and not without end.
func TestMigrationIsTriedAgain(t *testing.T) {
	for _, tt := range []struct {
		name, code string
		times      int
		ok         bool
	}{
		{"serialization", "40001", 3, true},
		{"deadlock", "40P01", 3, true},
		{"always", "40P01", 1000, false},
		{"something else", "53100", 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := pgtest.Database(t)
			// What a sequence has given out stays so when a transaction is rolled back.
			pgtest.Exec(t, server, `CREATE SEQUENCE failures`,
				fmt.Sprintf(`CREATE FUNCTION fail() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
					IF nextval('public.failures') <= %d THEN RAISE EXCEPTION 'a test says so' USING ERRCODE = '%s'; END IF;
				END $$`, tt.times, tt.code),
				`CREATE EVENT TRIGGER fail ON ddl_command_start EXECUTE FUNCTION fail()`)
			from, to, err := postgres.Migrate(t.Context(), server, postgres.Options{})
			if tt.ok {
				if err != nil || from != 0 || to == 0 {
					t.Errorf("Migrate = %d, %d, %v", from, to, err)
				}
				// Once more, with what is added.
				age(t, server)
				pgtest.Exec(t, server, `ALTER SEQUENCE failures RESTART`)
				if _, _, err := postgres.Migrate(t.Context(), server, postgres.Options{}); err != nil || !added(t, server) {
					t.Errorf("the schema is %s, %v", contents(t, server, "flue"), err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "a test says so") {
				t.Errorf("Migrate = %d, %d, %v", from, to, err)
			}
			if n := pgtest.Value[int](t, server, `SELECT last_value FROM failures`); tt.times == 1 && n != 1 || n > 20 {
				t.Errorf("it was tried %d times", n)
			}
		})
	}
}
