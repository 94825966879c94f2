package memstore

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/flue-go/flue/store"
)

var _ store.Pruner = (*Store)(nil)

// Prune implements [store.Pruner].
func (s *Store) Prune(ctx context.Context, lease store.Lease, runs []store.Run) error {
	if err := store.ValidateRuns(runs); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	in := s.instances[lease.Address]
	if in == nil || !s.owners.Current(in, lease.Node, lease.Epoch) {
		return fmt.Errorf("prune %v as epoch %d: %w", lease.Address, lease.Epoch, store.ErrFenced)
	}
	for i := range runs {
		if err := runs[i].Check(in.run(runs[i]), in.head()); err != nil {
			return fmt.Errorf("prune %v: %w", lease.Address, err)
		}
	}
	for _, r := range runs {
		from := in.above(r.From - 1)
		one := store.Batch{Offset: r.From, Epoch: in.batches[from].Epoch, Payload: bytes.Clone(r.Payload), Span: r.To - r.From}
		in.batches = slices.Replace(in.batches, from, in.above(r.To), one)
	}
	return nil
}

// run returns the batches whose offsets lie in a run.
func (in *instance) run(r store.Run) []store.Batch {
	return in.batches[in.above(r.From-1):in.above(r.To)]
}
