package anthropic

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"github.com/flue-go/flue/model"
)

// traits are the ways in which Claude models differ in how they reason.
type traits struct {
	adaptive  bool   // takes an effort; otherwise a budget of tokens
	byDefault bool   // reasons unless told otherwise
	off       string // the type that turns reasoning off; empty when nothing does
	xhigh     bool   // has an effort above high
	bound     bool   // ties its thinking blocks to what came before them
}

var claudeName = regexp.MustCompile(`claude-(opus|sonnet|haiku|fable|mythos)-(?:(\d+)(?:[.-](\d{1,2}))?(?:\D|$)|preview)`)

// traitsOf recognizes a model by its id, which may carry a maker's prefix, a
// date, or a dot in place of the second dash. Versions that are newer than
// those known here are taken to be like the newest.
func traitsOf(id string) traits {
	m := claudeName.FindStringSubmatch(strings.ToLower(id))
	if m == nil {
		return traits{off: "disabled"} // Claude 3 and models of other makers
	}
	family := m[1]
	major, _ := strconv.Atoi(m[2])
	minor, _ := strconv.Atoi(m[3])
	version := major*100 + minor
	always := family == "fable" || family == "mythos" // reason whatever the request says
	t := traits{
		adaptive:  version >= 406 || always,
		byDefault: version >= 500 || always,
		xhigh:     version >= 407 || always,
		bound:     version >= 501,
	}
	switch {
	case always:
	case version <= 500, version == 505 && family == "haiku":
		t.off = "disabled"
	case version == 505 && family == "sonnet":
		t.off = "between_tools"
	}
	return t
}

const (
	minBudget = 1024 // tokens; the API takes no smaller budget
	minAnswer = 1024 // what a budget leaves to an answer that may be longer
)

func budget(level model.Thinking) int {
	switch level {
	case model.ThinkingMinimal:
		return minBudget
	case model.ThinkingLow:
		return 2 << 10
	case model.ThinkingMedium:
		return 8 << 10
	case model.ThinkingHigh:
		return 16 << 10
	case model.ThinkingXHigh:
		return 32 << 10
	}
	return 0
}

// think sets how long the answer may be and how much the model reasons.
func (p *Provider) think(r *request, req *model.Request, t traits) {
	r.MaxTokens = req.MaxOutput
	if r.MaxTokens <= 0 {
		r.MaxTokens = req.Info.MaxOutput
	}
	if r.MaxTokens <= 0 {
		r.MaxTokens = DefaultMaxOutput
	}
	adaptive := t.adaptive
	switch p.style {
	case ThinkingNever:
		return
	case ThinkingAdaptive:
		adaptive = true
	case ThinkingBudget:
		adaptive = false
	}
	level := req.Thinking
	if level != model.ThinkingOff || t.off == "" { // the levels listed are efforts
		level = req.Info.Nearest(level)
	}
	switch {
	case level == model.ThinkingDefault:
		// Newer models reason by default but keep it to themselves, and even
		// the text between tool calls with it.
		if adaptive && t.byDefault {
			r.Thinking = &thinking{Type: "adaptive", Display: "summarized"}
		}
	case level == model.ThinkingOff && t.off != "":
		r.Thinking = &thinking{Type: t.off}
	case adaptive:
		r.Thinking = &thinking{Type: "adaptive", Display: "summarized"}
		r.OutputConfig = &outputConfig{Effort: effort(level, t)}
	default:
		r.budget(budget(level), req.Info.MaxOutput)
	}
}

// effort maps a level to one that the API has. A model that cannot stop
// reasoning gets the lowest.
func effort(level model.Thinking, t traits) string {
	switch level {
	case model.ThinkingMedium:
		return "medium"
	case model.ThinkingHigh:
		return "high"
	case model.ThinkingXHigh:
		if t.xhigh {
			return "xhigh"
		}
		return "high"
	}
	return "low"
}

// budget asks for reasoning within n tokens. The answer keeps its room beside
// them unless the model's limit forbids it; then the budget gives way.
func (r *request) budget(n, limit int) {
	if midTurn(r.Messages) {
		return
	}
	answer := min(r.MaxTokens, minAnswer)
	if limit <= 0 {
		limit = r.MaxTokens + n
	}
	r.MaxTokens = max(r.MaxTokens, min(r.MaxTokens+n, limit))
	n = min(n, r.MaxTokens-answer)
	if n >= minBudget {
		r.Thinking = &thinking{Type: "enabled", BudgetTokens: n}
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
