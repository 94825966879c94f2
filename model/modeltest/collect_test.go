package modeltest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/modeltest"
)

// recorder is a testing.TB that keeps what is reported to it.
type recorder struct {
	testing.TB
	reports []string
}

func (r *recorder) Helper()           {}
func (r *recorder) Error(args ...any) { r.reports = append(r.reports, fmt.Sprint(args...)) }

func (r *recorder) Errorf(f string, args ...any) {
	r.reports = append(r.reports, fmt.Sprintf(f, args...))
}

func TestCollectReportsViolations(t *testing.T) {
	delta := func(i int, kind model.BlockKind, s string) model.Event {
		return model.Delta{Index: i, Kind: kind, Text: s}
	}
	done := func(i int, b model.Block) model.Event { return model.BlockDone{Index: i, Block: b} }
	text := func(s string) model.Block { return model.Block{Kind: model.Text, Text: s} }
	piece := func(id, name, s string) model.Event {
		return model.Delta{Kind: model.ToolCall, Text: s, CallID: id, Name: name}
	}
	call := func(id, name, arguments string) model.Block {
		return model.Block{Kind: model.ToolCall, CallID: id, Name: name, Arguments: arguments}
	}
	failure := errors.New("failure")
	tests := []struct {
		name   string
		stream []any // events and errors
		report string
	}{
		{"good", []any{delta(0, model.Text, "a"), delta(1, model.Text, "b"), done(0, text("a")), done(1, text("b")), model.Done{}}, ""},
		{"good failure", []any{delta(0, model.Text, "a"), failure}, ""},
		{"no end", []any{delta(0, model.Text, "a"), done(0, text("a"))}, "neither an error nor a Done"},
		{"after the end", []any{model.Done{}, model.Done{}}, "goes on after its end"},
		{"after the error", []any{failure, model.Done{}}, "goes on after its end"},
		{"other text", []any{delta(0, model.Text, "a"), done(0, text("b")), model.Done{}}, "add up to"},
		{"out of order", []any{done(1, text("")), model.Done{}}, "block 1 ends, want block 0"},
		{"late delta", []any{delta(0, model.Text, "a"), done(0, text("a")), delta(0, model.Text, "b"), model.Done{}}, "after its end"},
		{"unfinished block", []any{delta(0, model.Text, "a"), model.Done{}}, "has deltas and no end"},
		{"empty delta", []any{delta(0, model.Text, ""), failure}, "empty delta"},
		{"delta of a result", []any{delta(0, model.ToolResult, "{"), failure}, "delta of a tool_result"},
		{"call without deltas", []any{done(0, call("1", "a", "{}")), model.Done{}}, ""},
		{"call with deltas", []any{piece("", "", "{"), piece("1", "a", "}"), done(0, call("1", "a", "{}")), model.Done{}}, ""},
		{"other arguments", []any{piece("1", "a", "{"), done(0, call("1", "a", "{}")), model.Done{}}, "its arguments are"},
		{"other id", []any{piece("1", "a", "{}"), done(0, call("2", "a", "{}")), model.Done{}}, "its deltas were of"},
		{"other name", []any{piece("1", "a", "{"), piece("1", "b", "}"), failure}, "another of"},
		{"text of a call", []any{model.Delta{Kind: model.Text, Text: "a", CallID: "1"}, failure}, "names the call"},
		{"two kinds", []any{delta(0, model.Text, "a"), delta(0, model.Reasoning, "b"), failure}, "has a delta of reasoning"},
		{"another kind in the end", []any{delta(0, model.Reasoning, "a"), done(0, text("a")), model.Done{}}, "had deltas of reasoning"},
		{"call without an id", []any{done(0, model.Block{Kind: model.ToolCall}), model.Done{}}, "no id"},
		{"result in an answer", []any{done(0, model.Block{Kind: model.ToolResult}), model.Done{}}, "cannot hold"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &recorder{}
			_, _ = modeltest.Collect(r, func(yield func(model.Event, error) bool) {
				for _, e := range tt.stream {
					ok := false
					switch e := e.(type) {
					case error:
						ok = yield(nil, e)
					case model.Event:
						ok = yield(e, nil)
					}
					if !ok {
						return
					}
				}
			})
			got := strings.Join(r.reports, "; ")
			if tt.report == "" && got != "" || !strings.Contains(got, tt.report) {
				t.Errorf("reports = %q, want %q", got, tt.report)
			}
		})
	}
}
