// Package pgtest gives tests a PostgreSQL database.
//
// FLUE_TEST_POSTGRES is the URL of a server on which the user may create
// databases. Without it a server on this machine is tried. Where there is none,
// tests are skipped, or fail with FLUE_REQUIRE_ALL=1.
package pgtest

import (
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// local is where a server is looked for that nobody has named.
const local = "postgres://postgres@127.0.0.1:5432/test"

// URL returns where a server is, or skips the test. The database belongs to
// others: see Database.
func URL(t testing.TB) string {
	t.Helper()
	u := os.Getenv("FLUE_TEST_POSTGRES")
	named := u != ""
	if !named {
		u = local
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, u)
	if err != nil {
		const how = "set FLUE_TEST_POSTGRES to the URL of a server on which databases can be created, " +
			"as of `docker run -p 5432:5432 -e POSTGRES_HOST_AUTH_METHOD=trust postgres`"
		if named || os.Getenv("FLUE_REQUIRE_ALL") != "" {
			t.Fatalf("no PostgreSQL: %v; %s", err, how)
		}
		t.Skip("no PostgreSQL: " + how)
	}
	_ = c.Close(ctx)
	return u
}

// Name returns a name that nobody else has, for a database, a schema or a role.
func Name() string { return "flue_test_" + strings.ToLower(rand.Text()[:12]) }

// Database creates an empty database and returns its URL. It is dropped at the end
// of the test, with all connections that are left.
func Database(t testing.TB) string {
	t.Helper()
	server := URL(t)
	name := Name()
	Exec(t, server, "CREATE DATABASE "+name+" ENCODING 'UTF8' TEMPLATE template0")
	t.Cleanup(func() { Exec(t, server, "DROP DATABASE "+name+" WITH (FORCE)") })
	return With(t, server, func(u *url.URL) { u.Path = "/" + name })
}

// With returns a URL with changes.
func With(t testing.TB, server string, change func(u *url.URL)) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	change(u)
	return u.String()
}

// Exec runs statements, each on its own, on a connection that is made for them.
func Exec(t testing.TB, server string, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer c.Close(ctx)
	for _, s := range statements {
		if _, err := c.Exec(ctx, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// Value returns the one value that a query gives.
func Value[T any](t testing.TB, server, query string, args ...any) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer c.Close(ctx)
	var v T
	if err := c.QueryRow(ctx, query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}
