package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// isNewer reports whether err means that a newer version of this program has written
// what this one cannot read. Nothing is damaged then, and a process of that version can
// go on.
func isNewer(err error) bool {
	var rule *fold.RuleError
	var format *journal.FormatError
	return errors.As(err, &format) && format.Newer || errors.As(err, &rule) && rule.Newer
}

// strangers are the instances that a newer version has written to, so that this process
// leaves them to others.
//
// A claim cannot leave them out. What comes here again is kept for a while and then
// given back, for longer each time: otherwise processes of the old version would pass
// it on to each other without end where there is none of the new one.
type strangers struct {
	mu    sync.Mutex
	of    map[store.Address]*stranger
	quiet time.Time // until then nothing is claimed, so that others come first
}

type stranger struct {
	lease store.Lease // to be given back; without an epoch if there is none
	due   time.Time   // when
	wait  time.Duration
	seen  time.Time
}

const (
	strangerWait = time.Second             // how long one is kept that has come again, for the first time
	strangerMost = 10 * time.Second        // and at most
	strangerTime = 10 * time.Minute        // when one that has not come again is forgotten
	strangerLead = 1500 * time.Millisecond // others look once a second if no signal reaches them
)

// knows reports whether the instance is one.
func (t *strangers) knows(addr store.Address) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.of[addr]
	if s != nil && time.Since(s.seen) > strangerTime {
		delete(t.of, addr)
		return false
	}
	return s != nil
}

// meet takes note of one, and reports whether it was not known.
func (t *strangers) meet(addr store.Address) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.of[addr]; s != nil {
		s.seen = time.Now()
		return false
	}
	if t.of == nil {
		t.of = make(map[store.Address]*stranger)
	}
	t.of[addr] = &stranger{seen: time.Now()}
	return true
}

// keep takes a lease of one that has come again, to give it back later.
func (t *strangers) keep(l store.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.of[l.Address]
	if s == nil || s.lease == l {
		return
	}
	s.wait = min(max(2*s.wait, strangerWait), strangerMost)
	s.lease, s.seen, s.due = l, time.Now(), time.Now().Add(s.wait)
}

// again takes back leases that could not be given back, to try it once more.
func (t *strangers) again(leases []store.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range leases {
		if s := t.of[l.Address]; s != nil && s.lease.Epoch == 0 {
			s.lease, s.due = l, time.Now().Add(strangerWait)
		}
	}
}

// leases returns what is to be given back now.
func (t *strangers) leases() (due []store.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for addr, s := range t.of {
		switch {
		case s.lease.Epoch > 0 && !time.Now().Before(s.due):
			due = append(due, s.lease)
			s.lease = store.Lease{}
		case s.lease.Epoch == 0 && time.Since(s.seen) > strangerTime:
			delete(t.of, addr)
		}
	}
	return due
}

// all returns what there is to be given back, due or not.
func (t *strangers) all() (leases []store.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.of {
		if s.lease.Epoch > 0 {
			leases = append(leases, s.lease)
			s.lease = store.Lease{}
		}
	}
	return leases
}

// standBack lets others claim first.
func (t *strangers) standBack() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.quiet = time.Now().Add(strangerLead)
}

// lead returns how long others still have.
func (t *strangers) lead() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Until(t.quiet)
}

// stranger gives an instance to whoever can read it. The caller has its slot.
func (e *Engine) stranger(s *slot, err error) {
	lease, _ := s.kept()
	if e.strangers.meet(s.addr) {
		e.cfg.Log.Warn("a newer version of this program has written to an instance, which is left to processes of that version",
			"instance", s.addr.String(), "error", err)
		e.tell(Event{Type: EventStalled, Time: time.Now(), Instance: s.addr, Reason: "a newer version has written to it", Error: err})
	}
	e.slots.drop(s)
	e.hub.forget(s.addr)
	e.dismiss(e.writes, lease)
}

// dismiss gives instances back that a newer version has written to. What it cannot give
// back before ctx ends it keeps.
func (e *Engine) dismiss(ctx context.Context, leases ...store.Lease) {
	if len(leases) == 0 {
		return
	}
	e.strangers.standBack()
	if err := e.cfg.Store.Release(ctx, leases...); err != nil {
		e.strangers.again(leases)
		if ctx.Err() == nil {
			e.cfg.Log.Warn("giving instances back that a newer version has written to", "error", err)
		}
	}
}
