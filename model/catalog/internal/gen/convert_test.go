package main

import (
	"slices"
	"testing"

	"charm.land/catwalk/pkg/catwalk"
)

func TestCachePrices(t *testing.T) {
	tests := []struct {
		name                string
		provider            catwalk.InferenceProvider
		in, out             float64
		inCached, outCached float64
		wantRead, wantWrite float64
	}{
		{"as meant", "anthropic", 3, 15, 3.75, 0.3, 0.3, 3.75},
		{"read alone", "xai", 1.25, 2.5, 0, 0.2, 0.2, 0},
		{"write alone", "openrouter", 0.3, 1.8, 0.375, 0, 0, 0.375},
		{"read in the place of write", "openai", 5, 30, 0.5, 0, 0.5, 0},
		{"swapped", "opencode-zen", 10, 50, 1, 12.5, 1, 12.5},
		{"swapped, both below input", "minimax", 0.6, 2.4, 0.12, 0.375, 0.12, 0},
		{"keeping in the place of reading", "gemini", 1.5, 9, 1, 0, 0, 0},
		{"read twice", "openai", 1.25, 10, 0.125, 0.125, 0.125, 0},
		{"output in the place of read", "gemini", 0.75, 3.75, 0.075, 3.75, 0.075, 0},
		{"input and output repeated", "qiniucloud", 0.29, 1.17, 0.29, 1.17, 0, 0},
		{"write below input", "openrouter", 0.75, 4, 0.04167, 0.075, 0.075, 0},
		{"no discount", "atlascloud", 0.27, 0.41, 0, 0.27, 0, 0},
		{"input unknown", "zai", 0, 0, 0.1, 0.2, 0, 0},
		{"varies", "openrouter", -1, -1, -1, -1, 0, 0},
		{"rounded to a cent", "opencode-go", 0.22, 0.66, 0.01, 0, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			read, write := cachePrices(tt.provider, catwalk.Model{
				CostPer1MIn: tt.in, CostPer1MOut: tt.out, CostPer1MInCached: tt.inCached, CostPer1MOutCached: tt.outCached,
			})
			if read != tt.wantRead || write != tt.wantWrite {
				t.Errorf("read %v, write %v; want %v, %v", read, write, tt.wantRead, tt.wantWrite)
			}
		})
	}
}

func TestTokens(t *testing.T) {
	tests := []struct {
		name                string
		provider            catwalk.InferenceProvider
		window, out         int64
		wantWindow, wantOut int64
	}{
		{"stated", "anthropic", 200_000, 64_000, 200_000, 64_000},
		{"provider that states none", "openrouter", 200_000, 32_000, 200_000, 0},
		{"provider that is new", "someone", 200_000, 32_000, 200_000, 0},
		{"tenth of the window", "vercel", 128_000, 12_800, 128_000, 0},
		{"the whole window", "vercel", 256_000, 256_000, 256_000, 0},
		{"round number", "azure", 128_000, 20_000, 128_000, 0},
		{"half of the limit", "openai", 128_000, 8192, 128_000, 0},
		{"kept by hand", "openai", 400_000, 128_000, 400_000, 128_000},
		{"window guessed", "xai", 200_000, 20_000, 0, 0},
		{"window known", "xai", 500_000, 50_000, 500_000, 0},
		{"nothing known", "opencode-zen", 200_000, 20_000, 0, 0},
		{"implausible", "vercel", 100, 50, 0, 50},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := catwalk.Model{ContextWindow: tt.window, DefaultMaxTokens: tt.out}
			if w, o := window(tt.provider, m), maxOutput(tt.provider, m); w != tt.wantWindow || o != tt.wantOut {
				t.Errorf("window %d, output %d; want %d, %d", w, o, tt.wantWindow, tt.wantOut)
			}
		})
	}
}

func TestLevels(t *testing.T) {
	tests := []struct {
		name   string
		reason bool
		have   []string
		want   []string
	}{
		{"all", true, []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}, []string{"off", "minimal", "low", "medium", "high", "xhigh", "max"}},
		{"some have no name here", true, []string{"low", "high", "ultra"}, []string{"low", "high"}},
		{"repeated", true, []string{"low", "low"}, []string{"low"}},
		{"does not reason", false, []string{"low"}, nil},
		{"none listed", true, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := levels(catwalk.Model{CanReason: tt.reason, ReasoningLevels: tt.have})
			if !slices.Equal(got, tt.want) {
				t.Errorf("levels %q; want %q", got, tt.want)
			}
		})
	}
}

func TestDeferredTools(t *testing.T) {
	tests := []struct {
		provider catwalk.InferenceProvider
		id       string
		want     bool
	}{
		{"anthropic", "claude-opus-4-5-20251101", true},
		{"anthropic", "claude-sonnet-4-6", true},
		{"anthropic", "claude-opus-5", true},
		{"anthropic", "claude-fable-5", true},
		{"anthropic", "claude-mythos-5", true},
		{"anthropic", "claude-sonnet-5-5", true},
		{"anthropic", "claude-opus-4-20250514", false}, // a date is no version
		{"anthropic", "claude-opus-4-1-20250805", false},
		{"anthropic", "claude-haiku-4-5-20251001", false},
		{"anthropic", "claude-haiku-6", false},
		{"anthropic", "claude-3-7-sonnet-20250219", false},
		{"anthropic", "claude-novel-9", false},
		{"anthropic", "claude-opus-5-fast", false},
		{"openrouter", "claude-opus-5", false},
		{"bedrock", "anthropic.claude-opus-4-6-v1", false},
	}
	for _, tt := range tests {
		if got := deferredTools(tt.provider, tt.id); got != tt.want {
			t.Errorf("%s/%s: %v, want %v", tt.provider, tt.id, got, tt.want)
		}
	}
}

func TestConvert(t *testing.T) {
	ids := func(ids ...string) (ms []catwalk.Model) {
		for _, id := range ids {
			ms = append(ms, catwalk.Model{ID: id, Name: id})
		}
		return ms
	}
	got, err := convert([]catwalk.Provider{{ID: "xai", Models: ids("b", "a")}, {ID: "gemini", Models: ids("c")}})
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, e := range got {
		order = append(order, e.Provider+"/"+e.ID+e.Name)
	}
	if want := []string{"google/c", "xai/a", "xai/b"}; !slices.Equal(order, want) {
		t.Errorf("models %q; want %q", order, want)
	}
	if _, err := convert([]catwalk.Provider{{ID: "xai", Models: ids("a", "a")}}); err == nil {
		t.Error("two models of the same id are accepted")
	}
	if _, err := convert([]catwalk.Provider{{ID: "xai", Models: ids("")}}); err == nil {
		t.Error("a model without an id is accepted")
	}
}
