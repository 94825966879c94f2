package anthropic_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
)

// Stream an answer. The server here stands in for Anthropic's; leave BaseURL
// out to reach the real one.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, lines(
			`{"type":"message_start","message":{"model":"claude-haiku-4-5","usage":{"input_tokens":9}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" there."}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":4}}`,
			`{"type":"message_stop"}`))
	}))
	defer server.Close()

	p := anthropic.New(anthropic.Config{BaseURL: server.URL, APIKey: "sk-ant-..."})
	req := &model.Request{
		Model:    "claude-haiku-4-5",
		Messages: []model.Message{{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: "Hi!"}}}},
	}
	for event, err := range p.Stream(context.Background(), req) {
		if err != nil {
			fmt.Println("error:", err)
			return
		}
		switch e := event.(type) {
		case model.Delta:
			fmt.Printf("%q\n", e.Text)
		case model.Done:
			fmt.Println(e.Stop, e.Usage.Total(), "tokens")
		}
	}
	// Output:
	// "Hello"
	// " there."
	// stop 13 tokens
}
