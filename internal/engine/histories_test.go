package engine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
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
