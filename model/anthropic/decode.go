package anthropic

import (
	"encoding/json"
	"strings"

	"github.com/flue-go/flue/internal/sse"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/answer"
	"github.com/flue-go/flue/model/internal/dialect"
	"github.com/flue-go/flue/model/internal/exchange"
)

// A decoder turns the events of one stream into those of the answer.
type decoder struct {
	stream *exchange.Stream
	out    *answer.Builder
	ids    *answer.IDs
	names  *dialect.Names
	prefix string // fingerprint of the request, kept with thinking blocks

	blocks map[int]*block // by the provider's index
	order  []*block       // as they started
	usage  model.Usage
	stop   model.StopReason
	reason string // for stop, as it came
	model  string
}

// A block is a content block being received. Out is nil for a block of a type
// that is not known here, whose deltas are ignored.
type block struct {
	out       *answer.Block
	raw       json.RawMessage // as it started
	input     string          // of a tool call, when it came with the start
	signature strings.Builder
}

// event handles one event. It reports whether the answer is complete.
//
// Servers that offer the same API report a failure by the event's name alone, or
// as nothing but an error.
func (d *decoder) event(ev sse.Event) (done bool, err error) {
	var e streamEvent
	if err := json.Unmarshal(ev.Data, &e); err != nil && ev.Name != "error" {
		return false, d.stream.Malformed("event is not valid JSON: %v", err)
	}
	if e.Type == "" {
		e.Type = ev.Name
	}
	switch e.Type {
	case "message_start":
		d.model = e.Message.Model
		d.count(e.Message.Usage)
	case "content_block_start":
		return false, d.start(e)
	case "content_block_delta":
		return false, d.delta(e)
	case "content_block_stop":
		b := d.blocks[e.Index]
		if b == nil {
			return false, d.stream.Malformed("block %d stops without a start", e.Index)
		}
		d.end(b)
	case "message_delta":
		d.count(e.Usage)
		if e.Delta.StopReason != "" {
			d.stop, d.reason = stopReason(e.Delta.StopReason), e.Delta.StopReason
		}
	case "message_stop":
		d.finish()
		return true, nil
	case "error":
		return false, d.stream.Rejected(ev.Data)
	case "":
		if len(e.Error) > 0 && string(e.Error) != "null" {
			return false, d.stream.Rejected(ev.Data)
		}
	}
	return false, nil // a ping, or an event of a later version of the API
}

// start opens a content block.
func (d *decoder) start(e streamEvent) error {
	var s startBlock
	if err := json.Unmarshal(e.ContentBlock, &s); err != nil {
		return d.stream.Malformed("start of block %d: %v", e.Index, err)
	}
	if d.blocks[e.Index] != nil {
		return d.stream.Malformed("block %d starts twice", e.Index)
	}
	b := &block{raw: e.ContentBlock}
	d.blocks[e.Index] = b
	d.order = append(d.order, b)
	switch s.Type {
	case "text":
		b.out = d.out.Open(model.Text)
		d.out.Append(b.out, s.Text)
	case "thinking":
		b.out = d.out.Open(model.Reasoning)
		b.signature.WriteString(s.Signature)
		d.out.Append(b.out, s.Thinking)
	case "redacted_thinking":
		b.out = d.out.Open(model.Reasoning)
		b.out.Opaque = seal(b.raw, d.prefix)
	case "tool_use":
		b.out = d.out.Open(model.ToolCall)
		b.out.CallID, b.out.Name = d.ids.Take(s.ID), d.names.Name(s.Name)
		if input := string(s.Input); input != "{}" && input != "null" {
			b.input = input
		}
	}
	return nil
}

// delta adds to a content block.
func (d *decoder) delta(e streamEvent) error {
	b := d.blocks[e.Index]
	if b == nil {
		return d.stream.Malformed("block %d grows without a start", e.Index)
	}
	if b.out == nil {
		return nil
	}
	kind, text := b.out.Kind, ""
	switch e.Delta.Type {
	case "text_delta":
		kind, text = model.Text, e.Delta.Text
	case "thinking_delta":
		kind, text = model.Reasoning, e.Delta.Thinking
	case "input_json_delta":
		kind, text = model.ToolCall, e.Delta.PartialJSON
	case "signature_delta":
		kind = model.Reasoning
		b.signature.WriteString(e.Delta.Signature)
		d.out.Content()
	}
	if kind != b.out.Kind {
		return d.stream.Malformed("block %d is a %s and got a %s", e.Index, b.out.Kind, e.Delta.Type)
	}
	d.out.Append(b.out, text)
	return nil
}

// end closes a content block and puts down what must be sent back with it.
func (d *decoder) end(b *block) {
	if b.out == nil || b.out.Closed() {
		return
	}
	if b.out.Kind == model.ToolCall && b.out.Received() == "" {
		d.out.Append(b.out, b.input)
	}
	if b.out.Kind == model.Reasoning && b.out.Opaque == nil {
		b.out.Opaque = d.seal(b)
	}
	d.out.Close(b.out)
}

// seal returns the thinking block b as it has to be sent back. A block without
// a signature cannot be.
func (d *decoder) seal(b *block) json.RawMessage {
	if b.signature.Len() == 0 {
		return nil
	}
	// Fields that are not known here are part of the block too.
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(b.raw, &fields) != nil {
		return nil
	}
	fields["thinking"] = encode(b.out.Received())
	fields["signature"] = encode(b.signature.String())
	return seal(encode(fields), d.prefix)
}

func seal(block json.RawMessage, prefix string) json.RawMessage {
	return encode(opaque{Block: block, Prefix: prefix})
}

// finish ends the answer. Blocks that were not stopped are whole all the same,
// since the message is.
func (d *decoder) finish() {
	for _, b := range d.order {
		d.end(b)
	}
	if d.stop == "" {
		d.stop = model.StopEnd
	}
	d.out.Done(model.Done{Stop: d.stop, Reason: d.reason, Usage: d.usage, Model: d.model})
}

// count takes over the counts that are present; each one is a total so far.
func (d *decoder) count(u streamUsage) {
	before := d.usage
	for _, c := range []struct {
		to   *int
		from *int
	}{
		{&d.usage.Input, u.Input},
		{&d.usage.Output, u.Output},
		{&d.usage.CacheRead, u.CacheRead},
		{&d.usage.CacheWrite, u.CacheWrite},
		{&d.usage.Reasoning, u.OutputDetails.Thinking},
	} {
		if c.from != nil {
			*c.to = *c.from
		}
	}
	if d.usage != before {
		d.out.Content()
	}
}

func stopReason(s string) model.StopReason {
	switch s {
	case "tool_use":
		return model.StopToolUse
	case "max_tokens", "model_context_window_exceeded":
		return model.StopLength
	case "refusal":
		return model.StopFiltered
	}
	return model.StopEnd
}
