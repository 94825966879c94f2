package providers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/google"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/openai"
	"github.com/flue-go/flue/model/providers"
	"github.com/flue-go/flue/model/script"
)

var update = flag.Bool("update", false, "rewrite the golden files")

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// asked lets a provider make one request, which is refused, and returns the
// request in full.
func asked(t *testing.T, req *model.Request, open func(*http.Client) model.Provider) string {
	t.Helper()
	var b bytes.Buffer
	p := open(&http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		fmt.Fprintf(&b, "%s %s\n", r.Method, r.URL)
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			if name != "User-Agent" {
				fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(r.Header[name], ", "))
			}
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if err := json.Indent(&b, body, "", " "); err != nil {
			t.Error(err)
		}
		return nil, errors.New("no network")
	})})
	for _, err := range p.Stream(t.Context(), req) {
		var e *model.Error
		if !errors.As(err, &e) || e.Class != model.Retryable {
			t.Fatalf("the request was not made: %v", err)
		}
	}
	return b.String() + "\n"
}

// Each service is asked at its own address, with the key in the place where it
// looks for it, in its own API.
func TestKnownServices(t *testing.T) {
	for _, s := range providers.Known() {
		if s.API == "" {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			a := providers.Access{
				Key: "the-key", Project: "the-project",
				Token: nil,
			}
			switch s.Name {
			case "google-vertex":
				a.Token = func(context.Context) (string, error) { return "the-token", nil }
			case "azure-openai":
				a.BaseURL = "https://the-resource.openai.azure.com"
			}
			req := modeltest.Hello()
			req.Model, req.Thinking, req.MaxOutput, req.CacheKey = "the-model", model.ThinkingLow, 100, "the-conversation"
			req.Tools = []model.Tool{{Name: "now", Description: "The time.", Schema: json.RawMessage(`{"type":"object","properties":{"zone":{"type":"string"}}}`)}}
			got := asked(t, req, func(c *http.Client) model.Provider { a.Client = c; return s.New(a) })
			path := filepath.Join("testdata", s.Name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-golden +sent):\n%s", path, diff)
			}
		})
	}
}

func TestKnown(t *testing.T) {
	known := providers.Known()
	if !slices.IsSortedFunc(known, func(a, b providers.Service) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not in order")
	}
	for _, s := range known {
		if s.Name == "" || s.Title == "" || (s.API == "") != (s.Reason != "") || s.API != "" && len(s.Keys) == 0 && !s.Local {
			t.Errorf("%+v", s)
		}
	}
	known[0].Keys = append(known[0].Keys, "changed")
	if again := providers.Known(); slices.Contains(again[0].Keys, "changed") {
		t.Error("a caller changed the table")
	}
	if _, ok := providers.Lookup("nobody"); ok {
		t.Error("nobody is known")
	}
}

// kind tells what a provider is, and why it cannot be used.
func kind(p model.Provider) string {
	switch p := p.(type) {
	case *model.Unavailable:
		return "- " + p.Needs()
	case *anthropic.Provider:
		return "messages"
	case *openai.Provider:
		return "chat"
	case *openai.Responses:
		return "responses"
	case *google.Provider:
		return "generateContent"
	}
	return fmt.Sprintf("%T", p)
}

func TestFromEnv(t *testing.T) {
	// What there is when nothing is set; rows tell what differs.
	nothing := map[string]string{
		"amazon-bedrock": "- it is a module of its own: add github.com/flue-go/flue/model/bedrock to the program and its provider to Config.Providers",
		"anthropic":      "- no key; set ANTHROPIC_API_KEY",
		"azure-openai":   "- no key; set AZURE_OPENAI_API_KEY and AZURE_OPENAI_ENDPOINT",
		"cerebras":       "- no key; set CEREBRAS_API_KEY",
		"deepseek":       "- no key; set DEEPSEEK_API_KEY",
		"fireworks":      "- no key; set FIREWORKS_API_KEY",
		"google":         "- no key; set GEMINI_API_KEY or GOOGLE_API_KEY",
		"google-vertex":  "- no key; set GOOGLE_CLOUD_PROJECT",
		"groq":           "- no key; set GROQ_API_KEY",
		"lmstudio":       "chat",
		"mistral":        "- no key; set MISTRAL_API_KEY",
		"moonshot":       "- no key; set MOONSHOT_API_KEY",
		"ollama":         "chat",
		"openai":         "- no key; set OPENAI_API_KEY",
		"openrouter":     "- no key; set OPENROUTER_API_KEY",
		"together":       "- no key; set TOGETHER_API_KEY",
		"vllm":           "chat",
		"xai":            "- no key; set XAI_API_KEY",
	}
	for _, tt := range []struct {
		name string
		env  []string
		want map[string]string
	}{
		{"nothing", nil, nil},
		{"empty values are none", []string{"ANTHROPIC_API_KEY=", "OPENAI_BASE_URL=", "FLUE_PROVIDER_GROQ_API_KEY=", "no variable"}, nil},
		{"keys", []string{"ANTHROPIC_API_KEY=k", "OPENAI_API_KEY=k", "GOOGLE_API_KEY=k", "GROQ_API_KEY=k"}, map[string]string{
			"anthropic": "messages", "openai": "responses", "google": "generateContent", "groq": "chat",
		}},
		{"addresses without keys", []string{"ANTHROPIC_BASE_URL=http://h", "OPENAI_BASE_URL=http://h/v1"}, map[string]string{"anthropic": "messages", "openai": "chat"}},
		{"Responses at another address", []string{"OPENAI_BASE_URL=http://h/v1", "FLUE_PROVIDER_OPENAI_API=openai-responses"}, map[string]string{"openai": "responses"}},
		{"OpenAI's own address", []string{"OPENAI_API_KEY=k", "OPENAI_BASE_URL=https://api.openai.com/v1/"}, map[string]string{"openai": "responses"}},
		{"Azure's undated version", []string{"AZURE_OPENAI_API_KEY=k", "AZURE_OPENAI_ENDPOINT=https://r.openai.azure.com", "OPENAI_API_VERSION=preview"}, map[string]string{"azure-openai": "responses"}},
		{"Chat Completions at OpenAI", []string{"OPENAI_API_KEY=k", "FLUE_PROVIDER_OPENAI_API=openai"}, map[string]string{"openai": "chat"}},
		{"Azure needs both", []string{"AZURE_OPENAI_API_KEY=k"}, nil},
		{"Azure", []string{"AZURE_OPENAI_API_KEY=k", "AZURE_OPENAI_ENDPOINT=https://r.openai.azure.com"}, map[string]string{"azure-openai": "responses"}},
		{
			"dated Azure",
			[]string{"AZURE_OPENAI_API_KEY=k", "AZURE_OPENAI_ENDPOINT=https://r.openai.azure.com", "OPENAI_API_VERSION=2024-10-21"},
			map[string]string{"azure-openai": "chat"},
		},
		{"Vertex", []string{"GOOGLE_CLOUD_PROJECT=p", "GOOGLE_CLOUD_LOCATION=europe-west4", "GOOGLE_CLOUD_ACCESS_TOKEN=t"}, map[string]string{"google-vertex": "generateContent"}},
		{"a key that is blank", []string{"GROQ_API_KEY= \n"}, nil},
		{"a key for a known one", []string{"FLUE_PROVIDER_GROQ_API_KEY=k"}, map[string]string{"groq": "chat"}},
		{"a gateway for a known one", []string{"FLUE_PROVIDER_ANTHROPIC_BASE_URL=http://h", "FLUE_PROVIDER_ANTHROPIC_API=openai"}, map[string]string{"anthropic": "chat"}},
		{
			"others",
			[]string{
				"FLUE_PROVIDER_MY_GATEWAY_BASE_URL=http://h", "FLUE_PROVIDER_MY_GATEWAY_API_KEY=k", "FLUE_PROVIDER_MY_GATEWAY_API=anthropic",
				"FLUE_PROVIDER_LLAMA_BASE_URL=http://h/v1", "FLUE_PROVIDER_MY_BASE_URL=http://h/v1", "FLUE_PROVIDER_MY_SERVER=mistral",
			},
			map[string]string{"my-gateway": "messages", "llama": "chat", "my": "chat"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := providers.FromEnv(tt.env)
			if err != nil {
				t.Fatal(err)
			}
			kinds := map[string]string{}
			for name, p := range got {
				kinds[name] = kind(p)
			}
			want := maps.Clone(nothing)
			maps.Copy(want, tt.want)
			if diff := cmp.Diff(want, kinds); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for name := range tt.want {
				if c, ok := got[name].(model.Checker); ok {
					if err := c.Check("m"); err != nil {
						t.Errorf("%s cannot be used: %v", name, err)
					}
				}
			}
		})
	}
}

func TestFromEnvErrors(t *testing.T) {
	for _, tt := range []struct{ name, env, want string }{
		{"no address", "FLUE_PROVIDER_LLAMA_API_KEY=secret", "provider llama has no address: set FLUE_PROVIDER_LLAMA_BASE_URL"},
		{"a typing error", "FLUE_PROVIDER_OLLAMA_URL=http://secret", "FLUE_PROVIDER_OLLAMA_URL is not one of"},
		{"no name", "FLUE_PROVIDER_BASE_URL=http://secret", "FLUE_PROVIDER_BASE_URL is not one of"},
		{"another wire format", "FLUE_PROVIDER_X_API=secret", `variable FLUE_PROVIDER_X_API: use one of ["openai"`},
		{"no such server", "FLUE_PROVIDER_X_SERVER=secret", "variable FLUE_PROVIDER_X_SERVER: use one of cerebras, deepseek"},
		{"a server like any other", "FLUE_PROVIDER_X_SERVER=anthropic", "variable FLUE_PROVIDER_X_SERVER"},
		{"no place for the key of a conversation", "FLUE_PROVIDER_X_CACHE_KEY=secret", "variable FLUE_PROVIDER_X_CACHE_KEY: use prompt_cache_key"},
		{"no URL", "FLUE_PROVIDER_X_BASE_URL=secret", "variable FLUE_PROVIDER_X_BASE_URL is not a URL"},
		{"another scheme", "ANTHROPIC_BASE_URL=ftp://secret", "variable ANTHROPIC_BASE_URL is not a URL"},
		{"a URL that cannot be parsed", "OPENAI_BASE_URL=http://user:secret@[", "variable OPENAI_BASE_URL is not a URL"},
		{"a host that cannot be parsed", "OLLAMA_HOST=secret:port:port", "variable OLLAMA_HOST is not a URL"},
		{"a key for a service that has none", "FLUE_PROVIDER_GOOGLE_VERTEX_API_KEY=secret", "FLUE_PROVIDER_GOOGLE_VERTEX_API_KEY: Vertex AI has no keys"},
	} {
		_, err := providers.FromEnv([]string{tt.env})
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: error %v, want one with %q and without the value", tt.name, err, tt.want)
		}
	}
}

// The key of a service goes to its own address or to the one that was set for
// it, and quirks are those of the service at either.
func TestFromEnvAddresses(t *testing.T) {
	for _, tt := range []struct{ name, env, provider, want string }{
		{"Ollama's default", "", "ollama", "http://127.0.0.1:11434/v1/chat/completions"},
		{"Ollama's host", "OLLAMA_HOST=gpu", "ollama", "http://gpu:11434/v1/chat/completions"},
		{"Ollama's port", "OLLAMA_HOST=gpu:80", "ollama", "http://gpu:80/v1/chat/completions"},
		{"Ollama listening everywhere", "OLLAMA_HOST=0.0.0.0", "ollama", "http://127.0.0.1:11434/v1/chat/completions"},
		{"Ollama's URL", "OLLAMA_HOST=https://gpu.test/ollama/v1", "ollama", "https://gpu.test/ollama/v1/chat/completions"},
		{"a gateway", "FLUE_PROVIDER_GROQ_BASE_URL=http://gateway.test/v1", "groq", "http://gateway.test/v1/chat/completions"},
		{"Azure", "AZURE_OPENAI_ENDPOINT=https://r.openai.azure.com/", "azure-openai", "https://r.openai.azure.com/openai/v1/responses"},
		{"Vertex", "GOOGLE_CLOUD_LOCATION=europe-west4", "google-vertex", "https://europe-west4-aiplatform.googleapis.com/v1/projects/p/locations/europe-west4/publishers/google/models/m:streamGenerateContent?alt=sse"},
	} {
		env := []string{tt.env, "GROQ_API_KEY=the-key", "AZURE_OPENAI_API_KEY=the-key", "GOOGLE_CLOUD_PROJECT=p", "GOOGLE_CLOUD_ACCESS_TOKEN=the-token"}
		restore := http.DefaultTransport
		req := modeltest.Hello()
		req.Model = "m"
		got := asked(t, req, func(c *http.Client) model.Provider {
			http.DefaultTransport = c.Transport // which is what a provider without a client uses
			ps, err := providers.FromEnv(env)
			if err != nil {
				t.Fatal(err)
			}
			return ps[tt.provider]
		})
		http.DefaultTransport = restore
		if line, _, _ := strings.Cut(got, "\n"); line != "POST "+tt.want {
			t.Errorf("%s: %s, want %s", tt.name, line, tt.want)
		}
	}
}

func TestOnly(t *testing.T) {
	p := providers.Only(script.New(script.Say("a"), script.Say("b")), "gpt-5", "claude-*")
	check := p.(model.Checker)
	for _, id := range []string{"", "gpt-5", "claude-", "claude-opus-5"} {
		if err := check.Check(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	var refused *providers.NotAllowedError
	if err := check.Check("gpt-6"); !errors.As(err, &refused) || !strings.Contains(err.Error(), `gpt-5, claude-*; did you mean "gpt-5"?`) {
		t.Errorf("error %v", err)
	}
	if got, err := modeltest.Collect(t, p.Stream(t.Context(), &model.Request{Model: "gpt-5", Messages: modeltest.Hello().Messages})); err != nil || got.Blocks[0].Text != "a" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := modeltest.Collect(t, p.Stream(t.Context(), modeltest.Hello())); !errors.As(err, &refused) {
		t.Errorf("error %v", err)
	}
	none := &model.Unavailable{Name: "x", Variables: []string{"X"}}
	if err := providers.Only(none, "*").(model.Checker).Check("m"); err == nil || !strings.Contains(err.Error(), "set X") {
		t.Errorf("what cannot be used can be used: %v", err)
	}
}

// A key that was read from a file ends with a line break, which is no part of it.
func TestFromEnvTrimsKeys(t *testing.T) {
	for _, env := range []string{"GROQ_API_KEY=the-key\r\n", "FLUE_PROVIDER_GROQ_API_KEY= the-key\r\n"} {
		restore := http.DefaultTransport
		got := asked(t, modeltest.Hello(), func(c *http.Client) model.Provider {
			http.DefaultTransport = c.Transport
			ps, err := providers.FromEnv([]string{env})
			if err != nil {
				t.Fatal(err)
			}
			return ps["groq"]
		})
		http.DefaultTransport = restore
		if !strings.Contains(got, "Bearer the-key\n") {
			t.Errorf("%q: %s", env, got)
		}
	}
}
