package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flue-go/flue/store"
)

var _ store.Lister = (*Store)(nil)

// Instances implements [store.Lister].
func (s *Store) Instances(ctx context.Context, after store.Address, limit int) ([]store.Instance, error) {
	var rows []store.Instance
	err := s.read(ctx, func(r *reader) error {
		var addrs []store.Address
		err := r.instances.each(func(row row) error {
			var a store.Address
			err := row.scan(&a.Agent, &a.ID)
			addrs = append(addrs, a)
			return err
		}, after.Agent, after.ID, int64(max(limit, 0)))
		for _, a := range addrs {
			if err != nil {
				break
			}
			var in store.Instance
			if in, _, err = r.row(a); errors.Is(err, store.ErrCorrupt) && code(err) < 0 {
				in, err = store.Instance{Address: a, Head: -1}, nil
			}
			rows = append(rows, in)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	return rows, nil
}

// Unsettled implements [store.Lister].
func (s *Store) Unsettled(ctx context.Context, addr store.Address) ([]store.Submission, error) {
	var open []store.Submission
	err := s.read(ctx, func(r *reader) error {
		if row, err := r.instance.get(addr.Agent, addr.ID); row == nil || err != nil {
			if err == nil {
				err = store.ErrNotFound
			}
			return err
		}
		return r.unsettled.each(func(row row) error {
			var sub store.Submission
			var at int64
			err := row.scan(&sub.ID, &sub.Offset, &at)
			sub.AcceptedAt = time.UnixMicro(at).UTC()
			open = append(open, sub)
			return err
		}, addr.Agent, addr.ID)
	})
	if err != nil {
		return nil, fmt.Errorf("unsettled submissions of %v: %w", addr, err)
	}
	return open, nil
}
