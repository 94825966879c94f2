package engine_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// gather takes all events of a subscription in a goroutine. The function that it
// returns waits for the end and returns them.
func gather(events func(func(engine.Event) bool)) func() []engine.Event {
	var out []engine.Event
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ev := range events {
			out = append(out, ev)
		}
	}()
	return func() []engine.Event {
		<-done
		return out
	}
}

// outline is what events tell, a line each.
func outline(events []engine.Event) string {
	var b strings.Builder
	for _, ev := range events {
		fmt.Fprintf(&b, "%s", ev.Type)
		for _, part := range []string{ev.Purpose, ev.Tool, ev.Stop, ev.Finish, ev.Outcome, ev.Input, ev.Text} {
			if part != "" {
				fmt.Fprintf(&b, " %s", part)
			}
		}
		if ev.Error != nil {
			fmt.Fprintf(&b, " error %v", ev.Error)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// An observer is told a conversation from its beginning to its end, in order, with
// what each step has used, cost and taken.
func TestEventsOfAConversation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.info = model.Info{Cost: model.Cost{Input: 1, Output: 10}}
		w.tools = []engine.Tool{w.tool("look", func(_ context.Context, c *engine.Work) engine.Result {
			time.Sleep(3 * time.Second)
			c.Log.Info("looking")
			return engine.Result{Content: "a fig"}
		})}
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if _, results := asked(req); results > 0 {
				pause(ctx, time.Second)
				say(yield, "a fig.")
				return
			}
			for _, ev := range []model.Event{
				model.Delta{Kind: model.Reasoning, Text: "hm"},
				model.BlockDone{Block: model.Block{Kind: model.Reasoning, Text: "hm"}},
				model.Delta{Index: 1, Kind: model.ToolCall, Text: `{"a`}, // nobody knows yet of which call
				model.Delta{Index: 1, Kind: model.ToolCall, CallID: "c1", Name: "look", Text: `":1}`},
				model.BlockDone{Index: 1, Block: model.Block{Kind: model.ToolCall, CallID: "c1", Name: "look", Arguments: `{"a":1}`}},
				model.Done{Stop: model.StopToolUse, Reason: "tool_calls", Model: "m-2", Usage: model.Usage{Input: 1000, Output: 100}},
			} {
				if !yield(ev, nil) {
					return
				}
			}
		}
		e := w.start(t, memstore.New())
		events := gather(e.Observe(t.Context(), engine.ObserveOptions{Deltas: true, Requests: true}))
		quiet := gather(e.Observe(t.Context(), engine.ObserveOptions{}))
		id := send(t, e, chat, "what is it?")
		settled(t, e, chat, id)
		stop(t, e)

		got := events()
		// The call of the model begins while its record is being written, and so
		// may its admission be told after that.
		slices.SortStableFunc(got, func(a, b engine.Event) int { return first(b, engine.EventAdmitted) - first(a, engine.EventAdmitted) })
		want := `submission_queued
submission_running
message input what is it?
turn_start
turn_request
thinking_delta hm
toolcall_delta look ":1}
turn tool_use tool_calls
tool_start look {"a":1}
log look
tool look a fig
turn_start
turn_request
text_delta a 
text_delta fig.
turn stop a fig.
submission_settled completed
idle
`
		if o := outline(got); o != want {
			t.Errorf("the events are\n%s\nwant\n%s", o, want)
		}
		if n := len(quiet()); n != len(got)-6 {
			t.Errorf("without deltas and requests there are %d events of %d", n, len(got))
		}
		for _, ev := range got {
			if ev.Instance != chat || ev.Time.IsZero() || (ev.Submission != id) != (ev.Type == engine.EventIdle) {
				t.Errorf("the %s says %v, %v, %q", ev.Type, ev.Instance, ev.Time, ev.Submission)
			}
			if strings.HasPrefix(string(ev.Type), "tool") && (ev.Call != "c1" || ev.Turn == "") {
				t.Errorf("the %s is of call %q in turn %q", ev.Type, ev.Call, ev.Turn)
			}
		}
		turn, tool, end := got[7], got[10], got[16]
		if turn.Model != "test/m" || turn.Answered != "m-2" || turn.Usage.Total() != 1100 || turn.Cost != (model.Expense{Dollars: 0.002}) {
			t.Errorf("the turn is told as %+v", turn)
		}
		if second := got[15]; second.First != time.Second || second.Took != time.Second {
			t.Errorf("the second turn has its first word after %s and took %s", second.First, second.Took)
		}
		if tool.Took != 3*time.Second || !tool.OK {
			t.Errorf("the call is told as %+v", tool)
		}
		if end.Usage.Total() != 1112 || end.Cost.Dollars != 0.00203 || end.Took != 4*time.Second || end.AnsweredBy != id {
			t.Errorf("the end is told as %+v", end)
		}
		if req := got[12].Request; len(req.Messages) != 3 || req.Messages[2].Blocks[0].Text != "a fig" || req.System != "be brief" || len(req.Tools) != 1 {
			t.Errorf("the second request is told as %+v", req)
		}
	})
}

// first is 1 for an event of the type.
func first(ev engine.Event, typ engine.EventType) int {
	if ev.Type == typ {
		return 1
	}
	return 0
}

// Nothing waits for an observer that takes nothing. What it misses it is told the
// number of, in the place where it is missing, and deltas leave room for the rest.
func TestObserverThatTakesNothing(t *testing.T) {
	w := newWorld()
	words := strings.Repeat("word ", 50)
	w.reply = func(_ context.Context, _ *model.Request, yield func(model.Event, error) bool) { say(yield, words) }
	e := w.start(t, memstore.New())
	all := gather(e.Observe(t.Context(), engine.ObserveOptions{Deltas: true, Buffer: 1 << 20}))
	blocked := e.Observe(t.Context(), engine.ObserveOptions{Deltas: true, Buffer: 40})
	for i := range 3 {
		settled(t, e, chat, send(t, e, chat, fmt.Sprint("message ", i)))
	}
	stop(t, e)
	events := all()
	var got []engine.Event
	dropped, deltas := 0, 0
	for ev := range blocked {
		switch {
		case ev.Type == engine.EventDropped:
			dropped += ev.Dropped
			continue
		case ev.Type == engine.EventText:
			deltas++
		}
		got = append(got, ev)
	}
	if len(got)+dropped != len(events) || dropped == 0 {
		t.Errorf("of %d events the observer got %d and was told that %d are missing", len(events), len(got), dropped)
	}
	if deltas > 20 || len(got) < 30 {
		t.Errorf("%d deltas of %d events in a buffer of 40", deltas, len(got))
	}
	for range blocked {
		t.Error("an event after the end")
	}
}

// An event that is missing is told in its place.
func TestDroppedEventsAreToldInTheirPlace(t *testing.T) {
	w := newWorld()
	w.reply = echo
	e := w.start(t, memstore.New())
	events := e.Observe(t.Context(), engine.ObserveOptions{Buffer: 2})
	settled(t, e, chat, send(t, e, chat, "one"))
	stop(t, e) // all is told
	var types []engine.EventType
	for ev := range events {
		if types = append(types, ev.Type); len(types) == 3 {
			if ev.Type != engine.EventDropped || ev.Dropped < 3 {
				t.Errorf("the third event is %s of %d", ev.Type, ev.Dropped)
			}
			break
		}
	}
}

// A subscription ends with its loop, with its context, or when all is told that
// was told before the engine was closed.
func TestSubscriptionsEnd(t *testing.T) {
	w := newWorld()
	w.reply = echo
	e := w.start(t, memstore.New())
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := e.Observe(ctx, engine.ObserveOptions{})
	late := e.Observe(t.Context(), engine.ObserveOptions{})
	left := e.Observe(t.Context(), engine.ObserveOptions{})
	panicked := e.Observe(t.Context(), engine.ObserveOptions{})
	settled(t, e, chat, send(t, e, chat, "one"))
	for range left {
		break
	}
	func() {
		defer func() { _ = recover() }()
		for range panicked {
			panic("mine")
		}
	}()
	cancel()
	for ev := range cancelled {
		t.Errorf("a %s after the context has ended", ev.Type)
	}
	settled(t, e, chat, send(t, e, chat, "two"))
	stop(t, e)
	for name, events := range map[string]func(func(engine.Event) bool){"left": left, "panicked": panicked, "after the end": e.Observe(t.Context(), engine.ObserveOptions{})} {
		for ev := range events {
			t.Errorf("%s: a %s", name, ev.Type)
		}
	}
	n := 0
	for ev := range late {
		if ev.Type == engine.EventSettled {
			n++
		}
	}
	if n != 2 {
		t.Errorf("the observer that came late to its loop is told of %d settlements", n)
	}
}

func TestObserveFilters(t *testing.T) {
	w := newWorld()
	w.reply = echo
	other := store.Address{Agent: "chat", ID: "c2"}
	e := w.start(t, memstore.New())
	options := []engine.ObserveOptions{{}, {Agent: "chat"}, {Agent: "chat", Instance: "c2"}, {Instance: "c1"}, {Agent: "other"}}
	var got []func() []engine.Event
	for _, o := range options {
		got = append(got, gather(e.Observe(t.Context(), o)))
	}
	settled(t, e, chat, send(t, e, chat, "one"))
	settled(t, e, other, send(t, e, other, "two"))
	stop(t, e)
	var settlements []string
	for _, events := range got {
		var of []string
		for _, ev := range events() {
			if ev.Type == engine.EventSettled {
				of = append(of, ev.Instance.ID)
			}
		}
		slices.Sort(of) // two instances have no order between them
		settlements = append(settlements, strings.Join(of, " "))
	}
	if got, want := strings.Join(settlements, "|"), "c1 c2|c1 c2|c2|c1|"; got != want {
		t.Errorf("settlements %s, want %s", got, want)
	}
}

// Events hold no bytes of attachments, and no more of a text than its bound, cut
// between two characters.
func TestEventsAreBounded(t *testing.T) {
	w := newWorld()
	w.every = -1 // its checkpoints would be large
	secret := []byte("the bytes of an image")
	long := strings.Repeat("é", engine.MaxEventText) // two bytes each
	w.info.Images, w.info.ContextWindow = true, 1<<20
	w.tools = []engine.Tool{w.tool("look", func(context.Context, *engine.Work) engine.Result {
		return engine.Result{Content: "x" + long}
	})}
	w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
		if _, results := asked(req); results > 0 {
			say(yield, "x"+long)
			return
		}
		call(yield, `look c1 {"a":"`+long+`"}`)
	}
	e := w.start(t, memstore.New())
	events := gather(e.Observe(t.Context(), engine.ObserveOptions{Deltas: true, Requests: true}))
	for i := range 41 { // each is shown with 16 KiB
		a := engine.Admission{
			Address: chat, Submission: engine.NewSubmissionID(), Identity: []byte{byte(i)}, Message: journal.Message{Kind: journal.User, Body: "x" + long},
		}
		if i == 0 {
			a.Message.Attachments = []journal.Attachment{{ID: "att_1", MediaType: "image/png", Size: len(secret)}}
			a.Attachments = []store.Attachment{{ID: "att_1", MediaType: "image/png", Digest: sha256.Sum256(secret), Data: secret}}
		}
		if _, err := e.Admit(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		settled(t, e, chat, a.Submission)
	}
	stop(t, e)
	if !bytes.Equal(w.last.Messages[0].Blocks[1].Data, secret) {
		t.Fatal("the model is not shown the image")
	}
	cut, attachments, omitted := 0, 0, 0
	for _, ev := range events() {
		if ev.Cut {
			cut++
		}
		attachments += len(ev.Attachments)
		texts := []string{ev.Text, ev.Input}
		if ev.Request != nil {
			size := 0
			omitted = ev.Omitted
			for _, m := range ev.Request.Messages {
				for _, b := range m.Blocks {
					size += len(b.Text) + len(b.Arguments)
					texts = append(texts, b.Text, b.Arguments)
					if b.Data != nil {
						t.Error("a request is told with the bytes of an image")
					}
				}
			}
			if size > 1<<20 {
				t.Errorf("a request is told with %d bytes", size)
			}
		}
		for _, text := range texts {
			if len(text) > engine.MaxEventText || !utf8.ValidString(text) {
				t.Errorf("a %s has a text of %d bytes, valid: %v", ev.Type, len(text), utf8.ValidString(text))
			}
		}
	}
	if cut < 4 || attachments != 1 || omitted == 0 {
		t.Errorf("%d events are cut, %d attachments are told, %d messages are left out", cut, attachments, omitted)
	}
}

// Work that comes no further is pointed out, again as long as that lasts.
func TestStalledWorkIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.tools = []engine.Tool{w.tool("sleep", func(context.Context, *engine.Work) engine.Result {
			time.Sleep(19 * time.Minute)
			return engine.Result{Content: "ok"}
		})}
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if _, results := asked(req); results > 0 {
				say(yield, "ok")
				return
			}
			call(yield, "sleep c1")
		}
		e := w.start(t, memstore.New())
		events := gather(e.Observe(t.Context(), engine.ObserveOptions{}))
		id := send(t, e, chat, "go")
		settled(t, e, chat, id)
		time.Sleep(time.Hour) // an idle instance does not stall
		stop(t, e)
		n := 0
		for _, ev := range events() {
			if ev.Type == engine.EventStalled {
				n++
				if ev.Submission != id || ev.Turn == "" || !strings.Contains(ev.Reason, "in phase tools") || ev.Took < 5*time.Minute {
					t.Errorf("the stall is told as %+v", ev)
				}
			}
		}
		if n != 3 {
			t.Errorf("a stall of 19 minutes is told %d times", n)
		}
	})
}

// What an earlier process was at ends for observers too, and a call that is made
// again is announced.
func TestEventsOfRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		asks := 0
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			switch asks++; asks {
			case 1:
				yield(model.Delta{Kind: model.Text, Text: "so far"}, nil)
				<-ctx.Done()
			case 2:
				yield(nil, &model.Error{Class: model.Retryable, Message: "try later"})
			case 3:
				call(yield, "stuck c1")
			default:
				say(yield, "done")
			}
		}
		w.tools = []engine.Tool{w.tool("stuck", func(ctx context.Context, _ *engine.Work) engine.Result {
			<-ctx.Done()
			time.Sleep(time.Minute) // longer than its grace
			return engine.Result{}
		})}
		s := memstore.New()
		e := w.start(t, s)
		id := send(t, e, chat, "go")
		time.Sleep(2 * time.Second) // what was said is durable
		s = die(t, e, s)
		w.events = nil
		e = w.start(t, s)
		time.Sleep(time.Minute)
		if _, err := e.Abort(t.Context(), chat); err != nil {
			t.Fatal(err)
		}
		settled(t, e, chat, id)
		time.Sleep(time.Hour) // the call returns
		stop(t, e)
		var got []engine.Event
		for _, ev := range w.seen() {
			if ev.Type != engine.EventMessage {
				got = append(got, ev)
			}
		}
		want := `submission_running
submission_recovery
turn aborted so far
turn_start
turn error error try later
turn_retry error try later
turn_start
turn tool_use
tool_start stuck
tool stuck {"type":"interrupted","message":"The tool did not stop when its response was ended. It may still be running; the outcome is unknown."}
submission_settled aborted error Submission was aborted.
idle
`
		if o := outline(got); o != want {
			t.Errorf("the events are\n%s\nwant\n%s", o, want)
		}
		if tool := got[9]; tool.OK || tool.Reason == "" {
			t.Errorf("the call is told as %+v", tool)
		}
	})
}

// Observers come and go while events are told.
func TestObserversComeAndGo(t *testing.T) {
	w := newWorld()
	w.reply = echo
	e := w.start(t, memstore.New())
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 30 {
				ctx, cancel := context.WithCancel(t.Context())
				n := 0
				for range e.Observe(ctx, engine.ObserveOptions{Deltas: i%2 == 0, Buffer: 1 + i}) {
					if n++; n == 3 {
						cancel()
					}
				}
				cancel()
			}
		})
	}
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	for i := 0; ; i++ {
		settled(t, e, chat, send(t, e, chat, fmt.Sprint(i)))
		select {
		case <-over:
			stop(t, e)
			return
		default:
		}
	}
}
