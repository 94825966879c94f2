package bedrock

import (
	"bytes"
	"encoding/json"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/answer"
	"github.com/flue-go/flue/model/internal/dialect"
)

// opaque is the form of model.Block.Opaque: what came with a reasoning block,
// and the fingerprint of what the model had read when it wrote the block.
type opaque struct {
	Signature string `json:"signature,omitempty"`
	Redacted  []byte `json:"redacted,omitempty"`
	Prefix    string `json:"prefix,omitempty"`
}

// maxAnswer bounds one answer, in bytes.
const maxAnswer = 128 << 20

// A decoder turns the events of one stream into those of the answer.
type decoder struct {
	stream *stream
	out    *answer.Builder
	ids    *answer.IDs
	names  *dialect.Names
	prefix string // fingerprint of the request, kept with reasoning

	blocks map[int32]*block // by the service's index
	order  []*block         // as they began
	size   int

	usage  model.Usage
	stop   model.StopReason // set once the service says that the answer is whole
	reason string
	ended  bool
}

// A block is one block of the answer while it is being received.
type block struct {
	out       *answer.Block
	signature []byte
	redacted  bytes.Buffer
}

// event handles one event. Kinds that are not known are left alone.
func (d *decoder) event(e types.ConverseStreamOutput) error {
	switch e := e.(type) {
	case *types.ConverseStreamOutputMemberContentBlockStart:
		return d.start(e.Value)
	case *types.ConverseStreamOutputMemberContentBlockDelta:
		return d.delta(e.Value)
	case *types.ConverseStreamOutputMemberContentBlockStop:
		if b := d.blocks[number(e.Value.ContentBlockIndex)]; b != nil {
			d.end(b)
		}
	case *types.ConverseStreamOutputMemberMessageStop:
		return d.stopReason(e.Value.StopReason)
	case *types.ConverseStreamOutputMemberMetadata:
		d.count(e.Value.Usage)
		d.ended = d.stop != ""
	}
	return nil
}

// start begins a tool call. Other blocks begin with their first piece.
func (d *decoder) start(e types.ContentBlockStartEvent) error {
	call, ok := e.Start.(*types.ContentBlockStartMemberToolUse)
	if !ok {
		return nil
	}
	index := number(e.ContentBlockIndex)
	if d.blocks[index] != nil {
		return d.stream.malformed("block %d starts twice", index)
	}
	b := d.begin(index, model.ToolCall)
	b.out.CallID, b.out.Name = d.ids.Take(words(call.Value.ToolUseId)), d.names.Name(words(call.Value.Name))
	return nil
}

func (d *decoder) begin(index int32, kind model.BlockKind) *block {
	b := &block{out: d.out.Open(kind)}
	d.blocks[index] = b
	d.order = append(d.order, b)
	return b
}

// delta adds to a block.
func (d *decoder) delta(e types.ContentBlockDeltaEvent) error {
	index := number(e.ContentBlockIndex)
	switch delta := e.Delta.(type) {
	case *types.ContentBlockDeltaMemberText:
		return d.append(index, model.Text, delta.Value)
	case *types.ContentBlockDeltaMemberToolUse:
		if d.blocks[index] == nil {
			return d.stream.malformed("block %d grows without a start", index)
		}
		return d.append(index, model.ToolCall, words(delta.Value.Input))
	case *types.ContentBlockDeltaMemberReasoningContent:
		return d.reasoning(index, delta.Value)
	}
	return nil
}

func (d *decoder) reasoning(index int32, delta types.ReasoningContentBlockDelta) error {
	text := ""
	if t, ok := delta.(*types.ReasoningContentBlockDeltaMemberText); ok {
		text = t.Value
	}
	if err := d.append(index, model.Reasoning, text); err != nil {
		return err
	}
	switch delta := delta.(type) {
	case *types.ReasoningContentBlockDeltaMemberSignature:
		d.size += len(delta.Value)
		d.out.Content()
		d.blocks[index].signature = append(d.blocks[index].signature, delta.Value...)
	case *types.ReasoningContentBlockDeltaMemberRedactedContent:
		d.size += len(delta.Value)
		d.out.Content()
		d.blocks[index].redacted.Write(delta.Value)
	}
	return nil
}

// append adds text to a block, which begins with it if there is none.
func (d *decoder) append(index int32, kind model.BlockKind, text string) error {
	b := d.blocks[index]
	if b == nil {
		b = d.begin(index, kind)
	}
	if b.out.Kind != kind {
		return d.stream.malformed("block %d is a %s and got a %s", index, b.out.Kind, kind)
	}
	if d.size += len(text); d.size > maxAnswer {
		return d.stream.provider.fail(model.Invalid, "the answer is larger than 128 MiB", nil)
	}
	d.out.Append(b.out, text)
	return nil
}

// end closes a block and puts down what must be sent back with it.
func (d *decoder) end(b *block) {
	if b.out.Closed() {
		return
	}
	if len(b.signature) > 0 || b.redacted.Len() > 0 {
		b.out.Opaque = encode(opaque{Signature: string(b.signature), Redacted: b.redacted.Bytes(), Prefix: d.prefix})
	}
	d.out.Close(b.out)
}

func (d *decoder) stopReason(s types.StopReason) error {
	switch s {
	case types.StopReasonMalformedModelOutput, types.StopReasonMalformedToolUse:
		return d.stream.provider.fail(model.Retryable, "the service gave up on the answer with the reason "+string(s), nil)
	case types.StopReasonToolUse:
		d.stop = model.StopToolUse
	case types.StopReasonMaxTokens, types.StopReasonModelContextWindowExceeded:
		d.stop = model.StopLength
	case types.StopReasonGuardrailIntervened, types.StopReasonContentFiltered:
		d.stop = model.StopFiltered
	default:
		d.stop = model.StopEnd
	}
	d.reason = string(s)
	return nil
}

func (d *decoder) count(u *types.TokenUsage) {
	if u == nil {
		return
	}
	n := func(count *int32) int { return int(max(number(count), 0)) }
	d.out.Content()
	d.usage = model.Usage{
		Input: n(u.InputTokens), Output: n(u.OutputTokens),
		CacheRead: n(u.CacheReadInputTokens), CacheWrite: n(u.CacheWriteInputTokens),
	}
}

// finish ends the answer. Blocks that were not stopped are whole all the same,
// since the message is.
func (d *decoder) finish() {
	for _, b := range d.order {
		d.end(b)
	}
	d.out.Done(model.Done{Stop: d.stop, Reason: d.reason, Usage: d.usage})
}

func number(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}

func words(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// encode is json.Marshal for values of this package, which always encode.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("bedrock: value does not encode: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
