package bedrock

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/document"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/dialect"
	"github.com/flue-go/flue/model/internal/history"
)

// maxCallID is the API's limit on the id of a call.
const maxCallID = 64

// imageLimits are those of Converse, and of the 20 MB that a request may have in
// base64.
var imageLimits = history.ImageLimits{Bytes: 3_750_000, Side: 8000, Count: 20, Total: 14 << 20}

// raw is JSON that is sent as it is. The SDK's own documents lose the order of
// members and the precision of numbers, and an empty name within one breaks the
// request.
type raw struct {
	document.Interface
	json []byte
}

func rawJSON(b []byte) document.Interface {
	return raw{Interface: document.NewLazyDocument(nil), json: b}
}

// MarshalSmithyDocument implements the SDK's document.Marshaler.
func (r raw) MarshalSmithyDocument() ([]byte, error) { return r.json, nil }

// encode returns the request for req, and the fingerprint that the reasoning of
// its answer is tied to.
func (p *Provider) encode(req *model.Request, names *dialect.Names) (*bedrockruntime.ConverseStreamInput, string, error) {
	if req.Model == "" {
		return nil, "", p.invalid("the request names no model")
	}
	if len(req.Messages) == 0 {
		return nil, "", p.invalid("the request has no messages")
	}
	foundation := req.Model
	if known, ok := p.models[req.Model]; ok {
		foundation = known
	}
	f := familyOf(foundation)
	messages := imageLimits.Apply(history.Normalize(req.Messages))
	c := converter{
		origin: model.Origin{Provider: p.name, Model: req.Model}, names: names, family: f, flat: len(req.Tools) == 0 || req.ToolsOff,
	}
	if f.claude.Bound {
		c.read = sha256.New()
	}
	in := &bedrockruntime.ConverseStreamInput{ModelId: &req.Model}
	in.System = c.system(req.System)
	if !c.flat {
		in.ToolConfig = c.tools(p.schemas, history.OrderTools(req.Tools, messages))
	}
	for _, m := range messages {
		c.add(m)
	}
	var fields map[string]any
	in.InferenceConfig, fields = f.reason(req, midTurn(c.messages))
	if len(fields) > 0 {
		in.AdditionalModelRequestFields = rawJSON(encode(fields))
	}
	f.setCachePoints(in, c.messages)
	in.Messages = c.messages
	if p.prepare != nil {
		p.prepare(in)
	}
	return in, c.fingerprint(), nil
}

// A converter builds a request from a normalized history.
type converter struct {
	origin   model.Origin // whose reasoning can be sent
	names    *dialect.Names
	family   family
	flat     bool // no tools are offered, or none may be called, which the API cannot say: it refuses calls then, which become text
	messages []types.Message
	calls    map[string]string // names of the calls just made, as they were sent

	// read is the digest of what the model reads. It is nil for a model whose
	// reasoning is not tied to that.
	read hash.Hash
}

// note adds to what the model reads.
func (c *converter) note(parts ...string) {
	if c.read == nil {
		return
	}
	for _, p := range parts {
		fmt.Fprintf(c.read, "%d:%s", len(p), p)
	}
}

// fingerprint identifies what the model has read so far. It is empty for a model
// to which that does not matter.
func (c *converter) fingerprint() string {
	if c.read == nil {
		return ""
	}
	return hex.EncodeToString(c.read.Sum(nil)[:12])
}

func (c *converter) system(prompt string) []types.SystemContentBlock {
	if strings.TrimSpace(prompt) == "" {
		return nil
	}
	c.note("system", prompt)
	return []types.SystemContentBlock{&types.SystemContentBlockMemberText{Value: prompt}}
}

func (c *converter) tools(schemas *dialect.Table, offered []model.Tool) *types.ToolConfiguration {
	if len(offered) == 0 {
		return nil
	}
	config := &types.ToolConfiguration{}
	for _, t := range offered {
		name, schema := c.names.Alias(t.Name), schemas.Convert(t).Schema
		spec := types.ToolSpecification{Name: &name, InputSchema: &types.ToolInputSchemaMemberJson{Value: rawJSON(schema)}}
		if t.Description != "" {
			spec.Description = &t.Description
		}
		c.note("tool", name, t.Description, string(schema))
		config.Tools = append(config.Tools, &types.ToolMemberToolSpec{Value: spec})
	}
	return config
}

// add converts one message. Neighbours of the same role share one message: the
// API wants the roles to alternate.
func (c *converter) add(m model.Message) {
	role, content := types.ConversationRoleUser, []types.ContentBlock(nil)
	switch m.Role {
	case model.RoleAssistant:
		role, content = types.ConversationRoleAssistant, c.assistant(m)
	case model.RoleTool:
		content = c.results(m)
	default:
		content = c.user(m)
	}
	if last := len(c.messages) - 1; last >= 0 && c.messages[last].Role == role {
		c.messages[last].Content = append(c.messages[last].Content, content...)
		return
	}
	c.messages = append(c.messages, types.Message{Role: role, Content: content})
}

func (c *converter) text(s string) types.ContentBlock {
	c.note("text", s)
	return &types.ContentBlockMemberText{Value: s}
}

func (c *converter) user(m model.Message) []types.ContentBlock {
	c.note("user")
	var content []types.ContentBlock
	for _, b := range m.Blocks {
		media := ""
		if b.Kind == model.Image {
			if media = history.ImageType(b); media == "" {
				b.Text = history.ImageText(b)
			}
		}
		if media == "" {
			content = append(content, c.text(b.Text))
			continue
		}
		c.note("image", media, string(b.Data))
		content = append(content, &types.ContentBlockMemberImage{Value: types.ImageBlock{
			Format: types.ImageFormat(strings.TrimPrefix(media, "image/")),
			Source: &types.ImageSourceMemberBytes{Value: b.Data},
		}})
	}
	return content
}

// results returns all results of a batch, in the order of the calls.
func (c *converter) results(m model.Message) []types.ContentBlock {
	c.note("user")
	var content []types.ContentBlock
	for _, b := range m.Blocks {
		if c.flat {
			outcome := "returned"
			if b.IsError {
				outcome = "failed"
			}
			content = append(content, c.text("[The tool "+c.calls[b.CallID]+" "+outcome+": "+b.Text+"]"))
			continue
		}
		id := history.SafeID(b.CallID, maxCallID, true)
		result := types.ToolResultBlock{ToolUseId: &id, Content: []types.ToolResultContentBlock{&types.ToolResultContentBlockMemberText{Value: b.Text}}}
		if b.IsError && c.family.status {
			result.Status = types.ToolResultStatusError
		}
		c.note("result", id, b.Text, string(result.Status))
		content = append(content, &types.ContentBlockMemberToolResult{Value: result})
	}
	return content
}

// assistant converts an assistant message.
//
// What cannot be sent as it was received, a blank text or arguments that are no
// object, is a change before the reasoning that comes after it.
func (c *converter) assistant(m model.Message) []types.ContentBlock {
	own := m.Origin == c.origin && !c.flat
	prefix := c.fingerprint()
	c.note("assistant")
	c.calls = map[string]string{}
	var content []types.ContentBlock
	var reasoning []string // of content, what is not noted yet
	answered := 0          // content up to here ends with text or a call
	for _, b := range m.Blocks {
		switch b.Kind {
		case model.Reasoning:
			if kept, ok := keptReasoning(b, prefix); own && ok {
				content = append(content, kept.block(b.Text))
				reasoning = append(reasoning, "reasoning", b.Text, kept.Signature, string(kept.Redacted))
			}
			continue
		case model.Text:
			if history.Blank(b.Text) {
				own = own && c.read == nil
				continue
			}
			c.note(reasoning...)
			content = append(content, c.text(b.Text))
		case model.ToolCall:
			c.note(reasoning...)
			own = own && (c.read == nil || history.Blank(b.Arguments) || history.Object(json.RawMessage(b.Arguments)) != nil)
			content = append(content, c.call(b))
		}
		answered, reasoning = len(content), nil
	}
	// The API refuses a message that ends with reasoning, which is what remains
	// of an answer that was cut after it.
	return content[:answered]
}

// keptReasoning returns what came with a reasoning block, and whether the block
// can be sent to a model that has read prefix.
func keptReasoning(b model.Block, prefix string) (opaque, bool) {
	var o opaque
	if len(b.Opaque) == 0 || json.Unmarshal(b.Opaque, &o) != nil || o.Prefix != prefix && prefix != "" {
		return opaque{}, false
	}
	return o, o.Signature != "" || len(o.Redacted) > 0
}

// block returns the reasoning block as it was received.
func (o opaque) block(text string) types.ContentBlock {
	if len(o.Redacted) > 0 {
		return &types.ContentBlockMemberReasoningContent{Value: &types.ReasoningContentBlockMemberRedactedContent{Value: o.Redacted}}
	}
	return &types.ContentBlockMemberReasoningContent{Value: &types.ReasoningContentBlockMemberReasoningText{
		Value: types.ReasoningTextBlock{Text: &text, Signature: &o.Signature},
	}}
}

func (c *converter) call(b model.Block) types.ContentBlock {
	name, input := c.names.Alias(b.Name), history.Arguments(b.Arguments)
	c.calls[b.CallID] = name
	if c.flat {
		return c.text("[The tool " + name + " was called with " + string(input) + "]")
	}
	id := history.SafeID(b.CallID, maxCallID, true)
	c.note("call", id, name, string(input))
	return &types.ContentBlockMemberToolUse{Value: types.ToolUseBlock{ToolUseId: &id, Name: &name, Input: rawJSON(input)}}
}

// midTurn reports whether the request continues a turn of tool calls that did
// not begin with reasoning, because another model began it or reasoning was off.
// The API refuses to turn reasoning on before that turn has ended.
func midTurn(messages []types.Message) bool {
	first := -1 // the assistant message that began the turn
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == types.ConversationRoleAssistant {
			first = i
			continue
		}
		if _, ok := messages[i].Content[0].(*types.ContentBlockMemberToolResult); !ok {
			break
		}
	}
	if first < 0 {
		return false
	}
	_, ok := messages[first].Content[0].(*types.ContentBlockMemberReasoningContent)
	return !ok
}

// setCachePoints marks the ends of what the next request will begin with. The
// last but one user message is marked as well, since the cache looks back only a
// limited number of blocks, which one batch of results can exceed.
//
// Nova takes points behind text only: not in the list of tools, which the points
// behind them cover, and not behind an image or a result.
func (f family) setCachePoints(in *bedrockruntime.ConverseStreamInput, messages []types.Message) {
	if !f.caches {
		return
	}
	point := types.CachePointBlock{Type: types.CachePointTypeDefault}
	if len(in.System) > 0 {
		in.System = append(in.System, &types.SystemContentBlockMemberCachePoint{Value: point})
	}
	if in.ToolConfig != nil && !f.textCaches {
		in.ToolConfig.Tools = append(in.ToolConfig.Tools, &types.ToolMemberCachePoint{Value: point})
	}
	left := 2
	for i := len(messages) - 1; i >= 0 && left > 0; i-- {
		if messages[i].Role == types.ConversationRoleUser && (!f.textCaches || endsWithText(messages[i])) {
			left--
			messages[i].Content = append(messages[i].Content, &types.ContentBlockMemberCachePoint{Value: point})
		}
	}
}

func endsWithText(m types.Message) bool {
	_, ok := m.Content[len(m.Content)-1].(*types.ContentBlockMemberText)
	return ok
}
