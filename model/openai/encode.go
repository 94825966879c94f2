package openai

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/history"
)

// Limits of the API on what a history may hold.
const (
	maxToolName = 64
	maxCallID   = 40 // for the ids of other models; a server takes back its own
	maxCacheKey = 64
)

// encode returns the body for req.
func (p *Provider) encode(req *model.Request) ([]byte, error) {
	if req.Model == "" {
		return nil, p.invalid("the request names no model")
	}
	if len(req.Messages) == 0 {
		return nil, p.invalid("the request has no messages")
	}
	messages := history.Normalize(req.Messages)
	r := request{
		Model: req.Model, Stream: true, StreamOptions: streamOptions{IncludeUsage: true},
		Tools: tools(history.OrderTools(req.Tools, messages)), ReasoningEffort: p.effort(req),
	}
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
	c := converter{origin: model.Origin{Provider: p.name, Model: req.Model}, replay: p.config.ReplayReasoning}
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
	r.Messages = c.messages
	return encode(r), nil
}

// encode is json.Marshal without the escaping of HTML, which only makes a
// request longer. The values of this package always encode.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("openai: request does not encode: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func tools(offered []model.Tool) []tool {
	var ts []tool
	for _, t := range offered {
		schema := history.Object(t.Schema)
		if schema == nil {
			schema = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		ts = append(ts, tool{Type: "function", Function: function{Name: t.Name, Description: t.Description, Parameters: schema}})
	}
	return ts
}

// limit returns the most tokens that the answer may have, zero for the server's
// own limit. OpenAI's is the model's. Other servers may have a small one, so
// the model's is sent, unless it is so large that a server which reserves it
// would leave no room for the conversation.
func (p *Provider) limit(req *model.Request) int {
	most, window := req.Info.MaxOutput, req.Info.ContextWindow
	switch {
	case req.MaxOutput > 0:
		return req.MaxOutput
	case p.official, most <= 0, window > 0 && most > window/2:
		return 0
	}
	return most
}

// cacheKey returns a key within the length that the API accepts.
func cacheKey(key string) string {
	if len(key) <= maxCacheKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

var gptVersion = regexp.MustCompile(`^(?:ft:)?gpt-(\d+)(?:\.(\d+))?(?:\D|$)`)

// silentWithTools reports whether OpenAI's model id refuses to reason in this
// API when tools are offered.
func silentWithTools(id string) bool {
	m := gptVersion.FindStringSubmatch(id)
	if m == nil {
		return false
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return major > 5 || major == 5 && minor >= 2
}

// effort returns the reasoning effort to ask for; empty leaves it to the server.
func (p *Provider) effort(req *model.Request) string {
	if p.official && len(req.Tools) > 0 && silentWithTools(req.Model) {
		return "none"
	}
	level := req.Info.Nearest(req.Thinking)
	listed := len(req.Info.Levels) > 0
	switch {
	case level == model.ThinkingDefault:
		return ""
	case level == model.ThinkingOff && listed:
		return "none"
	case level == model.ThinkingOff && !req.Info.Reasoning:
		return "" // as far as is known, it does not reason anyway
	case !listed && (level == model.ThinkingOff || level == model.ThinkingMinimal):
		return "low" // the lowest that each model has
	case !listed && level == model.ThinkingXHigh:
		return "high" // and the highest
	}
	return string(level)
}

// A converter builds the messages of a request from a normalized history.
type converter struct {
	origin   model.Origin
	replay   bool
	messages []message
	ids      map[string]string // of the calls just made, as they were sent
}

func (c *converter) add(m model.Message) {
	switch m.Role {
	case model.RoleAssistant:
		c.assistant(m)
	case model.RoleTool:
		for _, b := range m.Blocks {
			c.messages = append(c.messages, message{Role: "tool", Content: b.Text, ToolCallID: c.ids[b.CallID]})
		}
	default:
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
		text := b.Text
		if b.Kind == model.Image {
			media := history.ImageType(b)
			if media != "" {
				images = true
				url := "data:" + media + ";base64," + base64.StdEncoding.EncodeToString(b.Data)
				parts = append(parts, part{Type: "image_url", ImageURL: &imageURL{URL: url}})
				continue
			}
			text = history.ImageText(b)
		}
		texts = append(texts, text)
		parts = append(parts, part{Type: "text", Text: text})
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
	c.ids = map[string]string{}
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
				if detail = history.Object(detail); detail != nil {
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
	c.ids[b.CallID] = id
	return toolCall{
		ID: id, Type: "function", ExtraContent: history.Object(kept.ExtraContent),
		Function: calledFunction{Name: history.SafeName(b.Name, maxToolName), Arguments: string(history.Arguments(b.Arguments))},
	}
}
