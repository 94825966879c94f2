package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// ErrOver is the error of code that reaches for its work after that has ended
// or was abandoned. What it meant to write is lost.
var ErrOver = errors.New("the tool call or hook is over, so it can no longer write")

// ErrStepReused is the error of a step whose name was used before in the same
// work.
var ErrStepReused = errors.New("the step's name was used before in this call; a name identifies one piece of work")

// ErrOutcomeUnknown is the error of a step that must not run twice and was begun
// by a process that died before the step had a result.
var ErrOutcomeUnknown = errors.New("the step was begun before and interrupted: whether it took effect is unknown, and it is not run again")

// A Work is what a piece of an agent's running code may reach: a tool call, or
// the callback of a hook.
type Work struct {
	ID   string // of the call; empty in a hook
	Key  string // unique among all calls of all instances, and the same if the call is run again
	Tool string // empty in a hook
	Hook string // empty in a call
	Log  *slog.Logger

	// Epoch is that under which this process owns the instance. It grows with
	// every change of owner.
	Epoch int64

	// Response is what the response has done so far. It is set in the hooks of
	// its end, and its Metadata in those of its start, too.
	Response ResponseSoFar

	unit   *unit
	scope  string                   // of its steps; empty if it has none
	prefix string                   // of their names
	memo   map[string]*journal.Step // steps that an earlier run has recorded

	// Guarded by unit.mu.
	over     bool
	size     int // of what it has made and is not durable
	writes   []journal.VarWrite
	deps     map[*Work]bool // whose uncommitted writes it has read
	appended []journal.Message
	data     []journal.Data
	metadata []json.RawMessage

	kept *store.Attachment // the long result of the call that Run has just run, until it is durable
}

// ResponseSoFar is what a response has done.
type ResponseSoFar struct {
	Calls    []fold.Ran
	Usage    journal.Usage
	Cost     journal.Expense
	Metadata []json.RawMessage // to be merged in order
	Budget   *journal.ExhaustedBudget
}

// A unit is the code that runs between two durable points: the calls of a batch,
// or the callbacks of a seam. All of its works see each other's writes of the
// persistent state.
type unit struct {
	requests chan request  // to the driver, for what must be durable before the code goes on
	closed   chan struct{} // closed when the driver no longer serves requests
	seam     bool          // all that is made lands at once, at the end
	live     bool          // data are made durable at once all the same

	engine     *Engine
	place      *place
	addr       store.Address
	submission string
	term       *term

	mu    sync.Mutex
	vars  map[string]json.RawMessage
	by    map[string]*Work // who wrote a name last, if a work of this unit did
	at    map[string]int   // the seq of the last write of a name
	seq   int
	size  int // of what its works have made and is not durable
	works []*Work
	lent  int                // works that wait for other instances
	over  bool               // see close
	steps map[[2]string]bool // that were run, by scope and name
}

// A request asks the driver to append records, in one batch.
type request struct {
	work    *Work
	records []journal.Record
	kept    *store.Attachment // to be stored with them
	done    chan error
}

func (d *driver) newUnit() *unit {
	return &unit{
		requests: make(chan request), closed: make(chan struct{}),
		engine: d.e, place: d.place, addr: d.slot.addr, submission: d.state.Active.Submission, term: d.term,
		vars: maps.Clone(d.state.Vars), by: make(map[string]*Work), at: make(map[string]int),
	}
}

// remove takes a work out of the unit, with what it has made.
func (u *unit) remove(w *Work) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.works = slices.DeleteFunc(u.works, func(o *Work) bool { return o == w })
	u.size -= w.size
}

// add makes the work part of the unit.
func (u *unit) add(w *Work) *Work {
	w.unit = u
	u.mu.Lock()
	u.works = append(u.works, w)
	u.mu.Unlock()
	return w
}

// ErrTooMuch is the error of code that makes more at once than can be made
// durable at once.
var ErrTooMuch = fmt.Errorf("it has written more than %d bytes that are not durable yet: write less, or store large data elsewhere and keep a reference", maxWork)

// Bounds of what is made and not durable: by one work, and by all of a seam,
// which lands in one batch.
const (
	maxWork = 16 << 20
	maxSeam = 32 << 20
)

// charge counts bytes that the work has made. The lock is held.
func (w *Work) charge(n int) error {
	if w.over {
		return ErrOver
	}
	if w.size+n > maxWork || w.unit.seam && w.unit.size+n > maxSeam {
		return ErrTooMuch
	}
	w.size += n
	w.unit.size += n
	return nil
}

// Set replaces the value of one name of the persistent state.
func (w *Work) Set(name string, value json.RawMessage) error {
	w.unit.mu.Lock()
	defer w.unit.mu.Unlock()
	return w.put(name, value)
}

// SetNew is Set if cond, which is shown the persistent state, returns nil.
func (w *Work) SetNew(name string, value json.RawMessage, cond func(vars map[string]json.RawMessage) error) error {
	w.unit.mu.Lock()
	defer w.unit.mu.Unlock()
	if err := cond(w.unit.vars); err != nil {
		return err
	}
	return w.put(name, value)
}

// ErrBusy is the error of an update that finds another value each time that it
// has made a new one.
var ErrBusy = errors.New("the value changes each time that it is updated; an update function must not write state itself")

// maxTries bounds how often an update is tried again because another work was
// faster. Each time one of them succeeds, so they all do, unless the function
// writes the name itself.
const maxTries = 10_000

// Update replaces the value of one name of the persistent state by what fn
// makes of the current one, which is nil if the name was never written. It is
// atomic with the other works of the unit: if one of them writes the name
// meanwhile, fn is called again, with the new value. No lock is held while fn
// runs, which is the agent's own code.
func (w *Work) Update(name string, fn func(current json.RawMessage) (json.RawMessage, error)) error {
	u := w.unit
	for range maxTries {
		u.mu.Lock()
		current, at, over := u.vars[name], u.at[name], w.over
		u.mu.Unlock()
		if over {
			return ErrOver
		}
		next, err := fn(current)
		if err != nil {
			return err
		}
		u.mu.Lock()
		if at != u.at[name] {
			u.mu.Unlock()
			continue
		}
		if by := u.by[name]; by != nil && by != w {
			if w.deps == nil {
				w.deps = make(map[*Work]bool)
			}
			w.deps[by] = true
		}
		err = w.put(name, next)
		u.mu.Unlock()
		return err
	}
	return ErrBusy
}

// put makes a write. A value equal to the current one is not written, unless
// that is another work's, which may yet be interrupted and its write lost. The
// lock is held.
func (w *Work) put(name string, value json.RawMessage) error {
	u := w.unit
	if w.over {
		return ErrOver
	}
	current := u.vars[name]
	if by := u.by[name]; current != nil && journal.Same(jsontext.Value(current), jsontext.Value(value)) && (by == nil || by == w) {
		return nil
	}
	// Only the last value of a name counts.
	old := 0
	i := slices.IndexFunc(w.writes, func(v journal.VarWrite) bool { return v.Name == name })
	if i >= 0 {
		old = len(w.writes[i].Value)
	}
	if err := w.charge(len(value) - old); err != nil {
		return err
	}
	if i >= 0 {
		w.writes = slices.Delete(w.writes, i, i+1)
	}
	u.seq++
	u.vars[name], u.by[name], u.at[name] = value, w, u.seq
	w.writes = append(w.writes, journal.VarWrite{Seq: u.seq, Name: name, Value: []byte(value)})
	return nil
}

// Var returns the current value of one name of the persistent state, with the
// writes of the unit so far, or nil.
func (w *Work) Var(name string) json.RawMessage {
	w.unit.mu.Lock()
	defer w.unit.mu.Unlock()
	return w.unit.vars[name]
}

// end closes the work: what it does from now on has no effect.
func (w *Work) end() {
	w.unit.mu.Lock()
	defer w.unit.mu.Unlock()
	w.over = true
}

func (w *Work) isOver() bool {
	w.unit.mu.Lock()
	defer w.unit.mu.Unlock()
	return w.over
}

// ready reports whether all works that w has read from have ended, directly or
// through others, so that the outcome of w can stand on theirs.
func (w *Work) ready() bool {
	return !w.reaches(func(o *Work) bool { return !o.over })
}

// standsOn reports whether w has read, directly or through others, what one of
// the lost works has written.
func (w *Work) standsOn(lost map[*Work]bool) bool {
	return w.reaches(func(o *Work) bool { return lost[o] })
}

// reaches reports whether is holds for w or for a work that it has read from,
// directly or through others. The lock is held while is runs.
func (w *Work) reaches(is func(*Work) bool) bool {
	w.unit.mu.Lock()
	defer w.unit.mu.Unlock()
	seen := map[*Work]bool{w: true}
	for todo := []*Work{w}; len(todo) > 0; {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if is(next) {
			return true
		}
		for dep := range next.deps {
			if !seen[dep] {
				seen[dep] = true
				todo = append(todo, dep)
			}
		}
	}
	return false
}

// written returns what the work has written.
func (w *Work) written() []journal.VarWrite {
	w.unit.mu.Lock()
	defer w.unit.mu.Unlock()
	return w.writes
}

// Append adds a signal to the response. It lands with the seam.
func (w *Work) Append(m journal.Message) error {
	w.unit.mu.Lock()
	defer w.unit.mu.Unlock()
	size := len(m.Body)
	for name, value := range m.Attributes {
		size += len(name) + len(value)
	}
	if err := w.charge(size); err != nil {
		return err
	}
	w.appended = append(w.appended, m)
	return nil
}

// Attach merges a JSON object into the metadata of the response's message. It
// lands with the seam.
func (w *Work) Attach(metadata json.RawMessage) error {
	w.unit.mu.Lock()
	defer w.unit.mu.Unlock()
	if err := w.charge(len(metadata)); err != nil {
		return err
	}
	w.metadata = append(w.metadata, metadata)
	return nil
}

// Show gives the response's data part of the name a new value. When Show
// returns nil, the value is durable, or will be with the seam whose callback
// this is; of several of one seam, the last is.
func (w *Work) Show(ctx context.Context, name string, value json.RawMessage) error {
	d := journal.Data{Name: name, Value: []byte(value)}
	if !w.unit.seam || w.unit.live {
		return w.append(ctx, &d)
	}
	w.unit.mu.Lock()
	defer w.unit.mu.Unlock()
	i := slices.IndexFunc(w.data, func(o journal.Data) bool { return o.Name == name })
	old := 0
	if i >= 0 {
		old = len(w.data[i].Value)
	}
	if err := w.charge(len(value) - old); err != nil {
		return err
	}
	if i >= 0 {
		w.data[i] = d
	} else {
		w.data = append(w.data, d)
	}
	return nil
}

// Now returns the time that all processes that share the store go by.
func (w *Work) Now() time.Time { return w.unit.engine.Now() }

// Holds returns [ErrLeaseLapsed] if the work must have no effect any more, because
// another process may have taken it over.
func (w *Work) Holds() error { return w.unit.engine.tenure.holds(w.unit.term) }

// Run runs a tool call that was asked for earlier, on behalf of that call. Before
// Run returns it calls record with what the call came to and with what it wrote;
// record must make that durable, with [Work.Keep]. If the work is stopped and the
// call fails, record is not called: whether the call took effect is unknown, and
// the error says why the work was stopped.
func (w *Work) Run(ctx context.Context, tool *Tool, id, key, arguments string, record func(Result, []journal.VarWrite, []journal.Data) error) (Result, error) {
	u := w.unit
	if err := w.Holds(); err != nil {
		return Result{}, err
	}
	tell := func(ev Event) {
		ev.Time, ev.Instance, ev.Submission, ev.Call, ev.Tool = time.Now(), u.addr, u.submission, id, tool.Spec.Name
		u.engine.cfg.Observe(ev)
	}
	tell(Event{Type: EventToolStarted, Input: arguments})
	began := time.Now()
	call := u.add(&Work{ID: id, Key: key, Tool: tool.Spec.Name, Log: w.Log, Epoch: w.Epoch, scope: w.scope, memo: w.memo, prefix: w.prefix + reservedStep + id + "/"})
	result := u.engine.runTool(ctx, u.addr, tool, call, arguments)
	call.end()
	u.remove(call) // what it made is the caller's to keep
	if ctx.Err() != nil && result.Failed {
		return Result{}, context.Cause(ctx)
	}
	result.Content, w.kept = keep(tool, key, result.Content)
	defer func() { w.kept = nil }()
	if err := record(result, call.writes, call.data); err != nil {
		return Result{}, err
	}
	tell(Event{Type: EventToolDone, Text: result.Content, OK: !result.Failed, Took: time.Since(began), Error: result.Err})
	return result, nil
}

// Keep makes writes of the persistent state durable at once, and not with the
// unit. They stay even if the unit fails. The work must be the only one of its
// unit that writes. Within the function that [Work.Run] is given, the whole of a
// long result is stored with them.
func (w *Work) Keep(ctx context.Context, name string, value json.RawMessage, more []journal.VarWrite) error {
	if w.isOver() {
		return ErrOver
	}
	state := &journal.State{Name: name, Value: []byte(value)}
	if w.kept != nil {
		state.Kept = reference(w.kept)
	}
	records := []journal.Record{state}
	for _, v := range more {
		records = append(records, &journal.State{Name: v.Name, Value: v.Value})
	}
	w.unit.keep(name, value)
	return w.ask(context.WithoutCancel(ctx), request{records: records, kept: w.kept})
}

func (u *unit) keep(name string, value json.RawMessage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.vars[name] = value
	delete(u.by, name)
}

// Reshow shows data parts that a call made which [Work.Run] has run before.
func (w *Work) Reshow(data []journal.Data) {
	w.unit.mu.Lock()
	defer w.unit.mu.Unlock()
	w.data = append(w.data, data...)
}

// Step runs one durable step: fn is called and its value is recorded before
// Step returns it. If an earlier run of the same work has recorded the step, its
// value is returned and fn is not called. An error of fn is returned and not
// recorded.
//
// If once is set it is recorded that the step begins before fn is called, and
// when that is all that an earlier run has left the error is
// [ErrOutcomeUnknown]. Otherwise fn is called again in this case.
func (w *Work) Step(ctx context.Context, name string, once bool, fn func(ctx context.Context) (json.RawMessage, error)) (json.RawMessage, error) {
	if w.scope == "" {
		return nil, errors.New("this code has no durable steps")
	}
	name = w.prefix + name
	if err := w.claimStep(name); err != nil {
		return nil, err
	}
	if old := w.memo[name]; old != nil {
		switch {
		case len(old.Value) > 0:
			w.Log.Info("step replayed", slog.String("step", name))
			return json.RawMessage(old.Value), nil
		case once:
			return nil, ErrOutcomeUnknown
		}
	} else if once {
		if err := w.append(ctx, &journal.Step{Scope: w.scope, Name: name}); err != nil {
			return nil, fmt.Errorf("recording that the step begins: %w", err)
		}
	}
	if err := w.Holds(); err != nil {
		return nil, err
	}
	value, err := fn(ctx)
	if err != nil {
		return nil, err
	}
	// What has happened is recorded even if the work is being stopped.
	if err := w.append(context.WithoutCancel(ctx), &journal.Step{Scope: w.scope, Name: name, Value: []byte(value)}); err != nil {
		return nil, fmt.Errorf("recording the step: %w", err)
	}
	w.Log.Info("step recorded", slog.String("step", name))
	return value, nil
}

// reservedStep begins the names of the steps that are the framework's own.
const reservedStep = "flue:"

// claimStep gives the name of a step away. Works of one scope share its names: a
// record says the scope only, not which of them has run the step.
func (w *Work) claimStep(name string) error {
	u := w.unit
	u.mu.Lock()
	defer u.mu.Unlock()
	step := [2]string{w.scope, name}
	switch {
	case w.over:
		return ErrOver
	case u.steps[step]:
		return ErrStepReused
	case u.steps == nil:
		u.steps = make(map[[2]string]bool)
	}
	u.steps[step] = true
	return nil
}

// append asks the driver to append the records, and returns when they are
// durable.
func (w *Work) append(ctx context.Context, records ...journal.Record) error {
	return w.ask(ctx, request{records: records})
}

// ask has the driver carry out a request, and returns when that is durable.
func (w *Work) ask(ctx context.Context, req request) error {
	if w.isOver() { // its context has ended as well, which says less
		return ErrOver
	}
	req.work, req.done = w, make(chan error, 1)
	select {
	case w.unit.requests <- req:
	case <-w.unit.closed:
		return ErrOver
	case <-ctx.Done():
		return w.stopped(ctx)
	}
	select {
	case err := <-req.done:
		return err
	case <-ctx.Done():
		return w.stopped(ctx)
	case <-w.unit.closed:
	}
	select {
	case err := <-req.done:
		return err
	default:
		return ErrOver
	}
}

// stopped says why the work can write no longer, when its context has ended.
func (w *Work) stopped(ctx context.Context) error {
	if w.isOver() {
		return ErrOver
	}
	return context.Cause(ctx)
}

// serve appends what running code asks for, all that is waiting in one batch.
func (d *driver) serve(u *unit, first request) error {
	if err := d.holds(); err != nil {
		first.done <- err
		return nil // its context has ended, and the driver ends when it has
	}
	served := []request{first}
	for more := true; more; {
		select {
		case r := <-u.requests:
			served = append(served, r)
		default:
			more = false
		}
	}
	answer := served[:0]
	for _, r := range served {
		if r.work.isOver() {
			r.done <- ErrOver
			continue
		}
		for _, record := range r.records {
			if data, ok := record.(*journal.Data); ok {
				d.address(data)
			}
			if err := d.stage(record); err != nil {
				return err
			}
		}
		if r.kept != nil {
			d.attach(r.kept)
		}
		answer = append(answer, r)
	}
	err := d.commit()
	for _, r := range answer {
		r.done <- err
	}
	return err
}

// address says which response a data part belongs to.
func (d *driver) address(r *journal.Data) {
	r.Response, r.Submission, r.Opens = d.responseID(), d.state.Active.Submission, !d.state.Response.Started()
}

// responseID is the id of the response under way, or of the one that is about
// to start.
func (d *driver) responseID() string {
	if id := d.state.Response.ID; id != "" {
		return id
	}
	return newID("entry_")
}
