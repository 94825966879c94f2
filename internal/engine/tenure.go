package engine

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrLeaseLapsed is why work stops when this process could not renew its lease:
// others may take its instances over. The work goes on when a renewal succeeds
// again, here or wherever it was taken over.
var ErrLeaseLapsed = errors.New("the lease in the store could not be renewed in time, so that another process may own the instance: the work has stopped until a renewal succeeds")

// A term is a time during which this process may act on what it owns. Leases of
// instances are good for the term in which they were got.
type term struct {
	ctx    context.Context // ends with ErrLeaseLapsed, or with the engine
	cancel context.CancelCauseFunc
}

// A tenure is what this process knows of its own lease. The lease lasts for ttl
// from a renewal by the store's clock, and here for half of that from before the
// renewal was asked for: what is stopped then has stopped before anybody can take
// over. Time is monotonic, so a clock that is set has no effect.
type tenure struct {
	ttl    time.Duration
	engine context.Context

	mu      sync.Mutex
	renewed time.Time     // when the latest renewal that succeeded was asked for
	term    *term         // the latest one
	next    chan struct{} // closed when the next term begins; nil during a term
	lapsed  chan struct{} // has a value when a term has ended that nobody was told of
}

// begin begins the first term.
func (t *tenure) begin(engine context.Context, ttl time.Duration, renewed time.Time) {
	t.engine, t.ttl, t.renewed = engine, ttl, renewed
	t.lapsed = make(chan struct{}, 1)
	t.term = newTerm(engine)
}

func newTerm(engine context.Context) *term {
	ctx, cancel := context.WithCancelCause(engine)
	return &term{ctx, cancel}
}

// patience is how long after a renewal this process acts.
func (t *tenure) patience() time.Duration { return t.ttl / 2 }

// now returns the term that lasts, or the one that has ended last. A lease must
// be marked with the term of the moment before it was asked for.
func (t *tenure) now() *term {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.term
}

// holds returns nil if what was got in the term may still be acted on. It looks
// at the time itself: after a pause of the whole process nobody may have been told
// yet that the term is over.
func (t *tenure) holds(of *term) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.look()
	if of != t.term || t.next != nil {
		return ErrLeaseLapsed
	}
	return nil
}

// look ends the term if its time is up. The lock is held.
func (t *tenure) look() {
	if t.next != nil || time.Since(t.renewed) < t.patience() {
		return
	}
	t.next = make(chan struct{})
	t.term.cancel(ErrLeaseLapsed)
	t.lapsed <- struct{}{} // there is room: who begins a term has taken the last one
}

// left is how long the term lasts without another renewal.
func (t *tenure) left() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.look()
	return t.patience() - time.Since(t.renewed)
}

// renew notes that a renewal that was asked for at the time has succeeded. It
// reports whether that begins a term, and whether the end of the one before has
// been told by nobody.
func (t *tenure) renew(asked time.Time) (began, untold bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.look()
	if asked.After(t.renewed) {
		t.renewed = asked
	}
	if t.next == nil || time.Since(t.renewed) >= t.patience() {
		return false, false
	}
	select {
	case <-t.lapsed:
		untold = true
	default:
	}
	t.term = newTerm(t.engine)
	close(t.next)
	t.next = nil
	return true, untold
}

// pending returns a channel that is closed when the next term begins, or nil
// during a term.
func (t *tenure) pending() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.look()
	return t.next
}

// await waits until there is a term. It reports false if the engine closes first.
func (e *Engine) await() bool {
	for {
		next := e.tenure.pending()
		if next == nil {
			return true
		}
		select {
		case <-next:
		case <-e.drain:
			return false
		case <-e.ctx.Done():
			return false
		}
	}
}

// How often a renewal is asked for, as parts of what a term lasts without one,
// and after one that has failed.
const (
	renewals = 2
	retries  = 10
)

// A keeper renews this process's lease until it is stopped. It asks the store in
// a goroutine of its own, so that a store that does not answer keeps it from
// nothing.
type keeper struct {
	e       *Engine
	answers chan answer
	asking  bool
	failing error // of the latest renewal
	late    *time.Timer
	ask     *time.Timer
}

type answer struct {
	asked time.Time
	err   error
}

// keep runs until stop is closed.
func (e *Engine) keep(stop <-chan struct{}) {
	patience := e.tenure.patience()
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.ctx)) // it is kept as long as there is work
	defer cancel()
	k := &keeper{e: e, answers: make(chan answer, 1), late: time.NewTimer(patience), ask: time.NewTimer(patience / renewals)}
	defer k.late.Stop()
	defer k.ask.Stop()
	for {
		select {
		case <-stop:
			cancel()
			k.leave()
			return
		case <-k.late.C:
			if left := e.tenure.left(); left > 0 {
				k.late.Reset(left)
			}
		case <-e.tenure.lapsed:
			k.tellLapse()
		case <-k.ask.C:
			if !k.asking {
				k.renew(ctx)
			}
		case a := <-k.answers:
			k.asking = false
			k.take(a)
		}
	}
}

// renew asks for a renewal. One that takes longer than a term lasts says nothing.
func (k *keeper) renew(ctx context.Context) {
	k.asking = true
	e, answers := k.e, k.answers
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, e.tenure.patience())
	go func() {
		defer cancel()
		answers <- answer{asked, e.renew(ctx, e.cfg.LeaseTTL)}
	}()
}

// leave waits a moment for a renewal that is under way.
func (k *keeper) leave() {
	if !k.asking {
		return
	}
	grace := time.NewTimer(k.e.cfg.Grace)
	defer grace.Stop()
	select {
	case <-k.answers:
	case <-grace.C:
		k.e.cfg.Log.Warn("the store does not answer a renewal of the node's lease", "node", k.e.cfg.Node)
	}
}

func (k *keeper) take(a answer) {
	e, patience := k.e, k.e.tenure.patience()
	e.ailments.note(a.err)
	if a.err != nil {
		if k.failing == nil {
			e.cfg.Log.Warn("renewing the node's lease failed; it is tried again", "node", e.cfg.Node, "error", a.err)
		}
		k.failing = a.err
		k.ask.Reset(patience / retries)
		return
	}
	k.failing = nil
	began, untold := e.tenure.renew(a.asked)
	if untold {
		k.tellLapse()
	}
	if began {
		k.tellTerm()
	}
	k.ask.Reset(max(patience/renewals-time.Since(a.asked), patience/retries))
	if left := e.tenure.left(); left > 0 {
		k.late.Reset(left)
	}
}

// tellLapse says that the term is over.
func (k *keeper) tellLapse() {
	e := k.e
	cause := k.failing
	if cause == nil {
		cause = errors.New("the store has not answered")
	}
	e.cfg.Log.Error("this node could not renew its lease, and others may take its instances over: its work has stopped until it can",
		"node", e.cfg.Node, "after", e.tenure.patience(), "error", cause)
	e.cfg.Observe(Event{Type: EventLeaseLapsed, Time: time.Now(), Error: cause})
}

// tellTerm says that a new term has begun, and sees to it that work goes on.
func (k *keeper) tellTerm() {
	e := k.e
	e.cfg.Log.Warn("this node has renewed its lease, and its work goes on", "node", e.cfg.Node)
	e.cfg.Observe(Event{Type: EventLeaseRenewed, Time: time.Now()})
	e.begin(e.releaseStale)
	select {
	case e.scan <- struct{}{}:
	default:
	}
}

// releaseStale gives back the idle instances of terms that are over: what is
// remembered of them may have been overtaken. The next message takes them anew.
func (e *Engine) releaseStale() {
	leases := e.slots.stale(e.tenure.now(), e.shared())
	if len(leases) == 0 {
		return
	}
	if err := e.cfg.Store.Release(e.writes, leases...); err != nil {
		e.cfg.Log.Warn("giving idle instances back after the lease had lapsed", "error", err)
	}
}

// holds returns nil if the driver may still act on its lease.
func (d *driver) holds() error { return d.e.tenure.holds(d.term) }

// A paused attempt was cut because the lease had lapsed.
type paused struct {
	submission string
	attempts   int
}

// pause notes an attempt that was cut because the lease has lapsed, so that taking
// it up again is not counted as another.
func (d *driver) pause() {
	if d.attempt != nil && d.state.Active != nil && d.holds() != nil {
		d.paused = &paused{d.state.Active.Submission, d.state.Active.Attempts}
	}
	d.slot.mu.Lock()
	defer d.slot.mu.Unlock()
	d.slot.paused = d.paused
}
