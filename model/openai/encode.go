package openai

import (
	"encoding/json"
	"strings"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/dialect"
	"github.com/flue-go/flue/model/internal/history"
)

// maxCallID is the API's limit on the ids of calls of other models. A server takes
// back its own.
const maxCallID = 40

// imageLimits are OpenAI's limits on images. A request may have 50 MB in all.
var imageLimits = history.ImageLimits{Count: 500, Total: 32 << 20}

// encode returns the body for req.
func (p *Provider) encode(req *model.Request, names *dialect.Names) []byte {
	messages := imageLimits.Apply(history.Normalize(req.Messages))
	r := request{
		Model: req.Model, Stream: true, StreamOptions: streamOptions{IncludeUsage: true},
		Tools: p.tools(history.OrderTools(req.Tools, messages), names),
	}
	if req.ToolsOff && len(r.Tools) > 0 {
		r.ToolChoice = "none"
	}
	p.reason(&r, req)
	if p.official {
		r.Store = new(bool) // false: a conversation is nobody else's to keep
	}
	if p.config.PromptCacheKey {
		r.PromptCacheKey = cacheKey(req.CacheKey)
	}
	if limit := p.limit(req); p.config.MaxTokens {
		r.MaxTokens = limit
	} else {
		r.MaxCompletionTokens = limit
	}
	c := converter{origin: model.Origin{Provider: p.name, Model: req.Model}, names: names, replay: p.config.ReplayReasoning, quirks: &p.quirks}
	if strings.TrimSpace(req.System) != "" {
		role := "system"
		if p.official && req.Info.Reasoning {
			role = "developer" // what OpenAI calls it for models that reason
		}
		c.messages = append(c.messages, message{Role: role, Content: req.System})
	}
	for _, m := range messages {
		c.add(m)
	}
	if p.quirks.marks != nil && p.quirks.marks(req.Model) {
		markForCaching(c.messages)
	}
	r.Messages = c.messages
	return encode(r)
}

// A converter builds the messages of a request from a normalized history.
type converter struct {
	origin   model.Origin
	names    *dialect.Names
	replay   bool
	quirks   *quirks
	messages []message
	ids      map[string]string // of the calls just made, as they were sent
	called   map[string]string // the names of their tools, as they were sent
}

func (c *converter) add(m model.Message) {
	switch m.Role {
	case model.RoleAssistant:
		c.assistant(m)
	case model.RoleTool:
		for _, b := range m.Blocks {
			result := message{Role: "tool", Content: b.Text, ToolCallID: c.ids[b.CallID]}
			if c.quirks.names {
				result.Name = c.called[b.CallID]
			}
			c.messages = append(c.messages, result)
		}
	default:
		if last := len(c.messages) - 1; c.quirks.bridges && last >= 0 && c.messages[last].Role == "tool" {
			c.messages = append(c.messages, message{Role: "assistant", Content: bridge})
		}
		c.messages = append(c.messages, message{Role: "user", Content: user(m)})
	}
}

// user returns the content of a user message: a string, which every server
// understands, unless there are images.
func user(m model.Message) any {
	var texts []string
	var parts []part
	images := false
	for _, b := range m.Blocks {
		if url := imageData(b); url != "" {
			images = true
			parts = append(parts, part{Type: "image_url", ImageURL: &imageURL{URL: url}})
			continue
		}
		texts = append(texts, blockText(b))
		parts = append(parts, part{Type: "text", Text: blockText(b)})
	}
	if images {
		return parts
	}
	return strings.Join(texts, "\n\n")
}

func (c *converter) assistant(m model.Message) {
	own := m.Origin == c.origin
	out := message{Role: "assistant"}
	var texts []string
	var reasoning strings.Builder
	c.ids, c.called = map[string]string{}, map[string]string{}
	for _, b := range m.Blocks {
		var kept opaque
		if own && len(b.Opaque) > 0 {
			_ = json.Unmarshal(b.Opaque, &kept) // what does not parse is not ours
		}
		switch b.Kind {
		case model.Text:
			if !history.Blank(b.Text) {
				texts = append(texts, b.Text)
			}
		case model.Reasoning:
			if own {
				reasoning.WriteString(b.Text)
			}
			for _, detail := range kept.ReasoningDetails {
				if detail = history.Verbatim(detail); detail != nil {
					out.ReasoningDetails = append(out.ReasoningDetails, detail)
				}
			}
		case model.ToolCall:
			out.ToolCalls = append(out.ToolCalls, c.call(b, own, kept))
		}
	}
	if len(texts) > 0 {
		out.Content = strings.Join(texts, "\n\n")
	}
	if c.replay {
		s := reasoning.String()
		out.ReasoningContent = &s
	}
	c.messages = append(c.messages, out)
}

func (c *converter) call(b model.Block, own bool, kept opaque) toolCall {
	limit := maxCallID
	if own {
		limit = len(b.CallID)
	}
	id := history.SafeID(b.CallID, limit, false)
	if c.quirks.callID != nil {
		id = c.quirks.callID(id)
	}
	c.ids[b.CallID], c.called[b.CallID] = id, c.names.Alias(b.Name)
	return toolCall{
		ID: id, Type: "function", ExtraContent: history.Verbatim(kept.ExtraContent),
		Function: calledFunction{Name: c.names.Alias(b.Name), Arguments: string(history.Arguments(b.Arguments))},
	}
}
