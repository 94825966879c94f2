package openai

import (
	"bytes"
	"encoding/json"

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

	open    *answer.Block // the text or reasoning that is being received
	details []*detail     // reasoning details that await a block
	calls   []*call       // in the order in which they began

	usage   model.Usage
	priced  bool             // the server says what a call costs
	charged *float64         // what it has said
	stop    model.StopReason // set once the server says that the answer is whole
	why     string           // for stop, as it came
	refused bool
	ended   bool
	model   string
}

// maxCalls bounds the calls of an answer, each piece of which is held against all of
// them.
const maxCalls = 4096

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
	if err := json.Unmarshal(data, &c); err != nil && e.Name != "error" {
		return d.stream.Malformed("event is not valid JSON: %v", err)
	}
	d.count(c.Usage)
	if len(c.Error) > 0 && string(c.Error) != "null" || c.Object == "error" || e.Name == "error" {
		return d.stream.Rejected(data)
	}
	if d.model == "" {
		d.model = c.Model
	}
	for _, ch := range c.Choices {
		if ch.Index != 0 {
			continue // more than one was not asked for
		}
		d.count(ch.Usage)
		d.delta(ch.Delta)
		if len(d.calls) > maxCalls {
			return d.stream.Malformed("the answer has more than %d calls", maxCalls)
		}
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
		if len(d.calls) > maxCalls {
			return
		}
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
		d.open.Opaque = d.kept()
	}
	d.out.Close(d.open)
	d.open = nil
}

// keep collects reasoning details.
func (d *decoder) keep(details []json.RawMessage) {
	for _, raw := range details {
		d.out.Content()
		next := newDetail(raw)
		if last := len(d.details) - 1; last >= 0 && d.details[last].join(next) {
			continue
		}
		d.details = append(d.details, next)
	}
}

// kept returns the details collected, as they have to be sent back.
func (d *decoder) kept() json.RawMessage {
	var all []json.RawMessage
	for _, detail := range d.details {
		all = append(all, detail.whole())
	}
	d.details = nil
	return encode(opaque{ReasoningDetails: all})
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
	d.why = s
	return nil
}

// finish ends the answer.
func (d *decoder) finish() {
	d.close()
	for _, c := range d.calls {
		if c.id == "" {
			c.out.CallID = d.ids.Take("")
		}
		d.out.Close(c.out)
	}
	if len(d.details) > 0 { // they came after the reasoning, or without any
		d.open = d.out.Open(model.Reasoning)
		d.close()
	}
	if d.refused && d.stop == model.StopEnd {
		d.stop = model.StopFiltered
	}
	d.out.Done(model.Done{Stop: d.stop, Reason: d.why, Usage: d.usage, Model: d.model, Charged: d.charged})
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
	total := model.Usage{
		Input: max(0, u.Prompt-read-write), Output: output,
		CacheRead: read, CacheWrite: write, Reasoning: reasoning,
	}
	if total != d.usage {
		d.out.Content()
	}
	d.usage = total
	if d.priced {
		d.charged = u.charged()
	}
}

// charged is what the call cost, nil if the server does not say. One that is
// made with the caller's own key at another service costs what that takes, too.
func (p price) charged() *float64 {
	sum := amount(p.Cost)
	if string(p.OwnKey) != "true" || sum == nil {
		return sum
	}
	var details struct {
		Upstream json.RawMessage `json:"upstream_inference_cost"`
	}
	_ = json.Unmarshal(p.CostDetails, &details) // what cannot be read is not there
	upstream := amount(details.Upstream)
	if upstream == nil {
		return nil
	}
	*sum += *upstream
	return sum
}

// amount returns a number that is not negative, or nil.
func amount(raw json.RawMessage) *float64 {
	var f *float64
	if json.Unmarshal(raw, &f) != nil || f == nil || *f < 0 {
		return nil
	}
	return f
}
