package anthropic

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"strings"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/claude"
	"github.com/flue-go/flue/model/internal/dialect"
	"github.com/flue-go/flue/model/internal/history"
)

// maxCallID is the API's limit on the id of a call.
const maxCallID = 128

// imageLimits are the API's limits on images. It counts 5 MB of an image in base64,
// and a request may have 32 MB in all.
var imageLimits = history.ImageLimits{Bytes: 5 << 20 / 4 * 3, Side: 8000, Count: 100, Total: 20 << 20, Many: 20, ManySide: 2000}

// encode returns the body for req, and the fingerprint that the thinking blocks
// of its answer are tied to.
func (p *Provider) encode(req *model.Request, names *dialect.Names) (body []byte, prefix string, err error) {
	if req.Model == "" {
		return nil, "", p.invalid("the request names no model")
	}
	if len(req.Messages) == 0 {
		return nil, "", p.invalid("the request has no messages")
	}
	t := claude.TraitsOf(req.Model)
	messages := imageLimits.Apply(history.Normalize(req.Messages))
	tools := p.tools(req, messages, names)
	r := request{Model: req.Model, Stream: true, Tools: tools.all()}
	switch {
	case len(r.Tools) == 0:
		r.standIn(messages, names)
	case req.ToolsOff:
		r.ToolChoice = &toolChoice{Type: "none"}
	}
	if strings.TrimSpace(req.System) != "" {
		r.System = []*textBlock{{Type: "text", Text: req.System}}
	}
	c := converter{origin: model.Origin{Provider: p.name, Model: req.Model}, names: names, loads: tools.loads}
	if t.Bound {
		c.read = sha256.New()
		c.read.Write(encode([]any{r.System, tools.loaded}))
	}
	for _, m := range messages {
		c.add(m)
	}
	r.Messages = c.messages
	prefix = c.fingerprint()
	p.think(&r, req, t)
	markForCaching(&r)
	return encode(r), prefix, nil
}

// encode is json.Marshal without the escaping of HTML, which only makes a
// request longer. The values of this package always encode.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("anthropic: request does not encode: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// A converter builds the messages of a request from a normalized history.
type converter struct {
	origin   model.Origin      // whose thinking blocks can be sent
	names    *dialect.Names    // of the tools
	loads    map[string][]tool // what is still to be loaded, by the call whose result does it
	messages []message

	// read is the digest of what the model reads: the system prompt, the tools
	// that are there from the start, and the first hashed messages with the
	// tools that they load. It is nil for a model whose thinking blocks are not
	// tied to that.
	read   hash.Hash
	hashed int
}

// add converts one message. Tool results and the user message that follows
// them share one message, as do all results of a batch.
func (c *converter) add(m model.Message) {
	role, content := "user", []any(nil)
	if m.Role == model.RoleAssistant {
		role, content = "assistant", c.assistant(m)
	} else {
		content = c.user(m)
	}
	if last := len(c.messages) - 1; role == "user" && last >= 0 && c.messages[last].Role == role {
		c.messages[last].Content = append(c.messages[last].Content, content...)
		return
	}
	c.messages = append(c.messages, message{Role: role, Content: content})
}

func (c *converter) user(m model.Message) []any {
	var content, displaced []any
	for _, b := range m.Blocks {
		switch b.Kind {
		case model.Text:
			content = append(content, &textBlock{Type: "text", Text: b.Text})
		case model.Image:
			if media := history.ImageType(b); media != "" {
				content = append(content, &imageBlock{Type: "image", Source: imageSource{Type: "base64", MediaType: media, Data: b.Data}})
			} else {
				content = append(content, &textBlock{Type: "text", Text: history.ImageText(b)})
			}
		case model.ToolResult:
			result, text := c.result(b)
			content = append(content, result)
			if text != nil {
				displaced = append(displaced, text)
			}
		}
	}
	return append(content, displaced...) // the API wants all results of a batch first
}

// assistant converts an assistant message. It must be called before the
// messages that follow it are added.
//
// What cannot be sent as it was received, a blank text or arguments that are no
// object, is a change before the thinking blocks that come after it.
func (c *converter) assistant(m model.Message) []any {
	own := m.Origin == c.origin
	prefix := c.fingerprint()
	var content []any
	answered := 0 // content up to here ends with text or a call
	for _, b := range m.Blocks {
		switch b.Kind {
		case model.Reasoning:
			if raw := unseal(b.Opaque, prefix); own && raw != nil {
				content = append(content, raw)
			}
			continue
		case model.Text:
			if history.Blank(b.Text) {
				own = own && c.read == nil
				continue
			}
			content = append(content, &textBlock{Type: "text", Text: b.Text})
		case model.ToolCall:
			own = own && (c.read == nil || history.Blank(b.Arguments) || history.Object(json.RawMessage(b.Arguments)) != nil)
			content = append(content, &toolUseBlock{
				Type: "tool_use", ID: history.SafeID(b.CallID, maxCallID, true),
				Name: c.names.Alias(b.Name), Input: history.Arguments(b.Arguments),
			})
		}
		answered = len(content)
	}
	// The API refuses a message that ends with thinking, which is what remains
	// of an answer that was cut after it.
	return content[:answered]
}

// unseal returns the thinking block that raw holds as it was received, or nil
// when it cannot be sent to a model that has read prefix.
func unseal(raw json.RawMessage, prefix string) json.RawMessage {
	var o opaque
	if len(raw) == 0 || json.Unmarshal(raw, &o) != nil || o.Prefix != prefix && prefix != "" {
		return nil
	}
	return history.Verbatim(o.Block)
}

// fingerprint identifies what the model has read before the message that is
// added next. It is empty for a model to which that does not matter.
func (c *converter) fingerprint() string {
	if c.read == nil {
		return ""
	}
	for ; c.hashed < len(c.messages); c.hashed++ {
		m := c.messages[c.hashed]
		c.read.Write(encode(m))
		for _, b := range m.Content {
			if b, ok := b.(*toolResultBlock); ok && b.loads != nil {
				c.read.Write(encode(b.loads)) // the model reads them here
			}
		}
	}
	return hex.EncodeToString(c.read.Sum(nil)[:12])
}

// markForCaching marks the ends of what the next request will begin with. The
// last but one user message is marked as well, since the cache looks back only
// a limited number of blocks from a mark, which one batch of results can exceed.
func markForCaching(r *request) {
	mark := &cacheControl{Type: "ephemeral"}
	if n := len(r.System); n > 0 {
		r.System[n-1].CacheControl = mark
	}
	for i := len(r.Tools) - 1; i >= 0; i-- {
		if !r.Tools[i].DeferLoading { // the API refuses the mark on the others
			r.Tools[i].CacheControl = mark
			break
		}
	}
	left := 2
	for i := len(r.Messages) - 1; i >= 0 && left > 0; i-- {
		content := r.Messages[i].Content
		if r.Messages[i].Role != "user" || len(content) == 0 {
			continue
		}
		left--
		switch b := content[len(content)-1].(type) {
		case *textBlock:
			b.CacheControl = mark
		case *imageBlock:
			b.CacheControl = mark
		case *toolResultBlock:
			b.CacheControl = mark
		}
	}
}
