package openai

import (
	"regexp"
	"strconv"

	"github.com/flue-go/flue/model"
)

var (
	gptName = regexp.MustCompile(`^(?:ft:)?(?:chat)?gpt-(\d+)(?:\.(\d+))?(?:\D|$)`)
	oName   = regexp.MustCompile(`^(?:ft:)?o\d(?:\D|$)`)
	variant = regexp.MustCompile(`-(chat|codex-max|codex|pro)(?:-|$)`)
)

// gptVersion returns the version of a GPT model, 504 for GPT-5.4.
func gptVersion(id string) (version int, ok bool) {
	m := gptName.FindStringSubmatch(id)
	if m == nil {
		return 0, false
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return major*100 + minor, true
}

// levelsOf returns the levels of effort of one of OpenAI's own models, none for
// a model that does not reason. It does not know every id. Versions that are
// newer than those known here are taken to be like the newest.
func levelsOf(id string) (levels []model.Thinking, known bool) {
	const (
		off, minimal, low, medium, high, xhigh = model.ThinkingOff, model.ThinkingMinimal, model.ThinkingLow, model.ThinkingMedium, model.ThinkingHigh, model.ThinkingXHigh
	)
	version, gpt := gptVersion(id)
	kind := ""
	if m := variant.FindStringSubmatch(id); m != nil {
		kind = m[1]
	}
	switch {
	case oName.MatchString(id):
		return []model.Thinking{low, medium, high}, true
	case !gpt:
		return nil, false
	case version < 500, kind == "chat":
		return nil, true
	case version == 500 && kind == "pro":
		return []model.Thinking{high}, true
	case kind == "pro":
		return []model.Thinking{medium, high, xhigh}, true
	case kind == "codex" && version < 502:
		return []model.Thinking{low, medium, high}, true
	case kind == "codex", kind == "codex-max":
		return []model.Thinking{low, medium, high, xhigh}, true
	case version == 500:
		return []model.Thinking{minimal, low, medium, high}, true
	case version == 501:
		return []model.Thinking{off, low, medium, high}, true
	}
	return []model.Thinking{off, low, medium, high, xhigh}, true
}

// newer reports whether a model came after those whose levels are known here, so
// that the catalog knows better.
func newer(id string) bool {
	version, gpt := gptVersion(id)
	return gpt && version > 505
}

// reasons reports whether the model of req is known to reason.
func (s *service) reasons(req *model.Request) bool {
	if s.official || s.azure {
		if levels, known := levelsOf(req.Model); known {
			return len(levels) > 0
		}
	}
	return req.Info.Reasoning
}

// effort returns the reasoning effort to ask for; empty leaves it to the server.
func (s *service) effort(req *model.Request) string {
	info := req.Info
	if s.official || s.azure {
		if levels, known := levelsOf(req.Model); known && !(newer(req.Model) && len(info.Levels) > 0) {
			if len(levels) == 0 {
				return ""
			}
			info.Levels = levels
		}
	}
	if len(info.Levels) == 0 {
		info.Levels = s.quirks.levels
	}
	level := info.Nearest(req.Thinking)
	listed := len(info.Levels) > 0
	switch {
	case level == model.ThinkingDefault:
		return ""
	case level == model.ThinkingOff && listed:
		return "none"
	case level == model.ThinkingOff && !info.Reasoning:
		return "" // as far as is known, it does not reason anyway
	case !listed && (level == model.ThinkingOff || level == model.ThinkingMinimal):
		return "low" // the lowest that each model has
	case !listed && (level == model.ThinkingXHigh || level == model.ThinkingMax):
		return "high" // and the highest
	}
	return string(level)
}

// chatEffort is effort for Chat Completions, in which OpenAI's models from
// GPT-5.2 on refuse to reason when tools are offered.
func (s *service) chatEffort(req *model.Request) string {
	version, _ := gptVersion(req.Model)
	if (s.official || s.azure) && len(req.Tools) > 0 && version >= 502 && s.reasons(req) {
		return "none"
	}
	return s.effort(req)
}
