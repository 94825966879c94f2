package engine

import (
	"errors"
	"time"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
)

// tellRecord tells, when it is durable, what a record says that no other code
// tells of.
func (d *driver) tellRecord(r journal.Record) {
	switch r := r.(type) {
	case *journal.Entry:
		ev := Event{
			Type: EventMessage, Submission: r.Submission, Turn: r.Turn, Purpose: string(r.Purpose), Text: r.Message.Body, Attachments: r.Message.Attachments,
		}
		if r.Message.Kind == journal.Signal {
			ev.Signal = r.Message.Type
		}
		d.emit(ev)
	case *journal.Outcome:
		if r.DurationMS == nil {
			d.emit(Event{Type: EventToolDone, Turn: r.Turn, Call: r.Call, Tool: r.Tool, Text: r.Content, Reason: "the call did not end by itself"})
		}
	}
}

// tellTurn tells that a model call begins.
func (d *driver) tellTurn(r *journal.TurnStarted, req *model.Request) {
	ev := Event{Type: EventTurnStarted, Turn: r.Turn, Model: r.Provider + "/" + r.Model, Thinking: req.Thinking, Budget: r.Budget}
	d.emit(ev)
	if d.e.observers.requests.Load() > 0 {
		ev.Type = EventTurnRequest
		ev.Request, ev.Omitted = shown(req)
		d.emit(ev)
	}
}

// tellPiece tells what a model says in the moment in which it says it.
func (t *openTurn) tellPiece(ev model.Event) {
	if t.first == 0 {
		t.first = time.Since(t.began)
	}
	if t.e.observers.deltas.Load() == 0 {
		return
	}
	piece, ok := ev.(model.Delta)
	if whole, done := ev.(model.BlockDone); done && len(t.block(whole.Index).text) == 0 && whole.Block.Kind != model.ToolCall {
		piece, ok = model.Delta{Index: whole.Index, Kind: whole.Block.Kind, Text: whole.Block.Text}, true
	}
	if !ok || piece.Text == "" {
		return
	}
	told := Event{
		Time: time.Now(), Instance: t.slot.addr, Submission: t.started.Submission, Turn: t.started.Turn, Block: piece.Index, Text: piece.Text,
	}
	switch piece.Kind {
	case model.Text:
		told.Type = EventText
	case model.Reasoning:
		told.Type = EventReasoning
	case model.ToolCall:
		if piece.CallID == "" || piece.Name == "" {
			return
		}
		told.Type, told.Call, told.Tool = EventToolArguments, piece.CallID, piece.Name
	default:
		return
	}
	t.e.tell(told)
}

// tellDone tells, when it is durable, that a turn has ended.
func (t *openTurn) tellDone(r *journal.TurnDone) {
	ev := turnEvent(r)
	ev.Finish, ev.First, ev.Took = t.finish, t.first, time.Since(t.began)
	t.emit(ev)
}

// tellCut is tellDone for a turn that an earlier driver began.
func (d *driver) tellCut(r *journal.TurnDone) { d.emit(turnEvent(r)) }

func turnEvent(r *journal.TurnDone) Event {
	ev := Event{Type: EventTurnDone, Turn: r.Turn, Stop: string(r.Stop), Answered: r.Answered, Usage: model.Usage(r.Usage), Cost: Expense(journal.Expense{}.Add(r.Cost, r.AtMost))}
	if r.Provider != "" {
		ev.Model = r.Provider + "/" + r.Model
	}
	for _, b := range r.Blocks {
		if b.Kind == journal.Text && len(ev.Text) <= MaxEventText { // more is cut anyway
			ev.Text += b.Text
		}
	}
	if r.Error != nil {
		ev.Error = errors.New(r.Error.Message)
	}
	return ev
}

// sinceAttempt is how long this process has been at the active submission.
func (d *driver) sinceAttempt() time.Duration {
	if d.attempt == nil {
		return 0
	}
	return time.Since(d.began)
}
