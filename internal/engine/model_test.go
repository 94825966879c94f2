package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/internal/project"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
	"github.com/flue-go/flue/wire"
)

// TestHistories runs random histories of messages, aborts, deaths, failing
// writes, closings and releases on the real engine, in simulated time, and holds
// each to the promises of the engine.
//
// An ordinary run stops after 20,000 histories or ten seconds.
// FLUE_SEQUENCES=500000 runs as many as it says, however long that takes. A
// failure is shrunk to a minimal history, which is printed, and kept in
// testdata/rapid, from where the next run replays it first.
//
// What it is good for was tried out with faults of one line, each in a copy. Each
// of these was found in ten seconds:
//
//   - a call is run again whose tool was ordinary when the model asked for it, or
//     has become so;
//   - the memo of steps is ignored; a step returns before it is recorded; a step
//     that must run once is run again;
//   - calls run before the message that names them is appended;
//   - an outcome is kept that stands on a write of a lost call;
//   - a seam is appended without the state of its hooks, or apart from its message;
//   - what joined settles after its host; the last of the queue goes first;
//   - a batch that ends the turn does not;
//   - a batch is published before it is appended; the hub passes over a batch;
//   - a message is acknowledged although the store has failed; the store does not
//     know a message again; identities are not compared;
//   - an abort is not noticed by running work, covers the active message only, or
//     covers what comes later;
//   - a stop in order counts as an attempt; the deadline starts anew with each;
//   - failures in a row are not counted; what a cut answer had said is dropped;
//   - a checkpoint lacks the steps, or covers a batch more than it says;
//   - finish hooks do not run after a takeover; a render has the first message in
//     front and not the latest; steps of a start go with a response that failed.
func TestHistories(t *testing.T) {
	most, until := 20_000, time.Now().Add(10*time.Second)
	if testing.Short() {
		until = time.Now().Add(2 * time.Second)
	}
	if s := os.Getenv("FLUE_SEQUENCES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		most, until = n, time.Now().Add(24*time.Hour)
	}
	checks := flag.Lookup("rapid.checks").Value
	was := checks.String()
	const shards = 2
	each := most / shards
	if testing.Short() {
		each *= 5 // which rapid divides by five
	}
	if err := checks.Set(strconv.Itoa(max(each, 1))); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = checks.Set(was) }()
	var ran atomic.Int64
	t.Run("shards", func(t *testing.T) {
		for shard := range shards {
			t.Run(strconv.Itoa(shard), func(t *testing.T) {
				t.Parallel()
				searchHistories(t, until, &ran)
			})
		}
	})
	t.Logf("%d histories", ran.Load())
}

// Histories that have once broken a promise.
func TestFoundHistories(t *testing.T) {
	for _, tt := range []struct {
		name string
		history
	}{
		{
			// The response's attempts are used up while the next message, which
			// was about to join it, runs its start hooks. That message begins by
			// itself and does not repeat the steps that it has recorded.
			"steps of a start whose response failed",
			history{Attempts: 2, First: deploy{Start: true}, Steps: []event{
				{Kind: "send", Say: recipe{End: "text", Dispatch: true}},
				{Kind: "pause", Wait: 250 * time.Millisecond},
				{Kind: "restart"},
				{Kind: "restart"},
			}},
		},
		{
			// The model asked for a call of an idempotent tool. The call waited, and
			// began under a release whose tool was an ordinary one, which died; the
			// release after that has the idempotent tool again.
			"a call that waited while its tool became an ordinary one",
			history{Attempts: 10, Parallel: 1, Every: 1, Merge: time.Second, Steps: []event{
				{Kind: "release", Turns: "again"},
				{Kind: "send", Say: recipe{Batches: []string{"pp"}, End: "text"}},
				{Kind: "release", Turns: "again"},
				{Kind: "release", Turns: "again", Kill: true},
			}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if bad := tt.run(t); bad != nil {
				t.Errorf("broken: %s\n%s", bad.promise, bad.detail)
			}
		})
	}
}

// searchHistories runs histories until one breaks a promise or the time is up.
func searchHistories(t *testing.T, until time.Time, ran *atomic.Int64) {
	broken := "" // the promise that the first failure has broken; shrinking keeps to it
	rapid.Check(t, func(rt *rapid.T) {
		if broken == "" && time.Now().After(until) {
			return
		}
		h := histories.Draw(rt, "history")
		tries := 1
		if broken != "" {
			tries = 3 // goroutines may run in another order than the first time
		}
		for range tries {
			ran.Add(1)
			bad := h.run(t)
			if bad == nil || broken != "" && broken != bad.promise {
				continue
			}
			broken = bad.promise
			rt.Logf("the history:\n%s\n%s", h, bad.detail)
			rt.Fatalf("broken: %s", bad.promise)
		}
	})
}

// A history is what happens to a program over its lives.
type history struct {
	Watched  bool          // somebody follows the conversations
	Calm     bool          // time goes by before the last death
	Attempts int           // of a submission
	Parallel int           // calls of a turn that may run at once; 0 is the default
	Every    int           // see engine.Config.CheckpointEvery
	Merge    time.Duration // see engine.Config.MergeAfter
	First    deploy
	Steps    []event
}

// A deploy is what a release of the program declares.
type deploy struct {
	NoPlain    bool // the tool plain is not there
	PlainAgain bool // it is there, and may be run again
	Start      bool // there are start hooks
	Finish     bool // there are finish hooks
	Words      int  // of the instructions
}

// An event is one thing that happens.
type event struct {
	Kind  string
	Where int // which instance
	Which int // of the messages sent so far, for replays and conflicts
	Say   recipe
	N     int // the write at which it fails
	Mode  faultstore.Mode
	Wait  time.Duration
	Turns string // of the release: what changes
	Kill  bool   // of the release: the process before it is killed
}

// A recipe says how the model answers a message. Batches are the tool calls that
// it asks for, a letter a call, one turn after another; then comes End.
type recipe struct {
	Batches  []string
	End      string
	Flaky    int  // failures that pass, before the first answer
	Cycle    bool // the finish hooks send the model back once
	Dispatch bool // the start hooks send a message to the same instance
}

func (h history) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "watched=%v calm=%v attempts=%d parallel=%d every=%d merge=%s release=%+v\n", h.Watched, h.Calm, h.Attempts, h.Parallel, h.Every, h.Merge, h.First)
	for _, s := range h.Steps {
		switch kind := s.Kind; {
		case kind == "send":
			fmt.Fprintf(&b, "  send to c%d: %+v\n", s.Where, s.Say)
		case kind == "replay", kind == "conflict":
			fmt.Fprintf(&b, "  %s message %d\n", s.Kind, s.Which)
		case kind == "abort", kind == "compact":
			fmt.Fprintf(&b, "  %s c%d\n", kind, s.Where)
		case kind == "crash", kind == "fail":
			fmt.Fprintf(&b, "  %s at write %d, %s\n", s.Kind, s.N, s.Mode)
		case kind == "pause", kind == "close", kind == "lapse":
			fmt.Fprintf(&b, "  %s %s\n", s.Kind, s.Wait)
		case kind == "release" && s.Kill:
			fmt.Fprintf(&b, "  release after a kill: %s\n", s.Turns)
		case kind == "release":
			fmt.Fprintf(&b, "  release after closing for %s: %s\n", s.Wait, s.Turns)
		default:
			fmt.Fprintf(&b, "  %s\n", s.Kind)
		}
	}
	return b.String()
}

var (
	recipes = rapid.Custom(func(t *rapid.T) recipe {
		return recipe{
			Batches: rapid.SliceOfN(rapid.StringOfN(rapid.SampledFrom([]rune("pppddoefsgt")), 1, 5, -1), 0, 2).Draw(t, "batches"),
			End:     rapid.SampledFrom([]string{"text", "text", "slow", "slow", "silent", "length", "fatal", "hang"}).Draw(t, "end"),
			Flaky:   rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, 2, 4}).Draw(t, "flaky"),
			Cycle:   rapid.Bool().Draw(t, "cycle"), Dispatch: rapid.SampledFrom([]bool{false, false, true}).Draw(t, "dispatch"),
		}
	})

	waits = []time.Duration{0, 5 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 400 * time.Millisecond, time.Second, 3 * time.Second, 30 * time.Second}

	happenings = rapid.Custom(func(t *rapid.T) event {
		e := event{Kind: rapid.SampledFrom([]string{
			"send", "send", "send", "send", "pause", "pause", "pause", "crash", "crash", "fail",
			"restart", "close", "release", "release", "abort", "replay", "conflict", "lapse", "compact",
		}).Draw(t, "kind")}
		switch e.Kind {
		case "send":
			e.Where = rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "where")
			e.Say = recipes.Draw(t, "recipe")
		case "replay", "conflict":
			e.Which = rapid.IntRange(0, 5).Draw(t, "which")
		case "abort", "compact":
			e.Where = rapid.SampledFrom([]int{0, 0, 1}).Draw(t, "where")
		case "crash", "fail":
			e.N = rapid.IntRange(1, 8).Draw(t, "n")
			e.Mode = rapid.SampledFrom(modes).Draw(t, "mode")
		case "pause", "close", "lapse":
			e.Wait = rapid.SampledFrom(waits).Draw(t, "wait")
		case "release":
			e.Wait = rapid.SampledFrom(waits).Draw(t, "wait")
			e.Turns = rapid.SampledFrom([]string{"plain", "again", "again", "start", "finish", "words"}).Draw(t, "turns")
			e.Kill = rapid.Bool().Draw(t, "kill")
		}
		return e
	})

	histories = rapid.Custom(func(t *rapid.T) history {
		return history{
			Watched:  rapid.Bool().Draw(t, "watched"),
			Calm:     rapid.Bool().Draw(t, "calm"),
			Attempts: rapid.SampledFrom([]int{10, 10, 10, 2}).Draw(t, "attempts"),
			Parallel: rapid.SampledFrom([]int{0, 2, 1, 3}).Draw(t, "parallel"),
			Every:    rapid.SampledFrom([]int{1, 1, 7, 0}).Draw(t, "every"),
			Merge:    rapid.SampledFrom([]time.Duration{time.Second, time.Millisecond, 0}).Draw(t, "merge"),
			First: deploy{
				Start:  rapid.Bool().Draw(t, "start"),
				Finish: rapid.Bool().Draw(t, "finish"),
			},
			Steps: rapid.SliceOfN(happenings, 1, 14).Draw(t, "steps"),
		}
	})
)

// A breach is a promise that was broken.
type breach struct{ promise, detail string }

// A trial is a history that is being run.
type trial struct {
	history
	*world
	began   time.Time
	durable *memstore.Store // guarded by world.mu, as all that follows
	fs      *faultstore.Store
	e       *engine.Engine
	release deploy
	bad     *breach

	sent   []*sending
	say    map[string]recipe // by message
	flaky  map[string]int
	aborts []acknowledged
	lives  []life
	lapsed bool // a write of this life was made to fail

	stopped bool // the lease has lapsed

	delivered map[string]string          // what the latest render had in front of the model, by instance
	forms     map[string]map[string]bool // the contexts that the model was shown, by instance
	values    map[string]string          // of steps, by scope and name
	once      map[string]int             // runs of steps that must run once
	ran       map[string][]bool          // runs of a call, whether its tool may be run again
	running   map[string]int             // calls that run now, by turn
	marked    map[string]bool            // calls whose function wrote and returned
	finished  map[string][]time.Time     // runs of the finish hooks, by instance

	followers []*follower
	minted    int
	pages     map[store.Address][]page // what was read of the journals
}

// A sending is a message of the history.
type sending struct {
	id, body string
	addr     store.Address
	receipt  *store.Receipt // of its first acknowledgement
}

// A life is the time from the opening of an engine to the next.
type life struct {
	from    time.Time
	release deploy
	heads   map[store.Address]int64
}

// An acknowledged abort.
type acknowledged struct {
	addr store.Address
	at   time.Time
}

var places = []store.Address{{Agent: "chat", ID: "c0"}, {Agent: "chat", ID: "c1"}}

// breaks notes a broken promise; the first one counts.
func (r *trial) breaks(promise, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bad == nil {
		r.bad = &breach{promise, fmt.Sprintf(format, args...)}
	}
}

// run runs the history in a bubble of its own.
func (h history) run(t *testing.T) (bad *breach) {
	watch := time.AfterFunc(30*time.Second, func() { panic("this history does not end:\n" + h.String()) })
	defer watch.Stop()
	synctest.Test(t, func(*testing.T) {
		r := &trial{
			history: h, world: newWorld(), durable: memstore.New(), began: time.Now(), release: h.First,
			say: make(map[string]recipe), flaky: make(map[string]int), delivered: make(map[string]string),
			forms: make(map[string]map[string]bool), values: make(map[string]string), once: make(map[string]int),
			ran: make(map[string][]bool), running: make(map[string]int), marked: make(map[string]bool), finished: make(map[string][]time.Time),
			pages: make(map[store.Address][]page),
		}
		r.budget = engine.Budget{MaxAttempts: h.Attempts, Timeout: 2 * time.Minute, ParallelCalls: h.Parallel}
		r.world.render, r.reply, r.every = r.plan, r.answer, h.Every
		r.merge = h.Merge
		defer func() {
			if p := recover(); p != nil {
				r.breaks("nothing panics", "%v\n%s", p, debug.Stack())
			}
			for _, f := range r.followers {
				f.stop()
			}
			if r.e != nil {
				r.die()
			}
			time.Sleep(time.Minute) // code that was left behind ends by itself
			bad = r.bad
		}()
		r.open()
		for _, addr := range places {
			if h.Watched {
				r.followers = append(r.followers, r.follow(addr))
			}
		}
		for _, s := range h.Steps {
			r.step(s)
			synctest.Wait()
			if r.fs.Crashed() {
				r.die()
				r.open()
			}
			if r.bad != nil {
				return
			}
		}
		r.end()
	})
	return bad
}

// open starts the next life.
func (r *trial) open() {
	r.mu.Lock()
	r.stopped = false
	r.mu.Unlock()
	fs := faultstore.New(r.journals())
	fs.SetHook(func(_ context.Context, p faultstore.Point) error {
		if p.Done {
			r.read(p.Address) // before its text is merged
		}
		if p.Done && errors.Is(p.Err, faultstore.ErrInjected) {
			r.mu.Lock()
			r.lapsed = true
			r.mu.Unlock()
		}
		return nil
	})
	heads := make(map[store.Address]int64)
	for _, addr := range places {
		heads[addr] = int64(len(r.read(addr))) - 1
		if _, err := engine.LoadsAlike(context.Background(), r.journals(), addr); err != nil && !errors.Is(err, store.ErrNotFound) {
			r.breaks("a checkpoint says what the journal says", "%v", err)
		}
	}
	r.mu.Lock()
	r.fs, r.lapsed = fs, false
	r.lives = append(r.lives, life{time.Now(), r.release, heads})
	r.mu.Unlock()
	e, err := r.world.open(fs)
	if err != nil {
		panic(err)
	}
	r.mu.Lock()
	r.e = e
	r.mu.Unlock()
}

func (r *trial) engine() *engine.Engine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.e
}

// journals is what is durable.
func (r *trial) journals() *memstore.Store {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.durable
}

// die ends the life as SIGKILL would.
func (r *trial) die() {
	r.fs.CrashNow()
	r.closed(0)
	r.fs.Flush()
	r.reopen()
}

func (r *trial) reopen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.durable = r.durable.Reopen()
}

func (r *trial) closed(patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.e.Close(ctx); err != nil && !r.uses('s') {
		r.breaks("a runtime closes", "%v", err)
	}
}

// uses reports whether the model may ask for a kind of call.
func (r *trial) uses(kind rune) bool {
	for _, s := range r.Steps {
		if strings.ContainsRune(strings.Join(s.Say.Batches, ""), kind) {
			return true
		}
	}
	return false
}

// shut ends the life in order.
func (r *trial) shut(patience time.Duration) {
	r.closed(patience)
	r.mu.Lock()
	lapsed := r.lapsed
	r.mu.Unlock()
	if !lapsed && !r.fs.Crashed() && !r.uses('s') {
		for _, addr := range places {
			r.unspent(addr)
		}
	}
	r.fs.Flush()
	r.reopen()
}

// unspent checks that a stop in order has cost no attempt.
func (r *trial) unspent(addr store.Address) {
	st, open := &fold.State{Head: -1}, false
	began := r.lives[len(r.lives)-1].heads[addr]
	for _, b := range r.read(addr) {
		for _, rec := range b.Records {
			switch rec.(type) {
			case *journal.Attempt:
				open = b.offset > began
			case *journal.Release:
				open = false
			}
			if err := st.Apply(rec); err != nil {
				return // told elsewhere
			}
		}
	}
	if open && st.Active != nil {
		r.breaks("42: a stop in order spends no attempt", "%s rests in phase %s with an open attempt", addr, st.Phase)
	}
}

func (r *trial) step(s event) {
	switch s.Kind {
	case "send":
		m := &sending{addr: places[s.Where], body: fmt.Sprintf("#%d", len(r.sent))}
		m.id = submissionFor(m.body)
		r.mu.Lock()
		r.sent = append(r.sent, m)
		r.say[m.body], r.flaky[m.body] = s.Say, s.Say.Flaky
		r.mu.Unlock()
		r.send(m)
	case "compact":
		m := &sending{addr: places[s.Where], body: fmt.Sprint(compactBody, len(r.sent))}
		m.id = submissionFor(m.body)
		r.mu.Lock()
		r.sent = append(r.sent, m)
		r.mu.Unlock()
		r.send(m)
	case "replay":
		if s.Which < len(r.sent) {
			r.send(r.sent[s.Which])
		}
	case "conflict":
		if s.Which < len(r.sent) && r.sent[s.Which].receipt != nil {
			r.conflict(r.sent[s.Which])
		}
	case "abort":
		at := time.Now()
		if ok, err := r.e.Abort(context.Background(), places[s.Where]); ok && err == nil {
			r.aborts = append(r.aborts, acknowledged{places[s.Where], at})
		}
	case "crash":
		r.fs.Crash(s.N, s.Mode)
	case "fail":
		r.fs.Fail(s.N, s.Mode)
	case "restart":
		r.die()
		r.open()
	case "close":
		r.shut(s.Wait)
		r.open()
	case "release":
		if s.Kill {
			r.die()
		} else {
			r.shut(s.Wait)
		}
		r.mu.Lock()
		switch s.Turns {
		case "plain":
			r.release.NoPlain = !r.release.NoPlain
		case "again":
			r.release.PlainAgain = !r.release.PlainAgain
		case "start":
			r.release.Start = !r.release.Start
		case "finish":
			r.release.Finish = !r.release.Finish
		case "words":
			r.release.Words++
		}
		r.mu.Unlock()
		r.open()
	case "pause":
		r.pass(s.Wait)
	case "lapse": // renewals fail for as long as it takes, and then for a while
		fs := r.fs
		fs.RefuseRenewals(errNoRenewal)
		r.pass(5 * time.Second)
		r.stop(r.fs == fs && !fs.Crashed()) // it may have died, and the next one has a lease of its own
		r.pass(s.Wait)
		r.stop(false)
		fs.RefuseRenewals(nil)
		r.pass(time.Second)
	}
}

// stop says whether nothing may begin, because the lease has lapsed.
func (r *trial) stop(all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = all
}

// begins checks that something may begin.
func (r *trial) begins(what string) {
	r.mu.Lock()
	stopped := r.stopped
	r.mu.Unlock()
	if stopped {
		r.breaks("23: nothing begins when the lease has lapsed", "%s", what)
	}
}

// pass lets time go by; a life that ends in it is followed by the next.
func (r *trial) pass(d time.Duration) {
	for end := time.Now().Add(d); ; {
		synctest.Wait()
		if r.fs.Crashed() {
			r.die()
			r.open()
		}
		left := time.Until(end)
		if left <= 0 {
			return
		}
		time.Sleep(min(left, 250*time.Millisecond))
	}
}

// compactBody begins the body of a message that asks for a compaction.
const compactBody = "~"

func (r *trial) admission(m *sending, identity string) engine.Admission {
	a := engine.Admission{
		Address: m.addr, Submission: m.id, Identity: []byte(identity), Origin: "direct",
		Message: journal.Message{Kind: journal.User, Body: m.body},
	}
	if strings.HasPrefix(m.body, compactBody) {
		a.Message = journal.Message{
			Kind: journal.Signal, Type: journal.SignalCompaction, Body: m.body, Attributes: map[string]string{engine.CommandDo: engine.CommandCompact},
		}
	}
	return a
}

// send sends a message, for the first time or again.
func (r *trial) send(m *sending) {
	got, err := r.e.Admit(context.Background(), r.admission(m, m.body))
	switch {
	case errors.Is(err, faultstore.ErrInjected):
		return // it may be there, and may not
	case err != nil:
		r.breaks("1: a message is accepted", "%s: %v", m.body, err)
		return
	}
	got.Lease = nil
	if first := m.receipt; first != nil {
		want := *first
		want.Duplicate = true
		if got != want {
			r.breaks("2: a message that is sent again gets the same receipt", "%s: %+v, and before %+v", m.body, got, want)
		}
		return
	}
	if !got.Duplicate {
		for _, other := range r.sent {
			if other.addr == m.addr && other.receipt != nil && other.receipt.Offset >= got.Offset {
				r.breaks("8: messages are accepted in the order in which they are sent", "%s at %d, after %s at %d", m.body, got.Offset, other.body, other.receipt.Offset)
			}
		}
	}
	got.Duplicate = false
	m.receipt = &got
}

func (r *trial) conflict(m *sending) {
	_, err := r.e.Admit(context.Background(), r.admission(m, "something else"))
	if !errors.Is(err, store.ErrConflict) && !errors.Is(err, faultstore.ErrInjected) {
		r.breaks("3: an id with another message is refused", "%s: %v", m.body, err)
	}
}

// end lets the history come to rest without further faults, and looks at it.
func (r *trial) end() {
	if r.Calm {
		r.pass(15 * time.Second)
	}
	r.die() // with it go faults that are still to come
	r.open()
	if !r.rest() || r.bad != nil {
		return
	}
	for _, f := range r.followers {
		f.drain()
	}
	r.die()
	r.open()
	for _, addr := range places {
		r.check(addr)
	}
	// Whatever happened, the next message works.
	r.mu.Lock()
	r.release.NoPlain = false
	r.mu.Unlock()
	var last []*sending
	for i, addr := range places {
		m := &sending{addr: addr, id: "sub_last", body: fmt.Sprintf("#%d", 2000+i)}
		r.send(m)
		last = append(last, m)
	}
	if !r.rest() {
		return
	}
	for _, m := range last {
		if got, err := r.e.Submission(context.Background(), m.addr, m.id); err != nil || got.Outcome != journal.Completed {
			r.breaks("35: the next message works", "it is %+v, %v", got, err)
		}
	}
}

// rest waits until nothing is unsettled.
func (r *trial) rest() bool {
	for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		synctest.Wait()
		open := 0
		for _, addr := range places {
			in, err := r.e.Instance(context.Background(), addr)
			if err == nil {
				open += in.Unsettled
			} else if !errors.Is(err, store.ErrNotFound) {
				panic(err)
			}
		}
		if open == 0 {
			return true
		}
	}
	r.breaks("35: after faults stop, everything settles", "an hour later something is unsettled")
	return false
}

// plan is the agent.
func (r *trial) plan(v engine.View) (*engine.Plan, error) {
	r.mu.Lock()
	d := r.release
	r.delivered[v.ID] = form(v.Delivery)
	r.mu.Unlock()
	r.balanced("a render", v.Vars)
	p := &engine.Plan{
		Settings:     journal.Settings{Model: "test/m", Compaction: &journal.Compaction{KeepRecentTokens: 60}},
		Instructions: v.ID + strings.Repeat(" again", d.Words),
		Writers:      []string{"progress"},
		Tools: []engine.Tool{
			r.durableTool("durable", false), r.durableTool("once", true),
			r.tool("finish", false, func(context.Context, *engine.Work) engine.Result { return engine.Result{Content: "bye", EndTurn: true} }),
			r.tool("fails", false, func(_ context.Context, c *engine.Work) engine.Result {
				return engine.Result{Failed: true, Content: fmt.Sprint("no luck ", r.mark(c, "done:"+c.ID))}
			}),
			r.tool("stuck", false, r.stuck),
		},
	}
	if !d.NoPlain {
		p.Tools = append(p.Tools, r.tool("plain", d.PlainAgain, r.plain))
	}
	body := v.Delivery.Body
	if d.Start {
		p.Start = []engine.Hook{
			{Name: "first", Run: func(ctx context.Context, w *engine.Work) error { return r.greet(ctx, w, v.ID, body) }},
			{Name: "second", Run: func(_ context.Context, w *engine.Work) error {
				return errors.Join(w.Append(signalOf("second")), r.mark(w, "second:"+body))
			}},
		}
	}
	if d.Finish {
		p.Finish = []engine.Hook{{Name: "review", Run: func(_ context.Context, w *engine.Work) error { return r.review(w, v.ID) }}}
		p.ResponseFinish = []engine.Hook{{Name: "sum", Run: func(_ context.Context, w *engine.Work) error {
			return w.Attach(mustJSON(map[string]any{"sum": len(w.Response.Calls)}))
		}}}
	}
	return p, nil
}

// balanced checks that of what a work writes as one, all is there or nothing:
// each mark comes with one more of n.
func (r *trial) balanced(who string, vars map[string]json.RawMessage) {
	n, marks := 0, 0
	for name, value := range vars {
		if name == "n" {
			if err := json.Unmarshal(value, &n); err != nil {
				panic(err)
			}
		} else {
			marks++
		}
	}
	if n != marks {
		r.breaks("67: the writes of code that runs are all there or none", "%s sees n=%d and %d marks: %s", who, n, marks, mustJSON(vars))
	}
}

// mark writes a name and counts it.
func (r *trial) mark(w *engine.Work, name string) error {
	if w.Var(name) != nil {
		return nil
	}
	return errors.Join(addOne(w), w.Set(name, mustJSON(true)))
}

// tool makes a tool that notes its runs and checks that its call may run.
func (r *trial) tool(name string, again bool, fn func(ctx context.Context, c *engine.Work) engine.Result) engine.Tool {
	return engine.Tool{
		Spec:  model.Tool{Name: name, Description: name, Schema: []byte(`{"type":"object"}`)},
		Again: again,
		Run: func(ctx context.Context, c *engine.Work, _ string) engine.Result {
			r.begins("call " + c.ID)
			r.mu.Lock()
			before := r.ran[c.ID]
			r.ran[c.ID] = append(before[:len(before):len(before)], again)
			turn := c.ID[:strings.LastIndexByte(c.ID, '.')]
			r.running[turn]++
			n := r.running[turn]
			r.mu.Unlock()
			defer func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.running[turn]--
			}()
			if most := r.Parallel; most > 0 && n > most && !r.uses('s') {
				r.breaks("no more calls run at once than may", "%d of %s", n, turn)
			}
			if len(before) > 0 && (!again || !before[0]) {
				r.breaks("55: an ordinary call is not run again", "%s runs after %v", c.ID, before)
			}
			asked, named := false, false
			for _, rec := range r.recorded(c.ID) {
				switch rec := rec.(type) {
				case *journal.Called:
					named = named || slices.Contains(rec.Calls, c.ID)
				case *journal.TurnDone:
					asked = asked || slices.ContainsFunc(rec.Blocks, func(b journal.Block) bool { return b.Call == c.ID })
				case *journal.Outcome:
					if rec.Call == c.ID {
						r.breaks("54: a call that has an outcome is not run again", "%s has %+v", c.ID, rec)
					}
				}
			}
			if !asked || !named {
				r.breaks("52: a call runs when the message that asks for it and the record that names it are durable", "%s", c.ID)
			}
			result := fn(ctx, c)
			if !result.Failed && c.Var("done:"+c.ID) != nil {
				r.mu.Lock()
				r.marked[c.ID] = true
				r.mu.Unlock()
			}
			return result
		},
	}
}

// recorded is the journal of the instance that a call belongs to: its id begins
// with the instance's.
func (r *trial) recorded(call string) []journal.Record {
	var out []journal.Record
	for _, b := range r.read(store.Address{Agent: "chat", ID: call[:2]}) {
		out = append(out, b.Records...)
	}
	return out
}

func failedBy(err error) engine.Result {
	return engine.Result{Failed: true, Content: err.Error(), Err: err}
}

func (r *trial) plain(ctx context.Context, c *engine.Work) engine.Result {
	if err := r.show(ctx, c); err != nil {
		return failedBy(err)
	}
	if !pause(ctx, 300*time.Millisecond) {
		return failedBy(ctx.Err())
	}
	if err := r.mark(c, "done:"+c.ID); err != nil {
		return failedBy(err)
	}
	return engine.Result{Content: "did " + c.ID}
}

// stuck writes, then does not stop when it is told to, and writes again.
func (r *trial) stuck(_ context.Context, c *engine.Work) engine.Result {
	if err := r.mark(c, "done:"+c.ID); err != nil {
		return failedBy(err)
	}
	time.Sleep(10 * time.Second)
	if err := r.mark(c, "late:"+c.ID); err != nil {
		return failedBy(err)
	}
	return engine.Result{Content: "did " + c.ID}
}

func (r *trial) show(ctx context.Context, c *engine.Work) error {
	value := mustJSON(c.ID + r.fresh())
	if err := c.Show(ctx, "progress", value); err != nil {
		return err
	}
	if !slices.ContainsFunc(r.recorded(c.ID), func(rec journal.Record) bool {
		d, ok := rec.(*journal.Data)
		return ok && string(d.Value) == string(value)
	}) {
		r.breaks("75: what a tool has shown is durable", "%s of %s", value, c.ID)
	}
	return nil
}

// fresh is a text that no other call of it has returned.
func (r *trial) fresh() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.minted++
	return fmt.Sprintf("-%d", r.minted)
}

func (r *trial) durableTool(name string, once bool) engine.Tool {
	return r.tool(name, true, func(ctx context.Context, c *engine.Work) engine.Result {
		a, err := r.work(ctx, c, c.ID[:2], journal.CallScope(c.ID), "a", once)
		if err != nil && !errors.Is(err, engine.ErrOutcomeUnknown) {
			return failedBy(err)
		}
		if !pause(ctx, 200*time.Millisecond) {
			return failedBy(ctx.Err())
		}
		b, err := r.work(ctx, c, c.ID[:2], journal.CallScope(c.ID), "b", false)
		if err != nil {
			return failedBy(err)
		}
		if _, err := c.Step(ctx, "b", false, nil); !errors.Is(err, engine.ErrStepReused) && ctx.Err() == nil {
			r.breaks("64: a name is used once in a run", "%v", err)
		}
		if err := r.mark(c, "done:"+c.ID); err != nil {
			return failedBy(err)
		}
		return engine.Result{Content: a + b}
	})
}

// work runs one step and holds it to what is promised of steps.
func (r *trial) work(ctx context.Context, w *engine.Work, instance, scope, name string, once bool) (string, error) {
	key := instance + " " + scope + " " + name
	steps := func() (values []string) {
		for _, rec := range r.recorded(instance) {
			if s, ok := rec.(*journal.Step); ok && s.Scope == scope && s.Name == name && len(s.Value) > 0 {
				values = append(values, string(s.Value))
			}
		}
		return values
	}
	raw, err := w.Step(ctx, name, once, func(ctx context.Context) (json.RawMessage, error) {
		r.begins("step " + key)
		if got := steps(); len(got) > 0 {
			r.breaks("62: a step that is recorded is not run again", "%s has %q", key, got)
		}
		r.mu.Lock()
		r.once[key]++
		runs := r.once[key]
		r.mu.Unlock()
		if once && runs > 1 {
			r.breaks("62: a step that must run once runs once", "%s", key)
		}
		pause(ctx, 50*time.Millisecond)
		return mustJSON(key + r.fresh()), nil
	})
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	before, again := r.values[key]
	r.values[key] = string(raw)
	r.mu.Unlock()
	if again && before != string(raw) {
		r.breaks("63: a step has one value", "%s was %s and is %s", key, before, raw)
	}
	if got := steps(); !slices.Equal(got, []string{string(raw)}) {
		r.breaks("60: a step's value is durable, once, when the step returns", "%s returns %s, recorded are %q", key, raw, got)
	}
	return string(raw), nil
}

// greet is a start hook: it runs a step, dispatches, appends and writes.
func (r *trial) greet(ctx context.Context, w *engine.Work, instance, body string) error {
	r.mu.Lock()
	say := r.say[body]
	r.mu.Unlock()
	n, id := number(body), submissionFor(body)
	if _, err := r.work(ctx, w, instance, journal.StartScope(id), "greet", false); err != nil {
		return err
	}
	if say.Dispatch {
		// It may fail, as the store does: then nothing is sent.
		_, _ = r.engine().Admit(ctx, engine.Admission{
			Address: store.Address{Agent: "chat", ID: instance}, Submission: "disp_" + id, Identity: []byte(id), Origin: "dispatch",
			Message: journal.Message{Kind: journal.User, Body: fmt.Sprintf("#%d", 1000+n)},
		})
	}
	pause(ctx, 100*time.Millisecond) // the second one has ended long ago
	return errors.Join(w.Append(signalOf("first")), r.mark(w, "first:"+body))
}

// number is the number of a message.
func number(body string) int {
	n, err := strconv.Atoi(body[1:])
	if err != nil {
		panic(err)
	}
	return n
}

// submissionFor is the id under which a message was sent.
func submissionFor(body string) string {
	switch n := number(body); {
	case n >= 2000:
		return "sub_last"
	case n >= 1000:
		return fmt.Sprintf("disp_sub_%d", n-1000)
	default:
		return fmt.Sprintf("sub_%d", n)
	}
}

// review is the finish hook: it sends the model back to work once for each
// message that says so.
func (r *trial) review(w *engine.Work, instance string) error {
	r.mu.Lock()
	r.finished[instance] = append(r.finished[instance], time.Now())
	var again []string
	for _, m := range r.sent {
		if m.addr.ID == instance && r.say[m.body].Cycle {
			again = append(again, m.body)
		}
	}
	r.mu.Unlock()
	for _, body := range again {
		if w.Var("reviewed:"+body) == nil && w.Var("first:"+body) != nil {
			return errors.Join(w.Append(signalOf("review")), r.mark(w, "reviewed:"+body))
		}
	}
	return nil
}

// answer is the model.
func (r *trial) answer(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
	if err := wellFormed(req.Messages); err != nil {
		r.breaks("53: every call has its result in the next message", "%v", err)
	}
	r.begins("a model call")
	if isSummary(req) {
		if pause(ctx, 200*time.Millisecond) {
			say(yield, "so far")
		}
		return
	}
	instance := req.System[:2]
	shown, latest := requestForm(req)
	body, k := asked(req)
	if strings.Contains(shown, "<compaction\n") {
		k = max(k, r.asksMade(instance, body))
	}
	r.mu.Lock()
	if r.forms[instance] == nil {
		r.forms[instance] = make(map[string]bool)
	}
	r.forms[instance][shown] = true
	delivered := r.delivered[instance]
	say := r.say[body]
	flaky := r.flaky[body] > 0
	if flaky {
		r.flaky[body]--
	}
	r.mu.Unlock()
	if latest != delivered {
		r.breaks("76: the render has the message in front that is before the model", "%q, and the model %q", delivered, latest)
	}
	switch {
	case flaky:
		yield(nil, &model.Error{Class: model.Retryable, Message: "try again"})
	case k < len(say.Batches):
		r.ask(instance+body, k, say.Batches[k], yield)
	case say.End == "fatal":
		yield(nil, &model.Error{Class: model.Invalid, Message: "no"})
	case say.End == "hang":
		yield(model.Delta{Kind: model.Text, Text: "well"}, nil)
		<-ctx.Done()
	case say.End == "silent":
		yield(model.Done{Stop: model.StopEnd}, nil)
	case say.End == "length":
		yield(model.Delta{Kind: model.Text, Text: "too lo"}, nil)
		yield(model.Done{Stop: model.StopLength}, nil)
	case say.End == "slow":
		for i := range 5 {
			if !yield(model.Delta{Kind: model.Text, Text: fmt.Sprint("slow ", i, " ")}, nil) || !pause(ctx, 300*time.Millisecond) {
				return
			}
		}
		yield(model.Done{Stop: model.StopEnd}, nil)
	default:
		yield(model.Delta{Kind: model.Text, Text: "re: " + body}, nil)
		yield(model.Done{Stop: model.StopEnd, Usage: model.Usage{Input: 1}}, nil)
	}
}

var callTools = map[rune]string{'p': "plain", 'd': "durable", 'o': "once", 'e': "finish", 'f': "fails", 's': "stuck", 'g': "gone", 't': "plain"}

// ask is an answer that asks for calls; with a t among them it is cut by its
// length.
func (r *trial) ask(prefix string, k int, kinds string, yield func(model.Event, error) bool) {
	yield(model.Delta{Kind: model.Text, Text: "let me see"}, nil)
	for i, kind := range kinds {
		id := fmt.Sprintf("%s.%d.%d", prefix, k, i)
		if !yield(model.BlockDone{Index: i + 1, Block: model.Block{Kind: model.ToolCall, Name: callTools[kind], CallID: id, Arguments: fmt.Sprintf(`{"n":%d}`, i)}}, nil) {
			return
		}
	}
	stop := model.StopToolUse
	if strings.Contains(kinds, "t") {
		stop = model.StopLength
	}
	yield(model.Done{Stop: stop}, nil)
}

// asksMade is how many batches of calls were asked for by the journal: of those
// before a compaction the request shows nothing.
func (r *trial) asksMade(instance, body string) int {
	made := 0
	for _, p := range r.read(store.Address{Agent: "chat", ID: instance}) {
		for _, rec := range p.Records {
			t, ok := rec.(*journal.TurnDone)
			if !ok {
				continue
			}
			for _, b := range t.Blocks {
				if rest, ok := strings.CutPrefix(b.Call, instance+body+"."); ok {
					k, _, _ := strings.Cut(rest, ".")
					if n, err := strconv.Atoi(k); err == nil {
						made = max(made, n+1)
					}
				}
			}
		}
	}
	return made
}

// form is a message in short.
func form(m journal.Message) string {
	if m.Kind == journal.Signal {
		return "<" + m.Type
	}
	return m.Body
}

// requestForm is what the model is shown in short, and the latest message in it
// that is a delivery.
func requestForm(req *model.Request) (all, latest string) {
	var b strings.Builder
	for _, m := range req.Messages {
		for _, block := range m.Blocks {
			switch {
			case block.Kind == model.ToolCall:
				fmt.Fprintf(&b, "call %s\n", block.CallID)
			case block.Kind == model.ToolResult:
				fmt.Fprintf(&b, "result %s %v %s\n", block.CallID, block.IsError, block.Text)
			case m.Role == model.RoleAssistant:
				fmt.Fprintf(&b, "said %s\n", block.Text)
			default:
				text := block.Text
				if strings.HasPrefix(text, "<compaction") {
					text = "<compaction"
				} else if typ, ok := strings.CutPrefix(text, `<signal type="`); ok {
					text = "<" + typ[:strings.IndexByte(typ, '"')]
				}
				if text[0] == '#' || slices.Contains([]string{"<first", "<second", "<review"}, text) {
					latest = text
				}
				fmt.Fprintf(&b, "%s\n", text)
			}
		}
	}
	return b.String(), latest
}

// contextForm is the context of a state as requestForm tells it.
func contextForm(st *fold.State) string {
	var b strings.Builder
	for _, it := range st.Context {
		switch {
		case it.Summary != nil:
			b.WriteString("<compaction\n")
		case it.Entry != nil:
			fmt.Fprintf(&b, "%s\n", form(it.Entry.Message))
		case it.Turn != nil:
			for _, block := range it.Turn.Blocks {
				switch {
				case block.Kind == journal.ToolCall && it.Turn.Stop != journal.StopAborted:
					fmt.Fprintf(&b, "call %s\n", block.Call)
				case block.Kind == journal.Text:
					fmt.Fprintf(&b, "said %s\n", block.Text)
				}
			}
		default:
			for _, o := range it.Outcomes {
				fmt.Fprintf(&b, "result %s %v %s\n", o.Call, o.Failed, o.Content)
			}
		}
	}
	return b.String()
}

// A page is one batch of a journal.
type page struct {
	journal.Batch
	offset, epoch int64
}

// read is the journal of an instance as it is durable now.
func (r *trial) read(addr store.Address) []page {
	r.mu.Lock()
	known := r.pages[addr]
	r.mu.Unlock()
	got, err := r.journals().Read(context.Background(), addr, int64(len(known))-1, 0)
	if err != nil {
		return known // not born, or this code outlives its process
	}
	for _, b := range got.Batches {
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			panic(err)
		}
		if b.Offset != int64(len(known)) {
			r.breaks("12: offsets have no gap", "%d is at %d", len(known), b.Offset)
		}
		known = append(known[:len(known):len(known)], page{batch, b.Offset, b.Epoch})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(known) > len(r.pages[addr]) {
		r.pages[addr] = known
	}
	return known
}

// A follower reads a conversation live, across the lives of the process.
type follower struct {
	addr   store.Address
	trial  *trial
	late   bool // text may have been merged before it came
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	next  int64
	spans []span
}

// A span is what a follower was given at a time.
type span struct {
	after, next int64
	chunks      string
}

func (r *trial) follow(addr store.Address) *follower {
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{addr: addr, trial: r, cancel: cancel, done: make(chan struct{}), next: -1}
	go func() {
		defer close(f.done)
		for ctx.Err() == nil {
			if !f.read(ctx) {
				pause(ctx, 100*time.Millisecond)
			}
		}
	}()
	return f
}

func (f *follower) stop() { f.cancel(); <-f.done }

// drain reads what is left.
func (f *follower) drain() {
	f.stop()
	for f.behind(f.trial.e) && f.read(context.Background()) {
		continue
	}
}

// behind reports whether there is something to read.
func (f *follower) behind(e *engine.Engine) bool {
	in, err := e.Instance(context.Background(), f.addr)
	return err == nil && f.next < in.Head
}

// read takes what there is, or waits for more. It reports false if the process
// is dead or the instance is not there.
func (f *follower) read(ctx context.Context) bool {
	f.mu.Lock()
	after := f.next
	f.mu.Unlock()
	e := f.trial.engine()
	u, err := e.Updates(ctx, f.addr, after, 3)
	if errors.Is(err, engine.ErrOffsetGone) {
		f.trial.breaks("13: what was read does not disappear", "%s ends before %d", f.addr, after)
	}
	if err != nil {
		return false
	}
	if u.Next > after {
		f.mu.Lock()
		f.next = u.Next
		f.spans = append(f.spans, span{after, u.Next, string(u.Chunks)})
		f.mu.Unlock()
		return true
	}
	return e.Wait(ctx, f.addr, after) == nil
}

// told is what readers must be told of each batch of an instance: read from the
// journal, or projected from what it was before text was merged.
func (r *trial) told(addr store.Address) (out []string) {
	if r.Merge > 0 {
		for _, p := range r.read(addr) {
			var chunks []string
			for _, c := range project.Chunks(project.ConversationID(r.incarnation(addr)), p.offset, p.Batch) {
				chunks = append(chunks, string(mustJSON(c)))
			}
			out = append(out, strings.Join(chunks, ","))
		}
		return out
	}
	for {
		u, err := r.e.Updates(context.Background(), addr, int64(len(out))-1, 1)
		if err != nil || u.Next < int64(len(out)) {
			return out
		}
		out = append(out, string(u.Chunks))
	}
}

// incarnation is that of an instance that was born.
func (r *trial) incarnation(addr store.Address) string {
	return r.read(addr)[0].Records[0].(*journal.Born).Incarnation
}

// seen checks that the follower was given what the journal says, and that a
// snapshot is what it was given.
func (f *follower) seen(told []string, snapshot string) {
	var v wire.Conversation
	for _, s := range f.spans {
		if s.next >= int64(len(told)) {
			f.trial.breaks("13: what was read does not disappear", "%s ends at %d, read were %d", f.addr, len(told)-1, s.next)
			return
		}
		said := slices.DeleteFunc(slices.Clone(told[s.after+1:s.next+1]), func(chunks string) bool { return chunks == "" })
		if r := f.trial; f.late {
			// In other pieces, but to the same end.
		} else if r.Merge > 0 && s.after >= 0 && strings.Contains(s.chunks, `"conversation-reset"`) {
			if _, streamed := r.read(f.addr)[s.after+1].Streamed(); !streamed {
				r.breaks("89: only who stopped within text is reset", "after %d", s.after)
			}
		} else if want := strings.Join(said, ","); want != s.chunks && canonical(want) != canonical(s.chunks) {
			f.trial.breaks("89: a live reader sees what the journal says", "after %d to %d:\n%s\nand the journal\n%s", s.after, s.next, s.chunks, want)
			return
		}
		if err := applyChunks(&v, s.chunks); err != nil {
			f.trial.breaks("89: a live reader can follow", "%v", err)
			return
		}
	}
	if got := shown(v.Messages, v.Settlements); got != snapshot {
		f.trial.breaks("89: a snapshot is what a live reader has seen", "%s\n%s", snapshot, got)
	}
}

// shown is a conversation as one text.
func shown(messages []wire.Message, settlements []wire.Settlement) string {
	return string(mustJSON(append([]wire.Message{}, messages...))) + string(mustJSON(append([]wire.Settlement{}, settlements...)))
}

// canonical is a run of chunks in a form in which those that say the same are
// equal.
func canonical(chunks string) string {
	v := jsontext.Value("[" + chunks + "]")
	if err := v.Canonicalize(); err != nil {
		return err.Error()
	}
	return string(v)
}

func applyChunks(v *wire.Conversation, chunks string) error {
	var list []wire.Chunk
	if err := json.Unmarshal([]byte("["+chunks+"]"), &list); err != nil {
		return err
	}
	for i := range list {
		if err := v.Apply(&list[i]); err != nil {
			return err
		}
	}
	return nil
}

// An account is what a journal says of one submission.
type account struct {
	id, body                   string
	admitted, entered, settled int // places among all records; 0 is nowhere
	admittedAt                 int64
	settledAt                  int64
	at                         time.Time // of the settlement
	outcome, answeredBy        string
	deadline                   time.Time
	advisories, attempts       int
	command                    bool
}

// A ledger goes over a journal and notes what later checks need.
type ledger struct {
	*trial
	addr store.Address
	page page
	pos  int
	st   *fold.State

	accounts []*account
	byID     map[string]*account
	vars     map[string]json.RawMessage
	calls    map[string]*callAccount
	open     []string // calls that have no batch yet
	ended    bool     // the latest batch has ended the turn
	turns    map[string]*turnAccount
	steps    map[string]int
	aborts   []int // places
	abortAt  []time.Time
	resumed  []resumption
	inputs   []int // places of what must be answered
	answers  []int // places of whole answers
	answered time.Time
	closes   []closing
	errors   int               // failed turns in a row
	unrun    map[string]string // a call that was told as not run, by the submission
	attempt  int64
	epoch    int64
}

type callAccount struct {
	outcome   *journal.Outcome
	named     bool
	committed bool
}

type turnAccount struct{ sent map[int]string }

// A resumption is a turn that begins.
type resumption struct {
	at     time.Time
	active []string
}

type closing struct {
	pos  int
	at   time.Time
	last time.Time // when the latest turn ended
	host string
	sums int
}

// check goes over an instance's journal.
func (r *trial) check(addr store.Address) {
	l := &ledger{
		trial: r, addr: addr, st: &fold.State{Head: -1}, byID: make(map[string]*account), vars: make(map[string]json.RawMessage),
		calls: make(map[string]*callAccount), turns: make(map[string]*turnAccount), steps: make(map[string]int),
	}
	for _, p := range r.read(addr) {
		l.page = p
		l.batch()
	}
	l.settlements()
	l.order()
	l.completions()
	l.endings()
	l.state()
	snapshot := shown(nil, nil)
	if snap, err := r.e.Snapshot(context.Background(), addr); err == nil {
		snapshot = shown(snap.Messages, snap.Settlements)
	} else if !errors.Is(err, store.ErrNotFound) {
		panic(err)
	}
	told := r.told(addr)
	// One that comes late sees the same as those who were there.
	late := &follower{addr: addr, trial: r, next: -1, late: r.Merge > 0}
	for late.behind(r.e) && late.read(context.Background()) {
		continue
	}
	late.seen(told, snapshot)
	for _, f := range r.followers {
		if f.addr == addr {
			f.seen(told, snapshot)
		}
	}
}

func (l *ledger) batch() {
	var appended, entered, started, marks []string
	intake, sums := false, 0
	for _, rec := range l.page.Records {
		l.pos++
		switch rec := rec.(type) {
		case *journal.Born, *journal.Admitted, *journal.Abort:
			intake = true
		case *journal.Entry:
			if rec.Purpose == journal.Appended {
				appended = append(appended, rec.Message.Type)
				if len(entered) > 0 && rec.Message.Type != "review" {
					marks = append(marks, rec.Message.Type+":"+l.byID[entered[len(entered)-1]].body)
				}
			}
			if rec.Purpose == journal.Input {
				entered = append(entered, rec.Submission)
			}
		case *journal.Metadata:
			sums++
		case *journal.Seam:
			if rec.Name == journal.SeamStart {
				started = append(started, rec.Submission)
			}
			if rec.Name == journal.SeamClosed {
				l.closes = append(l.closes, closing{l.pos, l.page.At, l.answered, rec.Submission, sums})
				sums = 0
			}
		}
		l.record(rec)
		if err := l.st.Apply(rec); err != nil {
			l.breaks("15: every journal folds", "offset %d of %s: %v", l.page.offset, l.addr, err)
		}
	}
	l.st.Advance(l.page.offset)
	if sums > 0 {
		l.breaks("74: metadata lands with the seam that attaches it", "%d without it at offset %d", sums, l.page.offset)
	}
	if !slices.Equal(entered, started) {
		l.breaks("78: a message and its start are one", "entered %q, started %q", entered, started)
	}
	for _, name := range marks {
		if l.vars[name] == nil {
			l.breaks("68: what a hook wrote lands with its seam", "%s is missing at offset %d", name, l.page.offset)
		}
	}
	for i, typ := range appended {
		if typ == "first" && (i+1 == len(appended) || appended[i+1] != "second") || typ == "second" && (i == 0 || appended[i-1] != "first") {
			l.breaks("71: signals of a start land in the order of declaration", "%q", appended)
		}
	}
	switch {
	case intake != (l.page.epoch == 0):
		l.breaks("9: intake needs no owner, all else has one", "offset %d: epoch %d", l.page.offset, l.page.epoch)
	case !intake && l.page.epoch < l.epoch:
		l.breaks("20: no write of an old owner lands", "offset %d: epoch %d after %d", l.page.offset, l.page.epoch, l.epoch)
	case !intake:
		l.epoch = l.page.epoch
	}
}

func (l *ledger) record(rec journal.Record) {
	switch rec := rec.(type) {
	case *journal.Admitted:
		if l.byID[rec.Submission] != nil {
			l.breaks("2: a message is admitted once", "%s", rec.Submission)
		}
		a := &account{id: rec.Submission, body: rec.Message.Body, admitted: l.pos, admittedAt: l.page.offset, command: rec.Message.Type == journal.SignalCompaction}
		l.accounts, l.byID[a.id] = append(l.accounts, a), a
	case *journal.Abort:
		l.aborts, l.abortAt = append(l.aborts, l.pos), append(l.abortAt, l.page.At)
	case *journal.Attempt:
		a := l.byID[rec.Submission]
		if a.attempts++; a.attempts == 1 {
			a.deadline = time.UnixMilli(rec.Deadline)
		} else if rec.Deadline != 0 || rec.MaxAttempts != 0 {
			l.breaks("40: the budget is stamped once", "%+v", rec)
		}
		l.attempt = l.page.epoch
	case *journal.Entry:
		l.entry(rec)
	case *journal.State:
		l.vars[rec.Name] = json.RawMessage(rec.Value)
	case *journal.Step:
		key := rec.Scope + " " + rec.Name
		if len(rec.Value) > 0 {
			if l.steps[key]++; l.steps[key] > 1 {
				l.breaks("61: a step has at most one value", "%s", key)
			}
		}
	case *journal.TurnStarted:
		l.turn(rec)
	case *journal.TurnDelta:
		l.turns[rec.Turn].sent[rec.Block] += rec.Text
	case *journal.TurnDone:
		l.turnDone(rec)
	case *journal.Outcome:
		c := l.calls[rec.Call]
		if c == nil || c.outcome != nil {
			l.breaks("53: every call has one outcome", "%s", rec.Call)
			return
		}
		c.outcome = rec
		l.outcome(rec, c)
	case *journal.Called:
		for _, call := range rec.Calls {
			if c := l.calls[call]; c == nil || c.named || c.outcome != nil {
				l.breaks("52: a call is named once, before it ends", "%s", call)
			} else {
				c.named = true
			}
		}
	case *journal.ToolBatch:
		l.commit()
	case *journal.Settled:
		a := l.byID[rec.Submission]
		if a == nil || a.settled != 0 {
			l.breaks("27: every message settles once", "%s again: %s", rec.Submission, rec.Outcome)
			return
		}
		if rec.AnsweredBy == rec.Submission {
			l.errors = 0
		}
		if call := l.unrun[rec.Submission]; call != "" && rec.Outcome == journal.Completed {
			l.breaks("59: a call that waits is run unless its response is ended", "%s was not", call)
		}
		a.settled, a.settledAt, a.at, a.outcome, a.answeredBy = l.pos, l.page.offset, l.page.At, rec.Outcome, rec.AnsweredBy
	}
}

// outcome checks that what is told of an interrupted call is so.
func (l *ledger) outcome(rec *journal.Outcome, c *callAccount) {
	l.mu.Lock()
	runs := len(l.ran[rec.Call])
	l.mu.Unlock()
	switch {
	case !c.named && runs > 0:
		l.breaks("52: a call that has run was named", "%s ran %d times", rec.Call, runs)
	case !c.named && strings.HasPrefix(rec.Content, wordsUnknown):
		l.breaks("55: a call that has not begun is not told as unknown", "%s: %s", rec.Call, rec.Content)
	case strings.HasPrefix(rec.Content, wordsNotRun) && (c.named || runs > 0):
		l.breaks("55: a call that may have begun is not told as not run", "%s ran %d times", rec.Call, runs)
	case strings.HasPrefix(rec.Content, wordsNotRun):
		if l.unrun == nil {
			l.unrun = make(map[string]string)
		}
		l.unrun[l.st.Active.Submission] = rec.Call
	}
}

func (l *ledger) entry(rec *journal.Entry) {
	if len(l.open) > 0 {
		l.breaks("58: nothing comes between calls and their batch", "%s of %s", rec.Purpose, rec.Submission)
	}
	switch rec.Purpose {
	case journal.Input:
		a := l.byID[rec.Submission]
		if a.entered != 0 {
			l.breaks("77: a message is put to the model once", "%s", a.body)
		}
		a.entered = l.pos
		l.inputs, l.ended = append(l.inputs, l.pos), false
	case journal.Appended:
		l.inputs, l.ended = append(l.inputs, l.pos), false
	case journal.Advisory:
		l.byID[rec.Submission].advisories++
	}
}

func (l *ledger) turn(rec *journal.TurnStarted) {
	if l.ended {
		l.breaks("57: a batch that ends the turn ends it", "turn %s", rec.Turn)
	}
	if l.attempt != l.page.epoch {
		l.breaks("38: an attempt is counted before it has an effect", "a turn of epoch %d, the latest attempt is of %d", l.page.epoch, l.attempt)
	}
	l.turns[rec.Turn] = &turnAccount{sent: make(map[int]string)}
	if shown := contextForm(l.st); !l.forms[l.addr.ID][shown] {
		l.breaks("49: the context that the journal gives is the one that the model saw", "before turn %s of %s:\n%s", rec.Turn, l.addr, shown)
	}
	re := resumption{at: l.page.At, active: []string{l.st.Active.Submission}}
	for _, sub := range l.st.Joined {
		re.active = append(re.active, sub.Submission)
	}
	l.resumed = append(l.resumed, re)
}

func (l *ledger) turnDone(rec *journal.TurnDone) {
	sent := l.turns[rec.Turn].sent
	for i, b := range rec.Blocks {
		if !strings.HasPrefix(b.Text, sent[i]) || i < len(rec.Sent) && rec.Sent[i] != len(sent[i]) {
			l.breaks("46: deltas join to the text", "%q, and the text %q (%v)", sent[i], b.Text, rec.Sent)
		}
		delete(sent, i)
	}
	if len(sent) > 0 {
		l.breaks("47: what was said is kept", "%v is missing in %+v", sent, rec)
	}
	switch rec.Stop {
	case journal.StopError:
		if l.errors++; l.errors > 4 {
			l.breaks("50: failures in a row are counted across lives", "%d", l.errors)
		}
		return
	case journal.StopAborted:
		return
	}
	l.errors, l.answers, l.answered = 0, append(l.answers, l.pos), l.page.At
	for _, b := range rec.Blocks {
		if b.Kind == journal.ToolCall {
			if l.calls[b.Call] != nil {
				l.breaks("53: a call is asked for once", "%s", b.Call)
			}
			l.calls[b.Call] = &callAccount{}
			l.open = append(l.open, b.Call)
		}
	}
}

func (l *ledger) commit() {
	var writes []journal.VarWrite
	l.ended = true
	for _, id := range l.open {
		c := l.calls[id]
		if c.outcome == nil {
			l.breaks("53: a batch commits with all of its calls", "%s has no outcome", id)
			return
		}
		c.committed = true
		writes = append(writes, c.outcome.Writes...)
		l.ended = l.ended && c.outcome.EndTurn
	}
	slices.SortStableFunc(writes, func(a, b journal.VarWrite) int { return a.Seq - b.Seq })
	for _, w := range writes {
		l.vars[w.Name] = json.RawMessage(w.Value)
	}
	l.open = nil
}

// settlements checks that every message has one outcome, and that the index says
// the same.
func (l *ledger) settlements() {
	if l.st.Unsettled() || l.st.Phase > fold.Idle {
		l.breaks("34: a conversation comes to rest", "%s is in phase %s", l.addr, l.st.Phase)
	}
	for _, m := range l.sent {
		if m.addr != l.addr || m.receipt == nil {
			continue
		}
		if a := l.byID[m.id]; a == nil || a.admittedAt != m.receipt.Offset || a.body != m.body {
			l.breaks("1: what is acknowledged is there", "%s: %+v", m.body, a)
		}
	}
	for _, a := range l.accounts {
		if a.settled == 0 {
			l.breaks("27: every message settles", "%s", a.body)
		}
		got, err := l.e.Submission(context.Background(), l.addr, a.id)
		if err != nil || got.Outcome != a.outcome || got.SettledAt != a.settledAt || got.Offset != a.admittedAt {
			l.breaks("29: the index is what the journal says", "%s: %+v, %v, and the journal %+v", a.body, got, err, a)
		}
	}
}

// order checks that messages begin and settle in the order of their admission.
func (l *ledger) order() {
	entered, settled := 0, int64(0)
	for _, a := range l.accounts {
		if a.command { // it may be done while a message before it is being answered
			continue
		}
		if a.entered != 0 && a.entered < entered {
			l.breaks("31: messages begin in the order of admission", "%s", a.body)
		}
		if a.settledAt < settled {
			l.breaks("30: messages settle in the order of admission", "%s", a.body)
		}
		entered, settled = max(entered, a.entered), a.settledAt
		if a.answeredBy == a.id {
			continue
		}
		host := l.byID[a.answeredBy]
		if host == nil || host.answeredBy != host.id || host.outcome != a.outcome || host.settledAt != a.settledAt || host.settled < a.settled {
			l.breaks("79: what joined settles with its host, before it", "%+v joined %+v", a, host)
		} else if a.entered < host.entered || a.entered > host.settled {
			l.breaks("37: a message is answered by the response that took it", "%+v joined %+v", a, host)
		}
	}
}

// between reports whether a place of the list is after from and before to.
func between(list []int, from, to int) bool {
	return slices.ContainsFunc(list, func(p int) bool { return p > from && p < to })
}

// completions checks what completed implies.
func (l *ledger) completions() {
	for _, a := range l.accounts {
		if a.outcome != journal.Completed || a.command {
			continue
		}
		last := 0
		for _, p := range l.inputs {
			if p < a.settled {
				last = p
			}
		}
		if a.entered == 0 || last < a.entered || !between(l.answers, last, a.settled) {
			l.breaks("32: what is completed has an answer after its last message", "%s: entered %d, last input %d, settled %d, answers %v", a.body, a.entered, last, a.settled, l.answers)
		}
		if a.answeredBy != a.id {
			continue
		}
		i := slices.IndexFunc(l.closes, func(c closing) bool { return c.host == a.id && c.pos < a.settled })
		if i < 0 {
			l.breaks("33: what is completed was closed", "%s", a.body)
			continue
		}
		c := l.closes[i]
		if !l.finishing(c.last, c.at) {
			continue
		}
		if c.sums != 1 {
			l.breaks("33: the hooks of a response's end have run once", "%s has the metadata of %d", a.body, c.sums)
		}
		if !slices.ContainsFunc(l.finished[l.addr.ID], func(t time.Time) bool {
			return !t.Before(c.last.Truncate(time.Millisecond)) && !t.After(c.at.Add(time.Millisecond))
		}) {
			l.breaks("33: the finish hooks have run after the last answer", "%s answered %s closed %s, runs %v", a.body, c.last, c.at, l.finished[l.addr.ID])
		}
	}
}

// finishing reports whether every release between two times had finish hooks.
func (l *ledger) finishing(from, to time.Time) bool {
	for i, life := range l.lives {
		ends := to.Add(time.Hour)
		if i+1 < len(l.lives) {
			ends = l.lives[i+1].from
		}
		if ends.Before(from) || life.from.After(to.Add(time.Millisecond)) { // a batch says only in which it was made
			continue
		}
		if !life.release.Finish {
			return false
		}
	}
	return true
}

// endings checks the outcomes that are not completed.
func (l *ledger) endings() {
	batches, flaky, faults, fails := 0, 0, 0, l.Attempts < 10 || l.uses('s')
	for _, m := range l.sent {
		if say := l.say[m.body]; m.addr == l.addr {
			batches += len(say.Batches)
			flaky += say.Flaky
			fails = fails || say.End == "fatal" || say.End == "hang"
		}
	}
	for _, s := range l.Steps {
		if slices.Contains([]string{"crash", "fail", "restart", "close", "release"}, s.Kind) {
			faults++
		}
	}
	fails = fails || batches >= 8 || flaky > 3 || faults > 8
	for _, a := range l.accounts {
		if a.command {
			if a.advisories > 0 || a.entered > 0 {
				l.breaks("a command is no part of the conversation", "%+v", a)
			}
			continue
		}
		want := 0
		switch a.outcome {
		case journal.Failed:
			if want = a.advisories; want > 1 || !fails {
				l.breaks("35: a message fails for a reason", "%+v", a)
			}
		case journal.Aborted:
			want = 1
			if !between(l.aborts, a.admitted, a.settled) {
				l.breaks("81: an abort covers what was sent before it", "%s was aborted", a.body)
			}
		}
		if a.advisories != want {
			l.breaks("34: what has ended is told once", "%s, %s, is told %d times", a.body, a.outcome, a.advisories)
		}
		slack := 10*time.Second + l.lapses()
		if l.uses('s') { // then closing takes time, too
			slack += time.Duration(len(l.lives)) * 15 * time.Second
		}
		if a.outcome != journal.Completed && a.entered != 0 && a.at.After(l.hostOf(a).deadline.Add(slack)) {
			l.breaks("84: an attempt settles by its deadline and a grace", "%s at %s, the deadline was %s", a.body, a.at, a.deadline)
		}
	}
	for _, ab := range l.trial.aborts {
		if ab.addr == l.addr {
			l.covered(ab)
		}
	}
}

// lapses is for how long at most nothing could be written because the lease had
// lapsed.
func (h history) lapses() (sum time.Duration) {
	for _, s := range h.Steps {
		if s.Kind == "lapse" {
			sum += s.Wait + 10*time.Second
		}
	}
	return sum
}

func (l *ledger) hostOf(a *account) *account { return l.byID[a.answeredBy] }

// covered checks that an acknowledged abort has ended all that was unsettled.
func (l *ledger) covered(ab acknowledged) {
	i := slices.IndexFunc(l.abortAt, func(t time.Time) bool { return !t.Before(ab.at.Truncate(time.Millisecond)) })
	if i < 0 {
		l.breaks("83: an abort that is acknowledged is there", "%s", ab.at)
		return
	}
	pos := l.aborts[i]
	soon := 5*time.Second + l.lapses()
	for _, s := range l.Steps {
		if s.Kind == "fail" { // then the driver waits before it tries again
			soon += 10 * time.Second
		}
	}
	if l.uses('s') { // and then for what does not stop
		soon += time.Duration(len(l.lives)) * 15 * time.Second
	}
	for _, a := range l.accounts {
		if a.admitted > pos || a.settled < pos || a.command {
			continue
		}
		closed := slices.ContainsFunc(l.closes, func(c closing) bool { return c.host == a.answeredBy })
		if a.outcome == journal.Completed && !closed {
			l.breaks("82: an abort ends what is not closed", "%s is %s", a.body, a.outcome)
		}
		if a.outcome != journal.Completed && a.at.After(l.abortAt[i].Add(soon)) {
			l.breaks("82: an abort ends work soon", "%s has ended at %s", a.body, a.at)
		}
		for _, re := range l.resumed {
			if re.at.After(l.abortAt[i].Add(time.Millisecond)) && slices.Contains(re.active, a.id) {
				l.breaks("82: what was aborted is not resumed", "%s has a turn at %s", a.body, re.at)
			}
		}
	}
}

// state checks the persistent state against what the journal says, told by other
// code than the fold's.
func (l *ledger) state() {
	l.balanced("the journal of "+l.addr.ID, l.vars)
	got, _, err := l.e.Vars(context.Background(), l.addr)
	if errors.Is(err, store.ErrNotFound) && len(l.accounts) == 0 {
		return
	}
	if want := string(mustJSON(l.vars)); err != nil || string(mustJSON(got)) != want || string(mustJSON(l.st.Vars)) != want {
		l.breaks("67: the state is what the journal says", "%s, %v, and by the journal %s", mustJSON(got), err, want)
	}
	for name := range l.vars {
		kind, id, _ := strings.Cut(name, ":")
		if kind != "done" && kind != "late" {
			continue
		}
		if c := l.calls[id]; c == nil || !c.committed || c.outcome.DurationMS == nil {
			l.breaks("67: no write of an interrupted call is there", "%s", name)
		}
	}
	for id, c := range l.calls {
		if !c.committed {
			l.breaks("53: every batch is committed", "%s", id)
		} else if c.outcome.DurationMS != nil && !c.outcome.Failed && l.marked[id] && l.vars["done:"+id] == nil {
			l.breaks("68: what a call wrote commits with it", "%s", id)
		}
	}
}
