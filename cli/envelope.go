package cli

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/flue-go/flue"
)

// An envelope is what run prints with --json: one object, whatever happened.
type envelope struct {
	Agent      string                       `json:"agent,omitempty"`
	ID         string                       `json:"id,omitempty"`
	UID        string                       `json:"uid,omitempty"`
	Submission string                       `json:"submissionId,omitempty"`
	Outcome    string                       `json:"outcome"` // completed, failed, aborted; error if there is none to tell
	AnsweredBy string                       `json:"answeredBySubmissionId,omitempty"`
	Text       *string                      `json:"text,omitempty"`
	Data       map[string][]json.RawMessage `json:"data,omitempty"`
	Budget     *flue.ExhaustedBudget        `json:"budget,omitempty"`   // the limit that ended the response
	Scripted   bool                         `json:"scripted,omitempty"` // the demo model has answered, not a real one
	Usage      *usage                       `json:"usage,omitempty"`    // of the model calls of this run, if a model was asked
	Cost       *cost                        `json:"cost,omitempty"`
	Error      *envelopeError               `json:"error,omitempty"`
}

type envelopeError struct {
	Type    flue.Code `json:"type,omitempty"`
	Message string    `json:"message"`
	Details string    `json:"details,omitempty"`
}

// outcomeError is the outcome of a run that did not get to know one.
const outcomeError = "error"

func (r *run) envelope(err error) envelope {
	e := envelope{Agent: r.agent, ID: r.id, UID: r.uid, Submission: r.submission, Scripted: r.scripted}
	if u := r.used.usage; r.used.any() {
		e.Usage = &usage{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Reasoning: u.Reasoning}
		e.Cost = &cost{Dollars: r.used.cost.Dollars, Unknown: r.used.cost.Unknown, AtMost: r.used.cost.AtMost}
	}
	if err == nil {
		e.Outcome, e.UID = string(flue.Completed), r.reply.UID
		e.Text, e.Data, e.Budget = &r.reply.Text, r.reply.Data, r.reply.Budget
		if r.reply.AnsweredBy != r.submission {
			e.AnsweredBy = r.reply.AnsweredBy
		}
		return e
	}
	e.Outcome = outcomeError
	e.Error = &envelopeError{Message: err.Error()}
	var ended *flue.SubmissionError
	var refused *flue.Error
	switch {
	case errors.As(err, &ended):
		e.Outcome = string(ended.Outcome)
		e.Error = &envelopeError{Type: ended.Code, Message: ended.Message, Details: ended.Details}
	case errors.As(err, &refused):
		e.Error = &envelopeError{Type: refused.Code, Message: refused.Message, Details: refused.Details}
	}
	return e
}

// finish prints what came of the run, and returns the error that decides the
// exit code.
func (r *run) finish(err error) error {
	if printErr := r.print(err); printErr != nil {
		return errors.Join(err, fmt.Errorf("writing to standard output: %w", printErr))
	}
	var ended *flue.SubmissionError
	if errors.As(err, &ended) && ended.Outcome == flue.Aborted {
		return &exitError{code: exitAborted, err: err}
	}
	return err
}

func (r *run) print(err error) error {
	if r.json {
		enc := json.NewEncoder(r.out)
		enc.SetEscapeHTML(false)
		return enc.Encode(r.envelope(err))
	}
	if err != nil {
		return nil
	}
	_, err = fmt.Fprintln(r.out, r.reply.Text)
	return err
}
