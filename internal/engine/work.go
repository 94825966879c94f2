package engine

import (
	"bytes"
	"cmp"
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
	ops      []op
	writes   []journal.VarWrite
	deps     map[*Work]bool // whose uncommitted writes it has read
	appended []journal.Message
	data     []journal.Data
	metadata []json.RawMessage
}

// ResponseSoFar is what a response has done.
type ResponseSoFar struct {
	Calls    []fold.Ran
	Usage    journal.Usage
	Metadata []json.RawMessage // to be merged in order
}

// An op is one write of the persistent state, in a form that can be made again.
type op struct {
	seq  int
	name string
	fn   func(current json.RawMessage) (json.RawMessage, error)
}

// A unit is the code that runs between two durable points: the calls of a batch,
// or the callbacks of a seam. All of its works see each other's writes of the
// persistent state.
type unit struct {
	requests chan request  // to the driver, for what must be durable before the code goes on
	closed   chan struct{} // closed when the driver no longer serves requests
	buffer   bool          // data are kept for the end of the unit

	engine     *Engine
	addr       store.Address
	submission string

	mu    sync.Mutex
	base  map[string]json.RawMessage // as committed
	vars  map[string]json.RawMessage
	by    map[string]*Work // who wrote a name last, if a work of this unit did
	seq   int
	works []*Work
	steps map[[2]string]bool // that were run, by scope and name
}

// A request asks the driver to append records, in one batch.
type request struct {
	work    *Work
	records []journal.Record
	done    chan error
}

func (d *driver) newUnit() *unit {
	return &unit{
		requests: make(chan request), closed: make(chan struct{}),
		engine: d.e, addr: d.slot.addr, submission: d.state.Active.Submission,
		base: maps.Clone(d.state.Vars), vars: maps.Clone(d.state.Vars), by: make(map[string]*Work),
	}
}

// apart returns a unit that has the same driver, and none of what the works of u
// have written.
func (u *unit) apart() *unit {
	u.mu.Lock()
	defer u.mu.Unlock()
	return &unit{
		requests: u.requests, closed: u.closed, buffer: u.buffer, engine: u.engine, addr: u.addr, submission: u.submission,
		base: maps.Clone(u.base), vars: maps.Clone(u.base), by: make(map[string]*Work),
	}
}

// add makes the work part of the unit.
func (u *unit) add(w *Work) *Work {
	w.unit = u
	u.mu.Lock()
	u.works = append(u.works, w)
	u.mu.Unlock()
	return w
}

// Set replaces the value of one name of the persistent state.
func (w *Work) Set(name string, value json.RawMessage) error {
	return w.write(name, false, func(json.RawMessage) (json.RawMessage, error) { return value, nil })
}

// Update replaces the value of one name of the persistent state by what fn
// makes of the current one, which is nil if the name was never written. It is
// atomic with the other works of the unit. fn may be called again, with another
// value, if a work whose write it has seen is interrupted.
func (w *Work) Update(name string, fn func(current json.RawMessage) (json.RawMessage, error)) error {
	return w.write(name, true, fn)
}

func (w *Work) write(name string, reads bool, fn func(json.RawMessage) (json.RawMessage, error)) error {
	u := w.unit
	u.mu.Lock()
	defer u.mu.Unlock()
	if w.over {
		return ErrOver
	}
	if by := u.by[name]; reads && by != nil && by != w {
		if w.deps == nil {
			w.deps = make(map[*Work]bool)
		}
		w.deps[by] = true
	}
	u.seq++
	o := op{seq: u.seq, name: name, fn: fn}
	if err := u.apply(w, o); err != nil {
		return err
	}
	w.ops = append(w.ops, o)
	return nil
}

// apply makes a write. A value equal to the current one is not written, unless
// that is another work's, which may yet be interrupted and its write lost.
func (u *unit) apply(w *Work, o op) error {
	current := u.vars[o.name]
	next, err := o.fn(current)
	if err != nil {
		return err
	}
	if by := u.by[o.name]; current != nil && equalJSON(current, next) && (by == nil || by == w) {
		return nil
	}
	u.vars[o.name], u.by[o.name] = next, w
	// Only the last value of a name counts.
	w.writes = slices.DeleteFunc(w.writes, func(v journal.VarWrite) bool { return v.Name == o.name })
	w.writes = append(w.writes, journal.VarWrite{Seq: o.seq, Name: o.name, Value: []byte(next)})
	return nil
}

// equalJSON reports whether two values are the same, however they are written.
func equalJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, y := jsontext.Value(a).Clone(), jsontext.Value(b).Clone()
	return x.Canonicalize() == nil && y.Canonicalize() == nil && bytes.Equal(x, y)
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
	w.unit.mu.Lock()
	defer w.unit.mu.Unlock()
	seen := map[*Work]bool{w: true}
	for todo := []*Work{w}; len(todo) > 0; {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !next.over {
			return false
		}
		for dep := range next.deps {
			if !seen[dep] {
				seen[dep] = true
				todo = append(todo, dep)
			}
		}
	}
	return true
}

// forget takes back what the lost works have written: the writes of the others
// are made again as if the lost ones had never been.
func (u *unit) forget(lost map[*Work]bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.rebase(lost)
}

// rebase makes the writes of all works but the lost ones again, in their order,
// upon what is committed.
func (u *unit) rebase(lost map[*Work]bool) {
	type owned struct {
		op
		work *Work
	}
	var ops []owned
	for _, w := range u.works {
		w.writes = nil
		if lost[w] {
			continue
		}
		for _, o := range w.ops {
			ops = append(ops, owned{o, w})
		}
	}
	slices.SortFunc(ops, func(a, b owned) int { return cmp.Compare(a.seq, b.seq) })
	u.vars, u.by = maps.Clone(u.base), make(map[string]*Work)
	for _, o := range ops {
		if err := u.apply(o.work, o.op); err != nil {
			continue // it no longer applies to what is left, so it is lost as well
		}
	}
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
	if w.over {
		return ErrOver
	}
	w.appended = append(w.appended, m)
	return nil
}

// Attach merges a JSON object into the metadata of the response's message. It
// lands with the seam.
func (w *Work) Attach(metadata json.RawMessage) error {
	w.unit.mu.Lock()
	defer w.unit.mu.Unlock()
	if w.over {
		return ErrOver
	}
	w.metadata = append(w.metadata, metadata)
	return nil
}

// Show gives the response's data part of the name a new value. When Show
// returns nil, the value is durable, or will be with the seam whose callback
// this is.
func (w *Work) Show(ctx context.Context, name string, value json.RawMessage) error {
	d := journal.Data{Name: name, Value: []byte(value)}
	if w.unit.buffer {
		w.unit.mu.Lock()
		defer w.unit.mu.Unlock()
		if w.over {
			return ErrOver
		}
		w.data = append(w.data, d)
		return nil
	}
	return w.append(ctx, &d)
}

// Run runs a tool call that was asked for earlier, on behalf of that call. Before
// Run returns it calls record with what the call came to and with what it wrote;
// record must make that durable, with [Work.Keep]. If the work is stopped and the
// call fails, record is not called: whether the call took effect is unknown, and
// the error says why the work was stopped.
func (w *Work) Run(ctx context.Context, tool *Tool, id, key, arguments string, record func(Result, []journal.VarWrite, []journal.Data) error) (Result, error) {
	u := w.unit
	tell := func(ev Event) {
		ev.Time, ev.Instance, ev.Submission, ev.Call, ev.Tool = time.Now(), u.addr, u.submission, id, tool.Spec.Name
		u.engine.cfg.Observe(ev)
	}
	tell(Event{Type: EventToolStarted, Input: arguments})
	began := time.Now()
	// What the call writes is kept apart from the unit, which may yet fail: the
	// call sees nothing of it.
	call := u.apart().add(&Work{ID: id, Key: key, Tool: tool.Spec.Name, Log: w.Log, Epoch: w.Epoch, scope: w.scope, memo: w.memo, prefix: w.prefix + id + "/"})
	result := u.engine.runTool(ctx, u.addr, tool, call, arguments)
	call.end()
	if ctx.Err() != nil && result.Failed {
		return Result{}, context.Cause(ctx)
	}
	if err := record(result, call.writes, call.data); err != nil {
		return Result{}, err
	}
	tell(Event{Type: EventToolDone, Text: result.Content, OK: !result.Failed, Took: time.Since(began), Error: result.Err})
	return result, nil
}

// Keep makes writes of the persistent state durable at once, and not with the
// unit. What was made before stays even if the unit fails.
func (w *Work) Keep(ctx context.Context, name string, value json.RawMessage, more []journal.VarWrite) error {
	writes := append([]journal.VarWrite{{Name: name, Value: []byte(value)}}, more...)
	records := make([]journal.Record, len(writes))
	u := w.unit
	u.mu.Lock()
	if w.over {
		u.mu.Unlock()
		return ErrOver
	}
	for i, v := range writes {
		records[i] = &journal.State{Name: v.Name, Value: v.Value}
		u.base[v.Name] = json.RawMessage(v.Value)
	}
	u.rebase(nil) // the other works wrote before they could see this
	u.mu.Unlock()
	return w.append(context.WithoutCancel(ctx), records...)
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
	if w.isOver() { // its context has ended as well, which says less
		return ErrOver
	}
	req := request{work: w, records: records, done: make(chan error, 1)}
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
