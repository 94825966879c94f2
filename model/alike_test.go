package model_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/google"
	"github.com/flue-go/flue/model/modeltest/rules"
	"github.com/flue-go/flue/model/openai"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// An api is a service as a codec sees it: how it says an answer, and what it
// refuses.
type api struct {
	codec   func(client *http.Client) model.Provider
	say     func(says) string
	refuses func(body []byte) []string
}

var apis = map[string]api{
	"anthropic": {
		func(c *http.Client) model.Provider {
			return anthropic.New(anthropic.Config{Name: "service", BaseURL: "http://model.test", APIKey: "k", Client: c})
		},
		sayAnthropic, rules.Anthropic,
	},
	"chat": {
		func(c *http.Client) model.Provider {
			return openai.New(openai.Config{Name: "service", BaseURL: "http://model.test", Client: c})
		},
		sayChat, rules.ChatCompletions,
	},
	"responses": {
		func(c *http.Client) model.Provider {
			return openai.NewResponses(openai.Config{Name: "service", BaseURL: "http://model.test", Client: c})
		},
		sayResponses, rules.Responses,
	},
	"gemini": {
		func(c *http.Client) model.Provider {
			return google.New(google.Config{Name: "service", BaseURL: "http://model.test", APIKey: "k", Client: c})
		},
		sayGemini, rules.Gemini,
	},
}

// says is what a service answers: blocks and why it stops, or a failure.
type says struct {
	blocks []model.Block
	stop   model.StopReason
	status int  // of a failure
	cut    bool // in the middle of the blocks
	input  int  // tokens of the prompt; inputTokens if it is zero
}

func (a says) prompt() int { return cmp.Or(a.input, inputTokens) }

func text(s string) model.Block  { return model.Block{Kind: model.Text, Text: s} }
func think(s string) model.Block { return model.Block{Kind: model.Reasoning, Text: s} }

func call(name, arguments string) model.Block {
	return model.Block{Kind: model.ToolCall, Name: name, Arguments: arguments}
}

// conversation is what the service answers, one call after another, to what is
// sent in turn.
var (
	sent         = []string{"Where are ORD-1 and ORD-2?", "Thanks.", "Anything else?", "And now?", "Well?"}
	conversation = []says{
		{blocks: []model.Block{think("Two orders, two lookups."), text("Let me check both."), call("lookup_order", `{"orderId":"ORD-1"}`), call("lookup_order", `{"orderId":"ORD-2 “é” <&>"}`)}, stop: model.StopToolUse},
		{blocks: []model.Block{call("write", `{"path":"a.txt"}`)}, stop: model.StopLength}, // not run
		{blocks: []model.Block{call("write", `{"path":7}`), call("nobody", `{}`)}, stop: model.StopToolUse},
		{status: 500},
		{blocks: []model.Block{text("ORD-1 has"), text("")}, cut: true},
		{blocks: []model.Block{text("ORD-1 has shipped, ORD-2 is nowhere.\n")}, stop: model.StopEnd},

		{blocks: []model.Block{think("Be polite."), text("You are welcome.")}, stop: model.StopEnd},
		{blocks: []model.Block{text("I cannot")}, stop: model.StopFiltered},
		{blocks: []model.Block{text("Let me write"), call("write", `{"path":"b.txt"}`)}, stop: model.StopFiltered}, // not run, and the end
		{blocks: []model.Block{call("write", `{"path":"b.txt"}`)}, stop: model.StopFiltered},
	}
)

// The same conversation leaves the same journal, whichever service it is held
// with, apart from ids and what a provider keeps for itself.
func TestCodecsAreAlike(t *testing.T) {
	var first, of string
	for _, name := range slices.Sorted(maps.Keys(apis)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := hold(t, apis[name])
				if first == "" {
					first, of = got, name
				}
				if diff := gocmp.Diff(strings.Split(first, "\n"), strings.Split(got, "\n")); diff != "" {
					t.Errorf("the journal with %s (-) is not that with %s (+):\n%s", of, name, diff)
				}
			})
		})
	}
	for _, want := range []string{`"ORD-2 “é” <&>`, `"failed":true`, `"stop":"length"`, `"stop":"filtered"`, `"class":"retryable"`, `content filter cut the answer`, `"class":"content_filter"`, "Two orders", `"outcome":"completed"`} {
		if !strings.Contains(strings.ReplaceAll(first, `\"`, `"`), want) {
			t.Errorf("the journal does not say %s:\n%s", want, first)
		}
	}
}

// hold holds the conversation and returns its journal, a record a line.
func hold(t *testing.T, a api) string {
	service := &service{t: t, api: a}
	type order struct {
		OrderID string `json:"orderId"`
	}
	type file struct {
		Path string `json:"path"`
	}
	lookup := flue.NewTool(flue.Tool{Name: "lookup_order", Description: "Look up one order."}, func(_ context.Context, in order) (string, error) {
		if in.OrderID != "ORD-1" {
			return "", fmt.Errorf("there is no order %q", in.OrderID)
		}
		return "shipped", nil
	})
	write := flue.NewTool(flue.Tool{Name: "write", Description: "Write a file."}, func(context.Context, file) (string, error) {
		return "", fmt.Errorf("this must not run")
	})
	agent := &flue.Agent{Name: "clerk", Render: func(r *flue.Render) string {
		flue.UseModel(r, "service/m")
		flue.UseTool(r, lookup)
		flue.UseTool(r, write)
		return "Help customers."
	}}
	st := memstore.New()
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{agent}, Store: st, Log: slog.New(slog.DiscardHandler),
		Providers: map[string]model.Provider{"service": a.codec(&http.Client{Transport: service})},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, message := range sent {
		var attached []flue.Attachment
		if i == 0 {
			attached = append(attached, flue.Attachment{MediaType: "image/png", Data: []byte("\x89PNG\r\n\x1a\n....")})
		}
		r, err := rt.Dispatch(t.Context(), agent.Name, "one", flue.User(message, attached...))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rt.Instance(agent.Name, "one").Read(t.Context(), r.Submission); (err != nil) != (message == "Well?") {
			t.Fatal(err)
		}
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if service.calls != len(conversation) {
		t.Errorf("%d calls, want %d", service.calls, len(conversation))
	}
	return records(t, st)
}

// records returns the journal, a record a line, without what differs between
// services and between runs. Deltas are left out: when text is appended depends
// on how it comes.
func records(t *testing.T, st store.Store) string {
	var lines []string
	ids := map[string]string{}
	for b, err := range store.Batches(t.Context(), st, store.Address{Agent: "clerk", ID: "one"}, -1) {
		if err != nil {
			t.Fatal(err)
		}
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range batch.Records {
			if r.Kind() == journal.KindTurnDelta {
				continue
			}
			var fields map[string]any
			if err := json.Unmarshal(encode(r), &fields); err != nil {
				t.Fatal(err)
			}
			if r.Kind() == journal.KindSettled { // its words have ids
				delete(fields, "error")
			}
			if fields["stop"] == "error" { // services differ in what they say before the end
				delete(fields, "usage")
				delete(fields, "guess")
			}
			mask(fields, ids)
			lines = append(lines, fmt.Sprintf("%s %s", r.Kind(), encode(fields)))
		}
	}
	sortOutcomes(lines)
	return strings.Join(lines, "\n")
}

// sortOutcomes gives an order to the outcomes of calls that ran side by side.
func sortOutcomes(lines []string) {
	for i := 0; i < len(lines); i++ {
		first := i
		for i < len(lines) && strings.HasPrefix(lines[i], "outcome ") {
			i++
		}
		slices.Sort(lines[first:i])
	}
}

// ownID is an id that this side has made.
var ownID = regexp.MustCompile(`^[a-z]+_[0-9A-Z]{26}$`)

// mask takes out what a provider keeps for itself and gives each id a name by
// the order in which it comes up.
func mask(v any, ids map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range []string{"opaque", "Opaque", "why", "sent", "answered", "at", "deadline", "Deadline", "node", "uid", "ms", "work", "incarnation", "size"} {
			delete(v, name)
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			s, ok := v[name].(string)
			if !ok || !ownID.MatchString(s) && !slices.Contains([]string{"id", "call", "digest"}, name) {
				mask(v[name], ids)
				continue
			}
			if ids[s] == "" {
				ids[s] = fmt.Sprintf("%s%d", name, len(ids))
			}
			v[name] = ids[s]
		}
	case []any:
		for i, item := range v {
			if s, ok := item.(string); ok && ids[s] != "" {
				v[i] = ids[s]
			}
			mask(item, ids)
		}
	}
}

// A service is a transport that answers as an API does.
type service struct {
	t   *testing.T
	api api

	mu    sync.Mutex
	calls int
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	for _, problem := range s.api.refuses(body) {
		s.t.Errorf("the service would refuse request %d: %s", s.calls, problem)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls >= len(conversation) {
		return nil, fmt.Errorf("nobody expects call %d: %s", s.calls, body)
	}
	answer := conversation[s.calls]
	s.calls++
	resp := &http.Response{StatusCode: 200, Request: r, Header: http.Header{"Content-Type": {"text/event-stream"}}}
	if answer.status != 0 {
		resp.StatusCode, resp.Header = answer.status, http.Header{"Content-Type": {"application/json"}}
		resp.Body = io.NopCloser(strings.NewReader(`{"error":{"message":"it broke"}}`))
		return resp, nil
	}
	stream := s.api.say(answer)
	resp.Body = io.NopCloser(strings.NewReader(stream))
	return resp, nil
}

// encode is json.Marshal without the escaping of HTML.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSpace(b.Bytes())
}

// events writes server-sent events.
func events(data ...any) string {
	var b bytes.Buffer
	for _, d := range data {
		fmt.Fprintf(&b, "data: %s\n\n", encode(d))
	}
	return b.String()
}

type object = map[string]any

// Tokens that every answer reports.
const inputTokens, cachedTokens, outputTokens, thoughtTokens = 20, 8, 7, 3

func sayAnthropic(a says) string {
	stops := map[model.StopReason]string{model.StopEnd: "end_turn", model.StopToolUse: "tool_use", model.StopLength: "max_tokens", model.StopFiltered: "refusal"}
	data := []any{object{"type": "message_start", "message": object{"model": "m", "usage": object{"input_tokens": a.prompt() - cachedTokens, "cache_read_input_tokens": cachedTokens, "output_tokens": 1}}}}
	for i, b := range a.blocks {
		start, deltas := object{"type": "text", "text": ""}, []object{{"type": "text_delta", "text": b.Text}}
		switch b.Kind {
		case model.Reasoning:
			start = object{"type": "thinking", "thinking": "", "signature": ""}
			deltas = []object{{"type": "thinking_delta", "thinking": b.Text}, {"type": "signature_delta", "signature": "c2ln"}}
		case model.ToolCall:
			start = object{"type": "tool_use", "id": fmt.Sprintf("toolu_%s_%d", b.Arguments[:min(3, len(b.Arguments))], i), "name": b.Name, "input": object{}}
			deltas = []object{{"type": "input_json_delta", "partial_json": b.Arguments[:1]}, {"type": "input_json_delta", "partial_json": b.Arguments[1:]}}
		}
		data = append(data, object{"type": "content_block_start", "index": i, "content_block": start})
		for _, d := range deltas {
			data = append(data, object{"type": "content_block_delta", "index": i, "delta": d})
		}
		if a.cut {
			return events(data...)
		}
		data = append(data, object{"type": "content_block_stop", "index": i})
	}
	return events(append(data,
		object{"type": "message_delta", "delta": object{"stop_reason": stops[a.stop]}, "usage": object{"output_tokens": outputTokens, "output_tokens_details": object{"thinking_tokens": thoughtTokens}}},
		object{"type": "message_stop"})...)
}

func sayChat(a says) string {
	stops := map[model.StopReason]string{model.StopEnd: "stop", model.StopToolUse: "tool_calls", model.StopLength: "length", model.StopFiltered: "content_filter"}
	chunk := func(delta object, reason any) object {
		return object{"model": "m", "choices": []object{{"index": 0, "delta": delta, "finish_reason": reason}}}
	}
	var data []any
	calls := 0
	for _, b := range a.blocks {
		switch b.Kind {
		case model.Text:
			data = append(data, chunk(object{"content": b.Text}, nil))
		case model.Reasoning:
			data = append(data, chunk(object{"reasoning_content": b.Text}, nil))
		case model.ToolCall:
			data = append(data,
				chunk(object{"tool_calls": []object{{"index": calls, "id": fmt.Sprintf("call_%d", calls), "type": "function", "function": object{"name": b.Name, "arguments": ""}}}}, nil),
				chunk(object{"tool_calls": []object{{"index": calls, "function": object{"arguments": b.Arguments}}}}, nil))
			calls++
		}
		if a.cut {
			return events(data...)
		}
	}
	return events(append(data, chunk(object{}, stops[a.stop]), object{"choices": []any{}, "usage": object{
		"prompt_tokens": a.prompt(), "completion_tokens": outputTokens, "total_tokens": a.prompt() + outputTokens,
		"prompt_tokens_details": object{"cached_tokens": cachedTokens}, "completion_tokens_details": object{"reasoning_tokens": thoughtTokens},
	}})...) + "data: [DONE]\n\n"
}

func sayResponses(a says) string {
	var data []any
	for i, b := range a.blocks {
		item, delta := object{"type": "message", "id": fmt.Sprint("msg_", i), "content": []any{}}, object{"type": "response.output_text.delta", "delta": b.Text}
		done := object{"type": "message", "id": fmt.Sprint("msg_", i), "content": []object{{"type": "output_text", "text": b.Text}}}
		switch b.Kind {
		case model.Reasoning:
			item = object{"type": "reasoning", "id": fmt.Sprint("rs_", i), "summary": []any{}}
			delta = object{"type": "response.reasoning_summary_text.delta", "delta": b.Text}
			done = object{"type": "reasoning", "id": fmt.Sprint("rs_", i), "summary": []object{{"type": "summary_text", "text": b.Text}}, "encrypted_content": "e"}
		case model.ToolCall:
			item = object{"type": "function_call", "id": fmt.Sprint("fc_", i), "call_id": fmt.Sprint("call_", i), "name": b.Name, "arguments": ""}
			delta = object{"type": "response.function_call_arguments.delta", "delta": b.Arguments}
			done = object{"type": "function_call", "id": fmt.Sprint("fc_", i), "call_id": fmt.Sprint("call_", i), "name": b.Name, "arguments": b.Arguments}
		}
		delta["output_index"] = i
		data = append(data, object{"type": "response.output_item.added", "output_index": i, "item": item}, delta)
		if a.cut {
			return events(data...)
		}
		data = append(data, object{"type": "response.output_item.done", "output_index": i, "item": done})
	}
	response := object{"model": "m", "status": "completed", "usage": object{
		"input_tokens": a.prompt(), "output_tokens": outputTokens,
		"input_tokens_details": object{"cached_tokens": cachedTokens}, "output_tokens_details": object{"reasoning_tokens": thoughtTokens},
	}}
	typ := "response.completed"
	switch a.stop {
	case model.StopLength:
		typ, response["status"], response["incomplete_details"] = "response.incomplete", "incomplete", object{"reason": "max_output_tokens"}
	case model.StopFiltered:
		typ, response["status"], response["incomplete_details"] = "response.incomplete", "incomplete", object{"reason": "content_filter"}
	}
	return events(append(data, object{"type": typ, "response": response})...)
}

func sayGemini(a says) string {
	stops := map[model.StopReason]string{model.StopEnd: "STOP", model.StopToolUse: "STOP", model.StopLength: "MAX_TOKENS", model.StopFiltered: "SAFETY"}
	var data []any
	chunk := func(candidate object) object {
		return object{"candidates": []object{candidate}, "modelVersion": "m", "usageMetadata": object{
			"promptTokenCount": a.prompt(), "cachedContentTokenCount": cachedTokens,
			"candidatesTokenCount": outputTokens - thoughtTokens, "thoughtsTokenCount": thoughtTokens, "totalTokenCount": a.prompt() + outputTokens,
		}}
	}
	for _, b := range a.blocks {
		part := object{"text": b.Text}
		switch b.Kind {
		case model.Reasoning:
			part["thought"] = true
		case model.ToolCall:
			part = object{"functionCall": object{"name": b.Name, "args": json.RawMessage(b.Arguments)}}
		}
		data = append(data, chunk(object{"content": object{"role": "model", "parts": []object{part}}}))
		if a.cut {
			return events(data...)
		}
	}
	return events(append(data, chunk(object{"finishReason": stops[a.stop]}))...)
}
