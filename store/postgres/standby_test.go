//go:build unix

package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue/internal/pgtest"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/postgres"
)

// reads are calls that a server which takes no writes could answer, with what has been.
func reads(t *testing.T, s *postgres.Store) []error {
	errs := make([]error, 3)
	concurrently(len(errs), func(i int) {
		switch i {
		case 0:
			_, errs[i] = s.Read(t.Context(), addr, -1, 1)
		case 1:
			_, errs[i] = s.Instance(t.Context(), addr)
		case 2:
			_, errs[i] = s.Submission(t.Context(), addr, "unknown")
		}
	})
	return errs
}

// A server that has become a standby is asked nothing, since what it knows may be old,
// until it is the primary again.
func TestStandbyIsNotAsked(t *testing.T) {
	server := pgtest.Start(t)
	o := postgres.Options{Timeout: time.Second}
	s := openWith(t, server.URL, o)
	admit(t, s, admission(addr, "s1"))
	l := take(t, s, "n1", addr)
	server.Demote(t)
	for call, err := range reads(t, s) {
		unavailable(t, fmt.Sprint("read ", call), err)
	}
	unavailable(t, "Renew", s.Renew(t.Context(), "n1", time.Minute))
	again, err := postgres.Open(t.Context(), server.URL, o)
	if err == nil {
		closeStore(t, again)
	}
	_, _, formatErr := postgres.Format(t.Context(), server.URL, o)
	for call, err := range map[string]error{"Open": err, "Format": formatErr} {
		if unavailable(t, call, err); err == nil || !strings.Contains(err.Error(), "standby") {
			t.Errorf("%s does not say that it is a standby: %v", call, err)
		}
	}
	server.Promote(t)
	appendTo(t, s, l, "work")
	if got := journal(t, s, addr); !slices.Equal(got, []string{"birth by s1", "admit s1", "work"}) {
		t.Errorf("the journal is %q", got)
	}
}

// A primary that an operator has closed to writes, because another one takes its place,
// is not asked either, over the connections that there are.
func TestClosedPrimaryIsNotAsked(t *testing.T) {
	server := pgtest.Start(t)
	if pgtest.Value[int](t, server.URL, `SELECT current_setting('server_version_num')::int`) < 140000 {
		t.Skip("this PostgreSQL does not report it")
	}
	s := openWith(t, server.URL, postgres.Options{Timeout: time.Second})
	admit(t, s, admission(addr, "s1"))
	for call, err := range reads(t, s) {
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("read %d: %v", call, err)
		}
	}
	pgtest.Exec(t, server.URL, `ALTER SYSTEM SET default_transaction_read_only = on`, `SELECT pg_reload_conf()`)
	late := time.Now().Add(20 * time.Second)
	for _, err := s.Instance(t.Context(), addr); err == nil; _, err = s.Instance(t.Context(), addr) {
		if time.Now().After(late) {
			t.Fatal("it is still asked")
		}
	}
	for call, err := range reads(t, s) {
		unavailable(t, fmt.Sprint("read ", call), err)
	}
	pgtest.Exec(t, server.URL, `SET default_transaction_read_only = off`, `ALTER SYSTEM RESET default_transaction_read_only`, `SELECT pg_reload_conf()`)
	for _, err := s.Instance(t.Context(), addr); err != nil; _, err = s.Instance(t.Context(), addr) {
		if time.Now().After(late) {
			t.Fatalf("it is not asked any more: %v", err)
		}
	}
	admit(t, s, admission(addr, "s2"))
}
