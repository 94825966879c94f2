package faultstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/flue-go/flue/store"
)

var (
	_ store.Sharer   = (*Store)(nil)
	_ store.Surveyor = (*Store)(nil)
)

// Signals say what becomes of the signals that a store sends. The zero value
// passes them on as they come. That some may have been missed is always passed on.
type Signals struct {
	None  bool          // Listen fails with errors.ErrUnsupported
	Lost  float64       // this part of them is lost
	Twice float64       // this part of them comes twice, the second time after Late more
	Late  time.Duration // each comes by up to this much later, so that they overtake each other
	Exact bool          // each comes by exactly Late later, in order
}

// SetSignals says what becomes of signals from now on. None counts for calls of
// Listen that begin later. During a storm signals also fail by chance, as calls do.
func (s *Store) SetSignals(g Signals) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signals = g
}

// sharer is the other store, if it is one that several processes share.
func (s *Store) sharer(ctx context.Context) (store.Sharer, error) {
	inner, ok := s.inner.(store.Sharer)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return inner, s.pass(ctx)
}

// Listen implements [store.Sharer]. While the line is down no signals come; that
// some were missed is told when it is up again.
func (s *Store) Listen(ctx context.Context, fn func(store.Signal)) error {
	inner, ok := s.inner.(store.Sharer)
	s.mu.Lock()
	none := s.signals.None
	s.mu.Unlock()
	if !ok || none {
		return errors.ErrUnsupported
	}
	p := &post{s: s, arrived: make(chan struct{}, 1)}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { p.deliver(ctx, fn) })
	return inner.Listen(ctx, p.take)
}

// A post has the signals that are on their way to a listener.
type post struct {
	s       *Store
	arrived chan struct{} // has a value when letters or missed have changed

	mu      sync.Mutex
	letters []letter // by when they are due
	missed  <-chan struct{}
}

type letter struct {
	store.Signal
	due time.Time
}

// take takes a signal from the store.
func (p *post) take(sig store.Signal) {
	s := p.s
	s.mu.Lock()
	var late []time.Duration
	switch {
	case s.crashed:
	case s.cut != nil:
		p.mu.Lock()
		p.missed = s.cut.mended
		p.mu.Unlock()
	case sig.Kind == store.Missed:
		late = append(late, 0)
	default:
		late = s.fate()
	}
	s.mu.Unlock()
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range late {
		l := letter{sig, now.Add(d)}
		i, _ := slices.BinarySearchFunc(p.letters, l, func(o, l letter) int {
			if o.due.After(l.due) {
				return 1
			}
			return -1
		})
		p.letters = slices.Insert(p.letters, i, l)
	}
	p.nudge()
}

func (p *post) nudge() {
	select {
	case p.arrived <- struct{}{}:
	default:
	}
}

// fate says how late a signal comes each time that it does. The store must be locked.
func (s *Store) fate() (late []time.Duration) {
	g, rng := s.signals, s.rng
	if w := s.storm; w != nil && rng.Float64() < w.rate {
		w.struck++
		g.Lost, g.Twice, g.Late = 0.4, 0.4, stormDelay
	}
	if g.Lost > 0 && rng.Float64() < g.Lost {
		return nil
	}
	wait := func() time.Duration {
		if g.Late <= 0 || g.Exact {
			return g.Late
		}
		return time.Duration(rng.Int64N(int64(g.Late)))
	}
	late = append(late, wait())
	if g.Twice > 0 && rng.Float64() < g.Twice {
		late = append(late, g.Late+wait())
	}
	return late
}

// deliver calls fn with what is due, until ctx ends.
func (p *post) deliver(ctx context.Context, fn func(store.Signal)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		p.mu.Lock()
		var due []letter
		for len(p.letters) > 0 && !time.Now().Before(p.letters[0].due) {
			due = append(due, p.letters[0])
			p.letters = p.letters[1:]
		}
		if len(p.letters) > 0 {
			timer.Reset(time.Until(p.letters[0].due))
		}
		missed := p.missed
		p.mu.Unlock()
		for _, l := range due {
			if ctx.Err() == nil && !p.s.Crashed() {
				fn(l.Signal)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-p.arrived:
		case <-missed:
			p.mu.Lock()
			p.missed = nil
			p.mu.Unlock()
			p.take(store.Signal{Kind: store.Missed})
		}
	}
}

// Watch implements [store.Sharer].
func (s *Store) Watch(ctx context.Context, addrs []store.Address) error {
	inner, err := s.sharer(ctx)
	if err != nil {
		return err
	}
	return inner.Watch(ctx, addrs)
}

// Heads implements [store.Sharer].
func (s *Store) Heads(ctx context.Context, addrs []store.Address) ([]int64, error) {
	inner, err := s.sharer(ctx)
	if err != nil {
		return nil, err
	}
	return inner.Heads(ctx, addrs)
}

// Owned implements [store.Sharer].
func (s *Store) Owned(ctx context.Context, node string, after store.Address, limit int) ([]store.Owned, error) {
	inner, err := s.sharer(ctx)
	if err != nil {
		return nil, err
	}
	return inner.Owned(ctx, node, after, limit)
}

// Unowned implements [store.Sharer].
func (s *Store) Unowned(ctx context.Context, limit int, agents ...string) (int, error) {
	inner, err := s.sharer(ctx)
	if err != nil {
		return 0, err
	}
	return inner.Unowned(ctx, limit, agents...)
}

// surveyor is the other store, if it can say who works on what.
func (s *Store) surveyor(ctx context.Context) (store.Surveyor, error) {
	inner, ok := s.inner.(store.Surveyor)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return inner, s.pass(ctx)
}

// Nodes implements [store.Surveyor].
func (s *Store) Nodes(ctx context.Context) ([]store.Node, error) {
	inner, err := s.surveyor(ctx)
	if err != nil {
		return nil, err
	}
	return inner.Nodes(ctx)
}

// Work implements [store.Surveyor].
func (s *Store) Work(ctx context.Context, limit int) ([]store.Work, error) {
	inner, err := s.surveyor(ctx)
	if err != nil {
		return nil, err
	}
	return inner.Work(ctx, limit)
}
