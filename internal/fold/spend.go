package fold

import (
	"math"

	"github.com/flue-go/flue/journal"
)

// Spent is what a response or an instance has used, beside the tokens and what
// they cost.
type Spent struct {
	Turns     int   // completed turns
	ToolCalls int   // calls that were run, or may have been
	WorkMS    int64 // see journal.TurnDone
	Guessed   int   // tokens that no provider has counted, by estimate
	Dearest   int64 // the highest cost of one call that is known or estimated, in billionths of a US dollar
}

// worked counts time, for the response and for the instance.
func (s *State) worked(ms int64) {
	s.Response.Spent.WorkMS += ms
	s.Spent.WorkMS += ms
}

// turned counts a turn.
func (s *State) turned(r *journal.TurnDone) {
	s.worked(r.WorkMS)
	for _, spent := range []*Spent{&s.Response.Spent, &s.Spent} {
		spent.Guessed += r.Guess.Total()
		if r.Cost != nil {
			spent.Dearest = max(spent.Dearest, *r.Cost)
		} else {
			spent.Dearest = max(spent.Dearest, r.AtMost)
		}
		if r.Stop != journal.StopError && r.Stop != journal.StopAborted {
			spent.Turns++
		}
	}
}

// ranBatch counts the calls of the batch that is being committed. One that
// certainly has not run does not count.
func (s *State) ranBatch(r *journal.ToolBatch) {
	n := s.Response.mayHaveRun()
	s.Response.Spent.ToolCalls += n
	s.Spent.ToolCalls += n
	s.worked(r.WorkMS)
}

// mayHaveRun is how many calls of the latest turn may have begun to run.
func (r *Response) mayHaveRun() int {
	n := 0
	for _, c := range r.Calls {
		if r.MayHaveRun(c.Call) {
			n++
		}
	}
	return n
}

// Used reports whether anything was used for the response: before its first turn,
// by a summary.
func (r *Response) Used() bool {
	return r.Usage != (journal.Usage{}) || r.Cost != (journal.Expense{}) || r.Spent.Guessed > 0
}

// A BudgetUse is a limit of a budget, and what is used of it: billionths of a US
// dollar for dollars, milliseconds for time.
type BudgetUse struct {
	journal.ExhaustedBudget
	Used, Most int64
}

// Reached reports whether the limit is reached.
func (u BudgetUse) Reached() bool { return u.Used >= u.Most }

// BudgetUse returns the limits of a budget in the order in which they are looked
// at, the submission's first.
func (s *State) BudgetUse(b *journal.Budget) []BudgetUse {
	if b == nil {
		return nil
	}
	var out []BudgetUse
	add := func(scope journal.BudgetScope, l *journal.Limits, spent Spent, tokens int, e journal.Expense) {
		if l == nil {
			return
		}
		for _, u := range [...]BudgetUse{
			{journal.ExhaustedBudget{Scope: scope, Limit: journal.LimitTurns}, int64(spent.Turns), int64(l.Turns)},
			{journal.ExhaustedBudget{Scope: scope, Limit: journal.LimitToolCalls}, int64(spent.ToolCalls), int64(l.ToolCalls)},
			{journal.ExhaustedBudget{Scope: scope, Limit: journal.LimitTokens}, int64(tokens + spent.Guessed), int64(l.Tokens)},
			{journal.ExhaustedBudget{Scope: scope, Limit: journal.LimitDollars}, Charged(e, spent), l.NanoDollars},
			{journal.ExhaustedBudget{Scope: scope, Limit: journal.LimitWallTime}, spent.WorkMS, l.WorkMS},
		} {
			if u.Most > 0 {
				out = append(out, u)
			}
		}
	}
	add(journal.ScopeSubmission, b.Submission, s.Response.Spent, s.Response.Usage.Total(), s.Response.Cost)
	add(journal.ScopeInstance, b.Instance, s.Spent, s.Usage.Total(), s.Cost)
	return out
}

// Left is how much is left of a limit in the scope that has the least, or
// math.MaxInt64 if there is no such limit.
func (s *State) Left(limit journal.BudgetLimit) int64 {
	left := int64(math.MaxInt64)
	for _, u := range s.BudgetUse(s.Budget()) {
		if u.Limit == limit {
			left = min(left, max(u.Most-u.Used, 0))
		}
	}
	return left
}

// Budget is that of the response under way, or nil.
func (s *State) Budget() *journal.Budget {
	if s.Response.Settings == nil {
		return nil
	}
	return s.Response.Settings.Budget
}

// Exhausted returns the limit of its budget that the response under way has
// reached, or nil. It stays reached until the response has ended.
func (s *State) Exhausted() *journal.ExhaustedBudget {
	if s.Response.CutBy != nil {
		return s.Response.CutBy
	}
	return s.ExhaustedBy(s.Budget())
}

// ExhaustedBy is [State.Exhausted] for a budget that is not the response's yet.
func (s *State) ExhaustedBy(b *journal.Budget) *journal.ExhaustedBudget {
	for _, u := range s.BudgetUse(b) {
		if u.Reached() {
			return &u.ExhaustedBudget
		}
	}
	return nil
}

// Charged is what a budget is charged for the calls, in billionths of a US
// dollar: one whose cost is not known counts what is estimated from its tokens,
// or as much as the dearest if there is no estimate.
func Charged(e journal.Expense, s Spent) int64 {
	charged := e.Nano
	if e.AtMost > math.MaxInt64-charged {
		return math.MaxInt64
	}
	charged += e.AtMost
	unbounded := int64(e.Unknown - e.Bounded)
	if s.Dearest > 0 && unbounded > (math.MaxInt64-charged)/s.Dearest {
		return math.MaxInt64
	}
	return charged + unbounded*s.Dearest
}

// CallsLeft is how many more calls may be run before the response's budget has
// no room for another.
func (s *State) CallsLeft() int {
	left := math.MaxInt
	for _, u := range s.BudgetUse(s.Budget()) {
		if u.Limit == journal.LimitToolCalls {
			left = min(left, max(int(u.Most-u.Used)-s.Response.mayHaveRun(), 0))
		}
	}
	return left
}
