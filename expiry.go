package flue

import (
	"context"
	"sync"
	"time"

	"github.com/flue-go/flue/store"
)

// expiries are the timers of a runtime that deny calls whose time to be approved
// is up: one for each instance that has some.
type expiries struct {
	mu     sync.Mutex
	timers map[store.Address]*expiry
	closed bool
	wg     sync.WaitGroup
}

type expiry struct {
	at    time.Time
	timer *time.Timer
}

// expiries sees to it that calls that expire are denied in time.
func (r *Render) expiries(all approvals) {
	if first := firstExpiry(all, time.Time{}); r.self != nil && !first.IsZero() {
		r.self.rt.expiries.set(r.self, first)
	}
}

// firstExpiry is when the first of the calls that wait expires, of those that
// expire after a time; zero if none does.
func firstExpiry(all approvals, after time.Time) time.Time {
	var first time.Time
	for _, a := range all {
		if a.Decision == nil && a.ExpiresAt.After(after) && (first.IsZero() || a.ExpiresAt.Before(first)) {
			first = a.ExpiresAt
		}
	}
	return first
}

// set makes the instance's timer go off at the time, unless it does so earlier.
func (e *expiries) set(in *Instance, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.timers[in.addr]
	if e.closed || old != nil && !at.Before(old.at) {
		return
	}
	if old != nil && !old.timer.Stop() {
		return // it is at work, and what it sends will bring the next render
	}
	if old == nil {
		e.wg.Add(1)
	}
	if e.timers == nil {
		e.timers = make(map[store.Address]*expiry)
	}
	x := &expiry{at: at}
	x.timer = time.AfterFunc(in.rt.engine.Until(at)+time.Millisecond, func() {
		defer e.wg.Done()
		e.mu.Lock()
		delete(e.timers, in.addr)
		e.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), expiryPatience)
		defer cancel()
		denied, err := in.ExpireApprovals(ctx)
		if err != nil {
			in.rt.log.Error("denying calls whose time to be approved is up", "instance", in.addr.String(), "error", err)
		}
		// The renders that the denials bring may find a timer that has gone off
		// meanwhile: who is next must not depend on them.
		var next time.Time
		if all, _, err := in.approvals(ctx); err == nil {
			next = firstExpiry(all, in.rt.engine.Now())
		}
		// A denial may be aborted before it is carried out.
		if again := in.rt.engine.Now().Add(expiryAgain); (denied > 0 || err != nil) && (next.IsZero() || again.Before(next)) {
			next = again
		}
		if !next.IsZero() {
			e.set(in, next)
		}
	})
	e.timers[in.addr] = x
}

// expiryAgain is when a timer looks whether its denials were carried out.
const expiryAgain = 30 * time.Second

// expiryPatience bounds how long a timer works.
const expiryPatience = 30 * time.Second

// close stops the timers and waits for those at work.
func (e *expiries) close() {
	e.mu.Lock()
	e.closed = true
	for addr, x := range e.timers {
		if x.timer.Stop() {
			delete(e.timers, addr)
			e.wg.Done()
		}
	}
	e.mu.Unlock()
	e.wg.Wait()
}
