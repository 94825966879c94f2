package openai_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/modeltest/rules"
	"github.com/flue-go/flue/model/openai"
)

func stream(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConformance(t *testing.T) {
	complete := `"finish_reason":"`
	modeltest.Run(t, modeltest.Suite{
		New: func(s modeltest.Settings) model.Provider {
			return openai.New(openai.Config{
				BaseURL: s.BaseURL + "/v1/", APIKey: s.APIKey, Client: s.Client, IdleTimeout: s.IdleTimeout, FirstTimeout: s.FirstTimeout, ContentTimeout: s.ContentTimeout,
			})
		},
		Pings:   []byte(": OPENROUTER PROCESSING\n\n"),
		Rules:   rules.ChatCompletions,
		Origins: []model.Origin{{Provider: "openai", Model: "gpt-4.1"}},
		Exchanges: []modeltest.Exchange{
			{
				Name: "text", Stream: stream(t, "text.sse"), Complete: complete,
				Blocks: []model.Block{{Kind: model.Text, Text: "Hello – I can help with “orders” & <returns> 👋🏽 你好\n\nAsk away."}},
				Done:   model.Done{Stop: model.StopEnd, Reason: "stop", Model: "gpt-4.1-mini-2025-04-14", Usage: model.Usage{Input: 69, Output: 31, CacheRead: 1792}},
			},
			{
				Name: "tools", Stream: stream(t, "tools.sse"), Complete: complete,
				Blocks: []model.Block{
					{Kind: model.Text, Text: "Let me check both."},
					{Kind: model.ToolCall, CallID: "call_DdmO9pD3xa9XTPNJ32zg2hcA", Name: "lookup_order", Arguments: `{"orderId": "ORD-1"}`},
					{Kind: model.ToolCall, CallID: "call_pVHYsTQEFFxYs2BIKLUYhLy2", Name: "now"},
					{Kind: model.ToolCall, CallID: "call_3AqUoUcLBfLmNZgG4pXkVb1s", Name: "lookup_order", Arguments: `{"orderId":"café \u2603"}`},
				},
				Done: model.Done{Stop: model.StopToolUse, Reason: "tool_calls", Model: "gpt-4.1-2025-04-14", Usage: model.Usage{Input: 156, Output: 64, CacheWrite: 256}},
			},
			{
				Name: "reasoning", Stream: stream(t, "reasoning.sse"), Complete: complete,
				Blocks: []model.Block{{Kind: model.Reasoning, Text: "The user asks for two things."}, {Kind: model.Text, Text: "One and two."}},
				Done:   model.Done{Stop: model.StopEnd, Reason: "stop", Model: "deepseek-v4-pro", Usage: model.Usage{Input: 5, Output: 40, CacheRead: 16, Reasoning: 12}},
			},
			{
				Name: "bare", Stream: stream(t, "bare.sse"), Complete: complete,
				Blocks: []model.Block{
					{Kind: model.ToolCall, CallID: "*", Name: "a", Arguments: `{"n":1}`},
					{Kind: model.ToolCall, CallID: "*", Name: "b", Arguments: `{"n":2}`},
				},
				Done: model.Done{Stop: model.StopToolUse, Reason: "tool_calls", Model: "local-model", Usage: model.Usage{Input: 10, Output: 20}},
			},
			{
				Name: "length", Stream: stream(t, "length.sse"), Complete: complete,
				Blocks: []model.Block{{Kind: model.ToolCall, CallID: "call_C", Name: "write", Arguments: `{"path":"a.txt","content":"hel`}},
				Done:   model.Done{Stop: model.StopLength, Reason: "length", Model: "gpt-4.1", Usage: model.Usage{Input: 10, Output: 20}},
			},
			{
				Name: "details", Stream: stream(t, "details.sse"), Complete: complete,
				Blocks: []model.Block{
					{
						Kind: model.Reasoning, Text: "Let me see.",
						Opaque: json.RawMessage(`{"reasoning_details":[{"format":"anthropic-claude-v1","index":0,"signature":"c2ln","text":"Let me see.","type":"reasoning.text"}]}`),
					},
					{Kind: model.Text, Text: "Checking."},
					{Kind: model.ToolCall, CallID: "tool_0_now", Name: "now", Arguments: "{}", Opaque: json.RawMessage(`{"extra_content":{"google":{"thought_signature":"AY89a+/="}}}`)},
					{Kind: model.Reasoning, Opaque: json.RawMessage(`{"reasoning_details":[{"type":"reasoning.encrypted","data":"ZW5j","format":"google-gemini-v1","index":1}]}`)},
				},
				Done: model.Done{Stop: model.StopToolUse, Reason: "tool_calls", Model: "anthropic/claude-sonnet-4.5", Usage: model.Usage{Input: 50, Output: 30}},
			},
		},
		Failures: []modeltest.Failure{
			{Name: "rate limit", Status: 429, Body: `{"error":{"message":"Rate limit reached for gpt-4.1","type":"requests","param":null,"code":"rate_limit_exceeded"}}`, Class: model.RateLimited, Message: "Rate limit reached"},
			{Name: "quota", Status: 429, Body: `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, Class: model.Quota, Message: "quota"},
			{Name: "context length", Status: 400, Body: `{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, Class: model.Overflow},
			{Name: "key", Status: 401, Body: `{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`, Class: model.Auth, Message: "Incorrect API key"},
			{Name: "no model", Status: 404, Body: `{"error":{"message":"The model does not exist","type":"invalid_request_error","param":null,"code":"model_not_found"}}`, Class: model.Invalid},
			{Name: "request id", Status: 500, Header: map[string]string{"X-Request-Id": "req_123"}, Body: `{"error":{"message":"The server had an error"}}`, Class: model.Retryable, Message: "(request req_123)"},
		},
	})
}
