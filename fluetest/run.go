package fluetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/wire"
)

// instanceID is the instance that a scenario is played with.
const instanceID = "fluetest"

// A run is the scenario, played once, with the deaths.
type run struct {
	scenario *Scenario
	steps    []Step
	mind     *mind
	deaths   []Death
	// Names of providers that the agent's models have.
	providers []string

	outside *outside
	calls   *calls
	store   *memstore.Store
	lives   []*life
	parts   []*part
	next    int // the first step that is not over
	begun   int // how many steps were begun
	agent   string
	budget  time.Duration // of one message

	mu       sync.Mutex
	story    []string
	findings []finding
	heard    []heard
	causes   map[string]error // why submissions have failed, by their ids
	missing  string           // a provider that the agent names and nobody has
	probing  bool

	replies  []*flue.Reply
	left     []bool // steps that were left out
	records  []journal.Record
	snapshot *wire.Snapshot
	answers  bool // it answered a message that came later
	ended    bool // nothing has kept the run from being played to its end
	stuck    bool // something of it never ends
}

// A life is a process of a run.
type life struct {
	run   *run
	n     int // from 0
	tape  *tape
	rt    *flue.Runtime
	in    *flue.Instance
	ctx   context.Context // ends when the process dies
	die   context.CancelFunc
	death string // what was being written

	closing chan struct{} // closed when its runtime begins to close
	probing bool          // it comes after everything

	mu    sync.Mutex
	tools map[string]string // by the id of the call
	began map[string]bool   // calls of this process, by their ids
	ended map[string]bool   // calls whose end is in the story
	open  map[string]int    // calls of tools that have begun and not ended, by tool
}

// tell adds a line to the story of the run.
func (r *run) tell(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.story = append(r.story, fmt.Sprintf(format, args...))
}

// find takes note of something that is wrong.
func (r *run) find(f finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.findings = append(r.findings, f)
}

// asked takes note of a request to the model.
func (l *life) asked(req *model.Request) {
	r := l.run
	if n := len(req.Messages); n > 0 {
		for _, b := range req.Messages[n-1].Blocks {
			if b.Kind == model.ToolResult && l.toolOf(b.CallID) != "" {
				l.ends(b.CallID, b.Name, b.Text)
			}
		}
	}
	if err := wellFormed(req.Messages); err != nil {
		r.find(finding{kind: Malformed, text: "a request to the model is malformed: " + err.Error(), advice: adviceEngine})
	}
	own := r.ownCalls(slices.ContainsFunc(req.Messages, func(m model.Message) bool { return slices.ContainsFunc(m.Blocks, saysInterrupted) }))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range told(req) {
		if !slices.Contains(r.heard, h) {
			r.heard = append(r.heard, h)
			if !own[h.call] {
				r.story = append(r.story, "    the model is told: "+h.String())
			}
		}
	}
}

// told returns what the model was told of interruptions. What a tool has said itself is
// none of it: a tool may say the same as the runtime does. Only the journal tells them
// apart, and a model call may begin before the journal has the results that it is shown.
func (r *run) told() []word {
	r.mu.Lock()
	all := slices.Clone(r.heard)
	r.mu.Unlock()
	own := r.ownCalls(slices.ContainsFunc(all, func(h heard) bool { return h.call != "" }))
	var words []word
	for _, h := range all {
		if !own[h.call] && !slices.Contains(words, h.word) {
			words = append(words, h.word)
		}
	}
	return words
}

// ownCalls returns the calls whose results are the tools' own, if that is of interest.
func (r *run) ownCalls(of bool) map[string]bool {
	own := make(map[string]bool)
	if !of {
		return own
	}
	for _, rec := range r.read() {
		if o, ok := rec.(*journal.Outcome); ok && o.DurationMS != nil {
			own[o.Call] = true
		}
	}
	return own
}

// answered takes note of an answer of the script, and of what it has answered to
// the same conversation before if that was something else.
func (r *run) answered(req *model.Request, before, now string) {
	r.tell("    the model %s", now)
	if before == "" {
		return
	}
	r.find(finding{
		kind:   Nondeterministic,
		text:   fmt.Sprintf("the script answers one conversation in two ways. To the one of %d messages that ends with %s it %s, and then it %s", len(req.Messages), ending(req), before, now),
		advice: "decide from the request only, never from how often the model was called: script.Step, script.LastUser and script.LastResults look at it",
	})
}

// ending is what a conversation ends with.
func ending(req *model.Request) string {
	blocks := req.Messages[len(req.Messages)-1].Blocks
	if len(blocks) == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%q", clip(blocks[len(blocks)-1].Text, 40))
}

// play plays the scenario in a bubble.
func (r *run) play() {
	for {
		l, err := r.open()
		if err != nil {
			r.find(finding{kind: Unplayable, text: err.Error()})
			return
		}
		survived := l.live()
		if !survived {
			r.bury(l)
			continue
		}
		r.outside.close()
		r.end(l)
		break
	}
	if r.ended {
		r.look()
		r.probe()
	}
	if r.outlives() { // let it come to its end, with the bubble
		time.Sleep(1000 * time.Hour)
	}
}

// open begins a process.
func (r *run) open() (*life, error) {
	l := &life{
		run: r, n: len(r.lives), closing: make(chan struct{}), probing: r.probing,
		tools: make(map[string]string), began: make(map[string]bool), ended: make(map[string]bool), open: make(map[string]int),
	}
	l.ctx, l.die = context.WithCancel(context.Background())
	l.tape = newTape(r.store, r.calls, func(n int) {
		if l.n < len(r.deaths) && n == r.deaths[l.n].Write {
			l.die()
		}
	})
	if l.n < len(r.deaths) && !r.probing {
		l.tape.Crash(r.deaths[l.n].Write, r.deaths[l.n].Mode)
	}
	if r.probing {
		r.tell("one more process, to which one more message is sent")
	} else {
		r.tell("process %d", l.n+1)
	}
	made := *r.scenario.Agent(&World{l, r.outside})
	made.Name = cmp.Or(made.Name, "agent")
	r.agent, r.budget = made.Name, cmp.Or(made.Durability.Timeout, time.Hour)
	providers := make(map[string]model.Provider)
	for _, name := range r.providers {
		providers[name] = voice{r.mind, l}
	}
	r.lives = append(r.lives, l)
	var err error
	// What has happened before a death must be known at the death.
	l.rt, err = flue.Open(engine.WithTap(context.Background(), l.observe), flue.Config{
		Agents: []*flue.Agent{&made}, Providers: providers, Store: l.tape,
		CheckpointEvery: r.checkpoints(),
	})
	if err != nil {
		return nil, err
	}
	l.in = l.rt.Instance(made.Name, instanceID)
	return l, nil
}

// checkpoints is after how many records a checkpoint is kept: after each in every
// other run, so that whoever takes the agent up does so from one, as in a long
// conversation, and never in so short a conversation in the others, which go by the
// plain journal. Which it is depends on the deaths, so that a replay is like its run.
func (r *run) checkpoints() int {
	n := 0
	for _, d := range r.deaths {
		n += d.Write + slices.Index(allModes, d.Mode)
	}
	if n%2 == 1 {
		return math.MaxInt
	}
	return 1
}

func (l *life) isDead() bool {
	if l.ctx.Err() != nil || l.tape.Crashed() {
		return true
	}
	select {
	case <-l.closing:
		return true
	default:
		return false
	}
}

// live does what is left to do. It reports false if the process died first.
func (l *life) live() bool {
	r := l.run
	for ; r.next < len(r.steps); r.next++ {
		err := l.step(r.next)
		switch {
		case l.dies():
			return false
		case err != nil:
			r.find(finding{kind: Unfinished, text: r.steps[r.next].name + ": " + err.Error(), advice: adviceUnfinished})
			return true
		}
	}
	settled := l.settle()
	if l.dies() {
		return false
	}
	if !settled {
		r.find(finding{kind: Unfinished, text: "messages are left unsettled: " + list(r.unsettled()), advice: adviceUnfinished})
		return true
	}
	r.ended = true
	return true
}

// dies reports whether the process is about to die, and waits until it has.
func (l *life) dies() bool {
	if !l.tape.Crashed() {
		return false
	}
	<-l.ctx.Done()
	return true
}

// step plays one step until what it led to is settled.
func (l *life) step(i int) error {
	r := l.run
	// Let the process go as far as it can, so that a run is the same every time.
	synctest.Wait()
	if l.tape.Crashed() {
		return nil
	}
	again := ""
	if r.begun == i+1 {
		again = " again"
	}
	r.begun = i + 1
	r.tell("  %s%s", r.steps[i].name, again)
	receipt, err := r.steps[i].play(l.ctx, l.in, r.parts[i])
	if errors.Is(err, errNothingWaits) && r.wasTold() {
		r.tell("    left out: %v", err)
		r.left[i] = true
		return nil
	}
	if err != nil || receipt.Submission == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(l.ctx, r.patience())
	defer cancel()
	reply, err := l.in.Read(ctx, receipt.Submission)
	if err != nil && l.ctx.Err() == nil && ctx.Err() != nil {
		return errors.New("it is not settled")
	}
	var failed *flue.SubmissionError
	if cause := r.cause(receipt.Submission); cause != nil && errors.As(err, &failed) {
		text, _, _ := strings.Cut(cause.Error(), "\ngoroutine ") // the story has the stack
		return fmt.Errorf("it %s: %s", failed.Outcome, text)
	}
	if err == nil {
		r.replies[i] = reply
		r.tell("    it is answered %q", clip(reply.Text, 60))
	}
	return err
}

// patience is how long a message may take.
func (r *run) patience() time.Duration { return r.budget + time.Hour }

func (r *run) wasTold() bool { return len(r.told()) > 0 }

// cause is why a submission has failed, for this side only.
func (r *run) cause(submission string) error {
	synctest.Wait() // the event comes after the fact
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.causes[submission]
}

// settle waits until all is settled that the agent has accepted, its messages to
// itself as well. It reports false if that takes too long.
func (l *life) settle() bool {
	deadline := time.Now().Add(l.run.patience())
	for {
		synctest.Wait()
		if l.tape.Crashed() || len(l.run.unsettled()) == 0 {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-l.ctx.Done():
		}
	}
}

// unsettled returns what is accepted and not settled.
func (r *run) unsettled() []string {
	open := make(map[string]string)
	for _, rec := range r.read() {
		switch rec := rec.(type) {
		case *journal.Admitted:
			open[rec.Submission] = quoted(rec.Message)
		case *journal.Settled:
			delete(open, rec.Submission)
		}
	}
	var out []string
	for _, message := range open {
		out = append(out, message)
	}
	slices.Sort(out)
	return out
}

// read returns the journal.
func (r *run) read() []journal.Record {
	var out []journal.Record
	for after := int64(-1); ; {
		page, err := r.store.Read(context.Background(), store.Address{Agent: r.agent, ID: instanceID}, after, 0)
		if err != nil {
			return out // there is no instance yet
		}
		for _, b := range page.Batches {
			batch, err := journal.Decode(b.Payload)
			if err != nil {
				r.find(finding{kind: Unfinished, text: "the journal cannot be read: " + err.Error(), advice: adviceEngine})
				return out
			}
			out = append(out, batch.Records...)
			after = b.Offset
		}
		if after >= page.Head {
			return out
		}
	}
}

// bury ends a process that has died.
func (r *run) bury(l *life) {
	d := r.deaths[l.n]
	l.death = l.tape.said(d.Write)
	r.tell("  DEATH at write %d, %s: %s", d.Write, l.death, d.inWords())
	r.end(l)
	l.tape.Flush()
	r.store = r.store.Reopen()
}

// end closes a process's runtime, which ends all that runs in it.
func (r *run) end(l *life) {
	close(l.closing)
	ctx := l.ctx // a death gives nobody time
	if ctx.Err() == nil {
		timed, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		ctx = timed
	}
	if err := l.rt.Close(ctx); err != nil {
		r.find(outlived(l.stillOpen(), stillRunning()))
	}
	l.die()
}

// outlived is the finding that something still runs: where, or else in which tool.
func outlived(tools, lines []string) finding {
	what := "something"
	switch {
	case len(lines) > 0:
		what = "the code at " + strings.Join(lines, " and ")
	case len(tools) > 0:
		what = strings.Join(tools, " or ")
	}
	return finding{
		kind: Outlived, advice: adviceOutlived,
		text: what + " ignores its context: it still runs after the process has ended everything",
	}
}

// outlives reports whether something of a process may still run.
func (r *run) outlives() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.findings, func(f finding) bool { return f.kind == Outlived })
}

// look reads what has come of the run.
func (r *run) look() {
	r.records = r.read()
	l, err := r.reopen()
	if err != nil {
		r.find(finding{kind: Unplayable, text: err.Error()})
		return
	}
	if r.snapshot, err = l.in.Conversation(context.Background()); err != nil {
		r.find(finding{kind: Unfinished, text: "the conversation cannot be read: " + err.Error(), advice: adviceEngine})
	}
}

// reopen begins the process that looks at what is left.
func (r *run) reopen() (*life, error) {
	r.store = r.store.Reopen()
	r.probing = true
	return r.open()
}

// probe sends one more message to the last process.
func (r *run) probe() {
	l := r.lives[len(r.lives)-1]
	if l.rt == nil {
		return
	}
	defer r.end(l)
	ctx, cancel := context.WithTimeout(l.ctx, r.patience())
	defer cancel()
	receipt, err := l.in.Dispatch(ctx, flue.User("Are you still there?"))
	if err == nil {
		var reply *flue.Reply
		reply, err = l.in.Read(ctx, receipt.Submission)
		r.answers = err == nil && reply.Text != ""
	}
	if err != nil {
		r.tell("    %v", err)
	}
	synctest.Wait()
}

// missingProvider reads the engine's words for a model that has no provider.
var missingProvider = regexp.MustCompile(`there is no provider "([^"]*)"[;,]`)

func (l *life) observe(ev flue.Event) {
	if l.isDead() {
		return
	}
	r := l.run
	switch ev.Type {
	case flue.EventToolStarted:
		l.mu.Lock()
		l.tools[ev.Call] = ev.Tool
		l.open[ev.Tool]++
		if ev.Turn != "" { // otherwise it is a call that was approved, of an earlier turn
			l.began[ev.Call] = true
		}
		l.mu.Unlock()
		r.tell("    %s begins", ev.Tool)
	case flue.EventToolDone:
		if ev.Reason != "" { // it was interrupted
			return
		}
		l.mu.Lock()
		l.open[ev.Tool]--
		l.mu.Unlock()
		l.ends(ev.Call, ev.Tool, ev.Text)
	case flue.EventAttemptStarted:
		if ev.Attempt > 1 {
			r.tell("    what was interrupted is taken up: %s", ev.Reason)
		}
	case flue.EventSettled:
		if ev.Error != nil {
			r.mu.Lock()
			r.causes[ev.Submission] = ev.Error
			r.story = append(r.story, "    it "+ev.Outcome+": "+ev.Error.Error())
			if m := missingProvider.FindStringSubmatch(ev.Error.Error()); m != nil {
				r.missing = m[1]
			}
			r.mu.Unlock()
		}
	}
}

// ends adds to the story that a call has ended. The event and the next request to
// the model both say so, and either may come first.
func (l *life) ends(call, tool, text string) {
	l.mu.Lock()
	told := l.ended[call]
	l.ended[call] = true
	l.mu.Unlock()
	if !told {
		l.run.tell("    %s ends: %s", tool, clip(text, 60))
	}
}

// toolOf returns the tool of a call.
func (l *life) toolOf(call string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tools[call]
}

// stillOpen returns the tools that have begun and not ended.
func (l *life) stillOpen() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for tool, n := range l.open {
		if n > 0 {
			out = append(out, tool)
		}
	}
	slices.Sort(out)
	return out
}
