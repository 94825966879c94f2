package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/openai"
)

// A name that the API does not accept goes out under an alias, in the tools and
// in the history, and comes back as itself.
func TestToolNames(t *testing.T) {
	req := modeltest.Hello()
	req.Tools = []model.Tool{{Name: "github.search"}, {Name: "now"}}
	req.Messages = append(req.Messages,
		model.Message{Role: model.RoleAssistant, Blocks: []model.Block{{Kind: model.ToolCall, CallID: "1", Name: "github.search"}}},
		model.Message{Role: model.RoleTool, Blocks: []model.Block{{Kind: model.ToolResult, CallID: "1", Text: "nothing"}}})
	type function struct{ Name string }
	var body struct {
		Tools    []struct{ Function function }
		Messages []struct {
			ToolCalls []struct{ Function function } `json:"tool_calls"`
		}
	}
	if err := json.Unmarshal(sent(t, openai.Config{}, req), &body); err != nil {
		t.Fatal(err)
	}
	alias := body.Tools[0].Function.Name
	if strings.Contains(alias, ".") || body.Tools[1].Function.Name != "now" || body.Messages[1].ToolCalls[0].Function.Name != alias {
		t.Errorf("sent tools %v and the calls %v", body.Tools, body.Messages[1].ToolCalls)
	}
	client, _ := play(lines(
		choice(`{"tool_calls":[{"index":0,"id":"2","function":{"name":"`+alias+`","arguments":"{}"}},{"index":1,"id":"3","function":{"name":"made_up"}}]}`),
		`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`, `[DONE]`))
	got, err := modeltest.Collect(t, openai.New(openai.Config{APIKey: "k", Client: client}).Stream(t.Context(), req))
	if err != nil || got.Blocks[0].Name != "github.search" || got.Blocks[1].Name != "made_up" {
		t.Errorf("the answer calls %v, error %v", got.Blocks, err)
	}
}

func TestStrictTools(t *testing.T) {
	req := modeltest.Hello()
	req.Tools = []model.Tool{
		{Name: "search", Schema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string","minLength":1},"limit":{"type":"integer"}},"required":["q"]}`)},
		{Name: "fetch", Schema: json.RawMessage(`{"type":"object","properties":{"headers":{"type":"object","additionalProperties":{"type":"string"}}}}`)},
	}
	body := string(sent(t, openai.Config{StrictTools: true}, req))
	for _, want := range []string{
		`{"name":"search","parameters":{"type":"object","properties":{"q":{"type":"string","description":"Must also fit the JSON Schema {\"minLength\":1}"},"limit":{"type":["integer","null"]}},"required":["q","limit"],"additionalProperties":false},"strict":true}`,
		`{"name":"fetch","parameters":{"type":"object","properties":{"headers":{"type":"object","additionalProperties":{"type":"string"}}}}}`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("sent %s\nwant in it %s", body, want)
		}
	}
	if strings.Contains(string(sent(t, openai.Config{}, req)), "strict") {
		t.Error("a schema is enforced unasked")
	}
	var told []string
	for _, l := range openai.New(openai.Config{StrictTools: true}).Losses(req.Tools) {
		told = append(told, l.Tool+l.Path)
	}
	if got := strings.Join(told, " "); got != "search/properties/q/minLength fetch" {
		t.Errorf("losses of %q", got)
	}
	if losses := openai.New(openai.Config{}).Losses(req.Tools); losses != nil {
		t.Errorf("losses = %v", losses)
	}
}
