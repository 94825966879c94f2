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

// receiveResponse returns what the codec makes of a stream that answers req.
func receiveResponse(t testing.TB, stream string, req *model.Request) (modeltest.Answer, error) {
	t.Helper()
	client, _ := play(stream)
	p := openai.NewResponses(openai.Config{APIKey: "sk-test", Client: client})
	return modeltest.Collect(t, p.Stream(t.Context(), req))
}

// Events of a response.
const (
	completed  = `{"type":"response.completed","response":{"status":"completed"}}`
	addMessage = `{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"msg_1","content":[]}}`
	addCall    = `{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc_1","call_id":"call_1","name":"now","arguments":""}}`
	addReason  = `{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[]}}`
)

func itemDone(index, item string) string {
	return `{"type":"response.output_item.done","output_index":` + index + `,"item":` + item + `}`
}

func delta(kind, index, text string) string {
	return `{"type":"response.` + kind + `.delta","output_index":` + index + `,"delta":"` + text + `"}`
}

func TestResponsesDecode(t *testing.T) {
	text := func(s string) model.Block { return model.Block{Kind: model.Text, Text: s} }
	reasoning := func(s string) model.Block { return model.Block{Kind: model.Reasoning, Text: s} }
	call := func(name, args string) model.Block {
		return model.Block{Kind: model.ToolCall, Name: name, Arguments: args}
	}
	doneCall := itemDone("0", `{"type":"function_call","id":"fc_1","call_id":"call_1","name":"now","arguments":"{\"n\":1}"}`)
	for _, tt := range []struct {
		name   string
		stream string
		blocks []model.Block
		stop   model.StopReason
		reason string
	}{
		{"nothing but an end", lines(completed), nil, model.StopEnd, "completed"},
		{"an end without a status", lines(`{"type":"response.completed","response":{}}`), nil, model.StopEnd, "completed"},
		{"named by the event alone", "event: response.completed\n" + lines(`{"response":{}}`), nil, model.StopEnd, "completed"},
		{"text", lines(addMessage, delta("output_text", "0", "a"), completed), []model.Block{text("a")}, model.StopEnd, "completed"},
		{"text of an item that was not announced", lines(delta("output_text", "0", "a"), completed), []model.Block{text("a")}, model.StopEnd, "completed"},
		{"reasoning that was not announced", lines(delta("reasoning_text", "0", "r"), completed), []model.Block{reasoning("r")}, model.StopEnd, "completed"},
		{"arguments of a call that was not announced", lines(delta("function_call_arguments", "0", "{"), doneCall, completed), []model.Block{call("now", `{"n":1}`)}, model.StopToolUse, "completed"},
		{"a call without deltas", lines(addCall, doneCall, completed), []model.Block{call("now", `{"n":1}`)}, model.StopToolUse, "completed"},
		{"a call with a part of its deltas", lines(addCall, delta("function_call_arguments", "0", `{\"n`), doneCall, completed), []model.Block{call("now", `{"n":1}`)}, model.StopToolUse, "completed"},
		{"a call that does not end", lines(addCall, delta("function_call_arguments", "0", `{}`), completed), []model.Block{call("now", `{}`)}, model.StopToolUse, "completed"},
		{"arguments that are no string", lines(itemDone("0", `{"type":"function_call","call_id":"c","name":"now","arguments":{"n":1}}`), completed), []model.Block{call("now", `{"n":1}`)}, model.StopToolUse, "completed"},
		{"null arguments", lines(itemDone("0", `{"type":"function_call","call_id":"c","name":"now","arguments":null}`), completed), []model.Block{call("now", ``)}, model.StopToolUse, "completed"},
		{"announced twice", lines(addMessage, addMessage, delta("output_text", "0", "a"), completed), []model.Block{text("a")}, model.StopEnd, "completed"},
		{"ended twice", lines(addCall, doneCall, doneCall, completed), []model.Block{call("now", `{"n":1}`)}, model.StopToolUse, "completed"},
		{"an index used twice", lines(doneCall, itemDone("0", `{"type":"message","id":"msg_1","content":[{"type":"output_text","text":"b"}]}`), completed), []model.Block{call("now", `{"n":1}`), text("b")}, model.StopToolUse, "completed"},
		{"text after its end", lines(addMessage, itemDone("0", `{"type":"message","id":"msg_1","content":[]}`), delta("output_text", "0", "late"), completed), []model.Block{text("")}, model.StopEnd, "completed"},
		{"two parts", lines(itemDone("0", `{"type":"message","content":[{"type":"output_text","text":"a"},{"type":"output_text","text":"b"}]}`), completed), []model.Block{text("ab")}, model.StopEnd, "completed"},
		{"summaries without deltas", lines(itemDone("0", `{"type":"reasoning","summary":[{"type":"summary_text","text":"a"},{"type":"summary_text","text":"b"}]}`), completed), []model.Block{reasoning("a\n\nb")}, model.StopEnd, "completed"},
		{"a summary that says other than its deltas", lines(addReason, delta("reasoning_summary_text", "0", "a"), itemDone("0", `{"type":"reasoning","id":"rs_1","summary":[{"text":"b"}]}`), completed), []model.Block{reasoning("a")}, model.StopEnd, "completed"},
		{"reasoning without words", lines(addReason, itemDone("0", `{"type":"reasoning","id":"rs_1","summary":[]}`), completed), []model.Block{reasoning("")}, model.StopEnd, "completed"},
		{"refused", lines(addMessage, delta("refusal", "0", "No."), completed), []model.Block{text("No.")}, model.StopFiltered, "refusal"},
		{"refused without deltas", lines(itemDone("0", `{"type":"message","content":[{"type":"refusal","refusal":"No."}]}`), completed), []model.Block{text("No.")}, model.StopFiltered, "refusal"},
		{"filtered before a word", lines(`{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"}}}`), nil, model.StopFiltered, "content_filter"},
		{"incomplete for another reason", lines(addMessage, delta("output_text", "0", "a"), `{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_messages"}}}`), []model.Block{text("a")}, model.StopLength, "max_messages"},
		{"incomplete for no reason", lines(`{"type":"response.incomplete","response":{"incomplete_details":null}}`), nil, model.StopLength, "incomplete"},
		{"cut by a limit with a call before", lines(doneCall, `{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"}}}`), []model.Block{call("now", `{"n":1}`)}, model.StopLength, "max_output_tokens"},
		{"a server that does not stream", lines(`{"type":"response.completed","response":{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"a"}]},{"type":"function_call","call_id":"c","name":"now","arguments":"{}"}]}}`), []model.Block{text("a"), call("now", "{}")}, model.StopToolUse, "completed"},
		{"items and events of a later API", lines(
			`{"type":"response.output_item.added","output_index":0,"item":{"type":"web_search_call","id":"ws_1"}}`,
			`{"type":"response.shell_call_output_content.delta","output_index":0,"delta":{"stdout":"x"}}`,
			`{"type":"response.telepathy","output_index":"first"}`, `{"type":"keepalive"}`, `{}`, `7`,
			itemDone("0", `{"type":"web_search_call","id":"ws_1"}`), addMessage, delta("output_text", "0", "a"), completed), []model.Block{text("a")}, model.StopEnd, "completed"},
		{"more after the end", lines(completed, `{"type":"error","message":"x"}`, "{oops"), nil, model.StopEnd, "completed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := receiveResponse(t, tt.stream, modeltest.Hello())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.blocks, got.Blocks, cmpopts.IgnoreFields(model.Block{}, "CallID", "Opaque")); diff != "" {
				t.Errorf("blocks (-want +got):\n%s", diff)
			}
			if got.Done.Stop != tt.stop || got.Done.Reason != tt.reason {
				t.Errorf("stop = %s (%s), want %s (%s)", got.Done.Stop, got.Done.Reason, tt.stop, tt.reason)
			}
		})
	}
}

func TestResponsesFailures(t *testing.T) {
	failed := func(code, message string) string {
		return lines(addMessage, delta("output_text", "0", "a"),
			`{"type":"response.failed","response":{"status":"failed","error":{"code":"`+code+`","message":"`+message+`"}}}`)
	}
	for _, tt := range []struct {
		name, stream string
		class        model.Class
		part         string
	}{
		{"server error", failed("server_error", "An error occurred."), model.Retryable, "An error occurred."},
		{"flagged", failed("invalid_prompt", "Invalid prompt: it was flagged."), model.Filtered, "flagged"},
		{"policy", failed("bio_policy", "not allowed"), model.Filtered, "not allowed"},
		{"overloaded", failed("server_is_overloaded", "too many"), model.Overloaded, "too many"},
		{"bad image", failed("invalid_image_format", "no image"), model.Invalid, "no image"},
		{"rate limit", failed("rate_limit_exceeded", "Rate limit reached. Please try again in 6.5s."), model.RateLimited, "Rate limit"},
		{"a request larger than the rate", failed("rate_limit_exceeded", "Request too large for gpt-5."), model.Overflow, "too large"},
		{"quota", failed("insufficient_quota", "You exceeded your current quota."), model.Quota, "quota"},
		{"overflow", failed("context_length_exceeded", "Your input exceeds the context window of this model."), model.Overflow, "context window"},
		{"no reason", lines(`{"type":"response.failed","response":{"status":"failed","error":null}}`), model.Retryable, "gave up"},
		{"error event as documented", lines(`{"type":"error","code":"server_error","message":"gone","param":null,"sequence_number":3}`), model.Retryable, "gone"},
		{"error event as it comes", lines(`{"type":"error","error":{"type":"server_error","code":"server_error","message":"gone"}}`), model.Retryable, "gone"},
		{"event named error", "event: error\n" + lines(`{"message":"gone"}`), model.Retryable, "gone"},
		{"event named error that is no JSON", "event: error\n" + lines(`Service overloaded`), model.Overloaded, "overloaded"},
		{"failure of a gateway", lines(`{"error":{"code":"401","message":"no access"}}`), model.Auth, "no access"},
		{"not JSON", lines(`{"type":`), model.Retryable, "malformed"},
		{"[DONE] without an end", lines(addMessage, "[DONE]"), model.Retryable, "cut"},
		{"end without an end", lines(addMessage, itemDone("0", `{"type":"message","content":[]}`)), model.Retryable, "cut"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := receiveResponse(t, tt.stream, modeltest.Hello())
			var e *model.Error
			if !errors.As(err, &e) || e.Class != tt.class || !strings.Contains(e.Message, tt.part) {
				t.Errorf("error = %v, want class %s and %q", err, tt.class, tt.part)
			}
		})
	}
}

// What is sent back of a reasoning item, and when nothing can be.
func TestReasoningThatCannotBeReplayed(t *testing.T) {
	response := func(output string) string {
		return `{"type":"response.completed","response":{"status":"completed","output":[` + output + `]}}`
	}
	end := func(item string) string { return itemDone("0", item) }
	for _, tt := range []struct {
		name, stream, opaque string
	}{
		{"encrypted", lines(addReason, end(`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x","more":1}`), completed), `{"item":{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x","more":1}}`},
		{"in the clear", lines(addReason, end(`{"type":"reasoning","id":"","content":[{"type":"reasoning_text","text":"r"}]}`), completed), `{"item":{"type":"reasoning","id":"","content":[{"type":"reasoning_text","text":"r"}]}}`},
		{"nothing but an id", lines(addReason, end(`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":null}`), completed), ""},
		{"nothing but a summary", lines(addReason, end(`{"type":"reasoning","id":"rs_1","summary":[{"text":"s"}],"content":[]}`), completed), ""},
		{"cut by a limit", lines(addReason, end(`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x","status":"incomplete"}`), completed), ""},
		{"no end", lines(addReason, completed), ""},
		{"the rest with the response", lines(addReason, end(`{"type":"reasoning","id":"rs_1","summary":[]}`), response(`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"}`)), `{"item":{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"}}`},
		{"something else with the response", lines(addReason, end(`{"type":"reasoning","id":"rs_1","summary":[]}`), response(`{"type":"message","id":"msg_1","content":[{"text":"a"}]}`)), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := receiveResponse(t, tt.stream, modeltest.Hello())
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Blocks) != 1 || string(got.Blocks[0].Opaque) != tt.opaque {
				t.Errorf("blocks = %+v, want one that keeps %s", got.Blocks, tt.opaque)
			}
		})
	}
}

func TestResponsesUsage(t *testing.T) {
	usage := func(u string) string {
		return `{"type":"response.completed","response":{"status":"completed","usage":` + u + `}}`
	}
	for _, tt := range []struct {
		name, stream string
		want         model.Usage
	}{
		{"plain", lines(usage(`{"input_tokens":10,"output_tokens":5,"total_tokens":15}`)), model.Usage{Input: 10, Output: 5}},
		{"details", lines(usage(`{"input_tokens":10,"output_tokens":5,"input_tokens_details":{"cached_tokens":7,"cache_write_tokens":2},"output_tokens_details":{"reasoning_tokens":3}}`)), model.Usage{Input: 1, Output: 5, CacheRead: 7, CacheWrite: 2, Reasoning: 3}},
		{"null details", lines(usage(`{"input_tokens":10,"output_tokens":5,"input_tokens_details":null,"output_tokens_details":null}`)), model.Usage{Input: 10, Output: 5}},
		{"more cached than read", lines(usage(`{"input_tokens":1,"input_tokens_details":{"cached_tokens":7}}`)), model.Usage{CacheRead: 7}},
		{"before the end", lines(`{"type":"response.in_progress","response":{"usage":{"input_tokens":10,"output_tokens":5}}}`, usage("null")), model.Usage{Input: 10, Output: 5}},
		{"of an answer that was cut", lines(`{"type":"response.incomplete","response":{"usage":{"input_tokens":10,"output_tokens":5}}}`), model.Usage{Input: 10, Output: 5}},
		{"none", lines(completed), model.Usage{}},
	} {
		got, err := receiveResponse(t, tt.stream, modeltest.Hello())
		if err != nil || got.Done.Usage != tt.want {
			t.Errorf("%s: usage = %+v, %v; want %+v", tt.name, got.Done, err, tt.want)
		}
	}
}

// What OpenRouter says that a call cost is believed, what others say is not.
func TestResponsesCharged(t *testing.T) {
	for base, want := range map[string]float64{"https://openrouter.ai/api/v1": 0.25, "https://api.openai.com/v1": 0} {
		client, _ := play(lines(`{"type":"response.completed","response":{"usage":{"input_tokens":10,"output_tokens":5,"cost":0.25}}}`))
		got, err := modeltest.Collect(t, openai.NewResponses(openai.Config{BaseURL: base, APIKey: "k", Client: client}).Stream(t.Context(), modeltest.Hello()))
		if err != nil {
			t.Fatal(err)
		}
		if c := got.Done.Charged; (c != nil) != (want != 0) || c != nil && *c != want {
			t.Errorf("%s: charged = %v, want %v", base, c, want)
		}
	}
}

// A model that reasons in silence is waited for longer than one that talks.
func TestResponsesPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			body, w := io.Pipe()
			go func() {
				_, _ = io.WriteString(w, lines(addReason))
				select {
				case <-time.After(4 * time.Minute):
					_, _ = io.WriteString(w, lines(completed))
				case <-r.Context().Done():
				}
				_ = w.Close()
			}()
			return &http.Response{StatusCode: 200, Request: r, Body: body, Header: http.Header{"Content-Type": {"text/event-stream"}}}, nil
		})}
		for limit, ok := range map[time.Duration]bool{0: true, time.Minute: false} {
			p := openai.NewResponses(openai.Config{APIKey: "k", Client: client, IdleTimeout: limit})
			if _, err := modeltest.Collect(t, p.Stream(t.Context(), modeltest.Hello())); (err == nil) != ok {
				t.Errorf("idle timeout %v: error = %v", limit, err)
			}
		}
	})
}

func TestResponsesCallIDsAreUnique(t *testing.T) {
	call := func(index, id string) string {
		return itemDone(index, `{"type":"function_call","id":"fc_`+index+`","call_id":"`+id+`","name":"now","arguments":"{}"}`)
	}
	req := modeltest.Hello()
	req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Blocks: []model.Block{{Kind: model.ToolCall, CallID: "call_0"}}})
	got, err := receiveResponse(t, lines(call("0", "call_0"), call("1", ""), call("2", "x"), call("3", "x"), completed), req)
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

// Arguments arrive while they are written, those of parallel calls mixed.
func TestResponsesArgumentsStream(t *testing.T) {
	got, err := receiveResponse(t, string(stream(t, "responses/tools.sse")), modeltest.Hello())
	if err != nil {
		t.Fatal(err)
	}
	var deltas []model.Delta
	for _, e := range got.Events {
		if d, ok := e.(model.Delta); ok && d.Kind == model.ToolCall {
			deltas = append(deltas, d)
		}
	}
	want := []model.Delta{
		{Index: 2, Kind: model.ToolCall, Text: `{"orderId"`, CallID: "call_DdmO9pD3", Name: "lookup_order"},
		{Index: 4, Kind: model.ToolCall, Text: `{"orderId":"caf`, CallID: "call_3AqUoUcL", Name: "lookup_order"},
		{Index: 2, Kind: model.ToolCall, Text: `: "ORD-1"}`, CallID: "call_DdmO9pD3", Name: "lookup_order"},
		{Index: 4, Kind: model.ToolCall, Text: `é \u2603"}`, CallID: "call_3AqUoUcL", Name: "lookup_order"},
	}
	if diff := cmp.Diff(want, deltas); diff != "" {
		t.Errorf("deltas of calls (-want +got):\n%s", diff)
	}
}

func FuzzResponsesDecode(f *testing.F) {
	for _, name := range []string{"text", "tools", "length", "refusal", "azure", "rotated", "bare"} {
		f.Add(string(stream(f, "responses/"+name+".sse")))
	}
	f.Add(lines(addReason, delta("reasoning_text", "0", "r"), delta("reasoning_summary_text", "0", "s"), completed))
	f.Fuzz(func(t *testing.T, s string) {
		answer, err := receiveResponse(t, s, modeltest.Hello())
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
		checkInput(t, sentResponse(t, openai.Config{}, req))
	})
}

// FuzzResponsesEncode sends whatever a history may hold in Opaque and checks
// that the request is one that the API takes.
func FuzzResponsesEncode(f *testing.F) {
	f.Add(`{"item":`+reasoned+`}`, `{"id":"msg_1","after":"rs_1"}`, `{"id":"fc_1","after":"rs_1"}`, `{"n":1}`, "text", "call_1")
	f.Add(`{"item":{"id":"rs_1"}}`, ``, `{"id":7}`, `{"s":"\ud83d"}`, " ", "")
	f.Add(`[]`, `{"phase":"x"}`, `{"item":[]}`, `{"a":1,"a":2}`, "\xff", "a b")
	f.Fuzz(func(t *testing.T, reasoning, text, call, arguments, words, id string) {
		req := modeltest.Hello()
		req.Messages = append(req.Messages, model.Message{
			Role: model.RoleAssistant, Origin: model.Origin{Provider: "openai", Model: req.Model},
			Blocks: []model.Block{
				{Kind: model.Reasoning, Opaque: json.RawMessage(reasoning)},
				{Kind: model.Text, Text: words, Opaque: json.RawMessage(text)},
				{Kind: model.Reasoning, Opaque: json.RawMessage(reasoning)},
				{Kind: model.ToolCall, CallID: id, Name: words, Arguments: arguments, Opaque: json.RawMessage(call)},
				{Kind: model.Reasoning, Opaque: json.RawMessage(reasoning)},
			},
		})
		checkInput(t, sentResponse(t, openai.Config{}, req))
	})
}

// checkInput checks the rules of the API that a request must hold to.
func checkInput(t *testing.T, body []byte) {
	t.Helper()
	var r struct{ Input []json.RawMessage }
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatalf("the next request is not JSON: %v: %s", err, body)
	}
	kinds := make([]string, len(r.Input))
	called, answered := map[string]bool{}, map[string]bool{}
	for i, raw := range r.Input {
		var item struct {
			Type, Name, Arguments string
			CallID                string `json:"call_id"`
			Role                  string
		}
		_ = json.Unmarshal(raw, &item)
		kinds[i] = item.Type
		switch item.Type {
		case "function_call":
			called[item.CallID] = true
			if item.Name == "" || item.CallID == "" || !strings.HasPrefix(item.Arguments, "{") || !json.Valid([]byte(item.Arguments)) {
				t.Errorf("item %d is no call: %s", i, raw)
			}
		case "function_call_output":
			if !called[item.CallID] || answered[item.CallID] {
				t.Errorf("item %d answers no call, or one that is answered: %s", i, raw)
			}
			answered[item.CallID] = true
		}
	}
	if len(called) != len(answered) {
		t.Errorf("%d calls, %d answers: %s", len(called), len(answered), body)
	}
	if last := kinds[len(kinds)-1]; last != "message" && last != "function_call_output" {
		t.Errorf("the input ends with %s: %s", last, body)
	}
}
