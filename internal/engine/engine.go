// Package engine runs instances: it admits submissions, gives each active
// instance one driver, and serves what readers ask for.
//
// A driver is the one goroutine that appends to its instance's journal. It does
// the act that the folded state's phase calls for, over and over, until nothing
// is left to do; a driver that takes over from a dead process enters the same
// loop, see [driver.takeOver]. Work that may hang (a model stream, a tool, a
// render) runs in goroutines of its own, which the driver abandons when their
// time is up: it never blocks on anything but the store.
//
// The engine knows nothing of hooks. It sees an agent as a [Program].
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
)

// Config says what an engine runs and with what. Store, Programs and Models
// are required.
type Config struct {
	Store    store.Store
	Programs map[string]Program // by the agent's durable name
	Models   Resolver

	// Opened, if set, is given the engine before it begins to work: programs may
	// be run before Open returns, and may need it.
	Opened func(*Engine)

	// Node names this process among those that share the store. It must
	// differ between them.
	Node string
	// LeaseTTL is how long this process's ownership outlives its last sign of
	// life. Default 10 s.
	LeaseTTL time.Duration

	Log     *slog.Logger // default: discard
	Observe func(Event)  // called after the fact, in order for one instance; must not block

	// Grace is how long work whose context has ended may take to return before
	// it is abandoned. Default 2 s.
	Grace time.Duration
	// Retries is how often in a row a failed model call is repeated when the
	// failure may pass. Default 3; negative means never.
	Retries int
	// RetryBase is the pause before the first repeat; it doubles with each.
	// Default 2 s.
	RetryBase time.Duration

	// CacheBytes bounds the folded states of idle instances that are kept in
	// memory. Default 6 MiB.
	CacheBytes int
}

func (c *Config) withDefaults() {
	if c.Node == "" {
		c.Node = "node"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	c.LeaseTTL = orDefault(c.LeaseTTL, 10*time.Second)
	c.Grace = orDefault(c.Grace, 2*time.Second)
	c.Retries = orDefault(c.Retries, 3)
	c.RetryBase = orDefault(c.RetryBase, 2*time.Second)
	c.CacheBytes = orDefault(c.CacheBytes, 6<<20)
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// A Resolver finds the model that a specifier names.
type Resolver interface {
	// Resolve fails with an error that lists what there is.
	Resolve(specifier string) (Model, error)
}

// A Model is a resolved specifier.
type Model struct {
	Provider model.Provider
	Origin   model.Origin
	Info     model.Info
}

// An Engine runs the instances of one process. It is safe for concurrent use.
type Engine struct {
	cfg   Config
	hub   hub
	slots slots

	ctx    context.Context // ends when running work must stop at once
	cancel context.CancelCauseFunc
	drain  chan struct{} // closed when running work must stop at the next turn boundary
	scan   chan struct{} // asks the supervisor to look for work now
	ended  chan struct{} // closed when Close has done all that it can
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

var (
	errClosing  = errors.New("the runtime is shutting down")
	errAborted  = errors.New("the submission was aborted")
	errDeadline = errors.New("the submission ran out of time")
)

// ErrEnded is the error of what is asked of an engine that has been closed.
var ErrEnded = errors.New("the runtime is closed")

// hasEnded reports whether Close has done all that it can.
func (e *Engine) hasEnded() bool {
	select {
	case <-e.ended:
		return true
	default:
		return false
	}
}

// Open starts an engine. It takes up at once whatever earlier processes left
// unfinished in the store.
func Open(ctx context.Context, cfg Config) (*Engine, error) {
	cfg.withDefaults()
	if err := cfg.Store.Renew(ctx, cfg.Node, cfg.LeaseTTL); err != nil {
		return nil, fmt.Errorf("taking a lease for node %s: %w", cfg.Node, err)
	}
	e := &Engine{cfg: cfg, drain: make(chan struct{}), scan: make(chan struct{}, 1), ended: make(chan struct{})}
	e.hub.budget = tailBytes
	e.slots.init(cfg.CacheBytes)
	// The engine outlives the call that opened it.
	e.ctx, e.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if cfg.Opened != nil {
		cfg.Opened(e)
	}
	e.wg.Go(e.supervise)
	return e, nil
}

// Close stops the engine. Running responses may go on to their next turn
// boundary until ctx ends; then they are cut, which recovery repairs. Work that
// was given up is taken up again by the next process without counting as a
// failed attempt. Close returns an error if something it started did not stop.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		select { // somebody else closes it
		case <-e.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	e.closed = true
	close(e.drain)
	e.mu.Unlock()
	defer close(e.ended)

	done := make(chan struct{})
	go func() { e.wg.Wait(); close(done) }()
	select {
	case <-done:
		e.cancel(errClosing)
		e.releaseIdle()
		return nil
	case <-ctx.Done():
	}
	e.cancel(errClosing)
	patience := time.NewTimer(2*e.cfg.Grace + time.Second)
	defer patience.Stop()
	select {
	case <-done:
		e.releaseIdle()
		return nil
	case <-patience.C:
		return errors.New("closing the runtime: a model stream, tool or render ignores its context and is still running")
	}
}

// releaseIdle gives back the instances that are owned and have no work, so that
// another process need not wait for this one's lease to lapse.
func (e *Engine) releaseIdle() {
	leases := e.slots.leases()
	if len(leases) == 0 {
		return
	}
	if err := e.cfg.Store.Release(context.WithoutCancel(e.ctx), leases...); err != nil {
		e.cfg.Log.Warn("giving idle instances back; others can take them when this node's lease has lapsed", "error", err)
	}
}

// begin registers work that Close must wait for. It reports false once Close
// was called.
func (e *Engine) begin(fn func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.wg.Go(fn)
	return true
}

// supervise keeps this node's lease alive and looks for instances that have
// work and no owner. It never waits for the work itself.
func (e *Engine) supervise() {
	period := min(e.cfg.LeaseTTL/3, time.Second)
	tick := time.NewTicker(period)
	defer tick.Stop()
	renewed := time.Now()
	for {
		e.claim()
		select {
		case <-e.drain:
			return
		case <-e.scan:
		case <-tick.C:
		}
		if time.Since(renewed) < e.cfg.LeaseTTL/3 {
			continue
		}
		if err := e.cfg.Store.Renew(e.ctx, e.cfg.Node, e.cfg.LeaseTTL); err != nil {
			e.cfg.Log.Error("renewing the node's lease", "node", e.cfg.Node, "error", err)
			continue
		}
		renewed = time.Now()
	}
}

// claimPage is how many instances one claim asks for.
const claimPage = 256

func (e *Engine) claim() {
	for {
		leases, err := e.cfg.Store.Claim(e.ctx, e.cfg.Node, claimPage)
		if err != nil {
			e.cfg.Log.Error("looking for unfinished work", "error", err)
			return
		}
		for _, l := range leases {
			e.own(l)
		}
		if len(leases) < claimPage {
			return
		}
	}
}

// own takes up an instance that this process has just come to own.
func (e *Engine) own(l store.Lease) {
	if e.cfg.Programs[l.Agent] == nil {
		// The lease is kept, so that the scan does not find it again and again.
		e.cfg.Log.Warn("an instance waits for an agent that this program does not have", "instance", l.Address.String(), "agent", l.Agent)
		return
	}
	e.start(e.slots.adopt(l))
}

// start runs a driver for the slot unless it has one.
func (e *Engine) start(s *slot) {
	if s == nil || !s.occupy() {
		return
	}
	if !e.begin(func() { e.drive(s) }) {
		s.vacate()
	}
}
