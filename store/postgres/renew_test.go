package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flue-go/flue/internal/faultnet"
	"github.com/flue-go/flue/internal/pgtest"
	"github.com/flue-go/flue/store/postgres"
)

// newLink returns a link to the server, and the URL of the database over it.
func newLink(t *testing.T, server string) (*faultnet.Link, string) {
	t.Helper()
	cfg, err := pgx.ParseConfig(server)
	if err != nil {
		t.Fatal(err)
	}
	l, err := faultnet.NewLink(fmt.Sprintf("%s:%d", cfg.Host, cfg.Port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, pgtest.With(t, server, func(u *url.URL) { u.Host, u.RawQuery = l.Addr(), "sslmode=disable" })
}

// Connections that something in between has forgotten do not keep a lease from
// being renewed: a new one is made in time, however many of the others there are.
func TestRenewalPassesOverDeadConnections(t *testing.T) {
	link, over := newLink(t, pgtest.Database(t))
	s := openWith(t, over, postgres.Options{Timeout: time.Minute})
	concurrently(8, func(i int) {
		renew(t, s, fmt.Sprint("n", i))
		admit(t, s, admission(other(i), "s1"))
		appendTo(t, s, take(t, s, fmt.Sprint("n", i), other(i)), "work")
	})
	const ttl = 16 * time.Second
	link.Strand()
	before := link.Carried()
	ctx, cancel := context.WithTimeout(t.Context(), ttl/2) // the owner stops its work then
	defer cancel()
	if err := s.Renew(ctx, "n1", ttl); err != nil {
		t.Errorf("Renew: %v", err)
	}
	if n := link.Carried() - before; n > 2 { // one, and one to say that the answer is not wanted any more
		t.Errorf("%d connections were made", n)
	}
	link.Cut() // so that nobody waits for what is stranded
}

// A renewal waits no longer for a connection than for an answer, and says that the
// failure may pass.
func TestRenewalWithoutConnections(t *testing.T) {
	link, over := newLink(t, pgtest.Database(t))
	s := openWith(t, over, postgres.Options{Timeout: time.Second})
	renew(t, s, "n1")
	link.Drop(faultnet.Up)
	unavailable(t, "Renew over a link that drops everything", s.Renew(t.Context(), "n1", time.Minute))
	link.Pass()
	renew(t, s, "n1")
}
