package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// ErrDamaged is the error of waiting for an instance that was set aside because
// its journal cannot be continued, and of sending it a message.
var ErrDamaged = errors.New("the instance is set aside: its journal cannot be continued")

// isDamage reports whether err means that the journal itself cannot be
// continued, so that trying again is no help.
func isDamage(err error) bool {
	var rule *fold.RuleError
	var format *journal.FormatError
	return errors.As(err, &rule) || errors.As(err, &format) || errors.Is(err, store.ErrCorrupt)
}

// A damageError says how far a journal had been read by who cannot continue it.
type damageError struct {
	err    error
	read   int64 // an offset; -1 if that is not known
	stored bool  // all of it had been read, and nothing was only remembered
}

func (e *damageError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *damageError) Unwrap() error { return e.err }

// asStored reports whether the journal cannot be continued as it is stored. A driver
// that goes on from what it remembers cannot tell: a repair says what it passes over of
// what is stored.
func asStored(err error) bool {
	var damage *damageError
	return errors.As(err, &damage) && damage.stored
}

// loadAgain is load for a journal that cannot be continued. Whatever is behind the head
// that is asked for first is news, which may be a repair.
func (d *driver) loadAgain() (*loaded, error) {
	head := int64(-1)
	if inst, err := d.e.cfg.Store.Instance(d.term.ctx, d.slot.addr); err == nil {
		head = inst.Head
	}
	l, err := d.e.load(d.term.ctx, d.slot.addr)
	if isDamage(err) {
		err = &damageError{err: err, read: head, stored: true}
	}
	return l, err
}

// damage adds to an error how far the driver has read, if that is news.
func (d *driver) damage(err error) error {
	var known *damageError
	if !isDamage(err) || errors.As(err, &known) || d.memory == nil {
		return err
	}
	return &damageError{err: err, read: d.state.Head}
}

// damaged sets an instance aside. The lease is kept so that nobody tries the
// same again, here or in another process, as long as this one lives; other
// instances go on.
func (e *Engine) damaged(s *slot, err error) {
	e.cfg.Log.Error("an instance's journal cannot be continued; it is set aside until this program starts again", "instance", s.addr.String(), "error", err)
	head := int64(-1) // the store is not asked for it now: what has come since may be a repair
	var damage *damageError
	if errors.As(err, &damage) {
		head = damage.read
	}
	s.mu.Lock()
	s.damage, s.aside = err, head
	s.mu.Unlock()
	e.slots.damaged.Add(1)
	e.hub.poke(s.addr)
	e.cfg.Observe(Event{Type: EventDamaged, Time: time.Now(), Instance: s.addr, Error: err})
}

// broken returns an ErrDamaged if the instance is set aside here.
func (e *Engine) broken(addr store.Address) error {
	if err := e.slots.damage(addr); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

// setAside is broken for who asks anew. If others share the store, somebody may have
// repaired the instance meanwhile, or added something else to its journal: then it is
// given back, so that whoever takes it next tries again.
func (e *Engine) setAside(ctx context.Context, addr store.Address) error {
	err := e.broken(addr)
	if err == nil || !e.shared() {
		return err
	}
	s := e.slots.peek(addr)
	inst, lookErr := e.cfg.Store.Instance(ctx, addr)
	if s == nil || lookErr != nil {
		return err
	}
	s.mu.Lock()
	same, lease := inst.Head <= s.aside, s.lease
	s.mu.Unlock()
	if same {
		return err
	}
	if !e.slots.mend(s) {
		return nil // somebody else has
	}
	if err := e.cfg.Store.Release(ctx, lease); err != nil {
		e.cfg.Log.Warn("giving back an instance that was set aside", "instance", addr.String(), "error", err)
	}
	return nil
}
