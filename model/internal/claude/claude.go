// Package claude says in which ways the models of the Claude family differ,
// whatever service offers them.
package claude

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/flue-go/flue/model"
)

// Traits are how a model reasons.
type Traits struct {
	Known     bool   // it is a model of the family, Claude 4 or newer
	Adaptive  bool   // takes an effort; otherwise a budget of tokens
	ByDefault bool   // reasons unless told otherwise
	Off       string // the type that turns reasoning off; empty when nothing does
	XHigh     bool   // has an effort above high, called xhigh
	Max       bool   // has one above that, called max
	Bound     bool   // ties its thinking blocks to what came before them
}

var name = regexp.MustCompile(`claude-(opus|sonnet|haiku|fable|mythos)-(?:(\d+)(?:[.-](\d{1,2}))?(?:\D|$)|preview)`)

// TraitsOf recognizes a model by its id, which may carry a maker's prefix, a
// date, or a dot in place of the second dash. Versions that are newer than
// those known here are taken to be like the newest.
func TraitsOf(id string) Traits {
	m := name.FindStringSubmatch(strings.ToLower(id))
	if m == nil {
		return Traits{Off: "disabled"} // Claude 3 and models of other makers
	}
	family := m[1]
	major, _ := strconv.Atoi(m[2])
	minor, _ := strconv.Atoi(m[3])
	version := major*100 + minor
	always := family == "fable" || family == "mythos" // reason whatever the request says
	t := Traits{
		Known:     true,
		Adaptive:  version >= 406 || always,
		ByDefault: version >= 500 || always,
		XHigh:     version >= 407 && family != "haiku" || always,
		Max:       version >= 406 && family != "haiku" || always,
		Bound:     version >= 501,
	}
	switch {
	case always:
	case version <= 500, version == 505 && family == "haiku":
		t.Off = "disabled"
	case version == 505 && family == "sonnet":
		t.Off = "between_tools"
	}
	return t
}

const (
	minBudget = 1024 // tokens; the API takes no smaller budget
	minAnswer = 1024 // what a budget leaves to an answer that may be longer
)

// Reasoning is how to ask a model to reason.
type Reasoning struct {
	Type      string // of the thinking that is asked for; empty leaves it to the model
	Display   string // goes with the type adaptive
	Budget    int    // goes with the type enabled, in tokens
	Effort    string // empty leaves it to the model
	MaxTokens int    // limit of the answer, which includes the budget
}

// Reasoning returns how to ask for the level that req wants. Answer is the limit
// of the answer alone, in tokens. The model is asked with an effort if adaptive,
// and with a budget otherwise; not in the middle of a turn that did not begin with
// thinking, since the API refuses to turn reasoning on before that has ended.
func (t Traits) Reasoning(req *model.Request, answer int, adaptive, midTurn bool) Reasoning {
	r := Reasoning{MaxTokens: answer}
	level := req.Thinking
	if level != model.ThinkingOff || t.Off == "" { // the levels listed are efforts
		level = req.Info.Nearest(level)
	}
	switch {
	case level == model.ThinkingDefault:
		// Newer models reason by default but keep it to themselves, and even
		// the text between tool calls with it.
		if adaptive && t.ByDefault {
			r.Type, r.Display = "adaptive", "summarized"
		}
	case level == model.ThinkingOff && t.Off != "":
		r.Type = t.Off
	case adaptive:
		r.Type, r.Display, r.Effort = "adaptive", "summarized", t.effort(level)
	case !midTurn:
		r.budget(level, req.Info.MaxOutput)
	}
	return r
}

// effort maps a level to one that the model has. A model that cannot stop
// reasoning gets the lowest.
func (t Traits) effort(level model.Thinking) string {
	switch level {
	case model.ThinkingMedium:
		return "medium"
	case model.ThinkingHigh:
		return "high"
	case model.ThinkingXHigh:
		if t.XHigh {
			return "xhigh"
		}
		return "high"
	case model.ThinkingMax:
		if t.Max {
			return "max"
		}
		return "high"
	}
	return "low"
}

// budget asks for reasoning within a number of tokens. The answer keeps its room
// beside them unless the model's limit, if it is known, forbids it; then the
// budget gives way.
func (r *Reasoning) budget(level model.Thinking, limit int) {
	n := map[model.Thinking]int{
		model.ThinkingMinimal: minBudget, model.ThinkingLow: 2 << 10, model.ThinkingMedium: 8 << 10,
		model.ThinkingHigh: 16 << 10, model.ThinkingXHigh: 32 << 10, model.ThinkingMax: 64 << 10,
	}[level]
	answer := r.MaxTokens
	if limit <= 0 {
		limit = answer + n
	}
	r.MaxTokens = max(answer, min(answer+n, limit))
	if n = min(n, r.MaxTokens-min(answer, minAnswer)); n >= minBudget {
		r.Type, r.Budget = "enabled", n
	}
}
