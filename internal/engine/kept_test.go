package engine

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/flue-go/flue/model"
)

func TestKeep(t *testing.T) {
	var lines strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&lines, "line %d\n", i+1)
	}
	text := lines.String()
	tests := []struct {
		name    string
		tool    *Tool
		content string
		kept    bool
	}{
		{"short", &Tool{}, "short", false},
		{"at the limit", &Tool{}, text[:MaxShown], false},
		{"above it", &Tool{}, text[:MaxShown+1], true},
		{"above one of its own", &Tool{Shown: 1024}, text[:1025], true},
		{"a tool that shows all", &Tool{Shown: -1}, text, false},
		{"a tool that is gone", nil, text, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.tool != nil {
				tt.tool.Spec = model.Tool{Name: "t"}
			}
			shown, at := keep(tt.tool, "key", tt.content)
			if (at != nil) != tt.kept {
				t.Fatalf("kept is %v", at != nil)
			}
			if !tt.kept {
				if shown != tt.content {
					t.Error("a result that is not kept is changed")
				}
				return
			}
			if string(at.Data) != tt.content || !strings.HasPrefix(at.ID, keptPrefix) {
				t.Errorf("the attachment %s has %d bytes", at.ID, len(at.Data))
			}
			if !strings.Contains(shown, at.ID) || !strings.Contains(shown, ReadOutput) {
				t.Error("the model is not told how to read on")
			}
		})
	}
	shown, at := keep(nil, "key", text)
	if !strings.HasPrefix(shown, "line 1\nline 2\n") || !strings.HasSuffix(shown, "line 19999\nline 20000\n") {
		t.Error("the head or the tail is not there")
	}
	for _, line := range strings.Split(shown, "\n") {
		if line != "" && !strings.HasPrefix(line, "line ") && !strings.HasPrefix(line, "[") {
			t.Errorf("%q is part of a line", line)
		}
	}
	if _, again := keep(nil, "key", text); again.ID != at.ID {
		t.Error("the same result of the same call has two ids")
	}
	if _, other := keep(nil, "other", text); other.ID == at.ID {
		t.Error("two calls share an id")
	}
}

// Whatever the text, what is shown is valid, not much longer than the limit, and
// begins and ends as the text does.
func TestAbridge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Repeat(rapid.StringN(1, 200, -1).Draw(t, "piece"), rapid.IntRange(1, 400).Draw(t, "times"))
		limit := rapid.IntRange(64, 4096).Draw(t, "limit")
		if len(text) <= limit {
			t.Skip("short")
		}
		shown := abridge(text, limit, "output_x")
		if utf8.ValidString(text) && !utf8.ValidString(shown) {
			t.Fatalf("%q is cut to %q", text, shown)
		}
		if len(shown) > limit+300 {
			t.Fatalf("%d bytes are shown, the limit is %d", len(shown), limit)
		}
		head, rest, _ := strings.Cut(shown, "\n\n[")
		_, tail, _ := strings.Cut(rest, "]\n\n")
		if !strings.HasPrefix(text, head) || !strings.HasSuffix(text, tail) && !strings.Contains(tail, "]\n\n") {
			t.Fatalf("the head %q or the tail %q is not of the text", head, tail)
		}
	})
}
