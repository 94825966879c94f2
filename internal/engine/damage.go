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

// damaged sets an instance aside. The lease is kept so that nobody tries the
// same again, here or in another process, as long as this one lives; other
// instances go on.
func (e *Engine) damaged(s *slot, err error) {
	e.cfg.Log.Error("an instance's journal cannot be continued; it is set aside until this program starts again", "instance", s.addr.String(), "error", err)
	head := int64(-1)
	if e.shared() {
		if inst, err := e.cfg.Store.Instance(e.writes, s.addr); err == nil {
			head = inst.Head
		}
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
