package google

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/dialect"
	"github.com/flue-go/flue/model/internal/history"
)

// maxCallID is a limit on the ids of calls of other models. A model takes back its
// own.
const maxCallID = 128

// imageLimits are those of images within a request: 7 MB each, and 20 MB of a
// request in base64, which leaves the rest of it some room.
var imageLimits = history.ImageLimits{Bytes: 7 << 20, Count: 3000, Total: 14 << 20}

// encode returns the body for req.
func (p *Provider) encode(req *model.Request, names *dialect.Names) ([]byte, error) {
	if len(req.Messages) == 0 {
		return nil, p.invalid("the request has no messages")
	}
	t := traitsOf(req.Model)
	messages := history.Normalize(req.Messages)
	c := converter{origin: model.Origin{Provider: p.name, Model: req.Model}, names: names, traits: t}
	for _, m := range imageLimits.Apply(messages) {
		c.add(m)
	}
	r := request{
		Contents: c.contents, GenerationConfig: t.think(req),
		Tools: p.tools(history.OrderTools(req.Tools, messages), names),
	}
	if req.ToolsOff && len(r.Tools) > 0 {
		r.ToolConfig = &toolConfig{FunctionCallingConfig: functionCallingConfig{Mode: "NONE"}}
	}
	if strings.TrimSpace(req.System) != "" {
		r.SystemInstruction = &content{Parts: []part{{Text: &req.System}}}
	}
	return encode(r), nil
}

// encode is json.Marshal without the escaping of HTML, which only makes a
// request longer. The values of this package always encode.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("google: request does not encode: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func (p *Provider) tools(offered []model.Tool, names *dialect.Names) []toolSet {
	if len(offered) == 0 {
		return nil
	}
	var s toolSet
	for _, t := range offered {
		f := functionDeclaration{Name: names.Alias(t.Name), Description: t.Description}
		if r := p.schemas.Convert(t); !r.Empty {
			f.ParametersJSONSchema = r.Schema
		}
		s.FunctionDeclarations = append(s.FunctionDeclarations, f)
	}
	return []toolSet{s}
}

// A converter builds the contents of a request from a normalized history.
type converter struct {
	origin   model.Origin
	names    *dialect.Names
	traits   traits
	contents []content
	calls    map[string]functionCall // those just made, as they were sent
}

// add converts one message. Two answers in a row share a content: the API wants
// what calls a function to come right after the user.
func (c *converter) add(m model.Message) {
	switch m.Role {
	case model.RoleAssistant:
		parts := c.assistant(m)
		if last := len(c.contents) - 1; last >= 0 && c.contents[last].Role == "model" {
			c.contents[last].Parts = append(c.contents[last].Parts, parts...)
			return
		}
		c.contents = append(c.contents, content{Role: "model", Parts: parts})
	case model.RoleTool:
		c.contents = append(c.contents, content{Role: "user", Parts: c.results(m)})
	default:
		c.contents = append(c.contents, content{Role: "user", Parts: user(m)})
	}
}

func user(m model.Message) []part {
	var parts []part
	for _, b := range m.Blocks {
		if b.Kind == model.Image {
			parts = append(parts, image(b))
			continue
		}
		parts = append(parts, part{Text: &b.Text})
	}
	return parts
}

// image returns an image, or what the model reads in its place: Gemini takes no
// GIF.
func image(b model.Block) part {
	if media := history.ImageType(b); media != "" && media != "image/gif" {
		return part{InlineData: &blob{MIMEType: media, Data: b.Data}}
	}
	kind := b.MediaType
	if kind == "" {
		kind = "unknown type"
	}
	text := "[image of " + kind + " omitted: the model accepts PNG, JPEG and WebP]"
	return part{Text: &text}
}

// results returns all results of a batch, which the API wants in one content and
// in the order of the calls. The text is a string even if it is JSON: within
// an object the API would look for references.
func (c *converter) results(m model.Message) []part {
	var parts []part
	for _, b := range m.Blocks {
		call := c.calls[b.CallID]
		key := "output"
		if b.IsError {
			key = "error"
		}
		parts = append(parts, part{FunctionResponse: &functionResponse{
			ID: call.ID, Name: call.Name, Response: map[string]string{key: b.Text},
		}})
	}
	return parts
}

func (c *converter) assistant(m model.Message) []part {
	own := m.Origin == c.origin
	c.calls = map[string]functionCall{}
	signed := !c.traits.strict // whether the calls have the signature that they need
	var parts []part
	for _, b := range m.Blocks {
		var kept opaque
		if own {
			kept = open(b.Opaque)
		}
		switch b.Kind {
		case model.Reasoning:
			if own {
				parts = append(parts, kept.parts(b)...)
			}
		case model.Text:
			parts = append(parts, kept.parts(b)...)
		case model.ToolCall:
			// Only the first call of an answer is signed.
			if !signed && kept.Signature == "" {
				kept.Signature = skipSignature
			}
			signed = true
			parts = append(parts, part{FunctionCall: c.call(b, own), ThoughtSignature: kept.Signature})
		}
	}
	return parts
}

func (c *converter) call(b model.Block, own bool) *functionCall {
	f := functionCall{Name: c.names.Alias(b.Name), Args: history.Arguments(b.Arguments)}
	if c.traits.strict {
		limit := maxCallID
		if own {
			limit = len(b.CallID)
		}
		f.ID = history.SafeID(b.CallID, limit, false)
	}
	c.calls[b.CallID] = f
	return &f
}
