package openai_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/openai"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// play returns a client that answers with the stream given, and the last
// request that it was given.
func play(stream string) (*http.Client, func() (*http.Request, []byte)) {
	var last *http.Request
	var body []byte
	client := &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		last = r
		body, _ = io.ReadAll(r.Body)
		return &http.Response{
			StatusCode: 200, Request: r, Body: io.NopCloser(strings.NewReader(stream)),
			Header: http.Header{"Content-Type": {"text/event-stream"}},
		}, nil
	})}
	return client, func() (*http.Request, []byte) { return last, body }
}

const emptyAnswer = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"

// sent returns the body that c sends for req.
func sent(t testing.TB, c openai.Config, req *model.Request) []byte {
	t.Helper()
	client, last := play(emptyAnswer)
	c.Client, c.APIKey = client, "sk-test"
	if _, err := modeltest.Collect(t, openai.New(c).Stream(t.Context(), req)); err != nil {
		t.Fatal(err)
	}
	_, body := last()
	return body
}

func golden(t *testing.T, name string, body []byte) {
	t.Helper()
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, body, "", "  "); err != nil {
		t.Fatal(err)
	}
	pretty.WriteByte('\n')
	// Go 1.27 writes this character as itself, earlier versions escape it. An
	// escaped backslash before it is part of JSON within a string.
	text := strings.NewReplacer(`\\`, `\\`, `\ufffd`, "\uFFFD").Replace(pretty.String())
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s (-golden +sent):\n%s", path, diff)
	}
}

func TestGoldenRequests(t *testing.T) {
	details := json.RawMessage(`{"reasoning_details":[{"type":"reasoning.text","text":"Two orders, two lookups.","signature":"c2ln<&>==","index":0}]}`)
	conversation := func(provider, id string) *model.Request {
		return modeltest.Conversation(model.Origin{Provider: provider, Model: id}, details)
	}
	tests := []struct {
		name   string
		config openai.Config
		req    func() *model.Request
	}{
		{"hello.json", openai.Config{}, modeltest.Hello},
		{"conversation.json", openai.Config{}, func() *model.Request {
			req := conversation("openai", "gpt-5-mini")
			req.Thinking, req.MaxOutput = model.ThinkingMedium, 4096
			req.Info = model.Info{MaxOutput: 128000, Reasoning: true, Levels: []model.Thinking{model.ThinkingLow, model.ThinkingMedium, model.ThinkingHigh}}
			return req
		}},
		{"conversation_other_model.json", openai.Config{}, func() *model.Request {
			req := conversation("openai", "gpt-5-mini")
			req.Model = "gpt-4.1"
			return req
		}},
		{"conversation_replay.json", openai.Config{Name: "deepseek", BaseURL: "https://api.deepseek.com"}, func() *model.Request {
			req := conversation("deepseek", "deepseek-v4-pro")
			req.Info = model.Info{MaxOutput: 8192, ContextWindow: 128000}
			return req
		}},
		{"damaged.json", openai.Config{}, func() *model.Request {
			return modeltest.Damaged(model.Origin{Provider: "openai", Model: "gpt-4.1"})
		}},
		{"unlocked.json", openai.Config{}, func() *model.Request {
			return modeltest.Unlocked(model.Origin{Provider: "openai", Model: "gpt-4.1"})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { golden(t, tt.name, sent(t, tt.config, tt.req())) })
	}
}

func TestHeadersAndURL(t *testing.T) {
	client, last := play(emptyAnswer)
	p := openai.New(openai.Config{
		BaseURL: "https://gateway.test/openai/v1/?api-version=7", APIKey: "sk-test", Client: client,
		Headers: map[string]string{"OpenAI-Organization": "org-1"},
	})
	if _, err := modeltest.Collect(t, p.Stream(t.Context(), modeltest.Hello())); err != nil {
		t.Fatal(err)
	}
	r, _ := last()
	if got := r.URL.String(); got != "https://gateway.test/openai/v1/chat/completions?api-version=7" {
		t.Errorf("URL = %s", got)
	}
	for name, want := range map[string]string{"Authorization": "Bearer sk-test", "Content-Type": "application/json", "Openai-Organization": "org-1"} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
}

func TestConfigFlaws(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config openai.Config
		req    *model.Request
		class  model.Class
		part   string
	}{
		{"no key", openai.Config{}, modeltest.Hello(), model.Auth, "OPENAI_API_KEY"},
		{"bad URL", openai.Config{BaseURL: "localhost:8080", APIKey: "k"}, modeltest.Hello(), model.Invalid, "http://"},
		{"no model", openai.Config{APIKey: "k"}, &model.Request{Messages: modeltest.Hello().Messages}, model.Invalid, "no model"},
		{"no messages", openai.Config{APIKey: "k"}, &model.Request{Model: "m"}, model.Invalid, "no messages"},
	} {
		_, err := modeltest.Collect(t, openai.New(tt.config).Stream(t.Context(), tt.req))
		e, ok := err.(*model.Error)
		if !ok || e.Class != tt.class || e.Provider != "openai" || !strings.Contains(e.Message, tt.part) {
			t.Errorf("%s: error = %v, want class %s and %q", tt.name, err, tt.class, tt.part)
		}
	}
}

func TestLimitsAndEffort(t *testing.T) {
	type levels = []model.Thinking
	const (
		off, minimal, low, medium, high, xhigh = model.ThinkingOff, model.ThinkingMinimal, model.ThinkingLow, model.ThinkingMedium, model.ThinkingHigh, model.ThinkingXHigh
	)
	compatible := openai.Config{BaseURL: "http://127.0.0.1:8000/v1"}
	tests := []struct {
		name   string
		config openai.Config
		model  string
		level  model.Thinking
		output int
		info   model.Info
		tools  bool

		effort string
		max    int // max_completion_tokens
		old    int // max_tokens
	}{
		{name: "nothing known"},
		{name: "limit of the request", output: 100, max: 100},
		{name: "limit of the request, old field", config: openai.Config{BaseURL: "http://h/v1", MaxTokens: true}, output: 100, old: 100},
		{name: "OpenAI knows its models' limits", info: model.Info{MaxOutput: 5000}},
		{name: "other servers are told", config: compatible, info: model.Info{MaxOutput: 5000}, max: 5000},
		{name: "but not to reserve the whole window", config: compatible, info: model.Info{MaxOutput: 5000, ContextWindow: 8000}},
		{name: "Mistral takes the old field", config: openai.Config{BaseURL: "https://api.mistral.ai/v1"}, output: 9, old: 9},

		{name: "default effort", info: model.Info{Reasoning: true}},
		{name: "explicit effort", level: medium, effort: "medium"},
		{name: "xhigh where it is listed", level: xhigh, info: model.Info{Levels: levels{low, xhigh}}, effort: "xhigh"},
		{name: "xhigh above the ceiling", level: xhigh, info: model.Info{Levels: levels{low, medium, high}}, effort: "high"},
		{name: "xhigh where nothing is listed", level: xhigh, effort: "high"},
		{name: "minimal where nothing is listed", level: minimal, effort: "low"},
		{name: "minimal where it is listed", level: minimal, info: model.Info{Levels: levels{minimal, high}}, effort: "minimal"},
		{name: "off where it is listed", level: off, info: model.Info{Levels: levels{off, low}}, effort: "none"},
		{name: "off where it is not", level: off, info: model.Info{Levels: levels{low, high}}, effort: "low"},
		{name: "off for a model that reasons", level: off, info: model.Info{Reasoning: true}, effort: "low"},
		{name: "off for one that may not", level: off},

		{name: "tools with GPT-5", model: "gpt-5", level: high, tools: true, effort: "high"},
		{name: "tools with GPT-5.4", model: "gpt-5.4", level: high, tools: true, effort: "none"},
		{name: "tools with GPT-5.6, default", model: "gpt-5.6-terra", tools: true, effort: "none"},
		{name: "tools with a later model", model: "gpt-6-mini", tools: true, effort: "none"},
		{name: "no tools with GPT-5.4", model: "gpt-5.4", level: high, effort: "high"},
		{name: "tools with GPT-4.1", model: "gpt-4.1", tools: true},
		{name: "tools with GPT-5.4 elsewhere", config: compatible, model: "gpt-5.4", level: high, tools: true, effort: "high"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := modeltest.Hello()
			if tt.model != "" {
				req.Model = tt.model
			}
			req.Thinking, req.MaxOutput, req.Info = tt.level, tt.output, tt.info
			if tt.tools {
				req.Tools = []model.Tool{{Name: "now"}}
			}
			var got struct {
				Max    int    `json:"max_completion_tokens"`
				Old    int    `json:"max_tokens"`
				Effort string `json:"reasoning_effort"`
			}
			if err := json.Unmarshal(sent(t, tt.config, req), &got); err != nil {
				t.Fatal(err)
			}
			if got.Max != tt.max || got.Old != tt.old || got.Effort != tt.effort {
				t.Errorf("got %+v, want {%d %d %s}", got, tt.max, tt.old, tt.effort)
			}
		})
	}
}

// Fields that other servers may refuse go to OpenAI alone.
func TestOwnFields(t *testing.T) {
	req := modeltest.Hello()
	req.System, req.CacheKey, req.Info.Reasoning = "Be brief.", strings.Repeat("k", 100), true
	for _, tt := range []struct {
		name   string
		config openai.Config
		own    bool
		key    bool
	}{
		{"OpenAI", openai.Config{}, true, true},
		{"another server", openai.Config{BaseURL: "https://api.openai.com.evil.test/v1"}, false, false},
		{"another server that takes a key", openai.Config{BaseURL: "http://h/v1", PromptCacheKey: true}, false, true},
	} {
		body := string(sent(t, tt.config, req))
		if got := strings.Contains(body, `"store":false`) && strings.Contains(body, `"developer"`); got != tt.own {
			t.Errorf("%s: has OpenAI's own fields = %v, want %v: %s", tt.name, got, tt.own, body)
		}
		var key struct {
			Key string `json:"prompt_cache_key"`
		}
		if err := json.Unmarshal([]byte(body), &key); err != nil || (key.Key != "") != tt.key || len(key.Key) > 64 {
			t.Errorf("%s: prompt_cache_key = %q, %v", tt.name, key.Key, err)
		}
	}
}

// A call's result must name the call by the id that was sent, whatever became
// of the id.
func TestCallIDsMatch(t *testing.T) {
	own := model.Origin{Provider: "openai", Model: "gpt-4.1"}
	long := strings.Repeat("signature-in-the-id.", 20)
	for _, tt := range []struct {
		name   string
		origin model.Origin
		keep   bool
	}{{"own", own, true}, {"foreign", model.Origin{Provider: "x", Model: "y"}, false}} {
		req := modeltest.Hello()
		req.Model = own.Model
		req.Messages = append(req.Messages,
			model.Message{Role: model.RoleAssistant, Origin: tt.origin, Blocks: []model.Block{{Kind: model.ToolCall, CallID: long, Name: "now"}}},
			model.Message{Role: model.RoleTool, Blocks: []model.Block{{Kind: model.ToolResult, CallID: long, Text: "x"}}})
		var body struct {
			Messages []struct {
				ToolCalls []struct{ ID string } `json:"tool_calls"`
				CallID    string                `json:"tool_call_id"`
			}
		}
		if err := json.Unmarshal(sent(t, openai.Config{}, req), &body); err != nil {
			t.Fatal(err)
		}
		call, result := body.Messages[1].ToolCalls[0].ID, body.Messages[2].CallID
		if call != result || call == "" || (call == long) != tt.keep || !tt.keep && len(call) > 40 {
			t.Errorf("%s: call %q, result %q", tt.name, call, result)
		}
	}
}
