package postgres_test

import (
	"testing"
	"time"

	"github.com/flue-go/flue/internal/pgtest"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/postgres"
)

// noteCommits notes for each row that is written which synchronous_commit its commit has.
var noteCommits = []string{
	`CREATE TABLE commits (name text, setting text)`,
	`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN INSERT INTO commits VALUES (TG_TABLE_NAME, current_setting('synchronous_commit')); RETURN NULL; END $$`,
	`DO $$ DECLARE t text; BEGIN
		FOR t IN SELECT relname FROM pg_class WHERE relnamespace = 'flue'::regnamespace AND relkind = 'r' LOOP
			EXECUTE format('CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON flue.%I
				DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note()', t);
		END LOOP; END $$`,
}

// writes are all calls that write something, in an order in which they do.
func writes(t *testing.T, s *postgres.Store) []func() error {
	var l, other store.Lease
	admission, given := admission(addr, "s1"), admission(store.Address{Agent: "clerk", ID: "two"}, "s1")
	admission.Attachments, given.Node = []store.Attachment{attachment("a", "data")}, "n1"
	return []func() error{
		func() error { return s.Renew(t.Context(), "n1", time.Minute) },
		func() error { _, err := s.Admit(t.Context(), admission); return err },
		func() error { r, err := s.Admit(t.Context(), given); other = *r.Lease; return err },
		func() error { ls, err := s.Claim(t.Context(), "n1", 1); l = ls[0]; return err },
		func() error { return s.Release(t.Context(), l, other) },
		func() (err error) { _, err = s.Take(t.Context(), "n1", addr); return err },
		func() (err error) { l, err = s.Seize(t.Context(), "n1", addr); return err },
		func() error { _, err := s.Append(t.Context(), l, store.Write{Payload: []byte("work")}); return err },
		func() error { _, err := s.Append(t.Context(), l, store.Write{Payload: []byte("work")}); return err },
		func() error { return s.SaveCheckpoint(t.Context(), l, store.Checkpoint{Offset: 2}) },
		func() error { _, err := s.Abort(t.Context(), addr, []byte("abort")); return err },
		func() error { return s.Prune(t.Context(), l, []store.Run{{From: 2, To: 3, Payload: []byte("both")}}) },
		func() error {
			_, err := s.Append(t.Context(), l, store.Write{Payload: []byte("end"), Settle: []store.Settlement{settled("s1")}})
			return err
		},
		func() error { _, err := s.Forget(t.Context()); return err },
		func() error { return s.Renew(t.Context(), "n1", time.Minute) },
		func() error {
			return s.Import(t.Context(), store.Import{
				Instance:    store.Instance{Address: store.Address{Agent: "clerk", ID: "three"}, UID: "uid", Incarnation: "inc"},
				Batches:     func(yield func(store.Batch, error) bool) { yield(store.Batch{Payload: []byte("birth")}, nil) },
				Submissions: func(func(store.Accepted, error) bool) {},
				Attachments: func(func(store.Attachment, error) bool) {},
			})
		},
	}
}

// What is acknowledged is on disk, also where synchronous_commit is off for the database
// and a pooler gives each transaction a session in which nobody has turned it on.
func TestEachWriteIsSynchronous(t *testing.T) {
	server := pgtest.Database(t)
	name := pgtest.Value[string](t, server, `SELECT current_database()`)
	if open(t, server, "flue").Lax() {
		t.Error("where commits are synchronous each write says that they should be")
	}
	pgtest.Exec(t, server, `INSERT INTO flue.nodes VALUES ('gone', now() - interval '2 days')`)
	pgtest.Exec(t, server, noteCommits...)
	pgtest.Exec(t, server, `ALTER DATABASE `+name+` SET synchronous_commit = off`)
	s := open(t, server, "flue")
	for i, write := range writes(t, s) {
		before := pgtest.Value[int](t, server, `SELECT count(*) FROM commits`)
		if err := s.Unsettle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := write(); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
		if pgtest.Value[int](t, server, `SELECT count(*) FROM commits`) == before {
			t.Errorf("write %d has written nothing", i)
		}
		if n := pgtest.Value[int](t, server, `SELECT count(*) FROM commits WHERE setting <> 'on'`); n > 0 {
			t.Fatalf("write %d has changed %d rows and did not wait for the disk", i, n)
		}
	}
}

// A stricter setting is left as it is, and one that is changed later is noticed.
func TestSynchronousCommitOfTheDatabase(t *testing.T) {
	server := pgtest.Database(t)
	name := pgtest.Value[string](t, server, `SELECT current_database()`)
	s := open(t, server, "flue")
	pgtest.Exec(t, server, noteCommits...)
	for _, tt := range []struct {
		setting string
		lax     bool
		want    string
	}{{"remote_apply", false, "remote_apply"}, {"local", false, "local"}, {"off", true, "on"}} {
		pgtest.Exec(t, server, `TRUNCATE commits`, `ALTER DATABASE `+name+` SET synchronous_commit = `+tt.setting,
			`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'flue/%'`)
		renew(t, s, "n1")
		a := admission(addr, "s of "+tt.setting)
		_, err := s.Admit(t.Context(), a)
		for try := 0; err != nil && try < 10; try++ { // over connections that have ended
			_, err = s.Admit(t.Context(), a)
		}
		if got := pgtest.Value[string](t, server, `SELECT string_agg(DISTINCT setting, ' ') FROM commits`); got != tt.want || s.Lax() != tt.lax {
			t.Errorf("%s: commits have %s, want %s; each write says so: %v", tt.setting, got, tt.want, s.Lax())
		}
	}
}
