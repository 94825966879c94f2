package anthropic_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/modeltest"
)

// A name that the API does not accept goes out under an alias, in the tools and
// in the history, and comes back as itself.
func TestToolNames(t *testing.T) {
	req := modeltest.Hello()
	req.Tools = []model.Tool{{Name: "github.search"}, {Name: "now"}}
	req.Messages = append(req.Messages,
		model.Message{Role: model.RoleAssistant, Blocks: []model.Block{{Kind: model.ToolCall, CallID: "1", Name: "github.search"}}},
		model.Message{Role: model.RoleTool, Blocks: []model.Block{{Kind: model.ToolResult, CallID: "1", Text: "nothing"}}})
	var body struct {
		Tools    []struct{ Name string }
		Messages []struct {
			Content []struct{ Type, Name string }
		}
	}
	if err := json.Unmarshal(sent(t, anthropic.Config{}, req), &body); err != nil {
		t.Fatal(err)
	}
	alias := body.Tools[0].Name
	if strings.Contains(alias, ".") || body.Tools[1].Name != "now" || body.Messages[1].Content[0].Name != alias {
		t.Errorf("sent tools %v and a call of %q", body.Tools, body.Messages[1].Content[0].Name)
	}
	got, err := receive(t, lines(
		`{"type":"message_start","message":{"model":"m","usage":{}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"2","name":"`+alias+`","input":{}}}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"3","name":"made_up","input":{}}}`,
		`{"type":"message_stop"}`), req)
	if err != nil || got.Blocks[0].Name != "github.search" || got.Blocks[1].Name != "made_up" {
		t.Errorf("the answer calls %v, error %v", got.Blocks, err)
	}
}

func TestLosses(t *testing.T) {
	tools := []model.Tool{
		{Name: "fine", Schema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"string","format":"uri"}}}`)},
		{Name: "union", Schema: json.RawMessage(`{"anyOf":[{"type":"object","properties":{"a":{}}},{"type":"object"}]}`)},
	}
	losses := anthropic.New(anthropic.Config{}).Losses(tools)
	if len(losses) != 1 || losses[0].Tool != "union" || losses[0].Path != "/anyOf" {
		t.Errorf("losses = %+v", losses)
	}
}

// The API refuses calls in a request that offers no tools, such as one that asks
// for a summary. Tools that cannot be called stand in.
func TestCallsWithoutTools(t *testing.T) {
	req := modeltest.Conversation(model.Origin{Provider: "anthropic", Model: "m"}, nil)
	req.Tools = nil
	body := string(sent(t, anthropic.Config{}, req))
	for _, want := range []string{`{"name":"lookup_order","input_schema":{"type":"object","properties":{}}}`, `"name":"now"`, `"tool_choice":{"type":"none"}`} {
		if !strings.Contains(body, want) {
			t.Errorf("sent %s, want %s in it", body, want)
		}
	}
	if body := string(sent(t, anthropic.Config{}, modeltest.Hello())); strings.Contains(body, "tool") {
		t.Errorf("tools in a request without calls: %s", body)
	}
}
