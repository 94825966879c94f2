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
	"sync/atomic"
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

	// Node names this process among those that share the store. It must differ
	// between them, and between one life of a process and the next. Default: one
	// that does; of a store that only one process can have open, "node".
	Node string
	// LeaseTTL is how long this process's ownership outlives its last sign of
	// life. Default 10 s.
	LeaseTTL time.Duration

	Log     *slog.Logger // default: discard
	Observe func(Event)  // for tests: told of each event before observers are, on the goroutine that does the work

	// Grace is how long work whose context has ended may take to return before
	// it is abandoned. Default 2 s.
	Grace time.Duration
	// Retries is how often in a row a failed model call is repeated when the
	// failure may pass. Default 3; negative means never.
	Retries int
	// RetryBase is the pause before the first repeat; it doubles with each.
	// Before another attempt that may achieve as little as two before it, a
	// quarter of it is waited. Default 2 s.
	RetryBase time.Duration

	// CacheBytes bounds the folded states of idle instances that are kept in
	// memory, but for the one that was used last. Default 6 MiB; negative means
	// that none is kept.
	CacheBytes int

	// Concurrent is how many instances are worked on at the same time; see
	// [line]. Default 1000; negative means as many as there are.
	Concurrent int
	// Backlog is how many instances may wait before messages are refused: here, and
	// in a store that processes share. Default 10,000; negative means any number.
	Backlog int
	// MemoryLimit is how many bytes may be in use before messages are refused. The
	// default is 90 % of GOMEMLIMIT if that is set, and none otherwise; negative
	// means none.
	MemoryLimit int64
	// Memory says how many bytes are in use, for tests. The default asks the runtime.
	Memory func() uint64

	// StallAfter is how long work may come no further before observers are told
	// that it stalls, and told again. Default 5 minutes.
	StallAfter time.Duration

	// CheckpointEvery is how many records are appended to a journal before the
	// state is kept as a checkpoint, if the store can keep any. Default 256;
	// negative means never. With 1 there is one after every append, and the next
	// one waits for it: for tests.
	CheckpointEvery int

	// MergeAfter is how old streamed text must be, and settled, before its pieces
	// are merged, if the store can do that. Default 10 minutes; negative means
	// never.
	MergeAfter time.Duration

	// Only, if not nil, are the instances whose unfinished work this process looks
	// for. It works on others only if it has taken a message in for them that gave
	// it the ownership.
	Only []store.Address
}

func (c *Config) withDefaults() {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.LeaseTTL = orDefault(c.LeaseTTL, 10*time.Second)
	c.Grace = orDefault(c.Grace, 2*time.Second)
	c.Retries = orDefault(c.Retries, 3)
	c.RetryBase = orDefault(c.RetryBase, 2*time.Second)
	c.CacheBytes = orDefault(c.CacheBytes, 6<<20)
	c.Concurrent = orDefault(c.Concurrent, 1000)
	c.Backlog = orDefault(c.Backlog, 10_000)
	c.StallAfter = orDefault(c.StallAfter, 5*time.Minute)
	c.CheckpointEvery = orDefault(c.CheckpointEvery, checkpointRecords)
	c.MergeAfter = orDefault(c.MergeAfter, 10*time.Minute)
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

	// Losses says what the provider cannot be told of tools; nil if it has
	// nothing to say.
	Losses model.LossReporter

	// Similar are models with a name like this one's, of which nothing is known.
	Similar []string
}

// An Engine runs the instances of one process. It is safe for concurrent use.
type Engine struct {
	cfg   Config
	names []string // of the programs, in order
	hub   hub
	slots slots
	line  line

	pressure pressure

	leaving atomic.Bool // see Retire
	outside atomic.Bool // there may be work in the store that there was no place for here

	tenure tenure
	clock  clock
	doubts doubts

	ailments ailments

	offers offers
	blind  blind

	observers observers
	tap       func(Event) // see Config.Observe

	sharing   sharing
	strangers strangers

	checkpoints store.Checkpointer // nil if the store has none
	unsupported atomic.Bool        // it has said that it has none after all
	retention   retention

	ctx    context.Context // ends when running work must stop at once
	cancel context.CancelCauseFunc
	drain  chan struct{} // closed when no further model call or tool call must begin
	handed chan struct{} // closed when what could be given back at once then has been
	scan   chan struct{} // asks the supervisor to look for work now
	ended  chan struct{} // closed when Close has done all that it can
	wg     sync.WaitGroup

	warned   sync.Map     // what has been warned of
	warnings atomic.Int32 // how much

	// writes is the context of reads and writes of the store that are finished
	// while running work is stopped. It ends when the patience with them does.
	writes     context.Context
	stopWrites context.CancelFunc
	stopKeeper func() // waits for the keeper
	stopShare  func() // waits for sharing

	mu      sync.Mutex
	stopped bool // drain is closed
	closed  bool
	late    sync.WaitGroup // what was begun aside since
	over    bool           // nothing is begun any more, not even aside
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
	shared, err := sharerOf(ctx, cfg.Store)
	if err != nil {
		return nil, fmt.Errorf("looking whether other processes can have the store open: %w", err)
	}
	if cfg.Node == "" {
		cfg.Node = "node"
		if shared != nil {
			cfg.Node = nodeName()
		}
	}
	e := &Engine{cfg: cfg, drain: make(chan struct{}), handed: make(chan struct{}), scan: make(chan struct{}, 1), ended: make(chan struct{})}
	e.clock.own = clockOf(ctx)
	asked := time.Now()
	if err := e.renew(ctx, cfg.LeaseTTL); err != nil {
		return nil, fmt.Errorf("taking a lease for node %s: %w", cfg.Node, err)
	}
	e.names = sortedNames(cfg.Programs)
	e.sharing.init(e, shared)
	if e.tap = cfg.Observe; e.tap == nil {
		e.tap = tapOf(ctx)
	}
	e.cfg.Observe = e.tell
	e.checkpoints, _ = cfg.Store.(store.Checkpointer)
	e.hub.budget, e.hub.shared = tailBytes, shared != nil
	e.slots.init(cfg.CacheBytes)
	e.slots.launch = e.launch
	e.line.most, e.line.freed = cfg.Concurrent, e.placeFreed
	e.pressure.init(&cfg)
	// The engine outlives the call that opened it.
	e.ctx, e.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	e.writes, e.stopWrites = context.WithCancel(context.WithoutCancel(ctx))
	e.tenure.begin(e.ctx, cfg.LeaseTTL, asked)
	e.retention.init(e)
	if cfg.Opened != nil {
		cfg.Opened(e)
	}
	stop, kept := make(chan struct{}), make(chan struct{})
	go func() { defer close(kept); e.keep(stop) }()
	e.stopKeeper = func() { close(stop); <-kept }
	e.stopShare = e.sharing.start(context.WithoutCancel(ctx))
	e.wg.Go(e.supervise)
	e.wg.Go(e.watch)
	e.wg.Go(e.measure)
	return e, nil
}

// Stop begins what Close waits for, and returns at once: no further model call, tool
// call or hook begins, and what is given up is given back as soon as it can be. Messages
// are still accepted.
func (e *Engine) Stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return
	}
	e.stopped = true
	close(e.drain)
	go func() { // under a context that lasts: e.ctx ends before all has been given back
		defer close(e.handed)
		e.dismiss(e.writes, e.strangers.all()...)
		e.handOver(e.writes, true)
	}()
}

// Close stops the engine. Model calls, tool calls and hooks that run may go on to
// their end until ctx ends; then they are cut, which recovery repairs. Work that
// was given up is taken up again by the next process without counting as a
// failed attempt. What waits or is idle is given up at once, and every other instance
// as soon as its calls have come to their end. Close returns an error if something it
// started did not stop.
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
	e.mu.Unlock()
	e.Stop()
	defer e.observers.finish()
	defer close(e.ended)
	defer e.stopWrites()
	stopped := false
	defer func() {
		if stopped {
			e.resign()
		}
	}()
	defer e.stopKeeper()
	defer e.finishLate(ctx)
	defer e.stopShare() // from here on no signal comes that something could be begun for

	done := make(chan struct{})
	go func() { e.wg.Wait(); close(done) }()
	select {
	case <-done:
		stopped = true
		e.cancel(errClosing)
		e.parting(ctx)
		return nil
	case <-ctx.Done():
	}
	e.cancel(errClosing)
	// What has been left behind may still be written, but a store that does not
	// answer is not waited for.
	writing := time.AfterFunc(e.cfg.Grace+time.Second/2, e.stopWrites)
	defer writing.Stop()
	patience := time.NewTimer(2*e.cfg.Grace + time.Second)
	defer patience.Stop()
	select {
	case <-done:
		stopped = true
		e.parting(ctx)
		return nil
	case <-patience.C:
		return errors.New("closing the runtime: a model stream, tool, render or call of the store ignores its context and is still running")
	}
}

// parting waits until all instances are given back, but not for a store that does
// not answer.
func (e *Engine) parting(ctx context.Context) {
	e.outwait(ctx, func() { <-e.handed; e.releaseIdle(ctx) })
}

// finishLate waits likewise for what was begun aside, and has nothing begun any more.
func (e *Engine) finishLate(ctx context.Context) {
	e.mu.Lock()
	e.over = true
	e.mu.Unlock()
	e.outwait(ctx, e.late.Wait)
}

// outwait does what waits for the store, until ctx has ended and a moment has passed
// since.
func (e *Engine) outwait(ctx context.Context, do func()) {
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	grace := time.NewTimer(e.cfg.Grace)
	defer grace.Stop()
	select {
	case <-done:
	case <-grace.C:
		e.cfg.Log.Warn("the store does not answer; others can take this node's instances when its lease has lapsed", "node", e.cfg.Node)
	}
}

// releaseIdle gives back what has been left when everything has ended, so that
// another process need not wait for this one's lease to lapse. What is worth a
// checkpoint gets one, until ctx ends.
func (e *Engine) releaseIdle(ctx context.Context) {
	var leases []store.Lease
	for _, s := range e.slots.all() {
		lease, m := s.kept()
		if lease.Epoch == 0 { // it has been waiting for one
			continue
		}
		if leases = append(leases, lease); ctx.Err() == nil {
			e.lastCheckpoint(s, lease, m)
		}
	}
	if len(leases) == 0 {
		return
	}
	if err := e.cfg.Store.Release(e.writes, leases...); err != nil {
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

// aside does what waits for the store on a goroutine of its own: whoever has found out
// that it must be done may be the one who hears signals. It may be found out while Close
// waits for work to end, or by a call whose answer comes then; Close waits for it at its
// end. What is found out later is not done: the lease of this node ends, and with it
// what it could give back.
func (e *Engine) aside(do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !e.closed:
		e.wg.Go(do)
	case !e.over:
		e.late.Go(do)
	}
}

// supervise looks for instances that have work and no owner, until the engine
// closes. It never waits for the work itself.
func (e *Engine) supervise() {
	tick := time.NewTicker(min(e.cfg.LeaseTTL/3, time.Second))
	defer tick.Stop()
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	e.wg.Go(func() { // a search that does not end must not keep the engine from closing
		select {
		case <-e.drain:
			cancel()
		case <-ctx.Done():
		}
	})
	failing := false
	var strays strays
	for {
		e.dismiss(ctx, e.strangers.leases()...)
		if lead := e.strangers.lead(); lead > 0 {
			sleep(ctx, lead)
		}
		if e.tenure.pending() == nil {
			err := e.search(ctx)
			if err != nil && !failing && ctx.Err() == nil {
				e.cfg.Log.Error("looking for unfinished work", "error", err)
			}
			failing = err != nil
			e.settleDoubts(ctx)
			e.lookForStrays(ctx, &strays)
		}
		select {
		case <-e.drain:
			// There may be more since Stop: what was found last, or could not be given back.
			e.aside(func() { e.dismiss(e.writes, e.strangers.all()...) })
			return
		case <-e.scan:
		case <-tick.C:
		}
	}
}

// claimPage is how many instances one claim asks for.
const claimPage = 256

func (e *Engine) claim(ctx context.Context) error {
	agents, some := e.claimable()
	if !some {
		return nil
	}
	for {
		limit := e.claims()
		if limit == 0 {
			return nil
		}
		term := e.tenure.now()
		e.outside.Store(false)
		leases, err := e.cfg.Store.Claim(ctx, e.cfg.Node, limit, agents...)
		e.ailments.note(err)
		if err != nil {
			e.outside.Store(true)
			return err
		}
		for _, l := range leases {
			e.own(l, term)
		}
		if len(leases) < limit {
			return nil
		}
		e.outside.Store(true)
	}
}

// own takes up an instance that this process has just come to own.
func (e *Engine) own(l store.Lease, term *term) {
	if e.cfg.Programs[l.Agent] == nil {
		// The lease is kept, so that the scan does not find it again and again.
		e.cfg.Log.Warn("an instance waits for an agent that this program does not have", "instance", l.Address.String(), "agent", l.Agent)
		e.tell(Event{Type: EventStalled, Time: time.Now(), Instance: l.Address, Reason: "this program does not have its agent"})
		return
	}
	if e.strangers.knows(l.Address) {
		e.strangers.keep(l)
		return
	}
	e.start(e.slots.adopt(l, term))
}

// start runs a driver for the slot unless it has one.
func (e *Engine) start(s *slot) {
	switch {
	case s == nil:
	case e.slots.occupy(s):
		e.enter(s)
	case e.slots.gone(s):
		e.restart(s.addr)
	}
}

// restart is start for an instance whose slot was given up after it had been found.
// What has arrived is in the journal, which its next driver reads. If others share the
// store, that is told of whatever has work when it is given back.
func (e *Engine) restart(addr store.Address) {
	s := e.slots.find(addr)
	if s == nil && !e.shared() && !e.parts() {
		s = e.take(addr)
	}
	e.start(s)
}
