package memstore

import (
	"context"
	"fmt"

	"github.com/flue-go/flue/store"
)

var _ store.Seizer = (*Store)(nil)

// Seize implements [store.Seizer].
func (s *Store) Seize(ctx context.Context, node string, addr store.Address) (store.Lease, error) {
	if err := s.enter(ctx); err != nil {
		return store.Lease{}, err
	}
	defer s.mu.Unlock()
	in := s.instances[addr]
	if in == nil {
		return store.Lease{}, fmt.Errorf("seize %v: %w", addr, store.ErrNotFound)
	}
	epoch, err := s.owners.Seize(in, node)
	if err != nil {
		return store.Lease{}, fmt.Errorf("seize %v for node %q: %w", addr, node, err)
	}
	return store.Lease{Address: addr, Node: node, Epoch: epoch}, nil
}
