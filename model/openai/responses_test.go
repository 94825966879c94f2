package openai_test

import (
	"encoding/json"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/modeltest/rules"
	"github.com/flue-go/flue/model/openai"
)

// opaque returns a value of model.Block.Opaque.
func opaque(s string) json.RawMessage { return json.RawMessage(s) }

func TestResponsesConformance(t *testing.T) {
	const completed, incomplete = `"type":"response.completed"`, `"type":"response.incomplete"`
	const gpt = "gpt-5.4-2026-03-05"
	text := func(s string) model.Block { return model.Block{Kind: model.Text, Text: s} }
	modeltest.Run(t, modeltest.Suite{
		New: func(s modeltest.Settings) model.Provider {
			return openai.NewResponses(openai.Config{
				BaseURL: s.BaseURL + "/v1/", APIKey: s.APIKey, Client: s.Client, IdleTimeout: s.IdleTimeout, FirstTimeout: s.FirstTimeout, ContentTimeout: s.ContentTimeout,
			})
		},
		Pings:   []byte("event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":3}\n\n"),
		Rules:   rules.Responses,
		Origins: []model.Origin{{Provider: "openai", Model: "gpt-5.4"}, {Provider: "openai", Model: "gpt-4.1"}},
		Exchanges: []modeltest.Exchange{
			{
				Name: "text", Stream: stream(t, "responses/text.sse"), Complete: completed,
				Blocks: []model.Block{text("Hello – I can help with “orders” & <returns> 👋🏽 你好\n\nAsk away.")},
				Done:   model.Done{Stop: model.StopEnd, Reason: "completed", Model: "gpt-4.1-2025-04-14", Usage: model.Usage{Input: 69, Output: 31, CacheRead: 1792}},
			},
			{
				Name: "tools", Stream: stream(t, "responses/tools.sse"), Complete: completed,
				Blocks: []model.Block{
					{
						Kind: model.Reasoning, Text: "**Two orders**\n\nCheck “both” & compare.",
						Opaque: opaque(`{"item":{"id":"rs_0842a5a1","type":"reasoning","encrypted_content":"gAAAAABprV9uWcDk1Tz+/=","summary":[{"type":"summary_text","text":"**Two orders**"},{"type":"summary_text","text":"Check “both” & compare."}]}}`),
					},
					{Kind: model.Text, Text: "Let me check both.", Opaque: opaque(`{"id":"msg_0842a5a1","phase":"commentary","after":"rs_0842a5a1"}`)},
					{Kind: model.ToolCall, CallID: "call_DdmO9pD3", Name: "lookup_order", Arguments: `{"orderId": "ORD-1"}`, Opaque: opaque(`{"id":"fc_01","after":"rs_0842a5a1"}`)},
					{Kind: model.ToolCall, CallID: "call_pVHYsTQE", Name: "now", Opaque: opaque(`{"id":"fc_02","after":"rs_0842a5a1"}`)},
					{Kind: model.ToolCall, CallID: "call_3AqUoUcL", Name: "lookup_order", Arguments: `{"orderId":"café \u2603"}`, Opaque: opaque(`{"id":"fc_03","after":"rs_0842a5a1"}`)},
				},
				Done: model.Done{Stop: model.StopToolUse, Reason: "completed", Model: gpt, Usage: model.Usage{Input: 156, Output: 164, CacheWrite: 256, Reasoning: 64}},
			},
			{
				Name: "length", Stream: stream(t, "responses/length.sse"), Complete: incomplete,
				Blocks: []model.Block{{Kind: model.ToolCall, CallID: "call_C", Name: "write", Arguments: `{"path":"a.txt","content":"hel`}},
				Done:   model.Done{Stop: model.StopLength, Reason: "max_output_tokens", Model: gpt, Usage: model.Usage{Input: 10, Output: 20}},
			},
			{
				Name: "refusal", Stream: stream(t, "responses/refusal.sse"), Complete: completed,
				Blocks: []model.Block{text("I cannot help with that.")},
				Done:   model.Done{Stop: model.StopFiltered, Reason: "refusal", Model: gpt, Usage: model.Usage{Input: 12, Output: 7}},
			},
			{
				Name: "filtered", Stream: stream(t, "responses/filtered.sse"), Complete: incomplete,
				Blocks: []model.Block{text("The recipe")},
				Done:   model.Done{Stop: model.StopFiltered, Reason: "content_filter", Model: gpt, Usage: model.Usage{Input: 12, Output: 3}},
			},
			{
				Name: "azure", Stream: stream(t, "responses/azure.sse"), Complete: completed,
				Blocks: []model.Block{
					{Kind: model.Reasoning, Text: "Look it up.", Opaque: opaque(`{"item":{"id":"rs_azure","type":"reasoning","encrypted_content":"gAAAAABaZure==","summary":[{"type":"summary_text","text":"Look it up."}]}}`)},
					{Kind: model.ToolCall, CallID: "call_azure", Name: "now", Arguments: "{}", Opaque: opaque(`{"id":"fc_azure","after":"rs_azure"}`)},
				},
				Done: model.Done{Stop: model.StopToolUse, Reason: "completed", Model: "gpt-5-mini", Usage: model.Usage{Input: 50, Output: 30}},
			},
			{
				Name: "rotated", Stream: stream(t, "responses/rotated.sse"), Complete: completed,
				Blocks: []model.Block{
					{Kind: model.Reasoning, Text: "Count.", Opaque: opaque(`{"item":{"id":"id_6","type":"reasoning","encrypted_content":"ZW5jcnlwdGVk","summary":[{"type":"summary_text","text":"Count."}]}}`)},
					{Kind: model.Text, Text: "Three.", Opaque: opaque(`{"id":"id_12","phase":"final_answer","after":"id_6"}`)},
				},
				Done: model.Done{Stop: model.StopEnd, Reason: "completed", Model: "gpt-5.3-codex", Usage: model.Usage{Input: 19, Output: 105, Reasoning: 44}},
			},
			{
				Name: "bare", Stream: stream(t, "responses/bare.sse"), Complete: completed,
				Blocks: []model.Block{
					{Kind: model.Reasoning, Text: "We need the time.", Opaque: opaque(`{"item":{"type":"reasoning","id":"","summary":[],"content":[{"type":"reasoning_text","text":"We need the time."}]}}`)},
					{Kind: model.Text, Text: "Wait.", Opaque: opaque(`{}`)},
					{Kind: model.ToolCall, CallID: "*", Name: "now", Opaque: opaque(`{}`)},
				},
				Done: model.Done{Stop: model.StopToolUse, Reason: "completed", Model: "gpt-oss-120b", Usage: model.Usage{Input: 30, Output: 9}},
			},
		},
		Failures: []modeltest.Failure{
			{Name: "context length", Status: 400, Body: `{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}`, Class: model.Overflow},
			{Name: "flagged prompt", Status: 400, Body: `{"error":{"message":"Invalid prompt: your prompt was flagged as potentially violating our usage policy.","type":"invalid_request_error","param":null,"code":"invalid_prompt"}}`, Class: model.Filtered, Message: "flagged"},
			{Name: "key", Status: 401, Body: `{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`, Class: model.Auth, Message: "Incorrect API key"},
			{Name: "pairing", Status: 400, Body: `{"error":{"message":"No tool output found for function call call_1.","type":"invalid_request_error","param":"input","code":null}}`, Class: model.Invalid},
			{Name: "request id", Status: 500, Header: map[string]string{"X-Request-Id": "req_123"}, Body: `{"error":{"message":"The server had an error","type":"server_error"}}`, Class: model.Retryable, Message: "(request req_123)"},
		},
	})
}
