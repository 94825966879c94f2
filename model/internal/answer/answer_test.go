package answer_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/answer"
	"github.com/google/go-cmp/cmp"
)

// record returns a Builder, and a function that returns what it emitted.
func record(limit int) (*answer.Builder, func() ([]model.Event, error)) {
	var events []model.Event
	var failure error
	b := answer.New(func(e model.Event, err error) bool {
		if err != nil {
			failure = err
			return true
		}
		events = append(events, e)
		return limit <= 0 || len(events) < limit
	})
	return b, func() ([]model.Event, error) { return events, failure }
}

func TestBuilderOrdersInterleavedBlocks(t *testing.T) {
	b, emitted := record(0)
	text := b.Open(model.Text)
	first := b.Open(model.ToolCall)
	second := b.Open(model.ToolCall)
	second.CallID, first.CallID = "b", "a"
	b.Append(second, `{"n":`)
	b.Append(text, "he")
	b.Append(first, `{}`)
	b.Append(second, `2}`)
	b.Close(second)
	b.Append(text, "llo")
	b.Close(text)
	b.Append(text, "late") // after its end: dropped
	b.Close(text)
	b.Done(model.Done{Stop: model.StopToolUse})

	want := []model.Event{
		model.Delta{Index: 2, Kind: model.ToolCall, Text: `{"n":`, CallID: "b"},
		model.Delta{Index: 0, Kind: model.Text, Text: "he"},
		model.Delta{Index: 1, Kind: model.ToolCall, Text: "{}", CallID: "a"},
		model.Delta{Index: 2, Kind: model.ToolCall, Text: "2}", CallID: "b"},
		model.Delta{Index: 0, Kind: model.Text, Text: "llo"},
		model.BlockDone{Index: 0, Block: model.Block{Kind: model.Text, Text: "hello"}},
		model.BlockDone{Index: 1, Block: model.Block{Kind: model.ToolCall, CallID: "a", Arguments: "{}"}},
		model.BlockDone{Index: 2, Block: model.Block{Kind: model.ToolCall, CallID: "b", Arguments: `{"n":2}`}},
		model.Done{Stop: model.StopToolUse},
	}
	got, err := emitted()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestBuilderStopsWithItsConsumer(t *testing.T) {
	b, emitted := record(1)
	blk := b.Open(model.Text)
	b.Append(blk, "a")
	b.Append(blk, "b")
	if !b.Stopped() {
		t.Error("Stopped() = false after the consumer left")
	}
	b.Done(model.Done{})
	b.Fail(errors.New("late"))
	if got, err := emitted(); len(got) != 1 || err != nil {
		t.Errorf("emitted %v, %v after the consumer left", got, err)
	}
}

func TestIDs(t *testing.T) {
	history := []model.Message{{Role: model.RoleAssistant, Blocks: []model.Block{
		{Kind: model.ToolCall, CallID: "call_0"}, {Kind: model.ToolResult, CallID: "call_7"},
	}}}
	ids := answer.NewIDs(history)
	seen := map[string]bool{"call_0": true}
	for _, in := range []string{"call_1", "call_0", "call_1", "", ""} {
		got := ids.Take(in)
		if got == "" || seen[got] {
			t.Errorf("Take(%q) = %q: empty or already used", in, got)
		}
		seen[got] = true
	}
	if !seen["call_1"] {
		t.Error("a usable id was replaced")
	}
	if got := answer.NewIDs(nil).Take(""); !strings.HasPrefix(got, "call_") || len(got) > 40 {
		t.Errorf("synthesized id %q: want a call_ prefix and at most 40 bytes", got)
	}
}
