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

const renewSQL = `
INSERT INTO @.nodes (name, lapses_at) VALUES ($1::text, clock_timestamp() + $2::bigint * interval '1 microsecond')
ON CONFLICT (name) DO UPDATE SET lapses_at = excluded.lapses_at
RETURNING (SELECT count(*) FROM @.nodes n WHERE n.name <> $1::text AND n.lapses_at > clock_timestamp()), clock_timestamp()`

// A renewer renews leases over a connection of its own. A pool would give out one
// connection after the other that something in between has forgotten, each of which
// takes its time to be found dead, and a lease has little. The renewer believes in
// its connection only for a part of that, and then makes a new one.
type renewer struct {
	s    *Store
	cfg  *pgx.ConnConfig
	turn chan struct{} // holds a value while somebody has conn
	conn *pgx.Conn     // nil if there is none
	ends time.Time     // when conn has been used for long enough

	lifetime time.Duration // of a connection, as in a pool: so a new primary is found
}

func (r *renewer) init(s *Store, cfg *pgxpool.Config) {
	r.s, r.cfg, r.turn, r.lifetime = s, cfg.ConnConfig.Copy(), make(chan struct{}, 1), cfg.MaxConnLifetime
}

// Renew implements [store.Store], by the clock of the database.
func (s *Store) Renew(ctx context.Context, node string, ttl time.Duration) error {
	_, err := s.RenewAt(ctx, node, ttl)
	return err
}

// RenewAt implements [store.Timekeeper], by the clock of the database.
func (s *Store) RenewAt(ctx context.Context, node string, ttl time.Duration) (now time.Time, err error) {
	if err := store.ValidateNode(node); err != nil {
		return now, err
	}
	if ttl <= 0 {
		return now, fmt.Errorf("%w: lease of node %q for %v", store.ErrInvalid, node, ttl)
	}
	if err := s.enter(ctx); err != nil {
		return now, err
	}
	defer s.leave()
	r, err := s.renewal.renew(ctx, node, ttl)
	if err != nil {
		return now, fmt.Errorf("renew the lease of node %q: %w", node, err)
	}
	s.signals.others(r.others)
	return r.now, nil
}

// A renewed is the answer of renewSQL.
type renewed struct {
	others int64     // other nodes that live
	now    time.Time // by the database's clock
}

// renew tries again until Options.Timeout is over.
func (r *renewer) renew(ctx context.Context, node string, ttl time.Duration) (renewed, error) {
	waiting, cancel := context.WithTimeout(ctx, r.s.opts.Timeout)
	defer cancel()
	patience := min(max(min(ttl, r.s.opts.Timeout)/4, time.Second), r.s.opts.Timeout)
	var unknown error // what an earlier try has left open
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		done, err := r.try(waiting, patience, node, ttl)
		if err == nil || !passes(err) {
			return done, err
		}
		if errors.Is(err, ErrNoAnswer) {
			unknown = err
		}
		select {
		case <-time.After(wait):
		case <-waiting.Done():
		}
		switch {
		case ctx.Err() != nil:
			return done, cmp.Or(unknown, ctx.Err())
		case waiting.Err() != nil:
			return done, cmp.Or(unknown, err)
		}
	}
}

// passes reports whether a renewal that has failed is worth another try.
func passes(err error) bool { return errors.Is(err, store.ErrUnavailable) && !hopeless(err) }

// try renews once. Its patience is for the turn and a connection, and again for the
// answer. On a connection that was there before half of it must do, so that a new one
// can still be in time.
func (r *renewer) try(ctx context.Context, patience time.Duration, node string, ttl time.Duration) (done renewed, err error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-waiting.Done():
		return done, unreached(errors.New("postgres: other renewals are waiting for an answer"))
	}
	if r.conn != nil && time.Now().After(r.ends) {
		r.drop()
	}
	if r.conn != nil && !r.conn.IsClosed() {
		patience /= 2
	} else if r.conn, err = r.connect(waiting); err != nil {
		return done, err
	} else {
		r.ends = time.Now().Add(r.lifetime)
	}
	// What was sent may be done, so the answer is waited for whoever has given up.
	running, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	_, err = r.s.doOne(running, r.conn, r.s.sql.renew, []any{node, max(ttl.Microseconds(), 1)}, []any{&done.others, &done.now})
	if err != nil {
		r.drop()
	}
	return done, err
}

func (r *renewer) connect(ctx context.Context) (*pgx.Conn, error) {
	c, err := pgx.ConnectConfig(ctx, r.cfg)
	if err != nil {
		return nil, unreached(err)
	}
	if err := r.s.settle(ctx, c); err != nil {
		closeNow(c)
		return nil, unreached(err)
	}
	return c, nil
}

// drop gives the connection up: it may be dead, or lead to a server that is the
// primary no longer.
func (r *renewer) drop() {
	if r.conn != nil {
		closeNow(r.conn)
		r.conn = nil
	}
}

// closeNow closes a connection without a word to the server, which may not be there.
func closeNow(c *pgx.Conn) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.Close(ended)
}

// close is called when nobody renews any more.
func (r *renewer) close() {
	if r.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = r.conn.Close(ctx)
	}
}
