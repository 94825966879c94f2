// Package owners keeps, in memory, who owns which instance: the ownership half
// of a store that only one process has open.
//
// Such a store proves at open that every earlier owner is dead, so ownership
// does not need to be durable. Only epochs must keep rising across restarts,
// which the store sees to by the epoch it starts the table with.
package owners

import (
	"fmt"
	"sync"
	"time"

	"github.com/flue-go/flue/store"
)

// A Table maps instances, named by K, to the nodes that own them. It holds an
// entry for each owned instance and each node that has held a lease lately, and nothing
// for the others. It is safe for concurrent use, but a store must order changes
// of ownership with its own writes: see [Table.Current].
type Table[K comparable] struct {
	mu    sync.Mutex
	epoch int64 // the newest one given
	owned map[K]owner
	nodes map[string]time.Time // when each node's lease lapses
}

type owner struct {
	node  string
	epoch int64
}

// New returns a table without owners whose epochs are all above last.
func New[K comparable](last int64) *Table[K] {
	return &Table[K]{
		epoch: last,
		owned: make(map[K]owner),
		nodes: make(map[string]time.Time),
	}
}

// remembered is how long nodes are known after their leases have lapsed.
const remembered = time.Hour

// Renew makes the node's lease last for ttl from now.
func (t *Table[K]) Renew(node string, ttl time.Duration) error {
	if err := store.ValidateNode(node); err != nil {
		return err
	}
	if ttl <= 0 {
		return fmt.Errorf("%w: lease of node %q for %v", store.ErrInvalid, node, ttl)
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	// A lapsed lease is the same as none, but it may be of interest for a while.
	// Names of nodes that are gone must not pile up.
	for n, lapses := range t.nodes {
		if now.Sub(lapses) > remembered {
			delete(t.nodes, n)
		}
	}
	t.nodes[node] = now.Add(ttl)
	return nil
}

// Alive reports whether the node's lease is live.
func (t *Table[K]) Alive(node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.alive(node)
}

func (t *Table[K]) alive(node string) bool {
	lapses, ok := t.nodes[node]
	return ok && time.Now().Before(lapses)
}

// Free reports whether no live node owns k.
func (t *Table[K]) Free(k K) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.free(k)
}

func (t *Table[K]) free(k K) bool {
	o, ok := t.owned[k]
	return !ok || !t.alive(o.node)
}

// Current reports whether the node owns k under this epoch. The answer holds
// only until the next change of ownership, so a store must not let one happen
// between this check and the end of the write that it is made for.
func (t *Table[K]) Current(k K, node string, epoch int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.owned[k] == owner{node, epoch} && epoch != 0
}

// Claim gives k to the node under a new epoch if no live node owns it and the
// node's own lease is live.
func (t *Table[K]) Claim(k K, node string) (epoch int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.alive(node) || !t.free(k) {
		return 0, false
	}
	return t.give(k, node), true
}

// Take gives k to the node under a new epoch. It fails with ErrNoLease if the
// node's lease is not live and with ErrOwned if another live node owns k.
func (t *Table[K]) Take(k K, node string) (epoch int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.alive(node) {
		return 0, store.ErrNoLease
	}
	if t.owned[k].node != node && !t.free(k) {
		return 0, store.ErrOwned
	}
	return t.give(k, node), nil
}

// Seize is Take that does not mind a live owner.
func (t *Table[K]) Seize(k K, node string) (epoch int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.alive(node) {
		return 0, store.ErrNoLease
	}
	return t.give(k, node), nil
}

func (t *Table[K]) give(k K, node string) int64 {
	t.epoch++
	t.owned[k] = owner{node, t.epoch}
	return t.epoch
}

// Release ends the ownership of k if the node holds it under this epoch, and
// reports whether it did.
func (t *Table[K]) Release(k K, node string, epoch int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.owned[k] != (owner{node, epoch}) {
		return false
	}
	delete(t.owned, k)
	return true
}

// An Owner is who owns something.
type Owner struct {
	Node  string
	Epoch int64
	Live  bool // the node's lease has not lapsed
}

// Owner returns the owner of k, and false if there is none.
func (t *Table[K]) Owner(k K) (Owner, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.owned[k]
	return Owner{o.node, o.epoch, t.alive(o.node)}, ok
}

// Nodes returns how long the lease of each node still lasts. It is negative for
// those whose leases have lapsed, which are known for an hour.
func (t *Table[K]) Nodes() map[string]time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	nodes := make(map[string]time.Duration, len(t.nodes))
	for name, lapses := range t.nodes {
		nodes[name] = time.Until(lapses)
	}
	return nodes
}

// Len returns the number of owned instances.
func (t *Table[K]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.owned)
}

// Epoch returns the newest epoch that was given.
func (t *Table[K]) Epoch() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.epoch
}
