package journal_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

var update = flag.Bool("update", false, "write the golden journal")

// life is a journal with a record of every kind.
func life() []journal.Batch {
	ms := int64(12)
	at := func(i int) time.Time { return time.UnixMilli(1_764_461_667_000 + int64(i)).UTC() }
	batches := [][]journal.Record{
		{&journal.Born{Agent: "a", ID: "c1", UID: "inst_1", Incarnation: "inc_1", InitialData: jsontext.Value(`{"issue":7}`)}},
		{&journal.Admitted{Submission: "sub_1", Origin: "direct", Traceparent: "00-1", Message: journal.Message{
			Kind: journal.User, Body: "look <&>", Attachments: []journal.Attachment{{ID: "att_1", MediaType: "image/png", Filename: "a.png", Size: 3}},
		}}},
		{
			&journal.Attempt{Submission: "sub_1", Ordinal: 1, Node: "n", Reason: "first", Deadline: 1_764_465_267_000, MaxAttempts: 10},
			&journal.Entry{ID: "e1", Submission: "sub_1", Purpose: journal.Input, Message: journal.Message{Kind: journal.User, Body: "look <&>"}},
			&journal.Seam{Name: journal.SeamStart, Submission: "sub_1"},
			&journal.TurnStarted{Turn: "t1", Response: "r1", Submission: "sub_1", Provider: "p", Model: "m"},
		},
		{&journal.TurnDelta{Turn: "t1", Response: "r1", Block: 0, BlockKind: journal.Text, Text: "Let "}},
		{&journal.TurnDone{
			Turn: "t1", Response: "r1", Submission: "sub_1", Stop: journal.StopToolUse, Sent: []int{4, 0}, Provider: "p", Model: "m", Answered: "m-1",
			Usage: journal.Usage{Input: 1, Output: 2, CacheRead: 3, CacheWrite: 4, Reasoning: 1},
			Blocks: []journal.Block{
				{Kind: journal.Text, Text: "Let me see.", Opaque: jsontext.Value(`{"n":1.50,"b":1,"a":"\u00e9","b":2}`)},
				{Kind: journal.ToolCall, Call: "c1", Name: "look", Arguments: `{"x": 1}`},
			},
		}},
		{&journal.State{Name: "s", Value: jsontext.Value(`[1,2]`)}},
		{
			&journal.Outcome{Turn: "t1", Response: "r1", Call: "c1", Tool: "look", Content: "ok", Output: jsontext.Value(`"ok"`), EndTurn: true, DurationMS: &ms, Writes: []journal.VarWrite{{Seq: 1, Name: "n", Value: jsontext.Value(`true`)}}},
			&journal.ToolBatch{Turn: "t1"},
		},
		{&journal.Release{Submission: "sub_1", Node: "n"}},
		{&journal.Attempt{Submission: "sub_1", Ordinal: 1, Node: "n", Reason: "recovered"}, &journal.Seam{Name: journal.SeamClosed, Submission: "sub_1"}, &journal.Settled{Submission: "sub_1", Outcome: journal.Completed, AnsweredBy: "sub_1"}},
		{&journal.Admitted{Submission: "sub_2", Origin: "dispatch", Message: journal.Message{Kind: journal.Signal, Type: "ci", Body: "b", Attributes: map[string]string{"z": "1", "a": "2"}, TagName: "ci"}}},
		{&journal.Abort{}},
		{
			&journal.Entry{ID: "e2", Submission: "sub_2", Purpose: journal.Advisory, Ending: journal.Aborted, Message: journal.Message{Kind: journal.Signal, Type: journal.SignalAborted, Body: "Submission was aborted."}},
			&journal.Settled{Submission: "sub_2", Outcome: journal.Aborted, Error: jsontext.Value(`{"type":"submission_aborted"}`), AnsweredBy: "sub_2"},
		},
		{&journal.Unknown{Name: "from_the_future", Version: 2, Optional: true, Data: jsontext.Value(`{"x":[1]}`)}},
	}
	out := make([]journal.Batch, len(batches))
	for i, rs := range batches {
		out[i] = journal.Batch{At: at(i), Records: rs}
	}
	return out
}

func TestRoundTrip(t *testing.T) {
	kinds := make(map[journal.Kind]bool)
	for i, b := range life() {
		data, err := journal.Encode(b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := journal.Decode(data)
		if err != nil {
			t.Fatalf("batch %d: %v\n%s", i, err, data)
		}
		if diff := cmp.Diff(b, got); diff != "" {
			t.Errorf("batch %d (-written +read):\n%s", i, diff)
		}
		for _, r := range b.Records {
			kinds[r.Kind()] = true
		}
	}
	if len(kinds) != 15 { // the fourteen, and an unknown one
		t.Errorf("%d kinds are tried: %v", len(kinds), kinds)
	}
}

// A journal that the first release wrote must be read for ever, to the same
// state.
func TestJournalOfTheFirstRelease(t *testing.T) {
	path := filepath.Join("testdata", "v1.jsonl")
	var lines [][]byte
	for _, b := range life() {
		data, err := journal.Encode(b)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, data)
	}
	written := append(bytes.Join(lines, []byte("\n")), '\n')
	if *update {
		if err := os.WriteFile(path, written, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(golden, written) {
		t.Errorf("what is written has changed:\n%s", cmp.Diff(string(golden), string(written)))
	}
	st := &fold.State{Head: -1}
	for i, line := range bytes.Split(bytes.TrimSpace(golden), []byte("\n")) {
		b, err := journal.Decode(line)
		if err != nil {
			t.Fatalf("batch %d: %v", i, err)
		}
		for _, r := range b.Records {
			if err := st.Apply(r); err != nil {
				t.Fatalf("batch %d: %v", i, err)
			}
		}
	}
	if st.Phase != fold.Idle || st.Unsettled() || string(st.Vars["n"]) != "true" || string(st.Vars["s"]) != "[1,2]" || len(st.Context) != 4 {
		t.Errorf("the state is %+v", st)
	}
}

// Nothing that a model, a provider or a tool says may make a batch unwritable.
func TestHostileContent(t *testing.T) {
	b := journal.Batch{Records: []journal.Record{
		&journal.Outcome{Call: "c\xff", Tool: "t", Content: "a\xff\xfeb\xed\xa0\x80", Output: jsontext.Value("\"\xff\"")},
		&journal.TurnDone{Blocks: []journal.Block{
			{Kind: journal.Text, Text: "ok\xf0\x9f", Opaque: jsontext.Value(`{"a":1,"a":2,"s":"\ud83d","n":12345678901234567890.10}`)},
			{Kind: journal.ToolCall, Arguments: "{\"s\":\"\\ud83d\"}{\x00"},
		}, Sent: []int{4}},
		&journal.State{Name: "x", Value: jsontext.Value(`{"k":1,"k":2}`)},
	}}
	data, err := journal.Encode(b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := journal.Decode(data)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	done := got.Records[1].(*journal.TurnDone)
	if string(done.Blocks[0].Opaque) != `{"a":1,"a":2,"s":"\ud83d","n":12345678901234567890.10}` {
		t.Errorf("what the provider wants back unchanged came back as %s", done.Blocks[0].Opaque)
	}
	if c := got.Records[0].(*journal.Outcome).Content; !strings.HasPrefix(c, "a") || strings.ContainsRune(c, 0) {
		t.Errorf("content %q", c)
	}
	again, err := journal.Encode(got)
	if err != nil || !bytes.Equal(again, data) {
		t.Errorf("written again: %v\n%s\n%s", err, data, again)
	}
}

func TestVersions(t *testing.T) {
	for name, tt := range map[string]struct {
		in   string
		want journal.Record // nil for a FormatError
	}{
		"a member that is not known": {`{"v":1,"at":0,"later":1,"r":[{"k":"batch","x":2,"d":{"turn":"t","more":[1]}}]}`, &journal.ToolBatch{Turn: "t"}},
		"a kind that is not known":   {`{"v":1,"at":0,"r":[{"k":"later","d":{"a":1}}]}`, &journal.Unknown{Name: "later", Version: 1, Data: jsontext.Value(`{"a":1}`)}},
		"a newer version of a kind":  {`{"v":1,"at":0,"r":[{"k":"batch","v":2,"opt":true,"d":{}}]}`, &journal.Unknown{Name: "batch", Version: 2, Optional: true, Data: jsontext.Value(`{}`)}},
		"another envelope":           {`{"v":2,"at":0,"r":[]}`, nil},
		"not JSON":                   {`{"v":1`, nil},
		"nothing":                    {``, nil},
		"a record of the wrong form": {`{"v":1,"at":0,"r":[{"k":"batch","d":{"turn":5}}]}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := journal.Decode([]byte(tt.in))
			if tt.want == nil {
				var format *journal.FormatError
				if !errors.As(err, &format) {
					t.Errorf("error %v, want a FormatError", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]journal.Record{tt.want}, b.Records); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, b := range life() {
		data, err := journal.Encode(b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := journal.Decode(data)
		if err != nil {
			return
		}
		out, err := journal.Encode(b)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := journal.Decode(out)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, out)
		}
		twice, err := journal.Encode(again)
		if err != nil || !bytes.Equal(out, twice) {
			t.Fatalf("unstable: %v\n%s\n%s", err, out, twice)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	batch := life()[4]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := journal.Encode(batch); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	data, err := journal.Encode(life()[4])
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := journal.Decode(data); err != nil {
			b.Fatal(err)
		}
	}
}
