package wire_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/wire"
)

// The files in testdata hold one JSON value of each shape that Flue 2.0.3 was
// seen to send, one a line.

func lines(t testing.TB, name string) [][]byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSpace(b), []byte("\n"))
}

// roundTrip reads every line as a T, refusing members that T does not have,
// and expects the very same bytes when it is written again.
func roundTrip[T any](t *testing.T, name string) {
	t.Helper()
	for _, line := range lines(t, name) {
		var v T
		if err := json.Unmarshal(line, &v, json.RejectUnknownMembers(true)); err != nil {
			t.Errorf("%s: %v\n%s", name, err, line)
			continue
		}
		got, err := json.Marshal(&v, json.Deterministic(true)) // the order of attributes
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(string(line), string(got)); diff != "" {
			t.Errorf("%s: not the same when written again (-sent +got):\n%s", name, diff)
		}
	}
}

func TestShapes(t *testing.T) {
	t.Run("chunks", func(t *testing.T) { roundTrip[wire.Chunk](t, "chunks.jsonl") })
	t.Run("snapshots", func(t *testing.T) { roundTrip[wire.Snapshot](t, "snapshots.jsonl") })
	t.Run("parts", func(t *testing.T) { roundTrip[wire.Part](t, "parts.jsonl") })
	t.Run("admissions", func(t *testing.T) { roundTrip[wire.Admission](t, "admissions.jsonl") })
}

// Values that are empty but present must stay so: a client that finds no input
// on a call, or no text on a part, does not read it as an empty one.
func TestEmptyValuesArePresent(t *testing.T) {
	empty, zero := "", int64(0)
	tests := []struct {
		name string
		v    any
		want string
	}{
		{
			"tool input",
			wire.Chunk{Type: wire.ChunkToolInput, Input: jsontext.Value("{}")},
			`{"type":"tool-input","input":{}}`,
		},
		{
			"tool output",
			wire.Chunk{Type: wire.ChunkToolOutput, Output: jsontext.Value(`""`), DurationMS: &zero},
			`{"type":"tool-output","output":"","durationMs":0}`,
		},
		{
			"null output",
			wire.Chunk{Type: wire.ChunkToolOutput, Output: jsontext.Value("null")},
			`{"type":"tool-output","output":null}`,
		},
		{
			"error text",
			wire.Chunk{Type: wire.ChunkToolOutputError, ErrorText: &empty},
			`{"type":"tool-output-error","errorText":""}`,
		},
		{
			"data",
			wire.Chunk{Type: wire.ChunkDataPart, Name: "n", Data: jsontext.Value("[]")},
			`{"type":"data-part","name":"n","data":[]}`,
		},
		{
			"text part",
			wire.Part{Type: wire.PartText, Text: &empty, State: wire.StateDone},
			`{"type":"text","text":"","state":"done"}`,
		},
		{
			"position",
			wire.Chunk{Type: wire.ChunkCompleted, Position: &wire.Position{}},
			`{"type":"message-completed","position":{"batch":0,"index":0}}`,
		},
		{
			"lists of a snapshot",
			wire.Snapshot{V: 1, Offset: wire.Start},
			`{"v":1,"conversationId":"","offset":"-1","messages":[],"settlements":[]}`,
		},
		{
			"lists of a message",
			wire.Message{ID: "m", Role: wire.RoleUser, Signal: &wire.Signal{Attributes: map[string]string{}}},
			`{"id":"m","role":"user","purpose":"","display":"","signal":{"attributes":{}},"parts":[]}`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := json.Marshal(test.v)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
