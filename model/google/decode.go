package google

import (
	"bytes"
	"encoding/json"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/answer"
	"github.com/flue-go/flue/model/internal/dialect"
	"github.com/flue-go/flue/model/internal/exchange"
	"github.com/flue-go/flue/model/internal/history"
)

// A decoder turns the chunks of one stream into the events of the answer.
type decoder struct {
	stream *exchange.Stream
	out    *answer.Builder
	ids    *answer.IDs
	names  *dialect.Names

	open  *answer.Block // the text or reasoning that is being received
	marks []mark        // its signed parts
	calls int
	said  bool // there is text or a call

	counts usage            // the last of each
	stop   model.StopReason // set once the server says that the answer is whole
	reason string           // the server's word for it
	model  string
}

// event handles one event.
func (d *decoder) event(data []byte) error {
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
			return d.stream.Rejected(data) // what another form of the API streams, which holds a failure here
		}
		return d.stream.Malformed("event is not valid JSON: %v", err)
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return d.stream.Rejected(data)
	}
	if d.model == "" {
		d.model = c.ModelVersion
	}
	d.count(c.Usage)
	if c.PromptFeedback.BlockReason != "" {
		d.stop, d.reason = model.StopFiltered, d.stream.Quote(c.PromptFeedback.BlockReason)
	}
	for _, ca := range c.Candidates {
		if ca.Index != 0 {
			continue // more than one was not asked for
		}
		for _, p := range ca.Content.Parts {
			d.part(p)
		}
		if err := d.finishReason(ca); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) part(p receivedPart) {
	kind := model.Text
	if p.Thought {
		kind = model.Reasoning
	}
	switch {
	case p.FunctionCall != nil:
		d.close()
		d.call(p)
	case p.Text == "" && p.ThoughtSignature == "":
	case p.Text == "" && kind == model.Text && (d.open == nil || d.open.Kind != model.Text):
		d.close()
		b := d.out.Open(model.Reasoning)
		b.Opaque = encode(opaque{Marks: []mark{{Signature: p.ThoughtSignature}}, Plain: true})
		d.out.Close(b)
	default:
		d.text(kind, p.Text, p.ThoughtSignature)
	}
}

// text adds text to the open block, or to a new one if that is of another kind.
func (d *decoder) text(kind model.BlockKind, text, signature string) {
	if d.open == nil || d.open.Kind != kind {
		d.close()
		d.open = d.out.Open(kind)
	}
	start := len(d.open.Received())
	d.out.Append(d.open, text)
	if signature != "" {
		d.out.Content()
		d.marks = append(d.marks, mark{Start: start, End: start + len(text), Signature: signature})
	}
	d.said = d.said || kind == model.Text && !history.Blank(text)
}

// close ends the open block.
func (d *decoder) close() {
	if d.open == nil {
		return
	}
	if len(d.marks) > 0 {
		d.open.Opaque = encode(opaque{Marks: d.marks})
	}
	d.out.Close(d.open)
	d.open, d.marks = nil, nil
}

// call handles a tool call, which comes whole.
func (d *decoder) call(p receivedPart) {
	b := d.out.Open(model.ToolCall)
	b.CallID, b.Name = d.ids.Take(p.FunctionCall.ID), d.names.Name(p.FunctionCall.Name)
	if p.ThoughtSignature != "" {
		b.Opaque = encode(opaque{Signature: p.ThoughtSignature})
	}
	if args := string(p.FunctionCall.Args); args != "null" {
		d.out.Append(b, args)
	}
	d.out.Close(b)
	d.calls++
	d.said = true
}

// finishReason takes over the finish reason, which is absent until the end.
func (d *decoder) finishReason(c candidate) error {
	switch c.FinishReason {
	case "", "FINISH_REASON_UNSPECIFIED":
		return nil
	case "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE", "OTHER":
		what := c.FinishReason
		if c.FinishMessage != "" {
			what += ": " + c.FinishMessage
		}
		return d.stream.Interrupted("the server gave up on the answer with the reason %s", d.stream.Quote(what))
	case "MAX_TOKENS", "CONTINUATION":
		d.stop = model.StopLength
	case "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR",
		"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION":
		d.stop = model.StopFiltered
	default:
		d.stop = model.StopEnd
	}
	d.reason = d.stream.Quote(c.FinishReason)
	return nil
}

// finish ends the answer. Gemini at times ends one that has nothing in it, or
// nothing but thoughts; asked again, it answers.
func (d *decoder) finish() error {
	if d.stop == model.StopEnd && !d.said {
		return d.stream.Interrupted("the server ended the answer before there was any, with the reason %s", d.reason)
	}
	d.close()
	if d.stop == model.StopEnd && d.calls > 0 {
		d.stop = model.StopToolUse // which Gemini has no word for
	}
	d.out.Done(model.Done{Stop: d.stop, Reason: d.reason, Usage: d.counts.total(), Model: d.model})
	return nil
}

// count takes over the counts that are present; each one is a total so far.
func (d *decoder) count(u usage) {
	before := d.counts.total()
	for _, c := range []struct{ to, from **int }{
		{&d.counts.Prompt, &u.Prompt},
		{&d.counts.Cached, &u.Cached},
		{&d.counts.Candidates, &u.Candidates},
		{&d.counts.Thoughts, &u.Thoughts},
		{&d.counts.ToolUse, &u.ToolUse},
	} {
		if *c.from != nil {
			*c.to = *c.from
		}
	}
	if d.counts.total() != before {
		d.out.Content()
	}
}
