package postgres

import (
	"context"
	mathrand "math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// A transaction whose client is gone may hold the lock of a row for ever: if the
// link dies while several statements are sent at once, the server has done the
// first, waits for the rest within the transaction, and none of its timeouts
// counts, because it neither runs a statement nor is idle. The server finds out
// by itself after a while, unless something in between, like a proxy, keeps up its
// half of the link.

// guard ends such transactions until the store closes. Every process does so, one
// at a time. It also forgets nodes, from time to time.
func (s *Store) guard() {
	every := s.opts.Timeout
	var forgotten time.Time
	for {
		select {
		case <-s.ending.Done():
			return
		case <-time.After(every/2 + mathrand.N(every)):
		}
		if !s.dialect.cockroach {
			s.lookForStuck()
		}
		if time.Since(forgotten) < forgetEvery {
			continue
		}
		if _, err := s.forget(s.ending); err == nil {
			forgotten = time.Now()
		} else if s.ending.Err() == nil {
			s.opts.Log.Debug("nodes that are gone were not forgotten", "error", err)
		}
	}
}

func (s *Store) lookForStuck() {
	n, err := s.endStuck(s.ending)
	switch {
	case err != nil && s.ending.Err() == nil:
		s.opts.Log.Debug("no look at transactions whose client is gone", "error", err)
	case n > 0:
		s.opts.Log.Warn("ended transactions that held locks and whose client was gone", "number", n)
	}
}

// endStuck ends them once. A client gives up after its Timeout, so what has waited
// for half as long again has none.
func (s *Store) endStuck(ctx context.Context) (ended int, err error) {
	m := s.rewriting()
	m.pool = s.urgent // the other one may be waiting for what is stuck
	err = s.run(ctx, m, func(ctx context.Context, c *pgx.Conn) error {
		_, err := one(ctx, c, s.dialect.endStuckSQL(), []any{(s.opts.Timeout + s.opts.Timeout/2).Microseconds()}, []any{&ended})
		return err
	})
	return ended, err
}

// forgetEvery is how often nodes are forgotten, and soon after the opening.
const forgetEvery = time.Hour

// forgetSQL drops nodes that have been gone for long, but not those that an operator
// should see because they own work that nobody has taken over. Whoever is not known
// does not live, so instances without work may go on naming one that was dropped.
const forgetSQL = `
WITH gone AS (
	DELETE FROM @.nodes n WHERE n.lapses_at < clock_timestamp() - interval '1 day'
		AND NOT EXISTS (SELECT 1 FROM @.instances i WHERE i.owner = n.name AND i.ready_at IS NOT NULL)
	RETURNING 1
)
SELECT count(*) FROM gone`

// forget drops nodes once.
func (s *Store) forget(ctx context.Context) (dropped int, err error) {
	err = s.run(ctx, s.rewriting(), func(ctx context.Context, c *pgx.Conn) error {
		_, err := s.doOne(ctx, c, s.sql.forget, nil, []any{&dropped})
		return err
	})
	if dropped > 0 {
		s.commits.Add(1)
	}
	return dropped, err
}
