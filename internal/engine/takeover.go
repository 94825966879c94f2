package engine

import (
	"slices"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

// The words that recovery puts into a conversation.
const (
	interruptedStream = "The previous assistant stream was interrupted."
	continuedStream   = "Continue from the durable partial assistant response."
	interruptedCall   = `{"type":"interrupted","message":"Tool execution was interrupted before completion. The outcome is unknown."}`
	stoppedCall       = `{"type":"interrupted","message":"The call was stopped because its response was ended. Part of its work may have been done."}`
	abandonedCall     = `{"type":"interrupted","message":"The tool did not stop when its response was ended. It may still be running; the outcome is unknown."}`
	truncatedCall     = `{"type":"truncated","message":"The call was not run: the model reached its output limit while writing it, so its arguments may be incomplete. Call the tool again with shorter arguments."}`
)

// takeOver puts in order what an earlier driver left behind, and counts the new
// attempt. It is all that recovery has beyond the loop that every driver runs:
// an open turn is closed. Then the phase says how to go on.
func (d *driver) takeOver() error {
	d.fresh = false
	st := d.state
	if st.Active == nil || st.Phase == fold.Closed {
		return nil
	}
	if d.doom != nil {
		return d.terminate(journal.Failed, operationFailed(d.operation(), "what was made at once is too large to be stored: "+d.doom.Error()))
	}
	if st.Phase == fold.Finish && st.Joinable() == nil {
		return nil
	}
	if err := d.hold(); err != nil {
		return err
	}
	if st.Active.Aborted && st.Phase != fold.Finish {
		return d.terminate(journal.Aborted, aborted())
	}
	if err := d.ensureAttempt(); err != nil || d.attempt == nil || d.ended() != nil {
		return err // out of time; the loop ends it
	}
	switch st.Phase {
	case fold.Tools:
		d.resumed = true
		return nil
	case fold.Streaming:
		reason := "the model call was cut and is made again"
		if hasText(st.Response.Partial) {
			reason = "the model call was cut; the model goes on from what it had said"
		}
		d.recovered(Event{Turn: st.Response.Turn, Reason: reason})
	}
	return d.atRest()
}

func hasText(blocks []journal.Block) bool {
	return slices.ContainsFunc(blocks, func(b journal.Block) bool { return b.Kind == journal.Text && b.Text != "" })
}

// atRest closes an open turn and an uncommitted batch of calls. It changes
// nothing if the conversation is at rest.
func (d *driver) atRest() error {
	switch d.state.Phase {
	case fold.Streaming:
		return d.closeTurn()
	case fold.Tools:
		return d.closeBatch(interruptedCall)
	}
	return nil
}

// closeTurn ends a turn whose stream is gone. If it had said something, the
// model is shown that and asked to go on from there.
func (d *driver) closeTurn() error {
	resp := &d.state.Response
	partial := resp.Partial
	done := &journal.TurnDone{
		Turn: resp.Turn, Response: resp.ID, Submission: d.state.Active.Submission, Stop: journal.StopAborted, Blocks: partial,
	}
	for _, b := range partial {
		done.Sent = append(done.Sent, len(b.Text))
	}
	said := hasText(partial)
	turn := resp.Turn
	if err := d.stage(done); err != nil || !said {
		return err
	}
	return d.stage(d.notice(turn, journal.SignalInterrupted, interruptedStream), d.notice(turn, journal.SignalContinued, continuedStream))
}

// recovered tells of a decision that recovery has made.
func (d *driver) recovered(ev Event) {
	ev.Type, ev.Attempt = EventRecovered, d.state.Active.Attempts
	d.emit(ev)
}

func (d *driver) notice(turn, signal, text string) *journal.Entry {
	return &journal.Entry{
		ID: "entry_" + turn + "_" + signal, Submission: d.state.Active.Submission, Purpose: journal.Notice,
		Message: journal.Message{Kind: journal.Signal, Type: signal, Body: text},
	}
}

// closeBatch gives each call that has no outcome one with the words, and
// commits the batch, unless the next process is to go on with one of the calls.
func (d *driver) closeBatch(words string) error {
	resp := &d.state.Response
	turn := resp.Turn
	open := false
	for _, c := range resp.Calls {
		if resp.Outcomes[c.Call] != nil {
			continue
		}
		if d.leavesOpen(c) {
			open = true
			continue
		}
		err := d.stage(&journal.Outcome{Turn: turn, Response: resp.ID, Call: c.Call, Tool: c.Name, Failed: true, Content: words})
		if err != nil {
			return err
		}
	}
	d.resumed = false
	if open {
		return nil
	}
	return d.stage(&journal.ToolBatch{Turn: turn})
}
