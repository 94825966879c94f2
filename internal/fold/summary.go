package fold

import "github.com/flue-go/flue/journal"

// Unsummarized is what is known of the summaries that could not be had since the
// latest one that could.
type Unsummarized struct {
	Failures  int   // in a row
	Overflows int   // those of them that were for a request that had been refused as too large
	Next      int64 // of the latest; see journal.Unsummarized
}

// summed is what the calls for a summary took.
type summed struct {
	usage, guess journal.Usage
	calls        int
	cost         *int64
	atMost       int64
}

// countSummary counts it: for the instance, and for the response if it is the submission
// for which the summary was to be made.
func (s *State) countSummary(submission string, u summed) {
	count := func(usage *journal.Usage, spent *Spent, cost *journal.Expense) {
		*usage = usage.Add(u.usage)
		spent.Guessed += u.guess.Total()
		if u.calls > 0 {
			*cost = cost.Add(u.cost, u.atMost)
		}
	}
	count(&s.Usage, &s.Spent, &s.Cost)
	if s.Active != nil && s.Active.Submission == submission {
		count(&s.Response.Usage, &s.Response.Spent, &s.Response.Cost)
	}
}

// summarizing takes note of a summary that is begun.
func (s *State) summarizing(r *journal.Summarizing) error {
	switch {
	case s.Active == nil:
		return s.refuse(r, "no submission is active")
	case !s.Resting():
		return s.refuse(r, "the conversation is not at rest")
	}
	s.leaveSummary()
	s.Summarizing = r
	return nil
}

// leaveSummary counts the summary that is being made although nobody will say how
// it has ended.
func (s *State) leaveSummary() {
	r := s.Summarizing
	if r == nil {
		return
	}
	s.Summarizing = nil
	calls := 0
	if r.Model != "" {
		calls = 1
	}
	s.countSummary(r.Submission, summed{guess: r.Guess, calls: calls, cost: r.Cost, atMost: r.AtMost})
}

// unsummarized ends the summary that is being made, which could not be had.
func (s *State) unsummarized(r *journal.Unsummarized) error {
	if s.Summarizing == nil {
		return s.refuse(r, "no summary is being made")
	}
	s.Summarizing = nil
	s.countSummary(r.Submission, summed{r.Usage, r.Guess, r.Calls, r.Cost, r.AtMost})
	if r.Error == nil { // it was cut, which says nothing of the next one
		return nil
	}
	s.Unsummarized.Failures++
	s.Unsummarized.Next = r.Next
	if r.Reason == journal.CompactionOverflow {
		s.Unsummarized.Overflows++
		s.Response.Unrelieved = s.Response.Overflows > 0
	}
	return nil
}
