package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
)

// turn makes one model call and brings it to a durable end.
func (d *driver) turn() error {
	resp := &d.state.Response
	spent := d.state.Exhausted()
	if spent != nil && !resp.Started() && !resp.Used() {
		return d.endWith(budgetExceeded(spent))
	}
	if resp.LastError != nil && d.waited != resp.Turn {
		return d.afterFailure(resp.LastError)
	}
	if resp.Repeated.Times >= maxRepeats {
		return d.endWith(operationFailed(d.operation(), fmt.Sprintf("tool %q failed %d times in a row with the same arguments", resp.Repeated.Tool, resp.Repeated.Times)))
	}
	if !d.current || resp.LastError != nil {
		if err := d.render(d.attempt, *d.state.Delivery); err != nil {
			return d.endWith(err)
		}
		if d.plan == nil { // the attempt has ended while the render was under way
			return nil
		}
	}
	settings, m, err := d.model()
	if err == nil && !resp.Started() {
		err = d.resolvable(settings.Fallbacks)
	}
	if err == nil {
		err = counted(d.state.Budget(), m)
	}
	if err != nil {
		return d.endWith(operationFailed(d.operation(), err.Error()))
	}
	if again, err := d.relieve(settings, m); again || err != nil {
		return err
	}
	if err := d.narrate(); err != nil {
		return err
	}
	if spent != nil {
		if err := d.conclude(spent); err != nil {
			return err
		}
	}
	d.current = true // narration is nothing that a render reads
	req, size, fitted, err := d.request(m, settings)
	if err != nil {
		return d.endWith(err)
	}
	d.tellLosses(m, req.Tools)
	req.ToolsOff = spent != nil
	if resp.Mute {
		withoutTools(req)
	}
	capped := d.capAnswer(req, size)
	if spent != nil { // it ends in any case
		capped = nil
	}
	started := &journal.TurnStarted{
		Turn: newID("turn_"), Response: d.responseID(), Submission: d.state.Active.Submission,
		Provider: m.Origin.Provider, Model: m.Origin.Model, Fitted: fitted, Size: size, Retracts: resp.Retract, Budget: spent, Capped: capped, Images: d.showsImages(req, m),
	}
	if err := d.stage(started); err != nil {
		return err
	}
	d.tellTurn(started, req)

	// The call may start while its record is being appended: without the
	// record it has no effect.
	ctx, cancel := d.turnContext(spent != nil)
	defer cancel()
	began := time.Now()
	events := d.stream(ctx, m.Provider, req)
	if err := d.commit(); err != nil {
		return err
	}
	t := &openTurn{driver: d, started: started, origin: m.Origin, price: m.Info.Cost, similar: m.Similar, began: began}
	return t.run(ctx, events)
}

// backoff is the pause after the n-th failure, counted from zero: base doubled
// each time, up to limit, less up to a quarter so that callers spread out.
func backoff(n int, base, limit time.Duration) time.Duration {
	wait := limit
	if n < 16 {
		wait = min(limit, base<<n)
	}
	return wait - time.Duration(rand.Int64N(int64(wait)/4+1))
}

// operation names the submission in errors.
func (d *driver) operation() string {
	sub := d.state.Active
	if sub == nil {
		sub = d.state.Queue[0]
	}
	origin := sub.Origin
	if origin == "" {
		origin = "direct"
	}
	return origin + "(" + sub.Submission + ")"
}

// render runs the agent function with a message in front of the model. On
// return the plan is nil if ctx ended first: a render that ignores its context is
// abandoned.
func (d *driver) render(ctx context.Context, delivery journal.Message) error {
	st := d.state
	view := View{
		ID: d.slot.addr.ID, UID: st.Born.UID, InitialData: []byte(st.Born.InitialData), Vars: maps.Clone(st.Vars), Delivery: delivery,
		Kept: st.Kept,
	}
	type rendered struct {
		plan *Plan
		err  error
	}
	d.plan, d.current = nil, false
	done := make(chan rendered, 1)
	d.e.wg.Go(func() {
		r := rendered{err: errors.New("the agent function ended its goroutine")}
		defer func() {
			if p := recover(); p != nil {
				r = rendered{err: fmt.Errorf("the agent function panicked: %v\n%s", p, debug.Stack())}
			}
			done <- r
		}()
		r.plan, r.err = d.program.Render(ctx, view)
	})
	for {
		select {
		case r := <-done:
			err := r.err
			if err == nil {
				err = d.keepWriters(r.plan.Writers)
			}
			if err != nil {
				return internalFailure(fmt.Errorf("rendering agent %s: %w", d.slot.addr.Agent, err))
			}
			d.plan, d.current = r.plan, true
			return nil
		case <-ctx.Done():
			return nil
		case <-d.slot.wake:
			if err := d.intake(); err != nil {
				return err
			}
		}
	}
}

// keepWriters refuses a render whose data parts are not those of the render
// before it: clients know a response by their names.
func (d *driver) keepWriters(names []string) error {
	old := d.writers
	if d.writers = names; old == nil || slices.Equal(old, names) {
		if names == nil {
			d.writers = []string{}
		}
		return nil
	}
	return fmt.Errorf("the data writers have changed since the last render: %s were %s; declare every data writer in every render, and never conditionally",
		nameList(names), nameList(old))
}

func nameList(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// streamed is one step of a model's answer on its way to the driver.
type streamed struct {
	event model.Event
	err   error
}

// stream runs the model call and hands its events over. The channel is closed
// when the call has ended.
func (d *driver) stream(ctx context.Context, p model.Provider, req *model.Request) <-chan streamed {
	ch := make(chan streamed, 64)
	d.e.wg.Go(func() {
		defer close(ch)
		send := func(s streamed) bool {
			select {
			case ch <- s:
				return true
			case <-ctx.Done():
				return false
			}
		}
		defer func() {
			if r := recover(); r != nil {
				d.e.cfg.Log.Error("a model provider panicked", "panic", r, "stack", string(debug.Stack()))
				send(streamed{err: &model.Error{Provider: req.Model, Class: model.Invalid, Message: "the provider panicked"}})
			}
		}()
		if err := d.holds(); err != nil {
			send(streamed{err: err})
			return
		}
		for event, err := range p.Stream(ctx, req) {
			if !send(streamed{event, err}) || err != nil {
				return
			}
		}
	})
	return ch
}

// An openTurn gathers what the model says.
type openTurn struct {
	*driver
	started *journal.TurnStarted
	origin  model.Origin
	price   model.Cost
	similar []string // names like the model's, which is not known
	charged *float64 // what the provider says that the call cost

	size     int  // bytes received
	calling  int  // tokens of a call that has not come to its end, estimated
	ended    bool // the model has come to its end, and has said what it used
	guess    journal.Usage
	answered string // the model that answered, when it is another
	finish   string // the provider's own word for why it stopped
	began    time.Time
	first    time.Duration // until the first piece of the answer; zero before

	blocks []openBlock
	flush  *time.Timer
	due    <-chan time.Time // flush.C while text waits to be appended
	dueAt  time.Time
}

// An openBlock is a block that is being streamed. Its text is gathered apart,
// so that a long answer is not copied with each delta.
type openBlock struct {
	journal.Block
	text []byte
	sent int // bytes of text that have been appended

	ended bool
}

// whole returns the blocks, and how much of each has been appended.
func (t *openTurn) whole() (blocks []journal.Block, sent []int) {
	for i := range t.blocks {
		b := &t.blocks[i]
		b.Text = string(b.text)
		blocks = append(blocks, b.Block)
		sent = append(sent, b.sent)
	}
	return blocks, sent
}

// How long streamed text may wait before it is appended. A reader that is
// watching sees text when it is durable, so text is appended often while there
// is one and seldom while there is none.
const (
	flushFirst   = 10 * time.Millisecond // the first text of a turn: a short answer needs no delta at all
	flushWatched = 25 * time.Millisecond
	flushAlone   = time.Second
)

func (t *openTurn) run(ctx context.Context, events <-chan streamed) error {
	t.flush = time.NewTimer(time.Hour)
	defer t.flush.Stop()
	for {
		select {
		case s, ok := <-events:
			switch {
			case !ok && ctx.Err() == nil:
				return t.failed(&model.Error{Provider: t.origin.Provider, Class: model.Retryable, Message: "the stream ended before the message did"})
			case !ok:
				return t.cutShort()
			case s.err != nil && ctx.Err() != nil:
				return t.cutShort()
			case s.err != nil:
				return t.failed(s.err)
			}
			done, err := t.take(s.event)
			if done || err != nil {
				return err
			}
		case <-t.due:
			t.due = nil
			if err := t.flushText(); err != nil {
				return err
			}
		case <-ctx.Done():
			return t.cutShort()
		case <-t.slot.wake:
			if err := t.intake(); err != nil {
				return err
			}
			t.hasten()
		}
	}
}

// take adds an event to the turn. It reports true when the answer is whole.
func (t *openTurn) take(ev model.Event) (done bool, err error) {
	if reason := t.unusable(ev); reason != "" {
		return true, t.failed(&model.Error{Provider: t.origin.Provider, Class: model.Invalid, Message: reason})
	}
	t.tellPiece(ev)
	switch ev := ev.(type) {
	case model.Delta:
		if ev.Kind == model.ToolCall { // it comes whole
			t.calling += textTokens(ev.Text)
			return false, nil
		}
		b := t.block(ev.Index)
		b.Kind = journal.BlockKind(ev.Kind)
		b.text = append(b.text, ev.Text...)
		t.schedule()
	case model.BlockDone:
		b := t.block(ev.Index)
		b.ended, t.calling = true, 0
		b.Block = journal.Block{
			Kind: journal.BlockKind(ev.Block.Kind), Call: ev.Block.CallID,
			Name: ev.Block.Name, Arguments: ev.Block.Arguments, Opaque: []byte(ev.Block.Opaque),
		}
		if len(b.text) == 0 { // the deltas are the text, when there were any
			b.text = []byte(ev.Block.Text)
		}
	case model.Done:
		return true, t.done(ev)
	}
	return false, nil
}

// maxAnswer bounds one answer, in bytes.
const maxAnswer = 16 << 20

// unusable says why an event cannot be stored, or nothing if it can.
func (t *openTurn) unusable(ev model.Event) string {
	if reason := t.misplaced(ev); reason != "" {
		return reason
	}
	switch ev := ev.(type) {
	case model.Delta:
		if ev.Kind != model.ToolCall {
			t.size += len(ev.Text)
		}
	case model.BlockDone:
		if o := jsontext.Value(ev.Block.Opaque); len(o) > 0 && !o.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
			return "the provider sent data for later replay that is not JSON"
		}
		t.size += len(ev.Block.Arguments) + len(ev.Block.Opaque)
		if len(t.block(ev.Index).text) == 0 {
			t.size += len(ev.Block.Text)
		}
	}
	if t.size > maxAnswer {
		return fmt.Sprintf("the answer is larger than %d bytes", maxAnswer)
	}
	return ""
}

func (t *openTurn) block(i int) *openBlock {
	for len(t.blocks) <= i {
		t.blocks = append(t.blocks, openBlock{})
	}
	return &t.blocks[i]
}

// schedule sees to it that the text gathered so far is appended soon.
func (t *openTurn) schedule() {
	if t.due != nil {
		return
	}
	t.put(t.patience())
}

// patience is how long text may wait.
func (t *openTurn) patience() time.Duration {
	switch {
	case !t.e.hub.watched(t.slot.addr) && !t.e.sharing.deaf.Load():
		return flushAlone
	case !t.anySent():
		return flushFirst
	}
	return flushWatched
}

func (t *openTurn) put(wait time.Duration) {
	t.dueAt = time.Now().Add(wait)
	t.flush.Reset(wait)
	t.due = t.flush.C
}

// hasten brings the next append of text forward, if somebody has begun to watch.
func (t *openTurn) hasten() {
	if wait := t.patience(); t.due != nil && time.Until(t.dueAt) > wait {
		t.put(wait)
	}
}

func (t *openTurn) anySent() bool { return t.lastSent() >= 0 }

// lastSent is the last block of which something has been appended, -1 if there is
// none.
func (t *openTurn) lastSent() int {
	for i, b := range slices.Backward(t.blocks) {
		if b.sent > 0 {
			return i
		}
	}
	return -1
}

// flushText appends the text that has not been appended yet. What is added to a
// block after a later one was appended waits for the end of the turn: readers are
// told of blocks in their order.
func (t *openTurn) flushText() error {
	for i := max(t.lastSent(), 0); i < len(t.blocks); i++ {
		b := &t.blocks[i]
		text := string(b.text[b.sent:wholeRunes(b.text)])
		if text == "" || (b.Kind != journal.Text && b.Kind != journal.Reasoning) {
			continue
		}
		err := t.stage(&journal.TurnDelta{Turn: t.started.Turn, Response: t.started.Response, Block: i, BlockKind: b.Kind, Text: text})
		if err != nil {
			return err
		}
		b.sent += len(text)
	}
	return t.commit()
}

// wholeRunes is how many bytes of text there are before a character that has
// not come to its end.
func wholeRunes(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return len(text) - n
			}
			break
		}
	}
	return len(text)
}

// close stages the end of the turn.
func (t *openTurn) close(stop journal.Stop, usage journal.Usage, failure *journal.TurnError) error {
	blocks, sent := t.whole()
	named := slices.ContainsFunc(blocks, func(b journal.Block) bool { return b.Kind == journal.ToolCall })
	done := &journal.TurnDone{
		Turn: t.started.Turn, Response: t.started.Response, Submission: t.started.Submission,
		Stop: stop, Blocks: blocks, Sent: sent, Usage: usage, Guess: t.guess, Error: failure,
		Provider: t.origin.Provider, Model: t.origin.Model, Reason: t.finish, Answered: t.answered, Cost: t.cost(usage, failure), Named: named, Refused: named && stop == journal.StopFiltered, WorkMS: t.worked(),
	}
	done.Mute = named && t.started.Budget != nil && !t.says() && !t.state.Response.Mute && !done.Refused && failure == nil && stop != journal.StopAborted
	if done.Cost == nil {
		done.AtMost = atMost(t.price, usage.Add(t.guess))
	}
	t.tellDone(done)
	return t.stage(done)
}

// done closes a turn that the model has ended.
func (t *openTurn) done(ev model.Done) error {
	t.nameCalls()
	t.ended, t.charged = true, ev.Charged
	if ev.Model != t.origin.Model {
		t.answered = ev.Model
	}
	t.finish = clipReason(ev.Reason)
	if ev.Usage.Total() == 0 {
		t.guess = t.estimate(journal.Usage{})
	}
	stop := journal.Stop(ev.Stop)
	switch stop {
	case journal.StopEnd, journal.StopToolUse, journal.StopLength, journal.StopFiltered:
	default:
		stop = journal.StopEnd
	}
	if stop == journal.StopFiltered && !t.says() {
		t.keepText()
		return t.close(journal.StopError, journal.Usage(ev.Usage), &journal.TurnError{
			Class: string(model.Filtered), Message: "the provider's content filter refused to answer",
		})
	}
	return t.close(stop, journal.Usage(ev.Usage), nil)
}

// says reports whether the answer has text.
func (t *openTurn) says() bool {
	return slices.ContainsFunc(t.blocks, func(b openBlock) bool { return b.Kind == journal.Text && len(b.text) > 0 })
}

// maxReason bounds what is kept of a provider's word for the end of an answer.
const maxReason = 128

func clipReason(s string) string {
	if len(s) > maxReason {
		s = s[:maxReason]
	}
	return strings.ToValidUTF8(s, "")
}

// nameCalls says of each call whether it may be run again, and makes the ids of the calls unique within the response, because a
// client and the journal tell calls apart by them alone. Some models send none,
// or the same in every turn.
func (t *openTurn) nameCalls() {
	seen := make(map[string]bool)
	for i := range t.blocks {
		b := &t.blocks[i]
		if b.Kind != journal.ToolCall {
			continue
		}
		if b.Call == "" || seen[b.Call] || t.state.Response.CallIDs[b.Call] {
			b.Call = newID("call_")
		}
		seen[b.Call] = true
		tool := t.plan.tool(b.Name)
		b.Again = tool != nil && tool.Again
	}
}

// failed closes a turn whose call has failed. What was said before the failure
// stays in the history that people see, and out of the model's context.
func (t *openTurn) failed(cause error) error {
	if t.attempt.Err() != nil {
		return t.cutShort()
	}
	failure := t.e.turnError(cause)
	var used journal.Usage
	var me *model.Error
	if errors.As(cause, &me) {
		used = journal.Usage(me.Usage)
		if me.Status == statusNotFound && len(t.similar) > 0 {
			failure.Message += "; models with such a name: " + strings.Join(t.similar, ", ")
		}
	}
	if !t.refused(failure, used) && !unsent(cause) {
		t.guess = t.estimate(used)
	}
	t.keepText()
	t.e.cfg.Log.Warn("a model call failed", "instance", t.slot.addr.String(), "turn", t.started.Turn, "class", failure.Class, "error", cause)
	return t.close(journal.StopError, used, failure)
}

// cutShort closes a turn whose attempt has ended.
func (t *openTurn) cutShort() error {
	t.guess = t.estimate(journal.Usage{})
	t.keepText()
	return t.close(journal.StopAborted, journal.Usage{}, nil)
}

// keepText drops from an unfinished answer what is not text: a call that may
// lack arguments, a block that the provider has not signed.
func (t *openTurn) keepText() {
	for i := range t.blocks {
		switch t.blocks[i].Kind {
		case journal.Text, journal.Reasoning:
			t.blocks[i].Opaque = nil
		default:
			t.blocks[i] = openBlock{Block: journal.Block{Kind: journal.Text}}
		}
	}
}

// statusNotFound is what providers answer that do not know a model.
const statusNotFound = 404
