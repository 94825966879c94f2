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
