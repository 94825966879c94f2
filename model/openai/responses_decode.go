package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/flue-go/flue/internal/sse"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/answer"
	"github.com/flue-go/flue/model/internal/dialect"
	"github.com/flue-go/flue/model/internal/exchange"
)

// A responsesDecoder turns the events of one stream into those of the answer.
type responsesDecoder struct {
	stream *exchange.Stream
	out    *answer.Builder
	ids    *answer.IDs
	names  *dialect.Names

	items map[int]*outputItem // by the server's index, which alone ties events together: some change the ids
	order []*outputItem       // as they began
	last  *outputItem         // the last that is reasoning

	priced  bool // the server says what a call costs
	usage   model.Usage
	charged *float64
	model   string
	called  bool
	refused bool
}

// An outputItem is an item of the output while it is being received.
type outputItem struct {
	out    *answer.Block // nil for an item of a type that is not known here
	index  int
	id     string
	phase  string
	before *outputItem     // the reasoning that it follows
	raw    json.RawMessage // of reasoning: the item as it ended
	part   int             // of reasoning: the part being received
	ended  bool
}

// event handles one event. It reports whether the answer is complete.
func (d *responsesDecoder) event(e sse.Event) (done bool, err error) {
	data := bytes.TrimSpace(e.Data)
	if string(data) == "[DONE]" {
		return false, d.stream.Interrupted("the stream was cut: it ends without a completed response")
	}
	var ev responseEvent
	var other *json.UnmarshalTypeError // a field that another type of event uses in its own way
	if err := json.Unmarshal(data, &ev); err != nil && !errors.As(err, &other) && e.Name != "error" {
		return false, d.stream.Malformed("event is not valid JSON: %v", err)
	}
	if ev.Type == "" {
		ev.Type = e.Name
	}
	switch ev.Type {
	case "response.created", "response.in_progress", "response.queued":
		d.head(ev.Response)
	case "response.output_item.added":
		d.add(ev.OutputIndex, readItem(ev.Item))
	case "response.output_item.done":
		d.end(ev.OutputIndex, ev.Item)
	case "response.output_text.delta":
		d.text(ev, false)
	case "response.refusal.delta":
		d.text(ev, true)
	case "response.reasoning_summary_text.delta":
		d.reasoning(ev, 1+ev.SummaryIndex)
	case "response.reasoning_text.delta":
		d.reasoning(ev, -1) // its parts are not told apart: some servers count the deltas
	case "response.function_call_arguments.delta":
		if it := d.items[ev.OutputIndex]; it.is(model.ToolCall) {
			d.out.Append(it.out, ev.Delta)
		}
	case "response.completed", "response.incomplete":
		d.finish(ev)
		return true, nil
	case "response.failed", "error":
		return false, d.failure(ev, data)
	case "":
		if len(ev.Error) > 0 && string(ev.Error) != "null" {
			return false, d.failure(ev, data) // a gateway's, which is no event
		}
	}
	return false, nil // a part that begins or ends, a keepalive, or news of a later API
}

// head takes over what a response says of itself.
func (d *responsesDecoder) head(r response) {
	if r.Model != "" {
		d.model = r.Model
	}
	if u := r.Usage; u != nil {
		read, write := u.InputDetails.Cached, u.InputDetails.CacheWrite
		d.usage = model.Usage{
			Input: max(0, u.Input-read-write), Output: u.Output,
			CacheRead: read, CacheWrite: write, Reasoning: u.OutputDetails.Reasoning,
		}
		if d.priced {
			d.charged = u.charged()
		}
	}
}

// failure returns the error for a response that failed, or for an event that
// reports a failure.
func (d *responsesDecoder) failure(ev responseEvent, data []byte) error {
	if ev.Type == "response.failed" {
		d.head(ev.Response) // it says what was used all the same
		if len(ev.Response.Error) == 0 || string(ev.Response.Error) == "null" {
			return d.stream.Interrupted("the server gave up on the answer and does not say why")
		}
		data = encode(map[string]json.RawMessage{"error": ev.Response.Error})
	}
	return d.stream.Rejected(data)
}

// is reports whether it is an item that is being received and has blocks of
// that kind.
func (it *outputItem) is(kind model.BlockKind) bool {
	return it != nil && it.out != nil && it.out.Kind == kind && !it.ended
}

// readItem reads an item. Fields that are not as documented are left empty.
func readItem(raw json.RawMessage) (item itemData) {
	_ = json.Unmarshal(raw, &item)
	return item
}

// add starts an item that the server announces, once.
func (d *responsesDecoder) add(index int, item itemData) {
	if it := d.items[index]; it == nil || it.ended || it.id != item.ID {
		d.begin(index, item)
	}
}

// begin starts an item.
func (d *responsesDecoder) begin(index int, item itemData) *outputItem {
	it := &outputItem{index: index, id: item.ID, before: d.last}
	d.out.Content() // also if it is of a type that is not known here
	d.items[index] = it
	d.order = append(d.order, it)
	switch item.Type {
	case "reasoning":
		it.out = d.out.Open(model.Reasoning)
		d.last = it
	case "message":
		it.out = d.out.Open(model.Text)
	case "function_call":
		d.called = true
		it.out = d.out.Open(model.ToolCall)
		it.out.Name = d.names.Name(item.Name)
		if item.CallID != "" {
			it.out.CallID = d.ids.Take(item.CallID)
		}
		d.out.Append(it.out, string(item.Arguments))
	}
	return it
}

// text adds to a message. A server that does not announce its items is borne with.
func (d *responsesDecoder) text(ev responseEvent, refusal bool) {
	it := d.items[ev.OutputIndex]
	if it == nil {
		it = d.begin(ev.OutputIndex, itemData{Type: "message"})
	}
	if it.is(model.Text) {
		d.refused = d.refused || refusal
		d.out.Append(it.out, ev.Delta)
	}
}

// reasoning adds to a reasoning item. Each part is a paragraph of its own.
func (d *responsesDecoder) reasoning(ev responseEvent, part int) {
	it := d.items[ev.OutputIndex]
	if it == nil {
		it = d.begin(ev.OutputIndex, itemData{Type: "reasoning"})
	}
	if !it.is(model.Reasoning) || ev.Delta == "" {
		return
	}
	if it.part != part && it.out.Received() != "" {
		d.out.Append(it.out, "\n\n")
	}
	it.part = part
	d.out.Append(it.out, ev.Delta)
}

// end takes over an item as it ended, and closes its block.
func (d *responsesDecoder) end(index int, raw json.RawMessage) {
	item := readItem(raw)
	it := d.items[index]
	switch {
	case it == nil, it.ended && it.id != item.ID:
		it = d.begin(index, item)
	case it.ended:
		return // it was said before
	}
	it.ended = true
	if it.out == nil {
		return
	}
	if item.ID != "" {
		it.id = item.ID
	}
	it.phase = item.Phase
	d.complete(it, item)
	if it.out.Kind == model.Reasoning {
		it.raw = raw
		if !replayable(item) {
			return // Azure may send what is missing with the response; see finish
		}
	}
	d.seal(it)
}

// complete adds what a block lacks of the item as it ended, since some servers
// send no deltas.
func (d *responsesDecoder) complete(it *outputItem, item itemData) {
	whole := ""
	switch it.out.Kind {
	case model.ToolCall:
		whole = string(item.Arguments)
		if it.out.Name == "" {
			it.out.Name = d.names.Name(item.Name)
		}
		if it.out.CallID == "" {
			it.out.CallID = d.ids.Take(item.CallID)
		}
	case model.Reasoning:
		if whole = joinParts(item.Summary, "\n\n"); whole == "" {
			whole = joinParts(item.Content, "")
		}
	case model.Text:
		whole = joinParts(item.Content, "")
		for _, p := range item.Content {
			d.refused = d.refused || p.Type == "refusal"
		}
	}
	if rest, ok := strings.CutPrefix(whole, it.out.Received()); ok {
		d.out.Append(it.out, rest)
	}
}

func joinParts(parts []contentPart, separator string) string {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.Text + p.Refusal
	}
	return strings.Join(texts, separator)
}

// replayable reports whether a reasoning item can be sent back: it must hold
// what was reasoned, since the server keeps nothing.
func replayable(item itemData) bool {
	if item.Status != "" && item.Status != "completed" {
		return false
	}
	return item.Encrypted != "" || joinParts(item.Content, "") != ""
}

// seal puts down what must be sent back with a block, and closes it.
func (d *responsesDecoder) seal(it *outputItem) {
	if it.out == nil || it.out.Closed() {
		return
	}
	if it.ended {
		it.out.Opaque = it.keep()
	}
	d.out.Close(it.out)
}

// keep returns what must be sent back with an item that ended; nil when that is
// nothing.
func (it *outputItem) keep() json.RawMessage {
	kept := keptItem{Phase: it.phase}
	switch {
	case it.out.Kind == model.Reasoning && !replayable(readItem(it.raw)):
		return nil
	case it.out.Kind == model.Reasoning:
		kept = keptItem{Item: it.raw}
	case it.before != nil:
		kept.ID, kept.After = it.id, it.before.id
	case it.phase == "":
		return nil
	}
	return encode(kept)
}

// finish ends the answer. Items that did not end are whole all the same, since
// the response is, or were cut where it was.
func (d *responsesDecoder) finish(ev responseEvent) {
	d.head(ev.Response)
	if len(d.order) == 0 { // a server that streams nothing
		for i, raw := range ev.Response.Output {
			d.end(i, raw)
		}
	}
	for _, it := range d.order {
		if it.is(model.ToolCall) && it.out.CallID == "" {
			it.out.CallID = d.ids.Take("")
		}
		if it.raw != nil && it.index >= 0 && it.index < len(ev.Response.Output) && !it.out.Closed() {
			if raw := ev.Response.Output[it.index]; readItem(raw).Type == "reasoning" && replayable(readItem(raw)) {
				it.raw, it.id = raw, readItem(raw).ID
			}
		}
		d.seal(it)
	}
	stop, reason := d.stop(ev)
	d.out.Done(model.Done{Stop: stop, Reason: reason, Usage: d.usage, Model: d.model, Charged: d.charged})
}

// stop returns why the answer ended, and what the server calls it.
func (d *responsesDecoder) stop(ev responseEvent) (model.StopReason, string) {
	reason := ev.Response.Incomplete.Reason
	switch {
	case ev.Type == "response.incomplete" || ev.Response.Status == "incomplete":
		if reason == "" {
			reason = "incomplete"
		}
		if reason == "content_filter" {
			return model.StopFiltered, reason
		}
		return model.StopLength, reason
	case d.refused:
		return model.StopFiltered, "refusal"
	case d.called:
		return model.StopToolUse, "completed"
	}
	return model.StopEnd, "completed"
}
