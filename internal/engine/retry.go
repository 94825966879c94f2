package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
)

// Bounds on what is done about failed model calls. What was done so far is in
// the fold, so that a crash neither forgets a failure nor counts one twice.
const (
	// maxFailures bounds the failed calls of one response, however they are
	// spread over its turns and models.
	maxFailures = 100
	// maxRetryPause bounds the pause before a failed call is repeated, if the
	// provider does not ask for a longer one.
	maxRetryPause = time.Minute
	// maxAskedPause bounds the pause that a provider can ask for.
	maxAskedPause = time.Hour
	// maxPatience is how long a rate limit may last if there is another model
	// to turn to.
	maxPatience = 5 * time.Second
)

// model is what the next turn runs on: the model that the response started
// with or has fallen back to, or that of the latest render if it is no longer
// there. The settings name it.
func (d *driver) model() (journal.Settings, Model, error) {
	settings := d.plan.Settings
	if stored := d.state.Response.Settings; stored != nil {
		chosen := *stored
		chosen.Model = d.state.Response.Model()
		if m, err := d.e.resolve(chosen.Model); err == nil {
			return chosen, m, nil
		}
	}
	m, err := d.e.resolve(settings.Model)
	return settings, m, err
}

// askable refuses a response, before anything is done for it, whose models the
// program does not have.
func (d *driver) askable() error {
	s := d.plan.Settings
	specifiers := []string{s.Model}
	if c := s.Compaction; c != nil && c.Model != "" {
		specifiers = append(specifiers, c.Model)
	}
	for _, s := range specifiers {
		if _, err := d.e.resolve(s); err != nil {
			return operationFailed(d.operation(), err.Error())
		}
	}
	if err := d.resolvable(s.Fallbacks); err != nil {
		return operationFailed(d.operation(), err.Error())
	}
	if err := d.payable(s.Budget, append(specifiers, s.Fallbacks...)...); err != nil {
		return operationFailed(d.operation(), err.Error())
	}
	return nil
}

// resolvable refuses fallbacks that the program does not have: that must not
// turn out on the day on which one is needed.
func (d *driver) resolvable(specifiers []string) error {
	for _, s := range specifiers {
		if _, err := d.e.resolve(s); err != nil {
			return fmt.Errorf("fallback %s: %w", s, err)
		}
	}
	return nil
}

// afterFailure decides what becomes of a response whose latest turn has failed:
// it goes on with another model, or with the same one after a pause, or it
// fails.
func (d *driver) afterFailure(last *journal.TurnError) error {
	resp := &d.state.Response
	next := resp.Next()
	switch {
	case resp.Errors >= maxFailures:
		return d.endWith(operationFailed(d.operation(), fmt.Sprintf("%d model calls have failed; the last one: %s", resp.Errors, last.Message)))
	case model.Class(last.Class) == model.Overflow:
		d.waited = resp.Turn // the next turn sends less, or fails if it cannot
		return nil
	case model.Class(last.Class) == model.Invalid && resp.Images:
		d.waited = resp.Turn // it may be the images: the next turn has notes in their place
		return nil
	case next != "" && (d.turnsAway(last) || d.tooLong(last)):
		return d.fallBack(next, last)
	case d.tooLong(last):
		return d.endWith(operationFailed(d.operation(), d.exhaustedModels(last)+d.e.comeBack(last)))
	case !model.Class(last.Class).Temporary() || resp.Failures > d.e.cfg.Retries:
		return d.endWith(operationFailed(d.operation(), d.exhaustedModels(last)))
	}
	d.waited = resp.Turn
	return d.pauseAfter(last)
}

// turnsAway reports whether a failure is one upon which the next model is asked
// instead. No model of the chain but the last is waited for long.
func (d *driver) turnsAway(last *journal.TurnError) bool {
	failures := d.state.Response.Failures
	switch model.Class(last.Class) {
	case model.Overloaded, model.Quota:
		return true
	case model.RateLimited:
		return failures > min(1, d.e.cfg.Retries) || last.RetryAfter > maxPatience.Milliseconds()
	case model.Retryable: // one failure may be chance
		return failures > min(1, d.e.cfg.Retries)
	}
	return false // the next model would fail in the same way, or hide a mistake
}

// fallBack makes the rest of the response with the next model.
func (d *driver) fallBack(next string, last *journal.TurnError) error {
	resp := &d.state.Response
	from := resp.Model()
	err := d.stage(&journal.Fallback{
		Response: resp.ID, Submission: d.state.Active.Submission, From: from, To: next, Class: last.Class, Reason: last.Message,
	})
	if err != nil {
		return err
	}
	d.current = false // the render may depend on what has come meanwhile
	d.e.cfg.Log.Warn("a model failed and the next one takes its place", "instance", d.slot.addr.String(), "from", from, "to", next, "class", last.Class)
	d.emit(Event{Type: EventFallback, Model: next, Reason: fmt.Sprintf("%s failed (%s): %s", from, last.Class, last.Message)})
	return nil
}

// exhaustedModels is why a response fails whose latest turn has failed.
func (d *driver) exhaustedModels(last *journal.TurnError) string {
	resp := &d.state.Response
	if resp.Fallback == 0 {
		return last.Message
	}
	return fmt.Sprintf("%s: %s (the %d models before it have failed, too)", resp.Model(), last.Message, resp.Fallback)
}

// asked is how long the provider still wants to be left alone after a failure.
func (e *Engine) asked(last *journal.TurnError) time.Duration {
	wait := time.Duration(last.RetryAfter) * time.Millisecond
	if last.Until > 0 { // whoever comes back after a restart waits for the rest
		wait = min(wait, e.Until(time.UnixMilli(last.Until)))
	} else { // an older record, whose writer would not have waited for longer
		wait = min(wait, maxRetryPause)
	}
	return max(wait, 0)
}

// tooLong reports whether a provider asks for a longer pause than the submission
// has time for, or than anybody should wait for.
func (d *driver) tooLong(last *journal.TurnError) bool {
	wait := d.e.asked(last)
	if !model.Class(last.Class).Temporary() || wait <= maxRetryPause {
		return false
	}
	deadline := d.state.Active.Deadline
	return wait > maxAskedPause || deadline > 0 && d.e.Now().Add(wait).UnixMilli() >= deadline
}

// comeBack says when the provider can be asked again.
func (e *Engine) comeBack(last *journal.TurnError) string {
	wait := e.asked(last)
	return fmt.Sprintf("; the provider asks to be left alone for %s, until %s: send the message again then",
		wait.Round(time.Second), e.Now().Add(wait).UTC().Format(time.RFC3339))
}

// pauseAfter waits before a failed call is repeated.
func (d *driver) pauseAfter(last *journal.TurnError) error {
	wait := max(backoff(d.state.Response.Failures-1, d.e.cfg.RetryBase, maxRetryPause), d.e.asked(last))
	d.emit(Event{Type: EventTurnRetry, Turn: d.state.Response.Turn, Attempt: d.state.Response.Failures, Took: wait, Error: errors.New(last.Message)})
	if err := d.commit(); err != nil {
		return err
	}
	d.slot.pauses(wait)
	return d.linger(d.attempt, wait)
}
