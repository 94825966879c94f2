package postgres

import (
	"context"
	"reflect"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flue-go/flue/store"
)

// Wanted reports whether the store sends signals.
func (s *Store) Wanted() bool { return s.signals.wanted() }

// Notifications returns how many notifications the store has sent.
func (s *Store) Notifications() int64 { return s.sent.Load() }

// Crowd makes the store forget the names of instances that it does not follow, as
// others do that it has to do with. It returns how many it remembers.
func (s *Store) Crowd(instances int) (remembered int) {
	for i := range instances {
		id := int64(-1 - i)
		s.ids.put(id, store.Address{Agent: "crowd", ID: strconv.FormatInt(id, 10)})
	}
	s.ids.mu.Lock()
	defer s.ids.mu.Unlock()
	for _, m := range []idMaps{s.ids.known.young, s.ids.known.old, s.ids.followed.young, s.ids.followed.old} {
		remembered += len(m.addrs)
	}
	return remembered
}

// Follow makes the store remember the names of instances as of those that it owns.
func (s *Store) Follow(instances int) {
	for i := range instances {
		s.ids.follow(int64(-1-i), store.Address{Agent: "own", ID: strconv.Itoa(i)})
	}
}

// EndStuck is one look of the guard.
func (s *Store) EndStuck(ctx context.Context) (int, error) { return s.endStuck(ctx) }

// Payloads makes payloads of n signals with large numbers.
func Payloads(n int) (payloads []string, total int) {
	g := new(signaler)
	g.init()
	for i := range int64(n) {
		g.grown(1<<62+i, 1<<62+i)
		g.freed(1<<62 + i)
		g.watched(1<<62 + i)
	}
	g.greet()
	return g.take(), 3*n + 1
}

// Setting returns a setting of a connection of the pool.
func (s *Store) Setting(ctx context.Context, name string) (v string, err error) {
	err = s.row(ctx, `SELECT current_setting($1::text)`, []any{name}, []any{&v})
	return v, err
}

// Settle sets a connection up as those of a store are.
func Settle(ctx context.Context, c *pgx.Conn) error {
	var o Options
	if err := o.setDefaults(); err != nil {
		return err
	}
	_, err := dialectOf(c).settle(ctx, c, o)
	return err
}

// MigrateTo brings a schema to a format that has been.
func MigrateTo(ctx context.Context, url, schema string, version int) error {
	o := Options{Schema: schema}
	return once(ctx, url, &o, func(c *pgx.Conn) error {
		for range version {
			if err := step(ctx, c, schema); err != nil {
				return err
			}
		}
		return nil
	})
}

// Statements returns all statements, by name.
func Statements(schema string) map[string]string {
	all := make(map[string]string)
	v := reflect.ValueOf(newStatements(schema))
	for i := range v.NumField() {
		all[v.Type().Field(i).Name] = v.Field(i).String()
	}
	return all
}

// MaxConns returns how many connections the store has at most.
func (s *Store) MaxConns() int32 { return s.pool.Config().MaxConns + s.urgent.Config().MaxConns + 1 }

// MaxConnLifetime returns how long a connection is used.
func (s *Store) MaxConnLifetime() time.Duration { return s.pool.Config().MaxConnLifetime }

// Acquired returns how often a connection of the pool was used.
func (s *Store) Acquired() int64 { return s.pool.Stat().AcquireCount() }

// Lax reports whether writes say that their commits are not asynchronous.
func (s *Store) Lax() bool { return s.lax.Load() }

// Forget drops nodes that are gone.
func (s *Store) Forget(ctx context.Context) (int, error) { return s.forget(ctx) }

// Unsettle undoes what was set for the connections that there are, as a pooler does
// that gives a transaction another session.
func (s *Store) Unsettle(ctx context.Context) error {
	undo := func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, "RESET ALL")
		return err
	}
	for _, pool := range []*pgxpool.Pool{s.pool, s.urgent} {
		for _, c := range pool.AcquireAllIdle(ctx) {
			err := undo(c.Conn())
			c.Release()
			if err != nil {
				return err
			}
		}
	}
	s.renewal.turn <- struct{}{}
	defer func() { <-s.renewal.turn }()
	if s.renewal.conn == nil {
		return nil
	}
	return undo(s.renewal.conn)
}
