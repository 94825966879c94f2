package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/linear"
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
			// A history in which little has gone wrong shows little.
			if n := x.count(); n < operations {
				t.Errorf("%d operations, want at least %d", n, operations)
			}
			if x.lives < deaths/10 || len(x.unsure) == 0 {
				t.Errorf("%d lives, and of %d operations nobody was told the outcome", x.lives, len(x.unsure))
			}
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

// An experiment is a process that dies and starts again, and what its clients
// have seen.
type experiment struct {
	*testing.T
	*world
	seed   uint64
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
	latest  time.Time // when an operation was last done
}

func newExperiment(t *testing.T, reopen func(store.Store) store.Store) *experiment {
	x := &experiment{
		T: t, world: newWorld(), seed: seedOf(t), began: time.Now(), reopen: reopen,
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
	x.latest = x.began
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
	op := porcupine.Operation{Input: linear.StepRun{Key: c.ID + " " + name}, Call: x.now()}
	var out linear.StepResult
	raw, err := c.Step(ctx, name, false, func(context.Context) (json.RawMessage, error) {
		out.Made = string(mustJSON(x.fresh("v")))
		return json.RawMessage(out.Made), nil
	})
	if err != nil && out.Made == "" {
		return err // nothing has happened
	}
	out.Value, out.Known = string(raw), err == nil
	op.Output, op.Return = out, x.now()
	if err != nil {
		op.Return = linear.Infinity
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
			rng := rand.New(rand.NewPCG(x.seed, uint64(id)))
			for x.count() < operations && !x.stuck() {
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

// patience is how long nothing may come to pass, and how long the conversations may
// take to come to rest, on a machine that has other things to do.
const patience = 2 * time.Minute

// stuck reports whether no operation has been done for long.
func (x *experiment) stuck() bool {
	x.seen.Lock()
	defer x.seen.Unlock()
	return time.Since(x.latest) > patience
}

// deaths is about how often the process dies in a run. A message that is held has
// an attempt in each life, and may have a hundred.
const deaths = 50

// trouble makes writes fail, and the process die or close, once in so many
// operations.
func (x *experiment) trouble(every int, stop chan struct{}) {
	rng := rand.New(rand.NewPCG(x.seed, 99))
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

// await is reading the outcome of a message once there is one.
const await = "await"

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
	in := linear.Request{Instance: instance, Kind: linear.Admit, ID: old, Identity: "a", Held: instance[0] == 'h'}
	switch what := rng.IntN(100); {
	case old == "" || what < 26:
		in.ID = x.sends(instance)
	case what < 32:
		in.ID, in.Condition = x.sends(instance), store.Condition{Create: true}
	case what < 40 && uid != "":
		in.ID, in.Condition = x.sends(instance), store.Condition{UID: uid}
	case what < 42:
		in.ID, in.Condition = x.sends(instance), store.Condition{UID: "inst_other"}
	case what < 50: // a replay
	case what < 53:
		in.Identity = "b"
	case what < 62 && instance[0] == 'h':
		in.Kind = linear.Abort
	case what < 70:
		in.Kind = await
	default:
		in.Kind = linear.Read
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
func (x *experiment) do(in linear.Request) bool {
	e := x.engine()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	addr := store.Address{Agent: "chat", ID: in.Instance}
	op := porcupine.Operation{Call: x.now()}
	var out linear.Answer
	var err error
	switch in.Kind {
	case linear.Admit:
		out, err = x.admit(ctx, e, addr, in)
	case linear.Abort:
		out.OK, err = e.Abort(ctx, addr)
	case await:
		in.Kind = linear.Read
		awaitOutcome(ctx, e, addr, in.ID)
		fallthrough
	case linear.Read:
		var sub store.Submission
		sub, err = e.Submission(ctx, addr, in.ID)
		out.Outcome = sub.Outcome
		if errors.Is(err, store.ErrNotFound) {
			out.Refused, err = linear.Absent, nil
		}
		if err != nil {
			return false // it has no effect
		}
	}
	op.Input, op.Output, op.Return = in, out, x.now()
	x.seen.Lock()
	defer x.seen.Unlock()
	if err != nil {
		op.Return = linear.Infinity
		x.unsure = append(x.unsure, op)
		return false
	}
	if out.UID != "" {
		x.uids[in.Instance] = out.UID
	}
	x.intake, x.latest = append(x.intake, op), time.Now()
	return true
}

func (x *experiment) admit(ctx context.Context, e *engine.Engine, addr store.Address, in linear.Request) (linear.Answer, error) {
	r, err := e.Admit(ctx, engine.Admission{
		Address: addr, Submission: in.ID, Condition: in.Condition, Identity: []byte(in.Identity), Origin: "direct",
		Message: journal.Message{Kind: journal.User, Body: in.ID + in.Identity},
	})
	var refused *store.ConditionError
	switch {
	case errors.Is(err, store.ErrConflict):
		return linear.Answer{Refused: linear.Conflict}, nil
	case errors.As(err, &refused):
		return linear.Answer{Refused: linear.Condition, UID: refused.UID}, nil
	}
	return linear.Answer{OK: true, Place: r.Offset, UID: r.UID, Created: r.Created, Duplicate: r.Duplicate}, err
}

// awaitOutcome waits for the outcome of a message, but not for long.
func awaitOutcome(ctx context.Context, e *engine.Engine, addr store.Address, id string) {
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
	until := time.Now().Add(patience)
	for instance, ids := range x.ids {
		x.quiesce(instance, until)
		for _, id := range ids {
			x.do(linear.Request{Instance: instance, Kind: linear.Read, ID: id, Held: instance[0] == 'h', Final: true})
		}
	}
	lost := x.resolve()
	x.Logf("%d operations, %d more have had no effect, of %d nobody was told the outcome, %d instances, %d lives, %s",
		x.count(), lost, len(x.unsure), len(x.ids), x.lives, time.Since(x.began).Round(time.Millisecond))
	for _, h := range []struct {
		model   linear.Model
		history []porcupine.Operation
	}{
		{linear.Intake(), x.intake},
		{linear.Settlement(), x.intake},
		{linear.Step(), x.steps},
	} {
		began := time.Now()
		if err := h.model.Check(h.history, 5*time.Second); err != nil {
			x.Error(err)
		}
		x.Logf("%s: judged after %s", h.model.Name, time.Since(began).Round(time.Millisecond))
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
		in := op.Input.(linear.Request)
		out := linear.Answer{Unknown: true}
		if in.Kind == linear.Admit {
			a, ok := all[in.ID]
			if !ok || a.body != in.ID+in.Identity {
				lost++
				continue
			}
			out.Place, out.UID = a.place, a.uid
		}
		op.Output = out
		x.intake = append(x.intake, op)
	}
	return lost
}
