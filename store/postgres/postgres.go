// Package postgres keeps journals in a PostgreSQL database, for any number of
// processes.
//
//	s, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"), postgres.Options{})
//
// All that the processes agree on is decided by the database, under the lock of
// an instance's row and by the database's clock: who owns an instance, which
// submission came first, whether a write is the owner's. No two of them need to
// reach each other, and their clocks may be wrong.
//
// Appends of all instances of a process share commits: while one group of them is
// made durable, the next one gathers. Everything else is done side by side, each
// call on a connection of the pool.
package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flue-go/flue/store"
)

// Options configure a store. The zero value is right for production, if the
// tables are there; see Migrate.
type Options struct {
	// Schema is the schema that holds the tables. The default is "flue". Programs
	// that share a database, but not their conversations, use one each.
	Schema string

	// MaxConns bounds the connections of the store, of which it opens as many as
	// it needs at the same time. Four are set apart, for appends, signals and leases, so
	// it is at least 5. The default is pool_max_conns of the URL, or 10. A listener
	// has one more.
	MaxConns int

	// Listen is the URL for listeners, if they need another one: a pooler that
	// gives connections away by transaction cannot pass signals on. The default
	// is that of the store.
	Listen string

	// Migrate creates the tables, or brings them to the format of this program,
	// when the store is opened. Without it that is done by the function of this
	// name, so that the program itself needs no right to create tables.
	Migrate bool

	// Timeout bounds the wait for an answer of the database. A call without one
	// fails with ErrNoAnswer. The default is 10 seconds.
	Timeout time.Duration

	// Log is told what an operator should know. The default is slog.Default().
	Log *slog.Logger
}

func (o *Options) setDefaults() error {
	if o.Schema == "" {
		o.Schema = "flue"
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	switch {
	case !storable(o.Schema) || len(o.Schema) > 63:
		return fmt.Errorf("%w: Options.Schema is %q, want a name of at most 63 bytes", store.ErrInvalid, o.Schema)
	case o.Timeout < 100*time.Millisecond:
		return fmt.Errorf("%w: Options.Timeout is %v, want at least 100 ms", store.ErrInvalid, o.Timeout)
	}
	return nil
}

var (
	_ store.Store  = (*Store)(nil)
	_ store.Lister = (*Store)(nil)
)

// A Store is a schema of a database that holds journals. It is safe for
// concurrent use, in any number of processes.
type Store struct {
	opts     Options
	dialect  dialect
	sql      statements
	pool     *pgxpool.Pool   // for all calls but those of the next one
	urgent   *pgxpool.Pool   // for appends and signals, which must not wait behind others
	renewal  renewer         // of leases, which must wait behind nothing
	listener *pgx.ConnConfig // for listeners
	queue    queue
	ids      ids
	signals  signaler
	commits  atomic.Int64
	sent     atomic.Int64 // notifications
	lax      atomic.Bool  // a commit may be asynchronous unless it says otherwise

	life   sync.Mutex
	closed bool
	calls  sync.WaitGroup // in flight; grows only while not closed
	close  sync.Once

	ending  context.Context // ends when the store is closed
	end     context.CancelFunc
	quit    chan struct{}  // closed when no call is in flight any more
	running sync.WaitGroup // the writers, the notifier and the guard
}

// writers is how many groups of appends are in flight at most. With two, an
// append that comes while one group is made durable need not wait for it.
const writers = 2

const defaultConns = 10

// How many connections are set apart: for appends and signals, and for leases too.
const (
	urgent = writers + 1
	apart  = urgent + 1
)

// Open opens the store in the database at a URL, as in
// "postgres://user:password@host:5432/database?sslmode=verify-full". Keywords and
// values, and the environment of libpq, do as well.
//
// It fails with store.ErrFormat, and changes nothing, if the schema is missing or
// of an older format and Options.Migrate is not set, if it is of a newer format,
// or if it holds something else. No error contains the password.
//
// The context bounds the opening, not the life of the store.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	cfg, err := config(url, o)
	if err != nil {
		return nil, err
	}
	listener := cfg
	if o.Listen != "" {
		if listener, err = config(o.Listen, o); err != nil {
			return nil, fmt.Errorf("Options.Listen: %w", err)
		}
	}
	d, lax, err := prepare(ctx, cfg.ConnConfig, o)
	if err != nil {
		return nil, fmt.Errorf("open schema %q: %w", o.Schema, err)
	}
	s := &Store{
		opts:     o,
		dialect:  d,
		sql:      newStatements(o.Schema),
		listener: listener.ConnConfig.Copy(),
		quit:     make(chan struct{}),
	}
	s.ending, s.end = context.WithCancel(context.Background())
	s.lax.Store(lax)
	s.queue.init()
	if err := s.connect(ctx, cfg); err != nil {
		s.end()
		return nil, plain(err)
	}
	if !d.cockroach {
		s.signals.init()
		s.running.Go(s.notify)
	}
	s.running.Go(s.guard)
	for range writers {
		s.running.Go(s.write)
	}
	return s, nil
}

// connect makes the pools, which connect when they are used.
func (s *Store) connect(ctx context.Context, cfg *pgxpool.Config) (err error) {
	setUp := min(cfg.ConnConfig.ConnectTimeout, s.opts.Timeout)
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		// The pool waits for as long as this takes, and keeps a place meanwhile,
		// also when whoever wanted the connection has given up.
		ctx, cancel := context.WithTimeout(ctx, setUp)
		defer cancel()
		return s.settle(ctx, c)
	}
	few := cfg.Copy()
	few.MaxConns = urgent
	cfg.MaxConns -= apart
	s.renewal.init(s, cfg)
	if s.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	if s.urgent, err = pgxpool.NewWithConfig(ctx, few); err != nil {
		s.pool.Close()
	}
	return err
}

// settle sets up a new connection.
func (s *Store) settle(ctx context.Context, c *pgx.Conn) error {
	lax, err := s.dialect.settle(ctx, c, s.opts)
	if lax {
		s.lax.Store(true)
	}
	return err
}

// Commits returns how many transactions that wrote something the store has
// committed since it was opened. One commit makes a whole group of appends
// durable.
func (s *Store) Commits() int64 { return s.commits.Load() }

// enter begins a call. If it returns nil, leave must be called at the end.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	s.calls.Add(1)
	return nil
}

func (s *Store) leave() { s.calls.Done() }

// Close implements [store.Store].
func (s *Store) Close() error {
	s.close.Do(func() {
		s.life.Lock()
		s.closed = true
		s.life.Unlock()
		s.end()
		s.calls.Wait()
		s.queue.close()
		close(s.quit)
		s.running.Wait()
		s.pool.Close()
		s.urgent.Close()
		s.renewal.close()
	})
	return nil
}
