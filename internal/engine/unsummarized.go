package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
)

// A summary that cannot be had holds turns up and may cost money, and so would one
// asked for before each turn. So there is a pause after each, by the clock of the
// store, that grows for as long as none can be had. Failures and pauses are in the
// fold: a process that takes over goes on with them.

// The pauses. They double with each failure in a row, and are no shorter than what
// a provider asks for.
const (
	summaryPause     = time.Minute      // the first after a failure that does not pass by itself
	slowSummaryPause = 10 * time.Minute // the first after a summary that took too long: a turn has waited for minutes
	maxSummaryPause  = time.Hour

	// leastSummaryPause bounds the first one after what may pass, which is otherwise
	// that before a model call is repeated.
	leastSummaryPause = time.Second
)

// maxUrgent is how many summaries in a row are asked for at once because the model
// has refused a request as too large. After that those wait, too, and less is sent.
const maxUrgent = 3

// awaitsSummary reports whether it is too soon to ask for a summary again.
func (d *driver) awaitsSummary() bool {
	wait := d.e.Until(time.UnixMilli(d.state.Unsummarized.Next))
	return wait > 0 && wait <= maxSummaryPause // or the clock was set back
}

// pauseAfterSummary is how long no other summary is asked for after one that has
// failed.
func (d *driver) pauseAfterSummary(s *summary) time.Duration {
	first := summaryPause
	switch {
	case s.slow:
		first = slowSummaryPause
	case s.passing:
		first = max(d.e.cfg.RetryBase, leastSummaryPause)
	}
	return min(max(backoff(d.state.Unsummarized.Failures, first, maxSummaryPause), s.asked), maxSummaryPause)
}

// A SummaryError says why no summary could be had of a conversation.
type SummaryError struct {
	Models   []string  // that were asked, as provider/model
	Failures int       // in a row
	Next     time.Time // before when no other is asked for; zero if the conversation goes on without what was to be summed up
	Do       string    // what to do about it
	Err      error     // of the model that was asked last
}

func (e *SummaryError) Error() string {
	text := "no summary could be had"
	if len(e.Models) > 0 {
		text += " of " + strings.Join(e.Models, ", ")
	}
	text += ": " + e.Err.Error()
	if !e.Next.IsZero() {
		text += "; the next one is asked for at " + e.Next.UTC().Format(time.RFC3339)
	}
	if e.Do != "" {
		text += "; " + e.Do
	}
	return text
}

// Unwrap returns the cause.
func (e *SummaryError) Unwrap() error { return e.Err }

// unsummarized stages that no summary could be had, and returns why, with what to
// do about it. The records go with the next batch.
func (d *driver) unsummarized(c compaction, s *summary) (*SummaryError, error) {
	next := d.e.Now().Add(d.pauseAfterSummary(s))
	r := s.record(c)
	r.Error, r.Next = d.e.turnError(s.failure), next.UnixMilli()
	if err := d.stage(r); err != nil {
		return nil, err
	}
	failed := &SummaryError{Models: s.asks, Failures: d.state.Unsummarized.Failures, Next: next, Do: s.remedy(), Err: s.failure}
	d.e.cfg.Log.Warn("no summary of a conversation could be had: less of it is sent to the model meanwhile", "instance", d.slot.addr.String(), "why", string(c.reason),
		"models", strings.Join(failed.Models, ", "), "failures", failed.Failures, "next", next.UTC().Format(time.RFC3339), "do", failed.Do, "error", s.failure)
	return failed, nil
}

// dropping says why what was to be summed up is left out for good.
func (d *driver) dropping(c compaction, s *summary) error {
	failed := &SummaryError{Models: s.asks, Do: strings.Join(s.todo, ", or "), Err: s.failure}
	d.e.cfg.Log.Warn("no summary of a conversation could be had: its older part is left out", "instance", d.slot.addr.String(), "why", string(c.reason),
		"models", strings.Join(failed.Models, ", "), "do", failed.Do, "error", s.failure)
	return failed
}

// record is what the calls for a summary took that is not to be.
func (s *summary) record(c compaction) *journal.Unsummarized {
	return &journal.Unsummarized{
		Submission: c.submission, Reason: c.reason, Provider: s.by.Provider, Model: s.by.Model,
		Usage: s.usage, Guess: s.guess, Calls: s.calls, Cost: s.cost(), AtMost: s.atMost(),
	}
}

// errSummaryCut says that a process has died over a summary.
var errSummaryCut = errors.New("the process that had asked for the summary has died")

// leaveSummary ends the summary that an earlier driver has asked for and that
// nobody waits for any more. It may have cost something.
func (d *driver) leaveSummary() error {
	begun := d.state.Summarizing
	if begun == nil {
		return nil
	}
	r := &journal.Unsummarized{
		Submission: begun.Submission, Reason: begun.Reason, Provider: begun.Provider, Model: begun.Model,
		Guess: begun.Guess, Cost: begun.Cost, AtMost: begun.AtMost,
	}
	told := Event{Type: EventCompacted, Submission: begun.Submission, Reason: string(begun.Reason), Error: errSummaryCut}
	if begun.Model != "" {
		r.Calls = 1
		told.Model = begun.Provider + "/" + begun.Model
		told.Cost = Expense(journal.Expense{}.Add(r.Cost, r.AtMost))
	}
	d.emit(told)
	return d.stage(r)
}

// fails takes down that a model has given no summary.
func (s *summary) fails(specifier string, failure error) {
	s.earlier = cmp.Or(s.earlier, failure)
	if !slices.Contains(s.asks, specifier) {
		s.asks = append(s.asks, specifier)
	}
	slow, passing := errors.Is(failure, errSlow), temporary(failure)
	s.blocked = s.blocked || notNow(failure) && !slow
	s.slow, s.passing = s.slow || slow, s.passing || passing
	var me *model.Error
	if errors.As(failure, &me) {
		s.asked = max(s.asked, me.RetryAfter)
	}
	s.do(specifier, failure)
}

// do takes down what to do about a failure.
func (s *summary) do(specifier string, failure error) {
	var class model.Class
	var me *model.Error
	if errors.As(failure, &me) {
		class = me.Class
	}
	what := "have another model than " + specifier + " write the summaries (ModelOptions.Compaction.Model)"
	switch {
	case class == model.Auth:
		what = "set a key for " + specifier + " that is accepted"
	case class == model.Quota:
		what = "raise the quota for " + specifier
	case temporary(failure):
		what = "wait until " + specifier + " answers again"
	case errors.Is(failure, errSlow):
		what = "have a faster model than " + specifier + " write the summaries (ModelOptions.Compaction.Model)"
	}
	if !slices.Contains(s.todo, what) {
		s.todo = append(s.todo, what)
	}
}

// remedy is what to do about the failures.
func (s *summary) remedy() string {
	if len(s.todo) == 0 {
		return ""
	}
	return strings.Join(s.todo, ", or ") + "; Instance.Compact asks for a summary at once"
}

// tellStandIn warns that a summary was had, but not of the model that is to write
// them.
func (d *driver) tellStandIn(s *summary) {
	if s.failure != nil || len(s.asks) == 0 {
		return
	}
	by := s.by.Provider + "/" + s.by.Model
	if slices.Contains(s.asks, by) { // at the second try
		return
	}
	d.e.cfg.Log.Warn("a summary was written by another model than the one that is asked first", "instance", d.slot.addr.String(),
		"models", strings.Join(s.asks, ", "), "by", by, "do", strings.Join(s.todo, ", or "), "error", s.earlier)
}

// mayPass reports whether a summary may yet be had. Until it is, less than the
// context is sent, and nothing is dropped for good. A quota and a key are mended by
// people, which takes as long as it takes; for what may have to do with this
// summary there is patience for some turns.
func (d *driver) mayPass(s *summary) bool {
	return s.blocked || (s.passing || s.slow) && d.state.Squeezed < patience
}

// patience is how many turns are made with less than the context while summaries
// fail.
const patience = 8

// turnError is how a failed model call is stored.
func (e *Engine) turnError(cause error) *journal.TurnError {
	failure := &journal.TurnError{Class: string(model.Invalid), Message: cause.Error()}
	if errors.Is(cause, errSlow) {
		failure.Class = string(model.Retryable)
	}
	var me *model.Error
	if !errors.As(cause, &me) {
		return failure
	}
	failure = &journal.TurnError{Class: string(me.Class), Status: me.Status, Message: me.Message, RetryAfter: me.RetryAfter.Milliseconds()}
	if me.RetryAfter > 0 {
		failure.Until = e.Now().Add(me.RetryAfter).UnixMilli()
	}
	if me.Status != 0 {
		failure.Message = fmt.Sprintf("%d: %s", me.Status, me.Message)
	} else if me.Message == "" {
		failure.Message = me.Error()
	}
	return failure
}
