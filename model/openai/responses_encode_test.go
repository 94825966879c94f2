package openai_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/openai"
	"github.com/google/go-cmp/cmp"
)

// emptyResponse is the shortest answer of the Responses API.
const emptyResponse = `data: {"type":"response.completed","response":{"status":"completed","output":[]}}` + "\n\n"

// sentResponse returns the body that c sends for req to the Responses API.
func sentResponse(t testing.TB, c openai.Config, req *model.Request) []byte {
	t.Helper()
	client, last := play(emptyResponse)
	c.Client, c.APIKey = client, "sk-test"
	if _, err := modeltest.Collect(t, openai.NewResponses(c).Stream(t.Context(), req)); err != nil {
		t.Fatal(err)
	}
	_, body := last()
	return body
}

// reasoned is a reasoning item as OpenAI sends it.
const reasoned = `{"id":"rs_1","type":"reasoning","encrypted_content":"gAAAA<&>+/==","summary":[{"type":"summary_text","text":"Two orders, two lookups."}]}`

// after is the Opaque of an item that followed that one.
func after(id string) json.RawMessage {
	return json.RawMessage(`{"id":"` + id + `","after":"rs_1"}`)
}

// conversation is modeltest.Conversation as the Responses API leaves it behind.
func conversation(own model.Origin) *model.Request {
	req := modeltest.Conversation(own, json.RawMessage(`{"item":`+reasoned+`}`))
	blocks := req.Messages[1].Blocks
	blocks[1].Opaque = json.RawMessage(`{"id":"msg_1","phase":"commentary","after":"rs_1"}`)
	blocks[2].Opaque, blocks[3].Opaque = after("fc_1"), after("fc_2")
	return req
}

func TestResponsesGoldenRequests(t *testing.T) {
	own := model.Origin{Provider: "openai", Model: "gpt-5.4"}
	for _, tt := range []struct {
		name string
		req  func() *model.Request
	}{
		{"hello.json", modeltest.Hello},
		{"conversation.json", func() *model.Request {
			req := conversation(own)
			req.Thinking, req.MaxOutput = model.ThinkingMedium, 4096
			req.Info = model.Info{MaxOutput: 128000, Reasoning: true}
			return req
		}},
		{"conversation_other_model.json", func() *model.Request {
			req := conversation(own)
			req.Model = "gpt-4.1"
			return req
		}},
		{"damaged.json", func() *model.Request { return modeltest.Damaged(own) }},
		{"unlocked.json", func() *model.Request { return modeltest.Unlocked(own) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			golden(t, "responses/"+tt.name, sentResponse(t, openai.Config{}, tt.req()))
		})
	}
}

// items returns the input that is sent for the blocks of an answer, without the
// messages around it, each item in short.
func items(t *testing.T, origin model.Origin, blocks ...model.Block) []string {
	t.Helper()
	req := modeltest.Hello()
	req.Model = "gpt-5.4"
	req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Origin: origin, Blocks: blocks})
	var body struct {
		Input []struct{ Type, ID, Role, Phase string }
	}
	if err := json.Unmarshal(sentResponse(t, openai.Config{}, req), &body); err != nil {
		t.Fatal(err)
	}
	var short []string
	for _, it := range body.Input {
		if it.Role == "user" || it.Type == "function_call_output" {
			continue
		}
		short = append(short, strings.TrimSpace(it.Type+" "+it.ID+" "+it.Phase))
	}
	return short
}

// Reasoning goes back only with what came after it, and what came after it
// names itself only with the reasoning.
func TestReasoningIsPaired(t *testing.T) {
	own := model.Origin{Provider: "openai", Model: "gpt-5.4"}
	reasoning := func(id string) model.Block {
		return model.Block{Kind: model.Reasoning, Opaque: json.RawMessage(`{"item":{"id":"` + id + `","type":"reasoning","encrypted_content":"x","summary":[]}}`)}
	}
	cut := model.Block{Kind: model.Reasoning, Text: "cut"}
	text := func(id string) model.Block { return model.Block{Kind: model.Text, Text: "a", Opaque: after(id)} }
	call := func(id string) model.Block {
		return model.Block{Kind: model.ToolCall, CallID: "call_" + id, Name: "now", Opaque: after(id)}
	}
	bare := func(b model.Block) model.Block { b.Opaque = nil; return b }
	with := func(b model.Block, opaque string) model.Block { b.Opaque = json.RawMessage(opaque); return b }
	blank := model.Block{Kind: model.Text, Text: " ", Opaque: after("msg_1")}
	for _, tt := range []struct {
		name   string
		origin model.Origin
		blocks []model.Block
		want   []string
	}{
		{"whole", own, []model.Block{reasoning("rs_1"), text("msg_1"), call("fc_1"), call("fc_2")}, []string{"reasoning rs_1", "message msg_1", "function_call fc_1", "function_call fc_2"}},
		{"another provider", model.Origin{Provider: "azure", Model: "gpt-5.4"}, []model.Block{reasoning("rs_1"), call("fc_1")}, []string{"function_call"}},
		{"another model", model.Origin{Provider: "openai", Model: "gpt-5.5"}, []model.Block{reasoning("rs_1"), text("msg_1"), call("fc_1")}, []string{"message", "function_call"}},
		{"nothing after it", own, []model.Block{call("fc_0"), reasoning("rs_1")}, []string{"function_call"}},
		{"cut", own, []model.Block{cut, bare(text(""))}, []string{"message"}},
		{"reasoning lost", own, []model.Block{text("msg_1"), call("fc_1")}, []string{"message", "function_call"}},
		{"reasoning not whole", own, []model.Block{cut, call("fc_1")}, []string{"function_call"}},
		{"the next item was cut", own, []model.Block{reasoning("rs_1"), bare(text("")), call("fc_1")}, []string{"message", "function_call"}},
		{"the next item is blank", own, []model.Block{reasoning("rs_1"), blank, call("fc_1")}, []string{"function_call"}},
		{"two in a row", own, []model.Block{reasoning("rs_0"), reasoning("rs_1"), call("fc_1")}, []string{"reasoning rs_0", "reasoning rs_1", "function_call fc_1"}},
		{"two units", own, []model.Block{reasoning("rs_0"), with(text(""), `{"id":"msg_0","after":"rs_0"}`), reasoning("rs_1"), call("fc_1")}, []string{"reasoning rs_0", "message msg_0", "reasoning rs_1", "function_call fc_1"}},
		{"only the first unit is whole", own, []model.Block{reasoning("rs_0"), with(text(""), `{"id":"msg_0","after":"rs_0"}`), cut, call("fc_1")}, []string{"reasoning rs_0", "message msg_0", "function_call"}},
		{"only the second unit is whole", own, []model.Block{cut, with(text(""), `{"id":"msg_0","after":"rs_0"}`), reasoning("rs_1"), call("fc_1")}, []string{"message", "reasoning rs_1", "function_call fc_1"}},
		{"no ids", own, []model.Block{reasoning(""), with(call("x"), `{}`)}, []string{"reasoning", "function_call"}},
		{"no ids, cut", own, []model.Block{reasoning(""), bare(call("x"))}, []string{"function_call"}},
		{"phase without reasoning", own, []model.Block{with(text(""), `{"phase":"final_answer"}`)}, []string{"message  final_answer"}},
		{"of Chat Completions", own, []model.Block{{Kind: model.Reasoning, Opaque: json.RawMessage(`{"reasoning_details":[{}]}`)}, with(call("x"), `{"extra_content":{}}`)}, []string{"function_call"}},
		{"not ours", own, []model.Block{{Kind: model.Reasoning, Opaque: json.RawMessage(`7`)}, with(call("x"), `[1]`)}, []string{"function_call"}},
		{"id of a call too long", own, []model.Block{reasoning("rs_1"), call(strings.Repeat("f", 65))}, []string{"reasoning rs_1", "function_call"}},
		{"id of reasoning too long", own, []model.Block{reasoning(strings.Repeat("r", 65)), with(call("x"), `{"id":"fc_1","after":"`+strings.Repeat("r", 65)+`"}`)}, []string{"function_call"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, items(t, tt.origin, tt.blocks...)); diff != "" {
				t.Errorf("items (-want +got):\n%s", diff)
			}
		})
	}
}

// A reasoning item goes back byte for byte, and everything else of its answer
// under the ids that it came with.
func TestReasoningIsReplayed(t *testing.T) {
	answer, err := receiveResponse(t, string(stream(t, "responses/tools.sse")), modeltest.Hello())
	if err != nil {
		t.Fatal(err)
	}
	req := modeltest.Hello()
	req.Messages = append(req.Messages, model.Message{
		Role: model.RoleAssistant, Blocks: answer.Blocks, Origin: model.Origin{Provider: "openai", Model: req.Model},
	})
	var body struct{ Input []json.RawMessage }
	if err := json.Unmarshal(sentResponse(t, openai.Config{}, req), &body); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"id":"rs_0842a5a1","type":"reasoning","encrypted_content":"gAAAAABprV9uWcDk1Tz+/=","summary":[{"type":"summary_text","text":"**Two orders**"},{"type":"summary_text","text":"Check “both” & compare."}]}`,
		`{"type":"message","id":"msg_0842a5a1","role":"assistant","content":[{"type":"output_text","text":"Let me check both.","annotations":[]}],"status":"completed","phase":"commentary"}`,
		`{"type":"function_call","id":"fc_01","call_id":"call_DdmO9pD3","name":"lookup_order","arguments":"{\"orderId\":\"ORD-1\"}"}`,
		`{"type":"function_call","id":"fc_02","call_id":"call_pVHYsTQE","name":"now","arguments":"{}"}`,
		`{"type":"function_call","id":"fc_03","call_id":"call_3AqUoUcL","name":"lookup_order","arguments":"{\"orderId\":\"café \\u2603\"}"}`,
	}
	for i, w := range want {
		if got := string(body.Input[i+1]); got != w {
			t.Errorf("item %d:\n%s\nwant\n%s", i, got, w)
		}
	}
	if len(body.Input) != 1+len(want)+3 { // the user's, these, and a result for each call
		t.Errorf("%d items: %s", len(body.Input), body.Input)
	}
}

// A server that cannot read the reasoning is asked once more, without it: the
// conversation would be lost otherwise.
func TestRefusedReasoningIsLeftOut(t *testing.T) {
	own := model.Origin{Provider: "openai", Model: "gpt-5.4"}
	refusal := func(message string) string {
		return `{"error":{"message":"` + message + `","type":"invalid_request_error","param":null,"code":null}}`
	}
	for _, tt := range []struct {
		name  string
		body  string
		model string
		calls int
		class model.Class
	}{
		{"another organization's", refusal("The encrypted content for item rs_1 could not be verified. Reason: organization_id did not match."), own.Model, 2, ""},
		{"a server that wants the item before", refusal("Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_0'."), own.Model, 2, ""},
		{"a server that wants the item after", refusal("Item 'rs_1' of type 'reasoning' was provided without its required following item."), own.Model, 2, ""},
		{"a server that looks for the item", refusal("Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."), own.Model, 2, ""},
		{"a model without it", refusal("Encrypted content is not supported with this model."), own.Model, 2, ""},
		{"a server that says it late", lines(`{"type":"response.created","response":{}}`, `{"type":"error","error":{"code":"invalid_encrypted_content","message":"The encrypted content could not be verified."}}`), own.Model, 2, ""},
		{"a server that says it too late", lines(addMessage, `{"type":"error","error":{"code":"invalid_encrypted_content","message":"The encrypted content could not be verified."}}`), own.Model, 1, model.Invalid},
		{"something else", refusal("Unsupported value: 'xhigh'."), own.Model, 1, model.Invalid},
		{"a request without it", refusal("Encrypted content is not supported with this model."), "gpt-4.1", 1, model.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var bodies []string
			client := &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
				b, _ := io.ReadAll(r.Body)
				bodies = append(bodies, string(b))
				status, contentType, body := 400, "application/json", tt.body
				if strings.HasPrefix(body, "data:") {
					status, contentType = 200, "text/event-stream"
				}
				if len(bodies) == 2 {
					status, contentType, body = 200, "text/event-stream", emptyResponse
				}
				return &http.Response{StatusCode: status, Request: r, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(body))}, nil
			})}
			req := conversation(own)
			req.Model = tt.model
			_, err := modeltest.Collect(t, openai.NewResponses(openai.Config{APIKey: "k", Client: client}).Stream(t.Context(), req))
			if len(bodies) != tt.calls {
				t.Fatalf("%d requests, want %d; error %v", len(bodies), tt.calls, err)
			}
			if e, ok := err.(*model.Error); (tt.class == "") != (err == nil) || err != nil && (!ok || e.Class != tt.class) {
				t.Errorf("error = %v, want class %q", err, tt.class)
			}
			if tt.calls == 2 {
				for _, part := range []string{"rs_1", "fc_1", "encrypted"} {
					if !strings.Contains(bodies[0], part) || strings.Contains(bodies[1], part) {
						t.Errorf("%s is in the first request: %v, in the second: %v", part, strings.Contains(bodies[0], part), strings.Contains(bodies[1], part))
					}
				}
			}
		})
	}
}

func TestResponsesReasoning(t *testing.T) {
	type levels = []model.Thinking
	const off, minimal, low, medium, high, xhigh = model.ThinkingOff, model.ThinkingMinimal, model.ThinkingLow, model.ThinkingMedium, model.ThinkingHigh, model.ThinkingXHigh
	elsewhere := openai.Config{BaseURL: "http://127.0.0.1:8000/v1"}
	azure := openai.Config{BaseURL: "https://r.openai.azure.com"}
	for _, tt := range []struct {
		name   string
		config openai.Config
		model  string
		level  model.Thinking
		info   model.Info
		want   string // the reasoning parameters
		asks   bool   // for the encrypted content
	}{
		{name: "nothing known", model: "m"},
		{name: "nothing known, a level", model: "m", level: medium, want: `{"effort":"medium","summary":"auto"}`, asks: true},
		{name: "a model that reasons", model: "m", info: model.Info{Reasoning: true}, asks: true},
		{name: "GPT-5.4", model: "gpt-5.4", asks: true},
		{name: "GPT-5.4 with a level", model: "gpt-5.4", level: xhigh, want: `{"effort":"xhigh","summary":"auto"}`, asks: true},
		{name: "GPT-5.4, off", model: "gpt-5.4", level: off, want: `{"effort":"none"}`, asks: true},
		{name: "GPT-5.4 has no minimal, whatever is listed", model: "gpt-5.4", level: minimal, info: model.Info{Levels: levels{minimal, high}}, want: `{"effort":"low","summary":"auto"}`, asks: true},
		{name: "GPT-5 has", model: "gpt-5-2025-08-07", level: minimal, want: `{"effort":"minimal","summary":"auto"}`, asks: true},
		{name: "GPT-5, off", model: "gpt-5", level: off, want: `{"effort":"minimal","summary":"auto"}`, asks: true},
		{name: "GPT-5, xhigh", model: "gpt-5", level: xhigh, want: `{"effort":"high","summary":"auto"}`, asks: true},
		{name: "GPT-5.1, xhigh", model: "gpt-5.1", level: xhigh, want: `{"effort":"high","summary":"auto"}`, asks: true},
		{name: "GPT-5 pro", model: "gpt-5-pro", level: low, want: `{"effort":"high","summary":"auto"}`, asks: true},
		{name: "GPT-5.4 pro", model: "gpt-5.4-pro", level: low, want: `{"effort":"medium","summary":"auto"}`, asks: true},
		{name: "codex", model: "gpt-5-codex", level: minimal, want: `{"effort":"low","summary":"auto"}`, asks: true},
		{name: "codex max", model: "gpt-5.1-codex-max", level: xhigh, want: `{"effort":"xhigh","summary":"auto"}`, asks: true},
		{name: "a later model", model: "gpt-6-astra", level: xhigh, want: `{"effort":"xhigh","summary":"auto"}`, asks: true},
		{name: "o3", model: "o3", level: minimal, want: `{"effort":"low","summary":"auto"}`, asks: true},
		{name: "GPT-4.1 does not reason", model: "gpt-4.1-mini", level: high},
		{name: "GPT-4o does not reason", model: "chatgpt-4o-latest", level: high},
		{name: "GPT-5 chat does not reason", model: "gpt-5-chat-latest", level: high},
		{name: "a deployment named otherwise", config: azure, model: "prod", level: low, want: `{"effort":"low","summary":"auto"}`, asks: true},
		{name: "a deployment named like its model", config: azure, model: "gpt-4.1", level: low},
		{name: "another server's", config: elsewhere, model: "gpt-4.1", level: low, want: `{"effort":"low","summary":"auto"}`, asks: true},
		{name: "another server's levels", config: elsewhere, model: "gpt-5.4", level: xhigh, info: model.Info{Reasoning: true, Levels: levels{low, high}}, want: `{"effort":"high","summary":"auto"}`, asks: true},
		{name: "summary always", config: openai.Config{Summary: openai.SummaryAlways}, model: "gpt-5.4", want: `{"summary":"auto"}`, asks: true},
		{name: "summary always, off", config: openai.Config{Summary: openai.SummaryAlways}, model: "gpt-5.4", level: off, want: `{"effort":"none"}`, asks: true},
		{name: "summary always, no reasoning", config: openai.Config{Summary: openai.SummaryAlways}, model: "gpt-4.1"},
		{name: "summary never", config: openai.Config{Summary: openai.SummaryNever}, model: "gpt-5.4", level: low, want: `{"effort":"low"}`, asks: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := modeltest.Hello()
			req.Model, req.Thinking, req.Info = tt.model, tt.level, tt.info
			req.Tools = []model.Tool{{Name: "now"}} // reasoning with tools works here
			var body struct {
				Reasoning json.RawMessage
				Include   []string
				Store     *bool
			}
			if err := json.Unmarshal(sentResponse(t, tt.config, req), &body); err != nil {
				t.Fatal(err)
			}
			if got := string(body.Reasoning); got != tt.want {
				t.Errorf("reasoning = %s, want %s", got, tt.want)
			}
			if got := slices.Contains(body.Include, "reasoning.encrypted_content"); got != tt.asks {
				t.Errorf("asks for the encrypted content = %v, want %v", got, tt.asks)
			}
			if body.Store == nil || *body.Store {
				t.Error("the server may store the conversation")
			}
		})
	}
}

func TestResponsesLimits(t *testing.T) {
	elsewhere := openai.Config{BaseURL: "http://127.0.0.1:8000/v1"}
	for _, tt := range []struct {
		name   string
		config openai.Config
		output int
		info   model.Info
		want   int
	}{
		{name: "none"},
		{name: "of the request", output: 100, want: 100},
		{name: "smaller than the API takes", output: 3, want: 16},
		{name: "OpenAI knows its models'", info: model.Info{MaxOutput: 5000}},
		{name: "other servers are told", config: elsewhere, info: model.Info{MaxOutput: 5000}, want: 5000},
	} {
		req := modeltest.Hello()
		req.MaxOutput, req.Info = tt.output, tt.info
		var body struct {
			Max int `json:"max_output_tokens"`
		}
		if err := json.Unmarshal(sentResponse(t, tt.config, req), &body); err != nil || body.Max != tt.want {
			t.Errorf("%s: max_output_tokens = %d, %v; want %d", tt.name, body.Max, err, tt.want)
		}
	}
}

// Calls and their results must go by the same id, within the limits of the API,
// whatever the history has.
func TestResponsesCallIDsMatch(t *testing.T) {
	own := model.Origin{Provider: "openai", Model: "gpt-5.4"}
	for _, tt := range []struct {
		name, id string
		origin   model.Origin
		keep     bool
	}{
		{"own", "call_1.a", own, true},
		{"own, long", strings.Repeat("x", 65), own, false},
		{"foreign", "call-1_a", model.Origin{Provider: "x", Model: "y"}, true},
		{"foreign, odd", "functions.now:0", model.Origin{Provider: "x", Model: "y"}, false},
		{"empty", "", own, false},
	} {
		req := modeltest.Hello()
		req.Model = own.Model
		req.Messages = append(req.Messages,
			model.Message{Role: model.RoleAssistant, Origin: tt.origin, Blocks: []model.Block{{Kind: model.ToolCall, CallID: tt.id, Name: "now"}}},
			model.Message{Role: model.RoleTool, Blocks: []model.Block{{Kind: model.ToolResult, CallID: tt.id, Text: "x"}}})
		var body struct {
			Input []struct {
				CallID string `json:"call_id"`
			}
		}
		if err := json.Unmarshal(sentResponse(t, openai.Config{}, req), &body); err != nil {
			t.Fatal(err)
		}
		call, result := body.Input[1].CallID, body.Input[2].CallID
		if call != result || call == "" || len(call) > 64 || (call == tt.id) != tt.keep {
			t.Errorf("%s: call %q, result %q", tt.name, call, result)
		}
	}
}

// A tool without the word would be made strict by the API, which refuses what
// other APIs take.
func TestResponsesToolsAreNotStrict(t *testing.T) {
	req := modeltest.Hello()
	req.Tools = []model.Tool{{Name: "fetch", Description: "Fetch.", Schema: json.RawMessage(`{"type":"object","properties":{"url":{"type":"string","format":"uri"},"headers":{"type":"object","additionalProperties":{"type":"string"}}},"required":["url"]}`)}}
	var body struct {
		Tools    []map[string]any
		Parallel bool `json:"parallel_tool_calls"`
	}
	if err := json.Unmarshal(sentResponse(t, openai.Config{}, req), &body); err != nil {
		t.Fatal(err)
	}
	if tool := body.Tools[0]; tool["strict"] != false || tool["type"] != "function" || tool["name"] != "fetch" || tool["function"] != nil || !body.Parallel {
		t.Errorf("tool = %v, parallel = %v", tool, body.Parallel)
	}
}

// A name that the API does not accept goes out under an alias, and comes back as
// itself, in the deltas too.
func TestResponsesToolNames(t *testing.T) {
	req := modeltest.Hello()
	req.Tools = []model.Tool{{Name: "github.search"}}
	req.Messages = append(req.Messages,
		model.Message{Role: model.RoleAssistant, Blocks: []model.Block{{Kind: model.ToolCall, CallID: "1", Name: "github.search"}}},
		model.Message{Role: model.RoleTool, Blocks: []model.Block{{Kind: model.ToolResult, CallID: "1", Text: "nothing"}}})
	var body struct {
		Tools, Input []struct{ Type, Name string }
	}
	if err := json.Unmarshal(sentResponse(t, openai.Config{}, req), &body); err != nil {
		t.Fatal(err)
	}
	alias := body.Tools[0].Name
	if strings.Contains(alias, ".") || body.Input[1].Name != alias {
		t.Errorf("sent tools %v and items %v", body.Tools, body.Input)
	}
	item := `{"type":"function_call","id":"fc_1","call_id":"2","name":"` + alias + `","arguments":"{}"}`
	got, err := receiveResponse(t, lines(itemDone("0", item), completed), req)
	if err != nil || got.Blocks[0].Name != "github.search" {
		t.Errorf("the answer calls %v, error %v", got.Blocks, err)
	}
}

func TestResponsesStrictTools(t *testing.T) {
	req := modeltest.Hello()
	req.Tools = []model.Tool{{Name: "search", Schema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"},"limit":{"type":"integer"}},"required":["q"]}`)}}
	body := string(sentResponse(t, openai.Config{StrictTools: true}, req))
	want := `{"type":"function","name":"search","parameters":{"type":"object","properties":{"q":{"type":"string"},"limit":{"type":["integer","null"]}},"required":["q","limit"],"additionalProperties":false},"strict":true}`
	if !strings.Contains(body, want) {
		t.Errorf("sent %s\nwant in it %s", body, want)
	}
}
