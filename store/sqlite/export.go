package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/flue-go/flue/store"
)

var _ store.Exporter = (*Store)(nil)

// Accepted implements [store.Exporter].
func (s *Store) Accepted(ctx context.Context, addr store.Address, after string, limit int) ([]store.Accepted, error) {
	var list []store.Accepted
	err := s.each(ctx, addr, func(r *reader) *stmt { return r.accepted }, func(row row) error {
		var a store.Accepted
		var at int64
		err := row.scan(&a.ID, &a.Offset, &a.Identity, &at, &a.Outcome, &a.SettledAt)
		a.AcceptedAt = time.UnixMicro(at).UTC()
		list = append(list, a)
		return err
	}, after, limit)
	if err != nil {
		return nil, advise(fmt.Errorf("submissions of %v: %w", addr, err))
	}
	return list, nil
}

// AttachmentIDs implements [store.Exporter].
func (s *Store) AttachmentIDs(ctx context.Context, addr store.Address, after string, limit int) ([]string, error) {
	var ids []string
	err := s.each(ctx, addr, func(r *reader) *stmt { return r.attached }, func(row row) error {
		var id string
		err := row.scan(&id)
		ids = append(ids, id)
		return err
	}, after, limit)
	if err != nil {
		return nil, advise(fmt.Errorf("attachments of %v: %w", addr, err))
	}
	return ids, nil
}

// each hands the rows of a statement on an instance to fn.
func (s *Store) each(ctx context.Context, addr store.Address, of func(*reader) *stmt, fn func(row) error, after string, limit int) error {
	return s.read(ctx, func(r *reader) error {
		row, err := r.instance.get(addr.Agent, addr.ID)
		if err == nil && row == nil {
			err = store.ErrNotFound
		}
		if err != nil {
			return err
		}
		return of(r).each(fn, addr.Agent, addr.ID, after, int64(max(limit, 0)))
	})
}
