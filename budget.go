package flue

import (
	"fmt"
	"math"
	"time"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/wire"
)

// A Budget bounds what the agent may use, in one scope; see [UseBudget]. A field
// that is zero sets no bound.
type Budget struct {
	// Scope is what the bounds hold for; the default is PerSubmission.
	Scope BudgetScope

	// Turns bounds the model calls that are answered. Those that fail and are
	// made again, or are cut, do not count.
	Turns int

	// ToolCalls bounds the tool calls that are run, including those that fail. It
	// is never passed: what the model asks for beyond it is not run.
	ToolCalls int

	// Tokens bounds the tokens in and out, those of the provider's cache
	// included.
	Tokens int

	// Dollars bounds what model calls cost, in US dollars at the prices of
	// Config.Catalog. A call whose cost is not known counts what its tokens cost by
	// an estimate that is rather too high; see AtMost of package
	// model's Cost.
	Dollars float64

	// WallTime bounds the time in which responses are worked on: by models, tools
	// and hooks, with the pauses before a call is made again. It does not run while
	// a message or an approval waits and no response is under way, nor while no
	// process is there.
	WallTime time.Duration
}

// BudgetScope is what the bounds of a [Budget] hold for.
type BudgetScope uint8

// The scopes of a budget.
const (
	// PerSubmission bounds each response, with all messages that join it.
	PerSubmission BudgetScope = iota
	// PerInstance bounds what an instance uses in all its time, also what it had
	// used before it had the budget.
	PerInstance
)

// An ExhaustedBudget names the limit of a budget that was reached. String has it
// in words.
type ExhaustedBudget = journal.ExhaustedBudget

// UseBudget bounds what the agent may use. At most one budget may be declared for
// each scope. A response keeps the budgets of the render with which it started,
// so that a change takes effect with the next response.
//
// When a response reaches a limit, the model is told and gets one more turn, in
// which it can call no tool, to conclude. Then the submission settles as
// completed, and its settlement names the limit: see [Reply.Budget]. Limits are
// looked at between turns. An answer may be no longer than what is left of tokens
// and money allows, and a model call is cut when the time is over. So tokens and
// money may pass a limit by the prompts of the latest turn and of the last one and
// about a thousand tokens of answer for each, and time by tool calls, pauses and
// the last turn.
//
// A message to an instance that has used up its own budget before fails with
// CodeBudgetExceeded, and no model is asked, until the agent declares a higher
// one.
//
// With a bound in dollars the prices of all models that the agent names must be
// known. If one is not, the submission fails before anything is done for it.
func UseBudget(r *Render, b Budget) {
	const hook = "UseBudget"
	r.enterRoot(hook, "A delegate's work is part of its parent's response: give the parent a budget.")
	l := b.limits(r, hook)
	if r.budget == nil {
		r.budget = new(journal.Budget)
	}
	scope := &r.budget.Submission
	switch b.Scope {
	case PerSubmission:
	case PerInstance:
		scope = &r.budget.Instance
	default:
		r.misuse(hook, fmt.Sprintf("got the scope %d", b.Scope), "Use PerSubmission or PerInstance.")
	}
	if *scope != nil {
		r.misuse(hook, "was called twice for one scope", "Declare at most one budget for each scope in a render.")
	}
	*scope = l
}

// maxBudget bounds what a budget can say: a billion dollars, so that it can be
// stored in billionths.
const maxBudget = 1e9

// limits is b in the form that is stored. What is not zero does not become zero.
func (b Budget) limits(r *Render, hook string) *journal.Limits {
	if b.Turns < 0 || b.ToolCalls < 0 || b.Tokens < 0 || b.WallTime < 0 || !(b.Dollars >= 0 && b.Dollars <= maxBudget) {
		r.misuse(hook, "got a limit that is negative or no number", "Leave a limit zero for none. A budget in dollars is at most a billion.")
	}
	l := &journal.Limits{
		Turns: b.Turns, ToolCalls: b.ToolCalls, Tokens: b.Tokens,
		NanoDollars: int64(math.Round(b.Dollars * 1e9)), WorkMS: b.WallTime.Milliseconds(),
	}
	if b.Dollars > 0 {
		l.NanoDollars = max(l.NanoDollars, 1)
	}
	if b.WallTime > 0 {
		l.WorkMS = max(l.WorkMS, 1)
	}
	return l
}

// exhausted is the limit that a settlement names, or nil.
func exhausted(b *wire.Budget) *ExhaustedBudget {
	if b == nil {
		return nil
	}
	return &ExhaustedBudget{Scope: journal.BudgetScope(b.Scope), Limit: journal.BudgetLimit(b.Limit)}
}
