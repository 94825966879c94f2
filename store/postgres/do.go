package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flue-go/flue/store"
)

// A manner is how a call is made.
type manner struct {
	pool     *pgxpool.Pool
	writes   bool          // so it matters whether it was done
	repeat   bool          // it may be done twice, so it is if it is not known to be done
	patience time.Duration // for a connection, and for one answer
}

// writing is for what must not be done twice.
func (s *Store) writing() manner {
	return manner{pool: s.pool, writes: true, patience: s.opts.Timeout}
}

// rewriting is for writes that may be done twice.
func (s *Store) rewriting() manner {
	return manner{pool: s.pool, writes: true, repeat: true, patience: s.opts.Timeout}
}

// reading is for what changes nothing.
func (s *Store) reading() manner {
	return manner{pool: s.pool, repeat: true, patience: s.opts.Timeout}
}

// call is run for a call from outside, unless the store is closed.
func (s *Store) call(ctx context.Context, m manner, fn func(ctx context.Context, c *pgx.Conn) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	return s.run(ctx, m, fn)
}

// run runs fn with a connection, again if fn has certainly not done anything and
// may succeed on the next try. fn must do all that it does in one transaction.
//
// The end of ctx ends the call with nothing done as long as fn was not begun.
// From then on the outcome is waited for, as long as Options.Timeout. A write that
// may be done twice, and had no answer, is tried again: if ctx ends before there is
// one, or no connection can be had, the error says that there was none.
func (s *Store) run(ctx context.Context, m manner, fn func(ctx context.Context, c *pgx.Conn) error) error {
	late := time.Now().Add(s.opts.Timeout)
	var unknown error // what an earlier try of a write has left open
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		began, retry, err := s.attempt(ctx, m, late, fn)
		if err != nil && !began && unknown != nil {
			err = unknown
		}
		if m.writes && errors.Is(err, ErrNoAnswer) {
			unknown = err
		}
		if err == nil || !retry || time.Now().Add(wait).After(late) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return cmp.Or(unknown, ctx.Err())
		}
	}
}

// attempt runs fn once. It reports whether fn was begun, and whether that may be
// done again.
func (s *Store) attempt(ctx context.Context, m manner, late time.Time, fn func(ctx context.Context, c *pgx.Conn) error) (began, retry bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, false, err
	}
	waiting, cancel := context.WithDeadline(ctx, sooner(late, time.Now().Add(m.patience)))
	defer cancel()
	c, err := m.pool.Acquire(waiting)
	switch {
	case err != nil && ctx.Err() != nil:
		return false, false, ctx.Err()
	case err != nil && waiting.Err() != nil:
		return false, true, fmt.Errorf("postgres: no connection within %v (%d of %d are in use): %w",
			m.patience, m.pool.Stat().AcquiredConns(), m.pool.Config().MaxConns, unreached(err))
	case err != nil:
		return false, !hopeless(err), unreached(err)
	}
	defer c.Release()
	running, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.patience)
	defer cancel()
	pc := c.Conn().PgConn()
	delete(pc.CustomData(), warned)
	err = fn(running, c.Conn())
	if w, ok := pc.CustomData()[warned]; ok && err == nil && !m.repeat {
		err = fmt.Errorf("%w: %w: a write has ended with a warning: %v", ErrNoAnswer, store.ErrUnavailable, w)
	}
	over := closed(pc)
	if over || code(err) == codeReadOnly {
		// The server was the primary once. Another connection leads to the one
		// that is it now.
		_ = c.Conn().Close(running)
	}
	if over && !m.writes { // whatever the answer is, it may be of what has been
		return true, true, unreached(errReadOnly)
	}
	return true, again(err) || m.repeat && errors.Is(err, ErrNoAnswer), err
}

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// rows reads with a query and hands each row to scan. Before the first one, and
// before it tries again, it calls begin.
func (s *Store) rows(ctx context.Context, begin func(), scan func(pgx.Rows) error, query string, args ...any) error {
	return s.call(ctx, s.reading(), func(ctx context.Context, c *pgx.Conn) error {
		begin()
		return each(ctx, c, scan, query, args...)
	})
}

// row reads with a query that has one row at most, and fails with ErrNotFound if it
// has none.
func (s *Store) row(ctx context.Context, query string, args, into []any) error {
	for _, a := range args {
		if text, ok := a.(string); ok && !storable(text) {
			return s.closedOr(ctx, store.ErrNotFound)
		}
	}
	return s.call(ctx, s.reading(), func(ctx context.Context, c *pgx.Conn) error {
		found, err := one(ctx, c, query, args, into)
		if err == nil && !found {
			err = store.ErrNotFound
		}
		return err
	})
}

// each runs a query and hands each row to scan.
func each(ctx context.Context, c *pgx.Conn, scan func(pgx.Rows) error, query string, args ...any) error {
	rows, err := c.Query(ctx, query, args...)
	if err != nil {
		return answer(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return answer(rows.Err())
}

// one runs a query that has one row, or none: then it reports false.
func one(ctx context.Context, c *pgx.Conn, query string, args, into []any) (found bool, err error) {
	err = each(ctx, c, func(rows pgx.Rows) error {
		found = true
		return rows.Scan(into...)
	}, query, args...)
	return found, err
}

// syncSQL makes the commit of its transaction wait until it is on disk.
const syncSQL = `SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'`

// batch begins the statements of a write, which are one transaction and one round
// trip. Where commits may be asynchronous it says that this one is not: what was set
// for the connection does not count if a pooler gives each transaction the session of
// another.
func (s *Store) batch() *pgx.Batch {
	b := new(pgx.Batch)
	if s.lax.Load() {
		b.Queue(syncSQL)
	}
	return b
}

// do is each for a statement that writes.
func (s *Store) do(ctx context.Context, c *pgx.Conn, scan func(pgx.Rows) error, query string, args ...any) error {
	if !s.lax.Load() {
		return each(ctx, c, scan, query, args...)
	}
	var bad error
	b := s.batch()
	b.Queue(query, args...).Query(func(rows pgx.Rows) error {
		for bad == nil && rows.Next() {
			bad = scan(rows)
		}
		return nil
	})
	return cmp.Or(bad, answer(c.SendBatch(ctx, b).Close()))
}

// doOne is one for a statement that writes.
func (s *Store) doOne(ctx context.Context, c *pgx.Conn, query string, args, into []any) (found bool, err error) {
	err = s.do(ctx, c, func(rows pgx.Rows) error {
		found = true
		return rows.Scan(into...)
	}, query, args...)
	return found, err
}

// closedOr is for what needs no look at the database: a closed store and an ended
// context are told all the same.
func (s *Store) closedOr(ctx context.Context, err error) error {
	if e := s.enter(ctx); e != nil {
		return e
	}
	s.leave()
	return err
}

// plausible reports whether a lease may be anybody's.
func plausible(l store.Lease) bool {
	return l.Epoch > 0 && l.Node != "" && storable(l.Agent, l.ID, l.Node)
}
