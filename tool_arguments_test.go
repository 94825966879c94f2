package flue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/openai"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/wire"
)

// One exchange: the model calls a tool once with what a test gives it, then
// reads what came of that.
type exchange struct {
	requests []*model.Request
	outcomes []flue.Event // of the call
	snapshot *wire.Snapshot
}

// result is what the model reads of the call.
func (e *exchange) result(t *testing.T) model.Block {
	t.Helper()
	if len(e.requests) != 2 || len(e.outcomes) != 1 {
		t.Fatalf("%d model calls and %d outcomes, want 2 and 1", len(e.requests), len(e.outcomes))
	}
	results := script.LastResults(e.requests[1])
	if len(results) != 1 {
		t.Fatalf("the model reads %d results, want 1", len(results))
	}
	return results[0]
}

// call lets the model call tool with the arguments.
func call(t *testing.T, tool *flue.ToolDefinition, arguments string) *exchange {
	t.Helper()
	var mu sync.Mutex
	e := &exchange{}
	f := &fake{answer: once(tool.Name(), arguments)}
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{offering(tool)}, Providers: map[string]model.Provider{"fake": f}, RetryBase: time.Millisecond,
		Observe: func(ev flue.Event) {
			if ev.Type == flue.EventToolDone {
				mu.Lock()
				defer mu.Unlock()
				e.outcomes = append(e.outcomes, ev)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	ask(t, rt, "go")
	if e.snapshot, err = rt.Instance("helper", "c1").Conversation(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e.requests = f.requests
	return e
}

func offering(tools ...*flue.ToolDefinition) *flue.Agent {
	return agent(func(r *flue.Render) string {
		flue.UseModel(r, "fake/m")
		for _, tool := range tools {
			flue.UseTool(r, tool)
		}
		return "Use the tool."
	})
}

// ask sends a message and waits for the answer.
func ask(t *testing.T, rt *flue.Runtime, message string) *flue.Reply {
	t.Helper()
	in := rt.Instance("helper", "c1")
	receipt, err := in.Dispatch(t.Context(), flue.User(message))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := in.Read(t.Context(), receipt.Submission)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// A probe counts how often arguments are looked at.
type probe struct{ seen *atomic.Int32 }

var probed atomic.Int32

func (p *probe) UnmarshalText([]byte) error {
	p.seen = &probed
	probed.Add(1)
	return nil
}

// What a model wrote wrong is a result that it reads, once: the function does
// not run, nothing is repeated but the model call that follows.
func TestBadArgumentsAreAResult(t *testing.T) {
	type input struct {
		X     int     `json:"x"`
		Probe probe   `json:"probe,omitzero"`
		Path  string  `json:"path,omitempty"`
		Mode  string  `json:"mode,omitempty" enum:"read,write"`
		When  string  `json:"when,omitempty" format:"date"`
		Limit *uint64 `json:"limit"`
	}
	for _, tt := range []struct{ name, arguments, want string }{
		{"a word for a number", `{"x":"abc","probe":"p"}`, `x: expected an integer, got the string "abc"`},
		{"nothing", ``, "x: is required; expected an integer"},
		{"blank", `   `, "x: is required; expected an integer"},
		{"null", `null`, "x: is required; expected an integer"},
		{"null for a number", `{"x":null}`, "x: expected an integer, got null"},
		{"another case", `{"x":1,"PATH":"x"}`, "PATH: unknown property; did you mean path?"},
		{"misspelt", `{"x":1,"pth":"x"}`, "pth: unknown property; did you mean path?"},
		{"a misspelt value", `{"x":1,"mode":"raed"}`, `mode: expected one of "read", "write"; did you mean "read"?, got the string "raed"`},
		{"twice the same", `{"x":1,"x":2}`, `the property "x" occurs twice`},
		{"glued objects", `{"x":1}{"x":2}`, "got a second value"},
		{"raw control characters", "{\"x\":1,\"path\":\"a\x07b\v\"}", `write it as the escape \u0007`},
		{"a trailing comma", `{"x": 1, }`, "line 1, column 10: expected a property name, got '}'; remove the comma before it"},
		{"an array", `[1,2]`, "expected an object, got an array of 2 elements"},
		{"a string", `"hi"`, `expected an object, got the string "hi"`},
		{"too large a number", `{"x":1,"limit":18446744073709551616}`, "limit: must be from 0 to 18446744073709551615, got the number 18446744073709551616"},
		{"a word for a date", `{"x":1,"when":"tomorrow"}`, `when: expected a date such as "2026-01-02", got the string "tomorrow"`},
		{"all at once", `{"x":"1.5","mode":"x","when":"?","limit":-1}`, "4 problems:"},
		{"without end", `{"x":` + strings.Repeat("[", 5000), "nested deeper than 200 levels"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ran := 0
			probed.Store(0)
			tool := flue.NewTool(flue.Tool{Name: "work", Description: "Work."}, func(context.Context, input) (string, error) {
				ran++
				return "done", nil
			})
			e := call(t, tool, tt.arguments)
			got := e.result(t)
			if ran != 0 || !got.IsError || e.outcomes[0].OK {
				t.Errorf("ran %d times, failed %v", ran, got.IsError)
			}
			if n := probed.Load(); n != int32(strings.Count(tt.arguments, `"probe"`)) {
				t.Errorf("the arguments were looked at %d times", n)
			}
			if !strings.Contains(got.Text, `"work"`) || !strings.Contains(got.Text, tt.want) || len(got.Text) > 8000 {
				t.Errorf("the model reads %q, want it to have %q", got.Text, tt.want)
			}
			history := e.requests[1].Messages
			if raw := history[len(history)-2].Blocks[0].Arguments; raw != tt.arguments {
				t.Errorf("the history has the arguments %q, the model wrote %q", raw, tt.arguments)
			}
			for _, p := range parts(e.snapshot) {
				if p.Type == wire.PartTool && (p.State != wire.StateOutputError || p.ErrorText == nil || !strings.Contains(*p.ErrorText, tt.want) || !p.Input.IsValid()) {
					t.Errorf("clients see %+v", p)
				}
			}
		})
	}
}

func parts(s *wire.Snapshot) []wire.Part {
	var all []wire.Part
	for _, m := range s.Messages {
		all = append(all, m.Parts...)
	}
	return all
}

// What can only be meant one way reaches the function as what it means.
func TestGoodArgumentsArrive(t *testing.T) {
	type target struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	}
	type input struct {
		Queries  []string        `json:"queries"`
		Target   *target         `json:"target"`
		MaxBytes int             `json:"maxBytes" default:"1024"`
		AutoOpen *bool           `json:"auto_open"`
		Content  string          `json:"content,omitempty"`
		Big      uint64          `json:"big,omitzero"`
		Exact    json.Number     `json:"exact,omitzero"`
		Raw      json.RawMessage `json:"raw,omitzero"`
		Wait     time.Duration   `json:"wait" default:"5s" jsonschema:"how long to wait"`
	}
	no := false
	for _, tt := range []struct {
		name, arguments string
		want            input
	}{
		{"defaults", `{"queries":[]}`, input{Queries: []string{}, MaxBytes: 1024, Wait: 5 * time.Second}},
		{"no defaults where something is said", `{"queries":[],"maxBytes":0,"wait":"0s"}`, input{Queries: []string{}}},
		{
			"twice encoded", `{"queries":"[\"test\"]","target":"{\"kind\":\"agent\",\"name\":\"r\"}","maxBytes":"200000","auto_open":"false","wait":"1m30s"}`,
			input{Queries: []string{"test"}, Target: &target{"agent", "r"}, MaxBytes: 200000, AutoOpen: &no, Wait: 90 * time.Second},
		},
		{"text stays text", `{"queries":["[1]"],"maxBytes":1,"content":"[1,2]","wait":"1s"}`, input{Queries: []string{"[1]"}, MaxBytes: 1, Content: "[1,2]", Wait: time.Second}},
		{
			"large integers", `{"queries":[],"maxBytes":1,"big":12345678901234567890,"exact":12345678901234567890,"raw":[12345678901234567890],"wait":"1s"}`,
			input{Queries: []string{}, MaxBytes: 1, Big: 12345678901234567890, Exact: "12345678901234567890", Raw: json.RawMessage(`[12345678901234567890]`), Wait: time.Second},
		},
		{
			"half a surrogate pair", `{"queries":["\ud83d"],"maxBytes":1,"raw":{"s":"\ud83d"},"wait":"1s"}`,
			input{Queries: []string{"\uFFFD"}, MaxBytes: 1, Raw: json.RawMessage("{\"s\":\"\uFFFD\"}"), Wait: time.Second},
		},
		{"null for what is optional", `{"queries":[],"target":null,"maxBytes":null,"content":null,"wait":null}`, input{Queries: []string{}, MaxBytes: 1024, Wait: 5 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []input
			tool := flue.NewTool(flue.Tool{Name: "search", Description: "Search."}, func(_ context.Context, in input) (string, error) {
				got = append(got, in)
				return "found", nil
			})
			e := call(t, tool, tt.arguments)
			if r := e.result(t); r.IsError || r.Text != "found" {
				t.Fatalf("the model reads %q", r.Text)
			}
			if diff := cmp.Diff([]input{tt.want}, got); diff != "" {
				t.Errorf("the function got (-want +got):\n%s", diff)
			}
			if raw := e.requests[1].Messages[1].Blocks[0].Arguments; raw != tt.arguments {
				t.Errorf("the history has %q", raw)
			}
		})
	}
}

// A call of a tool without arguments is written in several ways.
func TestNoArguments(t *testing.T) {
	for _, arguments := range []string{``, `   `, `null`, `{}`, ` { } `, `"{}"`} {
		ran := 0
		tool := flue.NewTool(flue.Tool{Name: "now", Description: "Tell the time."}, func(context.Context, struct{}) (string, error) {
			ran++
			return "noon", nil
		})
		e := call(t, tool, arguments)
		if r := e.result(t); r.IsError || r.Text != "noon" || ran != 1 {
			t.Errorf("%q: ran %d times, the model reads %q", arguments, ran, r.Text)
		}
		const shown = `{"type":"object","properties":{},"additionalProperties":false}`
		if diff := cmp.Diff(shown, string(e.requests[0].Tools[0].Schema)); diff != "" {
			t.Errorf("the model is shown (-want +got):\n%s", diff)
		}
	}
}

// A schema written by hand is shown as it is and decides what runs. A value
// that fits an alternative is not touched, in whatever order they are written.
func TestSchemaByHand(t *testing.T) {
	type input struct {
		Value any `json:"value"`
	}
	for _, tt := range []struct {
		arms, arguments string
		want            any
		problem         string
	}{
		{`{"type":"number"},{"type":"null"}`, `{"value":null}`, nil, ""},
		{`{"type":"null"},{"type":"number"}`, `{"value":null}`, nil, ""},
		{`{"type":"string"},{"type":"null"}`, `{"value":null}`, nil, ""},
		{`{"type":"null"},{"type":"string"}`, `{"value":null}`, nil, ""},
		{`{"type":"string"},{"type":"number"}`, `{"value":"7"}`, "7", ""},
		{`{"type":"number"},{"type":"string"}`, `{"value":"7"}`, "7", ""},
		{`{"type":"number"},{"type":"null"}`, `{"value":"7"}`, 7.0, ""},
		{`{"type":"number"},{"type":"null"}`, `{"value":"x"}`, nil, `value: expected a number or null, got the string "x"`},
		{`{"$ref":"#/$defs/n"},{"type":"null"}`, `{"value":{"kids":[{"kids":[]}]}}`, map[string]any{"kids": []any{map[string]any{"kids": []any{}}}}, ""},
		{`{"$ref":"#/$defs/n"},{"type":"null"}`, `{"value":{"kids":[{"kids":[7]}]}}`, nil, "value.kids[0].kids[0]: expected an object, got the number 7"},
	} {
		document := `{"type":"object","properties":{"value":{"anyOf":[` + tt.arms + `]}},"required":["value"],"additionalProperties":false,"$defs":{"n":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/n"}}}}}}`
		byHand, err := flue.ParseSchema([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		var got []any
		tool := flue.NewTool(flue.Tool{Name: "keep", Description: "Keep a value.", Input: byHand}, func(_ context.Context, in input) (string, error) {
			got = append(got, in.Value)
			return "kept", nil
		})
		e := call(t, tool, tt.arguments)
		if string(e.requests[0].Tools[0].Schema) != document {
			t.Errorf("the model is shown %s", e.requests[0].Tools[0].Schema)
		}
		if r := e.result(t); tt.problem != "" {
			if len(got) != 0 || !strings.Contains(r.Text, tt.problem) {
				t.Errorf("%s with %s: the model reads %q", tt.arms, tt.arguments, r.Text)
			}
			continue
		}
		if diff := cmp.Diff([]any{tt.want}, got); diff != "" {
			t.Errorf("%s with %s (-want +got):\n%s", tt.arms, tt.arguments, diff)
		}
	}
}

func TestInputMustBeAnObject(t *testing.T) {
	array, err := flue.ParseSchema([]byte(`{"type":"array"}`))
	if err != nil {
		t.Fatal(err)
	}
	tool := flue.Tool{Name: "a", Description: "d"}
	byHand := tool
	byHand.Input = array
	for name, attempt := range map[string]func() (*flue.ToolDefinition, error){
		"a string": func() (*flue.ToolDefinition, error) {
			return flue.MakeTool(tool, func(context.Context, string) (string, error) { return "", nil })
		},
		"a slice": func() (*flue.ToolDefinition, error) {
			return flue.MakeTool(tool, func(context.Context, []string) (string, error) { return "", nil })
		},
		"by hand": func() (*flue.ToolDefinition, error) {
			return flue.MakeTool(byHand, func(context.Context, map[string]any) (string, error) { return "", nil })
		},
	} {
		if _, err := attempt(); err == nil || !strings.Contains(err.Error(), "tool a: its input:") || !strings.Contains(err.Error(), "object") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// One bad call does not keep the others of its turn from running, and a call
// that was cut off is not run, even if what arrived of it is whole.
func TestCallsOfOneTurn(t *testing.T) {
	type input struct {
		Path string `json:"path"`
	}
	for _, tt := range []struct {
		stop model.StopReason
		ran  []string
		want []string // a part of each result
	}{
		{model.StopToolUse, []string{"b.txt"}, []string{"remove the comma", "wrote b.txt"}},
		{model.StopLength, nil, []string{"", ""}},
	} {
		var mu sync.Mutex
		var ran []string
		tool := flue.NewTool(flue.Tool{Name: "write", Description: "Write."}, func(_ context.Context, in input) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, in.Path)
			return "wrote " + in.Path, nil
		})
		var results []model.Block
		p := script.New(
			script.Call("write", `{"path": "a.txt", }`).Call("write", `{"path":"b.txt"}`).Stop(tt.stop),
			script.Func(func(req *model.Request) script.Turn {
				results = script.LastResults(req)
				return script.Say("ok")
			}))
		rt, err := flue.Open(t.Context(), flue.Config{Agents: []*flue.Agent{offering(tool)}, Providers: map[string]model.Provider{"fake": p}})
		if err != nil {
			t.Fatal(err)
		}
		if reply := ask(t, rt, "go"); reply.Text != "ok" {
			t.Errorf("stop %s: reply %q", tt.stop, reply.Text)
		}
		rt.Close(t.Context())
		if diff := cmp.Diff(tt.ran, ran); diff != "" {
			t.Errorf("stop %s: ran (-want +got):\n%s", tt.stop, diff)
		}
		if len(results) != len(tt.want) {
			t.Fatalf("stop %s: %d results", tt.stop, len(results))
		}
		for i, want := range tt.want {
			if !strings.Contains(results[i].Text, want) || results[i].IsError != !strings.HasPrefix(want, "wrote") {
				t.Errorf("stop %s: result %d is %q, want it to have %q", tt.stop, i, results[i].Text, want)
			}
		}
	}
}

// malformed are arguments that a provider would refuse to read again.
var malformed = []string{
	"{\"cmd\":\"a\x07b\v\"}", `{"path": "a.txt", }`, `[1,2]`, `"hi"`, ``, `null`, `{"s":"\ud83d"}`, `{"a":1}{"a":2}`, `{"path":"a.t`, `{"a":1,"a":2}`,
}

// The text that a model wrote stays in the journal as it was, for the next
// process as well, and what goes back to the provider is well-formed: the
// conversation goes on.
func TestMalformedArgumentsInHistory(t *testing.T) {
	tool := flue.NewTool(flue.Tool{Name: "work", Description: "Work."}, func(context.Context, struct{}) (string, error) { return "done", nil })
	for name, service := range services {
		for _, arguments := range malformed {
			t.Run(fmt.Sprintf("%s/%q", name, arguments), func(t *testing.T) {
				kept := memstore.New()
				server := service.start(t, arguments)
				rt, err := flue.Open(t.Context(), flue.Config{Agents: []*flue.Agent{offering(tool)}, Providers: map[string]model.Provider{"fake": server.provider}, Store: kept})
				if err != nil {
					t.Fatal(err)
				}
				if reply := ask(t, rt, "go"); reply.Text != "understood" {
					t.Errorf("reply %q", reply.Text)
				}
				if err := rt.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				for i, body := range server.bodies() {
					service.replayed(t, i, body)
				}
				// The next process reads the journal.
				f := &fake{answer: func(*model.Request) []model.Block { return text("still here") }}
				rt, err = flue.Open(t.Context(), flue.Config{Agents: []*flue.Agent{offering(tool)}, Providers: map[string]model.Provider{"fake": f}, Store: kept.Reopen()})
				if err != nil {
					t.Fatal(err)
				}
				defer rt.Close(context.WithoutCancel(t.Context()))
				if reply := ask(t, rt, "go on"); reply.Text != "still here" {
					t.Errorf("reply %q", reply.Text)
				}
				blocks := f.requests[0].Messages[1].Blocks
				if raw := blocks[len(blocks)-1].Arguments; raw != arguments {
					t.Errorf("the journal has the arguments %q", raw)
				}
			})
		}
	}
}

// A service stands in for a model service: its first answer is a call with the
// arguments, its second a text.
type service struct {
	path     string
	provider func(url string) model.Provider
	call     func(arguments string) string
	say      string

	// input returns from a request what it says the arguments were and what
	// came of the call.
	input func(t *testing.T, body []byte) (arguments, result string)
}

type running struct {
	provider model.Provider
	mu       sync.Mutex
	received [][]byte
}

func (r *running) bodies() [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.received
}

func (s service) start(t *testing.T, arguments string) *running {
	r := &running{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil || req.URL.Path != s.path {
			t.Errorf("%s: %v", req.URL, err)
		}
		r.mu.Lock()
		r.received = append(r.received, body)
		first := len(r.received) == 1
		r.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		answer := s.say
		if first {
			answer = s.call(arguments)
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	r.provider = s.provider(server.URL)
	return r
}

// replayed asserts that a service can read a request.
func (s service) replayed(t *testing.T, i int, body []byte) {
	t.Helper()
	// A strict reader minds broken Unicode too. A name that occurs twice is
	// replayed as it was written: the grammar of JSON allows it.
	twice := jsontext.AllowDuplicateNames(true)
	if !jsontext.Value(body).IsValid(twice) {
		t.Errorf("request %d is no JSON that a strict reader takes: %s", i, body)
	}
	if i == 0 {
		return
	}
	arguments, result := s.input(t, body)
	if v := jsontext.Value(arguments); !v.IsValid(twice) || v.Kind() != '{' {
		t.Errorf("the arguments are replayed as %s, want an object", arguments)
	}
	if result == "" {
		t.Errorf("no result is replayed: %s", body)
	}
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

var services = map[string]service{
	"openai": {
		path:     "/v1/chat/completions",
		provider: func(url string) model.Provider { return openai.New(openai.Config{BaseURL: url + "/v1"}) },
		call: func(arguments string) string {
			return `data: {"choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"work","arguments":` + quoted(arguments) + `}}]}}]}` + "\n\n" +
				`data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}` + "\n\ndata: [DONE]\n\n"
		},
		say: `data: {"choices":[{"index":0,"delta":{"content":"understood"}}]}` + "\n\n" + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n",
		input: func(t *testing.T, body []byte) (string, string) {
			var req struct {
				Messages []struct {
					Role  string
					Calls []struct {
						Function struct{ Arguments string }
					} `json:"tool_calls"`
					Content any
				}
			}
			if err := json.Unmarshal(body, &req); err != nil || len(req.Messages) != 4 || len(req.Messages[2].Calls) != 1 {
				t.Fatalf("%v: %s", err, body)
			}
			return req.Messages[2].Calls[0].Function.Arguments, fmt.Sprint(req.Messages[3].Content)
		},
	},
	"openai-responses": {
		path: "/v1/responses",
		provider: func(url string) model.Provider {
			return openai.NewResponses(openai.Config{BaseURL: url + "/v1", Name: "fake"})
		},
		call: func(arguments string) string {
			return events(
				`{"type":"response.output_item.done","output_index":0,"item":`+reasoningItem+`}`,
				`{"type":"response.output_item.done","output_index":1,"item":{"id":"fc_1","type":"function_call","call_id":"c1","name":"work","arguments":`+quoted(arguments)+`}}`,
				`{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":1,"output_tokens":2}}}`)
		},
		say: events(
			`{"type":"response.output_item.done","output_index":0,"item":{"id":"msg_1","type":"message","content":[{"type":"output_text","text":"understood"}]}}`,
			`{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":1,"output_tokens":2}}}`),
		input: func(t *testing.T, body []byte) (string, string) {
			var req struct{ Input []json.RawMessage }
			if err := json.Unmarshal(body, &req); err != nil || len(req.Input) != 4 {
				t.Fatalf("%v: %s", err, body)
			}
			if got := string(req.Input[1]); got != reasoningItem { // it has been through the journal
				t.Errorf("the reasoning is replayed as %s, want %s", got, reasoningItem)
			}
			var call, output struct {
				ID                string
				Arguments, Output string
			}
			if err := errors.Join(json.Unmarshal(req.Input[2], &call), json.Unmarshal(req.Input[3], &output)); err != nil || call.ID != "fc_1" {
				t.Fatalf("%v: %s", err, body)
			}
			return call.Arguments, output.Output
		},
	},
	"anthropic": {
		path:     "/v1/messages",
		provider: func(url string) model.Provider { return anthropic.New(anthropic.Config{BaseURL: url}) },
		call: func(arguments string) string {
			return events(
				`{"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`,
				`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"work","input":{}}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":`+quoted(arguments)+`}}`,
				`{"type":"content_block_stop","index":0}`,
				`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":2}}`,
				`{"type":"message_stop"}`)
		},
		say: events(
			`{"type":"message_start","message":{"id":"m2","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"understood"}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`,
			`{"type":"message_stop"}`),
		input: func(t *testing.T, body []byte) (string, string) {
			var req struct {
				Messages []struct {
					Content []struct {
						Type    string
						Input   json.RawMessage
						Content any
					}
				}
			}
			if err := json.Unmarshal(body, &req); err != nil || len(req.Messages) != 3 {
				t.Fatalf("%v: %s", err, body)
			}
			return string(req.Messages[1].Content[0].Input), fmt.Sprint(req.Messages[2].Content[0].Content)
		},
	},
}

// reasoningItem is what OpenAI wants back to the byte.
const reasoningItem = `{"id":"rs_1","type":"reasoning","encrypted_content":"gAAAA<&>+/==","summary":[{"text":"caf\u00e9 “é”","type":"summary_text"}],"n":1.50}`

// events are server-sent events, each named by its type.
func events(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		var e struct{ Type string }
		if err := json.Unmarshal([]byte(d), &e); err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", e.Type, d)
	}
	return b.String()
}
