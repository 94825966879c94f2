package project_test

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/internal/project"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/wire"
)

func TestChunks(t *testing.T) {
	ms := int64(7)
	user := journal.Message{Kind: journal.User, Body: "hi", Attachments: []journal.Attachment{{ID: "att", MediaType: "image/png", Filename: "a.png", Size: 3}}}
	signal := journal.Message{Kind: journal.Signal, Type: "ci", Body: "b", TagName: "ci", Attributes: map[string]string{"k": "v"}}
	const position = `,"position":{"batch":3,"index":0}}`
	for _, tt := range []struct {
		name   string
		record journal.Record
		want   []string // without conversationId; empty for nothing
	}{
		{"born", &journal.Born{}, []string{`{"type":"conversation-reset","snapshot":{"v":1,"conversationId":"conv_1","offset":"0000000000000000_0000000000000003","messages":[],"settlements":[]}` + position}},
		{"admitted", &journal.Admitted{}, nil},
		{"abort", &journal.Abort{}, nil},
		{"attempt", &journal.Attempt{}, nil},
		{"seam", &journal.Seam{Name: journal.SeamStart}, nil},
		{"called", &journal.Called{Turn: "t", Calls: []string{"c"}}, nil},
		{"batch", &journal.ToolBatch{}, nil},
		{"compacted", &journal.Compacted{Summary: "s", First: "e"}, nil},
		{"uncompacted", &journal.Uncompacted{}, nil},
		{"unknown", &journal.Unknown{Name: "x"}, nil},
		{"user message", &journal.Entry{ID: "e", Submission: "s", Purpose: journal.Input, Turn: "t", Message: user}, []string{`{"type":"message-appended","message":{"id":"e","role":"user","purpose":"user","display":"visible","submissionId":"s","turnId":"t","parts":[{"type":"text","text":"hi","state":"done"},{"type":"file","mediaType":"image/png","id":"att","size":3,"filename":"a.png"}]}` + position}},
		{"signal", &journal.Entry{ID: "e", Submission: "s", Purpose: journal.Input, Message: signal}, []string{`{"type":"message-appended","message":{"id":"e","role":"system","purpose":"dispatch","display":"diagnostic","submissionId":"s","signal":{"tagName":"ci","attributes":{"k":"v"}},"parts":[{"type":"text","text":"b","state":"done"}]}` + position}},
		{"notice", &journal.Entry{ID: "e", Submission: "s", Purpose: journal.Notice, Message: journal.Message{Kind: journal.Signal, Body: "b"}}, []string{`{"type":"message-appended","message":{"id":"e","role":"system","purpose":"advisory","display":"hidden","submissionId":"s","parts":[{"type":"text","text":"b","state":"done"}]}` + position}},
		{"advisory", &journal.Entry{ID: "e", Submission: "s", Purpose: journal.Advisory, Ending: "aborted", Message: journal.Message{Kind: journal.Signal, Body: "b", Attributes: map[string]string{"submissionId": "s"}}}, []string{`{"type":"message-appended","message":{"id":"e","role":"system","purpose":"advisory","display":"diagnostic","signal":{"attributes":{"submissionId":"s"}},"settlement":{"outcome":"aborted"},"parts":[{"type":"text","text":"b","state":"done"}]}` + position}},
		{"turn", &journal.TurnStarted{Turn: "t", Response: "r", Submission: "s"}, []string{`{"type":"message-started","messageId":"r","submissionId":"s","turnId":"t","timestamp":"2026-01-02T03:04:05.678Z"` + position}},
		{"text", &journal.TurnDelta{Response: "r", BlockKind: journal.Reasoning, Text: "hm"}, []string{`{"type":"message-delta","messageId":"r","kind":"reasoning","delta":"hm"` + position}},
		{"no text", &journal.TurnDelta{Response: "r", BlockKind: journal.Text}, nil},
		{"end of a turn: only what was not told", &journal.TurnDone{
			Response: "r", Sent: []int{3, 2},
			Blocks: []journal.Block{{Kind: journal.Reasoning, Text: "hm "}, {Kind: journal.Text, Text: "I see"}, {Kind: journal.ToolCall, Call: "c", Name: "look", Arguments: `{"x": 1}`}},
		}, []string{
			`{"type":"message-delta","messageId":"r","kind":"text","delta":"see","position":{"batch":3,"index":0}}`,
			`{"type":"tool-input","messageId":"r","toolCallId":"c","toolName":"look","input":{"x":1},"timestamp":"2026-01-02T03:04:05.678Z","position":{"batch":3,"index":1}}`,
			`{"type":"message-completed","messageId":"r","timestamp":"2026-01-02T03:04:05.678Z","position":{"batch":3,"index":2}}`,
		}},
		{"end of a turn within a character", &journal.TurnDone{Response: "r", Sent: []int{2}, Blocks: []journal.Block{{Kind: journal.Text, Text: "a\u00e9"}}}, []string{
			`{"type":"message-delta","messageId":"r","kind":"text","delta":"é","position":{"batch":3,"index":0}}`,
			`{"type":"message-completed","messageId":"r","timestamp":"2026-01-02T03:04:05.678Z","position":{"batch":3,"index":1}}`,
		}},
		{"arguments that are not JSON", &journal.TurnDone{Response: "r", Blocks: []journal.Block{{Kind: journal.ToolCall, Call: "c", Name: "look", Arguments: `{"x":`}, {Kind: journal.ToolCall, Call: "d", Name: "look"}}}, []string{
			`{"type":"tool-input","messageId":"r","toolCallId":"c","toolName":"look","input":"{\"x\":","timestamp":"2026-01-02T03:04:05.678Z","position":{"batch":3,"index":0}}`,
			`{"type":"tool-input","messageId":"r","toolCallId":"d","toolName":"look","input":{},"timestamp":"2026-01-02T03:04:05.678Z","position":{"batch":3,"index":1}}`,
			`{"type":"message-completed","messageId":"r","timestamp":"2026-01-02T03:04:05.678Z","position":{"batch":3,"index":2}}`,
		}},
		{"result", &journal.Outcome{Call: "c", Content: `{"a":1}`, Output: jsontext.Value(`{"a":1}`), DurationMS: &ms}, []string{`{"type":"tool-output","toolCallId":"c","output":{"a":1},"durationMs":7,"timestamp":"2026-01-02T03:04:05.678Z"` + position}},
		{"result that is only text", &journal.Outcome{Call: "c", Content: "ok"}, []string{`{"type":"tool-output","toolCallId":"c","output":"ok","timestamp":"2026-01-02T03:04:05.678Z"` + position}},
		{"failure", &journal.Outcome{Call: "c", Content: "no", Failed: true, DurationMS: &ms}, []string{`{"type":"tool-output-error","toolCallId":"c","errorText":"no","durationMs":7,"timestamp":"2026-01-02T03:04:05.678Z"` + position}},
		{"settled", &journal.Settled{Submission: "s", Outcome: "failed", Error: jsontext.Value(`{"type":"x"}`), AnsweredBy: "h"}, []string{`{"type":"submission-settled","submissionId":"s","outcome":"failed","error":{"type":"x"},"answeredBySubmissionId":"h","timestamp":"2026-01-02T03:04:05.678Z"` + position}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
			var got []string
			for _, c := range project.Chunks("conv_1", 3, journal.Batch{At: at, Records: []journal.Record{tt.record}}) {
				if c.ConversationID != "conv_1" {
					t.Errorf("chunk %s of conversation %q", c.Type, c.ConversationID)
				}
				c.ConversationID = ""
				data, err := json.Marshal(c)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(data))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("chunks (-want +got):\n%s", diff)
			}
		})
	}
}

// However a response is cut into batches, a reader ends with the same message.
func TestCutsDoNotMatter(t *testing.T) {
	const text = "Größe 世界 🌍 done"
	read := func(cuts ...int) wire.Message {
		var v wire.Conversation
		batches := []journal.Record{&journal.TurnStarted{Turn: "t", Response: "r", Submission: "s"}}
		sent := 0
		for _, cut := range cuts {
			batches = append(batches, &journal.TurnDelta{Turn: "t", Response: "r", BlockKind: journal.Text, Text: text[sent:cut]})
			sent = cut
		}
		batches = append(batches, &journal.TurnDone{Turn: "t", Response: "r", Sent: []int{sent}, Blocks: []journal.Block{{Kind: journal.Text, Text: text}}})
		for i, r := range batches {
			for _, c := range project.Chunks("conv_1", int64(i), journal.Batch{Records: []journal.Record{r}}) {
				if err := v.Apply(&c); err != nil {
					t.Fatal(err)
				}
			}
		}
		return v.Messages[0]
	}
	whole := read()
	if *whole.Parts[0].Text != text {
		t.Fatalf("text %q", *whole.Parts[0].Text)
	}
	var starts []int
	for i := range text {
		starts = append(starts, i)
	}
	for i, first := range starts {
		for _, second := range starts[i:] {
			if diff := cmp.Diff(whole, read(first, second)); diff != "" {
				t.Errorf("cut at %d and %d:\n%s", first, second, diff)
			}
		}
	}
}

func TestIDs(t *testing.T) {
	if got := project.ConversationID("inc_01M8"); got != "conv_01M8" {
		t.Errorf("conversation id %s", got)
	}
	if got := project.EntryID("sub_01M8N3PVF1XV9Y3ES34H4NN5HT"); got != "entry_direct_c3ViXzAxTThOM1BWRjFYVjlZM0VTMzRINE5ONUhU" {
		t.Errorf("entry id %s", got)
	}
}
