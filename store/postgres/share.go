package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flue-go/flue/store"
)

const headsSQL = `
SELECT coalesce(i.head, -1) FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w(agent, name, n)
LEFT JOIN @.instances i ON i.agent = w.agent AND i.name = w.name ORDER BY w.n`

// Heads implements [store.Sharer].
func (s *Store) Heads(ctx context.Context, addrs []store.Address) ([]int64, error) {
	agents, names := make([]string, len(addrs)), make([]string, len(addrs))
	for i, a := range addrs {
		if storable(a.Agent, a.ID) { // otherwise it does not exist, as the empty name does not
			agents[i], names[i] = a.Agent, a.ID
		}
	}
	var heads []int64
	err := s.rows(ctx, func() { heads = make([]int64, 0, len(addrs)) }, func(r pgx.Rows) error {
		var head int64
		err := r.Scan(&head)
		heads = append(heads, head)
		return err
	}, s.sql.heads, agents, names)
	if err != nil {
		return nil, fmt.Errorf("heads of %d instances: %w", len(addrs), err)
	}
	return heads, nil
}

const ownedBySQL = `
SELECT id, agent, name, epoch, head FROM @.instances
WHERE owner = $1::text AND ready_at IS NOT NULL AND (agent, name) > ($2::text, $3::text) ORDER BY agent, name LIMIT $4::bigint`

// Owned implements [store.Sharer]. It also makes this process hear of the instances.
func (s *Store) Owned(ctx context.Context, node string, after store.Address, limit int) ([]store.Owned, error) {
	if !storable(node, after.Agent, after.ID) || node == "" {
		return nil, s.closedOr(ctx, nil)
	}
	var owned []store.Owned
	err := s.rows(ctx, func() { owned = nil }, func(r pgx.Rows) error {
		o := store.Owned{Lease: store.Lease{Node: node}}
		var id int64
		err := r.Scan(&id, &o.Agent, &o.ID, &o.Epoch, &o.Head)
		if err == nil {
			s.ids.follow(id, o.Address)
		}
		owned = append(owned, o)
		return err
	}, s.sql.ownedBy, node, after.Agent, after.ID, max(limit, 0))
	if err != nil {
		return nil, fmt.Errorf("instances of node %q: %w", node, err)
	}
	return owned, nil
}

const unownedSQL = piecesSQL + `
SELECT count(*) FROM (
	SELECT 1 FROM gone CROSS JOIN LATERAL (
		SELECT 1 FROM @.instances i
		WHERE i.ready_at IS NOT NULL AND i.owner = gone.owner AND i.agent = gone.agent LIMIT $1::bigint
	) i WHERE cardinality($2::text[]) = 0 OR gone.agent = ANY ($2::text[]) LIMIT $1::bigint
) AS few`

// Unowned implements [store.Sharer].
func (s *Store) Unowned(ctx context.Context, limit int, agents ...string) (int, error) {
	if !storable(agents...) {
		return 0, errAgents
	}
	var n int
	err := s.row(ctx, s.sql.unowned, []any{max(limit, 0), append([]string{}, agents...)}, []any{&n})
	if err != nil {
		return 0, fmt.Errorf("count instances without an owner: %w", err)
	}
	return n, nil
}

var _ store.Surveyor = (*Store)(nil)

const nodesSQL = `
SELECT n.name, (extract(epoch FROM n.lapses_at - clock_timestamp()) * 1000000)::bigint,
	(SELECT count(*) FROM @.instances i WHERE i.owner = n.name),
	(SELECT count(*) FROM @.instances i WHERE i.owner = n.name AND i.ready_at IS NOT NULL)
FROM @.nodes n ORDER BY n.name`

// Nodes implements [store.Surveyor]. It counts what every node owns, which takes
// longer the more instances there are.
func (s *Store) Nodes(ctx context.Context) ([]store.Node, error) {
	var nodes []store.Node
	err := s.rows(ctx, func() { nodes = nil }, func(r pgx.Rows) error {
		var n store.Node
		var left int64
		err := r.Scan(&n.Name, &left, &n.Owned, &n.Working)
		n.Left = time.Duration(left) * time.Microsecond
		nodes = append(nodes, n)
		return err
	}, s.sql.nodes)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return nodes, nil
}

// workSQL finds what waits for longest by the database's clock. When a submission
// was accepted would be told by the clock of whoever accepted it.
const workSQL = piecesSQL + `, w AS MATERIALIZED (
	SELECT i.* FROM pieces p CROSS JOIN LATERAL (
		SELECT * FROM @.instances i
		WHERE i.ready_at IS NOT NULL AND i.owner = p.owner AND i.agent = p.agent ORDER BY i.ready_at, i.id LIMIT $1::bigint
	) i ORDER BY i.ready_at, i.id LIMIT $1::bigint
)
SELECT i.agent, i.name, i.uid, i.incarnation, i.head, i.unsettled, i.owner, i.epoch,
	EXISTS (SELECT 1 FROM @.nodes n WHERE n.name = i.owner AND n.lapses_at > clock_timestamp()),
	(extract(epoch FROM clock_timestamp() - i.ready_at) * 1000000)::bigint
FROM w i ORDER BY i.ready_at, i.id`

// Work implements [store.Surveyor].
func (s *Store) Work(ctx context.Context, limit int) ([]store.Work, error) {
	var work []store.Work
	err := s.rows(ctx, func() { work = nil }, func(r pgx.Rows) error {
		var w store.Work
		var waiting int64
		err := r.Scan(&w.Agent, &w.ID, &w.UID, &w.Incarnation, &w.Head, &w.Unsettled, &w.Owner, &w.Epoch, &w.Live, &waiting)
		w.Waiting = max(time.Duration(waiting)*time.Microsecond, 0)
		work = append(work, w)
		return err
	}, s.sql.work, max(limit, 0))
	if err != nil {
		return nil, fmt.Errorf("list work: %w", err)
	}
	return work, nil
}
