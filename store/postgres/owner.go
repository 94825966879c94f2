package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/flue-go/flue/store"
)

// claims is how many instances are claimed or released in one transaction, so
// that it does not keep their rows locked for long.
const claims = 256

// claimSQL gives instances away that have work and no live owner. Owners and agents
// are found by leaping from one to the next in the index, so that the cost does not
// grow with the instances that live ones have, or that wait for other agents.
//
//	c: candidates, as of the statement's beginning
//	l: those that could be locked at once and that nobody else has been given
//	   since: a node that has joined since the beginning is not known to it
const claimSQL = piecesSQL + `, me AS MATERIALIZED (
	SELECT EXISTS (SELECT 1 FROM @.nodes WHERE name = $1::text AND lapses_at > clock_timestamp()) AS live
), c AS MATERIALIZED (
	SELECT i.* FROM gone CROSS JOIN LATERAL (
		SELECT i.id, i.owner, i.epoch, i.ready_at FROM @.instances i
		WHERE i.ready_at IS NOT NULL AND i.owner = gone.owner AND i.agent = gone.agent
		ORDER BY i.ready_at, i.id LIMIT 4 * $2::bigint + 16
	) i WHERE cardinality($3::text[]) = 0 OR gone.agent = ANY ($3::text[])
	ORDER BY i.ready_at, i.id LIMIT 4 * $2::bigint + 16
), l AS MATERIALIZED (
	SELECT i.id, c.ready_at FROM (SELECT * FROM c ORDER BY c.ready_at, c.id) c CROSS JOIN LATERAL (
		SELECT i.id FROM @.instances i
		WHERE i.id = c.id AND i.owner = c.owner AND i.epoch = c.epoch AND i.ready_at IS NOT NULL
		FOR UPDATE SKIP LOCKED
	) i WHERE (SELECT live FROM me)
	ORDER BY c.ready_at, c.id LIMIT $2::bigint
), u AS (
	UPDATE @.instances i SET owner = $1::text, epoch = i.epoch + 1 FROM l WHERE i.id = l.id
	RETURNING i.id, i.agent, i.name, i.epoch
)
SELECT me.live, coalesce(u.agent, ''), coalesce(u.name, ''), coalesce(u.epoch, 0), coalesce(u.id, 0)
FROM me LEFT JOIN u ON true LEFT JOIN l ON l.id = u.id ORDER BY l.ready_at, l.id`

// piecesSQL begins a statement on instances that have work.
//
//	pieces: the owners and agents of all of them; an owner may be empty
//	gone:   those of which the owner does not live
const piecesSQL = `
WITH RECURSIVE pieces(owner, agent) AS (
	(SELECT i.owner, i.agent FROM @.instances i WHERE i.ready_at IS NOT NULL ORDER BY i.owner, i.agent LIMIT 1)
	UNION ALL
	SELECT n.owner, n.agent FROM pieces p CROSS JOIN LATERAL (
		SELECT i.owner, i.agent FROM @.instances i WHERE i.ready_at IS NOT NULL AND (i.owner, i.agent) > (p.owner, p.agent)
		ORDER BY i.owner, i.agent LIMIT 1
	) n
), gone AS MATERIALIZED (
	SELECT p.owner, p.agent FROM pieces p
	WHERE NOT EXISTS (SELECT 1 FROM @.nodes n WHERE n.name = p.owner AND n.lapses_at > clock_timestamp())
)`

// Claim implements [store.Store]. It gives away first what has waited longest.
func (s *Store) Claim(ctx context.Context, node string, limit int, agents ...string) ([]store.Lease, error) {
	var leases []store.Lease
	for {
		some, err := s.claim(ctx, node, min(max(limit, 0)-len(leases), claims), agents)
		if err != nil && len(leases) == 0 {
			return nil, fmt.Errorf("claim for node %q: %w", node, err)
		}
		leases = append(leases, some...)
		// What has been given must reach its owner, whatever happened next.
		if err != nil || len(some) < claims || len(leases) >= limit {
			return leases, nil
		}
	}
}

var errAgents = fmt.Errorf("%w: the name of an agent is not UTF-8 text without zero bytes", store.ErrInvalid)

func (s *Store) claim(ctx context.Context, node string, limit int, agents []string) (leases []store.Lease, err error) {
	if !storable(node) {
		return nil, s.closedOr(ctx, store.ErrNoLease)
	}
	if !storable(agents...) {
		return nil, errAgents
	}
	live := false
	err = s.call(ctx, s.writing(), func(ctx context.Context, c *pgx.Conn) error {
		leases = nil
		return s.do(ctx, c, func(rows pgx.Rows) error {
			l := store.Lease{Node: node}
			var id int64
			err := rows.Scan(&live, &l.Agent, &l.ID, &l.Epoch, &id)
			if l.Epoch > 0 {
				s.ids.follow(id, l.Address)
				leases = append(leases, l)
			}
			return err
		}, s.sql.claim, node, limit, append([]string{}, agents...))
	})
	if err == nil && !live {
		err = store.ErrNoLease
	}
	if err != nil {
		return nil, err
	}
	if len(leases) > 0 {
		s.commits.Add(1)
	}
	return leases, nil
}

// takeSQL gives one instance to a node, if the row is still as of the statement's
// beginning when it is locked: the owner may be of a node that has joined since.
const takeSQL = `
WITH me AS MATERIALIZED (
	SELECT EXISTS (SELECT 1 FROM @.nodes WHERE name = $3::text AND lapses_at > clock_timestamp()) AS live
), s AS MATERIALIZED (
	SELECT i.id, i.owner, i.epoch, i.owner <> $3::text AND EXISTS (
		SELECT 1 FROM @.nodes o WHERE o.name = i.owner AND o.lapses_at > clock_timestamp()) AS owned
	FROM @.instances i WHERE i.agent = $1::text AND i.name = $2::text
), u AS (
	UPDATE @.instances i SET owner = $3::text, epoch = i.epoch + 1
	FROM s CROSS JOIN me
	WHERE i.id = s.id AND i.owner = s.owner AND i.epoch = s.epoch AND me.live AND NOT s.owned
	RETURNING i.epoch
)
SELECT me.live, s.owned, s.id, coalesce(u.epoch, 0) FROM me CROSS JOIN s LEFT JOIN u ON true`

// Take implements [store.Store].
func (s *Store) Take(ctx context.Context, node string, addr store.Address) (store.Lease, error) {
	l := store.Lease{Address: addr, Node: node}
	for {
		err := s.take(ctx, &l)
		if err != nil {
			return store.Lease{}, fmt.Errorf("take %v for node %q: %w", addr, node, err)
		}
		if l.Epoch > 0 {
			s.commits.Add(1)
			return l, nil
		}
	}
}

// take leaves the epoch at 0 if another owner has come in between.
func (s *Store) take(ctx context.Context, l *store.Lease) error {
	if !storable(l.Agent, l.ID) {
		return s.closedOr(ctx, store.ErrNotFound)
	}
	if !storable(l.Node) {
		return s.closedOr(ctx, store.ErrNoLease)
	}
	return s.call(ctx, s.writing(), func(ctx context.Context, c *pgx.Conn) error {
		var live, owned bool
		var id int64
		found, err := s.doOne(ctx, c, s.sql.take, []any{l.Agent, l.ID, l.Node}, []any{&live, &owned, &id, &l.Epoch})
		switch {
		case err != nil:
			return err
		case !found:
			return store.ErrNotFound
		case !live:
			return store.ErrNoLease
		case owned:
			return store.ErrOwned
		}
		if l.Epoch > 0 {
			s.ids.follow(id, l.Address)
		}
		return nil
	})
}

// releaseSQL depends on nothing but the rows, which are those of the moment at
// which they were locked.
const releaseSQL = `
WITH w AS MATERIALIZED (
	SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS w(agent, name, node, epoch)
), l AS MATERIALIZED (
	SELECT i.id FROM w JOIN @.instances i ON i.agent = w.agent AND i.name = w.name
	WHERE i.owner = w.node AND i.epoch = w.epoch ORDER BY i.id FOR UPDATE OF i
)
UPDATE @.instances i SET owner = '' FROM l WHERE i.id = l.id
RETURNING i.id, i.ready_at IS NOT NULL`

// Release implements [store.Store].
func (s *Store) Release(ctx context.Context, leases ...store.Lease) error {
	leases = slices.DeleteFunc(slices.Clone(leases), func(l store.Lease) bool {
		return !plausible(l)
	})
	if len(leases) == 0 {
		// There is nothing to wait for, but a closed store says so.
		return s.closedOr(ctx, nil)
	}
	for some := range slices.Chunk(leases, claims) {
		if err := s.release(ctx, some); err != nil {
			return fmt.Errorf("release %d instances: %w", len(leases), err)
		}
	}
	return nil
}

func (s *Store) release(ctx context.Context, leases []store.Lease) error {
	n := len(leases)
	agents, names, nodes, epochs := make([]string, n), make([]string, n), make([]string, n), make([]int64, n)
	for i, l := range leases {
		agents[i], names[i], nodes[i], epochs[i] = l.Agent, l.ID, l.Node, l.Epoch
		s.ids.unfollow(l.Address) // before it can be given to this process again
	}
	var freed []int64
	err := s.call(ctx, s.rewriting(), func(ctx context.Context, c *pgx.Conn) error {
		freed = freed[:0]
		return s.do(ctx, c, func(rows pgx.Rows) error {
			var id int64
			var work bool
			err := rows.Scan(&id, &work)
			if work {
				freed = append(freed, id)
			}
			return err
		}, s.sql.release, agents, names, nodes, epochs)
	})
	if err != nil {
		return err
	}
	s.commits.Add(1)
	for _, id := range freed {
		s.signals.freed(id)
	}
	return nil
}
