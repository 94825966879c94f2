package store

import (
	"context"
	"fmt"
)

// A Run is a run of batches, and what to put in their place.
type Run struct {
	From, To int64 // the offsets of its first and its last batch
	Payload  []byte
}

// A Pruner is a store that can put one batch in the place of several. It is for
// what is kept in many pieces only for as long as somebody may still read it piece
// by piece; whoever calls it answers for the meaning of the journal staying the
// same.
type Pruner interface {
	// Prune puts one batch in the place of each run, as the owner and all in one
	// step. The batch has the offset From and the epoch of the run, and stands for
	// the offsets up to To: see Batch.Span. Everything else stays as it is: other
	// offsets, the head, submissions.
	//
	// The runs must be in order and apart, at least two offsets long, above offset
	// 0 and below the head; each must be made of whole batches of one epoch, none
	// of them intake. Otherwise it is refused with ErrInvalid, and with ErrFenced
	// if lease is not the instance's current ownership. A refused one changes
	// nothing.
	Prune(ctx context.Context, lease Lease, runs []Run) error
}

// MaxRuns bounds the runs of one call of Prune.
const MaxRuns = 1 << 10

// ValidateRuns reports whether runs are within the limits of this package.
// Stores call it first thing.
func ValidateRuns(runs []Run) error {
	if n := len(runs); n > MaxRuns {
		return fmt.Errorf("%w: %d runs at once, the limit is %d", ErrTooLarge, n, MaxRuns)
	}
	last := int64(0)
	for _, r := range runs {
		if r.From <= last || r.To <= r.From {
			return fmt.Errorf("%w: a run from offset %d to %d behind offset %d", ErrInvalid, r.From, r.To, last)
		}
		if err := validPayload(r.Payload); err != nil {
			return err
		}
		last = r.To
	}
	return nil
}

// Check reports whether batches, which are those whose offsets lie in the run,
// and all of them, can be replaced. Stores call it before they replace them.
func (r *Run) Check(batches []Batch, head int64) error {
	next := r.From
	for _, b := range batches {
		switch {
		case b.Offset != next:
			return fmt.Errorf("%w: a run from offset %d to %d, and a batch at %d where one at %d should be", ErrInvalid, r.From, r.To, b.Offset, next)
		case b.Epoch == 0 || b.Epoch != batches[0].Epoch:
			return fmt.Errorf("%w: a run from offset %d to %d, and the batch at %d is of epoch %d", ErrInvalid, r.From, r.To, b.Offset, b.Epoch)
		}
		next = b.Last() + 1
	}
	if next != r.To+1 || r.To >= head {
		return fmt.Errorf("%w: a run from offset %d to %d, whose batches reach to %d, below the head %d", ErrInvalid, r.From, r.To, next-1, head)
	}
	return nil
}
