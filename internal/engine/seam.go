package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

// join puts a submission's message in front of the model: the active one's, or
// that of one that joins the response. What the start hooks do lands with the
// message in one batch, so that a crash before it leaves nothing and all of them
// run again.
func (d *driver) join(sub *fold.Submission) error {
	if err := d.ensureAttempt(); err != nil || d.attempt == nil {
		return err
	}
	if err := d.render(d.attempt, sub.Message); err != nil {
		return d.refuseJoin(sub, err)
	}
	if d.plan == nil {
		return nil
	}
	var observers []Hook
	start := d.plan.Start
	if sub == d.state.Active {
		if err := d.askable(); err != nil {
			return d.refuseJoin(sub, err)
		}
		observers = d.plan.ResponseStart
		if d.state.ExhaustedBy(d.plan.Settings.Budget) != nil { // it will be refused
			observers, start = nil, nil
		}
	}
	scope := journal.StartScope(sub.Submission)
	if len(observers)+len(d.plan.Before)+len(start) == 0 {
		if err := d.enter(sub); err != nil {
			return err
		}
		d.current = true // the render was for this message
		return nil
	}
	// The attempt must be durable before anything has an effect.
	if err := d.commit(); err != nil {
		return err
	}
	var units []*unit
	for _, part := range []struct {
		hooks    []Hook
		scope    string
		together bool
	}{{observers, "", false}, {d.plan.Before, scope, false}, {start, scope, true}} {
		if len(part.hooks) == 0 {
			continue
		}
		u := d.newUnit()
		defer u.close()
		u.seam = true
		if ok, err := d.hooks(d.attempt, u, part.hooks, part.scope, part.together); !ok {
			return d.refuseJoin(sub, err)
		}
		units = append(units, u)
	}
	return d.enter(sub, units...)
}

// refuseJoin fails the response because a submission's start has failed. The
// message is added first: the conversation shows what was asked. It does nothing
// if err is nil, which means that the attempt has ended.
func (d *driver) refuseJoin(sub *fold.Submission, err error) error {
	var end *ending
	if !errors.As(err, &end) {
		return err
	}
	if err := d.enter(sub); err != nil {
		return err
	}
	return d.endWith(end)
}

// enter stages a submission's message with what its start hooks have made.
func (d *driver) enter(sub *fold.Submission, units ...*unit) error {
	if err := d.stage(&journal.Entry{
		ID: entryID(sub.Submission), Submission: sub.Submission, Purpose: journal.Input,
		Turn: d.state.Response.Turn, Message: sub.Message,
	}); err != nil {
		return err
	}
	if err := d.stageSeam(units...); err != nil {
		return err
	}
	seam := &journal.Seam{Name: journal.SeamStart, Submission: sub.Submission}
	if sub == d.state.Active {
		seam.Response = d.responseID()
		if d.plan != nil {
			settings := d.plan.Settings
			seam.Settings = &settings
		}
	}
	err := d.stage(seam)
	if err == nil && len(sub.Message.Body) > largeMessage {
		err = d.commit()
	}
	return err
}

// largeMessage is the size above which a message is appended in a batch of its
// own, so that batches stay small.
const largeMessage = 1 << 20

// finish runs the finish hooks, which may send the model back to work, and
// closes the response if they do not.
func (d *driver) finish() error {
	if !d.current {
		ctx, cancel := d.closing()
		defer cancel()
		if err := d.render(ctx, *d.state.Delivery); err != nil {
			return d.endWith(err)
		}
		if d.plan == nil {
			return d.cut(d.cause())
		}
	}
	u := d.newUnit()
	defer u.close()
	u.seam, u.live = true, true
	if len(d.plan.Finish) > 0 {
		if done, err := d.finishHooks(u); !done {
			return err
		}
	}
	if len(d.plan.ResponseFinish) > 0 {
		if err := d.commit(); err != nil { // what is observed has happened
			return err
		}
		ctx, cancel := d.closing()
		defer cancel()
		if ok, err := d.hooks(ctx, u, d.plan.ResponseFinish, "", false); !ok {
			if err == nil {
				return d.cut(d.cause())
			}
			return d.endWith(err)
		}
	}
	if err := d.stageSeam(u); err != nil {
		return err
	}
	return d.stage(&journal.Seam{Name: journal.SeamClosed, Submission: d.state.Active.Submission, WorkMS: d.worked()})
}

// maxCycles bounds how often finish hooks may send the model back to work in
// one response.
const maxCycles = 32

// finishHooks runs the finish hooks. It reports true if the response may be
// closed, with what they wrote still in the unit.
func (d *driver) finishHooks(u *unit) (done bool, err error) {
	if err := d.ensureAttempt(); err != nil || d.attempt == nil {
		return false, err
	}
	if cause := d.ended(); cause != nil {
		return false, d.cut(cause)
	}
	if err := d.commit(); err != nil {
		return false, err
	}
	ok, err := d.hooks(d.attempt, u, d.plan.Finish, "", false)
	switch {
	case err != nil:
		return false, d.endWith(err)
	case !ok:
		return false, d.cut(d.cause())
	}
	// What the hooks have sent to their own instance is there by now, and joins.
	if err := d.intake(); err != nil {
		return false, err
	}
	seam := &journal.Seam{Submission: d.state.Active.Submission}
	switch continued := u.continues(); {
	case d.state.Response.Concluding != nil: // what they have appended is for the next response
		return true, nil
	case continued && d.state.Response.Cycles >= maxCycles:
		return false, d.endWith(operationFailed(d.operation(), fmt.Sprintf("its finish hooks sent the model back to work more than %d times in one response", maxCycles)))
	case continued:
		seam.Name = journal.SeamCycle
	case d.state.Joinable() != nil && !d.alone: // it came meanwhile, and goes first
		seam.Name = journal.SeamFinish
	default:
		return true, nil
	}
	if err := d.stageSeam(u); err != nil {
		return false, err
	}
	seam.WorkMS = d.worked()
	return false, d.stage(seam)
}

// cause is why what a finished response still does was cut.
func (d *driver) cause() error {
	if err := d.ended(); err != nil {
		return err
	}
	if d.e.ctx.Err() != nil {
		return errClosing
	}
	return errDeadline
}

// closing is the context of what a finished response still does. It does not
// end with the attempt: a response that is complete is settled as completed even
// when its time is up, or somebody wants to abort it.
func (d *driver) closing() (context.Context, context.CancelFunc) {
	if d.attempt != nil && d.attempt.Err() == nil {
		return d.attempt, func() {}
	}
	return context.WithTimeout(d.term.ctx, d.e.cfg.Grace)
}

// continues reports whether a hook has appended a signal.
func (u *unit) continues() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.ContainsFunc(u.works, func(w *Work) bool { return len(w.appended) > 0 })
}

// stageSeam stages what the works of a seam have made: their signals, in the
// order of the hooks' declaration, then their writes, then what clients see.
func (d *driver) stageSeam(units ...*unit) error {
	var signals, writes, shown []journal.Record
	for _, u := range units {
		u.mu.Lock()
		var vars []journal.VarWrite
		for _, w := range u.works {
			for _, m := range w.appended {
				signals = append(signals, &journal.Entry{
					ID: newID("entry_"), Submission: d.state.Active.Submission, Purpose: journal.Appended,
					Turn: d.state.Response.Turn, Message: m,
				})
			}
			vars = append(vars, w.writes...)
			for i := range w.data {
				shown = append(shown, &w.data[i])
			}
			for _, m := range w.metadata {
				shown = append(shown, &journal.Metadata{Value: []byte(m)})
			}
		}
		u.mu.Unlock()
		slices.SortFunc(vars, func(a, b journal.VarWrite) int { return cmp.Compare(a.Seq, b.Seq) })
		for _, v := range vars {
			writes = append(writes, &journal.State{Name: v.Name, Value: v.Value})
		}
	}
	for _, r := range slices.Concat(signals, writes, shown) {
		switch r := r.(type) {
		case *journal.Data:
			d.address(r)
		case *journal.Metadata:
			r.Response, r.Submission, r.Opens = d.responseID(), d.state.Active.Submission, !d.state.Response.Started()
		}
		if err := d.stage(r); err != nil {
			return err
		}
	}
	return nil
}

// hooks runs the callbacks of a seam, side by side or one after another. It
// reports false if one has failed, or, with a nil error, if the attempt ended
// first.
func (d *driver) hooks(ctx context.Context, u *unit, hooks []Hook, scope string, together bool) (ok bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &seam{driver: d, unit: u, hooks: hooks, scope: scope, results: make(chan error, len(hooks))}
	done := ctx.Done()
	var grace <-chan time.Time
	for s.begun < len(hooks) || s.running > 0 {
		for s.begun < len(hooks) && (together || s.running == 0) {
			if d.holds() != nil { // its context has ended, too
				s.begun = len(hooks)
				break
			}
			s.start(ctx)
		}
		select {
		case result := <-s.results:
			if s.running--; result != nil && err == nil {
				err = result
				s.begun = len(hooks)
				cancel()
			}
		case req := <-u.requests:
			if err := d.serve(u, req); err != nil {
				return false, err
			}
		case <-done:
			done, s.begun = nil, len(hooks)
			timer := time.NewTimer(d.e.cfg.Grace)
			defer timer.Stop()
			grace = timer.C
		case <-grace:
			s.running = 0 // left behind
		case <-d.slot.wake:
			if err := d.intake(); err != nil {
				return false, err
			}
		}
	}
	for _, w := range s.works {
		w.end()
	}
	switch {
	case d.holds() != nil:
		return false, nil
	case err != nil && (d.attempt == nil || d.attempt.Err() == nil):
		return false, internalFailure(err)
	case done == nil && err == nil, err != nil:
		return false, nil // it was cut, and what it made with it
	}
	return true, nil
}

// A seam is a set of callbacks that are being run.
type seam struct {
	*driver
	unit    *unit
	hooks   []Hook
	scope   string
	works   []*Work
	begun   int
	running int
	results chan error // has room for every callback, so that none blocks
}

// start runs the next callback in a goroutine of its own.
func (s *seam) start(ctx context.Context) {
	hook := s.hooks[s.begun]
	s.begun++
	s.running++
	w := s.unit.add(&Work{Hook: hook.Name, Response: s.soFar(s.works), Epoch: s.lease.Epoch, scope: s.scope, memo: maps.Clone(s.state.Steps[s.scope])})
	w.Log = slog.New(&callLog{emit: s.logTo(w)})
	s.works = append(s.works, w)
	e, addr := s.e, s.slot.addr
	e.wg.Go(func() {
		err := errors.New("it ended its goroutine")
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("it panicked: %v\n%s", p, debug.Stack())
			}
			if err != nil {
				err = fmt.Errorf("%s of agent %s: %w", hook.Name, addr.Agent, err)
			}
			s.results <- err
		}()
		err = hook.Run(ctx, w)
	})
}

// soFar is what the response has done, with the metadata that earlier callbacks
// of the seam have attached.
func (s *seam) soFar(earlier []*Work) ResponseSoFar {
	r := &s.state.Response
	out := ResponseSoFar{Calls: slices.Clone(r.Ran), Usage: r.Usage, Budget: r.Concluding, Cost: r.Cost, Metadata: slices.Clone(r.Metadata)}
	s.unit.mu.Lock()
	defer s.unit.mu.Unlock()
	for _, w := range earlier {
		out.Metadata = append(out.Metadata, w.metadata...)
	}
	return out
}

// logTo returns where the lines go that a hook logs.
func (s *seam) logTo(w *Work) func(LogLine) {
	e, addr, sub := s.e, s.slot.addr, s.state.Active.Submission
	return func(line LogLine) {
		if e.hasEnded() {
			return
		}
		e.cfg.Observe(Event{Type: EventLog, Time: time.Now(), Instance: addr, Submission: sub, Hook: w.Hook, Log: &line})
	}
}
