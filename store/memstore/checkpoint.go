package memstore

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/flue-go/flue/store"
)

var _ store.Checkpointer = (*Store)(nil)

// SaveCheckpoint implements [store.Checkpointer].
func (s *Store) SaveCheckpoint(ctx context.Context, lease store.Lease, c store.Checkpoint) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	in := s.instances[lease.Address]
	if in == nil || !s.owners.Current(in, lease.Node, lease.Epoch) {
		return fmt.Errorf("checkpoint of %v as epoch %d: %w", lease.Address, lease.Epoch, store.ErrFenced)
	}
	if head := in.head(); c.Offset > head {
		return fmt.Errorf("%w: a checkpoint of %v at offset %d, whose head is %d", store.ErrInvalid, lease.Address, c.Offset, head)
	}
	kept := slices.DeleteFunc(in.checkpoints, func(old store.Checkpoint) bool { return old.Offset >= c.Offset })
	if len(kept) > 1 {
		kept = slices.Delete(kept, 0, len(kept)-1)
	}
	c.Data = bytes.Clone(c.Data)
	in.checkpoints = append(kept, c)
	return nil
}

// Checkpoint implements [store.Checkpointer].
func (s *Store) Checkpoint(ctx context.Context, addr store.Address, atMost int64) (store.Checkpoint, error) {
	if err := s.enter(ctx); err != nil {
		return store.Checkpoint{}, err
	}
	defer s.mu.Unlock()
	if in := s.instances[addr]; in != nil {
		for _, c := range slices.Backward(in.checkpoints) {
			if c.Offset <= atMost {
				return c, nil
			}
		}
	}
	return store.Checkpoint{}, fmt.Errorf("checkpoint of %v: %w", addr, store.ErrNotFound)
}
