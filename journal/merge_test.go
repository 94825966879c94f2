package journal_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/journal"
)

func piece(turn string, block int, kind journal.BlockKind, text string) journal.Record {
	return &journal.TurnDelta{Turn: turn, Response: "r", Block: block, BlockKind: kind, Text: text}
}

func TestStreamed(t *testing.T) {
	for _, tt := range []struct {
		name    string
		records []journal.Record
		want    string
	}{
		{"nothing", nil, ""},
		{"a piece", []journal.Record{piece("t1", 0, journal.Text, "a")}, "t1"},
		{"pieces", []journal.Record{piece("t1", 0, journal.Reasoning, "a"), piece("t1", 1, journal.Text, "b")}, "t1"},
		{"two turns", []journal.Record{piece("t1", 0, journal.Text, "a"), piece("t2", 0, journal.Text, "b")}, ""},
		{"something else", []journal.Record{piece("t1", 0, journal.Text, "a"), &journal.Abort{}}, ""},
		{"something else first", []journal.Record{&journal.State{Name: "n"}, piece("t1", 0, journal.Text, "a")}, ""},
		{"an unknown record", []journal.Record{&journal.Unknown{Name: "turn_delta", Version: 2}}, ""},
	} {
		turn, ok := journal.Batch{Records: tt.records}.Streamed()
		if turn != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: %q, %v; want %q", tt.name, turn, ok, tt.want)
		}
	}
}

func TestMerge(t *testing.T) {
	at := time.UnixMilli(1)
	batches := []journal.Batch{
		{At: at, Records: []journal.Record{piece("t", 0, journal.Reasoning, "Let ")}},
		{At: at.Add(1), Records: []journal.Record{piece("t", 0, journal.Reasoning, "me "), piece("t", 0, journal.Reasoning, "see.")}},
		{At: at.Add(2), Records: []journal.Record{piece("t", 0, journal.Reasoning, " So"), piece("t", 2, journal.Text, "Yes")}},
		{At: at.Add(3), Records: []journal.Record{piece("t", 2, journal.Text, ".")}},
	}
	want := journal.Batch{At: at, Records: []journal.Record{
		piece("t", 0, journal.Reasoning, "Let me see. So"), piece("t", 2, journal.Text, "Yes."),
	}}
	if diff := cmp.Diff(want, journal.Merge(batches)); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}
	if d := batches[0].Records[0].(*journal.TurnDelta); d.Text != "Let " {
		t.Errorf("a record was changed: %+v", d)
	}
	if diff := cmp.Diff(want, journal.Merge([]journal.Batch{want})); diff != "" {
		t.Errorf("merged again (-want +got):\n%s", diff)
	}
}
