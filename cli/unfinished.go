package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// unfinished returns the submissions of an instance that have no settlement, in
// the order in which they were accepted.
func unfinished(ctx context.Context, st store.Store, addr store.Address) ([]string, error) {
	inst, err := st.Instance(ctx, addr)
	if errors.Is(err, store.ErrNotFound) || (err == nil && inst.Unsettled == 0) {
		return nil, nil
	}
	var open []string
	for after := int64(-1); err == nil && after < inst.Head; {
		var page store.Page
		if page, err = st.Read(ctx, addr, after, 0); err != nil {
			break
		}
		for _, b := range page.Batches {
			var batch journal.Batch
			if batch, err = journal.Decode(b.Payload); err != nil {
				break
			}
			open = settle(open, batch)
			after = b.Offset
		}
	}
	if err != nil {
		return nil, fmt.Errorf("looking for unfinished work of %s: %w", addr, err)
	}
	return open, nil
}

// settle adds the submissions that a batch admits and removes those that it
// settles.
func settle(open []string, b journal.Batch) []string {
	for _, rec := range b.Records {
		switch rec := rec.(type) {
		case *journal.Admitted:
			open = append(open, rec.Submission)
		case *journal.Settled:
			open = slices.DeleteFunc(open, func(id string) bool { return id == rec.Submission })
		}
	}
	return open
}
