package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/wire"
)

// apply applies a JSON array of chunks to a new conversation.
func apply(t testing.TB, chunks string) *wire.Conversation {
	t.Helper()
	var v wire.Conversation
	applyTo(t, &v, chunks)
	return &v
}

func applyTo(t testing.TB, v *wire.Conversation, chunks string) {
	t.Helper()
	var cs []wire.Chunk
	if err := json.Unmarshal([]byte(chunks), &cs); err != nil {
		t.Fatal(err)
	}
	for i := range cs {
		if err := v.Apply(&cs[i]); err != nil {
			t.Fatal(err)
		}
	}
}

func parts(t testing.TB, v *wire.Conversation, id string) string {
	t.Helper()
	for _, m := range v.Messages {
		if m.ID == id {
			b, err := json.Marshal(m.Parts)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
	}
	t.Fatalf("no message %q", id)
	return ""
}

// What was recorded as updates from the start must add up to what was recorded
// as the snapshot.
func TestReplaysEqualSnapshots(t *testing.T) {
	for _, line := range lines(t, "replays.jsonl") {
		var replay struct {
			Name     string        `json:"name"`
			Chunks   []wire.Chunk  `json:"chunks"`
			Snapshot wire.Snapshot `json:"snapshot"`
		}
		if err := json.Unmarshal(line, &replay); err != nil {
			t.Fatal(err)
		}
		t.Run(replay.Name, func(t *testing.T) {
			var v wire.Conversation
			var last wire.Position
			for i := range replay.Chunks {
				c := &replay.Chunks[i]
				if c.Position != nil {
					if i > 1 && c.Position.Compare(last) <= 0 {
						t.Errorf("position %v of chunk %d is not after %v", *c.Position, i, last)
					}
					last = *c.Position
				}
				if err := v.Apply(c); err != nil {
					t.Fatal(err)
				}
			}
			got := wire.Snapshot{
				V: 1, ConversationID: v.ID, Offset: replay.Snapshot.Offset, Messages: v.Messages, Settlements: v.Settlements,
				Incarnation: replay.Snapshot.Incarnation,
			}
			if diff := cmp.Diff(asJSON(t, replay.Snapshot), asJSON(t, got)); diff != "" {
				t.Errorf("the updates do not add up to the snapshot (-snapshot +updates):\n%s", diff)
			}
		})
	}
}

// asJSON is what v is on the wire.
func asJSON(t testing.TB, v any) any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestApplyParts(t *testing.T) {
	const started = `{"type":"message-started","messageId":"m"}`
	delta := func(kind, text string) string {
		return fmt.Sprintf(`{"type":"message-delta","messageId":"m","kind":%q,"delta":%q}`, kind, text)
	}
	input := func(id string) string {
		return fmt.Sprintf(`{"type":"tool-input","messageId":"m","toolCallId":%q,"toolName":"t","input":{"n":1}}`, id)
	}
	const completed = `{"type":"message-completed","messageId":"m"}`
	tests := []struct {
		name   string
		chunks []string
		want   string
	}{
		{"nothing", nil, `[]`},
		{"one text", []string{delta("text", "a"), delta("text", "b")}, `[{"type":"text","text":"ab","state":"streaming"}]`},
		{"completed", []string{delta("text", "a"), completed}, `[{"type":"text","text":"a","state":"done"}]`},
		{
			"a change of kind closes",
			[]string{delta("reasoning", "r"), delta("text", "a"), delta("reasoning", "s")},
			`[{"type":"reasoning","text":"r","state":"done"},{"type":"text","text":"a","state":"done"},{"type":"reasoning","text":"s","state":"streaming"}]`,
		},
		{
			"text after completion is another part",
			[]string{delta("text", "a"), completed, started, delta("text", "b")},
			`[{"type":"text","text":"a","state":"done"},{"type":"text","text":"b","state":"streaming"}]`,
		},
		{
			"text after continuation without completion is the same part",
			[]string{delta("text", "a"), started, delta("text", "b")},
			`[{"type":"text","text":"ab","state":"streaming"}]`,
		},
		{
			"a call closes the text",
			[]string{delta("text", "a"), input("c")},
			`[{"type":"text","text":"a","state":"done"},{"type":"dynamic-tool","toolName":"t","toolCallId":"c","state":"input-available","input":{"n":1}}]`,
		},
		{
			"a call is added once",
			[]string{input("c"), input("c")},
			`[{"type":"dynamic-tool","toolName":"t","toolCallId":"c","state":"input-available","input":{"n":1}}]`,
		},
		{
			"output",
			[]string{input("c"), `{"type":"tool-output","toolCallId":"c","output":[],"durationMs":0}`},
			`[{"type":"dynamic-tool","toolName":"t","toolCallId":"c","state":"output-available","input":{"n":1},"output":[],"durationMs":0}]`,
		},
		{
			"an error after an output replaces it and keeps the duration",
			[]string{input("c"), `{"type":"tool-output","toolCallId":"c","output":1,"durationMs":5}`, `{"type":"tool-output-error","toolCallId":"c","errorText":""}`},
			`[{"type":"dynamic-tool","toolName":"t","toolCallId":"c","state":"output-error","input":{"n":1},"errorText":"","durationMs":5}]`,
		},
		{
			"an output after an error replaces it",
			[]string{input("c"), `{"type":"tool-output-error","toolCallId":"c","errorText":"e"}`, `{"type":"tool-output","toolCallId":"c","output":null}`},
			`[{"type":"dynamic-tool","toolName":"t","toolCallId":"c","state":"output-available","input":{"n":1},"output":null}]`,
		},
		{
			"data does not close the text, but the next delta begins another",
			[]string{delta("text", "a"), `{"type":"data-part","messageId":"m","name":"p","data":1}`, delta("text", "b")},
			`[{"type":"text","text":"a","state":"streaming"},{"type":"data-p","data":1},{"type":"text","text":"b","state":"streaming"}]`,
		},
		{
			"completion closes every text",
			[]string{delta("text", "a"), `{"type":"data-part","messageId":"m","name":"p","data":1}`, delta("text", "b"), completed},
			`[{"type":"text","text":"a","state":"done"},{"type":"data-p","data":1},{"type":"text","text":"b","state":"done"}]`,
		},
		{
			"data of the same name replaces",
			[]string{
				`{"type":"data-part","messageId":"m","name":"p","data":1}`, `{"type":"data-part","messageId":"m","name":"q","data":2}`,
				`{"type":"data-part","messageId":"m","name":"p","data":{"x":3}}`,
			},
			`[{"type":"data-p","data":{"x":3}},{"type":"data-q","data":2}]`,
		},
		{"a result without its call", []string{`{"type":"tool-output","toolCallId":"?","output":1}`}, `[]`},
		{"a delta of an unknown message", []string{`{"type":"message-delta","messageId":"?","kind":"text","delta":"x"}`}, `[]`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := apply(t, "["+strings.Join(append([]string{started}, test.chunks...), ",")+"]")
			if diff := cmp.Diff(test.want, parts(t, v, "m")); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestApplyReferringToNothing(t *testing.T) {
	v := apply(t, `[
		{"type":"stream-checkpoint","incarnation":"inc_1"},
		{"type":"message-delta","messageId":"?","kind":"text","delta":"x"},
		{"type":"message-metadata","messageId":"?","metadata":{"a":1}},
		{"type":"data-part","messageId":"?","name":"n","data":1},
		{"type":"tool-input","messageId":"?","toolCallId":"c","toolName":"t","input":{}},
		{"type":"tool-output","toolCallId":"c","output":1},
		{"type":"message-completed","messageId":"?"}
	]`)
	if len(v.Messages) != 0 || len(v.Settlements) != 0 {
		t.Errorf("chunks that refer to nothing made %d messages and %d settlements", len(v.Messages), len(v.Settlements))
	}
}

func TestApplyErrors(t *testing.T) {
	for _, c := range []wire.Chunk{{Type: "news"}, {}, {Type: wire.ChunkReset}, {Type: wire.ChunkMessageAppended}} {
		var v wire.Conversation
		if err := v.Apply(&c); err == nil {
			t.Errorf("a chunk of type %q without its content was applied", c.Type)
		}
	}
}

func TestApplyMessages(t *testing.T) {
	v := apply(t, `[
		{"type":"message-appended","message":{"id":"a","role":"user","purpose":"user","display":"visible","parts":[{"type":"text","text":"1","state":"done"}]}},
		{"type":"message-started","messageId":"b","submissionId":"s","turnId":"t1","metadata":{"k":1}},
		{"type":"message-started","messageId":"b","submissionId":"s","turnId":"t2","metadata":{"k":2}},
		{"type":"message-started","messageId":"c","metadata":null},
		{"type":"message-delta","messageId":"b","kind":"text","delta":"x"},
		{"type":"message-appended","message":{"id":"b","role":"system","purpose":"advisory","display":"hidden","parts":[]}},
		{"type":"message-delta","messageId":"b","kind":"text","delta":"y"},
		{"type":"message-appended","message":{"id":"a","role":"user","purpose":"user","display":"visible","parts":[{"type":"text","text":"2","state":"done"}]}}
	]`)
	got, err := json.Marshal(v.Messages)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"id":"a","role":"user","purpose":"user","display":"visible","parts":[{"type":"text","text":"2","state":"done"}]},` +
		`{"id":"b","role":"system","purpose":"advisory","display":"hidden","parts":[{"type":"text","text":"y","state":"streaming"}]},` +
		`{"id":"c","role":"assistant","purpose":"assistant","display":"visible","parts":[]}]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// Some models use the same call ids in every response.
func TestApplyResultToTheNewestCall(t *testing.T) {
	v := apply(t, `[
		{"type":"message-started","messageId":"old"},
		{"type":"tool-input","messageId":"old","toolCallId":"call_0","toolName":"t","input":1},
		{"type":"tool-output","toolCallId":"call_0","output":"first"},
		{"type":"message-started","messageId":"new"},
		{"type":"tool-input","messageId":"new","toolCallId":"call_0","toolName":"t","input":2},
		{"type":"tool-output","toolCallId":"call_0","output":"second"}
	]`)
	if got := parts(t, v, "old"); !strings.Contains(got, `"output":"first"`) {
		t.Errorf("the old call became %s", got)
	}
	if got := parts(t, v, "new"); !strings.Contains(got, `"output":"second"`) {
		t.Errorf("the new call became %s", got)
	}
}

func TestApplySettlements(t *testing.T) {
	v := apply(t, `[
		{"type":"submission-settled","submissionId":"a","outcome":"failed","error":{"m":1}},
		{"type":"submission-settled","submissionId":"b","outcome":"completed","answeredBySubmissionId":"a"},
		{"type":"submission-settled","submissionId":"a","outcome":"completed","error":null}
	]`)
	got, err := json.Marshal(v.Settlements)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"submissionId":"a","outcome":"completed","error":null},{"submissionId":"b","outcome":"completed","answeredBySubmissionId":"a"}]`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestApplyMetadata(t *testing.T) {
	tests := []struct{ name, base, next, want string }{
		{"absent", `null`, `{"a":1}`, `{"a":1}`},
		{"later wins", `{"a":1,"b":2}`, `{"a":3}`, `{"a":3,"b":2}`},
		{"objects merge", `{"a":{"x":1,"y":[1]}}`, `{"a":{"y":[2],"z":3}}`, `{"a":{"x":1,"y":[2],"z":3}}`},
		{"object replaces a scalar", `{"a":1}`, `{"a":{"x":1}}`, `{"a":{"x":1}}`},
		{"scalar replaces an object", `{"a":{"x":1}}`, `{"a":null}`, `{"a":null}`},
		{"special names are dropped", `{"a":{}}`, `{"__proto__":{"x":1},"constructor":1,"a":{"prototype":2,"k":3}}`, `{"a":{"k":3}}`},
		{"not an object", `{"a":1}`, `[1]`, `{"a":1}`},
		{"nothing", `{"a":1}`, `{}`, `{"a":1}`},
		{"escaped names", `{"\u0061":1}`, `{"a":2,"\"":3}`, `{"a":2,"\"":3}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := apply(t, `[{"type":"message-started","messageId":"m","metadata":`+test.base+`},{"type":"message-metadata","messageId":"m","metadata":`+test.next+`}]`)
			if got := string(v.Messages[0].Metadata); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// A chunk may be applied to many conversations at once, and a snapshot may be
// in use elsewhere.
func TestApplyChangesNoChunk(t *testing.T) {
	const reset = `[{"type":"conversation-reset","snapshot":{"v":1,"conversationId":"c","offset":"-1","settlements":[],"messages":[` +
		`{"id":"m","role":"assistant","purpose":"assistant","display":"visible","parts":[{"type":"text","text":"a","state":"streaming"}]}]}},` +
		`{"type":"message-appended","message":{"id":"n","role":"assistant","purpose":"assistant","display":"visible","parts":[{"type":"text","text":"b","state":"streaming"}]}}]`
	var cs []wire.Chunk
	if err := json.Unmarshal([]byte(reset), &cs); err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(cs)
	if err != nil {
		t.Fatal(err)
	}
	var v, w wire.Conversation
	for _, conversation := range []*wire.Conversation{&v, &w} {
		for i := range cs {
			if err := conversation.Apply(&cs[i]); err != nil {
				t.Fatal(err)
			}
		}
		applyTo(t, conversation, `[{"type":"message-delta","messageId":"m","kind":"text","delta":"+"},{"type":"message-delta","messageId":"n","kind":"text","delta":"+"},
			{"type":"tool-input","messageId":"m","toolCallId":"c","toolName":"t","input":1},{"type":"message-completed","messageId":"n"}]`)
	}
	after, err := json.Marshal(cs)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("applying changed the chunks (-before +after):\n%s", diff)
	}
	want := `[{"type":"text","text":"a+","state":"done"},{"type":"dynamic-tool","toolName":"t","toolCallId":"c","state":"input-available","input":1}]`
	if got := parts(t, &w, "m"); got != want {
		t.Errorf("the second conversation has %s, want %s", got, want)
	}
	if v.ID != "c" {
		t.Errorf("the conversation's id is %q, want c", v.ID)
	}
}

// A copy of the messages must keep its texts while the original grows.
func TestApplyKeepsTextsThatWereRead(t *testing.T) {
	v := apply(t, `[{"type":"message-started","messageId":"m"},{"type":"message-delta","messageId":"m","kind":"text","delta":"one"}]`)
	read := *v.Messages[0].Parts[0].Text
	for range 100 {
		applyTo(t, v, `[{"type":"message-delta","messageId":"m","kind":"text","delta":" more"}]`)
	}
	if read != "one" {
		t.Errorf("the text that was read became %q", read)
	}
}

func BenchmarkApplyDeltas(b *testing.B) {
	var cs []wire.Chunk
	cs = append(cs, wire.Chunk{Type: wire.ChunkMessageStarted, MessageID: "m"})
	for range 10_000 {
		cs = append(cs, wire.Chunk{Type: wire.ChunkMessageDelta, MessageID: "m", Kind: wire.PartText, Delta: "word "})
	}
	cs = append(cs, wire.Chunk{Type: wire.ChunkCompleted, MessageID: "m"})
	b.ReportAllocs()
	for b.Loop() {
		var v wire.Conversation
		for i := range cs {
			if err := v.Apply(&cs[i]); err != nil {
				b.Fatal(err)
			}
		}
	}
}
