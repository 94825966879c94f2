package openai

import (
	"encoding/json"
	"strings"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/dialect"
	"github.com/flue-go/flue/model/internal/history"
)

// Limits of the Responses API.
const (
	maxItemID       = 64 // of an item, and of a call
	minOutputTokens = 16 // the API refuses a smaller limit
)

// encode returns the body for req, and whether it holds reasoning or asks for
// it, which is so only if replay allows it.
func (p *Responses) encode(req *model.Request, names *dialect.Names, replay bool) (body []byte, replays bool) {
	messages := imageLimits.Apply(history.Normalize(req.Messages))
	r := responsesRequest{
		Model: req.Model, Instructions: instructions(req.System), Stream: true,
		Tools: p.tools(history.OrderTools(req.Tools, messages), names),
	}
	r.ParallelToolCalls = len(r.Tools) > 0
	if req.ToolsOff && len(r.Tools) > 0 {
		r.ToolChoice = "none"
	}
	if limit := p.limit(req); limit > 0 {
		r.MaxOutputTokens = max(limit, minOutputTokens)
	}
	if p.config.PromptCacheKey {
		r.PromptCacheKey = cacheKey(req.CacheKey)
	}
	r.Reasoning = p.reasoning(req)
	if replay && (p.reasons(req) || r.Reasoning != nil && r.Reasoning.Effort != "none") {
		r.Include = []string{"reasoning.encrypted_content"}
	}
	c := itemConverter{origin: model.Origin{Provider: p.name, Model: req.Model}, names: names, replay: replay}
	for _, m := range messages {
		c.add(m)
	}
	r.Input = c.items
	return encode(r), c.replays || len(r.Include) > 0
}

// instructions returns a system prompt that is not blank.
func instructions(system string) string {
	if history.Blank(system) {
		return ""
	}
	return system
}

// reasoning returns how to reason; nil leaves it to the server.
func (p *Responses) reasoning(req *model.Request) *reasoningParams {
	r := reasoningParams{Effort: p.effort(req)}
	asked := r.Effort != "" && r.Effort != "none"
	switch {
	case p.config.Summary == SummaryWhenAsked && asked,
		p.config.Summary == SummaryAlways && r.Effort != "none" && (asked || p.reasons(req)):
		r.Summary = "auto"
	case r.Effort == "":
		return nil
	}
	return &r
}

func (p *Responses) tools(offered []model.Tool, names *dialect.Names) []responsesTool {
	var ts []responsesTool
	for _, t := range offered {
		sent := responsesTool{Type: "function", Name: names.Alias(t.Name), Description: t.Description}
		sent.Parameters, sent.Strict = p.parameters(t)
		ts = append(ts, sent)
	}
	return ts
}

// An itemConverter builds the input of a request from a normalized history.
type itemConverter struct {
	origin  model.Origin // whose reasoning can be sent
	names   *dialect.Names
	replay  bool            // it shall be
	used    map[string]bool // ids of items
	items   []any
	ids     map[string]string // of the calls just made, as they were sent
	replays bool              // there is some among the items
}

func (c *itemConverter) add(m model.Message) {
	switch m.Role {
	case model.RoleAssistant:
		c.assistant(m)
	case model.RoleTool:
		for _, b := range m.Blocks {
			c.items = append(c.items, functionOutput{Type: "function_call_output", CallID: c.ids[b.CallID], Output: b.Text})
		}
	default:
		c.items = append(c.items, inputMessage{Type: "message", Role: "user", Content: userInput(m)})
	}
}

// userInput returns the content of a user message: a string unless there are images.
func userInput(m model.Message) any {
	var texts []string
	var parts []inputPart
	images := false
	for _, b := range m.Blocks {
		if url := imageData(b); url != "" {
			images = true
			parts = append(parts, inputPart{Type: "input_image", ImageURL: url, Detail: "auto"})
			continue
		}
		texts = append(texts, blockText(b))
		parts = append(parts, inputPart{Type: "input_text", Text: blockText(b)})
	}
	if images {
		return parts
	}
	return strings.Join(texts, "\n\n")
}

// assistant adds the items of an answer. A reasoning item is sent only with the
// item that came after it, and that item carries its id only with the reasoning
// before it: the server looks at the ids to find what is missing.
func (c *itemConverter) assistant(m model.Message) {
	own := m.Origin == c.origin
	c.ids = map[string]string{}
	var waiting []any // reasoning before the next item
	before := ""      // id of the last reasoning item that was or will be sent
	for _, b := range m.Blocks {
		var kept keptItem
		if own && len(b.Opaque) > 0 {
			_ = json.Unmarshal(b.Opaque, &kept) // what does not parse is not ours
		}
		item := history.Verbatim(kept.Item)
		id, reasoning := itemID(item)
		switch {
		case b.Kind == model.Reasoning && reasoning && c.replay && c.first(id):
			waiting, before = append(waiting, item), id
			continue
		case b.Kind == model.Reasoning, b.Kind == model.Text && history.Blank(b.Text):
			waiting, before = nil, "" // what is left out takes what belongs to it along
			continue
		case kept.After != before, len(waiting) > 0 && len(b.Opaque) == 0:
			waiting, before, kept.ID = nil, "", ""
		case !c.first(kept.ID):
			kept.ID = ""
		}
		c.replays = c.replays || len(waiting) > 0
		c.items = append(c.items, waiting...)
		waiting = nil
		if b.Kind == model.ToolCall {
			c.items = append(c.items, c.call(b, own, kept))
		} else {
			c.items = append(c.items, outputMessage(b, kept))
		}
	}
}

// itemID returns the id of an item, and whether it is reasoning.
func itemID(item json.RawMessage) (id string, reasoning bool) {
	var i struct {
		ID   string `json:"id"`
		Type string `json:"type"`
	}
	_ = json.Unmarshal(item, &i)
	return i.ID, i.Type == "reasoning"
}

// first reports whether an item can have the id: no longer one than the API takes,
// and none that an item before has.
func (c *itemConverter) first(id string) bool {
	if id == "" {
		return true
	}
	if len(id) > maxItemID || c.used[id] {
		return false
	}
	if c.used == nil {
		c.used = map[string]bool{}
	}
	c.used[id] = true
	return true
}

// outputMessage returns a text of the assistant. The API has a short form of
// it, which has no id.
func outputMessage(b model.Block, kept keptItem) inputMessage {
	m := inputMessage{Type: "message", Role: "assistant", Content: b.Text, Phase: kept.Phase}
	if kept.ID != "" {
		m.ID, m.Status = kept.ID, "completed"
		m.Content = []outputText{{Type: "output_text", Text: b.Text, Annotations: []any{}}}
	}
	return m
}

func (c *itemConverter) call(b model.Block, own bool, kept keptItem) functionCall {
	id := history.SafeID(b.CallID, maxItemID, !own)
	c.ids[b.CallID] = id
	return functionCall{
		Type: "function_call", ID: kept.ID, CallID: id, Name: c.names.Alias(b.Name),
		Arguments: string(history.Arguments(b.Arguments)),
	}
}
