package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/flue-go/flue/store"
)

var _ store.Seizer = (*Store)(nil)

// seizeSQL gives one instance to a node, whoever owns it. It waits for writes that
// have the row locked, and those that come later find another epoch.
const seizeSQL = `
WITH me AS MATERIALIZED (
	SELECT EXISTS (SELECT 1 FROM @.nodes WHERE name = $3::text AND lapses_at > clock_timestamp()) AS live
), s AS MATERIALIZED (
	SELECT EXISTS (SELECT 1 FROM @.instances WHERE agent = $1::text AND name = $2::text) AS found
), u AS (
	UPDATE @.instances i SET owner = $3::text, epoch = i.epoch + 1 FROM me
	WHERE i.agent = $1::text AND i.name = $2::text AND me.live
	RETURNING i.epoch
)
SELECT me.live, s.found, coalesce((SELECT epoch FROM u), 0) FROM me CROSS JOIN s`

// Seize implements [store.Seizer].
func (s *Store) Seize(ctx context.Context, node string, addr store.Address) (store.Lease, error) {
	l := store.Lease{Address: addr, Node: node}
	if err := s.seize(ctx, &l); err != nil {
		return store.Lease{}, fmt.Errorf("seize %v for node %q: %w", addr, node, err)
	}
	s.commits.Add(1)
	return l, nil
}

func (s *Store) seize(ctx context.Context, l *store.Lease) error {
	if !storable(l.Agent, l.ID) {
		return s.closedOr(ctx, store.ErrNotFound)
	}
	if !storable(l.Node) {
		return s.closedOr(ctx, store.ErrNoLease)
	}
	return s.call(ctx, s.writing(), func(ctx context.Context, c *pgx.Conn) error {
		var live, found bool
		_, err := s.doOne(ctx, c, s.sql.seize, []any{l.Agent, l.ID, l.Node}, []any{&live, &found, &l.Epoch})
		switch {
		case err != nil:
			return err
		case !found:
			return store.ErrNotFound
		case l.Epoch == 0:
			return store.ErrNoLease
		}
		return nil
	})
}
