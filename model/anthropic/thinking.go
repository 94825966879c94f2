package anthropic

import (
	"encoding/json"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/claude"
)

// think sets how long the answer may be and how much the model reasons.
func (p *Provider) think(r *request, req *model.Request, t claude.Traits) {
	r.MaxTokens = req.MaxOutput
	if r.MaxTokens <= 0 {
		r.MaxTokens = req.Info.MaxOutput
	}
	if r.MaxTokens <= 0 {
		r.MaxTokens = DefaultMaxOutput
	}
	adaptive := t.Adaptive
	switch p.style {
	case ThinkingNever:
		return
	case ThinkingAdaptive:
		adaptive = true
	case ThinkingBudget:
		adaptive = false
	}
	how := t.Reasoning(req, r.MaxTokens, adaptive, midTurn(r.Messages))
	r.MaxTokens = how.MaxTokens
	if how.Type != "" {
		r.Thinking = &thinking{Type: how.Type, BudgetTokens: how.Budget, Display: how.Display}
	}
	if how.Effort != "" {
		r.OutputConfig = &outputConfig{Effort: how.Effort}
	}
}

// midTurn reports whether the request continues a turn of tool calls that did
// not begin with thinking, because another model began it or reasoning was off.
// The API refuses to turn reasoning on before that turn has ended.
func midTurn(messages []message) bool {
	first := -1 // the assistant message that began the turn
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == "assistant" {
			first = i
			continue
		}
		if _, ok := messages[i].Content[0].(*toolResultBlock); !ok {
			break
		}
	}
	if first < 0 {
		return false
	}
	_, ok := messages[first].Content[0].(json.RawMessage)
	return !ok
}
