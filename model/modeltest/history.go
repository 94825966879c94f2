package modeltest

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flue-go/flue/model"
	rulebook "github.com/flue-go/flue/model/modeltest/rules"
)

// histories tests that a service would take the request that is made of any
// history, however damaged. A history stays, so a request that is refused for
// it ends the conversation for good.
func (r *runner) histories(t *testing.T) {
	if r.Rules == nil {
		t.Skip("the suite has no rules")
	}
	for _, own := range r.Origins {
		t.Run(own.Model, func(t *testing.T) { r.historiesOf(t, own) })
	}
}

func (r *runner) historiesOf(t *testing.T, own model.Origin) {
	var body []byte
	first := r.Exchanges[0]
	r.answer(func(w http.ResponseWriter, req *http.Request) {
		body, _ = io.ReadAll(req.Body)
		send(w, first.Stream)
	})
	p := r.provider(0)
	var received []model.Block // what the provider itself has sent
	for _, x := range r.Exchanges {
		received = append(received, x.Blocks...)
	}
	Histories(t, r.Rules, own, received, func(req *model.Request) ([]byte, error) {
		for _, err := range p.Stream(t.Context(), req) {
			if err != nil {
				return nil, err
			}
		}
		return body, nil
	})
}

// Histories draws requests with histories of any kind and holds to rules the body
// that sent returns for each, and to that of tools that are not to be called. Own is what the provider takes for its own, and
// received what it has received before. [Run] does this for providers that it
// tests; others have to have it done.
func Histories(t *testing.T, rules func(body []byte) []string, own model.Origin, received []model.Block, sent func(*model.Request) ([]byte, error)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		req := anyRequest(t, own, received)
		body, err := sent(req)
		if err != nil {
			t.Fatalf("the answer fails: %v", err)
		}
		if req.ToolsOff && rulebook.MayCall(body) {
			t.Fatalf("the model may call a tool, and is not to:\n%s", body)
		}
		if problems := rules(body); len(problems) > 0 {
			t.Fatalf("the service would refuse the request:\n%s\n\n%s", strings.Join(problems, "\n"), body)
		}
	})
}

// anyRequest draws a request with a history of any kind.
func anyRequest(t *rapid.T, own model.Origin, received []model.Block) *model.Request {
	d := drawer{T: t, own: own, received: received}
	req := &model.Request{Model: own.Model, System: pick(t, "system", "", " ", "Be brief.", "Half: \xed\xa0\xbd"), CacheKey: pick(t, "cache key", "", "key", strings.Repeat("k", 200))}
	most := rapid.SampledFrom([]int{8, 8, 8, 40}).Draw(t, "at most")
	for range rapid.IntRange(1, most).Draw(t, "messages") {
		req.Messages = append(req.Messages, d.message())
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(toolNames), 0, 4, rapid.ID).Draw(t, "tools") {
		req.Tools = append(req.Tools, model.Tool{
			Name: name, Description: pick(t, "description", "", "Does it."),
			Schema: json.RawMessage(rapid.SampledFrom(schemas).Draw(t, "schema")),
			After:  pick(t, "after", "", "", "call_1", "call_2", "gone"),
		})
	}
	req.ToolsOff = rapid.Bool().Draw(t, "tools off")
	req.Thinking = rapid.SampledFrom([]model.Thinking{"", model.ThinkingOff, model.ThinkingMinimal, model.ThinkingLow, model.ThinkingMedium, model.ThinkingHigh, model.ThinkingXHigh, model.ThinkingMax}).Draw(t, "thinking")
	req.MaxOutput = rapid.SampledFrom([]int{0, 1, 1000, 100_000}).Draw(t, "output")
	if rapid.Bool().Draw(t, "known") {
		req.Info = model.Info{ContextWindow: 200_000, MaxOutput: 64_000, Reasoning: true, Images: true, DeferredTools: true}
	}
	return req
}

func pick(t *rapid.T, label string, from ...string) string {
	return rapid.SampledFrom(from).Draw(t, label)
}

var toolNames = []string{"lookup_order", "now", "github.search", "files/read", "1st", strings.Repeat("long_", 40), "größe"}

// schemas have each broken the requests of somebody.
var schemas = []string{
	``, `{}`, `{"type":"object","properties":{}}`, `{"type":"string"}`, `[`, `true`,
	`{"type":"object","properties":{"a":{"type":"string","format":"uri"},"b":{"type":["integer","null"],"enum":[1,null]}},"required":["a"],"additionalProperties":false}`,
	`{"anyOf":[{"type":"object","properties":{"a":{"const":1}}},{"type":"object","properties":{"a":{"const":"x"}},"required":["a"]}]}`,
	`{"$ref":"#/definitions/n","definitions":{"n":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/definitions/n"}},"$odd name":{"type":"array"}}}}}`,
	`{"type":["object","null"],"properties":{"map":{"type":"object","additionalProperties":{"type":"array"}},"t":{"type":"array","items":[{"type":"null"}]}},"required":["map","gone"]}`,
	`{"type":"object","properties":{"s":{"allOf":[{"minLength":1},{"type":"string","default":"\ud83d"}],"description":"half \ud83d"},"x":{"type":"any","required":true}},"not":{"required":["s"]}}`,
	`{"type":"object","properties":{"tree":{"$ref":"#"}},"required":["tree"]}`,
}

// A drawer draws what a history can hold.
type drawer struct {
	*rapid.T
	own      model.Origin
	received []model.Block
}

func (d *drawer) message() model.Message {
	role := rapid.SampledFrom([]model.Role{model.RoleUser, model.RoleAssistant, model.RoleAssistant, model.RoleTool}).Draw(d.T, "role")
	m := model.Message{Role: role}
	kinds := []model.BlockKind{model.Text, model.Image}
	switch role {
	case model.RoleAssistant:
		kinds = []model.BlockKind{model.Text, model.Reasoning, model.ToolCall, model.ToolCall}
		m.Origin = rapid.SampledFrom([]model.Origin{d.own, {Provider: "elsewhere", Model: d.own.Model}, {}}).Draw(d.T, "origin")
	case model.RoleTool:
		kinds = []model.BlockKind{model.ToolResult, model.ToolResult, model.ToolResult, model.Text, model.Image}
	}
	for range rapid.IntRange(0, 5).Draw(d.T, "blocks") {
		if m.Origin == d.own && role == model.RoleAssistant && rapid.Bool().Draw(d.T, "received") {
			m.Blocks = append(m.Blocks, d.recorded())
			continue
		}
		m.Blocks = append(m.Blocks, d.block(rapid.SampledFrom(kinds).Draw(d.T, "kind"), m.Origin == d.own))
	}
	return m
}

// recorded is a block that the provider has sent, with the id that a history
// gives to a call without one.
func (d *drawer) recorded() model.Block {
	b := rapid.SampledFrom(d.received).Draw(d.T, "block")
	if b.CallID == "*" || b.Kind == model.ToolCall && rapid.Bool().Draw(d.T, "renamed") {
		b.CallID = d.id(true)
	}
	return b
}

func (d *drawer) id(own bool) string {
	ids := []string{"call_1", "call_2", "call_3", "functions.weird name:0", "", "é"}
	if !own {
		ids = append(ids, strings.Repeat("long|", 90))
	}
	return pick(d.T, "id", ids...)
}

func (d *drawer) block(kind model.BlockKind, own bool) model.Block {
	b := model.Block{Kind: kind}
	switch kind {
	case model.ToolCall:
		b.CallID, b.Name = d.id(own), pick(d.T, "name", append([]string{"", "made up", "\xff"}, toolNames...)...)
		b.Arguments = pick(d.T, "arguments", "", " ", "{}", `{"a":1}`, `{"s":"\ud83d"}`, `{"path":"a.txt","content":"hel`, `[1,2]`, `null`, `"hi"`, "{\"cmd\":\"a\x07b\"}", `{"a":1,"a":2}`, "{\"b\":\"\xff\"}", `{"n":1e999}`)
	case model.ToolResult:
		b.CallID = d.id(true)
		b.Text, b.IsError = d.text(), rapid.Bool().Draw(d.T, "failed")
	case model.Image:
		b.MediaType = pick(d.T, "media", "", "image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml", "text/plain")
		b.Data = rapid.SampledFrom([][]byte{nil, pixel, []byte("GIF89a\x01\x00\x01\x00"), []byte("<svg/>"), []byte("RIFF\x00\x00\x00\x00WEBPVP8 ")}).Draw(d.T, "data")
	default:
		b.Text = d.text()
	}
	if kind != model.Image && rapid.Bool().Draw(d.T, "opaque") {
		b.Opaque = json.RawMessage(pick(d.T, "opaque", `{}`, `null`, `[]`, `{"block":{"type":"thinking","thinking":"t","signature":"s"}}`, `{"item":{}}`, `{"signature":"c2ln"}`, `{"foreign":{"a":1,"a":2}}`, `{"id":"x","after":"y"}`, `7`))
	}
	return b
}

func (d *drawer) text() string {
	return pick(d.T, "text", "", " ", "\n\t", "\u00a0", "Hello.", "half: \xed\xa0\xbd", "\x00\x07", `{"$ref":"#/x"}`, "<b>&</b> é 👋🏽")
}
