package faultstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// A storm makes calls fail by chance.
type storm struct {
	rng    *rand.Rand
	rate   float64
	struck int // calls
}

// Storm makes each call from now on fail with the given probability, in a way
// that the seed decides: writes in each mode but Torn, appends also as those of an
// owner that has lost its instance, all calls late by up to a second, or not answered until their context ends or ten seconds have passed.
// Signals are lost, late or come twice. It lasts until Calm.
func (s *Store) Storm(seed uint64, rate float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storm = &storm{rng: rand.New(rand.NewPCG(seed, 0)), rate: rate}
	s.rng = rand.New(rand.NewPCG(seed, 1))
}

// Faults returns how many calls the storm has struck so far.
func (s *Store) Faults() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.storm == nil {
		return 0
	}
	return s.storm.struck
}

// Calm ends a storm. Calls that hang already still do.
func (s *Store) Calm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storm = nil
}

// strike decides whether a write fails, and how. The store must be locked.
func (w *storm) strike() (Mode, bool) {
	if w == nil || w.rng.Float64() >= w.rate {
		return "", false
	}
	w.struck++
	return []Mode{Before, After, Late}[w.rng.IntN(3)], true
}

// fences decides whether an append that fails does so as if its owner had lost the
// instance. The store must be locked.
func (w *storm) fences() bool { return w.rng.IntN(4) == 0 }

const (
	stormDelay = time.Second
	stormHang  = 10 * time.Second
)

// weather delays a call, or fails it before it has begun.
func (s *Store) weather(ctx context.Context) error {
	s.mu.Lock()
	w := s.storm
	if w == nil || w.rng.Float64() >= w.rate {
		s.mu.Unlock()
		return nil
	}
	w.struck++
	kind, wait := w.rng.IntN(3), time.Duration(w.rng.Int64N(int64(stormDelay)))
	s.mu.Unlock()
	switch kind {
	case 0:
		return fmt.Errorf("%w: by chance", ErrInjected)
	case 1:
		return pause(ctx, wait)
	}
	if err := pause(ctx, stormHang); err != nil {
		return err
	}
	return fmt.Errorf("%w: no answer", ErrInjected)
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
