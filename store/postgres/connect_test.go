package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue/internal/pgtest"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/postgres"
)

// Whatever is wrong with a connection string, its password is not shown.
func TestNoPasswordInErrors(t *testing.T) {
	const secret = "s3/cr?t"
	server := pgtest.URL(t)
	with := func(change func(u *url.URL)) string {
		return pgtest.With(t, server, func(u *url.URL) {
			u.User = url.UserPassword(u.User.Username(), secret)
			change(u)
		})
	}
	var log bytes.Buffer
	o := postgres.Options{Timeout: 2 * time.Second, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for name, conn := range map[string]string{
		"a database that does not exist": with(func(u *url.URL) { u.Path = "/" + pgtest.Name() }),
		"a role that does not exist":     with(func(u *url.URL) { u.User = url.UserPassword(pgtest.Name(), secret) }),
		"a port where nobody is":         with(func(u *url.URL) { u.Host = "127.0.0.1:1" }),
		"a host that does not exist":     with(func(u *url.URL) { u.Host = "nowhere.invalid" }),
		"a bad sslmode":                  with(func(u *url.URL) { u.RawQuery = "sslmode=often" }),
		"a bad setting":                  with(func(u *url.URL) { u.RawQuery = "pool_max_conns=" + url.QueryEscape(secret) }),
		"another bad setting":            with(func(u *url.URL) { u.RawQuery = "target_session_attrs=" + url.QueryEscape(secret) }),
		"a setting the server refuses":   with(func(u *url.URL) { u.RawQuery = "work_mem=" + url.QueryEscape("none") }),
		"a password that is not encoded": "postgres://user:" + secret + "@127.0.0.1/test",
		"a broken URL":                   "postgres://user:" + secret + "%zz@127.0.0.1:x/test",
		"a password as a parameter":      "postgres://127.0.0.1:x/test?password=" + secret,
		"another scheme":                 "mysql://user:" + secret + "@127.0.0.1/test",
		"keywords and values":            "host=127.0.0.1 port=x user=u password=" + secret,
		"quoted keywords and values":     "host=127.0.0.1 port=x password='" + secret + "'",
		"unfinished keywords and values": "host=127.0.0.1 password='" + secret,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := postgres.Open(t.Context(), conn, o)
			if err == nil {
				closeStore(t, s)
				t.Fatal("Open succeeded")
			}
			_, _, err2 := postgres.Migrate(t.Context(), conn, o)
			_, _, err3 := postgres.Format(t.Context(), conn, o)
			for _, err := range []error{err, err2, err3} {
				for e := err; e != nil; e = errors.Unwrap(e) {
					for _, part := range []string{secret, "s3", "cr?t", url.QueryEscape(secret), url.PathEscape(secret)} {
						if strings.Contains(e.Error(), part) {
							t.Errorf("the error has %q of the password: %v", part, e)
						}
					}
				}
			}
		})
	}
	if strings.Contains(log.String(), "s3") {
		t.Errorf("the log has the password: %s", log.String())
	}
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]postgres.Options{
		"a long schema":        {Schema: strings.Repeat("x", 64)},
		"a schema with zeros":  {Schema: "a\x00b"},
		"too few connections":  {MaxConns: 2},
		"negative connections": {MaxConns: -1},
		"a short timeout":      {Timeout: time.Millisecond},
		"a bad URL to listen":  {Listen: "mysql://x"},
	} {
		if s, err := postgres.Open(t.Context(), "postgres://127.0.0.1:1/x", o); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				closeStore(t, s)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := postgres.Open(ctx, "postgres://127.0.0.1:1/x", postgres.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Open with an ended context: %v", err)
	}
}

// Connections are set up so that no call waits for ever, and what is acknowledged
// is durable.
func TestConnectionSettings(t *testing.T) {
	server := pgtest.Database(t)
	name := pgtest.Value[string](t, server, `SELECT current_database()`)
	pgtest.Exec(t, server, `ALTER DATABASE `+name+` SET synchronous_commit = off`,
		`ALTER DATABASE `+name+` SET default_transaction_isolation = 'serializable'`)
	s := openWith(t, server, postgres.Options{Timeout: 4 * time.Second})
	for setting, want := range map[string]string{
		"synchronous_commit": "on", "default_transaction_isolation": "read committed", "application_name": "flue/flue/4s",
		"statement_timeout": "4s", "lock_timeout": "2s", "idle_in_transaction_session_timeout": "8s", "plan_cache_mode": "force_generic_plan",
	} {
		if got, err := s.Setting(t.Context(), setting); got != want || err != nil {
			t.Errorf("%s is %s, %v, want %s", setting, got, err, want)
		}
	}
	pgtest.Exec(t, server, `ALTER DATABASE `+name+` SET synchronous_commit = remote_apply`)
	s = openWith(t, server, postgres.Options{})
	if got, err := s.Setting(t.Context(), "synchronous_commit"); got != "remote_apply" || err != nil {
		t.Errorf("synchronous_commit is %s, %v, and was stricter", got, err)
	}
}

func TestEncoding(t *testing.T) {
	server := pgtest.URL(t)
	name := pgtest.Name()
	pgtest.Exec(t, server, `CREATE DATABASE `+name+` ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`)
	t.Cleanup(func() { pgtest.Exec(t, server, `DROP DATABASE `+name+` WITH (FORCE)`) })
	other := pgtest.With(t, server, func(u *url.URL) { u.Path = "/" + name })
	s, err := postgres.Open(t.Context(), other, postgres.Options{Migrate: true})
	if err == nil {
		closeStore(t, s)
	}
	if !errors.Is(err, store.ErrFormat) || !strings.Contains(err.Error(), "UTF8") {
		t.Errorf("Open of a database with another encoding: %v", err)
	}
}

// The URL may say how many connections there are, and Options.MaxConns wins.
func TestConnectionsOfTheURL(t *testing.T) {
	server := pgtest.Database(t)
	with := func(query string) string { return pgtest.With(t, server, func(u *url.URL) { u.RawQuery = query }) }
	for _, tt := range []struct {
		url  string
		o    postgres.Options
		want int32
	}{
		{server, postgres.Options{}, 10},
		{with("pool_max_conns=7"), postgres.Options{}, 7},
		{with("pool_max_conns=7"), postgres.Options{MaxConns: 6}, 6},
		{with("application_name=pool_max_conns"), postgres.Options{}, 10},
	} {
		if got := openWith(t, tt.url, tt.o).MaxConns(); got != tt.want {
			t.Errorf("%s, %d: %d connections, want %d", tt.url, tt.o.MaxConns, got, tt.want)
		}
	}
	s, err := postgres.Open(t.Context(), with("pool_max_conns=2"), postgres.Options{})
	if err == nil {
		closeStore(t, s)
	}
	if !errors.Is(err, store.ErrInvalid) {
		t.Errorf("Open with two connections: %v", err)
	}
}

// What the URL says of the life of connections counts, also if it is the default of
// the library.
func TestLifeOfConnections(t *testing.T) {
	server := pgtest.Database(t)
	for query, want := range map[string]time.Duration{"": 10 * time.Minute, "pool_max_conn_lifetime=1h": time.Hour, "pool_max_conn_lifetime=1m": time.Minute} {
		url := pgtest.With(t, server, func(u *url.URL) { u.RawQuery = query })
		if got := openWith(t, url, postgres.Options{}).MaxConnLifetime(); got != want {
			t.Errorf("%q: connections live for %v, want %v", query, got, want)
		}
	}
}

// The server shows connections by a name that it can hold, and that tells stores of
// different schemas and timeouts apart.
func TestLabels(t *testing.T) {
	server := pgtest.Database(t)
	seen := make(map[string]bool)
	for _, o := range []postgres.Options{
		{}, {Timeout: time.Second}, {Schema: "other"}, {Schema: "\u00e4"}, {Schema: strings.Repeat("x", 63)}, {Schema: strings.Repeat("x", 62)},
	} {
		url := pgtest.With(t, server, func(u *url.URL) { u.RawQuery = "application_name=" + strings.Repeat("shop", 20) })
		name, err := openWith(t, url, o).Setting(t.Context(), "application_name")
		if err != nil || seen[name] || len(name) > 63 || !strings.HasPrefix(name, "shopshop") || strings.Contains(name, "?") {
			t.Errorf("%+v: the name is %q, %v", o, name, err)
		}
		seen[name] = true
	}
}

// Whether opening may succeed later is told.
func TestOpeningLater(t *testing.T) {
	server := pgtest.URL(t)
	for u, want := range map[string]bool{
		pgtest.With(t, server, func(u *url.URL) { u.Path = "/" + pgtest.Name() }): false,
		pgtest.With(t, server, func(u *url.URL) { u.Host = "127.0.0.1:1" }):       true,
	} {
		s, err := postgres.Open(t.Context(), u, postgres.Options{})
		if err == nil {
			closeStore(t, s)
		}
		if errors.Is(err, store.ErrUnavailable) != want {
			t.Errorf("%v: may pass: %v, want %v", err, !want, want)
		}
	}
}
