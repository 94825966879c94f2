package project_test

import (
	"testing"
	"time"

	"github.com/flue-go/flue/internal/project"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/wire"
)

// A repair ends the messages and calls that clients wait for.
func TestRepair(t *testing.T) {
	var v wire.Conversation
	for i, records := range [][]journal.Record{
		{&journal.TurnStarted{Turn: "t1", Response: "r1", Submission: "s1"}},
		{&journal.TurnDone{Turn: "t1", Response: "r1", Submission: "s1", Stop: journal.StopToolUse, Blocks: []journal.Block{
			{Kind: journal.ToolCall, Call: "c1", Name: "pay", Arguments: "{}"},
			{Kind: journal.ToolCall, Call: "c2", Name: "pay", Arguments: "{}"},
		}}},
		{&journal.Outcome{Turn: "t1", Response: "r1", Call: "c2", Tool: "pay", Content: "paid"}},
		{&journal.TurnStarted{Turn: "t2", Response: "r2", Submission: "s2"}},
		{&journal.TurnDelta{Turn: "t2", Response: "r2", BlockKind: journal.Text, Text: "I was"}},
		{&journal.Repair{From: 3, To: 4, Messages: []string{"r2"}, Calls: []string{"c1", "never seen"}}},
	} {
		for _, c := range project.Chunks("conv", int64(i), journal.Batch{At: time.UnixMilli(0), Records: records}) {
			if err := v.Apply(&c); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(v.Messages) != 2 {
		t.Fatalf("%d messages, want 2", len(v.Messages))
	}
	calls := v.Messages[0].Parts
	if calls[0].State != wire.StateOutputError || calls[0].ErrorText == nil || calls[1].State != wire.StateOutputAvailable {
		t.Errorf("the calls are %+v", calls)
	}
	if text := v.Messages[1].Parts[0]; text.State != wire.StateDone || *text.Text != "I was" {
		t.Errorf("the text is %+v", text)
	}
}
