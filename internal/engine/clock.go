package engine

import (
	"context"
	"sync"
	"time"

	"github.com/flue-go/flue/store"
)

// A clock is the time that this process goes by in what it writes down and another
// process acts on, such as the deadline of a message: the time of the store, if the
// store says it. The clocks of processes may be far apart.
//
// The time between two answers of the store is measured by this process, which no
// setting of its clock disturbs.
type clock struct {
	own func() time.Time // of this process

	mu sync.Mutex
	at time.Time // by own, when it was the time is by the store's; zero if that is not known
	is time.Time
}

// now returns the time.
func (c *clock) now() time.Time {
	own := c.own()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.then(own)
}

// then returns what the time was when own was it. The lock is held.
func (c *clock) then(own time.Time) time.Time {
	if c.at.IsZero() {
		return own.Round(0)
	}
	return c.is.Add(own.Sub(c.at))
}

// set takes note of what the store's clock has shown between two times. Nothing
// changes if it may have shown that by what is known already: an answer that took long
// says little.
func (c *clock) set(asked, answered, shown time.Time) {
	if shown.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	took, now := answered.Sub(asked), c.then(answered)
	if late := now.Sub(shown); c.at.IsZero() || late < 0 || late > took {
		c.at, c.is = answered, shown.Round(0).Add(took/2)
	}
}

// renew renews the lease of this node, and sets the clock by the answer.
func (e *Engine) renew(ctx context.Context, ttl time.Duration) error {
	t, ok := e.cfg.Store.(store.Timekeeper)
	if !ok {
		return e.cfg.Store.Renew(ctx, e.cfg.Node, ttl)
	}
	asked := e.clock.own()
	now, err := t.RenewAt(ctx, e.cfg.Node, ttl)
	if err == nil {
		e.clock.set(asked, e.clock.own(), now)
	}
	return err
}

// Now returns the time that all processes that share the store go by.
func (e *Engine) Now() time.Time { return e.clock.now() }

// Until returns how long it is until a time of that clock.
func (e *Engine) Until(t time.Time) time.Duration { return t.Sub(e.Now()) }

type clockKey struct{}

// WithClock returns a context with which Open takes the function for the clock of
// this process. It is for tests.
func WithClock(ctx context.Context, now func() time.Time) context.Context {
	return context.WithValue(ctx, clockKey{}, now)
}

// clockOf returns the clock of the context.
func clockOf(ctx context.Context) func() time.Time {
	if now, ok := ctx.Value(clockKey{}).(func() time.Time); ok {
		return now
	}
	return time.Now
}
