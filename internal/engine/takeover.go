package engine

import (
	"errors"
	"slices"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// The words that recovery puts into a conversation.
const (
	interruptedStream = "The previous assistant stream was interrupted."
	continuedStream   = "Continue from the durable partial assistant response."
	interruptedCall   = `{"type":"interrupted","message":"Tool execution was interrupted before completion. The outcome is unknown."}`
	stoppedCall       = `{"type":"interrupted","message":"The call was stopped because its response was ended. Part of its work may have been done."}`
	abandonedCall     = `{"type":"interrupted","message":"The tool did not stop when its response was ended. It may still be running; the outcome is unknown."}`
	unstartedCall     = `{"type":"not_run","message":"The call was not run: its response was ended before its turn came."}`
	overBudgetCall    = `{"type":"not_run","message":"The call was not run: the budget is used up."}`
	filteredCall      = `{"type":"not_run","message":"The call was not run: the provider's content filter cut the answer while it was written, so its arguments may be incomplete."}`
	truncatedCall     = `{"type":"truncated","message":"The call was not run: the model reached its output limit while writing it, so its arguments may be incomplete. Call the tool again with shorter arguments."}`
)

// takeOver puts in order what an earlier driver left behind, and counts the new
// attempt. It is all that recovery has beyond the loop that every driver runs:
// an open turn is closed. Then the phase says how to go on.
func (d *driver) takeOver() error {
	d.fresh = false
	st := d.state
	if err := d.leaveSummary(); err != nil {
		return err
	}
	if d.doom != nil && st.Phase != fold.Closed {
		return d.ruin()
	}
	if st.Active == nil || st.Phase == fold.Closed {
		return nil
	}
	if err := d.forgive(); err != nil {
		return err
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
		d.recoveredTurn(st.Response.Turn, st.Response.Partial)
	case fold.Model:
		// A process that was closed has ended the turn itself.
		if cut := st.Response.Cut; cut != nil {
			d.recoveredTurn(cut.Turn, cut.Blocks)
		}
	}
	return d.atRest()
}

// recoveredTurn tells what becomes of a model call that was cut.
func (d *driver) recoveredTurn(turn string, partial []journal.Block) {
	reason := "the model call was cut and is made again"
	if hasText(partial) {
		reason = "the model call was cut; the model goes on from what it had said"
	}
	d.recovered(Event{Turn: turn, Reason: reason})
}

// goOn shows the model what it had said before it was cut, and asks it to go on
// from there, unless it is about to be told that it has to conclude. If it had said
// nothing it is asked again.
//
// It is the first thing that is done after a cut, before a message joins or the
// next turn begins, and the same whether this process has cut the answer or an
// earlier one has died over it.
func (d *driver) goOn() error {
	resp := &d.state.Response
	if resp.Cut == nil || !hasText(resp.Cut.Blocks) {
		return nil
	}
	turn := resp.Cut.Turn
	notices := []journal.Record{d.notice(turn, journal.SignalInterrupted, interruptedStream)}
	if concludes := d.state.Exhausted() != nil && resp.Concluding == nil; !concludes {
		notices = append(notices, d.notice(turn, journal.SignalContinued, continuedStream))
	}
	return d.stage(notices...)
}

// forgive gives back the attempt that an earlier driver of this process has cut
// because the lease had lapsed, unless somebody has tried since.
func (d *driver) forgive() error {
	p, sub := d.paused, d.state.Active
	if d.paused = nil; p == nil || p.submission != sub.Submission || p.attempts != sub.Attempts || sub.Attempts == 0 {
		return nil
	}
	d.emit(Event{Type: EventReleased, Reason: ErrLeaseLapsed.Error()})
	return d.stage(&journal.Release{Submission: sub.Submission, Node: d.e.cfg.Node})
}

// ruin fails the message that drivers have failed over again and again: the one
// whose response is under way, or the one that would begin.
func (d *driver) ruin() error {
	st := d.state
	if !st.Unsettled() {
		return nil
	}
	end := internalFailure(d.doom)
	if errors.Is(d.doom, store.ErrTooLarge) {
		end = operationFailed(d.operation(), "what was made at once is too large to be stored: "+d.doom.Error())
	}
	if st.Active != nil {
		return d.terminate(journal.Failed, end)
	}
	head := st.Queue[0]
	if !head.Command() {
		if err := d.stage(advisory(head, journal.Failed, end)); err != nil {
			return err
		}
	}
	return d.settleAlone(head.Submission, journal.Failed, end)
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

// closeTurn ends a turn whose stream is gone.
func (d *driver) closeTurn() error {
	resp := &d.state.Response
	partial := resp.Partial
	done := &journal.TurnDone{
		Turn: resp.Turn, Response: resp.ID, Submission: d.state.Active.Submission, Stop: journal.StopAborted, Blocks: partial,
	}
	for _, b := range partial {
		done.Sent = append(done.Sent, len(b.Text))
	}
	done.Guess = journal.Usage{Input: resp.Size, Output: answerTokens(partial)}
	if resp.Settings != nil {
		if m, err := d.e.resolve(resp.Model()); err == nil {
			done.Cost, done.AtMost = price(m.Info.Cost, journal.Usage{}, nil), atMost(m.Info.Cost, done.Guess)
		}
	}
	d.tellCut(done)
	return d.stage(done)
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

// saysNotRun reports whether the words of an outcome say why a call was not run.
func saysNotRun(words string) bool {
	return words == truncatedCall || words == filteredCall || words == overBudgetCall
}

// closeBatch gives each call that has no outcome one with the words, or one that
// says that it was not run if it cannot have been, and commits the batch, unless
// the next process is to go on with one of the calls.
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
		content := words
		if !resp.MayHaveRun(c.Call) && !saysNotRun(words) {
			content = unstartedCall
		}
		err := d.stage(&journal.Outcome{Turn: turn, Response: resp.ID, Call: c.Call, Tool: c.Name, Failed: true, Content: content})
		if err != nil {
			return err
		}
	}
	d.resumed = false
	if open {
		return nil
	}
	return d.stage(&journal.ToolBatch{Turn: turn, WorkMS: d.worked()})
}
