package openai_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/openai"
)

// Reach a compatible server. The one here stands in for a local model.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, lines(
			choice(`{"role":"assistant","content":"Let me look."}`),
			choice(`{"tool_calls":[{"index":0,"id":"call_1","function":{"name":"lookup_order","arguments":"{\"orderId\":"}}]}`),
			choice(`{"tool_calls":[{"index":0,"function":{"arguments":"\"ORD-1\"}"}}]}`),
			finish("tool_calls"), "[DONE]"))
	}))
	defer server.Close()

	p := openai.New(openai.Config{Name: "local", BaseURL: server.URL + "/v1"})
	req := &model.Request{
		Model:    "qwen3",
		Messages: []model.Message{{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: "Where is ORD-1?"}}}},
		Tools:    []model.Tool{{Name: "lookup_order", Description: "Look up one order."}},
	}
	for event, err := range p.Stream(context.Background(), req) {
		if err != nil {
			fmt.Println("error:", err)
			return
		}
		if e, ok := event.(model.BlockDone); ok {
			switch e.Block.Kind {
			case model.Text:
				fmt.Println(e.Block.Text)
			case model.ToolCall:
				fmt.Println(e.Block.Name, e.Block.Arguments)
			}
		}
	}
	// Output:
	// Let me look.
	// lookup_order {"orderId":"ORD-1"}
}

// Reach OpenAI's own models, or those of an Azure resource, over the Responses
// API. The server here stands in for them.
func ExampleNewResponses() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, lines(
			`{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[]}}`,
			`{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"One order to look up."}`,
			`{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"One order to look up."}],"encrypted_content":"gAAAA"}}`,
			`{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"fc_1","call_id":"call_1","name":"lookup_order","arguments":"{\"orderId\":\"ORD-1\"}"}}`,
			`{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":40,"output_tokens":25,"output_tokens_details":{"reasoning_tokens":12}}}}`))
	}))
	defer server.Close()

	p := openai.NewResponses(openai.Config{APIKey: "sk-…", BaseURL: server.URL + "/v1"})
	req := &model.Request{
		Model:    "gpt-5.4",
		Messages: []model.Message{{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: "Where is ORD-1?"}}}},
		Tools:    []model.Tool{{Name: "lookup_order", Description: "Look up one order."}},
		Thinking: model.ThinkingMedium,
	}
	for event, err := range p.Stream(context.Background(), req) {
		if err != nil {
			fmt.Println("error:", err)
			return
		}
		switch e := event.(type) {
		case model.BlockDone:
			fmt.Printf("%s: %s%s%s\n", e.Block.Kind, e.Block.Text, e.Block.Name, e.Block.Arguments)
		case model.Done:
			fmt.Println(e.Stop, e.Usage.Reasoning)
		}
	}
	// Output:
	// reasoning: One order to look up.
	// tool_call: lookup_order{"orderId":"ORD-1"}
	// tool_use 12
}
