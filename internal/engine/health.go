package engine

import (
	"errors"
	"sync/atomic"

	"github.com/flue-go/flue/store"
)

// Health is what keeps an engine from working as it should.
type Health struct {
	Poisoned error // the store takes no more writes; nil if it does, as far as is known
	Lapsed   bool  // the lease has lapsed, and work has stopped
	Closing  bool  // Close was called
	Damaged  int   // instances that were set aside

	Working int // instances that are being worked on
	Waiting int // instances that wait until there is a place; those of a shared store that nobody has, too

	Leaving    bool   // Retire or Close was called
	Overloaded string // why messages are refused; empty if they are not
}

// ailments is what the engine has noticed of itself.
type ailments struct {
	poisoned atomic.Pointer[error]
}

// note looks at what a call of the store has come to.
func (a *ailments) note(err error) {
	if errors.Is(err, store.ErrPoisoned) {
		a.poisoned.CompareAndSwap(nil, &err)
	}
}

// Health says how the engine is. It asks nobody and does not wait.
func (e *Engine) Health() Health {
	e.mu.Lock()
	h := Health{Closing: e.closed}
	e.mu.Unlock()
	if p := e.ailments.poisoned.Load(); p != nil {
		h.Poisoned = *p
	}
	h.Lapsed = e.tenure.pending() != nil
	h.Damaged = int(e.slots.damaged.Load())
	h.Working, h.Waiting = e.line.counts()
	h.Waiting += int(e.pressure.unowned.Load())
	h.Leaving = h.Closing || e.leaving.Load()
	if reason := e.pressure.reason.Load(); reason != nil {
		h.Overloaded = *reason
	}
	return h
}
