package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/flue-go/flue/store"
)

// unfinished returns the submissions of an instance that have no settlement, in
// the order in which they were accepted.
func unfinished(ctx context.Context, st store.Lister, addr store.Address) ([]string, error) {
	subs, err := st.Unsettled(ctx, addr)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for unfinished work of %s: %w", addr, err)
	}
	var open []string
	for _, sub := range subs {
		open = append(open, sub.ID)
	}
	return open, nil
}
