package google_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/google"
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

func raw(s string) json.RawMessage { return json.RawMessage(s) }

func exchanges(t *testing.T) []modeltest.Exchange {
	complete := `"finishReason":`
	return []modeltest.Exchange{
		{
			Name: "text", Stream: stream(t, "text.sse"), Complete: complete,
			Blocks: []model.Block{{Kind: model.Text, Text: "Hello – I can help with “orders” & <returns> 👋🏽 你好\n\nAsk away."}},
			Done:   model.Done{Stop: model.StopEnd, Reason: "STOP", Model: "gemini-2.5-flash", Usage: model.Usage{Input: 21, Output: 31, CacheRead: 1840}},
		},
		{
			Name: "thinking", Stream: stream(t, "thinking.sse"), Complete: complete,
			Blocks: []model.Block{
				{Kind: model.Reasoning, Text: "**Weighing the question**\n\nThe user wants one word.\n\n\n"},
				{Kind: model.Text, Text: "Paris.", Opaque: raw(`{"marks":[{"start":6,"end":6,"signature":"EtcBCtQBAb4+9vvDAo/x+0Yd2qQ7m1uU3c5XyQ=="}]}`)},
			},
			Done: model.Done{Stop: model.StopEnd, Reason: "STOP", Model: "gemini-3-flash-preview", Usage: model.Usage{Input: 9, Output: 77, Reasoning: 75}},
		},
		{
			Name: "tools", Stream: stream(t, "tools.sse"), Complete: complete,
			Blocks: []model.Block{
				{Kind: model.Reasoning, Text: "I should look up both orders."},
				{Kind: model.Text, Text: "Let me check both."},
				{
					Kind: model.ToolCall, CallID: "k8w1q0zz", Name: "lookup_order", Arguments: `{"orderId":"ORD-2024-0042","note":"café ☃ \"x\""}`,
					Opaque: raw(`{"signature":"EqQBCgIYAhIkYjM4ZTk1NmUtZGIzMi00ZDA2/+8="}`),
				},
				{Kind: model.ToolCall, CallID: "k8w1q0zy", Name: "now", Arguments: "{}"},
				{Kind: model.ToolCall, CallID: "k8w1q0zx", Name: "lookup_order", Arguments: `{"limit":10,"orderId":"ORD-2"}`},
			},
			Done: model.Done{Stop: model.StopToolUse, Reason: "STOP", Model: "gemini-3.5-flash", Usage: model.Usage{Input: 419, Output: 119, Reasoning: 58}},
		},
		{
			Name: "no ids and no arguments", Stream: stream(t, "bare.sse"), Complete: complete,
			Blocks: []model.Block{
				{Kind: model.ToolCall, CallID: "*", Name: "a", Arguments: `{"n":1}`},
				{Kind: model.ToolCall, CallID: "*", Name: "a"},
				{Kind: model.ToolCall, CallID: "*", Name: "b"},
			},
			Done: model.Done{Stop: model.StopToolUse, Reason: "STOP", Model: "gemini-2.5-pro", Usage: model.Usage{Input: 10, Output: 20}},
		},
		{
			Name: "signatures on every part", Stream: stream(t, "signed.sse"), Complete: complete,
			Blocks: []model.Block{
				{Kind: model.Reasoning, Text: "A plan.", Opaque: raw(`{"marks":[{"start":0,"end":7,"signature":"c2lnLXQ="}]}`)},
				{
					Kind: model.Text, Text: "First signed then signed again.",
					Opaque: raw(`{"marks":[{"start":6,"end":13,"signature":"c2lnLTE="},{"start":18,"end":31,"signature":"c2lnLTI="},{"start":31,"end":31,"signature":"c2lnLTM="}]}`),
				},
				{Kind: model.ToolCall, CallID: "f1", Name: "now", Arguments: "{}", Opaque: raw(`{"signature":"c2lnLTQ="}`)},
				{Kind: model.Reasoning, Opaque: raw(`{"marks":[{"start":0,"end":0,"signature":"c2lnLTU="}],"plain":true}`)},
			},
			Done: model.Done{Stop: model.StopToolUse, Reason: "STOP", Model: "gemini-3.1-pro-preview", Usage: model.Usage{Input: 50, Output: 42, Reasoning: 12}},
		},
		{
			Name: "length", Stream: stream(t, "length.sse"), Complete: complete,
			Blocks: []model.Block{
				{Kind: model.Text, Text: "I will write"},
				{Kind: model.ToolCall, CallID: "c1", Name: "write", Arguments: `{"path":"a.txt","content":"hel"}`},
			},
			Done: model.Done{Stop: model.StopLength, Reason: "MAX_TOKENS", Model: "gemini-2.5-pro", Usage: model.Usage{Input: 10, Output: 20}},
		},
		{
			Name: "safety", Stream: stream(t, "safety.sse"), Complete: complete,
			Blocks: []model.Block{{Kind: model.Text, Text: "Here is how"}},
			Done:   model.Done{Stop: model.StopFiltered, Reason: "SAFETY", Model: "gemini-2.5-pro", Usage: model.Usage{Input: 10, Output: 4}},
		},
		{
			Name: "blocked prompt", Stream: stream(t, "blocked.sse"), Complete: `"blockReason"`,
			Done: model.Done{Stop: model.StopFiltered, Reason: "PROHIBITED_CONTENT", Model: "gemini-2.5-pro", Usage: model.Usage{Input: 31}},
		},
	}
}

func TestConformance(t *testing.T) {
	modeltest.Run(t, modeltest.Suite{
		New: func(s modeltest.Settings) model.Provider {
			return google.New(google.Config{
				BaseURL: s.BaseURL + "/v1beta/", APIKey: s.APIKey, Client: s.Client, IdleTimeout: s.IdleTimeout, FirstTimeout: s.FirstTimeout, ContentTimeout: s.ContentTimeout,
			})
		},
		Pings:     []byte(": alive\n\n"),
		Rules:     rules.Gemini,
		Origins:   []model.Origin{{Provider: "google", Model: "gemini-2.5-flash"}, {Provider: "google", Model: "gemini-3-pro-preview"}},
		Exchanges: exchanges(t),
		Failures: []modeltest.Failure{
			{Name: "context", Status: 400, Body: `{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}`, Class: model.Overflow},
			{
				Name: "too many requests", Status: 429,
				Body:  `[{"error":{"code":429,"message":"Quota exceeded for metric, limit: 5","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"46s"}]}}]`,
				Class: model.RateLimited, RetryAfter: 46 * time.Second, Message: "limit: 5",
			},
			{Name: "nothing left today", Status: 429, Body: `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"GenerateRequestsPerDay"}]}]}}`, Class: model.Quota},
			{Name: "busy", Status: 503, Body: `{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}`, Class: model.Overloaded},
			{Name: "key", Status: 400, Body: `{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}`, Class: model.Auth},
			{Name: "no model", Status: 404, Body: `{"error":{"code":404,"message":"models/gemini-9 is not found for API version v1beta","status":"NOT_FOUND"}}`, Class: model.Invalid, Message: "is not found"},
			{Name: "forbidden", Status: 403, Body: `{"error":{"code":403,"message":"Permission denied","status":"PERMISSION_DENIED"}}`, Class: model.Auth, Message: "Permission denied"},
		},
	})
}

// Whatever the history, the calls of a turn that is under way are signed for the
// models that insist on it.
func TestHistoriesAreSigned(t *testing.T) {
	var body []byte
	p := google.New(google.Config{APIKey: "k", Client: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		body, _ = io.ReadAll(r.Body)
		return &http.Response{StatusCode: 200, Request: r, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(stream(t, "text.sse")))}, nil
	})}})
	var received []model.Block
	for _, x := range exchanges(t) {
		received = append(received, x.Blocks...)
	}
	own := model.Origin{Provider: "google", Model: "gemini-3-pro-preview"}
	modeltest.Histories(t, rules.Gemini3, own, received, func(req *model.Request) ([]byte, error) {
		for _, err := range p.Stream(t.Context(), req) {
			if err != nil {
				return nil, err
			}
		}
		return body, nil
	})
}

// Vertex AI speaks the same, to a token of each call.
func TestVertexConformance(t *testing.T) {
	modeltest.Run(t, modeltest.Suite{
		New: func(s modeltest.Settings) model.Provider {
			return google.NewVertex(google.VertexConfig{
				BaseURL: s.BaseURL + "/v1", Project: "p", Client: s.Client, IdleTimeout: s.IdleTimeout, FirstTimeout: s.FirstTimeout, ContentTimeout: s.ContentTimeout,
				Token: func(context.Context) (string, error) { return s.APIKey, nil },
			})
		},
		Exchanges: exchanges(t)[2:3],
	})
}

func BenchmarkStream(b *testing.B) {
	body := ""
	for range 1000 {
		body += lines(`{"candidates":[{"content":{"parts":[{"text":" token"}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":4,"totalTokenCount":13}}`)
	}
	body += lines(`{"candidates":[{"finishReason":"STOP"}]}`)
	client, _ := play(body)
	p := google.New(google.Config{APIKey: "k", Client: client})
	req := modeltest.Hello()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range p.Stream(b.Context(), req) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
