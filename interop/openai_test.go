package interop_test

import (
	"encoding/json"
	"testing"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/openai"
	"github.com/google/go-cmp/cmp"
)

func TestOpenAIStreams(t *testing.T) {
	transcripts(t, "openai/testdata", func(t *testing.T, url string) {
		ours, err := modeltest.Collect(t, openai.New(openai.Config{BaseURL: url + "/v1", APIKey: "k"}).Stream(t.Context(), modeltest.Hello()))
		if err != nil {
			t.Fatal(err)
		}
		client := sdk.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("k"), option.WithMaxRetries(0))
		stream := client.Chat.Completions.NewStreaming(t.Context(), sdk.ChatCompletionNewParams{
			Model: "test-model", Messages: []sdk.ChatCompletionMessageParamUnion{sdk.UserMessage("Hello")},
		})
		var acc sdk.ChatCompletionAccumulator
		reasoning := ""
		var usage sdk.CompletionUsage // the accumulator leaves out what was written to a cache
		for stream.Next() {
			c := stream.Current()
			if !acc.AddChunk(c) {
				t.Fatalf("the SDK cannot add %s", c.RawJSON())
			}
			reasoning += extraReasoning(c)
			if c.JSON.Usage.Valid() {
				usage = c.Usage
			}
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
		acc.Usage = usage
		want, got := fromOpenAI(acc.ChatCompletion), summarize(ours)
		want.Reasoning = reasoning
		for i := range got.Calls { // servers without ids: the SDK leaves them empty
			if i < len(want.Calls) && want.Calls[i].ID == "" {
				got.Calls[i].ID = ""
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("answer (-SDK +codec):\n%s", diff)
		}
	})
}

// extraReasoning reads the reasoning of a chunk, which the SDK has no field for.
func extraReasoning(c sdk.ChatCompletionChunk) string {
	text := ""
	for _, choice := range c.Choices {
		for _, name := range []string{"reasoning_content", "reasoning"} {
			var s string
			if field, ok := choice.Delta.JSON.ExtraFields[name]; ok && json.Unmarshal([]byte(field.Raw()), &s) == nil {
				text += s
			}
		}
	}
	return text
}

func fromOpenAI(c sdk.ChatCompletion) answer {
	stops := map[string]model.StopReason{
		"stop": model.StopEnd, "tool_calls": model.StopToolUse, "length": model.StopLength, "content_filter": model.StopFiltered,
	}
	u := c.Usage
	cached, written := u.PromptTokensDetails.CachedTokens, u.PromptTokensDetails.CacheWriteTokens
	a := answer{Usage: model.Usage{
		Input: int(u.PromptTokens - cached - written), Output: int(u.CompletionTokens),
		CacheRead: int(cached), CacheWrite: int(written), Reasoning: int(u.CompletionTokensDetails.ReasoningTokens),
	}}
	m := c.Choices[0].Message
	a.Text, a.Stop = m.Content, stops[c.Choices[0].FinishReason]
	for _, t := range m.ToolCalls {
		raw := t.Function.Arguments
		if raw == "" {
			raw = "{}"
		}
		a.Calls = append(a.Calls, call{t.ID, t.Function.Name, args(raw)})
	}
	return a
}

func TestOpenAIRequests(t *testing.T) {
	requests(t, "openai/testdata", func(t *testing.T, body []byte) {
		var params sdk.ChatCompletionNewParams
		if err := json.Unmarshal(body, &params); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(params)
		if err != nil {
			t.Fatal(err)
		}
		same(t, plain(t, body), again, "stream")
	})
}

// plain leaves out what other servers add to the API, which the SDK has no
// fields for, and content that is null, which the SDK leaves out.
func plain(t *testing.T, body []byte) []byte {
	t.Helper()
	var r map[string]any
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatal(err)
	}
	for _, m := range r["messages"].([]any) {
		m := m.(map[string]any)
		delete(m, "reasoning_content")
		delete(m, "reasoning_details")
		if m["content"] == nil {
			delete(m, "content")
		}
	}
	out, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
