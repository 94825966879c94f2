package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// batches ranges over the whole journal of an instance, decoded.
func batches(ctx context.Context, st store.Store, addr store.Address) iter.Seq2[batch, error] {
	return func(yield func(batch, error) bool) {
		for b, err := range store.Batches(ctx, st, addr, -1) {
			d := batch{Offset: b.Offset, last: b.Last(), payload: b.Payload}
			var unreadable *store.BatchError
			if errors.As(err, &unreadable) {
				d.Err, err = unreadable.Err, nil
			} else if err == nil {
				d.Batch, d.Err = journal.Decode(b.Payload)
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// A batch is one batch of a journal: what it holds, or why that cannot be read.
type batch struct {
	journal.Batch
	Offset  int64
	last    int64 // the last one that it stands for, see [store.Batch.Span]
	Err     error
	payload []byte
}

// replay folds the journal of an instance, see [fold.Replay].
func replay(ctx context.Context, st store.Store, addr store.Address, spans ...fold.Span) (*fold.State, error) {
	state, err := fold.Replay(func(yield func(fold.Batch, error) bool) {
		for b, err := range batches(ctx, st, addr) {
			if !yield(fold.Batch{Offset: b.Offset, Records: b.Records, Err: b.Err}, err) {
				return
			}
		}
	}, spans...)
	var damage *fold.DamageError
	if err != nil && !errors.As(err, &damage) && errors.Is(err, store.ErrCorrupt) {
		// Not even the index knows what there is of it.
		return &fold.State{Head: -1}, &fold.DamageError{Err: err}
	}
	return state, err
}

// A damaged says why an instance cannot go on.
type damaged struct {
	Offset int64  `json:"offset"`
	Reason string `json:"reason"`
	Newer  bool   `json:"newer,omitzero"` // it needs a newer version, and no repair
}

// asDamage returns what a replay says of damage, and any other error as it is.
func asDamage(err error) (*damaged, error) {
	var d *fold.DamageError
	if errors.As(err, &d) {
		return &damaged{Offset: d.Offset, Reason: line(d.Error()), Newer: d.Newer()}, nil
	}
	return nil, err
}

// stamp is a time as it is shown.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// ago says how long before now a time was, or how long after.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	if d < 0 {
		return "in " + rough(-d)
	}
	return rough(d) + " ago"
}

// rough is a duration in its largest unit.
func rough(d time.Duration) string {
	const day = 24 * time.Hour
	for _, u := range [...]struct {
		unit time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= u.unit {
			return fmt.Sprint(int64(d/u.unit), u.name)
		}
	}
	return fmt.Sprint(int64(d/time.Second), "s")
}
