package cli

import (
	"fmt"
	"time"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

// A spent is what was used beside tokens and money.
type spent struct {
	Turns     int   `json:"turns"`
	ToolCalls int   `json:"toolCalls"`
	WorkMS    int64 `json:"workMs"`
	Guessed   int   `json:"guessedTokens,omitzero"` // that no provider has counted, by estimate
}

func spentOf(s fold.Spent) spent {
	return spent{Turns: s.Turns, ToolCalls: s.ToolCalls, WorkMS: s.WorkMS, Guessed: s.Guessed}
}

// A bound is a limit of the response under way, and what is used of it. Dollars
// are those that the budget is charged, calls of unknown cost included.
type bound struct {
	Scope   journal.BudgetScope `json:"scope"`
	Limit   journal.BudgetLimit `json:"limit"`
	Used    float64             `json:"used"` // time in seconds
	Most    float64             `json:"most"`
	Reached bool                `json:"reached"`
}

// budget is that of the response under way.
func budget(st *fold.State) []bound {
	out := []bound{}
	for _, u := range st.BudgetUse(st.Budget()) {
		unit := 1.0
		switch u.Limit {
		case journal.LimitDollars:
			unit = 1e9
		case journal.LimitWallTime:
			unit = 1e3
		}
		out = append(out, bound{Scope: u.Scope, Limit: u.Limit, Used: float64(u.Used) / unit, Most: float64(u.Most) / unit, Reached: u.Reached()})
	}
	return out
}

func (b bound) String() string {
	used, most := fmt.Sprint(b.Used), fmt.Sprint(b.Most)
	switch b.Limit {
	case journal.LimitDollars:
		used, most = fmt.Sprintf("$%.4f", b.Used), fmt.Sprintf("$%.4f", b.Most)
	case journal.LimitWallTime:
		seconds := func(s float64) string { return time.Duration(s * float64(time.Second)).String() }
		used, most = seconds(b.Used), seconds(b.Most)
	}
	return fmt.Sprintf("%s of %s %s for the %s%s", used, most, b.Limit, b.Scope, either(b.Reached, ", reached", ""))
}

// reached names a limit.
func reached(e *journal.ExhaustedBudget) string {
	if e == nil {
		return ""
	}
	return "budget: " + e.String()
}
