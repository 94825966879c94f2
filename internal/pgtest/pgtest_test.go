//go:build unix

package pgtest_test

import (
	"testing"

	"github.com/flue-go/flue/internal/pgtest"
)

func TestDatabase(t *testing.T) {
	var name string
	t.Run("made", func(t *testing.T) {
		url := pgtest.Database(t)
		pgtest.Exec(t, url, "CREATE TABLE x (id int)")
		name = pgtest.Value[string](t, url, "SELECT current_database()")
	})
	if n := pgtest.Value[int](t, pgtest.URL(t), "SELECT count(*) FROM pg_database WHERE datname = $1", name); n != 0 {
		t.Errorf("database %s is left behind", name)
	}
}

func TestServer(t *testing.T) {
	s := pgtest.Start(t, "work_mem=5MB")
	if got := pgtest.Value[string](t, s.URL, "SHOW work_mem"); got != "5MB" {
		t.Errorf("work_mem is %s", got)
	}
	pgtest.Exec(t, s.URL, "CREATE TABLE x (id int)")
	for i, end := range []func(testing.TB){s.Kill, s.Stop, s.Break} {
		pgtest.Exec(t, s.URL, "INSERT INTO x VALUES (1)")
		end(t)
		s.Start(t)
		if n := pgtest.Value[int](t, s.URL, "SELECT count(*) FROM x"); n != i+1 {
			t.Errorf("%d rows after ending it for the %d. time", n, i+1)
		}
	}
}

func TestStandby(t *testing.T) {
	s := pgtest.Start(t)
	for _, want := range []bool{false, true, false} {
		if got := pgtest.Value[bool](t, s.URL, "SELECT pg_is_in_recovery()"); got != want {
			t.Errorf("the server is a standby: %v, want %v", got, want)
		}
		if !want {
			s.Demote(t)
		} else {
			s.Promote(t)
		}
	}
}
