package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/flue-go/flue/store"
)

var _ store.Checkpointer = (*Store)(nil)

// saveCheckpointSQL depends on the row as of when it was locked, and on
// checkpoints, of which the newest may be of another call of the same owner: then
// one that should go stays, until the next one is saved.
const saveCheckpointSQL = `
WITH l AS MATERIALIZED (
	SELECT i.id, i.head FROM @.instances i
	WHERE i.agent = $1::text AND i.name = $2::text AND i.owner = $3::text AND i.epoch = $4::bigint
	FOR UPDATE OF i
), gone AS (
	DELETE FROM @.checkpoints c USING l WHERE c.instance = l.id AND l.head >= $5::bigint AND (c.pos > $5::bigint OR
		c.pos < (SELECT max(o.pos) FROM @.checkpoints o WHERE o.instance = l.id AND o.pos < $5::bigint))
), saved AS (
	INSERT INTO @.checkpoints (instance, pos, sum, data)
	SELECT l.id, $5::bigint, %[1]s, $7::bytea FROM l WHERE l.head >= $5::bigint
	ON CONFLICT (instance, pos) DO UPDATE SET sum = excluded.sum, data = excluded.data
)
SELECT l.head FROM l`

// SaveCheckpoint implements [store.Checkpointer].
func (s *Store) SaveCheckpoint(ctx context.Context, lease store.Lease, c store.Checkpoint) error {
	if err := c.Validate(); err != nil {
		return err
	}
	err := s.saveCheckpoint(ctx, lease, c)
	if err != nil {
		return fmt.Errorf("checkpoint of %v as epoch %d: %w", lease.Address, lease.Epoch, err)
	}
	s.commits.Add(1)
	return nil
}

func (s *Store) saveCheckpoint(ctx context.Context, lease store.Lease, cp store.Checkpoint) error {
	if !plausible(lease) {
		return s.closedOr(ctx, store.ErrFenced)
	}
	return s.call(ctx, s.rewriting(), func(ctx context.Context, c *pgx.Conn) error {
		var head int64
		found, err := s.doOne(ctx, c, s.sql.saveCheckpoint,
			[]any{lease.Agent, lease.ID, lease.Node, lease.Epoch, cp.Offset, contentSum(checkpointEpoch, 0, cp.Data), blob(cp.Data)}, []any{&head})
		switch {
		case err != nil:
			return err
		case !found:
			return store.ErrFenced
		case cp.Offset > head:
			return fmt.Errorf("%w: it is at offset %d, and the head is %d", store.ErrInvalid, cp.Offset, head)
		}
		return nil
	})
}

// checkpointEpoch is of no batch, so a batch is not taken for a checkpoint.
const checkpointEpoch = -1

const checkpointSQL = `
SELECT c.instance, c.pos, c.sum, c.data FROM @.instances i JOIN @.checkpoints c ON c.instance = i.id
WHERE i.agent = $1::text AND i.name = $2::text AND c.pos <= $3::bigint ORDER BY c.pos DESC LIMIT 1`

// Checkpoint implements [store.Checkpointer].
func (s *Store) Checkpoint(ctx context.Context, addr store.Address, atMost int64) (store.Checkpoint, error) {
	var c store.Checkpoint
	var id, check int64
	err := s.row(ctx, s.sql.checkpoint, []any{addr.Agent, addr.ID, atMost}, []any{&id, &c.Offset, &check, &c.Data})
	if err == nil && check != sum(contentSum(checkpointEpoch, 0, c.Data), id, c.Offset) {
		err = fmt.Errorf("%w: checkpoint %d does not match its checksum", store.ErrCorrupt, c.Offset)
	}
	if err != nil {
		return store.Checkpoint{Offset: c.Offset}, fmt.Errorf("checkpoint of %v: %w", addr, err)
	}
	return c, nil
}
