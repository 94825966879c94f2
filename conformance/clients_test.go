package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/wire"
)

// The published React hook must show a conversation to its end, through a
// lost connection and a failed message.
func TestReactHook(t *testing.T) {
	needNode(t)
	got := runScenario(t, start(t), "react-hook")
	var words strings.Builder
	for i := range 40 {
		words.WriteString("word" + string(json.RawMessage(mustJSON(t, i))) + " ")
	}
	text := func(role, text string) any {
		return map[string]any{"role": role, "parts": []any{map[string]any{"type": "text", "text": text, "state": "done"}}}
	}
	want := []note{
		{Label: "messages", Value: []any{
			text("user", "hello @id=re1 @text=40 @delay=50"), text("assistant", words.String()),
			text("user", "bad @id=re2 @fail=400x99"),
			map[string]any{"role": "assistant", "parts": []any{}},
			text("user", "again @id=re3 @text=3"), text("assistant", "word0 word1 word2 "),
		}},
		{Label: "outcomes", Value: []any{"completed", "failed", "completed"}},
		{Label: "seen", Value: []any{"submitted", "streaming", "error", "idle"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the hook (-want +got):\n%s", diff)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Applying changes here must give what the published client's reducer gives,
// for any changes in any order.
func TestApplyLikeTheClient(t *testing.T) {
	needNode(t)
	const cases = 2000
	rnd := rand.New(rand.NewPCG(1, 2))
	var in bytes.Buffer
	inputs := make([][]wire.Chunk, cases)
	for i := range inputs {
		inputs[i] = randomChunks(rnd)
		b, err := jsonv2.Marshal(map[string]any{"chunks": inputs[i]})
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(b, '\n'))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "driver.mjs", "reduce", "http://127.0.0.1:1")
	cmd.Dir, cmd.Stdin = "node", &in
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if len(lines) != cases+1 { // the last one says that it is done
		t.Fatalf("%d lines for %d cases\n%s", len(lines), cases, stderr.String())
	}
	for i, chunks := range inputs {
		var v wire.Conversation
		for j := range chunks {
			if err := v.Apply(&chunks[j]); err != nil {
				t.Fatal(err)
			}
		}
		for j := range v.Settlements { // the client passes over it
			v.Settlements[j].Budget = nil
		}
		got, err := jsonv2.Marshal(map[string]any{"messages": orEmpty(v.Messages), "settlements": orEmpty(v.Settlements)})
		if err != nil {
			t.Fatal(err)
		}
		want, have := decode(t, lines[i]), decode(t, got)
		delete(want, "conversationId")
		if diff := cmp.Diff(want, have); diff != "" {
			b, _ := jsonv2.Marshal(chunks)
			t.Fatalf("case %d (-client +here):\n%s\n%s", i, diff, b)
		}
	}
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func decode(t *testing.T, b []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return v
}

// randomChunks makes changes that often refer to the same few messages and
// calls, and sometimes to none.
func randomChunks(rnd *rand.Rand) []wire.Chunk {
	pick := func(from ...string) string { return from[rnd.IntN(len(from))] }
	value := func() []byte {
		return []byte(pick(`1`, `"s"`, `null`, `{}`, `[]`, `{"a":{"b":1},"c":[1]}`, `{"a":{"d":2}}`, `{"a":3}`, `{"constructor":1,"a":{"__proto__":2}}`))
	}
	object := func() []byte {
		return []byte(pick(`{}`, `{"a":{"b":1},"c":[1]}`, `{"a":{"d":2,"b":null}}`, `{"a":3,"c":[2]}`, `{"constructor":1,"a":{"prototype":2}}`))
	}
	ms := func() *int64 {
		if rnd.IntN(2) == 0 {
			return nil
		}
		n := rnd.Int64N(100)
		return &n
	}
	var cs []wire.Chunk
	for range rnd.IntN(25) {
		c := wire.Chunk{MessageID: pick("m1", "m1", "m2", "?"), ToolCallID: pick("c1", "c2"), SubmissionID: pick("s1", "s2")}
		switch rnd.IntN(12) {
		case 0:
			c = wire.Chunk{Type: wire.ChunkMessageStarted, MessageID: c.MessageID, SubmissionID: pick("", "s1"), TurnID: pick("", "t1")}
			if rnd.IntN(2) == 0 {
				c.Metadata = object()
			}
		case 1, 2, 3, 4:
			c = wire.Chunk{Type: wire.ChunkMessageDelta, MessageID: c.MessageID, Kind: pick("text", "reasoning"), Delta: pick("a", "b ", "ü")}
		case 5:
			c = wire.Chunk{Type: wire.ChunkToolInput, MessageID: c.MessageID, ToolCallID: c.ToolCallID, ToolName: "t", Input: value()}
		case 6:
			c = wire.Chunk{Type: wire.ChunkToolOutput, ToolCallID: c.ToolCallID, Output: value(), DurationMS: ms()}
		case 7:
			text := pick("", "failed")
			c = wire.Chunk{Type: wire.ChunkToolOutputError, ToolCallID: c.ToolCallID, ErrorText: &text, DurationMS: ms()}
		case 8:
			c = wire.Chunk{Type: wire.ChunkCompleted, MessageID: c.MessageID}
		case 9:
			c = wire.Chunk{Type: wire.ChunkMessageMetadata, MessageID: c.MessageID, Metadata: object()}
			if rnd.IntN(2) == 0 {
				c = wire.Chunk{Type: wire.ChunkDataPart, MessageID: c.MessageID, Name: pick("p", "q"), Data: value()}
			}
		case 10:
			c = wire.Chunk{Type: wire.ChunkSettled, SubmissionID: c.SubmissionID, Outcome: pick("completed", "failed"), AnsweredBy: pick("", "s2")}
			if rnd.IntN(2) == 0 {
				c.Error = value()
			}
			if rnd.IntN(3) == 0 {
				c.Budget = &wire.Budget{Scope: "submission", Limit: pick("turns", "dollars")}
			}
		case 11:
			text := pick("", "x")
			m := wire.Message{ID: c.MessageID, Role: wire.RoleUser, Purpose: "user", Display: "visible", Parts: []wire.Part{
				{Type: wire.PartText, Text: &text, State: pick(wire.StateDone, wire.StateStreaming)},
			}}
			c = wire.Chunk{Type: wire.ChunkMessageAppended, Message: &m}
			if rnd.IntN(6) == 0 {
				c = wire.Chunk{Type: wire.ChunkReset, Snapshot: &wire.Snapshot{V: 1, ConversationID: "conv", Messages: []wire.Message{m}}}
			}
		}
		cs = append(cs, c)
	}
	return cs
}
