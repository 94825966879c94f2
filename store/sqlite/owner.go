package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/flue-go/flue/store"
)

// claims is how many instances are claimed or released in one op, so that it
// does not keep the others waiting.
const claims = 256

// Claim implements [store.Store]. It gives away the oldest instances first. One
// that cannot be read is passed over; that is an error if there is no other.
func (s *Store) Claim(ctx context.Context, node string, limit int, agents ...string) ([]store.Lease, error) {
	var leases []store.Lease
	var damage error
	last := int64(0)
	for {
		ids, err := s.claimable(ctx, node, last, min(limit-len(leases), claims))
		if err == nil && len(ids) > 0 {
			last = ids[len(ids)-1]
			err = s.submit(ctx, 0, func(w *writer) error {
				for _, id := range ids {
					l, ok, err := w.claim(id, node, agents)
					if unreadable(err) && w.failed == nil {
						damage = err
						continue
					}
					if err != nil {
						return err
					}
					if ok {
						leases = append(leases, l)
					}
				}
				return nil
			})
		}
		if len(ids) == 0 {
			err = cmp.Or(err, damage)
		}
		if err != nil && len(leases) == 0 {
			return nil, advise(fmt.Errorf("claim for node %q: %w", node, err))
		}
		// What has been given must reach its owner, whatever happens next.
		if err != nil || len(ids) == 0 || len(leases) >= limit {
			return leases, nil
		}
	}
}

// claimable returns instances above last that looked claimable just now.
func (s *Store) claimable(ctx context.Context, node string, last int64, limit int) (ids []int64, err error) {
	if err := s.enterToWrite(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	err = s.read(ctx, func(r *reader) error {
		if !s.writer.owners.Alive(node) {
			return store.ErrNoLease
		}
		if limit <= 0 {
			return nil
		}
		return r.open.each(func(row row) error {
			var id int64
			if err := row.scan(&id); err != nil {
				return err
			}
			if s.writer.owners.Free(id) {
				ids = append(ids, id)
			}
			if len(ids) == limit {
				return io.EOF
			}
			return nil
		}, last)
	})
	return ids, err
}

// claim gives an instance to a node if it still can be, and is of one of the agents
// if there are any.
func (w *writer) claim(id int64, node string, agents []string) (l store.Lease, ok bool, err error) {
	r, err := w.get(w.findOpen, id)
	if r == nil || err != nil {
		return l, false, err
	}
	if err := r.scan(&l.Agent, &l.ID); err != nil {
		return l, false, err
	}
	if len(agents) > 0 && !slices.Contains(agents, l.Agent) {
		return l, false, nil
	}
	l.Node = node
	l.Epoch, ok = w.owners.Claim(id, node)
	return l, ok, nil
}

// Take implements [store.Store].
func (s *Store) Take(ctx context.Context, node string, addr store.Address) (store.Lease, error) {
	l := store.Lease{Address: addr, Node: node}
	if err := s.submit(ctx, 0, func(w *writer) error {
		e, err := w.instance(addr)
		if err == nil && e == nil {
			err = store.ErrNotFound
		}
		if err == nil {
			l.Epoch, err = w.owners.Take(e.id, node)
		}
		return err
	}); err != nil {
		return store.Lease{}, fmt.Errorf("take %v for node %q: %w", addr, node, err)
	}
	return l, nil
}

// Renew implements [store.Store].
func (s *Store) Renew(ctx context.Context, node string, ttl time.Duration) error {
	if err := s.enterToWrite(ctx); err != nil {
		return err
	}
	defer s.leave()
	return s.writer.owners.Renew(node, ttl)
}

// Release implements [store.Store].
func (s *Store) Release(ctx context.Context, leases ...store.Lease) error {
	for some := range slices.Chunk(leases, claims) {
		if err := s.submit(ctx, 0, func(w *writer) error { return w.release(some) }); err != nil {
			return err
		}
	}
	// Without leases there is nothing to wait for, but a closed store says so.
	if len(leases) == 0 {
		if err := s.enterToWrite(ctx); err != nil {
			return err
		}
		s.leave()
	}
	return nil
}

func (w *writer) release(leases []store.Lease) error {
	for _, l := range leases {
		e, err := w.instance(l.Address)
		if err != nil {
			return fmt.Errorf("release %v: %w", l.Address, err)
		}
		if e != nil {
			w.owners.Release(e.id, l.Node, l.Epoch)
		}
	}
	return nil
}
