package project_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/flue-go/flue/internal/project"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/wire"
)

// A live reader is told of a batch as it is in memory, a later one of what was
// stored. Both must be told the same, in JSON that a strict reader takes,
// whatever a model, a tool or a sender has said.
func TestLiveIsStored(t *testing.T) {
	for name, r := range map[string]journal.Record{
		"message":                      &journal.Entry{ID: "e", Purpose: journal.Input, Message: journal.Message{Kind: journal.User, Body: "a\xff\xfeb"}},
		"text":                         &journal.TurnDelta{Response: "r", BlockKind: journal.Text, Text: "\xed\xa0\x80"},
		"rest":                         &journal.TurnDone{Response: "r", Blocks: []journal.Block{{Kind: journal.Text, Text: "a\xff\xffbé"}}, Sent: []int{2}},
		"no rest":                      &journal.TurnDone{Response: "r", Blocks: []journal.Block{{Kind: journal.Text, Text: "a\xff"}}, Sent: []int{2}},
		"arguments":                    calls("{\"a\":\"\xff\xfe\"}", "{\"a\":\xff", `{"a":1,"a":2}`, `{"a":"\ud800"}`, " {\"a\" : 1} ", " \n", "null", "[", "\x00"),
		"content":                      &journal.Outcome{Call: "c", Content: "a\xffb"},
		"failure":                      &journal.Outcome{Call: "c", Failed: true, Content: "a\xffb"},
		"output, repeated names":       &journal.Outcome{Call: "c", Output: jsontext.Value("{\"a\": 1,\"a\":2}")},
		"output, half of a character":  &journal.Outcome{Call: "c", Output: jsontext.Value(`"\ud83d"`)},
		"output, broken text":          &journal.Outcome{Call: "c", Output: jsontext.Value("{ \"a\" : \"\xff\xfe\" }")},
		"output, broken and repeated":  &journal.Outcome{Call: "c", Output: jsontext.Value("{ \"a\" : \"\xff\xfe\", \"a\": 1}")},
		"error that repeats its names": &journal.Settled{Submission: "s", Outcome: "failed", Error: jsontext.Value(`{"a":1,"a":2}`)},
	} {
		t.Run(name, func(t *testing.T) {
			b := journal.Batch{At: time.UnixMilli(1), Records: []journal.Record{r}}
			data, err := journal.Encode(b)
			if err != nil {
				t.Fatal(err)
			}
			stored, err := journal.Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			live, later := chunks(t, b), chunks(t, stored)
			if diff := cmp.Diff(live, later); diff != "" {
				t.Errorf("a live reader is told other things (-live +stored):\n%s", diff)
			}
		})
	}
}

func calls(arguments ...string) *journal.TurnDone {
	r := &journal.TurnDone{Response: "r"}
	for i, a := range arguments {
		r.Blocks = append(r.Blocks, journal.Block{Kind: journal.ToolCall, Call: fmt.Sprint("c", i), Name: "look", Arguments: a})
	}
	return r
}

// chunks are the chunks of b as a strict writer writes them.
func chunks(t *testing.T, b journal.Batch) []string {
	t.Helper()
	var out []string
	for _, c := range project.Chunks("conv_1", 0, b) {
		data, err := json.Marshal(c)
		if err != nil {
			t.Errorf("a %s cannot be written: %v", c.Type, err)
		}
		out = append(out, string(data))
	}
	return out
}

// However records are cut into batches, a reader ends with the same
// conversation, and so does one who begins anywhere with a snapshot.
func TestBatchesDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := conversation(t)
		whole := &wire.Conversation{}
		read(t, whole, 0, records)

		cut := &wire.Conversation{}
		offset := 0
		for rest := records; len(rest) > 0; offset++ {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			read(t, cut, offset, rest[:n])
			rest = rest[n:]
			if rapid.IntRange(0, 3).Draw(t, "reconnect") == 0 {
				again := &wire.Conversation{}
				again.Reset(&wire.Snapshot{ConversationID: cut.ID, Messages: cut.Messages, Settlements: cut.Settlements})
				cut = again
			}
		}
		if diff := cmp.Diff(whole, cut, cmpopts.IgnoreUnexported(wire.Conversation{})); diff != "" {
			t.Fatalf("in batches the conversation is another (-whole +batches):\n%s", diff)
		}
	})
}

func read(t *rapid.T, v *wire.Conversation, offset int, records []journal.Record) {
	last := wire.Position{Batch: -1}
	for _, c := range project.Chunks("conv_1", int64(offset), journal.Batch{Records: records}) {
		if c.Position == nil || c.Position.Batch != int64(offset) || c.Position.Compare(last) <= 0 {
			t.Fatalf("position %v after %v in batch %d", c.Position, last, offset)
		}
		last = *c.Position
		if err := v.Apply(&c); err != nil {
			t.Fatal(err)
		}
	}
}

// conversation draws the records of a few responses.
func conversation(t *rapid.T) []journal.Record {
	records := []journal.Record{&journal.Born{UID: "u"}}
	for i := range rapid.IntRange(1, 3).Draw(t, "submissions") {
		sub, resp := fmt.Sprint("s", i), fmt.Sprint("r", i)
		records = append(records,
			&journal.Admitted{Submission: sub}, &journal.Attempt{Submission: sub},
			&journal.Entry{ID: project.EntryID(sub), Submission: sub, Purpose: journal.Input, Message: journal.Message{Kind: journal.User, Body: "hello"}},
		)
		for j := range rapid.IntRange(1, 3).Draw(t, "turns") {
			records = append(records, turn(t, fmt.Sprint("t", i, "_", j), resp, sub)...)
		}
		records = append(records, &journal.Seam{Name: journal.SeamClosed, Submission: sub}, &journal.Settled{Submission: sub, Outcome: journal.Completed, AnsweredBy: sub})
	}
	return records
}

// turn draws the records of a turn, parts of whose text are streamed.
func turn(t *rapid.T, id, resp, sub string) []journal.Record {
	records := []journal.Record{&journal.TurnStarted{Turn: id, Response: resp, Submission: sub}}
	done := &journal.TurnDone{Turn: id, Response: resp, Submission: sub, Stop: journal.StopEnd}
	for i := range rapid.IntRange(0, 3).Draw(t, "blocks") {
		b := journal.Block{Kind: rapid.SampledFrom([]journal.BlockKind{journal.Text, journal.Reasoning, journal.ToolCall}).Draw(t, "kind")}
		sent := 0
		switch b.Kind {
		case journal.ToolCall:
			b.Call, b.Name, b.Arguments = fmt.Sprint(id, "c", i), "look", `{"n":1}`
		default:
			b.Text = "Grüße 世界 🌍"
			// Deltas end where a character does. Only the last block under way may
			// have text that was not sent.
			for sent < len(b.Text) && rapid.Bool().Draw(t, "streamed") {
				size := len(string([]rune(b.Text[sent:])[0]))
				records = append(records, &journal.TurnDelta{Turn: id, Response: resp, Block: i, BlockKind: b.Kind, Text: b.Text[sent : sent+size]})
				sent += size
			}
			b.Text = b.Text[:sent] + strings.Repeat("!", rapid.IntRange(0, 1).Draw(t, "unsent"))
		}
		done.Blocks, done.Sent = append(done.Blocks, b), append(done.Sent, sent)
	}
	records = append(records, done)
	for _, b := range done.Blocks {
		if b.Kind == journal.ToolCall {
			records = append(records, &journal.Outcome{Turn: id, Response: resp, Call: b.Call, Tool: b.Name, Content: "ok"})
		}
	}
	return append(records, &journal.ToolBatch{Turn: id})
}

// Every chunk of every kind of record has members that chunks of its type have
// in what was recorded of the service that clients are made for.
func TestShapesAreThoseRecorded(t *testing.T) {
	ms := int64(1)
	file := journal.Attachment{ID: "a", MediaType: "image/png", Filename: "a.png", Size: 3}
	signal := journal.Message{Kind: journal.Signal, Body: "b", TagName: "ci", Attributes: map[string]string{"k": "v"}}
	records := []journal.Record{
		&journal.Born{},
		&journal.Entry{ID: "e", Submission: "s", Purpose: journal.Input, Message: journal.Message{Kind: journal.User, Body: "b"}},
		&journal.Entry{ID: "e", Submission: "s", Purpose: journal.Input, Turn: "t", Message: journal.Message{Kind: journal.User, Body: "b"}},
		&journal.Entry{ID: "e", Submission: "s", Purpose: journal.Input, Message: journal.Message{Kind: journal.User, Body: "b", Attachments: []journal.Attachment{file}}},
		&journal.Entry{ID: "e", Submission: "s", Purpose: journal.Input, Message: signal},
		&journal.Entry{ID: "e", Submission: "s", Purpose: journal.Advisory, Ending: journal.Aborted, Message: journal.Message{Kind: journal.Signal, Body: "b", Attributes: map[string]string{"k": "v"}}},
		&journal.Entry{ID: "e", Submission: "s", Purpose: journal.Notice, Message: journal.Message{Kind: journal.Signal, Body: "b"}},
		&journal.TurnStarted{Turn: "t", Response: "r", Submission: "s"},
		&journal.TurnDelta{Response: "r", BlockKind: journal.Text, Text: "x"},
		&journal.TurnDelta{Response: "r", BlockKind: journal.Reasoning, Text: "x"},
		calls(`{}`),
		&journal.Outcome{Call: "c", Content: "ok", DurationMS: &ms},
		&journal.Outcome{Call: "c", Failed: true, Content: "no", DurationMS: &ms},
		&journal.Outcome{Call: "c", Failed: true, Content: "interrupted"},
		&journal.Settled{Submission: "s", Outcome: journal.Completed, AnsweredBy: "s"},
		&journal.Settled{Submission: "s", Outcome: journal.Aborted, AnsweredBy: "s", Error: jsontext.Value(`{"type":"x"}`)},
	}
	recorded := make(map[string]bool)
	file1, err := os.ReadFile(filepath.Join("..", "..", "wire", "testdata", "chunks.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(file1)) {
		recorded[shape(t, line)] = true
	}
	for _, r := range records {
		for _, c := range chunks(t, journal.Batch{At: time.UnixMilli(1), Records: []journal.Record{r}}) {
			if !recorded[shape(t, c)] {
				t.Errorf("no recorded chunk has the shape of %s\nshape %s", c, shape(t, c))
			}
		}
	}
}

// shape is what a client branches on: the type of a chunk, the values of a few
// closed sets, and which members are present.
func shape(t *testing.T, chunk string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(chunk), &v); err != nil {
		t.Fatalf("%v\n%s", err, chunk)
	}
	return describe("", v)
}

func describe(name string, v any) string {
	switch v := v.(type) {
	case map[string]any:
		switch name { // what is in them is the sender's business
		case "attributes", "input", "output", "error":
			return "value"
		}
		var members []string
		for k, m := range v {
			members = append(members, k+":"+describe(k, m))
		}
		slices.Sort(members)
		return "{" + strings.Join(members, " ") + "}"
	case []any:
		var items []string
		for _, m := range v {
			items = append(items, describe("", m))
		}
		return "[" + strings.Join(items, " ") + "]"
	case string:
		switch name {
		case "type", "role", "purpose", "display", "state", "kind":
			return v
		case "input", "output":
			return "value"
		}
		return "string"
	case float64:
		return "number"
	}
	return fmt.Sprint(v)
}
