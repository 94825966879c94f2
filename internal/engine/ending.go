package engine

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/wire"
)

// An ending is an error that ends a submission, in the form that clients see.
type ending struct {
	Name    string         `json:"name"`
	Message string         `json:"message"`
	Code    wire.Code      `json:"type"`
	Details string         `json:"details"`
	Meta    map[string]any `json:"meta,omitempty"`

	cause error // for this side's log
}

func (e *ending) Error() string {
	if e.cause != nil {
		return e.Message + " " + e.cause.Error()
	}
	return e.Message
}

func (e *ending) Unwrap() error { return e.cause }

func (e *ending) encode() []byte {
	data, err := json.Marshal(e)
	if err != nil {
		return []byte(`{"name":"Error","message":"unknown","type":"internal_error","details":""}`)
	}
	return data
}

func aborted() *ending {
	return &ending{
		Name: "FlueError", Code: wire.CodeSubmissionAborted, Message: "Submission was aborted.",
		Details: "The operation was stopped before it produced a completed response.",
	}
}

func timedOut() *ending {
	return &ending{
		Name: "FlueError", Code: wire.CodeSubmissionTimeout, Message: "Submission exceeded the configured timeout.",
		Details: "The operation ran longer than the configured durability timeout.",
	}
}

func exhausted(attempts, most int) *ending {
	return &ending{
		Name: "FlueError", Code: wire.CodeSubmissionExceeded,
		Message: fmt.Sprintf("Submission exceeded maximum recovery attempts (%d/%d).", attempts, most),
		Details: "Each attempt was interrupted before it produced a completed response, and no attempt is left.",
		Meta:    map[string]any{"attemptCount": attempts, "maxAttempts": most},
	}
}

func operationFailed(operation, reason string) *ending {
	return &ending{
		Name: "FlueError", Code: wire.CodeOperationFailed, Message: operation + " failed: " + reason,
		Meta: map[string]any{"operation": operation, "reason": reason},
	}
}

// tooLarge says that the model refused a request that cannot be made smaller.
func tooLarge(specifier string, window, size, fixed int) *ending {
	of := ""
	if window > 0 {
		of = fmt.Sprintf(" of %d tokens", window)
	}
	return &ending{
		Name: "FlueError", Code: wire.CodeOverflow,
		Message: fmt.Sprintf("The conversation does not fit the context window%s of %s, whatever is summarized, shortened and left out: "+
			"about %d tokens are left, %d of them instructions and tools.", of, specifier, size, fixed),
		Details: "Send less at a time, let tools return less, shorten the instructions or the tools' descriptions, or use a model with a larger context window. The next message can be answered if it is small enough.",
		Meta:    map[string]any{"model": specifier, "contextWindow": window, "tokens": size, "fixedTokens": fixed},
	}
}

// internalFailure hides a cause that clients must not see. An error of the
// framework's own that has a code is told by its code, and nothing else of it.
func internalFailure(cause error) *ending {
	var coded interface{ Code() wire.Code }
	if errors.As(cause, &coded) && coded.Code() == wire.CodeToolConflict {
		return &ending{Name: "FlueError", Code: coded.Code(), Message: coded.(error).Error()}
	}
	return &ending{
		Name: "Error", Code: wire.CodeInternal, Message: "The agent submission failed because of an internal error.",
		Details: "The server encountered an unexpected error while processing the agent submission. When reporting this failure, quote the settlement submissionId — server-side logs carry the same id.",
		cause:   cause,
	}
}

// endWith fails the active submission with an *ending, or returns any other
// error as it is.
func (d *driver) endWith(err error) error {
	var end *ending
	if !errors.As(err, &end) {
		return err
	}
	d.e.cfg.Log.Error("a submission failed", "instance", d.slot.addr.String(), "submission", d.state.Active.Submission, "error", end)
	return d.settle(journal.Failed, end)
}

// cut ends the work on the active submission for the cause: for good, or for
// this process only.
func (d *driver) cut(cause error) error {
	switch {
	case errors.Is(cause, errAborted):
		return d.terminate(journal.Aborted, aborted())
	case errors.Is(cause, errDeadline):
		return d.terminate(journal.Failed, timedOut())
	case errors.Is(cause, errClosing):
		if err := d.atRest(); err != nil {
			return err
		}
		if d.attempt == nil {
			return d.giveUp("")
		}
		return d.giveUp(d.state.Active.Submission)
	}
	return fmt.Errorf("the work on %s ended: %w", d.slot.addr, cause)
}

// terminate brings the conversation to rest, tells people why, and settles.
func (d *driver) terminate(outcome string, end *ending) error {
	if err := d.atRest(); err != nil {
		return err
	}
	for _, sub := range d.state.Joined {
		if err := d.stage(advisory(sub, outcome, end)); err != nil {
			return err
		}
	}
	if !d.state.Active.Command() { // which the conversation knows nothing of
		if err := d.stage(advisory(d.state.Active, outcome, end)); err != nil {
			return err
		}
	}
	return d.settle(outcome, end)
}

// settleQueued settles a submission that was aborted before it began.
func (d *driver) settleQueued(sub *fold.Submission) error {
	end := aborted()
	if !sub.Command() {
		if err := d.stage(advisory(sub, journal.Aborted, end)); err != nil {
			return err
		}
	}
	return d.settleAlone(sub.Submission, journal.Aborted, end)
}

// settleAlone settles a submission that has not begun and has no response.
func (d *driver) settleAlone(submission, outcome string, end *ending) error {
	r := &journal.Settled{Submission: submission, Outcome: outcome, AnsweredBy: submission}
	ev := Event{Type: EventSettled, Submission: submission, Outcome: outcome, AnsweredBy: submission}
	if end != nil {
		r.Error, ev.Error = end.encode(), end
	}
	err := d.stage(r)
	d.emit(ev)
	d.served = true
	return err
}

// settle ends the active submission and all that joined it, those first.
func (d *driver) settle(outcome string, end *ending) error {
	var encoded []byte
	if end != nil {
		encoded = end.encode()
	}
	host := d.state.Active.Submission
	usage, cost, took := d.state.Response.Usage, d.state.Response.Cost, d.sinceAttempt()
	var budget *journal.ExhaustedBudget
	if outcome == journal.Completed {
		budget = d.state.Response.Concluding
	}
	var ids []string
	for _, sub := range d.state.Joined {
		ids = append(ids, sub.Submission)
	}
	ids = append(ids, host)
	for _, id := range ids {
		if err := d.stage(&journal.Settled{Submission: id, Outcome: outcome, Error: encoded, AnsweredBy: host, Budget: budget}); err != nil {
			return err
		}
		ev := Event{Type: EventSettled, Submission: id, Outcome: outcome, AnsweredBy: host, Budget: budget, Usage: model.Usage(usage), Cost: Expense(cost), Took: took}
		if end != nil {
			ev.Error = end
		}
		d.emit(ev)
	}
	d.endAttempt()
	d.served, d.alone = true, false
	d.plan, d.current, d.waited = nil, false, ""
	return nil
}

// advisory tells people and the model that a submission did not complete.
func advisory(sub *fold.Submission, outcome string, end *ending) *journal.Entry {
	signal, reason := journal.SignalFailed, "exhausted_retry_budget"
	switch end.Code {
	case wire.CodeSubmissionAborted:
		signal, reason = journal.SignalAborted, "aborted"
	case wire.CodeSubmissionTimeout:
		reason = "exceeded_timeout"
	}
	return &journal.Entry{
		ID: "entry_" + signal + "_" + sub.Submission, Submission: sub.Submission, Purpose: journal.Advisory, Ending: outcome,
		Message: journal.Message{
			Kind: journal.Signal, Type: signal, Body: end.Message,
			Attributes: map[string]string{"submissionId": sub.Submission, "kind": sub.Origin, "reason": reason},
		},
	}
}
