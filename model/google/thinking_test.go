package google_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/modeltest"
)

func TestThinking(t *testing.T) {
	const (
		off, minimal, low, medium, high, xhigh = model.ThinkingOff, model.ThinkingMinimal, model.ThinkingLow, model.ThinkingMedium, model.ThinkingHigh, model.ThinkingXHigh
		unset                                  = model.ThinkingDefault
	)
	for _, tt := range []struct {
		model string
		level model.Thinking
		info  model.Info
		max   int
		want  string
	}{
		// Without a level the model decides, and says what it thinks about.
		{"gemini-3.5-flash", unset, model.Info{}, 0, `{"thinkingConfig":{"includeThoughts":true}}`},
		{"gemini-2.5-flash", unset, model.Info{}, 0, `{"thinkingConfig":{"includeThoughts":true}}`},
		{"gemini-2.0-flash", high, model.Info{}, 0, ``},
		{"gemma-4-27b", high, model.Info{}, 0, ``},
		{"endpoints/1234567890", high, model.Info{}, 0, ``},

		// Levels, clamped to those of the model.
		{"gemini-3.5-flash", minimal, model.Info{}, 0, level("MINIMAL")},
		{"gemini-3.5-flash", off, model.Info{}, 0, level("MINIMAL")},
		{"gemini-3.5-flash", xhigh, model.Info{}, 0, level("HIGH")},
		{"gemini-3-flash-preview", medium, model.Info{}, 0, level("MEDIUM")},
		{"gemini-3.6-flash", off, model.Info{}, 0, level("MINIMAL")},
		{"gemini-3.7-flash", minimal, model.Info{}, 0, level("LOW")},
		{"gemini-3.8-flash", off, model.Info{}, 0, level("LOW")},
		{"gemini-3-pro-preview", medium, model.Info{}, 0, level("LOW")},
		{"gemini-3-pro-preview", high, model.Info{}, 0, level("HIGH")},
		{"gemini-3.1-pro-preview-customtools", medium, model.Info{}, 0, level("MEDIUM")},
		{"gemini-3.1-pro-preview", minimal, model.Info{}, 0, level("LOW")},
		{"gemini-4-argon", minimal, model.Info{}, 0, level("LOW")},
		{"gemini-flash-latest", off, model.Info{}, 0, level("LOW")},
		{"gemini-pro-latest", xhigh, model.Info{}, 0, level("HIGH")},
		{"models/gemini-3.5-flash", low, model.Info{}, 0, level("LOW")},
		{"gemini-3.5-flash", high, model.Info{Levels: []model.Thinking{low}}, 0, level("LOW")},

		// Budgets, within the bounds of the model and on top of the answer.
		{"gemini-2.5-flash", off, model.Info{}, 0, `{"thinkingConfig":{"thinkingBudget":0}}`},
		{"gemini-2.5-flash-lite", off, model.Info{}, 0, `{"thinkingConfig":{"thinkingBudget":0}}`},
		{"gemini-2.5-pro", off, model.Info{}, 0, budget(0, 128)},
		{"gemini-2.5-flash-lite", minimal, model.Info{}, 0, budget(0, 512)},
		{"gemini-2.5-flash", medium, model.Info{}, 0, budget(0, 8192)},
		{"gemini-2.5-flash", xhigh, model.Info{}, 0, budget(0, 24576)},
		{"gemini-2.5-pro", xhigh, model.Info{}, 0, budget(0, 32768)},
		{"gemini-2.5-pro", high, model.Info{}, 1000, budget(1000+16384, 16384)},
		{"gemini-2.5-pro", high, model.Info{MaxOutput: 8000}, 2000, budget(8000, 8000-1024)},
		{"gemini-2.5-pro", high, model.Info{MaxOutput: 8000}, 0, budget(8000, 8000-1024)},
		{"gemini-2.5-pro", high, model.Info{MaxOutput: 1100}, 1100, budget(1100, 128)},

		// The limit alone.
		{"gemini-2.0-flash", unset, model.Info{MaxOutput: 8192}, 0, `{"maxOutputTokens":8192}`},
		{"gemini-4-argon", unset, model.Info{MaxOutput: 1 << 20}, 0, `{"maxOutputTokens":65536,"thinkingConfig":{"includeThoughts":true}}`},
		{"gemini-4-argon", unset, model.Info{MaxOutput: 1 << 20}, 100000, `{"maxOutputTokens":100000,"thinkingConfig":{"includeThoughts":true}}`},
	} {
		t.Run(fmt.Sprintf("%s %s %d %d", tt.model, tt.level, tt.info.MaxOutput, tt.max), func(t *testing.T) {
			req := modeltest.Hello()
			req.Model, req.Thinking, req.Info, req.MaxOutput = tt.model, tt.level, tt.info, tt.max
			var body struct{ GenerationConfig json.RawMessage }
			if err := json.Unmarshal(sent(t, req), &body); err != nil {
				t.Fatal(err)
			}
			if got := string(body.GenerationConfig); got != tt.want {
				t.Errorf("sent %s\nwant %s", got, tt.want)
			}
		})
	}
}

func level(l string) string {
	return `{"thinkingConfig":{"includeThoughts":true,"thinkingLevel":"` + l + `"}}`
}

func budget(limit, n int) string {
	s := ""
	if limit > 0 {
		s = fmt.Sprintf(`"maxOutputTokens":%d,`, limit)
	}
	return fmt.Sprintf(`{%s"thinkingConfig":{"includeThoughts":true,"thinkingBudget":%d}}`, s, n)
}
