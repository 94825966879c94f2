package openai_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/openai"
)

func TestAzureAddresses(t *testing.T) {
	const dated = "2024-10-21"
	for _, tt := range []struct {
		name            string
		base, version   string
		chat, responses string
	}{
		{
			"resource", "https://r.openai.azure.com", "",
			"https://r.openai.azure.com/openai/v1/chat/completions", "https://r.openai.azure.com/openai/v1/responses",
		},
		{
			"v1", "https://r.openai.azure.com/openai/v1/", "",
			"https://r.openai.azure.com/openai/v1/chat/completions", "https://r.openai.azure.com/openai/v1/responses",
		},
		{
			"v1 with a version", "https://r.services.ai.azure.com/openai", "preview",
			"https://r.services.ai.azure.com/openai/v1/chat/completions?api-version=preview", "https://r.services.ai.azure.com/openai/v1/responses?api-version=preview",
		},
		{
			"v1 of a project", "https://r.services.ai.azure.com/api/projects/p/openai/v1", "",
			"https://r.services.ai.azure.com/api/projects/p/openai/v1/chat/completions", "https://r.services.ai.azure.com/api/projects/p/openai/v1/responses",
		},
		{
			"dated", "https://r.openai.azure.com/", dated,
			"https://r.openai.azure.com/openai/deployments/my%20gpt-4.1/chat/completions?api-version=2024-10-21", "https://r.openai.azure.com/openai/responses?api-version=2024-10-21",
		},
		{
			"dated, of v1's address", "https://r.openai.azure.us/openai/v1", dated,
			"https://r.openai.azure.us/openai/deployments/my%20gpt-4.1/chat/completions?api-version=2024-10-21", "https://r.openai.azure.us/openai/responses?api-version=2024-10-21",
		},
		{
			"dated, behind a gateway", "https://gateway.test/ai", dated,
			"https://gateway.test/ai/openai/deployments/my%20gpt-4.1/chat/completions?api-version=2024-10-21", "https://gateway.test/ai/openai/responses?api-version=2024-10-21",
		},
		{
			"one deployment", "https://r.openai.azure.com/openai/deployments/d?api-version=2024-10-21", "",
			"https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21", "https://r.openai.azure.com/openai/responses?api-version=2024-10-21",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := modeltest.Hello()
			req.Model = "my gpt-4.1"
			config := openai.Config{BaseURL: tt.base, APIVersion: tt.version, APIKey: "k"}
			for _, api := range []struct {
				answer, want string
				provider     func(openai.Config) model.Provider
			}{
				{emptyAnswer, tt.chat, func(c openai.Config) model.Provider { return openai.New(c) }},
				{emptyResponse, tt.responses, func(c openai.Config) model.Provider { return openai.NewResponses(c) }},
			} {
				client, last := play(api.answer)
				config.Client = client
				if _, err := modeltest.Collect(t, api.provider(config).Stream(t.Context(), req)); err != nil {
					t.Fatal(err)
				}
				r, body := last()
				if got := r.URL.String(); got != api.want {
					t.Errorf("URL = %s\nwant  %s", got, api.want)
				}
				if r.Header.Get("Api-Key") != "k" || r.Header.Get("Authorization") != "" {
					t.Errorf("the key is sent as %v", r.Header)
				}
				if !strings.Contains(string(body), `"model":"my gpt-4.1"`) {
					t.Errorf("sent %s", body)
				}
			}
		})
	}
}

// A machine in Azure is no Azure OpenAI.
func TestServerInAzure(t *testing.T) {
	client, last := play(emptyResponse)
	p := openai.NewResponses(openai.Config{BaseURL: "https://mine.westeurope.cloudapp.azure.com/v1", APIKey: "k", Client: client})
	if _, err := modeltest.Collect(t, p.Stream(t.Context(), modeltest.Hello())); err != nil {
		t.Fatal(err)
	}
	r, _ := last()
	if got := r.URL.String(); got != "https://mine.westeurope.cloudapp.azure.com/v1/responses" || r.Header.Get("Authorization") != "Bearer k" {
		t.Errorf("URL %s, headers %v", got, r.Header)
	}
}

// Azure holds to the contract in either API, with a key and with a token, and
// neither ever appears in an error.
func TestAzureConformance(t *testing.T) {
	config := func(s modeltest.Settings) openai.Config {
		return openai.Config{BaseURL: s.BaseURL, APIVersion: "2024-10-21", Client: s.Client, IdleTimeout: s.IdleTimeout, FirstTimeout: s.FirstTimeout}
	}
	filter := modeltest.Failure{
		Name: "content filter", Status: 400, Class: model.Filtered, Message: "content management policy",
		Body: `{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation","content_filter_result":{"violence":{"filtered":true,"severity":"high"}}}}}`,
	}
	deployment := modeltest.Failure{Name: "no deployment", Status: 404, Class: model.Invalid, Message: "does not exist", Body: `{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}`}
	wait := modeltest.Failure{
		Name: "rate limit", Status: 429, Class: model.RateLimited, RetryAfter: 17 * time.Second,
		Body: `{"error":{"code":"429","message":"Requests have exceeded the call rate limit of your current pricing tier. Please retry after 17 seconds."}}`,
	}
	t.Run("responses", func(t *testing.T) {
		modeltest.Run(t, modeltest.Suite{
			New: func(s modeltest.Settings) model.Provider {
				c := config(s)
				c.Token = func(context.Context) (string, error) { return s.APIKey, nil }
				return openai.NewResponses(c)
			},
			Exchanges: []modeltest.Exchange{{
				Name: "azure", Stream: stream(t, "responses/azure.sse"), Complete: `"type":"response.completed"`,
				Blocks: []model.Block{
					{Kind: model.Reasoning, Text: "Look it up.", Opaque: opaque(`{"item":{"id":"rs_azure","type":"reasoning","encrypted_content":"gAAAAABaZure==","summary":[{"type":"summary_text","text":"Look it up."}]}}`)},
					{Kind: model.ToolCall, CallID: "call_azure", Name: "now", Arguments: "{}", Opaque: opaque(`{"id":"fc_azure","after":"rs_azure"}`)},
				},
				Done: model.Done{Stop: model.StopToolUse, Reason: "completed", Model: "gpt-5-mini", Usage: model.Usage{Input: 50, Output: 30}},
			}},
			Failures: []modeltest.Failure{filter, deployment, wait},
		})
	})
	t.Run("chat", func(t *testing.T) {
		modeltest.Run(t, modeltest.Suite{
			New: func(s modeltest.Settings) model.Provider {
				c := config(s)
				c.APIKey = s.APIKey
				return openai.New(c)
			},
			Exchanges: []modeltest.Exchange{{
				Name: "azure", Stream: stream(t, "azure.sse"), Complete: `"finish_reason":"`,
				Blocks: []model.Block{{Kind: model.Text, Text: "Hello."}},
				Done:   model.Done{Stop: model.StopEnd, Reason: "stop", Model: "gpt-4.1-2025-04-14", Usage: model.Usage{Input: 9, Output: 3}},
			}},
			Failures: []modeltest.Failure{filter, deployment, wait},
		})
	})
}

func TestAzureDeploymentNames(t *testing.T) {
	p := openai.New(openai.Config{BaseURL: "https://r.openai.azure.com", APIVersion: "2024-10-21", APIKey: "k"})
	for _, name := range []string{"a/b", "..", "."} {
		req := modeltest.Hello()
		req.Model = name
		_, err := modeltest.Collect(t, p.Stream(t.Context(), req))
		if e, ok := err.(*model.Error); !ok || e.Class != model.Invalid || !strings.Contains(e.Message, "name of a deployment") {
			t.Errorf("%q: error = %v", name, err)
		}
	}
}

// Where a token is asked for, a key is not sent.
func TestAzureToken(t *testing.T) {
	client, last := play(emptyResponse)
	p := openai.NewResponses(openai.Config{
		BaseURL: "https://r.openai.azure.com", APIKey: "k", Client: client,
		Token: func(context.Context) (string, error) { return "ey.token", nil },
	})
	if _, err := modeltest.Collect(t, p.Stream(t.Context(), modeltest.Hello())); err != nil {
		t.Fatal(err)
	}
	r, _ := last()
	if r.Header.Get("Authorization") != "Bearer ey.token" || r.Header.Get("Api-Key") != "" {
		t.Errorf("sent %v", r.Header)
	}
}

func TestAzureWithoutKey(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config openai.Config
		ok     bool
	}{
		{"nothing", openai.Config{BaseURL: "https://r.openai.azure.com"}, false},
		{"nothing, dated", openai.Config{BaseURL: "https://gateway.test", APIVersion: "2024-10-21"}, false},
		{"a gateway's own key", openai.Config{BaseURL: "https://gateway.test", APIVersion: "2024-10-21", Headers: map[string]string{"Ocp-Apim-Subscription-Key": "s"}}, true},
	} {
		client, _ := play(emptyResponse)
		tt.config.Client = client
		_, err := modeltest.Collect(t, openai.NewResponses(tt.config).Stream(t.Context(), modeltest.Hello()))
		e, failed := err.(*model.Error)
		if (err == nil) != tt.ok || failed && (e.Class != model.Auth || !strings.Contains(e.Message, "APIKey or Token")) {
			t.Errorf("%s: error = %v", tt.name, err)
		}
	}
}

// The dated API refuses fields that it does not know.
func TestAzureFields(t *testing.T) {
	req := modeltest.Hello()
	req.CacheKey = "conversation"
	for _, tt := range []struct {
		version string
		want    bool
	}{{"", true}, {"preview", true}, {"2024-10-21", false}} {
		c := openai.Config{BaseURL: "https://r.openai.azure.com", APIVersion: tt.version}
		for api, body := range map[string][]byte{"chat": sent(t, c, req), "responses": sentResponse(t, c, req)} {
			if got := strings.Contains(string(body), `"prompt_cache_key":"conversation"`); got != tt.want {
				t.Errorf("%s, version %q: has the cache key = %v, want %v", api, tt.version, got, tt.want)
			}
		}
	}
}
