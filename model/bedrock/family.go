package bedrock

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/claude"
)

// A family is what is known of how a maker's models differ in what they take.
type family struct {
	claude     claude.Traits
	caches     bool   // takes cache points
	textCaches bool   // takes them behind text only
	status     bool   // takes the status of a tool result
	effort     string // the field that takes an effort; empty when there is none
	nova       bool
}

// familyOf recognizes a model by its id, which may carry the prefix of an
// inference profile, or be an ARN.
func familyOf(id string) family {
	id = strings.ToLower(id)
	f := family{claude: claude.TraitsOf(id)}
	switch {
	case strings.Contains(id, "anthropic.claude"):
		f.status = true
		f.caches = f.claude.Known || strings.Contains(id, "claude-3-7-") || strings.Contains(id, "claude-3-5-haiku")
	case strings.Contains(id, "amazon.nova"):
		f.status = true
		f.nova = strings.Contains(id, "nova-2-")
		f.caches = slices.ContainsFunc(cachingNovas[:], func(name string) bool { return strings.Contains(id, name) })
		f.textCaches = true
	case strings.Contains(id, "gpt-oss"), strings.Contains(id, "kimi-k2"):
		f.effort = "reasoning_effort"
	}
	return f
}

// cachingNovas are the models of which AWS says that they take cache points. It
// says nothing of Nova 2.
var cachingNovas = [...]string{"nova-micro-", "nova-lite-", "nova-pro-", "nova-premier-"}

// answerLimit is what the limit of an answer is taken to be, in tokens, when a
// budget has to be added to one that nobody knows.
const answerLimit = 8192

// efforts are those of Nova and of models that take the effort in a field.
var efforts = model.Info{Levels: []model.Thinking{model.ThinkingLow, model.ThinkingMedium, model.ThinkingHigh}}

// reason returns how long the answer may be and how much the model shall reason:
// the limit, if any, and the fields that the model itself understands, if any.
func (f family) reason(req *model.Request, midTurn bool) (*types.InferenceConfiguration, map[string]any) {
	limit := req.MaxOutput
	if limit <= 0 {
		limit = max(req.Info.MaxOutput, 0)
	}
	fields := map[string]any{}
	switch level := req.Info.Nearest(req.Thinking); {
	case f.claude.Known:
		limit = f.reasonClaude(req, limit, midTurn, fields)
	case level == model.ThinkingDefault:
	case f.nova && level != model.ThinkingOff: // it is off unless asked for
		level = efforts.Nearest(level)
		fields["reasoningConfig"] = map[string]any{"type": "enabled", "maxReasoningEffort": level}
		if level == model.ThinkingHigh {
			limit = 0 // the model refuses one
		}
	case f.effort != "":
		fields[f.effort] = efforts.Nearest(level)
	}
	if limit <= 0 {
		return nil, fields
	}
	most := int32(min(limit, 1<<30))
	return &types.InferenceConfiguration{MaxTokens: &most}, fields
}

func (f family) reasonClaude(req *model.Request, limit int, midTurn bool, fields map[string]any) int {
	answer := limit
	if answer <= 0 {
		answer = answerLimit
	}
	how := f.claude.Reasoning(req, answer, f.claude.Adaptive, midTurn)
	if how.Type != "" {
		thinking := map[string]any{"type": how.Type}
		if how.Display != "" {
			thinking["display"] = how.Display
		}
		if how.Budget > 0 {
			thinking["budget_tokens"] = how.Budget
			limit = how.MaxTokens
		}
		fields["thinking"] = thinking
	}
	if how.Effort != "" {
		fields["output_config"] = map[string]any{"effort": how.Effort}
	}
	return limit
}
