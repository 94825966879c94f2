package near_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/flue-go/flue/internal/near"
)

func TestNames(t *testing.T) {
	providers := []string{"anthropic", "groq", "google", "openai", "xai", "z-ai/glm-4.6"}
	for _, tt := range []struct {
		name string
		in   []string
		want []string
	}{
		{"antropic", providers, []string{"anthropic"}},
		{"anthorpic", providers, []string{"anthropic"}},
		{"Open_AI", providers, []string{"openai"}},
		{"grok", providers, []string{"groq"}},
		{"glm-4-6", providers, []string{"z-ai/glm-4.6"}},
		{"nobody", providers, nil},
		{"anthropic", providers, nil}, // it is there
		{"", providers, nil},
		{"claude-sonnet-4.6", []string{"claude-sonnet-4-6", "claude-sonnet-4-5", "claude-opus-4-6"}, []string{"claude-sonnet-4-6", "claude-sonnet-4-5"}},
		{"abcdef", []string{"abcdeg", "abcdeh", "abcdei", "abcdej"}, []string{"abcdeg", "abcdeh", "abcdei"}},
		{strings.Repeat("x", 1<<20), []string{strings.Repeat("x", 1<<20) + "y"}, nil},
	} {
		if got := near.Names(tt.name, tt.in); !slices.Equal(got, tt.want) {
			t.Errorf("%.40q: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestHint(t *testing.T) {
	names := []string{"gpt-5.1", "gpt-5.2", "o3"}
	for name, want := range map[string]string{
		"gpt-5.3": `; did you mean "gpt-5.1" or "gpt-5.2"?`,
		"claude":  "",
	} {
		if got := near.Hint(name, names); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add("grok", "groq")
	f.Add("\xff/", "é")
	f.Fuzz(func(t *testing.T, a, b string) {
		there, back := near.Names(a, []string{b}), near.Names(b, []string{a})
		if len(a) == len(b) && len(a) > 0 && !strings.ContainsAny(a+b, "/-_.: ") && a == strings.ToLower(a) && b == strings.ToLower(b) && len(there) != len(back) {
			t.Errorf("%q is like %q: %v, the other way: %v", a, b, there, back)
		}
	})
}
