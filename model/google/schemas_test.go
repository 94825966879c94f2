package google_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/google"
	"github.com/flue-go/flue/model/modeltest"
)

// A name that the API does not accept goes out under an alias, in the tools and
// in the history, and comes back as itself.
func TestToolNames(t *testing.T) {
	req := modeltest.Hello()
	req.Tools = []model.Tool{{Name: "7up@home"}, {Name: "now"}}
	req.Messages = append(req.Messages,
		model.Message{Role: model.RoleAssistant, Blocks: []model.Block{{Kind: model.ToolCall, CallID: "1", Name: "7up@home"}}},
		model.Message{Role: model.RoleTool, Blocks: []model.Block{result("1", "nothing")}})
	var body struct {
		Contents []sentContent
		Tools    []struct{ FunctionDeclarations []struct{ Name string } }
	}
	if err := json.Unmarshal(sent(t, req), &body); err != nil {
		t.Fatal(err)
	}
	declared := body.Tools[0].FunctionDeclarations
	alias := declared[0].Name
	called, answered := body.Contents[1].Parts[0].FunctionCall.Name, body.Contents[2].Parts[0].FunctionResponse.Name
	if strings.Contains(alias, "@") || !strings.HasPrefix(alias, "_7up") || declared[1].Name != "now" || called != alias || answered != alias {
		t.Errorf("declared %v, called %q, answered %q", declared, called, answered)
	}
	got, err := receive(t, lines(parts(`{"functionCall":{"name":"`+alias+`"}},{"functionCall":{"name":"made_up"}}`), finish("STOP")), req)
	if err != nil || got.Blocks[0].Name != "7up@home" || got.Blocks[1].Name != "made_up" {
		t.Errorf("the answer calls %v, error %v", got.Blocks, err)
	}
}

// A schema is sent as JSON Schema, without what the API does not know; a tool
// without arguments has none.
func TestSchemas(t *testing.T) {
	req := modeltest.Hello()
	req.Tools = []model.Tool{
		{Name: "search", Schema: json.RawMessage(`{"type":"object","properties":{"q":{"type":["string","null"],"minLength":1},"n":{"$ref":"#/$defs/n"}},"required":["q"],"$defs":{"n":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/n"}}}}}}`)},
		{Name: "now", Schema: json.RawMessage(`{"type":"object","properties":{}}`)},
	}
	var body struct {
		Tools []struct {
			FunctionDeclarations []struct {
				Parameters, ParametersJSONSchema json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(sent(t, req), &body); err != nil {
		t.Fatal(err)
	}
	search, now := body.Tools[0].FunctionDeclarations[0], body.Tools[0].FunctionDeclarations[1]
	schema := string(search.ParametersJSONSchema)
	if search.Parameters != nil || !strings.Contains(schema, `"type":["string","null"]`) || !strings.Contains(schema, `"$ref":"#/$defs/n"`) || strings.Contains(schema, `"minLength":1,`) {
		t.Errorf("sent %s", schema)
	}
	if now.Parameters != nil || now.ParametersJSONSchema != nil {
		t.Errorf("a tool without arguments has the schema %s%s", now.Parameters, now.ParametersJSONSchema)
	}
	if losses := google.New(google.Config{}).Losses(req.Tools); len(losses) != 1 || losses[0].Tool != "search" || losses[0].Path != "/properties/q/minLength" {
		t.Errorf("losses = %+v", losses)
	}
}

func TestCheck(t *testing.T) {
	p := google.New(google.Config{APIKey: "k"})
	for _, id := range []string{"", "gemini-3.5-flash", "models/gemini-3.5-flash", "tunedModels/x"} {
		if err := p.Check(id); err != nil {
			t.Errorf("model %q: %v", id, err)
		}
	}
	if p.Check("a b") == nil || google.New(google.Config{}).Check("") == nil || google.NewVertex(google.VertexConfig{Project: "p"}).Check("") == nil {
		t.Error("a flaw is not found")
	}
}
