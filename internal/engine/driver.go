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
	term    *term // in which the lease was got
	*memory

	doom     error   // why what an earlier driver had made could not be stored
	paused   *paused // the attempt of an earlier driver that was cut because the lease had lapsed
	place    *place
	left     bool // the slot is not its own any more: it rests, or was given up
	served   bool // it has settled a message: the next one may wait for others
	alone    bool // no further message joins the response, because others wait
	fresh    bool // what a dead process left behind has not been put in order
	resumed  bool // the open batch of calls was begun by an earlier driver
	staged   []journal.Record
	attached []store.Attachment // to be stored with what is staged
	events   []Event            // told when what is staged is durable
	idle     int                // acts since the last append
	appended bool               // there was one

	// attempt is the context of the work on the active submission. It ends
	// with errAborted, errDeadline, errClosing or ErrLeaseLapsed as its cause.
	attempt context.Context
	cancel  context.CancelCauseFunc
	stop    context.CancelFunc

	began    time.Time // when the attempt began
	recorded time.Time // up to when the time since then is in the journal
	plan     *Plan     // the latest render
	current  bool      // nothing has changed since that a render reads
	waited   string    // the failed turn after which the driver has paused
	without  string    // behind which no summary could be had, so that the next turn goes without; see behind
}

// errRest ends a driver that has put its instance to rest.
var errRest = errors.New("nothing left to do")

// errReleased ends a driver that gave its work up because the engine closes.
var errReleased = errors.New("released")

// A notReleased ends a driver that gave its work up, which the store has not taken
// back, as far as is known.
type notReleased struct{ err error }

func (n *notReleased) Error() string { return "giving an instance up: " + n.err.Error() }

func (n *notReleased) Unwrap() error { return n.err }

// drive runs drivers for the slot until the instance rests. A driver that
// fails has lost track of what is durable; the next one reads it anew.
func (e *Engine) drive(s *slot) {
	p := &place{line: &e.line}
	passed := false
	defer func() {
		if !passed {
			e.line.leave()
		}
	}()
	faults, damages := 0, 0 // in a row
	for failures := 0; ; failures++ {
		appended, err := e.driveOnce(s, p)
		e.ailments.note(err)
		var kept *notReleased
		if appended { // that was of something else
			failures, faults, damages = 0, 0, 0
		}
		if faults++; !isFault(err) {
			faults = 0
		}
		switch {
		case err == nil:
			return
		case errors.Is(err, errReleased):
			e.follow(s)
			return
		case errors.As(err, &kept):
			e.cfg.Log.Warn("giving an instance up; it is tried again", "instance", s.addr.String(), "error", kept.err)
			e.handOff(s)
			return
		case errors.Is(err, errYielded):
			e.slots.park(s)
			if passed = e.line.pass(&s.waiter); passed {
				if e.hastens(s) {
					e.launch(s)
				}
				return
			}
			failures = -1
			continue
		case isNewer(err) && e.shared():
			e.stranger(s, err)
			return
		case errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrPoisoned):
			if errors.Is(err, store.ErrPoisoned) {
				e.cfg.Log.Error("the store takes no more writes; start the program again once the cause is gone", "instance", s.addr.String(), "error", err)
			}
			e.slots.drop(s)
			return
		case e.ctx.Err() != nil:
			e.handOff(s)
			return
		case e.overtaken(s), // whatever it has failed with
			errors.Is(err, ErrLeaseLapsed): // and has got a new one since
			if !e.retake(s, p) {
				return
			}
			continue
		case isDamage(err):
			if damages++; damages > 1 || asStored(err) {
				e.damaged(s, err)
				return
			}
			// It may not continue what the driver remembers because it was repaired.
			e.cfg.Log.Info("an instance's journal does not go on from what is known of it here; it is read again", "instance", s.addr.String(), "error", err)
			if !e.retake(s, p) {
				return
			}
			continue
		case errors.Is(err, store.ErrTooLarge), faults >= maxFaults: // and it would be again
			s.mu.Lock()
			s.doom = err
			s.mu.Unlock()
		}
		fenced := errors.Is(err, store.ErrFenced)
		if !fenced {
			e.cfg.Log.Error("driving an instance", "instance", s.addr.String(), "error", err)
			e.tell(Event{Type: EventStalled, Time: time.Now(), Instance: s.addr, Reason: "its work has failed and is begun again", Error: err})
			if !p.pause(e.ctx, e.drain, backoff(failures, 250*time.Millisecond, 30*time.Second)) {
				e.handOff(s)
				return
			}
		}
		if !e.retake(s, p) {
			return
		}
	}
}

// maxFaults is how often in a row a driver may fail by a fault of this program
// before the message that it works on fails: an attempt that never comes to an
// append counts against nothing.
const maxFaults = 5

// retake gets the slot a new lease after a failure, however long the store
// takes to answer: the store still counts the instance as this node's, so nobody
// else would take it up. While this node's own lease has lapsed it waits. It
// reports false if another process owns the instance now, or the engine closes.
func (e *Engine) retake(s *slot, p *place) bool {
	for failures := 0; ; failures++ {
		if !e.await() {
			e.handOff(s)
			return false
		}
		term := e.tenure.now()
		lease, err := e.cfg.Store.Take(term.ctx, e.cfg.Node, s.addr)
		e.ailments.note(err)
		if err == nil {
			s.mu.Lock()
			s.lease, s.term, s.mem, s.inbox = lease, term, nil, nil
			s.mu.Unlock()
			e.hub.forget(s.addr) // nothing of the old epoch lands any more
			return true
		}
		if e.tenure.holds(term) != nil {
			continue
		}
		if isDamage(err) {
			e.damaged(s, err)
			return false
		}
		if !errors.Is(err, store.ErrOwned) {
			e.cfg.Log.Error("taking an instance up again", "instance", s.addr.String(), "error", err)
		}
		if errors.Is(err, store.ErrOwned) || errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrPoisoned) {
			e.slots.drop(s)
			return false
		}
		if !p.pause(e.ctx, e.drain, backoff(failures, 250*time.Millisecond, 30*time.Second)) {
			e.handOff(s)
			return false
		}
	}
}

// overtaken reports whether the slot's lease is of a term that is over, so that
// another process may have taken the instance.
func (e *Engine) overtaken(s *slot) bool {
	s.mu.Lock()
	term := s.term
	s.mu.Unlock()
	return e.tenure.holds(term) != nil
}

// driveOnce runs one driver, and reports whether it has appended anything.
func (e *Engine) driveOnce(s *slot, p *place) (appended bool, err error) {
	e.slots.unpark(s)
	s.mu.Lock()
	d := &driver{e: e, slot: s, place: p, program: e.cfg.Programs[s.addr.Agent], lease: s.lease, term: s.term, memory: s.mem}
	d.doom, s.doom = s.doom, nil
	d.paused, s.paused = s.paused, nil
	s.mem = nil
	s.mu.Unlock()
	defer d.endAttempt()
	defer func() {
		appended = d.appended
		if err != nil {
			d.pause()
			s.goesAstray()
			err = d.damage(err)
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			err = d.panicked(p)
		}
	}()
	if err := d.holds(); err != nil {
		return false, err
	}
	if d.memory == nil {
		if err := d.load(); err != nil {
			return false, err
		}
	}
	return false, d.run()
}

// panicked returns what a driver has failed with that has panicked. What it had left
// by then it must not drive again: another driver may have it.
func (d *driver) panicked(p any) error {
	err := &fault{fmt.Errorf("driver panicked: %v\n%s", p, debug.Stack())}
	switch {
	case !d.left:
		return err
	case d.e.slots.gone(d.slot):
		return &notReleased{err}
	}
	d.e.cfg.Log.Error("after an instance has come to rest", "instance", d.slot.addr.String(), "error", err)
	return nil
}

// load reads what the driver knows of its instance from the store.
func (d *driver) load() error {
	l, err := d.e.load(d.term.ctx, d.slot.addr)
	if isDamage(err) {
		l, err = d.loadAgain()
	}
	if err != nil {
		return err
	}
	d.memory = &memory{state: l.state, backlog: l.backlog, text: l.text}
	d.slot.saved.Store(int64(l.saved))
	d.slot.knows(l.state.Head)
	if l.state.Active == nil {
		d.leaveText(d.e.Now())
	}
	d.fresh = true
	return nil
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
		if err := d.holds(); err != nil {
			return err
		}
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
		if st.Active.Command() {
			return d.command(st.Active)
		}
		return d.join(st.Active)
	case fold.Model:
		if err := d.goOn(); err != nil {
			return err
		}
		if sub := st.Command(); sub != nil {
			return d.command(sub)
		}
		if sub := st.Joinable(); sub != nil {
			return d.join(sub)
		}
		return d.turn()
	case fold.Tools:
		return d.tools()
	case fold.Finish:
		if sub := st.Joinable(); sub != nil && d.ended() == nil && !d.makesWay() {
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
	if d.e.parts() {
		return d.giveUp("")
	}
	if d.served && d.e.crowded() {
		return d.yield()
	}
	budget := d.program.Budget()
	return d.begin(head, &journal.Attempt{
		Submission: head.Submission, Ordinal: 1, Node: d.e.cfg.Node, Reason: "first",
		Deadline: d.e.Now().Add(budget.Timeout).UnixMilli(), MaxAttempts: budget.MaxAttempts,
	})
}

// begin stages an attempt and gives it its context.
func (d *driver) begin(sub *fold.Submission, r *journal.Attempt) error {
	r.Began = d.e.Now().UnixMilli()
	if err := d.stage(r); err != nil {
		return err
	}
	d.began = time.Now()
	d.recorded = d.began
	d.emit(Event{
		Type: EventAttemptStarted, Submission: r.Submission, Attempt: r.Ordinal, MaxAttempts: sub.MaxAttempts, Reason: r.Reason,
		Origin: sub.Origin, Traceparent: sub.Traceparent,
	})
	ctx, cancel := context.WithCancelCause(d.term.ctx)
	d.cancel = cancel
	d.attempt, d.stop = context.WithTimeoutCause(ctx, d.e.Until(time.UnixMilli(sub.Deadline)), errDeadline)
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
	wait := backoff(n, d.e.cfg.RetryBase/4, holdMost)
	if began := d.state.Active.Began; began != 0 {
		// It counts from when the attempt began, or lives that are shorter than the
		// wait would never try again.
		wait = min(wait, d.e.Until(time.UnixMilli(began).Add(wait)))
	}
	if wait = min(wait, d.e.Until(time.UnixMilli(d.state.Active.Deadline))); wait <= 0 {
		return nil
	}
	d.recovered(Event{Reason: fmt.Sprintf("%d attempts in a row have achieved nothing; the next one waits %s", n+2, wait.Round(time.Millisecond))})
	if err := d.commit(); err != nil {
		return err
	}
	if err := d.linger(d.term.ctx, wait); err != nil {
		return err
	}
	if d.draining() && !d.state.Active.Aborted {
		return d.giveUp("")
	}
	return nil
}

// holdMost is the longest wait before another attempt. The first is a quarter of
// that before a model call is repeated.
const holdMost = 30 * time.Second

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
	case d.holds() != nil:
		return ErrLeaseLapsed
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
	if len(d.state.Queue) > 0 { // it was taken in before what has been appended just now
		return nil
	}
	d.plan, d.current = nil, false
	if d.e.parts() {
		d.e.tell(Event{Type: EventIdle, Time: time.Now(), Instance: d.slot.addr})
		return d.giveUp("")
	}
	evicted, ok := d.e.slots.rest(d.slot, d.memory)
	if !ok {
		return nil // something has arrived
	}
	d.left = true
	d.e.tell(Event{Type: EventIdle, Time: time.Now(), Instance: d.slot.addr})
	d.e.giveBack(d.e.writes, evicted)
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
	d.left = true
	d.e.lastCheckpoint(d.slot, d.lease, d.memory)
	if err := d.e.cfg.Store.Release(d.e.writes, d.lease); err != nil {
		return &notReleased{err}
	}
	return errReleased
}
