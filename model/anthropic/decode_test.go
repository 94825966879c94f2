package anthropic_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/google/go-cmp/cmp"
)

// lines returns a stream with one event for each line of data.
func lines(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		b.WriteString("data: " + d + "\n\n")
	}
	return b.String()
}

// receive returns what the codec makes of a stream that answers req.
func receive(t testing.TB, stream string, req *model.Request) (modeltest.Answer, error) {
	t.Helper()
	client, _ := play(stream)
	p := anthropic.New(anthropic.Config{APIKey: "sk-test", Client: client})
	return modeltest.Collect(t, p.Stream(t.Context(), req))
}

func TestDecode(t *testing.T) {
	const stop = `{"type":"message_stop"}`
	tests := []struct {
		name   string
		stream string
		blocks []model.Block
		stop   model.StopReason
	}{
		{"nothing but an end", lines(stop), nil, model.StopEnd},
		{
			"text in the start", lines(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"b"}}`, stop),
			[]model.Block{{Kind: model.Text, Text: "ab"}},
			model.StopEnd,
		},
		{
			"input in the start", lines(`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"1","name":"t","input":{"a":1}}}`, `{"type":"content_block_stop","index":0}`, stop),
			[]model.Block{{Kind: model.ToolCall, CallID: "1", Name: "t", Arguments: `{"a":1}`}},
			model.StopEnd,
		},
		{
			"blank input stays blank", lines(`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"1","name":"t","input":{}}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"  "}}`, `{"type":"content_block_stop","index":0}`, stop),
			[]model.Block{{Kind: model.ToolCall, CallID: "1", Name: "t", Arguments: "  "}},
			model.StopEnd,
		},
		{
			"types in the events' names alone", "event: content_block_start\n" + lines(`{"index":0,"content_block":{"type":"text","text":"a"}}`) + "event: message_stop\n" + lines(`{}`),
			[]model.Block{{Kind: model.Text, Text: "a"}},
			model.StopEnd,
		},
		{
			"thinking without a signature is not kept", lines(`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"hm"}}`, `{"type":"content_block_stop","index":0}`, stop),
			[]model.Block{{Kind: model.Reasoning, Text: "hm"}},
			model.StopEnd,
		},
		{
			"unknown fields of thinking are kept", lines(`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":"s","new":{"x":[1]}}}`, `{"type":"content_block_stop","index":0}`, stop),
			[]model.Block{{Kind: model.Reasoning, Opaque: json.RawMessage(`{"block":{"new":{"x":[1]},"signature":"s","thinking":"","type":"thinking"}}`)}},
			model.StopEnd,
		},
		{
			"citations are not text", lines(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{}}}`, stop),
			[]model.Block{{Kind: model.Text, Text: "a"}},
			model.StopEnd,
		},
		{
			"sparse indices", lines(`{"type":"content_block_start","index":900000000,"content_block":{"type":"text","text":"a"}}`, `{"type":"content_block_start","index":-4,"content_block":{"type":"text","text":"b"}}`, stop),
			[]model.Block{{Kind: model.Text, Text: "a"}, {Kind: model.Text, Text: "b"}},
			model.StopEnd,
		},
		{"window exceeded", lines(`{"type":"message_delta","delta":{"stop_reason":"model_context_window_exceeded"}}`, stop), nil, model.StopLength},
		{"stop sequence", lines(`{"type":"message_delta","delta":{"stop_reason":"stop_sequence"}}`, stop), nil, model.StopEnd},
		{"unknown reason", lines(`{"type":"message_delta","delta":{"stop_reason":"tired"}}`, stop), nil, model.StopEnd},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := receive(t, tt.stream, modeltest.Hello())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.blocks, got.Blocks); diff != "" {
				t.Errorf("blocks (-want +got):\n%s", diff)
			}
			if got.Done.Stop != tt.stop {
				t.Errorf("stop = %s, want %s", got.Done.Stop, tt.stop)
			}
		})
	}
}

func TestDecodeFailures(t *testing.T) {
	text := `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}`
	for _, tt := range []struct {
		name, stream string
		class        model.Class
		part         string
	}{
		{"overloaded", lines(text, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), model.Overloaded, "Overloaded"},
		{
			"overloaded within a call", lines(`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"1","name":"t","input":{}}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a"}}`,
				`{"type":"ping"}`, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), model.Overloaded, "Overloaded",
		},
		{"invalid", lines(`{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`), model.Invalid, "no"},
		{"overflow", lines(`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9"}}`), model.Overflow, "too long"},
		{"key", lines(`{"type":"error","error":{"type":"permission_error","message":"no"}}`), model.Auth, "no"},
		{"named by the event alone", "event: error\n" + lines(`{"error":{"type":"authentication_error","message":"bad key"}}`), model.Auth, "bad key"},
		{"named, and no object", "event: error\n" + lines(`{"message":"prompt is too long: 9"}`), model.Overflow, "too long"},
		{"named, and no JSON", lines(text) + "event: error\n" + lines(`content filtering policy`), model.Filtered, "content filtering policy"},
		{"nothing but an error", lines(text, `{"error":{"message":"prompt is too long: 9","code":400}}`), model.Overflow, "too long"},
		{"nothing but an error, with a status", lines(`{"error":{"message":"no","code":401}}`), model.Auth, "no"},
		{"nothing but an error's words", lines(`{"error":"overloaded"}`), model.Overloaded, "overloaded"},
		{"no error", lines(text, `{"error":null}`), model.Retryable, "cut"},
		{"starts twice", lines(text, text), model.Retryable, "starts twice"},
		{"grows without a start", lines(`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"a"}}`), model.Retryable, "without a start"},
		{"stops without a start", lines(`{"type":"content_block_stop","index":1}`), model.Retryable, "without a start"},
		{"wrong kind of delta", lines(text, `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"a"}}`), model.Retryable, "got a thinking_delta"},
		{"start of nothing", lines(`{"type":"content_block_start","index":0}`), model.Retryable, "start of block 0"},
		{"no end", lines(text), model.Retryable, "cut"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := receive(t, tt.stream, modeltest.Hello())
			var e *model.Error
			if !errors.As(err, &e) || e.Class != tt.class || !strings.Contains(e.Message, tt.part) {
				t.Errorf("error = %v, want class %s and %q", err, tt.class, tt.part)
			}
		})
	}
}

// Counts are totals so far, wherever they come; a count that is absent changes
// nothing.
func TestUsage(t *testing.T) {
	const stop = `{"type":"message_stop"}`
	start := func(usage string) string {
		return `{"type":"message_start","message":{"model":"m","usage":` + usage + `}}`
	}
	delta := func(usage string) string {
		return `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":` + usage + `}`
	}
	for name, tt := range map[string]struct {
		stream string
		want   model.Usage
	}{
		"start and end":      {lines(start(`{"input_tokens":9,"cache_read_input_tokens":5,"cache_creation_input_tokens":3,"output_tokens":1}`), delta(`{"output_tokens":7}`), stop), model.Usage{Input: 9, Output: 7, CacheRead: 5, CacheWrite: 3}},
		"all at the end":     {lines(delta(`{"input_tokens":9,"output_tokens":7,"cache_read_input_tokens":5}`), stop), model.Usage{Input: 9, Output: 7, CacheRead: 5}},
		"corrected":          {lines(start(`{"input_tokens":100,"output_tokens":1}`), delta(`{"input_tokens":9,"output_tokens":4}`), delta(`{"output_tokens":7}`), stop), model.Usage{Input: 9, Output: 7}},
		"null":               {lines(start(`null`), delta(`null`), stop), model.Usage{}},
		"null counts":        {lines(start(`{"input_tokens":9,"cache_read_input_tokens":null}`), delta(`{"output_tokens":7,"output_tokens_details":null}`), stop), model.Usage{Input: 9, Output: 7}},
		"details":            {lines(start(`{"input_tokens":9}`), delta(`{"output_tokens":7,"output_tokens_details":{"thinking_tokens":6}}`), stop), model.Usage{Input: 9, Output: 7, Reasoning: 6}},
		"an end without any": {lines(start(`{"input_tokens":9,"output_tokens":2}`), stop), model.Usage{Input: 9, Output: 2}},
	} {
		got, err := receive(t, tt.stream, modeltest.Hello())
		if err != nil || got.Done.Usage != tt.want {
			t.Errorf("%s: usage %+v, %v; want %+v", name, got.Done, err, tt.want)
		}
	}
}

// Some servers send no ids, or the same ones in each answer.
func TestCallIDsAreUnique(t *testing.T) {
	call := func(i, id string) string {
		return `{"type":"content_block_start","index":` + i + `,"content_block":{"type":"tool_use","id":"` + id + `","name":"t","input":{}}}`
	}
	req := modeltest.Hello()
	req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Blocks: []model.Block{{Kind: model.ToolCall, CallID: "call_0"}}})
	got, err := receive(t, lines(call("0", "call_0"), call("1", ""), call("2", "x"), call("3", "x"), `{"type":"message_stop"}`), req)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{"": true, "call_0": true}
	for _, b := range got.Blocks {
		if seen[b.CallID] {
			t.Errorf("id %q is empty or used before", b.CallID)
		}
		seen[b.CallID] = true
	}
	if len(got.Blocks) != 4 || !seen["x"] {
		t.Errorf("blocks = %+v", got.Blocks)
	}
}

// What the model sent as thinking goes back as it was, through storage, in its
// place; and does not go to another model.
func TestThinkingIsReplayed(t *testing.T) {
	stream := lines(
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":" a <b> \u2028 \n"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"S1"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"let me"}}`,
		`{"type":"content_block_stop","index":1}`,
		`{"type":"content_block_start","index":2,"content_block":{"type":"thinking","thinking":"","signature":"S2"}}`,
		`{"type":"content_block_stop","index":2}`,
		`{"type":"content_block_start","index":3,"content_block":{"type":"redacted_thinking","data":"R+/="}}`,
		`{"type":"content_block_stop","index":3}`,
		`{"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"1","name":"now","input":{}}}`,
		`{"type":"content_block_stop","index":4}`,
		`{"type":"content_block_start","index":5,"content_block":{"type":"thinking","thinking":"unfinished"}}`,
		`{"type":"content_block_stop","index":5}`,
		`{"type":"message_stop"}`)
	first := modeltest.Hello()
	first.Model = "claude-opus-4-8"
	answer, err := receive(t, stream, first)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := json.Marshal(answer.Blocks)
	if err != nil {
		t.Fatal(err)
	}
	second := func(asked, provider string) *model.Request {
		var blocks []model.Block
		if err := json.Unmarshal(stored, &blocks); err != nil {
			t.Fatal(err)
		}
		return &model.Request{Model: asked, Messages: append(modeltest.Hello().Messages,
			model.Message{Role: model.RoleAssistant, Blocks: blocks, Origin: model.Origin{Provider: provider, Model: "claude-opus-4-8"}},
			model.Message{Role: model.RoleTool, Blocks: []model.Block{{Kind: model.ToolResult, CallID: "1", Text: "x"}}},
		)}
	}
	for _, tt := range []struct{ name, model, provider, want string }{
		{"same", "claude-opus-4-8", "anthropic", `[{"signature":"S1","thinking":" a <b> \u2028 \n","type":"thinking"},{"type":"text","text":"let me"},{"signature":"S2","thinking":"","type":"thinking"},{"type":"redacted_thinking","data":"R+/="},{"type":"tool_use","id":"1","name":"now","input":{}}]`},
		{"another model", "claude-opus-4-7", "anthropic", `[{"type":"text","text":"let me"},{"type":"tool_use","id":"1","name":"now","input":{}}]`},
		{"another provider", "claude-opus-4-8", "gateway", `[{"type":"text","text":"let me"},{"type":"tool_use","id":"1","name":"now","input":{}}]`},
	} {
		var body struct{ Messages []struct{ Content any } }
		if err := json.Unmarshal(sent(t, anthropic.Config{}, second(tt.model, tt.provider)), &body); err != nil {
			t.Fatal(err)
		}
		// Storage may write the same JSON with other escapes.
		var want any
		if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, body.Messages[1].Content); diff != "" {
			t.Errorf("%s: content (-want +sent):\n%s", tt.name, diff)
		}
	}
}

// Newer models refuse a thinking block when anything before it has changed
// since. An agent's tools and instructions do change, so such a block must stay
// out, or the conversation could never go on.
func TestThinkingIsTiedToItsPrefix(t *testing.T) {
	const id = "claude-opus-5-5"
	origin := model.Origin{Provider: "anthropic", Model: id}
	base := func() *model.Request {
		req := modeltest.Hello()
		req.Model, req.System = id, "Be brief."
		req.Tools = []model.Tool{{Name: "now"}}
		return req
	}
	think := func(req *model.Request, signature string, more ...model.Block) model.Message {
		t.Helper()
		answer, err := receive(t, lines(
			`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":"`+signature+`"}}`,
			`{"type":"content_block_stop","index":0}`, `{"type":"message_stop"}`), req)
		if err != nil {
			t.Fatal(err)
		}
		return model.Message{Role: model.RoleAssistant, Origin: origin, Blocks: append(answer.Blocks, append(more, model.Block{Kind: model.Text, Text: "ok"})...)}
	}
	user := func(s string) model.Message {
		return model.Message{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: s}}}
	}
	first := think(base(), "S1")
	// conversation returns the base, changed by each of edits, and two turns.
	conversation := func(edits ...func(*model.Request)) *model.Request {
		req := base()
		for _, edit := range edits {
			edit(req)
		}
		req.Messages = append(req.Messages, first, user("go on"))
		return req
	}
	tool := func(req *model.Request) { req.Tools = append(req.Tools, model.Tool{Name: "publish"}) }
	tests := []struct {
		name string
		req  *model.Request
		want []string
	}{
		{"unchanged", conversation(), []string{"S1"}},
		{"another tool", conversation(tool), nil},
		{"another prompt", conversation(func(req *model.Request) { req.System = "Be verbose." }), nil},
		{"another message", conversation(func(req *model.Request) { req.Messages[0] = user("Bye") }), nil},
		{"another effort", conversation(func(req *model.Request) { req.Thinking = model.ThinkingLow }), []string{"S1"}},
	}
	second := think(conversation(tool), "S2")
	after := conversation(tool)
	after.Messages = append(after.Messages, second, user("and now?"))
	tests = append(tests, struct {
		name string
		req  *model.Request
		want []string
	}{"only what came after the change", after, []string{"S2"}})

	blank := base()
	altered := think(base(), "S3")
	altered.Blocks = append([]model.Block{{Kind: model.Text, Text: "\n\n"}}, altered.Blocks...)
	blank.Messages = append(blank.Messages, altered, user("go on"))
	tests = append(tests, struct {
		name string
		req  *model.Request
		want []string
	}{"after text that cannot be sent", blank, nil})

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body := string(sent(t, anthropic.Config{}, tt.req))
			var got []string
			for _, s := range []string{"S1", "S2", "S3"} {
				if strings.Contains(body, `"signature":"`+s+`"`) {
					got = append(got, s)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("blocks sent back (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"text.sse", "tools.sse", "overlap.sse"} {
		f.Add(string(stream(f, name)))
	}
	f.Add(lines(`{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking"}}`, `{"type":"message_stop"}`))
	f.Fuzz(func(t *testing.T, s string) {
		answer, err := receive(t, s, modeltest.Hello())
		if err != nil {
			var e *model.Error
			if !errors.As(err, &e) {
				t.Errorf("error %v is not a *model.Error", err)
			}
			return
		}
		// What was received can be stored and sent back.
		if _, err := json.Marshal(answer.Blocks); err != nil {
			t.Fatal(err)
		}
		req := modeltest.Hello()
		req.Messages = append(req.Messages, model.Message{
			Role: model.RoleAssistant, Blocks: answer.Blocks, Origin: model.Origin{Provider: "anthropic", Model: req.Model},
		})
		if body := sent(t, anthropic.Config{}, req); !json.Valid(body) {
			t.Errorf("the next request is not JSON: %s", body)
		}
	})
}

func BenchmarkStream(b *testing.B) {
	var s strings.Builder
	s.WriteString(lines(`{"type":"message_start","message":{"model":"m","usage":{"input_tokens":1}}}`, `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`))
	for range 1000 {
		s.WriteString("event: content_block_delta\n" + lines(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" token"}}`))
	}
	s.WriteString(lines(`{"type":"content_block_stop","index":0}`, `{"type":"message_stop"}`))
	client, _ := play(s.String())
	p := anthropic.New(anthropic.Config{APIKey: "sk-test", Client: client})
	req := modeltest.Hello()
	b.SetBytes(int64(s.Len()))
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range p.Stream(b.Context(), req) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

// What the provider has said before an answer broke off stands in the error.
func TestUsageOfAFailure(t *testing.T) {
	const start = `{"type":"message_start","message":{"model":"claude","usage":{"input_tokens":900,"cache_read_input_tokens":4000,"output_tokens":2}}}`
	want := model.Usage{Input: 900, CacheRead: 4000, Output: 2}
	for name, stream := range map[string]string{
		"cut":       lines(start),
		"failed":    lines(start, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`),
		"malformed": lines(start, `{"type":"content_block_stop","index":7}`),
	} {
		_, err := receive(t, stream, modeltest.Hello())
		var failed *model.Error
		if !errors.As(err, &failed) || failed.Usage != want {
			t.Errorf("%s: %v with the usage %+v, want %+v", name, err, failed.Usage, want)
		}
	}
}
