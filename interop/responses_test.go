package interop_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/openai"
	"github.com/google/go-cmp/cmp"
)

const responsesFolder = "openai/testdata/responses"

func TestResponsesStreams(t *testing.T) {
	transcripts(t, responsesFolder, func(t *testing.T, url string) {
		ours, err := modeltest.Collect(t, openai.NewResponses(openai.Config{BaseURL: url + "/v1", APIKey: "k"}).Stream(t.Context(), modeltest.Hello()))
		if err != nil {
			t.Fatal(err)
		}
		theirs, deltas := fromResponses(t, url)
		got := summarize(ours)
		for i := range got.Calls { // a server without ids: the SDK leaves them empty
			if i < len(theirs.Calls) && theirs.Calls[i].ID == "" {
				got.Calls[i].ID = ""
			}
		}
		if diff := cmp.Diff(theirs, got); diff != "" {
			t.Errorf("answer (-SDK +codec):\n%s", diff)
		}
		arguments := map[string]string{} // as they were streamed, by call
		for _, e := range ours.Events {
			if d, ok := e.(model.Delta); ok && d.Kind == model.ToolCall {
				arguments[d.CallID] += d.Text
			}
		}
		if diff := cmp.Diff(deltas, arguments); diff != "" {
			t.Errorf("arguments as they were streamed (-SDK +codec):\n%s", diff)
		}
	})
}

// fromResponses has the SDK receive a stream. It returns the answer, and the
// deltas of the calls' arguments.
func fromResponses(t *testing.T, url string) (answer, map[string]string) {
	t.Helper()
	var out answer
	items := receiveItems(t, url, func(r responses.Response) {
		u := r.Usage
		if u.TotalTokens > 0 {
			out.Usage = model.Usage{
				Input:  int(u.InputTokens - u.InputTokensDetails.CachedTokens - u.InputTokensDetails.CacheWriteTokens),
				Output: int(u.OutputTokens), CacheRead: int(u.InputTokensDetails.CachedTokens),
				CacheWrite: int(u.InputTokensDetails.CacheWriteTokens), Reasoning: int(u.OutputTokensDetails.ReasoningTokens),
			}
		}
		switch {
		case r.IncompleteDetails.Reason == "content_filter":
			out.Stop = model.StopFiltered
		case r.Status == responses.ResponseStatusIncomplete:
			out.Stop = model.StopLength
		case r.Status == responses.ResponseStatusCompleted:
			out.Stop = model.StopEnd
		}
	})
	deltas := map[string]string{}
	for _, item := range items {
		switch item.Type {
		case "message":
			for _, c := range item.Content {
				out.Text += c.Text + c.Refusal
				if c.Type == "refusal" {
					out.Stop = model.StopFiltered
				}
			}
		case "reasoning":
			r := item.AsReasoning()
			var parts []string
			for _, s := range r.Summary {
				parts = append(parts, s.Text)
			}
			for _, c := range r.Content {
				parts = append(parts, c.Text)
			}
			out.Reasoning += strings.Join(parts, "\n\n")
		case "function_call":
			c := item.AsFunctionCall()
			raw := c.Arguments
			if raw == "" {
				raw = "{}"
			} else {
				deltas[c.CallID] = raw
			}
			out.Calls = append(out.Calls, call{c.CallID, c.Name, args(raw)})
			if out.Stop == model.StopEnd {
				out.Stop = model.StopToolUse
			}
		}
	}
	return out, deltas
}

// receiveItems has the SDK receive a stream, and returns the items of the output
// as they ended. It calls seen with each response that the stream tells of.
func receiveItems(t *testing.T, url string, seen func(responses.Response)) []responses.ResponseOutputItemUnion {
	t.Helper()
	client := sdk.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("k"), option.WithMaxRetries(0))
	stream := client.Responses.NewStreaming(t.Context(), responses.ResponseNewParams{
		Model: "test-model", Input: responses.ResponseNewParamsInputUnion{OfString: sdk.String("Hello")},
	})
	ended := map[int64]responses.ResponseOutputItemUnion{}
	for stream.Next() {
		switch e := stream.Current().AsAny().(type) {
		case responses.ResponseOutputItemDoneEvent:
			ended[e.OutputIndex] = e.Item
		case responses.ResponseInProgressEvent:
			seen(e.Response)
		case responses.ResponseIncompleteEvent:
			seen(e.Response)
		case responses.ResponseCompletedEvent:
			seen(e.Response)
			for i, item := range e.Response.Output { // where what was reasoned may come late
				if at := int64(i); item.Type == "reasoning" && ended[at].EncryptedContent == "" {
					ended[at] = item
				}
			}
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	var items []responses.ResponseOutputItemUnion
	for _, i := range slices.Sorted(maps.Keys(ended)) {
		items = append(items, ended[i])
	}
	return items
}

// What the codec sends back of an answer is what the SDK would send back.
func TestResponsesReplay(t *testing.T) {
	transcripts(t, responsesFolder, func(t *testing.T, url string) {
		var sent []byte
		provider := openai.NewResponses(openai.Config{BaseURL: url + "/v1", APIKey: "k", Client: recording(&sent)})
		ours, err := modeltest.Collect(t, provider.Stream(t.Context(), modeltest.Hello()))
		if err != nil {
			t.Fatal(err)
		}
		req := modeltest.Hello()
		req.Messages = append(req.Messages, model.Message{
			Role: model.RoleAssistant, Blocks: ours.Blocks, Origin: model.Origin{Provider: "openai", Model: req.Model},
		})
		if _, err := modeltest.Collect(t, provider.Stream(t.Context(), req)); err != nil {
			t.Fatal(err)
		}
		params := readResponsesRequest(t, sent)
		var got []any
		for _, item := range params.Input.OfInputItemList {
			if r := item.GetRole(); (r == nil || *r != "user") && item.OfFunctionCallOutput == nil {
				got = append(got, essence(t, item))
			}
		}
		var want []any
		for _, item := range receiveItems(t, url, func(responses.Response) {}) {
			want = append(want, essence(t, param(item)))
		}
		if len(want) == 1 { // nothing was reasoned, so that the ids are of no use
			delete(want[0].(map[string]any), "id")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("sent back (-SDK +codec):\n%s", diff)
		}
	})
}

// param returns what the SDK sends back for an item of the output.
func param(item responses.ResponseOutputItemUnion) any {
	switch item.Type {
	case "reasoning":
		return item.AsReasoning().ToParam()
	case "message":
		return item.AsMessage().ToParam()
	}
	return item.AsFunctionCall().ToParam()
}

// essence reduces an item to what it means: its text may have a short form, and
// arguments that the model did not finish are sent as none.
func essence(t *testing.T, item any) map[string]any {
	t.Helper()
	raw, err := json.Marshal(item)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	delete(v, "status")
	if v["id"] == "" && v["type"] != "reasoning" {
		delete(v, "id")
	}
	if parts, ok := v["content"].([]any); ok && v["type"] == "message" {
		text := ""
		for _, p := range parts {
			for _, field := range []string{"text", "refusal"} {
				s, _ := p.(map[string]any)[field].(string)
				text += s
			}
		}
		v["content"] = text
	}
	if s, ok := v["arguments"].(string); ok {
		v["arguments"] = args(s)
		if _, cut := v["arguments"].(string); cut {
			v["arguments"] = map[string]any{}
		}
	}
	if v["call_id"] == "" || strings.HasPrefix(asString(v["call_id"]), "call_") && len(asString(v["call_id"])) > 20 {
		delete(v, "call_id") // a server without ids: the codec made one up
	}
	return v
}

func asString(v any) string { s, _ := v.(string); return s }

// readResponsesRequest reads a request with the SDK's types. Of the two types
// that it has for a message of the assistant it always takes the one without an
// id, so those with one are read apart.
func readResponsesRequest(t *testing.T, body []byte) responses.ResponseNewParams {
	t.Helper()
	var params responses.ResponseNewParams
	if err := json.Unmarshal(body, &params); err != nil {
		t.Fatal(err)
	}
	var raw struct{ Input []json.RawMessage }
	if err := json.Unmarshal(body, &raw); err != nil {
		t.Fatal(err)
	}
	for i, item := range raw.Input {
		var m responses.ResponseOutputMessageParam
		if err := json.Unmarshal(item, &m); err == nil && m.Type == "message" && m.ID != "" {
			params.Input.OfInputItemList[i] = responses.ResponseInputItemUnionParam{OfOutputMessage: &m}
		}
	}
	return params
}

func TestResponsesRequests(t *testing.T) {
	requests(t, responsesFolder, func(t *testing.T, body []byte) {
		params := readResponsesRequest(t, body)
		for i, item := range params.Input.OfInputItemList {
			if item.GetType() == nil || *item.GetType() == "" {
				t.Errorf("the SDK does not know item %d", i)
			}
		}
		if slices.ContainsFunc(params.Tools, func(tool responses.ToolUnionParam) bool { return tool.OfFunction == nil }) {
			t.Errorf("the SDK sees tools that are no functions: %v", params.Tools)
		}
		again, err := json.Marshal(params)
		if err != nil {
			t.Fatal(err)
		}
		same(t, body, again, "stream")
	})
}
