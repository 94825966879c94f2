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
	"github.com/flue-go/flue/store"
)

// turn makes one model call and brings it to a durable end.
func (d *driver) turn() error {
	resp := &d.state.Response
	if resp.LastError != nil && d.waited != resp.Failures {
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
	if err != nil {
		return d.endWith(operationFailed(d.operation(), err.Error()))
	}
	if err := d.narrate(); err != nil {
		return err
	}
	d.current = true // narration is nothing that a render reads
	req, err := d.request(m, settings)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrCorrupt) {
		err = internalFailure(err) // one bad image must not stop the conversation
	}
	if err != nil {
		return d.endWith(err)
	}
	started := &journal.TurnStarted{
		Turn: newID("turn_"), Response: d.responseID(), Submission: d.state.Active.Submission,
		Provider: m.Origin.Provider, Model: m.Origin.Model,
	}
	if err := d.stage(started); err != nil {
		return err
	}
	d.emit(Event{Type: EventTurnStarted, Turn: started.Turn, Model: settings.Model})

	// The call may start while its record is being appended: without the
	// record it has no effect.
	ctx, cancel := context.WithCancel(d.attempt)
	defer cancel()
	events := d.stream(ctx, m.Provider, req)
	if err := d.commit(); err != nil {
		return err
	}
	t := &openTurn{driver: d, started: started, origin: m.Origin}
	return t.run(ctx, events)
}

// afterFailure waits before a failed call is repeated, or fails the submission
// if it must not be.
func (d *driver) afterFailure(last *journal.TurnError) error {
	failures := d.state.Response.Failures
	if last.Class != string(model.Retryable) || failures > d.e.cfg.Retries {
		return d.endWith(operationFailed(d.operation(), last.Message))
	}
	if err := d.commit(); err != nil {
		return err
	}
	d.waited = failures
	wait := max(backoff(failures-1, d.e.cfg.RetryBase, maxRetryPause), min(time.Duration(last.RetryAfter)*time.Millisecond, maxRetryPause))
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case <-d.attempt.Done():
			return nil
		case <-d.e.drain:
			return nil
		case <-d.slot.wake:
			if err := d.intake(); err != nil || d.attempt.Err() != nil {
				return err
			}
		}
	}
}

// maxRetryPause bounds the pause before a failed call is repeated, whatever
// the provider asks for.
const maxRetryPause = time.Minute

// backoff is the pause after the n-th failure, counted from zero: base doubled
// each time, up to limit, less up to a quarter so that callers spread out.
func backoff(n int, base, limit time.Duration) time.Duration {
	wait := limit
	if n < 16 {
		wait = min(limit, base<<n)
	}
	return wait - time.Duration(rand.Int64N(int64(wait)/4+1))
}

// pause waits, and reports false if ctx or stop ended first.
func pause(ctx context.Context, stop <-chan struct{}, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-stop:
	}
	return false
}

// operation names the submission in errors.
func (d *driver) operation() string {
	sub := d.state.Active
	origin := sub.Origin
	if origin == "" {
		origin = "direct"
	}
	return origin + "(" + sub.Submission + ")"
}

// model is what the response runs on: the settings with which it started, or
// those of the latest render if their model is no longer there.
func (d *driver) model() (journal.Settings, Model, error) {
	settings := d.plan.Settings
	if stored := d.state.Response.Settings; stored != nil {
		if m, err := d.e.cfg.Models.Resolve(stored.Model); err == nil {
			return *stored, m, nil
		}
	}
	m, err := d.e.cfg.Models.Resolve(settings.Model)
	return settings, m, err
}

// render runs the agent function with a message in front of the model. On
// return the plan is nil if ctx ended first: a render that ignores its context is
// abandoned.
func (d *driver) render(ctx context.Context, delivery journal.Message) error {
	st := d.state
	view := View{
		ID: d.slot.addr.ID, UID: st.Born.UID, InitialData: []byte(st.Born.InitialData), Vars: maps.Clone(st.Vars), Delivery: delivery,
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

	size     int    // bytes received
	answered string // the model that answered, when it is another

	blocks []openBlock
	flush  *time.Timer
	due    <-chan time.Time // flush.C while text waits to be appended
}

// An openBlock is a block that is being streamed. Its text is gathered apart,
// so that a long answer is not copied with each delta.
type openBlock struct {
	journal.Block
	text []byte
	sent int // bytes of text that have been appended
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
		}
	}
}

// take adds an event to the turn. It reports true when the answer is whole.
func (t *openTurn) take(ev model.Event) (done bool, err error) {
	if reason := t.unusable(ev); reason != "" {
		return true, t.failed(&model.Error{Provider: t.origin.Provider, Class: model.Invalid, Message: reason})
	}
	switch ev := ev.(type) {
	case model.Delta:
		b := t.block(ev.Index)
		b.Kind = journal.BlockKind(ev.Kind)
		b.text = append(b.text, ev.Text...)
		t.schedule()
	case model.BlockDone:
		b := t.block(ev.Index)
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
	switch ev := ev.(type) {
	case model.Delta:
		t.size += len(ev.Text)
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
	i = min(max(i, 0), journal.MaxBlocks-1)
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
	wait := flushAlone
	if t.e.hub.watched(t.slot.addr) {
		wait = flushWatched
		if !t.anySent() {
			wait = flushFirst
		}
	}
	t.flush.Reset(wait)
	t.due = t.flush.C
}

func (t *openTurn) anySent() bool {
	for _, b := range t.blocks {
		if b.sent > 0 {
			return true
		}
	}
	return false
}

// flushText appends the text that has not been appended yet.
func (t *openTurn) flushText() error {
	for i := range t.blocks {
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
		t.emit(Event{Type: EventText, Turn: t.started.Turn, Text: text})
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
	err := t.stage(&journal.TurnDone{
		Turn: t.started.Turn, Response: t.started.Response, Submission: t.started.Submission,
		Stop: stop, Blocks: blocks, Sent: sent, Usage: usage, Error: failure,
		Provider: t.origin.Provider, Model: t.origin.Model, Answered: t.answered,
	})
	ev := Event{Type: EventTurnDone, Turn: t.started.Turn, Stop: string(stop), Usage: model.Usage(usage)}
	if failure != nil {
		ev.Error = errors.New(failure.Message)
	}
	t.emit(ev)
	return err
}

// done closes a turn that the model has ended.
func (t *openTurn) done(ev model.Done) error {
	t.nameCalls()
	if ev.Model != t.origin.Model {
		t.answered = ev.Model
	}
	for i := range t.blocks {
		if b := &t.blocks[i]; b.Kind == journal.Text && b.sent < len(b.text) {
			t.emit(Event{Type: EventText, Turn: t.started.Turn, Text: string(b.text[b.sent:])})
		}
	}
	stop := journal.Stop(ev.Stop)
	switch stop {
	case journal.StopEnd, journal.StopToolUse, journal.StopLength, journal.StopFiltered:
	default:
		stop = journal.StopEnd
	}
	if stop == journal.StopFiltered && len(t.blocks) == 0 {
		return t.close(journal.StopError, journal.Usage(ev.Usage), &journal.TurnError{
			Class: string(model.Invalid), Message: "the provider's content filter refused to answer",
		})
	}
	return t.close(stop, journal.Usage(ev.Usage), nil)
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
	t.keepText()
	failure := &journal.TurnError{Class: string(model.Invalid), Message: cause.Error()}
	var me *model.Error
	if errors.As(cause, &me) {
		failure = &journal.TurnError{
			Class: string(me.Class), Status: me.Status, Message: me.Message, RetryAfter: me.RetryAfter.Milliseconds(),
		}
		if me.Status != 0 {
			failure.Message = fmt.Sprintf("%d: %s", me.Status, me.Message)
		} else if me.Message == "" {
			failure.Message = me.Error()
		}
	}
	t.e.cfg.Log.Warn("a model call failed", "instance", t.slot.addr.String(), "turn", t.started.Turn, "class", failure.Class, "error", cause)
	return t.close(journal.StopError, journal.Usage{}, failure)
}

// cutShort closes a turn whose attempt has ended.
func (t *openTurn) cutShort() error {
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
