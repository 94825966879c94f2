package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/sqlite"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// TestLinearizable lets clients send, abort and read side by side, in real time,
// while the process that serves them dies and starts again, and asks whether
// what they were told could have come from a system that does one thing after
// another.
//
// An operation whose outcome its client never learned may have happened at any
// later time: it returns at infinity. Whether it happened at all is looked up in
// the journal afterwards.
//
// What it is good for was tried out with faults of one line, each in a copy. Each
// of these was found in a run with -short:
//
//   - a recorded step is run again; a step returns before it is recorded;
//   - a message is acknowledged although the store has failed;
//   - the store does not know a message again; identities are not compared;
//   - an admission that may only create, or only go on, does not look;
//   - an abort covers what comes later, or only the active message, or says that
//     there was nothing to abort;
//   - what joined settles after its host; the last of the queue goes first.
func TestLinearizable(t *testing.T) {
	for _, tt := range []struct {
		name   string
		reopen func(t *testing.T) func(store.Store) store.Store
	}{
		{"memory", func(*testing.T) func(store.Store) store.Store {
			return func(s store.Store) store.Store {
				if s == nil {
					return memstore.New()
				}
				return s.(*memstore.Store).Reopen()
			}
		}},
		{"sqlite", func(t *testing.T) func(store.Store) store.Store {
			path := filepath.Join(t.TempDir(), "flue.db")
			return func(s store.Store) store.Store {
				if s != nil {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				}
				opened, err := sqlite.Open(context.Background(), path, sqlite.Options{Sync: sqlite.SyncNormal})
				if err != nil {
					panic(err)
				}
				return opened
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			operations := 20_000
			if testing.Short() {
				operations = 2_000
			}
			x := newExperiment(t, tt.reopen(t))
			x.run(operations)
			x.verdict()
		})
	}
}

// The instances, by what their model does: echo answers at once, held only ends
// by an abort, steps calls a durable tool.
const (
	echoInstances = 26
	heldInstances = 18
	stepInstances = 16
)

// infinity is when operations return whose outcome nobody learned.
const infinity = int64(1) << 60

// An experiment is a process that dies and starts again, and what its clients
// have seen.
type experiment struct {
	*testing.T
	*world
	began  time.Time
	reopen func(store.Store) store.Store

	process sync.RWMutex // guards what follows
	durable store.Store
	fs      *faultstore.Store
	e       *engine.Engine
	lives   int

	seen    sync.Mutex // guards what follows
	intake  []porcupine.Operation
	steps   []porcupine.Operation
	unsure  []porcupine.Operation // intake whose outcome is unknown
	ids     map[string][]string   // of the messages sent, by instance
	uids    map[string]string     // by instance
	counter int
}

func newExperiment(t *testing.T, reopen func(store.Store) store.Store) *experiment {
	x := &experiment{
		T: t, world: newWorld(), began: time.Now(), reopen: reopen,
		ids: make(map[string][]string), uids: make(map[string]string),
	}
	x.budget = engine.Budget{MaxAttempts: 1_000_000, Timeout: time.Hour}
	tools := []engine.Tool{{
		Spec: model.Tool{Name: "work", Schema: []byte(`{"type":"object"}`)}, Again: true,
		Run: func(ctx context.Context, c *engine.Work, _ string) engine.Result {
			for _, name := range []string{"one", "two", "three"} {
				if err := x.step(ctx, c, name); err != nil {
					return failedBy(err)
				}
			}
			return engine.Result{Content: "done"}
		},
	}}
	x.world.render = func(v engine.View) (*engine.Plan, error) {
		return &engine.Plan{Settings: journal.Settings{Model: "test/m"}, Instructions: v.ID, Tools: tools}, nil
	}
	x.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
		text, results := asked(req)
		switch {
		case req.System[0] == 'h':
			<-ctx.Done()
		case req.System[0] == 's' && results == 0:
			call(yield, "work "+text)
		default:
			say(yield, "re: "+text)
		}
	}
	x.start()
	return x
}

func (x *experiment) now() int64 { return int64(time.Since(x.began)) }

// start begins a life of the process. The process must be locked, or not shared
// yet.
func (x *experiment) start() {
	x.durable = x.reopen(x.durable)
	x.fs = faultstore.New(x.durable)
	x.fs.SetHook(forgetful)
	x.lives++
	var err error
	if x.e, err = x.open(x.fs); err != nil {
		panic(err)
	}
}

// forgetful loses the answer to some of what clients ask for, and some of the
// questions.
func forgetful(_ context.Context, p faultstore.Point) error {
	if p.Op != faultstore.Append && rand.IntN(60) == 0 {
		return faultstore.ErrInjected
	}
	return nil
}

// restart ends the life of the process, in order or not, and begins another.
func (x *experiment) restart(orderly bool) {
	x.process.Lock()
	defer x.process.Unlock()
	if orderly {
		x.close(5 * time.Millisecond)
	} else {
		x.fs.CrashNow()
		x.close(0)
	}
	x.fs.Flush()
	x.start()
}

func (x *experiment) close(patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := x.e.Close(ctx); err != nil {
		x.Error(err)
	}
}

func (x *experiment) engine() *engine.Engine {
	x.process.RLock()
	defer x.process.RUnlock()
	return x.e
}

// step runs a step and notes what it came to.
func (x *experiment) step(ctx context.Context, c *engine.Work, name string) error {
	op := porcupine.Operation{Input: stepInput{key: c.ID + " " + name}, Call: x.now()}
	var out stepOutput
	raw, err := c.Step(ctx, name, false, func(context.Context) (json.RawMessage, error) {
		out.made = string(mustJSON(x.fresh("v")))
		return json.RawMessage(out.made), nil
	})
	if err != nil && out.made == "" {
		return err // nothing has happened
	}
	out.value, out.known = string(raw), err == nil
	op.Output, op.Return = out, x.now()
	if err != nil {
		op.Return = infinity
	}
	x.seen.Lock()
	defer x.seen.Unlock()
	x.steps = append(x.steps, op)
	return err
}

// fresh returns a name that was not used before.
func (x *experiment) fresh(prefix string) string {
	x.seen.Lock()
	defer x.seen.Unlock()
	x.counter++
	return fmt.Sprint(prefix, x.counter)
}

// run lets clients work until they have done so many operations.
func (x *experiment) run(operations int) {
	stop := make(chan struct{})
	var clients, nemesis sync.WaitGroup
	for id := range 12 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(x.began.UnixNano()), uint64(id)))
			for x.count() < operations && time.Since(x.began) < 2*time.Minute {
				if !x.act(rng) {
					time.Sleep(time.Millisecond) // the process is dead
				}
			}
		})
	}
	nemesis.Go(func() { x.trouble(operations/deaths, stop) })
	clients.Wait()
	close(stop)
	nemesis.Wait()
	x.restart(false) // with it go faults that are still to come
}

// deaths is about how often the process dies in a run. A message that is held has
// an attempt in each life, and may have a hundred.
const deaths = 50

// trouble makes writes fail, and the process die or close, once in so many
// operations.
func (x *experiment) trouble(every int, stop chan struct{}) {
	rng := rand.New(rand.NewPCG(uint64(x.began.UnixNano()), 99))
	for next := every; ; next = x.count() + every {
		for x.count() < next {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
		mode := modes[rng.IntN(len(modes))]
		switch rng.IntN(5) {
		case 0:
			x.restart(true)
		case 1:
			x.fs.Fail(1+rng.IntN(20), mode)
		default:
			x.fs.Crash(1+rng.IntN(20), mode)
			for wait := time.Now(); !x.fs.Crashed() && time.Since(wait) < 50*time.Millisecond; {
				time.Sleep(100 * time.Microsecond)
			}
			x.restart(false)
		}
	}
}

// count is how many operations are known to have happened.
func (x *experiment) count() int {
	x.seen.Lock()
	defer x.seen.Unlock()
	return len(x.intake) + len(x.steps)
}

// act does one operation, and reports whether its outcome is known.
func (x *experiment) act(rng *rand.Rand) bool {
	n := rng.IntN(echoInstances + heldInstances + stepInstances)
	instance := fmt.Sprint("e", n)
	if n >= echoInstances {
		instance = fmt.Sprint("h", n)
	}
	if n >= echoInstances+heldInstances {
		instance = fmt.Sprint("s", n)
	}
	x.seen.Lock()
	ids, uid := x.ids[instance], x.uids[instance]
	x.seen.Unlock()
	old := ""
	if len(ids) > 0 { // the newest ones are the busiest
		old = ids[len(ids)-1-rng.IntN(min(len(ids), 6))]
	}
	in := intakeInput{instance: instance, kind: "admit", id: old, identity: "a"}
	switch what := rng.IntN(100); {
	case old == "" || what < 26:
		in.id = x.sends(instance)
	case what < 32:
		in.id, in.condition = x.sends(instance), store.Condition{Create: true}
	case what < 40 && uid != "":
		in.id, in.condition = x.sends(instance), store.Condition{UID: uid}
	case what < 42:
		in.id, in.condition = x.sends(instance), store.Condition{UID: "inst_other"}
	case what < 50: // a replay
	case what < 53:
		in.identity = "b"
	case what < 62 && instance[0] == 'h':
		in.kind = "abort"
	case what < 70:
		in.kind = "await"
	default:
		in.kind = "read"
	}
	return x.do(in)
}

// sends returns the id of a new message.
func (x *experiment) sends(instance string) string {
	id := x.fresh("m")
	x.seen.Lock()
	defer x.seen.Unlock()
	x.ids[instance] = append(x.ids[instance], id)
	return id
}

// do does one operation, notes what it came to, and reports whether that is known.
func (x *experiment) do(in intakeInput) bool {
	e := x.engine()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	addr := store.Address{Agent: "chat", ID: in.instance}
	op := porcupine.Operation{Call: x.now()}
	var out intakeOutput
	var err error
	switch in.kind {
	case "admit":
		out, err = x.admit(ctx, e, addr, in)
	case "abort":
		out.ok, err = e.Abort(ctx, addr)
	case "await":
		in.kind = "read"
		await(ctx, e, addr, in.id)
		fallthrough
	case "read":
		var sub store.Submission
		sub, err = e.Submission(ctx, addr, in.id)
		out.outcome = sub.Outcome
		if errors.Is(err, store.ErrNotFound) {
			out.refused, err = "absent", nil
		}
		if err != nil {
			return false // it has no effect
		}
	}
	op.Input, op.Output, op.Return = in, out, x.now()
	x.seen.Lock()
	defer x.seen.Unlock()
	if err != nil {
		op.Return = infinity
		x.unsure = append(x.unsure, op)
		return false
	}
	if out.uid != "" {
		x.uids[in.instance] = out.uid
	}
	x.intake = append(x.intake, op)
	return true
}

func (x *experiment) admit(ctx context.Context, e *engine.Engine, addr store.Address, in intakeInput) (intakeOutput, error) {
	r, err := e.Admit(ctx, engine.Admission{
		Address: addr, Submission: in.id, Condition: in.condition, Identity: []byte(in.identity), Origin: "direct",
		Message: journal.Message{Kind: journal.User, Body: in.id + in.identity},
	})
	var refused *store.ConditionError
	switch {
	case errors.Is(err, store.ErrConflict):
		return intakeOutput{refused: "conflict"}, nil
	case errors.As(err, &refused):
		return intakeOutput{refused: "condition", uid: refused.UID}, nil
	}
	return intakeOutput{ok: true, place: r.Offset, uid: r.UID, created: r.Created, duplicate: r.Duplicate}, err
}

// await waits for the outcome of a message, but not for long.
func await(ctx context.Context, e *engine.Engine, addr store.Address, id string) {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	for ctx.Err() == nil {
		in, err := e.Instance(ctx, addr)
		if err != nil {
			return
		}
		if sub, err := e.Submission(ctx, addr, id); err != nil || sub.Outcome != "" || e.Wait(ctx, addr, in.Head) != nil {
			return
		}
	}
}

// verdict waits until all is done that can be, reads everything once more, and
// judges the history.
func (x *experiment) verdict() {
	defer func() {
		x.close(0) // what is held ends by nothing else
		if err := x.durable.Close(); err != nil {
			x.Error(err)
		}
	}()
	until := time.Now().Add(20 * time.Second)
	for instance, ids := range x.ids {
		x.quiesce(instance, until)
		for _, id := range ids {
			x.do(intakeInput{instance: instance, kind: "read", id: id, final: true})
		}
	}
	lost := x.resolve()
	x.Logf("%d operations, %d more have had no effect, of %d nobody was told the outcome, %d instances, %d lives, %s",
		x.count(), lost, len(x.unsure), len(x.ids), x.lives, time.Since(x.began).Round(time.Millisecond))
	for _, m := range []struct {
		name    string
		model   porcupine.Model
		history []porcupine.Operation
	}{
		{"admission, conditional create and abort", intakeModel, x.intake},
		{"settlement", settlementModel, x.intake},
		{"steps", stepModel, x.steps},
	} {
		began := time.Now()
		got := porcupine.CheckOperationsTimeout(m.model, m.history, 5*time.Second)
		x.Logf("%s: %s after %s", m.name, got, time.Since(began).Round(time.Millisecond))
		if got != porcupine.Ok {
			x.Errorf("%s of %d operations: %s", m.name, len(m.history), got)
			x.explain(m.model, m.history)
		}
	}
}

// explain shows the history of one part that is not linearizable.
func (x *experiment) explain(m porcupine.Model, history []porcupine.Operation) {
	for _, part := range m.Partition(history) {
		if porcupine.CheckOperationsTimeout(m, part, time.Second) == porcupine.Ok {
			continue
		}
		slices.SortFunc(part, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		for _, op := range part[max(0, len(part)-60):] {
			x.Logf("%12d %20d %+v -> %+v", op.Call, op.Return, op.Input, op.Output)
		}
		return
	}
}

// quiesce waits until the instance has nothing left to do: a held one keeps what
// no abort covers.
func (x *experiment) quiesce(instance string, until time.Time) {
	addr := store.Address{Agent: "chat", ID: instance}
	for ; time.Now().Before(until); time.Sleep(2 * time.Millisecond) {
		want := 0
		for _, r := range records(x.T, x.durable, addr) {
			switch r.(type) {
			case *journal.Admitted:
				want++
			case *journal.Abort:
				want = 0
			}
		}
		if instance[0] != 'h' {
			want = 0
		}
		in, err := x.e.Instance(context.Background(), addr)
		if errors.Is(err, store.ErrNotFound) || err == nil && in.Unsettled == want {
			return
		}
	}
	x.Errorf("%s does not come to rest", instance)
}

// resolve finds out from the journals which of the operations without a known
// outcome have happened, and adds those to the history. It returns how many have
// not.
func (x *experiment) resolve() (lost int) {
	type admitted struct {
		place int64
		body  string
		uid   string
	}
	all := make(map[string]admitted)
	for instance := range x.ids {
		page, err := x.durable.Read(context.Background(), store.Address{Agent: "chat", ID: instance}, -1, 0)
		if err != nil {
			continue // nothing was ever admitted
		}
		for after := int64(-1); after < page.Head; {
			if page, err = x.durable.Read(context.Background(), page.Address, after, 0); err != nil {
				x.Fatal(err)
			}
			for _, b := range page.Batches {
				after = b.Offset
				batch, err := journal.Decode(b.Payload)
				if err != nil {
					x.Fatal(err)
				}
				for _, r := range batch.Records {
					if r, ok := r.(*journal.Admitted); ok {
						all[r.Submission] = admitted{b.Offset, r.Message.Body, page.UID}
					}
				}
			}
		}
	}
	for _, op := range x.unsure {
		in := op.Input.(intakeInput)
		out := intakeOutput{unknown: true}
		if in.kind == "admit" {
			a, ok := all[in.id]
			if !ok || a.body != in.id+in.identity {
				lost++
				continue
			}
			out.place, out.uid = a.place, a.uid
		}
		op.Output = out
		x.intake = append(x.intake, op)
	}
	return lost
}

// An intakeInput is what a client asks of an instance.
type intakeInput struct {
	instance, kind, id, identity string
	condition                    store.Condition
	final                        bool // of a read: nothing is under way any more
}

// An intakeOutput is what it is told.
type intakeOutput struct {
	unknown            bool // it was told nothing, and the operation has happened
	ok                 bool
	refused            string // conflict, condition, absent
	place              int64
	uid                string
	created, duplicate bool
	outcome            string // of a read
}

// An accepted message, as the model of an instance knows it.
type accepted struct {
	id, identity  string
	place         int64
	created       bool
	covered, over bool // by an abort; settled, as somebody has seen
}

// An intakeState is an instance as its clients can know it. It is never changed.
type intakeState struct {
	uid  string
	subs []accepted
}

func partition(key func(op porcupine.Operation) string) func([]porcupine.Operation) [][]porcupine.Operation {
	return func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make(map[string][]porcupine.Operation)
		for _, op := range history {
			if k := key(op); k != "" {
				parts[k] = append(parts[k], op)
			}
		}
		return slices.Collect(maps.Values(parts))
	}
}

// intakeModel says what an instance may answer: messages get places in one
// order, a message that is sent again gets the same one, conditions hold at the
// moment of the admission, and an abort covers what is before it in that order.
var intakeModel = porcupine.Model{
	Partition: partition(func(op porcupine.Operation) string { return op.Input.(intakeInput).instance }),
	Init:      func() any { return intakeState{} },
	Step: func(state, input, output any) (bool, any) {
		st, in, out := state.(intakeState), input.(intakeInput), output.(intakeOutput)
		switch in.kind {
		case "admit":
			return st.admit(in, out)
		case "abort":
			return st.abort(out)
		}
		return st.read(in, out)
	},
	Equal: func(a, b any) bool {
		x, y := a.(intakeState), b.(intakeState)
		return x.uid == y.uid && slices.Equal(x.subs, y.subs)
	},
}

func (st intakeState) find(id string) int {
	return slices.IndexFunc(st.subs, func(a accepted) bool { return a.id == id })
}

func (st intakeState) admit(in intakeInput, out intakeOutput) (bool, intakeState) {
	i := st.find(in.id)
	holds := !(in.condition.Create && st.uid != "" || in.condition.UID != "" && in.condition.UID != st.uid)
	switch {
	case out.refused == "conflict":
		return i >= 0 && st.subs[i].identity != in.identity, st
	case out.refused == "condition":
		return i < 0 && !holds && out.uid == st.uid, st
	case i >= 0:
		old := st.subs[i]
		return old.identity == in.identity && old.place == out.place && out.uid == st.uid && (out.unknown || out.duplicate && out.created == old.created), st
	case !holds, out.duplicate, st.uid != "" && st.uid != out.uid, len(st.subs) > 0 && st.subs[len(st.subs)-1].place >= out.place:
		return false, st
	case !out.unknown && out.created != (st.uid == ""):
		return false, st
	}
	n := accepted{id: in.id, identity: in.identity, place: out.place, created: st.uid == ""}
	return true, intakeState{out.uid, append(slices.Clip(st.subs), n)}
}

func (st intakeState) abort(out intakeOutput) (bool, intakeState) {
	open := slices.ContainsFunc(st.subs, func(a accepted) bool { return !a.over })
	left := slices.ContainsFunc(st.subs, func(a accepted) bool { return !a.covered })
	subs := slices.Clone(st.subs)
	for i := range subs {
		subs[i].covered = true
		subs[i].over = subs[i].over || !out.ok && !out.unknown
	}
	switch {
	case out.unknown:
		return true, intakeState{st.uid, subs}
	case out.ok:
		return open, intakeState{st.uid, subs}
	}
	return !left, intakeState{st.uid, subs}
}

func (st intakeState) read(in intakeInput, out intakeOutput) (bool, intakeState) {
	i := st.find(in.id)
	if i < 0 || out.refused == "absent" {
		return i < 0 && out.refused == "absent", st
	}
	a := st.subs[i]
	held := in.instance[0] == 'h'
	switch out.outcome {
	case "":
		return !a.over && (!in.final || held && !a.covered), st
	case journal.Aborted:
		if !held || !a.covered {
			return false, st
		}
	case journal.Completed:
		if held {
			return false, st
		}
	default:
		return false, st
	}
	subs := slices.Clone(st.subs)
	subs[i].over = true
	return true, intakeState{st.uid, subs}
}

// settlementModel says what may be read of one message: that it is not there,
// then that it is open, then its outcome, which does not change.
var settlementModel = porcupine.Model{
	Partition: partition(func(op porcupine.Operation) string {
		in, out := op.Input.(intakeInput), op.Output.(intakeOutput)
		if in.kind == "abort" || in.kind == "admit" && out.refused == "condition" {
			return ""
		}
		return in.instance + " " + in.id
	}),
	Init: func() any { return "absent" },
	Step: func(state, input, output any) (bool, any) {
		st, in, out := state.(string), input.(intakeInput), output.(intakeOutput)
		switch {
		case in.kind == "admit" && out.refused == "conflict":
			return st != "absent", st
		case in.kind == "admit":
			if st == "absent" {
				st = ""
			}
			return true, st
		case out.refused == "absent":
			return st == "absent", st
		case out.outcome == "":
			return st == "", st
		}
		return st == "" || st == out.outcome, out.outcome
	},
}

// A stepInput is a step that is run, perhaps by an owner that has lost its
// instance.
type stepInput struct{ key string }

// A stepOutput is what came of it.
type stepOutput struct {
	made  string // what its function has returned, if it was called
	value string // what the step has returned
	known bool   // it has returned
}

// stepModel says that a step has one value: the first that is recorded.
var stepModel = porcupine.Model{
	Partition: partition(func(op porcupine.Operation) string { return op.Input.(stepInput).key }),
	Init:      func() any { return "" },
	Step: func(state, _, output any) (bool, any) {
		st, out := state.(string), output.(stepOutput)
		switch {
		case !out.known && st == "":
			return true, out.made
		case !out.known:
			return true, st // it was refused, or nobody reads it any more
		case out.made != "":
			return st == "" && out.value == out.made, out.made
		}
		return st == out.value, st
	},
}

// The models refuse what must not be.
func TestLinearModelsRefuse(t *testing.T) {
	type op struct {
		in  intakeInput
		out intakeOutput
	}
	send := func(id string, place int64) op {
		return op{intakeInput{instance: "h", kind: "admit", id: id, identity: "a"}, intakeOutput{ok: true, place: place, uid: "u", created: place == 1}}
	}
	with := func(o op, change func(o *op)) op { change(&o); return o }
	again := func(o *op) { o.out.duplicate = true }
	read := func(id, outcome string) op {
		return op{intakeInput{instance: "h", kind: "read", id: id}, intakeOutput{outcome: outcome}}
	}
	abort := func(ok bool) op { return op{intakeInput{instance: "h", kind: "abort"}, intakeOutput{ok: ok}} }
	for _, tt := range []struct {
		name  string
		ops   []op
		legal bool
	}{
		{"in order", []op{send("a", 1), send("b", 2), with(send("a", 1), again), abort(true), read("a", "aborted"), read("b", ""), read("b", "aborted"), abort(false)}, true},
		{"a place twice", []op{send("a", 1), send("b", 1)}, false},
		{"places out of order", []op{send("a", 1), send("b", 3), send("c", 2)}, false},
		{"a replay at another place", []op{send("a", 1), with(send("a", 2), again)}, false},
		{"a replay that is taken for new", []op{send("a", 1), send("a", 2)}, false},
		{"another message under the id", []op{send("a", 1), with(send("a", 1), func(o *op) { o.in.identity, o.out.duplicate = "b", true })}, false},
		{"a conflict with nothing", []op{with(send("a", 1), func(o *op) { o.out = intakeOutput{refused: "conflict"} })}, false},
		{"created twice", []op{send("a", 1), with(send("b", 2), func(o *op) { o.out.created = true })}, false},
		{"another uid", []op{send("a", 1), with(send("b", 2), func(o *op) { o.out.uid = "v" })}, false},
		{"only to create, and it exists", []op{send("a", 1), with(send("b", 2), func(o *op) { o.in.condition.Create = true })}, false},
		{"to go on with another", []op{send("a", 1), with(send("b", 2), func(o *op) { o.in.condition.UID = "v" })}, false},
		{"refused although the condition holds", []op{send("a", 1), with(send("b", 2), func(o *op) {
			o.in.condition.UID, o.out = "u", intakeOutput{refused: "condition", uid: "u"}
		})}, false},
		{"not there after it was accepted", []op{send("a", 1), with(read("a", ""), func(o *op) { o.out.refused = "absent" })}, false},
		{"aborted by nobody", []op{send("a", 1), read("a", "aborted")}, false},
		{"aborted by what was before it", []op{send("a", 1), abort(true), send("b", 2), read("b", "aborted")}, false},
		{"completed by nothing", []op{send("a", 1), read("a", "completed")}, false},
		{"an abort that found nothing", []op{send("a", 1), abort(false)}, false},
		{"an abort of nothing", []op{send("a", 1), abort(true), abort(false), abort(true)}, false},
		{"open after its outcome", []op{send("a", 1), abort(true), read("a", "aborted"), read("a", "")}, false},
	} {
		var history []porcupine.Operation
		for i, o := range tt.ops {
			history = append(history, porcupine.Operation{Input: o.in, Output: o.out, Call: int64(2 * i), Return: int64(2*i + 1)})
		}
		got := porcupine.CheckOperations(intakeModel, history) && porcupine.CheckOperations(settlementModel, history)
		if got != tt.legal {
			t.Errorf("%s: legal %v, want %v", tt.name, got, tt.legal)
		}
	}
	step := func(made, value string) stepOutput { return stepOutput{made: made, value: value, known: true} }
	for _, tt := range []struct {
		name  string
		outs  []stepOutput
		legal bool
	}{
		{"one value", []stepOutput{step("1", "1"), step("", "1")}, true},
		{"a value that was recorded without an answer", []stepOutput{{made: "1"}, step("", "1")}, true},
		{"one that was not", []stepOutput{{made: "1"}, step("2", "2"), step("", "2")}, true},
		{"run again", []stepOutput{step("1", "1"), step("2", "2")}, false},
		{"another value", []stepOutput{step("1", "1"), step("", "2")}, false},
		{"a value of nobody", []stepOutput{step("", "1")}, false},
	} {
		var history []porcupine.Operation
		for i, out := range tt.outs {
			o := porcupine.Operation{Input: stepInput{"k"}, Output: out, Call: int64(2 * i), Return: int64(2*i + 1)}
			if !out.known {
				o.Return = infinity
			}
			history = append(history, o)
		}
		if got := porcupine.CheckOperations(stepModel, history); got != tt.legal {
			t.Errorf("%s: legal %v, want %v", tt.name, got, tt.legal)
		}
	}
}
