package anthropic_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/modeltest"
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

const emptyAnswer = `data: {"type":"message_start","message":{"model":"m","usage":{"input_tokens":1}}}` + "\n\n" +
	`data: {"type":"message_stop"}` + "\n\n"

// sent returns the body that c sends for req.
func sent(t testing.TB, c anthropic.Config, req *model.Request) []byte {
	t.Helper()
	client, last := play(emptyAnswer)
	c.Client, c.APIKey = client, "sk-test"
	if _, err := modeltest.Collect(t, anthropic.New(c).Stream(t.Context(), req)); err != nil {
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
	own := model.Origin{Provider: "anthropic", Model: "claude-sonnet-4-5-20250929"}
	signed := json.RawMessage(`{"block":{"type":"thinking","thinking":"Two orders, two lookups.","signature":"c2ln<&>=="}}`)
	tests := []struct {
		name string
		req  func() *model.Request
	}{
		{"hello.json", modeltest.Hello},
		{"conversation.json", func() *model.Request {
			req := modeltest.Conversation(own, signed)
			req.Thinking, req.MaxOutput = model.ThinkingMedium, 4096
			req.Info = model.Info{MaxOutput: 64000, Reasoning: true}
			return req
		}},
		{"conversation_other_model.json", func() *model.Request {
			req := modeltest.Conversation(own, signed)
			req.Model, req.Thinking = "claude-opus-4-7", model.ThinkingXHigh
			req.Info = model.Info{MaxOutput: 128000, Reasoning: true}
			return req
		}},
		{"damaged.json", func() *model.Request { return modeltest.Damaged(own) }},
		{"unlocked.json", func() *model.Request { return modeltest.Unlocked(own) }},
		{"unlocked_baseline.json", func() *model.Request {
			req := modeltest.Unlocked(own)
			req.Tools[1].After = ""
			return req
		}},
		{"unlocked_unsupported.json", func() *model.Request {
			req := modeltest.Unlocked(own)
			req.Info.DeferredTools = false
			return req
		}},
		{"unlocked_compacted.json", func() *model.Request {
			req := modeltest.Unlocked(own)
			req.Messages = req.Messages[3:]
			return req
		}},
		{"unlocked_alone.json", func() *model.Request {
			req := modeltest.Unlocked(own)
			req.Tools = req.Tools[1:2]
			return req
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { golden(t, tt.name, sent(t, anthropic.Config{}, tt.req())) })
	}
}

func TestHeadersAndURL(t *testing.T) {
	client, last := play(emptyAnswer)
	p := anthropic.New(anthropic.Config{
		BaseURL: "https://gateway.test/anthropic/", APIKey: "sk-test", Client: client,
		Headers: map[string]string{"anthropic-beta": "x-2026", "User-Agent": "acme"},
	})
	if _, err := modeltest.Collect(t, p.Stream(t.Context(), modeltest.Hello())); err != nil {
		t.Fatal(err)
	}
	r, _ := last()
	if got := r.URL.String(); got != "https://gateway.test/anthropic/v1/messages" {
		t.Errorf("URL = %s", got)
	}
	for name, want := range map[string]string{
		"X-Api-Key": "sk-test", "Anthropic-Version": "2023-06-01", "Content-Type": "application/json",
		"Anthropic-Beta": "x-2026", "User-Agent": "acme",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
}

func TestConfigFlaws(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config anthropic.Config
		req    *model.Request
		class  model.Class
		part   string
	}{
		{"no key", anthropic.Config{}, modeltest.Hello(), model.Auth, "ANTHROPIC_API_KEY"},
		{"bad URL", anthropic.Config{BaseURL: "localhost:8080", APIKey: "k"}, modeltest.Hello(), model.Invalid, "http://"},
		{"no model", anthropic.Config{APIKey: "k"}, &model.Request{Messages: modeltest.Hello().Messages}, model.Invalid, "no model"},
		{"no messages", anthropic.Config{APIKey: "k"}, &model.Request{Model: "m"}, model.Invalid, "no messages"},
	} {
		_, err := modeltest.Collect(t, anthropic.New(tt.config).Stream(t.Context(), tt.req))
		e, ok := err.(*model.Error)
		if !ok || e.Class != tt.class || e.Provider != "anthropic" || !strings.Contains(e.Message, tt.part) {
			t.Errorf("%s: error = %v, want class %s and %q", tt.name, err, tt.class, tt.part)
		}
	}
}

func TestThinking(t *testing.T) {
	type levels = []model.Thinking
	const (
		off, low, medium, high, xhigh = model.ThinkingOff, model.ThinkingLow, model.ThinkingMedium, model.ThinkingHigh, model.ThinkingXHigh
		summarized                    = `{"type":"adaptive","display":"summarized"}`
	)
	tests := []struct {
		name   string
		model  string
		level  model.Thinking
		style  anthropic.ThinkingStyle
		output int // MaxOutput of the request
		limit  int // of the model
		levels levels

		thinking string
		effort   string
		max      int
	}{
		{name: "old model, default", model: "claude-haiku-4-5", max: 8192},
		{name: "old model, off", model: "claude-haiku-4-5", level: off, thinking: `{"type":"disabled"}`, max: 8192},
		{name: "old model, minimal", model: "claude-3-7-sonnet-20250219", level: model.ThinkingMinimal, thinking: `{"type":"enabled","budget_tokens":1024}`, max: 8192 + 1024},
		{name: "old model, high", model: "claude-opus-4-1-20250805", level: high, thinking: `{"type":"enabled","budget_tokens":16384}`, max: 8192 + 16384},
		{name: "old model with a limit", model: "claude-haiku-4-5", level: high, limit: 64000, thinking: `{"type":"enabled","budget_tokens":16384}`, max: 64000},
		{name: "budget on top of the answer", model: "claude-haiku-4-5", level: medium, output: 1000, limit: 64000, thinking: `{"type":"enabled","budget_tokens":8192}`, max: 9192},
		{name: "budget under the limit", model: "claude-haiku-4-5", level: xhigh, output: 8000, limit: 10000, thinking: `{"type":"enabled","budget_tokens":8976}`, max: 10000},
		{name: "no room for a budget", model: "claude-haiku-4-5", level: xhigh, output: 500, limit: 1400, max: 1400},
		{name: "budget beside a short answer", model: "claude-haiku-4-5", level: xhigh, output: 500, limit: 2000, thinking: `{"type":"enabled","budget_tokens":1500}`, max: 2000},
		{name: "dated id is no minor version", model: "claude-opus-4-20250514", level: low, thinking: `{"type":"enabled","budget_tokens":2048}`, max: 8192 + 2048},
		{name: "another maker", model: "kimi-k2-thinking", level: low, thinking: `{"type":"enabled","budget_tokens":2048}`, max: 8192 + 2048},
		{name: "4.6, default", model: "claude-sonnet-4-6", max: 8192},
		{name: "4.6, high", model: "claude-sonnet-4-6", level: high, thinking: summarized, effort: "high", max: 8192},
		{name: "4.6 has no xhigh", model: "claude-opus-4-6", level: xhigh, thinking: summarized, effort: "high", max: 8192},
		{name: "4.7, xhigh", model: "claude-opus-4-7", level: xhigh, thinking: summarized, effort: "xhigh", max: 8192},
		{name: "4.6, max", model: "claude-opus-4-6", level: model.ThinkingMax, thinking: summarized, effort: "max", max: 8192},
		{name: "haiku has neither", model: "claude-haiku-5-5", level: model.ThinkingMax, thinking: summarized, effort: "high", max: 8192},
		{name: "4.7, off although not listed", model: "claude-opus-4-7", level: off, levels: levels{low, high}, thinking: `{"type":"disabled"}`, max: 8192},
		{name: "4.7, default", model: "claude-opus-4-7", max: 8192},
		{name: "gateway id", model: "us.anthropic.claude-opus-4-7-v1:0", level: medium, thinking: summarized, effort: "medium", max: 8192},
		{name: "id with dots", model: "anthropic/claude-opus-4.8", level: model.ThinkingMinimal, thinking: summarized, effort: "low", max: 8192},
		{name: "5, default", model: "claude-opus-5", thinking: summarized, max: 8192},
		{name: "5, off", model: "claude-sonnet-5", level: off, thinking: `{"type":"disabled"}`, max: 8192},
		{name: "fable cannot be off", model: "claude-fable-5", level: off, thinking: summarized, effort: "low", max: 8192},
		{name: "mythos preview", model: "claude-mythos-preview", level: xhigh, thinking: summarized, effort: "xhigh", max: 8192},
		{name: "opus 5.5 cannot be off", model: "claude-opus-5-5", level: off, levels: levels{medium, high}, thinking: summarized, effort: "medium", max: 8192},
		{name: "sonnet 5.5, off", model: "claude-sonnet-5-5", level: off, thinking: `{"type":"between_tools"}`, max: 8192},
		{name: "haiku 5.5, off", model: "claude-haiku-5-5", level: off, thinking: `{"type":"disabled"}`, max: 8192},
		{name: "a later model", model: "claude-haiku-6", level: off, thinking: summarized, effort: "low", max: 8192},
		{name: "listed levels", model: "claude-opus-5", level: xhigh, levels: levels{low, medium}, thinking: summarized, effort: "medium", max: 8192},
		{name: "style budget", model: "claude-opus-4-6", level: low, style: anthropic.ThinkingBudget, thinking: `{"type":"enabled","budget_tokens":2048}`, max: 8192 + 2048},
		{name: "style adaptive", model: "acme-large", level: low, style: anthropic.ThinkingAdaptive, thinking: summarized, effort: "low", max: 8192},
		{name: "style never", model: "claude-opus-5", level: high, style: anthropic.ThinkingNever, output: 77, max: 77},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := modeltest.Hello()
			req.Model, req.Thinking, req.MaxOutput = tt.model, tt.level, tt.output
			req.Info = model.Info{MaxOutput: tt.limit, Levels: tt.levels}
			var got struct {
				MaxTokens    int             `json:"max_tokens"`
				Thinking     json.RawMessage `json:"thinking"`
				OutputConfig struct {
					Effort string `json:"effort"`
				} `json:"output_config"`
			}
			if err := json.Unmarshal(sent(t, anthropic.Config{Thinking: tt.style}, req), &got); err != nil {
				t.Fatal(err)
			}
			if string(got.Thinking) != tt.thinking || got.OutputConfig.Effort != tt.effort || got.MaxTokens != tt.max {
				t.Errorf("thinking %s, effort %q, max_tokens %d; want %s, %q, %d",
					got.Thinking, got.OutputConfig.Effort, got.MaxTokens, tt.thinking, tt.effort, tt.max)
			}
		})
	}
}

// A budget cannot be asked for in the middle of a turn that began without
// thinking; the API would refuse the request, and each one after it.
func TestNoBudgetInATurnBegunWithoutThinking(t *testing.T) {
	own := model.Origin{Provider: "anthropic", Model: "claude-haiku-4-5"}
	signed := model.Block{Kind: model.Reasoning, Opaque: json.RawMessage(`{"block":{"type":"thinking","thinking":"","signature":"s"}}`)}
	call := model.Block{Kind: model.ToolCall, CallID: "1", Name: "now"}
	result := model.Message{Role: model.RoleTool, Blocks: []model.Block{{Kind: model.ToolResult, CallID: "1", Text: "x"}}}
	user := modeltest.Hello().Messages[0]
	for _, tt := range []struct {
		name     string
		messages []model.Message
		asks     bool
	}{
		{"new turn", []model.Message{user, {Role: model.RoleAssistant, Blocks: []model.Block{call}}, result, {Role: model.RoleAssistant, Blocks: []model.Block{{Kind: model.Text, Text: "ok"}}}, user}, true},
		{"turn with thinking", []model.Message{user, {Role: model.RoleAssistant, Origin: own, Blocks: []model.Block{signed, call}}, result}, true},
		{"thinking only at its start", []model.Message{user, {Role: model.RoleAssistant, Origin: own, Blocks: []model.Block{signed, call}}, result, {Role: model.RoleAssistant, Origin: own, Blocks: []model.Block{call}}, result}, true},
		{"turn without thinking", []model.Message{user, {Role: model.RoleAssistant, Origin: own, Blocks: []model.Block{call}}, result}, false},
		{"turn of another model", []model.Message{user, {Role: model.RoleAssistant, Blocks: []model.Block{signed, call}}, result}, false},
	} {
		req := &model.Request{Model: own.Model, Messages: tt.messages, Thinking: model.ThinkingHigh}
		if asks := bytes.Contains(sent(t, anthropic.Config{}, req), []byte("budget_tokens")); asks != tt.asks {
			t.Errorf("%s: asks for a budget = %v, want %v", tt.name, asks, tt.asks)
		}
	}
}

// The cache is marked at the ends of what the next request begins with, and
// nowhere else; the API takes four marks.
func TestCacheMarks(t *testing.T) {
	own := model.Origin{Provider: "anthropic", Model: "claude-sonnet-4-5"}
	var body struct {
		System, Tools []struct {
			CacheControl any `json:"cache_control"`
		}
		Messages []struct {
			Role    string
			Content []struct {
				CacheControl any `json:"cache_control"`
			}
		}
	}
	if err := json.Unmarshal(sent(t, anthropic.Config{}, modeltest.Conversation(own, nil)), &body); err != nil {
		t.Fatal(err)
	}
	var marked []string
	for i, b := range body.System {
		if b.CacheControl != nil {
			marked = append(marked, fmt.Sprintf("system %d of %d", i+1, len(body.System)))
		}
	}
	for i, b := range body.Tools {
		if b.CacheControl != nil {
			marked = append(marked, fmt.Sprintf("tool %d of %d", i+1, len(body.Tools)))
		}
	}
	for i, m := range body.Messages {
		for k, b := range m.Content {
			if b.CacheControl != nil {
				marked = append(marked, fmt.Sprintf("%s %d of %d, block %d of %d", m.Role, i+1, len(body.Messages), k+1, len(m.Content)))
			}
		}
	}
	want := []string{"system 1 of 1", "tool 2 of 2", "user 5 of 7, block 1 of 1", "user 7 of 7, block 2 of 2"}
	if diff := cmp.Diff(want, marked); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
}
