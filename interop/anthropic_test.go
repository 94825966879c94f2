package interop_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/google/go-cmp/cmp"
)

func TestAnthropicStreams(t *testing.T) {
	transcripts(t, "anthropic/testdata", func(t *testing.T, url string) {
		ours, err := modeltest.Collect(t, anthropic.New(anthropic.Config{BaseURL: url, APIKey: "k"}).Stream(t.Context(), modeltest.Hello()))
		if err != nil {
			t.Fatal(err)
		}
		client := sdk.NewClient(option.WithBaseURL(url), option.WithAPIKey("k"), option.WithMaxRetries(0))
		stream := client.Messages.NewStreaming(t.Context(), sdk.MessageNewParams{
			Model: "test-model", MaxTokens: 100, Messages: []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock("Hello"))},
		})
		var m sdk.Message
		for stream.Next() {
			if err := m.Accumulate(stream.Current()); err != nil {
				t.Fatal(err)
			}
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
		want, got := fromAnthropic(m), summarize(ours)
		for i, c := range got.Calls { // the SDK drops arguments that were cut off
			if _, cut := c.Args.(string); cut {
				got.Calls[i].Args = map[string]any{}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("answer (-SDK +codec):\n%s", diff)
		}
		compareThinking(t, m, ours)
	})
}

func fromAnthropic(m sdk.Message) answer {
	stops := map[sdk.StopReason]model.StopReason{
		sdk.StopReasonEndTurn: model.StopEnd, sdk.StopReasonToolUse: model.StopToolUse,
		sdk.StopReasonMaxTokens: model.StopLength, sdk.StopReasonRefusal: model.StopFiltered,
	}
	a := answer{Stop: stops[m.StopReason], Usage: model.Usage{
		Input: int(m.Usage.InputTokens), Output: int(m.Usage.OutputTokens),
		CacheRead: int(m.Usage.CacheReadInputTokens), CacheWrite: int(m.Usage.CacheCreationInputTokens),
		Reasoning: int(m.Usage.OutputTokensDetails.ThinkingTokens),
	}}
	for _, b := range m.Content {
		switch b.Type {
		case "text":
			a.Text += b.Text
		case "thinking":
			a.Reasoning += b.Thinking
		case "tool_use":
			a.Calls = append(a.Calls, call{b.ID, b.Name, args(string(b.Input))})
		}
	}
	return a
}

// compareThinking checks that the blocks that are sent back are those that the
// SDK would send back.
func compareThinking(t *testing.T, m sdk.Message, ours modeltest.Answer) {
	t.Helper()
	var want, got []any
	for _, b := range m.Content {
		if b.Type == "thinking" || b.Type == "redacted_thinking" {
			raw, err := json.Marshal(b.ToParam())
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, args(string(raw)))
		}
	}
	for _, b := range ours.Blocks {
		if b.Kind == model.Reasoning {
			var o struct{ Block any }
			if err := json.Unmarshal(b.Opaque, &o); err != nil {
				t.Fatal(err)
			}
			got = append(got, o.Block)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("thinking to send back (-SDK +codec):\n%s", diff)
	}
}

func TestAnthropicRequests(t *testing.T) {
	requests(t, "anthropic/testdata", func(t *testing.T, body []byte) {
		var params sdk.MessageNewParams
		if err := json.Unmarshal(body, &params); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(params)
		if err != nil {
			t.Fatal(err)
		}
		same(t, longForm(t, body), again, "stream")
	})
}

// The SDK's types must see a tool that is loaded by a tool result as that.
func TestAnthropicDeferredTools(t *testing.T) {
	body, err := os.ReadFile(filepath.Join("..", "model", "anthropic", "testdata", "unlocked.json"))
	if err != nil {
		t.Fatal(err)
	}
	var params sdk.MessageNewParams
	if err := json.Unmarshal(body, &params); err != nil {
		t.Fatal(err)
	}
	deferred := map[string]bool{}
	for _, tool := range params.Tools {
		deferred[tool.OfTool.Name] = tool.OfTool.DeferLoading.Value
	}
	if diff := cmp.Diff(map[string]bool{"record_approval": false, "now": false, "publish_release": true}, deferred); diff != "" {
		t.Errorf("deferred tools (-want +got):\n%s", diff)
	}
	loaded := map[string]string{} // calls by tool
	for _, m := range params.Messages {
		for _, b := range m.Content {
			if b.OfToolResult == nil {
				continue
			}
			for _, c := range b.OfToolResult.Content {
				if c.OfToolReference != nil {
					loaded[c.OfToolReference.ToolName] = b.OfToolResult.ToolUseID
				}
			}
		}
	}
	if diff := cmp.Diff(map[string]string{"publish_release": "call_2"}, loaded); diff != "" {
		t.Errorf("loaded tools (-want +got):\n%s", diff)
	}
}

// longForm writes the content of tool results as a list of blocks. The API takes
// a string as well, which the SDK's types turn into that.
func longForm(t *testing.T, body []byte) []byte {
	t.Helper()
	var r map[string]any
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatal(err)
	}
	for _, m := range r["messages"].([]any) {
		for _, b := range m.(map[string]any)["content"].([]any) {
			b := b.(map[string]any)
			if text, ok := b["content"].(string); ok && b["type"] == "tool_result" {
				b["content"] = []any{map[string]any{"type": "text", "text": text}}
			}
		}
	}
	long, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return long
}
