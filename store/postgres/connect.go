package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flue-go/flue/store"
)

// label is the name under which connections show in pg_stat_activity: that of the
// program, if the URL has none, and what stores have in common whose guards may
// judge each other's connections. The server takes 63 bytes of it, of ASCII.
func label(name string, o Options) string {
	kind := fmt.Sprintf("/%s/%v", o.Schema, o.Timeout)
	if len(kind) > 40 || strings.ContainsFunc(kind, func(r rune) bool { return r < ' ' || r > '~' }) {
		sum := sha256.Sum256([]byte(kind))
		kind = "/" + hex.EncodeToString(sum[:12])
	}
	name = cmp.Or(name, "flue")
	return name[:min(len(name), 63-len(kind))] + kind
}

// config makes the configuration of pools from a connection string.
func config(connString string, o Options) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(connString)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", store.ErrInvalid, parseFailure(connString, err))
	}
	set, err := pgx.ParseConfig(connString) // which leaves settings of pools where they are
	if err != nil {
		return nil, fmt.Errorf("%w: %s", store.ErrInvalid, parseFailure(connString, err))
	}
	says := func(setting string) bool { return set.RuntimeParams[setting] != "" }
	if o.MaxConns == 0 {
		o.MaxConns = defaultConns
		if says("pool_max_conns") {
			o.MaxConns = int(cfg.MaxConns)
		}
	}
	if o.MaxConns <= apart || o.MaxConns > 10_000 {
		return nil, fmt.Errorf("%w: %d connections, want 5 to 10000 in Options.MaxConns or as pool_max_conns in the URL", store.ErrInvalid, o.MaxConns)
	}
	cfg.MaxConns = int32(o.MaxConns)
	c := cfg.ConnConfig
	c.RuntimeParams["application_name"] = label(c.RuntimeParams["application_name"], o)
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = min(5*time.Second, o.Timeout)
	}
	if !says("pool_max_conn_lifetime") {
		// A plan that was made for small tables ends with its connection, and a
		// server that has become the primary is found.
		cfg.MaxConnLifetime, cfg.MaxConnLifetimeJitter = 10*time.Minute, time.Minute
	}
	cfg.PingTimeout = o.Timeout / 5 // a pooled connection may be dead
	c.ValidateConnect = writable(c.ValidateConnect)
	c.OnNotice = func(pc *pgconn.PgConn, n *pgconn.Notice) { noticed(pc, n, o.Log) }
	return cfg, nil
}

// errReadOnly is of a server that answers reads, but perhaps with what has been.
var errReadOnly = errors.New("the server takes no writes: it is a standby, or default_transaction_read_only is on for this role or database; connect to the primary")

// writable makes sure of each new connection that it leads to a server that takes
// writes: of several hosts, or addresses of one name, and after another server has
// taken the place of the one that was behind a name. also is what the URL demands.
func writable(also pgconn.ValidateConnectFunc) pgconn.ValidateConnectFunc {
	return func(ctx context.Context, pc *pgconn.PgConn) error {
		if also != nil {
			if err := also(ctx, pc); err != nil {
				return err
			}
		}
		err := pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, pc)
		if errors.Is(err, pgconn.ErrReadOnlyConnection) {
			return errReadOnly
		}
		pc.CustomData()[closedBefore] = pc.ParameterStatus(closedToWrites)
		return err
	}
}

// closedToWrites is the setting by which an operator closes a server to writes, when
// another one takes its place. PostgreSQL 14 and later report it when it changes.
const closedToWrites = "default_transaction_read_only"

// closedBefore is where a connection keeps what that was in the beginning. It is not
// believed if the connection could write: a pooler may report what has been.
const closedBefore = "closed to writes"

// closed reports whether the server of a connection has been closed to writes since.
func closed(pc *pgconn.PgConn) bool {
	return pc.ParameterStatus(closedToWrites) == "on" && pc.CustomData()[closedBefore] != "on"
}

// warned is where a connection keeps a warning of the server.
const warned = "warning"

// noticed keeps warnings. A commit whose wait for a synchronous standby is broken
// off by somebody ends with one, and with success all the same.
func noticed(pc *pgconn.PgConn, n *pgconn.Notice, log *slog.Logger) {
	if n.SeverityUnlocalized == "WARNING" {
		log.Warn("PostgreSQL warns", "message", n.Message, "detail", n.Detail, "code", n.Code)
		pc.CustomData()[warned] = n.Message
	}
}

// parseFailure says what is wrong with a connection string, without what could be
// a part of its password.
func parseFailure(connString string, err error) string {
	const hint = "the connection string cannot be understood; " +
		"special characters of a user or a password must be percent-encoded in a URL"
	u, uerr := url.Parse(connString)
	if uerr != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return hint
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	cause := err.Error()
	secrets := u.Query()["password"]
	if p, ok := u.User.Password(); ok {
		secrets = append(secrets, p)
	}
	for _, s := range secrets {
		if s != "" && (strings.Contains(cause, s) || strings.Contains(cause, url.QueryEscape(s)) || strings.Contains(cause, url.PathEscape(s))) {
			return hint
		}
	}
	return "the connection string cannot be understood: " + cause
}

// connect makes a connection for something that is done once.
func connect(ctx context.Context, cfg *pgx.ConnConfig) (*pgx.Conn, error) {
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case hopeless(err):
			return nil, plain(err)
		}
		return nil, unreached(err)
	}
	return c, nil
}

// prepare looks at the database before pools are made: whether it can be used,
// and has the tables. It makes them if that is wanted. It reports whether commits
// may be asynchronous, see [dialect.check].
func prepare(ctx context.Context, cfg *pgx.ConnConfig, o Options) (d dialect, lax bool, err error) {
	c, err := connect(ctx, cfg)
	if err != nil {
		return d, false, err
	}
	defer c.Close(context.WithoutCancel(ctx))
	d = dialectOf(c)
	if lax, err = d.check(ctx, c, o); err != nil {
		return d, false, err
	}
	if o.Migrate {
		_, err := migrate(ctx, c, o)
		return d, lax, err
	}
	f, err := findFormat(ctx, c, o)
	if err != nil {
		return d, lax, err
	}
	return d, lax, f.usable()
}

// ask asks the server something that takes it no time, outside of any pool. It does
// not wait for longer than for any other answer.
func ask(ctx context.Context, o Options, fn func(ctx context.Context) error) error {
	asking, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := fn(asking); err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	return nil
}

// findFormat is readFormat on a connection of its own.
func findFormat(ctx context.Context, c *pgx.Conn, o Options) (f format, err error) {
	err = ask(ctx, o, func(ctx context.Context) error {
		f, err = readFormat(ctx, c, o.Schema)
		return err
	})
	return f, err
}
