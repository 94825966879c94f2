package journal

// A Budget bounds what is used for one submission, with all that joins it, and
// by the instance in all its time. Nil means no bound.
type Budget struct {
	Submission *Limits `json:"sub,omitempty"`
	Instance   *Limits `json:"instance,omitempty"`
}

// Limits are the bounds of one scope. Zero means no bound.
type Limits struct {
	Turns       int   `json:"turns,omitzero"`
	ToolCalls   int   `json:"calls,omitzero"`
	Tokens      int   `json:"tokens,omitzero"`
	NanoDollars int64 `json:"nanoUSD,omitzero"` // billionths of a US dollar
	WorkMS      int64 `json:"workMs,omitzero"`  // see TurnDone.WorkMS
}

// An ExhaustedBudget names a limit that was reached.
type ExhaustedBudget struct {
	Scope BudgetScope `json:"scope"`
	Limit BudgetLimit `json:"limit"`
}

// String returns it in words for people, such as "tool_calls of the instance".
func (e ExhaustedBudget) String() string { return string(e.Limit) + " of the " + string(e.Scope) }

// BudgetScope is what a limit holds for.
type BudgetScope string

// The scopes of a limit.
const (
	ScopeSubmission BudgetScope = "submission" // a submission, with all that joins it
	ScopeInstance   BudgetScope = "instance"   // the instance in all its time
)

// BudgetLimit is what a limit counts.
type BudgetLimit string

// What limits count.
const (
	LimitTurns     BudgetLimit = "turns"
	LimitToolCalls BudgetLimit = "tool_calls"
	LimitTokens    BudgetLimit = "tokens"
	LimitDollars   BudgetLimit = "dollars"
	LimitWallTime  BudgetLimit = "wall_time"
)
