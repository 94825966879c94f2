package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
)

// A BatchError says that one batch of a journal cannot be read.
type BatchError struct {
	Offset int64
	Err    error // wraps ErrCorrupt
}

func (e *BatchError) Error() string { return fmt.Sprintf("batch %d: %v", e.Offset, e.Err) }

// Unwrap returns the cause.
func (e *BatchError) Unwrap() error { return e.Err }

// Batches ranges over the batches of a journal after the offset, in order and
// up to its head.
//
// A batch that cannot be read comes as a [*BatchError] and a Batch that has only
// its offset; the next ones follow. Any other error ends the range.
func Batches(ctx context.Context, s Store, addr Address, after int64) iter.Seq2[Batch, error] {
	return BatchesUpTo(ctx, s, addr, after, math.MaxInt64)
}

// BatchesUpTo is [Batches] up to an offset. It reads no more of the journal than
// it needs for that.
func BatchesUpTo(ctx context.Context, s Store, addr Address, after, upTo int64) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		w := walk{store: s, addr: addr, after: max(after, -1), upTo: upTo, limit: maxWalk}
		for more := w.after < upTo; more; {
			var err error
			if more, err = w.page(ctx, yield); err != nil {
				yield(Batch{}, err)
				return
			}
		}
	}
}

// maxWalk is how many batches are read at a time.
const maxWalk = 1000

// A walk reads a journal. A page with a batch that cannot be read is halved
// until that batch is alone.
type walk struct {
	store Store
	addr  Address
	after int64 // the last offset that was handed on
	upTo  int64
	bad   int64 // a batch up to this offset cannot be read, if it is above after
	limit int
}

// page hands on the next batches. It reports false at the end.
func (w *walk) page(ctx context.Context, yield func(Batch, error) bool) (more bool, err error) {
	limit := w.limit
	if rest := w.upTo - w.after; rest > 0 && rest < int64(limit) { // it may overflow
		limit = int(rest)
	}
	p, err := w.store.Read(ctx, w.addr, w.after, limit)
	switch {
	case errors.Is(err, ErrCorrupt) && limit > 1:
		w.bad = w.after + int64(limit)
		w.limit = limit / 2
		return true, nil
	case errors.Is(err, ErrCorrupt):
		return w.damaged(ctx, err, yield)
	case err != nil:
		return false, err
	}
	for _, b := range p.Batches {
		if b.Offset > w.upTo {
			return false, nil
		}
		w.after = b.Last()
		if !yield(b, nil) {
			return false, nil
		}
	}
	if len(p.Batches) == 0 && w.after < p.Head {
		return false, fmt.Errorf("read %v: %w: nothing after offset %d, although the head is %d", w.addr, ErrCorrupt, w.after, p.Head)
	}
	w.limit = maxWalk
	if w.bad > w.after {
		w.limit = max(int(w.bad-w.after)/2, 1)
	}
	return w.after < min(p.Head, w.upTo), nil
}

// damaged hands on that the next batch cannot be read.
func (w *walk) damaged(ctx context.Context, cause error, yield func(Batch, error) bool) (more bool, err error) {
	in, err := w.store.Instance(ctx, w.addr)
	switch {
	case err != nil:
		return false, err
	case w.after >= in.Head:
		return false, cause
	}
	w.after++
	w.bad, w.limit = 0, maxWalk
	return yield(Batch{Offset: w.after}, &BatchError{Offset: w.after, Err: cause}) && w.after < min(in.Head, w.upTo), nil
}
