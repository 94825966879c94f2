package openai

import (
	"bytes"
	"encoding/json"

	"github.com/flue-go/flue/internal/sse"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/answer"
	"github.com/flue-go/flue/model/internal/exchange"
)

// A decoder turns the events of one stream into those of the answer.
type decoder struct {
	stream *exchange.Stream
	out    *answer.Builder
	ids    *answer.IDs

	open    *answer.Block     // the text or reasoning that is being received
	details []json.RawMessage // reasoning details that await a block
	calls   []*call           // in the order in which they began

	usage   model.Usage
	stop    model.StopReason // set once the server says that the answer is whole
	refused bool
	ended   bool
	model   string
}

// event handles one event.
func (d *decoder) event(e sse.Event) error {
	data := bytes.TrimSpace(e.Data)
	if string(data) == "[DONE]" {
		d.ended = true
		if d.stop == "" {
			return d.stream.Interrupted("the stream was cut: it ends without a finish reason")
		}
		return nil
	}
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return d.stream.Malformed("event is not valid JSON: %v", err)
	}
	if len(c.Error) > 0 && string(c.Error) != "null" || c.Object == "error" || e.Name == "error" {
		return d.stream.Rejected(data)
	}
	if d.model == "" {
		d.model = c.Model
	}
	d.count(c.Usage)
	for _, ch := range c.Choices {
		if ch.Index != 0 {
			continue // more than one was not asked for
		}
		d.count(ch.Usage)
		d.delta(ch.Delta)
		if err := d.reason(ch.FinishReason); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) delta(dl delta) {
	reasoning := dl.ReasoningContent.text
	if reasoning == "" { // some servers send both, with the same text
		reasoning = dl.Reasoning.text
	}
	d.append(model.Reasoning, reasoning+dl.Content.reasoning)
	d.keep(dl.ReasoningDetails)
	if dl.Refusal != "" {
		d.refused = true
	}
	d.append(model.Text, dl.Content.text+dl.Refusal)
	for _, t := range dl.ToolCalls {
		d.close()
		d.call(t)
	}
}

// append adds text to the open block, or to a new one if that is of another kind.
func (d *decoder) append(kind model.BlockKind, text string) {
	if text == "" {
		return
	}
	if d.open == nil || d.open.Kind != kind {
		d.close()
		d.open = d.out.Open(kind)
	}
	d.out.Append(d.open, text)
}

// close ends the open block.
func (d *decoder) close() {
	if d.open == nil {
		return
	}
	if d.open.Kind == model.Reasoning && len(d.details) > 0 {
		d.open.Opaque = encode(opaque{ReasoningDetails: d.details})
		d.details = nil
	}
	d.out.Close(d.open)
	d.open = nil
}

// keep collects reasoning details. A detail that comes in pieces is put
// together: it has to be sent back as one.
func (d *decoder) keep(details []json.RawMessage) {
	for _, detail := range details {
		if last := len(d.details) - 1; last >= 0 {
			if joined := join(d.details[last], detail); joined != nil {
				d.details[last] = joined
				continue
			}
		}
		d.details = append(d.details, detail)
	}
}

// join returns b as the continuation of a, or nil when it is not one: they are
// pieces of one detail when they have the same type and index and both have a
// text, or both a summary.
func join(a, b json.RawMessage) json.RawMessage {
	var x, y map[string]any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil || x["type"] != y["type"] || x["index"] != y["index"] {
		return nil
	}
	for _, field := range []string{"text", "summary"} {
		s, ok := x[field].(string)
		t, more := y[field].(string)
		if !ok || !more && y[field] != nil || !more && y["signature"] == nil {
			continue
		}
		for k, v := range y {
			if v != nil {
				x[k] = v
			}
		}
		x[field] = s + t
		return encode(x)
	}
	return nil
}

// reason takes over the finish reason, which is absent until the end.
func (d *decoder) reason(s string) error {
	switch s {
	case "":
		return nil
	case "error", "network_error", "abort", "insufficient_system_resource":
		return d.stream.Interrupted("the server gave up on the answer with the reason %q", s)
	case "tool_calls", "function_call", "tool_use":
		d.stop = model.StopToolUse
	case "length", "max_tokens", "model_length", "model_context_window_exceeded":
		d.stop = model.StopLength
	case "content_filter", "sensitive":
		d.stop = model.StopFiltered
	default:
		d.stop = model.StopEnd
	}
	return nil
}

// finish ends the answer.
func (d *decoder) finish() {
	d.close()
	for _, c := range d.calls {
		c.out.CallID = d.ids.Take(c.id)
		d.out.Close(c.out)
	}
	if len(d.details) > 0 { // they came after the reasoning, or without any
		d.open = d.out.Open(model.Reasoning)
		d.close()
	}
	if d.refused && d.stop == model.StopEnd {
		d.stop = model.StopFiltered
	}
	d.out.Done(model.Done{Stop: d.stop, Usage: d.usage, Model: d.model})
}

// count takes over a usage, which is a total so far.
func (d *decoder) count(u *usage) {
	if u == nil {
		return
	}
	read := max(u.PromptDetails.Cached, u.CacheHit, u.Cached)
	write := u.PromptDetails.CacheWrite
	reasoning := u.CompletionDetails.Reasoning
	output := u.Completion
	if reasoning > 0 && u.Total == u.Prompt+u.Completion+reasoning {
		output += reasoning // xAI counts them apart
	}
	d.usage = model.Usage{
		Input: max(0, u.Prompt-read-write), Output: output,
		CacheRead: read, CacheWrite: write, Reasoning: reasoning,
	}
}
