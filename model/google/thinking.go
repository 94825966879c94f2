package google

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/flue-go/flue/model"
)

// traits are the ways in which Gemini models differ.
type traits struct {
	thinks bool             // can reason, and say what about
	levels []model.Thinking // the levels it takes; none for a model that takes a budget
	least  int              // the smallest budget other than zero, in tokens
	most   int              // the largest budget
	off    bool             // a budget of zero turns reasoning off
	strict bool             // wants a signature with its calls, and knows their ids
}

var geminiName = regexp.MustCompile(`gemini-(?:(\d+)(?:\.(\d+))?-)?(pro|flash-lite|flash)?`)

// traitsOf recognizes a model by its id. Versions that are newer than those known
// here are taken to be like the newest, and so are names without a version, such
// as gemini-flash-latest.
func traitsOf(id string) traits {
	m := geminiName.FindStringSubmatch(strings.ToLower(id) + "-")
	if m == nil || m[1] == "" && m[3] == "" {
		return traits{}
	}
	version := 1 << 20
	if m[1] != "" {
		major, _ := strconv.Atoi(m[1])
		minor, _ := strconv.Atoi(m[2])
		version = major*100 + minor
	}
	pro, lite := m[3] == "pro", m[3] == "flash-lite"
	switch {
	case version < 205:
		return traits{}
	case version < 300:
		return budgets(pro, lite)
	}
	t := traits{thinks: true, strict: true, levels: []model.Thinking{model.ThinkingLow, model.ThinkingMedium, model.ThinkingHigh}}
	switch {
	case pro && version == 300:
		t.levels = []model.Thinking{model.ThinkingLow, model.ThinkingHigh}
	case !pro && version <= 306:
		t.levels = append([]model.Thinking{model.ThinkingMinimal}, t.levels...)
	}
	return t
}

// budgets are the traits of the models of Gemini 2.5.
func budgets(pro, lite bool) traits {
	switch {
	case pro:
		return traits{thinks: true, least: 128, most: 32 << 10}
	case lite:
		return traits{thinks: true, least: 512, most: 24 << 10, off: true}
	}
	return traits{thinks: true, least: 1, most: 24 << 10, off: true}
}

const (
	// minAnswer is what a budget leaves, in tokens, to an answer that may be longer.
	minAnswer = 1024

	// maxOneRequest is what the API gives in one stream, in tokens. Newer models
	// take a larger limit, and then spread an answer over several requests.
	maxOneRequest = 65536
)

// think sets how long the answer may be and how much the model reasons.
func (t traits) think(req *model.Request) *generationConfig {
	g := generationConfig{MaxOutputTokens: req.MaxOutput}
	if g.MaxOutputTokens <= 0 {
		g.MaxOutputTokens = min(max(req.Info.MaxOutput, 0), maxOneRequest)
	}
	if t.thinks {
		g.ThinkingConfig = &thinkingConfig{IncludeThoughts: true}
		level := req.Info.Nearest(req.Thinking)
		switch {
		case req.Thinking == model.ThinkingOff && t.off:
			g.ThinkingConfig = &thinkingConfig{ThinkingBudget: new(int)}
		case level == model.ThinkingDefault:
		case len(t.levels) > 0:
			level = model.Info{Levels: t.levels}.Nearest(level)
			g.ThinkingConfig.ThinkingLevel = strings.ToUpper(string(level))
		default:
			g.budget(t, level, req.Info.MaxOutput)
		}
	}
	if g == (generationConfig{}) {
		return nil
	}
	return &g
}

// budget asks for reasoning within a number of tokens. They count against the
// answer's limit, which is raised by as many where the model allows it;
// otherwise the budget gives way.
func (g *generationConfig) budget(t traits, level model.Thinking, limit int) {
	n := map[model.Thinking]int{
		model.ThinkingMinimal: 512, model.ThinkingLow: 2 << 10, model.ThinkingMedium: 8 << 10,
		model.ThinkingHigh: 16 << 10, model.ThinkingXHigh: 32 << 10, model.ThinkingMax: 64 << 10,
	}[level]
	n = min(max(n, t.least), t.most)
	if most := g.MaxOutputTokens; most > 0 {
		if limit <= 0 {
			limit = maxOneRequest
		}
		g.MaxOutputTokens = max(most, min(most+n, limit))
		n = max(min(n, g.MaxOutputTokens-min(most, minAnswer)), t.least)
	}
	g.ThinkingConfig.ThinkingBudget = &n
}
