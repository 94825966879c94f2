package openai_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/openai"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// lines returns a stream with one event for each line of data.
func lines(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		b.WriteString("data: " + d + "\n\n")
	}
	return b.String()
}

// choice returns a chunk with the delta given.
func choice(delta string) string {
	return `{"model":"m","choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}`
}

// finish returns the chunk that ends an answer.
func finish(reason string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

// receive returns what the codec makes of a stream that answers req.
func receive(t testing.TB, stream string, req *model.Request) (modeltest.Answer, error) {
	t.Helper()
	client, _ := play(stream)
	p := openai.New(openai.Config{APIKey: "sk-test", Client: client})
	return modeltest.Collect(t, p.Stream(t.Context(), req))
}

func TestDecode(t *testing.T) {
	text := func(s string) model.Block { return model.Block{Kind: model.Text, Text: s} }
	reasoning := func(s string) model.Block { return model.Block{Kind: model.Reasoning, Text: s} }
	call := func(name, args string) model.Block {
		return model.Block{Kind: model.ToolCall, Name: name, Arguments: args}
	}
	const stop, toolUse = model.StopEnd, model.StopToolUse
	tests := []struct {
		name   string
		stream string
		blocks []model.Block
		stop   model.StopReason
	}{
		{"nothing but an end", lines(finish("stop")), nil, stop},
		{"no [DONE]", lines(choice(`{"content":"a"}`), finish("stop")), []model.Block{text("a")}, stop},
		{"content with the reason", lines(`{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`), []model.Block{text("a")}, stop},
		{"empty reasons", lines(`{"choices":[{"delta":{"content":"a"},"finish_reason":""}]}`, finish("stop")), []model.Block{text("a")}, stop},
		{"other choices", lines(`{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"stop"},{"index":0,"delta":{"content":"a"}}]}`, finish("stop")), []model.Block{text("a")}, stop},
		{"both names of reasoning", lines(choice(`{"reasoning":"r","reasoning_content":"r"}`), finish("stop")), []model.Block{reasoning("r")}, stop},
		{"reasoning that is no text", lines(choice(`{"reasoning":{"effort":"low"},"content":"a"}`), finish("stop")), []model.Block{text("a")}, stop},
		{"reasoning, text, reasoning", lines(choice(`{"reasoning":"r"}`), choice(`{"content":"a"}`), choice(`{"reasoning":"s"}`), finish("stop")), []model.Block{reasoning("r"), text("a"), reasoning("s")}, stop},
		{"content in parts", lines(choice(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"r"}]}]}`), choice(`{"content":[{"type":"text","text":"a"},{"type":"other"}]}`), finish("stop")), []model.Block{reasoning("r"), text("a")}, stop},
		{"refusal", lines(choice(`{"refusal":"I can"}`), choice(`{"refusal":"not"}`), finish("stop")), []model.Block{text("I cannot")}, model.StopFiltered},
		{"filtered", lines(choice(`{"content":"a"}`), finish("content_filter")), []model.Block{text("a")}, model.StopFiltered},
		{"unknown reason", lines(finish("eos")), nil, stop},
		{"stop with a call", lines(choice(`{"tool_calls":[{"index":0,"id":"1","function":{"name":"a","arguments":"{}"}}]}`), finish("stop")), []model.Block{call("a", "{}")}, stop},
		{"blank arguments stay blank", lines(choice(`{"tool_calls":[{"index":0,"id":"1","function":{"name":"a"}}]}`), finish("tool_calls")), []model.Block{call("a", "")}, toolUse},
		{"arguments that are no string", lines(choice(`{"tool_calls":[{"index":0,"id":"1","function":{"name":"a","arguments":{"n":1}}}]}`), finish("tool_calls")), []model.Block{call("a", `{"n":1}`)}, toolUse},
		{"null arguments", lines(choice(`{"tool_calls":[{"index":0,"id":"1","function":{"name":"a","arguments":null}}]}`), finish("tool_calls")), []model.Block{call("a", "")}, toolUse},
		{"text after a call", lines(choice(`{"tool_calls":[{"index":0,"id":"1","function":{"name":"a","arguments":"{}"}}]}`), choice(`{"content":"b"}`), finish("tool_calls")), []model.Block{call("a", "{}"), text("b")}, toolUse},
		{
			"calls that take turns", lines(
				choice(`{"tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"a","arguments":""}}]}`),
				choice(`{"tool_calls":[{"index":1,"id":"2","type":"function","function":{"name":"b","arguments":"{\"n\""}}]}`),
				choice(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"n\""}}]}`),
				choice(`{"tool_calls":[{"index":1,"function":{"arguments":":2}"}},{"index":0,"function":{"arguments":":1}"}}]}`), finish("tool_calls")),
			[]model.Block{{Kind: model.ToolCall, CallID: "1", Name: "a", Arguments: `{"n":1}`}, {Kind: model.ToolCall, CallID: "2", Name: "b", Arguments: `{"n":2}`}},
			model.StopToolUse,
		},
		{"id and name in each piece", lines(
			choice(`{"tool_calls":[{"index":0,"id":"1","function":{"name":"a","arguments":"{\"n\""}}]}`),
			choice(`{"tool_calls":[{"index":0,"id":"1","function":{"name":"a","arguments":":1}"}}]}`),
			choice(`{"tool_calls":[{"index":0,"id":"1","function":{"name":"a","arguments":""}}]}`), finish("tool_calls")), []model.Block{call("a", `{"n":1}`)}, toolUse},
		{"one index, own ids", lines(
			choice(`{"tool_calls":[{"index":0,"id":"1","function":{"name":"a","arguments":"{\"n\":1}"}}]}`),
			choice(`{"tool_calls":[{"index":0,"id":"2","function":{"name":"b","arguments":"{\"n\":2}"}}]}`), finish("tool_calls")), []model.Block{call("a", `{"n":1}`), call("b", `{"n":2}`)}, toolUse},
		{"one index, no ids", lines(
			choice(`{"tool_calls":[{"index":0,"function":{"name":"a","arguments":"{\"n\":1}"}}]}`),
			choice(`{"tool_calls":[{"index":0,"function":{"name":"a","arguments":"{\"n\":2}"}}]}`), finish("tool_calls")), []model.Block{call("a", `{"n":1}`), call("a", `{"n":2}`)}, toolUse},
		{"no index", lines(
			choice(`{"tool_calls":[{"id":"1","function":{"name":"a","arguments":"{\"n\""}},{"id":"2","function":{"name":"b","arguments":"{"}}]}`),
			choice(`{"tool_calls":[{"id":"1","function":{"arguments":":1}"}},{"id":"2","function":{"arguments":"}"}}]}`), finish("tool_calls")), []model.Block{call("a", `{"n":1}`), call("b", `{}`)}, toolUse},
		{"neither index nor id", lines(
			choice(`{"tool_calls":[{"function":{"name":"a","arguments":"{\"n\""}}]}`),
			choice(`{"tool_calls":[{"function":{"arguments":":1}"}}]}`), finish("tool_calls")), []model.Block{call("a", `{"n":1}`)}, toolUse},
		{"huge index", lines(choice(`{"tool_calls":[{"index":2000000000,"id":"1","function":{"name":"a","arguments":"{}"}}]}`), finish("tool_calls")), []model.Block{call("a", "{}")}, toolUse},
		{"what Azure's filter says apart", lines(choice(`{"content":"a"}`), `{"choices":[{"content_filter_offsets":{"check_offset":44},"content_filter_results":{},"finish_reason":null,"index":0}],"created":0,"id":"","model":"","object":""}`, finish("stop")), []model.Block{text("a")}, stop},
		{"broken after the reason", lines(choice(`{"content":"a"}`), finish("stop")) + "data: {oops\n\n", []model.Block{text("a")}, stop},
		{"cut after the reason", lines(choice(`{"content":"a"}`), finish("stop")) + "data: {\"usa", []model.Block{text("a")}, stop},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := receive(t, tt.stream, modeltest.Hello())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.blocks, got.Blocks, cmpopts.IgnoreFields(model.Block{}, "CallID")); diff != "" {
				t.Errorf("blocks (-want +got):\n%s", diff)
			}
			if got.Done.Stop != tt.stop {
				t.Errorf("stop = %s, want %s", got.Done.Stop, tt.stop)
			}
		})
	}
}

func TestDecodeFailures(t *testing.T) {
	for _, tt := range []struct {
		name, stream string
		class        model.Class
		part         string
	}{
		{"error within a call", lines(choice(`{"tool_calls":[{"index":0,"id":"1","function":{"name":"a","arguments":"{\"n"}}]}`), `{"error":{"message":"Service overloaded","code":503}}`), model.Overloaded, "overloaded"},
		{"error object", lines(choice(`{"content":"a"}`), `{"error":{"message":"overloaded","type":"server_error"}}`), model.Overloaded, "overloaded"},
		{"numbered error", lines(`{"error":{"code":401,"message":"no credits"}}`), model.Auth, "no credits"},
		{"error event", "event: error\n" + lines(`{"message":"gone"}`), model.Retryable, "gone"},
		{"error event that is no JSON", "event: error\n" + lines(`Service overloaded`), model.Overloaded, "overloaded"},
		{"vLLM", lines(`{"object":"error","message":"This model's maximum context length is 10","code":400}`), model.Overflow, "maximum context"},
		{"reason error", lines(choice(`{"content":"a"}`), finish("error"), "[DONE]"), model.Retryable, `"error"`},
		{"reason network_error", lines(finish("network_error")), model.Retryable, "network_error"},
		{"[DONE] without a reason", lines(choice(`{"content":"a"}`), "[DONE]"), model.Retryable, "without a finish reason"},
		{"end without a reason", lines(choice(`{"content":"a"}`)), model.Retryable, "cut"},
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

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		name, chunk string
		want        model.Usage
	}{
		{"plain", `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`, model.Usage{Input: 10, Output: 5}},
		{"details", `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":7,"cache_write_tokens":2},"completion_tokens_details":{"reasoning_tokens":3}}}`, model.Usage{Input: 1, Output: 5, CacheRead: 7, CacheWrite: 2, Reasoning: 3}},
		{"null details", `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":null,"completion_tokens_details":null}}`, model.Usage{Input: 10, Output: 5}},
		{"reasoning counted apart", `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":18,"completion_tokens_details":{"reasoning_tokens":3}}}`, model.Usage{Input: 10, Output: 8, Reasoning: 3}},
		{"DeepSeek", `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"prompt_cache_hit_tokens":4}}`, model.Usage{Input: 6, Output: 5, CacheRead: 4}},
		{"Moonshot", `{"choices":[{"index":0,"delta":{},"usage":{"prompt_tokens":10,"completion_tokens":5,"cached_tokens":4}}]}`, model.Usage{Input: 6, Output: 5, CacheRead: 4}},
		{"more cached than read", `{"choices":[],"usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":7}}}`, model.Usage{CacheRead: 7}},
		{"null", `{"choices":[],"usage":null}`, model.Usage{}},
	} {
		got, err := receive(t, lines(choice(`{"content":"a"}`), finish("stop"), tt.chunk, "[DONE]"), modeltest.Hello())
		if err != nil || got.Done.Usage != tt.want {
			t.Errorf("%s: usage = %+v, %v; want %+v", tt.name, got.Done.Usage, err, tt.want)
		}
	}
}

func TestCallIDsAreUnique(t *testing.T) {
	req := modeltest.Hello()
	req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Blocks: []model.Block{{Kind: model.ToolCall, CallID: "call_0"}}})
	got, err := receive(t, lines(
		choice(`{"tool_calls":[{"index":0,"id":"call_0","function":{"name":"a"}},{"index":1,"function":{"name":"b"}},{"index":2,"id":"x","function":{"name":"c"}},{"index":3,"id":"x","function":{"name":"d"}}]}`),
		finish("tool_calls")), req)
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

// What a server wants back beside the text goes back as it came, in one place,
// and only to the model that sent it.
func TestDetailsAreReplayed(t *testing.T) {
	answer, err := receive(t, string(stream(t, "details.sse")), modeltest.Hello())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		origin model.Origin
		want   string
	}{
		{
			"same model",
			model.Origin{Provider: "openai", Model: "test-model"},
			`{"role":"assistant","content":"Checking.","reasoning_details":[{"format":"anthropic-claude-v1","index":0,"signature":"c2ln","text":"Let me see.","type":"reasoning.text"},{"type":"reasoning.encrypted","data":"ZW5j","format":"google-gemini-v1","index":1}],"tool_calls":[{"id":"tool_0_now","type":"function","function":{"name":"now","arguments":"{}"},"extra_content":{"google":{"thought_signature":"AY89a+/="}}}]}`,
		},
		{
			"another model",
			model.Origin{Provider: "openai", Model: "other"},
			`{"role":"assistant","content":"Checking.","tool_calls":[{"id":"tool_0_now","type":"function","function":{"name":"now","arguments":"{}"}}]}`,
		},
	} {
		req := modeltest.Hello()
		req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Blocks: answer.Blocks, Origin: tt.origin})
		var body struct{ Messages []json.RawMessage }
		if err := json.Unmarshal(sent(t, openai.Config{}, req), &body); err != nil {
			t.Fatal(err)
		}
		if got := string(body.Messages[1]); got != tt.want {
			t.Errorf("%s: sent\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// A server that neither ends its stream nor says anything more, once the answer
// is whole, holds nobody up for long.
func TestEpilogueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			body, w := io.Pipe()
			go func() { _, _ = io.WriteString(w, lines(choice(`{"content":"a"}`), finish("stop"))) }()
			go func() { <-r.Context().Done(); w.CloseWithError(r.Context().Err()) }()
			return &http.Response{StatusCode: 200, Request: r, Body: body, Header: http.Header{"Content-Type": {"text/event-stream"}}}, nil
		})}
		start := time.Now()
		got, err := modeltest.Collect(t, openai.New(openai.Config{APIKey: "k", Client: client}).Stream(t.Context(), modeltest.Hello()))
		if err != nil || got.Done == nil {
			t.Errorf("done = %v, error = %v", got.Done, err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"text.sse", "tools.sse", "bare.sse", "details.sse", "reasoning.sse"} {
		f.Add(string(stream(f, name)))
	}
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
			Role: model.RoleAssistant, Blocks: answer.Blocks, Origin: model.Origin{Provider: "openai", Model: req.Model},
		})
		if body := sent(t, openai.Config{}, req); !json.Valid(body) {
			t.Errorf("the next request is not JSON: %s", body)
		}
	})
}

func BenchmarkStream(b *testing.B) {
	var s strings.Builder
	for range 1000 {
		s.WriteString(lines(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764490000,"model":"m","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}`))
	}
	s.WriteString(lines(finish("stop"), "[DONE]"))
	client, _ := play(s.String())
	p := openai.New(openai.Config{APIKey: "sk-test", Client: client})
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
	used := `"usage":{"prompt_tokens":4900,"completion_tokens":2,"total_tokens":4902,"prompt_tokens_details":{"cached_tokens":4000}}`
	begun := `{"choices":[{"index":0,"delta":{"content":"a"}}],` + used + `}`
	for name, stream := range map[string]string{
		"cut":                      lines(begun),
		"failed":                   lines(begun, `{"error":{"message":"overloaded"}}`),
		"counted with what failed": lines(`{"error":{"message":"overloaded"},` + used + `}`),
		"given up":                 lines(begun, finish("error")),
	} {
		_, err := receive(t, stream, modeltest.Hello())
		wantUsage(t, name, err)
	}
}

// What the server says of a response that failed is used stands in the error.
func TestUsageOfAFailedResponse(t *testing.T) {
	used := `"usage":{"input_tokens":4900,"output_tokens":2,"input_tokens_details":{"cached_tokens":4000}}`
	begun := `{"type":"response.in_progress","response":{` + used + `}}`
	for name, stream := range map[string]string{
		"cut":       lines(begun),
		"failed":    lines(`{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"gone"},` + used + `}}`),
		"no reason": lines(`{"type":"response.failed","response":{"status":"failed",` + used + `}}`),
	} {
		client, _ := play(stream)
		p := openai.NewResponses(openai.Config{APIKey: "sk-test", Client: client})
		_, err := modeltest.Collect(t, p.Stream(t.Context(), modeltest.Hello()))
		wantUsage(t, name, err)
	}
}

func wantUsage(t *testing.T, name string, err error) {
	t.Helper()
	want := model.Usage{Input: 900, CacheRead: 4000, Output: 2}
	var failed *model.Error
	if !errors.As(err, &failed) || failed.Usage != want {
		t.Errorf("%s: %#v, want the usage %+v", name, err, want)
	}
}
