package main

import (
	"slices"
	"testing"

	"charm.land/catwalk/pkg/catwalk"
)

func TestCorrect(t *testing.T) {
	all := []string{"minimal", "low", "medium", "high"}
	tests := []struct {
		name     string
		provider catwalk.InferenceProvider
		model    catwalk.Model
		want     entry
	}{
		{
			"a window that has grown", "anthropic",
			catwalk.Model{ID: "claude-opus-4-6", ContextWindow: 200_000},
			entry{Provider: "anthropic", ID: "claude-opus-4-6", Window: 1_000_000},
		},
		{
			"a price that has changed elsewhere", "bedrock",
			catwalk.Model{ID: "us.anthropic.claude-sonnet-5", CostPer1MIn: 3, CostPer1MOut: 15},
			entry{Provider: "amazon-bedrock", ID: "us.anthropic.claude-sonnet-5"},
		},
		{
			"a level that is refused", "openai",
			catwalk.Model{ID: "gpt-5.1", CanReason: true, ReasoningLevels: all},
			entry{Provider: "openai", ID: "gpt-5.1", Reasoning: true, Levels: []string{"off", "low", "medium", "high"}},
		},
		{
			"levels of another model", "openai",
			catwalk.Model{ID: "gpt-7", CanReason: true, ReasoningLevels: all},
			entry{Provider: "openai", ID: "gpt-7", Reasoning: true, Levels: all},
		},
		{
			"levels at another provider", "groq",
			catwalk.Model{ID: "gpt-5.1", CanReason: true, ReasoningLevels: all},
			entry{Provider: "groq", ID: "gpt-5.1", Reasoning: true, Levels: all},
		},
		{
			"no reasoning at all", "groq",
			catwalk.Model{ID: "moonshotai/kimi-k2-instruct-0905", CanReason: true, ReasoningLevels: all},
			entry{Provider: "groq", ID: "moonshotai/kimi-k2-instruct-0905"},
		},
		{
			"a long prompt costs more", "openrouter",
			catwalk.Model{ID: "openai/gpt-5.4", ContextWindow: 1_050_000, CostPer1MIn: 2.5, CostPer1MOut: 15},
			entry{Provider: "openrouter", ID: "openai/gpt-5.4", Window: 1_050_000, Input: 2.5, Output: 15, UpTo: 272_000},
		},
		{
			"no prompt is that long", "openai",
			catwalk.Model{ID: "gpt-5.4-mini", ContextWindow: 200_000, CostPer1MIn: 1, CostPer1MOut: 2},
			entry{Provider: "openai", ID: "gpt-5.4-mini", Window: 200_000, Input: 1, Output: 2},
		},
		{
			"no price, no bound", "copilot",
			catwalk.Model{ID: "gpt-5.4", ContextWindow: 1_050_000},
			entry{Provider: "copilot", ID: "gpt-5.4", Window: 1_050_000},
		},
		{
			"prices of two sellers", "openrouter",
			catwalk.Model{ID: "m", CostPer1MIn: 0.1, CostPer1MOut: 20, CostPer1MOutCached: 0.05},
			entry{Provider: "openrouter", ID: "m"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := convertModel(tt.provider, tt.model)
			got.Name = ""
			if levels := got.Levels; !slices.Equal(levels, tt.want.Levels) {
				t.Errorf("levels %q, want %q", levels, tt.want.Levels)
			}
			got.Levels, tt.want.Levels = nil, nil
			if !equal(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestElsewhere(t *testing.T) {
	got, err := convert([]catwalk.Provider{{ID: catwalk.InferenceProviderVertexAI, Models: []catwalk.Model{{ID: "claude-x"}, {ID: "gemini-x"}}}})
	if err != nil || len(got) != 1 || got[0].ID != "gemini-x" {
		t.Errorf("%+v, %v", got, err)
	}
}

func equal(a, b entry) bool {
	return a.Provider == b.Provider && a.ID == b.ID && a.Window == b.Window && a.MaxOutput == b.MaxOutput && a.Reasoning == b.Reasoning &&
		a.Input == b.Input && a.Output == b.Output && a.CacheRead == b.CacheRead && a.CacheWrite == b.CacheWrite && a.UpTo == b.UpTo
}
