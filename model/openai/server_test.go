package openai_test

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/modeltest/rules"
	"github.com/flue-go/flue/model/openai"
)

// A representative model of each server that does something in its own way.
var servers = map[openai.Server]string{
	openai.ServerCerebras: "gpt-oss-120b", openai.ServerDeepSeek: "deepseek-v4-pro", openai.ServerFireworks: "accounts/fireworks/models/glm-5",
	openai.ServerGroq: "qwen/qwen3-32b", openai.ServerLMStudio: "qwen3-8b", openai.ServerMistral: "mistral-medium-3-5",
	openai.ServerMoonshot: "kimi-k2.6", openai.ServerOllama: "qwen3:8b", openai.ServerOpenRouter: "z-ai/glm-4.6",
	openai.ServerTogether: "openai/gpt-oss-120b", openai.ServerVLLM: "Qwen/Qwen3-32B", openai.ServerXAI: "grok-4.5",
}

// What each server is sent for the same conversation, at the address of a
// gateway: nothing but Config.Server tells them apart.
func TestServers(t *testing.T) {
	for server, id := range servers {
		t.Run(string(server), func(t *testing.T) {
			own := model.Origin{Provider: string(server), Model: id}
			var kept json.RawMessage
			if server == openai.ServerOpenRouter {
				kept = json.RawMessage(`{"reasoning_details":[{"type":"reasoning.text","text":"Two orders, two lookups."}]}`)
			}
			req := modeltest.Conversation(own, kept)
			req.Thinking, req.MaxOutput = model.ThinkingHigh, 1000
			golden(t, "servers/"+string(server)+".json", sent(t, openai.Config{Server: server, Name: string(server), BaseURL: "http://gateway.test/v1"}, req))
		})
	}
}

// At OpenRouter, Claude keeps what it has read where that is marked, and no other
// model is sent marks.
func TestCacheMarks(t *testing.T) {
	c := openai.Config{Server: openai.ServerOpenRouter, Name: "openrouter", BaseURL: "http://gateway.test/v1"}
	own := model.Origin{Provider: "openrouter", Model: "anthropic/claude-sonnet-4.6"}
	golden(t, "servers/openrouter-claude.json", sent(t, c, modeltest.Conversation(own, nil)))
	for id, want := range map[string]int{own.Model: 3, "z-ai/glm-4.6": 0, "openai/gpt-5": 0} {
		req := modeltest.Conversation(own, nil)
		req.Model = id
		if n := strings.Count(string(sent(t, c, req)), `"cache_control":{"type":"ephemeral"}`); n != want {
			t.Errorf("%s: %d marks, want %d", id, n, want)
		}
	}
	modeltest.Histories(t, rules.ChatCompletions, own, []model.Block{{Kind: model.Text, Text: "Hello."}}, func(req *model.Request) ([]byte, error) {
		if req.Thinking == model.ThinkingMax {
			req.Thinking = model.ThinkingHigh // OpenRouter takes it, and OpenAI, whose rules these are, does not
		}
		return sent(t, c, req), nil
	})
}

// A conversation stays where its cache is by a key that each server wants in its
// own place.
func TestCacheKey(t *testing.T) {
	const key = "01M8N3QQ942M5NJKBDXFKNWEQ9"
	for _, tt := range []struct {
		config openai.Config
		key    string
		chat   string // where it goes, and what it is
		other  string // in Responses, if it is another place
	}{
		{openai.Config{Server: openai.ServerXAI}, key, "X-Grok-Conv-Id: " + key, "prompt_cache_key: " + key},
		{openai.Config{Server: openai.ServerOpenRouter}, key, "X-Session-Id: " + key, ""},
		{openai.Config{Server: openai.ServerFireworks}, key, "X-Session-Affinity: " + key, ""},
		{openai.Config{Server: openai.ServerFireworks}, "", "", ""},
		{openai.Config{Server: openai.ServerFireworks}, "ключ", "X-Session-Affinity: 1de36a32af798da0c1ac9297603a320ed8fe567cf21c9177112a4ce914ebb8be", ""},
		{openai.Config{Server: openai.ServerFireworks, Headers: map[string]string{"x-session-affinity": "own"}}, key, "X-Session-Affinity: own", ""},
		{openai.Config{Server: openai.ServerGroq}, key, "", ""},
		{openai.Config{}, key, "", ""},
		{openai.Config{CacheKeyHeader: "x-conversation"}, key, "X-Conversation: " + key, ""},
		{openai.Config{PromptCacheKey: true}, key, "prompt_cache_key: " + key, ""},
	} {
		req := modeltest.Hello()
		req.CacheKey = tt.key
		c := tt.config
		c.Name, c.BaseURL = "p", "http://gateway.test/v1"
		for api, want := range map[string]string{"chat": tt.chat, "responses": cmp.Or(tt.other, tt.chat)} {
			client, last := play(map[string]string{"chat": emptyAnswer, "responses": lines(completed)}[api])
			c.Client = client
			var p model.Provider = openai.New(c)
			if api == "responses" {
				p = openai.NewResponses(c)
			}
			if _, err := modeltest.Collect(t, p.Stream(t.Context(), req)); err != nil {
				t.Fatal(err)
			}
			r, body := last()
			if got := keyOf(t, r, body); got != want {
				t.Errorf("%s, %+v: sent %q, want %q", api, tt.config, got, want)
			}
		}
	}
}

// keyOf returns where a request has a key of its conversation, and the key.
func keyOf(t *testing.T, r *http.Request, body []byte) string {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil {
		t.Fatal(err)
	}
	var found []string
	if key, sent := fields["prompt_cache_key"]; sent {
		found = append(found, "prompt_cache_key: "+key.(string))
	}
	for name, values := range r.Header {
		if strings.HasPrefix(name, "X-") {
			found = append(found, name+": "+values[0])
		}
	}
	return strings.Join(found, ", ")
}

// Servers with an address of their own need no Config.Server.
func TestServerByAddress(t *testing.T) {
	for url, want := range map[string]openai.Server{
		"https://api.cerebras.ai/v1": openai.ServerCerebras, "https://api.deepseek.com": openai.ServerDeepSeek,
		"https://api.fireworks.ai/inference/v1": openai.ServerFireworks, "https://api.groq.com/openai/v1": openai.ServerGroq,
		"https://api.mistral.ai/v1": openai.ServerMistral, "https://api.moonshot.cn/v1": openai.ServerMoonshot,
		"https://openrouter.ai/api/v1": openai.ServerOpenRouter, "https://api.together.xyz/v1": openai.ServerTogether,
		"https://api.x.ai/v1": openai.ServerXAI, "http://10.0.0.5:11434/v1": openai.ServerOllama,
		"http://127.0.0.1:8000/v1": openai.ServerStandard,
	} {
		req := modeltest.Conversation(model.Origin{Provider: "p", Model: servers[want]}, nil)
		req.Model, req.Thinking, req.MaxOutput = cmp.Or(servers[want], "m"), model.ThinkingOff, 10
		known := sent(t, openai.Config{Name: "p", BaseURL: url}, req)
		told := sent(t, openai.Config{Name: "p", BaseURL: "http://gateway.test/v1", Server: want}, req)
		if string(known) != string(told) {
			t.Errorf("%s is not taken for %s:\n%s\n%s", url, want, known, told)
		}
	}
}

// The levels of effort as each server takes them.
func TestServerEffort(t *testing.T) {
	const (
		def, off, minimal, low, medium, high, xhigh, most = model.ThinkingDefault, model.ThinkingOff, model.ThinkingMinimal, model.ThinkingLow, model.ThinkingMedium, model.ThinkingHigh, model.ThinkingXHigh, model.ThinkingMax
	)
	all := []model.Thinking{def, off, minimal, low, medium, high, xhigh, most}
	// "-" is nothing, "!" turned off by a field of its own.
	for _, tt := range []struct {
		server openai.Server
		model  string
		info   model.Info
		want   string // for all levels, in order
	}{
		{openai.ServerStandard, "m", model.Info{}, "- - low low medium high high high"},
		{openai.ServerStandard, "m", model.Info{Reasoning: true}, "- low low low medium high high high"},
		{openai.ServerDeepSeek, "deepseek-v4-pro", model.Info{Reasoning: true, Levels: []model.Thinking{low, high, most}}, "- ! low low low high high max"},
		{openai.ServerFireworks, "m", model.Info{}, "- none low low medium high high high"},
		{openai.ServerGroq, "qwen/qwen3-32b", model.Info{}, "- none default default default default default default"},
		{openai.ServerGroq, "openai/gpt-oss-20b", model.Info{}, "- low low low medium high high high"},
		{openai.ServerGroq, "llama-3.3-70b-versatile", model.Info{}, "- - - - - - - -"},
		{openai.ServerMistral, "mistral-small-latest", model.Info{}, "- none high high high high high high"},
		{openai.ServerMoonshot, "kimi-k2.6", model.Info{Reasoning: true}, "- ! low low medium high high high"},
		{openai.ServerMoonshot, "kimi-k3", model.Info{Reasoning: true}, "- low low low medium high high high"},
		{openai.ServerOllama, "qwen3", model.Info{}, "- none low low medium high high high"},
		{openai.ServerOllama, "gpt-oss:20b", model.Info{Levels: []model.Thinking{low, medium, high}}, "- low low low medium high high high"},
		{openai.ServerOpenRouter, "m", model.Info{}, "- none minimal low medium high xhigh max"},
		{openai.ServerXAI, "grok-4.5", model.Info{Reasoning: true, Levels: []model.Thinking{low, medium, high}}, "- low low low medium high high high"},
	} {
		var got []string
		for _, level := range all {
			req := modeltest.Hello()
			req.Model, req.Thinking, req.Info = tt.model, level, tt.info
			var body struct {
				Effort   string `json:"reasoning_effort"`
				Thinking *struct{ Type string }
			}
			if err := json.Unmarshal(sent(t, openai.Config{BaseURL: "http://gateway.test/v1", Server: tt.server}, req), &body); err != nil {
				t.Fatal(err)
			}
			switch {
			case body.Thinking != nil && body.Thinking.Type == "disabled" && body.Effort == "":
				body.Effort = "!"
			case body.Effort == "":
				body.Effort = "-"
			}
			got = append(got, body.Effort)
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s %s: %s\n\twant %s", tt.server, tt.model, s, tt.want)
		}
	}
}

// Mistral takes nine letters or digits for the id of a call. What it sent itself
// stays, and a result names the id of its call.
func TestMistralCallIDs(t *testing.T) {
	own := model.Origin{Provider: "mistral", Model: "m"}
	req := &model.Request{Model: "m", Messages: []model.Message{
		{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: "go"}}},
		{Role: model.RoleAssistant, Origin: own, Blocks: []model.Block{
			{Kind: model.ToolCall, CallID: "abcDEF123", Name: "a"}, {Kind: model.ToolCall, CallID: "call_1", Name: "b"}, {Kind: model.ToolCall, CallID: "call_2", Name: "b"},
		}},
		{Role: model.RoleTool, Blocks: []model.Block{
			{Kind: model.ToolResult, CallID: "abcDEF123"}, {Kind: model.ToolResult, CallID: "call_1"}, {Kind: model.ToolResult, CallID: "call_2"},
		}},
	}}
	var body struct {
		Messages []struct {
			Calls []struct{ ID string } `json:"tool_calls"`
			ID    string                `json:"tool_call_id"`
			Name  string
		}
	}
	if err := json.Unmarshal(sent(t, openai.Config{Name: "mistral", BaseURL: "http://gateway.test/v1", Server: openai.ServerMistral}, req), &body); err != nil {
		t.Fatal(err)
	}
	valid, seen := regexp.MustCompile(`^[A-Za-z0-9]{9}$`), map[string]bool{}
	for i, c := range body.Messages[1].Calls {
		result := body.Messages[2+i]
		if !valid.MatchString(c.ID) || seen[c.ID] || result.ID != c.ID || result.Name == "" {
			t.Errorf("call %q and its result %+v", c.ID, result)
		}
		seen[c.ID] = true
	}
	if body.Messages[1].Calls[0].ID != "abcDEF123" {
		t.Error("an id of Mistral's own was changed")
	}
}

// OpenRouter says what a call cost. Nobody else is believed, and nothing that it
// says fails an answer.
func TestCharged(t *testing.T) {
	for _, tt := range []struct {
		name, usage string
		server      openai.Server
		want        float64 // negative for nothing
	}{
		{"cost", `"cost":0.00078`, openai.ServerOpenRouter, 0.00078},
		{"free", `"cost":0`, openai.ServerOpenRouter, 0},
		{"key of the caller's", `"cost":0.01,"is_byok":true,"cost_details":{"upstream_inference_cost":0.25}`, openai.ServerOpenRouter, 0.26},
		{"key of the caller's, and no word of the rest", `"cost":0.01,"is_byok":true,"cost_details":null`, openai.ServerOpenRouter, -1},
		{"not a key of the caller's", `"cost":0.01,"is_byok":false,"cost_details":{"upstream_inference_cost":0.25}`, openai.ServerOpenRouter, 0.01},
		{"nothing", `"prompt_tokens":1`, openai.ServerOpenRouter, -1},
		{"null", `"cost":null`, openai.ServerOpenRouter, -1},
		{"no number", `"cost":"0.1","is_byok":"x","cost_details":[]`, openai.ServerOpenRouter, -1},
		{"negative", `"cost":-1`, openai.ServerOpenRouter, -1},
		{"of another server", `"cost":5`, openai.ServerVLLM, -1},
	} {
		stream := `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n" +
			`data: {"choices":[],"usage":{` + tt.usage + "}}\n\ndata: [DONE]\n\n"
		client, _ := play(stream)
		p := openai.New(openai.Config{BaseURL: "http://gateway.test/v1", Server: tt.server, Client: client})
		got, err := modeltest.Collect(t, p.Stream(t.Context(), modeltest.Hello()))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		c := got.Done.Charged
		if (c == nil) != (tt.want < 0) || c != nil && *c != tt.want {
			t.Errorf("%s: charged %v, want %v", tt.name, c, tt.want)
		}
	}
}
