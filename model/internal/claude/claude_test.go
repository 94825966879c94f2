package claude_test

import (
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/claude"
)

func TestTraitsOf(t *testing.T) {
	adaptive := claude.Traits{Known: true, Adaptive: true, Max: true, Off: "disabled"}
	newer := claude.Traits{Known: true, Adaptive: true, ByDefault: true, XHigh: true, Max: true, Bound: true}
	for id, want := range map[string]claude.Traits{
		"claude-sonnet-4-6":                               adaptive,
		"anthropic.claude-opus-4-6-v1":                    adaptive,
		"us.anthropic.claude-opus-4-20250514-v1:0":        {Known: true, Off: "disabled"},
		"global.anthropic.claude-haiku-4-5-20251001-v1:0": {Known: true, Off: "disabled"},
		"anthropic/claude-opus-4.8":                       {Known: true, Adaptive: true, XHigh: true, Max: true, Off: "disabled"},
		"claude-opus-5-5":                                 newer,
		"eu.anthropic.claude-fable-5-v1:0":                {Known: true, Adaptive: true, ByDefault: true, XHigh: true, Max: true},
		"claude-3-7-sonnet-20250219":                      {Off: "disabled"},
		"amazon.nova-2-lite-v1:0":                         {Off: "disabled"},
	} {
		if got := claude.TraitsOf(id); got != want {
			t.Errorf("%s: %+v, want %+v", id, got, want)
		}
	}
}

func TestReasoning(t *testing.T) {
	adaptive, older := claude.TraitsOf("claude-opus-4-7"), claude.TraitsOf("claude-haiku-4-5")
	always := claude.TraitsOf("claude-fable-5")
	for _, tt := range []struct {
		name    string
		traits  claude.Traits
		level   model.Thinking
		most    int
		midTurn bool
		want    claude.Reasoning
	}{
		{"default", adaptive, "", 0, false, claude.Reasoning{MaxTokens: 4000}},
		{"default of one that always reasons", always, "", 0, false, claude.Reasoning{Type: "adaptive", Display: "summarized", MaxTokens: 4000}},
		{"effort", adaptive, model.ThinkingXHigh, 0, true, claude.Reasoning{Type: "adaptive", Display: "summarized", Effort: "xhigh", MaxTokens: 4000}},
		{"off", adaptive, model.ThinkingOff, 0, false, claude.Reasoning{Type: "disabled", MaxTokens: 4000}},
		{"off where nothing does that", always, model.ThinkingOff, 0, false, claude.Reasoning{Type: "adaptive", Display: "summarized", Effort: "low", MaxTokens: 4000}},
		{"budget", older, model.ThinkingMedium, 0, false, claude.Reasoning{Type: "enabled", Budget: 8192, MaxTokens: 4000 + 8192}},
		{"budget within the model's limit", older, model.ThinkingHigh, 6000, false, claude.Reasoning{Type: "enabled", Budget: 6000 - 1024, MaxTokens: 6000}},
		{"an answer longer than the model allows", older, model.ThinkingLow, 2000, false, claude.Reasoning{Type: "enabled", Budget: 2048, MaxTokens: 4000}},
		{"budget in the middle of a turn", older, model.ThinkingMedium, 0, true, claude.Reasoning{MaxTokens: 4000}},
	} {
		req := &model.Request{Thinking: tt.level, Info: model.Info{MaxOutput: tt.most}}
		if got := tt.traits.Reasoning(req, 4000, tt.traits.Adaptive, tt.midTurn); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
