package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/wire"
)

// worked is how many milliseconds the active submission has been worked on since
// the last call, by this process. The caller records them, so that a crash loses
// what was not recorded and nothing counts twice. What is less than a millisecond
// is left for the next call.
func (d *driver) worked() int64 {
	if d.attempt == nil {
		return 0
	}
	ms := max(time.Since(d.recorded).Milliseconds(), 0)
	d.recorded = d.recorded.Add(time.Duration(ms) * time.Millisecond)
	return ms
}

// turnContext is the context of a model call: it ends with the working time that
// the budget has left, unless the turn is the last one. The turn that is cut then
// leads to the last one.
func (d *driver) turnContext(last bool) (context.Context, context.CancelFunc) {
	if left := d.state.Left(journal.LimitWallTime); !last && left < math.MaxInt64 {
		return context.WithTimeout(d.attempt, max(time.Duration(left)*time.Millisecond-time.Since(d.recorded), 0))
	}
	return context.WithCancel(d.attempt)
}

// Answers are not made shorter than this, whatever is left of a budget: what is
// cut in the first sentence is paid for, too. A model that reasons needs more.
const (
	leastAnswer   = 1024
	leastReasoned = 4096
)

// capAnswer bounds the answer to a request of a size by the tokens and the money
// that are left, and returns the limit that does so, if one does.
func (d *driver) capAnswer(req *model.Request, size int) *journal.ExhaustedBudget {
	most := req.MaxOutput
	if most == 0 {
		most = req.Info.MaxOutput
	}
	if most == 0 {
		most = leastReasoned // a limit that is not known may not be much higher
	}
	least := leastAnswer
	if req.Info.Reasoning {
		least = leastReasoned
	}
	var by *journal.ExhaustedBudget
	for _, u := range d.state.BudgetUse(d.state.Budget()) {
		room := affordable(u, req.Info.Cost, size)
		if room = max(room, int64(least)); room < int64(most) {
			most, by = int(room), &u.ExhaustedBudget
		}
	}
	if by != nil {
		req.MaxOutput = most
	}
	return by
}

// affordable is how many tokens of an answer to a request of a size the limit has
// room for. With money the prompt counts what it costs at least: how much of it the
// provider's cache has is only known afterwards.
func affordable(u fold.BudgetUse, c model.Cost, size int) int64 {
	left := u.Most - u.Used
	switch u.Limit {
	case journal.LimitTokens:
		return left - int64(size)
	case journal.LimitDollars:
		input, output := c.Input, c.Output
		if c.CacheRead > 0 {
			input = min(input, c.CacheRead)
		}
		if c.Free || !(output > 0) {
			break
		}
		return int64((float64(left)/nano*1e6 - float64(size)*input) / output)
	}
	return math.MaxInt64
}

// conclude tells the model, once, that a limit of the budget is reached and that
// its next turn is the last one.
func (d *driver) conclude(spent *journal.ExhaustedBudget) error {
	if d.state.Response.Concluding != nil { // that turn was cut or has failed, and is made again
		return nil
	}
	latest := cmp.Or(d.state.Response.Turn, d.state.Active.Submission) // without a turn, a summary has used it up
	return d.stage(d.notice(latest, journal.SignalBudget, budgetNote(spent)))
}

// withoutTools makes of a request one that has no tools: calls and their results
// are told in words, because services refuse calls of tools that they are not told
// of. It is for a model that calls tools although it may not.
func withoutTools(req *model.Request) {
	req.Tools, req.ToolsOff = nil, false
	req.Messages = slices.Clone(req.Messages) // the view is kept
	for i, m := range req.Messages {
		told := model.Message{Role: m.Role, Origin: m.Origin}
		if m.Role == model.RoleTool {
			told.Role = model.RoleUser
		}
		for _, b := range m.Blocks {
			switch b.Kind {
			case model.Reasoning:
				continue
			case model.ToolCall:
				b = model.Block{Kind: model.Text, Text: fmt.Sprintf("[I called the tool %s with %s]", b.Name, b.Arguments)}
			case model.ToolResult:
				b = model.Block{Kind: model.Text, Text: fmt.Sprintf("[The tool answered: %s]", b.Text)}
			}
			told.Blocks = append(told.Blocks, b)
		}
		if len(told.Blocks) == 0 {
			told.Blocks = []model.Block{{Kind: model.Text, Text: "[I thought about it.]"}}
		}
		req.Messages[i] = told
	}
}

// budgetNote is what the model is told of a budget that is used up.
func budgetNote(spent *journal.ExhaustedBudget) string {
	whose := "for this task"
	if spent.Scope == journal.ScopeInstance {
		whose = "for this conversation"
	}
	return fmt.Sprintf("The budget of %s %s is used up. This is your last turn, and tools cannot be called in it. Conclude with what you have: say what was done, what you found out, and what is left to do.",
		budgetWords[spent.Limit], whose)
}

// budgetWords name what a limit counts.
var budgetWords = map[journal.BudgetLimit]string{
	journal.LimitTurns: "model calls", journal.LimitToolCalls: "tool calls", journal.LimitTokens: "tokens",
	journal.LimitDollars: "money", journal.LimitWallTime: "working time",
}

// budgetExceeded ends a submission for which nothing was done, since the instance
// had used up its budget before.
func budgetExceeded(spent *journal.ExhaustedBudget) *ending {
	return &ending{
		Name: "FlueError", Code: wire.CodeBudgetExceeded,
		Message: fmt.Sprintf("The budget of %s of this conversation is used up.", budgetWords[spent.Limit]),
		Details: "No model was asked. Messages are answered again when the agent declares a higher budget for its instances.",
		Meta:    map[string]any{"scope": spent.Scope, "limit": spent.Limit},
	}
}

// ration answers those calls of the batch that the budget does not allow any
// more, and returns those that are to be run.
func (d *driver) ration() (run []journal.Block, err error) {
	resp := &d.state.Response
	left := d.state.CallsLeft()
	for _, c := range resp.Calls {
		switch {
		case resp.Outcomes[c.Call] != nil:
			continue
		case resp.MayHaveRun(c.Call): // it counts already
		case left == 0:
			err := d.stage(&journal.Outcome{Turn: resp.Turn, Response: resp.ID, Call: c.Call, Tool: c.Name, Failed: true, Content: overBudgetCall})
			if err != nil {
				return nil, err
			}
			continue
		default:
			left--
		}
		run = append(run, c)
	}
	return run, nil
}

// payable refuses to spend money that nobody counts: with a budget in dollars,
// the prices of all models of the response must be known.
func (d *driver) payable(b *journal.Budget, specifiers ...string) error {
	for _, s := range specifiers {
		m, err := d.e.resolve(s)
		if err != nil {
			return err
		}
		if err := counted(b, m); err != nil {
			return err
		}
	}
	return nil
}

// counted refuses a model whose price is not known when the budget is in dollars.
func counted(b *journal.Budget, m Model) error {
	bounds := func(l *journal.Limits) bool { return l != nil && l.NanoDollars > 0 }
	if b == nil || !bounds(b.Submission) && !bounds(b.Instance) {
		return nil
	}
	price := model.Cost{Input: m.Info.Cost.Input, Output: m.Info.Cost.Output, Free: m.Info.Cost.Free}
	if _, known := price.Of(model.Usage{Input: 1, Output: 1}); known {
		return nil
	}
	return fmt.Errorf("model %q: the agent has a budget in dollars, and the price of the model is not known; "+
		"have Config.Catalog tell it (Cost.Free if there is none), or bound tokens in place of dollars", m.Origin.Provider+"/"+m.Origin.Model)
}
