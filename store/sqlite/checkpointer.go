package sqlite

import (
	"context"
	"fmt"

	"github.com/flue-go/flue/store"
)

var _ store.Checkpointer = (*Store)(nil)

// SaveCheckpoint implements [store.Checkpointer]. It shares commits with the
// appends of other callers, and is in the log behind the batches that it covers.
func (s *Store) SaveCheckpoint(ctx context.Context, lease store.Lease, c store.Checkpoint) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return s.submit(ctx, len(c.Data), func(w *writer) error { return w.saveCheckpoint(lease, c) })
}

func (w *writer) saveCheckpoint(lease store.Lease, c store.Checkpoint) error {
	e, err := w.instance(lease.Address)
	if err != nil {
		return err
	}
	if e == nil || !w.owners.Current(e.id, lease.Node, lease.Epoch) {
		return fmt.Errorf("checkpoint of %v as epoch %d: %w", lease.Address, lease.Epoch, store.ErrFenced)
	}
	if c.Offset > e.head {
		return fmt.Errorf("%w: a checkpoint of %v at offset %d, whose head is %d", store.ErrInvalid, lease.Address, c.Offset, e.head)
	}
	if _, err := w.exec(w.dropCheckpoints, e.id, c.Offset); err != nil {
		return err
	}
	_, err = w.exec(w.insertCheckpoint, e.id, c.Offset, checkpointSum(e.id, c.Offset, c.Data), blob(c.Data))
	return err
}

// Checkpoint implements [store.Checkpointer].
func (s *Store) Checkpoint(ctx context.Context, addr store.Address, atMost int64) (c store.Checkpoint, err error) {
	err = s.read(ctx, func(r *reader) error {
		if r.checkpoint == nil { // the file is of a version that had none
			return store.ErrNotFound
		}
		row, err := r.checkpoint.get(addr.Agent, addr.ID, atMost)
		if err != nil {
			return err
		}
		if row == nil {
			return store.ErrNotFound
		}
		var id, sum int64
		if err := row.scan(&id, &c.Offset, &sum, &c.Data); err != nil {
			return err
		}
		if sum != checkpointSum(id, c.Offset, c.Data) {
			return fmt.Errorf("%w: checkpoint %d does not match its checksum", store.ErrCorrupt, c.Offset)
		}
		return nil
	})
	if err != nil {
		return store.Checkpoint{Offset: c.Offset}, fmt.Errorf("checkpoint of %v: %w", addr, err)
	}
	return c, nil
}

// checkpointSum is the checksum that is stored with a checkpoint. No batch has
// its epoch, so a batch is not taken for one.
func checkpointSum(instance, offset int64, data []byte) int64 {
	return batchSum(instance, offset, -1, data)
}
