package memstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/flue-go/flue/store"
)

var (
	_ store.Sharer   = (*Store)(nil)
	_ store.Surveyor = (*Store)(nil)
)

// Share returns another handle on the same journals, as another process would
// have. Unlike [Store.Reopen] it leaves this one, and all that is owned, as it is.
func (s *Store) Share() *Store { return &Store{data: s.data} }

// maxSignals bounds the signals that wait for a listener. One that falls further
// behind is told that it has missed some.
const maxSignals = 1 << 12

// A listener is a call of Listen. The store's mutex guards it.
type listener struct {
	store   *Store
	missed  bool
	signals []store.Signal
	grown   map[store.Address]int // where in signals it stands that an instance has grown
	wake    chan struct{}         // has a value when there is something to tell
}

// Listen implements [store.Sharer]. It is told of this handle's own writes, too:
// several engines may share one.
func (s *Store) Listen(ctx context.Context, fn func(store.Signal)) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	l := &listener{store: s, missed: true, wake: make(chan struct{}, 1)}
	s.listeners = append(s.listeners, l)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.listeners = slices.DeleteFunc(s.listeners, func(o *listener) bool { return o == l })
	}()
	for {
		signals, closed := l.take()
		if closed {
			return store.ErrClosed
		}
		for _, sig := range signals {
			if ctx.Err() != nil {
				break
			}
			fn(sig)
		}
		if len(signals) > 0 && ctx.Err() == nil {
			continue
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take returns what there is to tell.
func (l *listener) take() (signals []store.Signal, closed bool) {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.missed {
		signals = []store.Signal{{Kind: store.Missed}}
	}
	signals = append(signals, l.signals...)
	l.missed, l.signals, l.grown = false, nil, nil
	return signals, s.closed
}

func (l *listener) add(sig store.Signal) {
	i, known := l.grown[sig.Address]
	switch {
	case sig.Kind == store.Grown && known:
		l.signals[i].Head = sig.Head
	case len(l.signals) == maxSignals:
		l.missed, l.signals, l.grown = true, nil, nil
	default:
		if sig.Kind == store.Grown {
			if l.grown == nil {
				l.grown = make(map[store.Address]int)
			}
			l.grown[sig.Address] = len(l.signals)
		}
		l.signals = append(l.signals, sig)
	}
	l.nudge()
}

func (l *listener) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// tell tells all listeners. The store must be locked.
func (s *Store) tell(sig store.Signal) {
	for _, l := range s.listeners {
		l.add(sig)
	}
}

// tellGrown tells that an instance has grown, and that it waits for an owner if it
// has none. The store must be locked.
func (s *Store) tellGrown(in *instance) {
	if len(s.listeners) == 0 {
		return
	}
	s.tell(store.Signal{Kind: store.Grown, Address: in.addr, Head: in.head()})
	s.tellFreed(in)
}

func (s *Store) tellFreed(in *instance) {
	if in.unsettled > 0 && s.owners.Free(in) {
		s.tell(store.Signal{Kind: store.Freed, Address: in.addr})
	}
}

// end closes the handle. The store must be locked.
func (s *Store) end() {
	s.closed = true
	for _, l := range s.listeners {
		if l.store == s {
			l.nudge()
		}
	}
}

// Watch implements [store.Sharer].
func (s *Store) Watch(ctx context.Context, addrs []store.Address) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, addr := range addrs {
		if in := s.instances[addr]; in != nil && !s.owners.Free(in) {
			s.tell(store.Signal{Kind: store.Watched, Address: addr})
		}
	}
	return nil
}

// Heads implements [store.Sharer].
func (s *Store) Heads(ctx context.Context, addrs []store.Address) ([]int64, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	heads := make([]int64, len(addrs))
	for i, addr := range addrs {
		heads[i] = -1
		if in := s.instances[addr]; in != nil {
			heads[i] = in.head()
		}
	}
	return heads, nil
}

// Owned implements [store.Sharer].
func (s *Store) Owned(ctx context.Context, node string, after store.Address, limit int) ([]store.Owned, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var owned []store.Owned
	for in := range s.open {
		o, ok := s.owners.Owner(in)
		if ok && o.Node == node && compare(in.addr, after) > 0 {
			owned = append(owned, store.Owned{Lease: store.Lease{Address: in.addr, Node: node, Epoch: o.Epoch}, Head: in.head()})
		}
	}
	slices.SortFunc(owned, func(a, b store.Owned) int { return compare(a.Address, b.Address) })
	return owned[:min(len(owned), max(limit, 0))], nil
}

// Unowned implements [store.Sharer].
func (s *Store) Unowned(ctx context.Context, limit int, agents ...string) (int, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	n := 0
	for in := range s.open {
		if n < limit && s.owners.Free(in) && of(in, agents) {
			n++
		}
	}
	return n, nil
}

// of reports whether an instance is of one of the agents, or none is named.
func of(in *instance, agents []string) bool {
	return len(agents) == 0 || slices.Contains(agents, in.addr.Agent)
}

// Nodes implements [store.Surveyor].
func (s *Store) Nodes(ctx context.Context) ([]store.Node, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var nodes []store.Node
	for name, left := range s.owners.Nodes() {
		n := store.Node{Name: name, Left: left}
		for _, in := range s.instances {
			if o, ok := s.owners.Owner(in); ok && o.Node == name {
				n.Owned++
				if in.unsettled > 0 {
					n.Working++
				}
			}
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b store.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, nil
}

// Work implements [store.Surveyor].
func (s *Store) Work(ctx context.Context, limit int) ([]store.Work, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	ready := slices.SortedFunc(maps.Keys(s.open), func(a, b *instance) int { return cmp.Compare(a.ready, b.ready) })
	var work []store.Work
	now := time.Now()
	for _, in := range ready[:min(len(ready), max(limit, 0))] {
		o, _ := s.owners.Owner(in)
		work = append(work, store.Work{Instance: in.row(), Owner: o.Node, Epoch: o.Epoch, Live: o.Live, Waiting: now.Sub(in.since)})
	}
	return work, nil
}
