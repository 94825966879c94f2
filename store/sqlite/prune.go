package sqlite

import (
	"context"
	"fmt"

	"github.com/flue-go/flue/store"
)

var _ store.Pruner = (*Store)(nil)

// Prune implements [store.Pruner]. The pages that it frees are used again; the
// file does not shrink.
//
// Durability: when it returns nil, it survives what Options.Sync promises.
// Otherwise all batches may still be there.
func (s *Store) Prune(ctx context.Context, lease store.Lease, runs []store.Run) error {
	if err := store.ValidateRuns(runs); err != nil {
		return err
	}
	size := 0
	for _, r := range runs {
		size += len(r.Payload)
	}
	return s.submit(ctx, size, func(w *writer) error { return w.prune(lease, runs) })
}

func (w *writer) prune(lease store.Lease, runs []store.Run) error {
	e, err := w.instance(lease.Address)
	if err != nil {
		return err
	}
	if e == nil || !w.owners.Current(e.id, lease.Node, lease.Epoch) {
		return fmt.Errorf("prune %v as epoch %d: %w", lease.Address, lease.Epoch, store.ErrFenced)
	}
	epochs := make([]int64, len(runs))
	for i := range runs {
		batches, err := w.within(e, &runs[i])
		if err == nil {
			err = runs[i].Check(batches, e.head)
		}
		if err != nil {
			return fmt.Errorf("prune %v: %w", lease.Address, err)
		}
		epochs[i] = batches[0].Epoch
	}
	for i, r := range runs {
		span := r.To - r.From
		sum := spanSum(e.id, r.From, epochs[i], span, r.Payload)
		if _, err := w.exec(w.dropBatches, e.id, r.From, r.To); err != nil {
			return err
		}
		if _, err := w.exec(w.replaceBatch, e.id, r.From, sum, blob(r.Payload), span); err != nil {
			return err
		}
	}
	return nil
}

// within returns the batches whose offsets lie in a run, without their payloads.
func (w *writer) within(e *entry, r *store.Run) ([]store.Batch, error) {
	var batches []store.Batch
	err := w.findRun.each(func(row row) error {
		var b store.Batch
		err := row.scan(&b.Offset, &b.Epoch, &b.Span)
		batches = append(batches, b)
		return err
	}, e.id, r.From, r.To)
	if err != nil && (w.begun || !unreadable(err)) {
		return nil, w.fail(err)
	}
	return batches, err
}
