package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// A driver runs one instance until there is nothing left to do. It applies
// each record to the state as it stages it, and appends what is staged before
// anything that the records justify can be seen outside.
type driver struct {
	e       *Engine
	slot    *slot
	program Program
	lease   store.Lease
	*memory

	doom    error // why what an earlier driver had made could not be stored
	fresh   bool  // what a dead process left behind has not been put in order
	resumed bool  // the open batch of calls was begun by an earlier driver
	staged  []journal.Record
	events  []Event // told when what is staged is durable
	idle    int     // acts since the last append

	// attempt is the context of the work on the active submission. It ends
	// with errAborted, errDeadline or errClosing as its cause.
	attempt context.Context
	cancel  context.CancelCauseFunc
	stop    context.CancelFunc

	plan    *Plan // the latest render
	current bool  // nothing has changed since that a render reads
	waited  int   // the count of failures in a row that the driver has paused for
}

// errRest ends a driver that has put its instance to rest.
var errRest = errors.New("nothing left to do")

// errReleased ends a driver that gave its work up because the engine closes.
var errReleased = errors.New("released")

// drive runs drivers for the slot until the instance rests. A driver that
// fails has lost track of what is durable; the next one reads it anew.
func (e *Engine) drive(s *slot) {
	for failures := 0; ; failures++ {
		err := e.driveOnce(s)
		switch {
		case err == nil, errors.Is(err, errReleased):
			return
		case isDamage(err):
			e.damaged(s, err)
			return
		case errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrPoisoned), e.ctx.Err() != nil:
			if errors.Is(err, store.ErrPoisoned) {
				e.cfg.Log.Error("the store takes no more writes; start the program again once the cause is gone", "instance", s.addr.String(), "error", err)
			}
			e.slots.drop(s)
			return
		case errors.Is(err, store.ErrTooLarge): // and it would be again
			s.mu.Lock()
			s.doom = err
			s.mu.Unlock()
		}
		fenced := errors.Is(err, store.ErrFenced)
		if !fenced {
			e.cfg.Log.Error("driving an instance", "instance", s.addr.String(), "error", err)
			if !pause(e.ctx, e.drain, backoff(failures, 250*time.Millisecond, 30*time.Second)) {
				e.slots.drop(s)
				return
			}
		}
		if !e.retake(s) {
			return
		}
	}
}

// retake gets the slot a new lease after a failure, however long the store
// takes to answer: the store still counts the instance as this node's, so nobody
// else would take it up. It reports false if another process owns the instance
// now, or the engine closes.
func (e *Engine) retake(s *slot) bool {
	for failures := 0; ; failures++ {
		lease, err := e.cfg.Store.Take(e.ctx, e.cfg.Node, s.addr)
		if err == nil {
			s.mu.Lock()
			s.lease, s.mem, s.inbox = lease, nil, nil
			s.mu.Unlock()
			return true
		}
		if isDamage(err) {
			e.damaged(s, err)
			return false
		}
		if !errors.Is(err, store.ErrOwned) {
			e.cfg.Log.Error("taking an instance up again", "instance", s.addr.String(), "error", err)
		}
		if errors.Is(err, store.ErrOwned) || errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrPoisoned) ||
			!pause(e.ctx, e.drain, backoff(failures, 250*time.Millisecond, 30*time.Second)) {
			e.slots.drop(s)
			return false
		}
	}
}

// isDamage reports whether err means that the journal itself cannot be
// continued, so that trying again is no help.
func isDamage(err error) bool {
	var rule *fold.RuleError
	var format *journal.FormatError
	return errors.As(err, &rule) || errors.As(err, &format) || errors.Is(err, store.ErrCorrupt)
}

// damaged sets an instance aside. The lease is kept so that nobody tries the
// same again; other instances go on.
func (e *Engine) damaged(s *slot, err error) {
	e.cfg.Log.Error("an instance's journal cannot be continued; it is set aside until this program starts again", "instance", s.addr.String(), "error", err)
	s.mu.Lock()
	s.damage = err
	s.mu.Unlock()
	e.hub.poke(s.addr)
	e.cfg.Observe(Event{Type: EventDamaged, Time: time.Now(), Instance: s.addr, Error: err})
}

func (e *Engine) driveOnce(s *slot) (err error) {
	s.mu.Lock()
	d := &driver{e: e, slot: s, program: e.cfg.Programs[s.addr.Agent], lease: s.lease, memory: s.mem}
	d.doom, s.doom = s.doom, nil
	s.mem = nil
	s.mu.Unlock()
	defer d.endAttempt()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("driver panicked: %v\n%s", p, debug.Stack())
		}
	}()
	if d.memory == nil {
		if err := d.load(); err != nil {
			return err
		}
	}
	return d.run()
}

// load folds the journal from its start.
func (d *driver) load() (err error) {
	d.memory = newMemory()
	d.fresh = true
	d.state, err = d.e.fold(d.e.ctx, d.slot.addr)
	return err
}

// fold reads the journal of an instance from its start, past whatever a repair
// passes over.
func (e *Engine) fold(ctx context.Context, addr store.Address) (*fold.State, error) {
	st, err := fold.Replay(e.batches(ctx, addr))
	var damage *fold.DamageError
	switch {
	case errors.As(err, &damage):
		return nil, fmt.Errorf("offset %d of %s: %w", damage.Offset, addr, err)
	case err != nil:
		return nil, fmt.Errorf("reading the journal of %s: %w", addr, err)
	}
	return st, nil
}

// batches ranges over the whole journal of an instance.
func (e *Engine) batches(ctx context.Context, addr store.Address) fold.Batches {
	return func(yield func(fold.Batch, error) bool) {
		for b, err := range store.Batches(ctx, e.cfg.Store, addr, -1) {
			fb := fold.Batch{Offset: b.Offset}
			var unreadable *store.BatchError
			if errors.As(err, &unreadable) {
				fb.Err, err = err, nil
			} else if err == nil {
				var batch journal.Batch
				batch, fb.Err = journal.Decode(b.Payload)
				fb.Records = batch.Records
			}
			if !yield(fb, err) {
				return
			}
		}
	}
}

const loadPage = 1000

// apply folds a batch that is in the journal.
func apply(st *fold.State, addr store.Address, offset int64, b journal.Batch) error {
	for _, r := range b.Records {
		if err := st.Apply(r); err != nil {
			return fmt.Errorf("offset %d of %s: %w", offset, addr, err)
		}
	}
	st.Advance(offset)
	return nil
}

// maxActs bounds the acts between two appends. A correct driver needs a few.
const maxActs = 64

// run does one act after another until the instance rests.
func (d *driver) run() error {
	for {
		if err := d.intake(); err != nil {
			return err
		}
		if d.idle++; d.idle > maxActs {
			return fmt.Errorf("no progress in phase %s after %d acts", d.state.Phase, maxActs)
		}
		err := d.act()
		if errors.Is(err, errRest) {
			return nil
		}
		if err == nil && len(d.staged) >= maxStaged {
			err = d.commit()
		}
		if err != nil {
			return err
		}
	}
}

// maxStaged bounds the records of a batch when many short acts follow each
// other, as when a long queue joins at once.
const maxStaged = 64

// act does what the phase calls for.
func (d *driver) act() error {
	if d.fresh {
		return d.takeOver()
	}
	st := d.state
	if st.Active != nil {
		if cause := d.ended(); cause != nil && st.Phase != fold.Finish && st.Phase != fold.Closed {
			return d.cut(cause)
		}
	}
	switch st.Phase {
	case fold.Idle:
		return d.next()
	case fold.Input:
		return d.join(st.Active)
	case fold.Model:
		if sub := st.Joinable(); sub != nil {
			return d.join(sub)
		}
		return d.turn()
	case fold.Tools:
		return d.tools()
	case fold.Finish:
		if sub := st.Joinable(); sub != nil && d.ended() == nil {
			return d.join(sub)
		}
		return d.finish()
	case fold.Closed:
		return d.settle(journal.Completed, nil)
	}
	return fmt.Errorf("no act for phase %s", st.Phase)
}

// next begins the submission at the head of the queue, or rests.
func (d *driver) next() error {
	st := d.state
	if len(st.Queue) == 0 {
		return d.rest()
	}
	head := st.Queue[0]
	if head.Aborted {
		return d.settleQueued(head)
	}
	if d.draining() {
		return d.giveUp("")
	}
	budget := d.program.Budget()
	return d.begin(head, &journal.Attempt{
		Submission: head.Submission, Ordinal: 1, Node: d.e.cfg.Node, Reason: "first",
		Deadline: time.Now().Add(budget.Timeout).UnixMilli(), MaxAttempts: budget.MaxAttempts,
	})
}

// begin stages an attempt and gives it its context.
func (d *driver) begin(sub *fold.Submission, r *journal.Attempt) error {
	if err := d.stage(r); err != nil {
		return err
	}
	d.emit(Event{Type: EventAttemptStarted, Submission: r.Submission, Attempt: r.Ordinal, Reason: r.Reason})
	ctx, cancel := context.WithCancelCause(d.e.ctx)
	d.cancel = cancel
	d.attempt, d.stop = context.WithDeadlineCause(ctx, time.UnixMilli(sub.Deadline), errDeadline)
	return nil
}

// ensureAttempt begins an attempt if none is under way, or ends the submission
// if it has none left, after which there is still none.
func (d *driver) ensureAttempt() error {
	if d.attempt != nil {
		return nil
	}
	sub := d.state.Active
	switch {
	case sub.Fruitless >= max(sub.MaxAttempts, 1):
		return d.terminate(journal.Failed, exhausted(sub.Fruitless, sub.MaxAttempts))
	case sub.Attempts >= maxAttempts:
		return d.terminate(journal.Failed, exhausted(sub.Attempts, maxAttempts))
	}
	return d.begin(sub, &journal.Attempt{
		Submission: sub.Submission, Ordinal: sub.Attempts + 1, Node: d.e.cfg.Node, Reason: "recovered in phase " + d.state.Phase.String(),
	})
}

// maxAttempts bounds the attempts at one submission that are interrupted, even
// if each of them achieves something: a tool that kills its process is called
// again by a model that does not know.
const maxAttempts = 100

// hold waits before another attempt if the ones before it have achieved nothing,
// so that a message that kills its process does not keep it from all other work.
// It returns early if there is something else to do.
func (d *driver) hold() error {
	n := d.state.Active.Fruitless - 2
	if n < 0 {
		return nil
	}
	wait := min(backoff(n, holdBase, holdMost), time.Until(time.UnixMilli(d.state.Active.Deadline)))
	d.recovered(Event{Reason: fmt.Sprintf("%d attempts in a row have achieved nothing; the next one waits %s", n+2, wait.Round(time.Millisecond))})
	if err := d.commit(); err != nil {
		return err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for !d.state.Active.Aborted {
		select {
		case <-timer.C:
			return nil
		case <-d.e.ctx.Done():
			return nil
		case <-d.e.drain:
			return d.giveUp("")
		case <-d.slot.wake:
			if err := d.intake(); err != nil {
				return err
			}
		}
	}
	return nil
}

// The first and the longest wait before another attempt.
const (
	holdBase = 500 * time.Millisecond
	holdMost = 30 * time.Second
)

func (d *driver) endAttempt() {
	if d.attempt != nil {
		d.stop()
		d.cancel(nil)
		d.attempt = nil
	}
}

// ended returns why the work on the active submission must stop, or nil.
func (d *driver) ended() error {
	switch {
	case d.state.Active.Aborted:
		return errAborted
	case d.attempt == nil: // between takeover and the attempt
		return nil
	case d.attempt.Err() != nil:
		return context.Cause(d.attempt)
	case d.draining() && (d.state.Phase == fold.Model || d.state.Phase == fold.Input):
		return errClosing
	}
	return nil
}

func (d *driver) draining() bool {
	select {
	case <-d.e.drain:
		return true
	default:
		return false
	}
}

// rest appends what is left and lets the slot become idle.
func (d *driver) rest() error {
	if err := d.commit(); err != nil {
		return err
	}
	d.plan, d.current = nil, false
	evicted, ok := d.e.slots.rest(d.slot, d.memory)
	if !ok {
		return nil // something has arrived
	}
	if len(evicted) > 0 {
		if err := d.e.cfg.Store.Release(d.e.ctx, evicted...); err != nil {
			d.e.cfg.Log.Error("giving idle instances back", "error", err)
		}
	}
	return errRest
}

// giveUp leaves the instance to whoever comes next because the engine closes.
func (d *driver) giveUp(submission string) error {
	if submission != "" {
		if err := d.stage(&journal.Release{Submission: submission, Node: d.e.cfg.Node}); err != nil {
			return err
		}
		d.emit(Event{Type: EventReleased, Submission: submission, Reason: errClosing.Error()})
	}
	if err := d.commit(); err != nil {
		return err
	}
	d.e.slots.drop(d.slot)
	if err := d.e.cfg.Store.Release(d.storeContext(), d.lease); err != nil {
		return fmt.Errorf("giving %s up: %w", d.slot.addr, err)
	}
	return errReleased
}
