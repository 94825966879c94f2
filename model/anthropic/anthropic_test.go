package anthropic_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/modeltest/rules"
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
	complete := `"type":"message_stop"`
	modeltest.Run(t, modeltest.Suite{
		New: func(s modeltest.Settings) model.Provider {
			return anthropic.New(anthropic.Config{
				BaseURL: s.BaseURL + "/", APIKey: s.APIKey, Client: s.Client, IdleTimeout: s.IdleTimeout, FirstTimeout: s.FirstTimeout, ContentTimeout: s.ContentTimeout,
			})
		},
		Pings:   []byte("event: ping\ndata: {\"type\": \"ping\"}\n\n"),
		Rules:   rules.Anthropic,
		Origins: []model.Origin{{Provider: "anthropic", Model: "claude-sonnet-4-5"}, {Provider: "anthropic", Model: "claude-opus-5-5"}},
		Exchanges: []modeltest.Exchange{
			{
				Name: "text", Stream: stream(t, "text.sse"), Complete: complete,
				Blocks: []model.Block{{Kind: model.Text, Text: "Hello – I can help with “orders” & <returns> 👋🏽 你好\n\nAsk away."}},
				Done:   model.Done{Stop: model.StopEnd, Reason: "end_turn", Model: "claude-haiku-4-5-20251001", Usage: model.Usage{Input: 21, Output: 31, CacheRead: 1840}},
			},
			{
				Name: "tools", Stream: stream(t, "tools.sse"), Complete: complete,
				Blocks: []model.Block{
					{
						Kind: model.Reasoning, Text: "The customer names two orders.\nI should look up both before I answer ",
						Opaque: json.RawMessage(`{"block":{"signature":"EqQBCgIYAhIkYjM4ZTk1NmUtZGIzMi00ZDA2/+8==","thinking":"The customer names two orders.\nI should look up both before I answer ","type":"thinking"}}`),
					},
					{
						Kind:   model.Reasoning,
						Opaque: json.RawMessage(`{"block":{"type":"redacted_thinking","data":"EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpP"}}`),
					},
					{Kind: model.Text, Text: "Let me check both orders."},
					{Kind: model.ToolCall, CallID: "toolu_01T1x1fJ34qAmk2tNTrN7Up6", Name: "lookup_order", Arguments: `{"orderId": "ORD-2024-0042", "note": "café \u2603"}`},
					{Kind: model.ToolCall, CallID: "toolu_01A09q90qw90lq917835lq9", Name: "now"},
				},
				Done: model.Done{Stop: model.StopToolUse, Reason: "tool_use", Model: "claude-sonnet-4-5-20250929", Usage: model.Usage{Input: 412, Output: 187, CacheWrite: 2210, Reasoning: 58}},
			},
			{
				Name: "overlap", Stream: stream(t, "overlap.sse"), Complete: complete,
				Blocks: []model.Block{
					{Kind: model.Reasoning, Opaque: json.RawMessage(`{"block":{"signature":"c2lnLW9uZQ==","thinking":"","type":"thinking"}}`)},
					{Kind: model.ToolCall, CallID: "toolu_01AAAAAAAAAAAAAAAAAAAAAA", Name: "lookup_order", Arguments: `{"orderId":"A"}`},
					{Kind: model.ToolCall, CallID: "toolu_01BBBBBBBBBBBBBBBBBBBBBB", Name: "lookup_order", Arguments: `{"orderId":"B"}`},
				},
				Done: model.Done{Stop: model.StopToolUse, Reason: "tool_use", Model: "claude-opus-5-5", Usage: model.Usage{Input: 90, Output: 64, CacheRead: 5000}},
			},
			{
				Name: "length", Stream: stream(t, "length.sse"), Complete: complete,
				Blocks: []model.Block{
					{Kind: model.Text, Text: "I will write"},
					{Kind: model.ToolCall, CallID: "toolu_01C", Name: "write", Arguments: `{"path":"a.txt","content":"hel`},
				},
				Done: model.Done{Stop: model.StopLength, Reason: "max_tokens", Model: "claude-haiku-4-5-20251001", Usage: model.Usage{Input: 10, Output: 20}},
			},
			{
				Name: "refusal", Stream: stream(t, "refusal.sse"), Complete: complete,
				Blocks: []model.Block{{Kind: model.Text, Text: "I cannot"}},
				Done:   model.Done{Stop: model.StopFiltered, Reason: "refusal", Model: "claude-fable-5", Usage: model.Usage{Input: 10, Output: 4}},
			},
		},
		Failures: []modeltest.Failure{
			{
				Name: "overloaded", Status: 529, Header: map[string]string{"Content-Type": "application/json", "Request-Id": "req_011CS"},
				Body:  `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_011CS"}`,
				Class: model.Overloaded, Message: "529: Overloaded (request req_011CS)",
			},
			{Name: "prompt too long", Status: 400, Body: `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 212345 tokens > 200000 maximum"}}`, Class: model.Overflow, Message: "prompt is too long"},
			{Name: "too large", Status: 413, Body: `{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}`, Class: model.Overflow},
			{Name: "key", Status: 401, Body: `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`, Class: model.Auth, Message: "invalid x-api-key"},
			{Name: "credit", Status: 400, Body: `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}`, Class: model.Quota, Message: "credit balance"},
		},
	})
}
