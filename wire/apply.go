package wire

import (
	"fmt"
	"slices"
)

// A Conversation accumulates chunks into messages, as a client does. The zero
// value is an empty conversation. It is not safe for concurrent use.
type Conversation struct {
	Messages    []Message
	Settlements []Settlement

	text map[*string][]byte // the growing texts, so that appending is linear
}

// Apply makes the change that c describes. A chunk that refers to a message or
// call that is not there changes nothing; an unknown type is an error, upon
// which a client must fetch a new snapshot.
func (v *Conversation) Apply(c *Chunk) error {
	switch c.Type {
	case ChunkCheckpoint:
	case ChunkReset:
		*v = Conversation{
			Messages:    slices.Clone(c.Snapshot.Messages),
			Settlements: slices.Clone(c.Snapshot.Settlements),
		}
	case ChunkMessageAppended:
		v.appendMessage(*c.Message)
	case ChunkMessageStarted:
		v.start(c)
	case ChunkMessageDelta:
		v.delta(c)
	case ChunkToolInput:
		v.toolInput(c)
	case ChunkToolOutput, ChunkToolOutputError:
		v.toolResult(c)
	case ChunkCompleted:
		if m := v.message(c.MessageID); m != nil {
			v.closeText(m, 0)
		}
	case ChunkSettled:
		v.settle(c)
	case ChunkMessageMetadata, ChunkDataPart:
		// Agents cannot produce these yet.
	default:
		return fmt.Errorf("unknown conversation chunk %q", c.Type)
	}
	return nil
}

// Flush makes the texts of all messages current. It must be called before
// Messages is read.
func (v *Conversation) Flush() {
	for p, b := range v.text {
		*p = string(b)
	}
	v.text = nil
}

func (v *Conversation) message(id string) *Message {
	for i := len(v.Messages) - 1; i >= 0; i-- {
		if v.Messages[i].ID == id {
			return &v.Messages[i]
		}
	}
	return nil
}

func (v *Conversation) appendMessage(m Message) {
	if old := v.message(m.ID); old != nil {
		*old = m
		return
	}
	v.Messages = append(v.Messages, m)
}

func (v *Conversation) start(c *Chunk) {
	if v.message(c.MessageID) != nil {
		return // a further turn of the same response
	}
	v.Messages = append(v.Messages, Message{
		ID: c.MessageID, Role: RoleAssistant, Purpose: "assistant", Display: "visible",
		SubmissionID: c.SubmissionID, TurnID: c.TurnID, Metadata: c.Metadata, Parts: []Part{},
	})
}

// delta extends the last part if it is an open one of the same kind. A change
// of kind closes the open part and begins another.
func (v *Conversation) delta(c *Chunk) {
	m := v.message(c.MessageID)
	if m == nil {
		return
	}
	if n := len(m.Parts); n == 0 || m.Parts[n-1].Type != c.Kind || m.Parts[n-1].State != StateStreaming {
		v.closeText(m, max(0, n-1))
		m.Parts = append(m.Parts, Part{Type: c.Kind, Text: new(string), State: StateStreaming})
	}
	p := m.Parts[len(m.Parts)-1].Text
	if v.text == nil {
		v.text = make(map[*string][]byte)
	}
	b, ok := v.text[p]
	if !ok {
		b = []byte(*p)
	}
	v.text[p] = append(b, c.Delta...)
}

// closeText marks the open text and reasoning parts from index from on as done.
func (v *Conversation) closeText(m *Message, from int) {
	for i := from; i < len(m.Parts); i++ {
		p := &m.Parts[i]
		if p.State != StateStreaming {
			continue
		}
		p.State = StateDone
		if b, ok := v.text[p.Text]; ok {
			*p.Text = string(b)
			delete(v.text, p.Text)
		}
	}
}

func (v *Conversation) toolInput(c *Chunk) {
	m := v.message(c.MessageID)
	if m == nil || slices.ContainsFunc(m.Parts, func(p Part) bool { return p.Type == PartTool && p.ToolCallID == c.ToolCallID }) {
		return
	}
	v.closeText(m, max(0, len(m.Parts)-1))
	m.Parts = append(m.Parts, Part{
		Type: PartTool, ToolName: c.ToolName, ToolCallID: c.ToolCallID, State: StateInputAvailable, Input: c.Input,
	})
}

func (v *Conversation) toolResult(c *Chunk) {
	for i := len(v.Messages) - 1; i >= 0; i-- {
		for j := range v.Messages[i].Parts {
			p := &v.Messages[i].Parts[j]
			if p.Type != PartTool || p.ToolCallID != c.ToolCallID {
				continue
			}
			p.DurationMS = c.DurationMS
			if c.Type == ChunkToolOutput {
				p.State, p.Output, p.ErrorText = StateOutputAvailable, c.Output, nil
			} else {
				p.State, p.Output, p.ErrorText = StateOutputError, nil, c.ErrorText
			}
			return
		}
	}
}

func (v *Conversation) settle(c *Chunk) {
	s := Settlement{SubmissionID: c.SubmissionID, Outcome: c.Outcome, Error: c.Error, AnsweredBy: c.AnsweredBy}
	for i := range v.Settlements {
		if v.Settlements[i].SubmissionID == s.SubmissionID {
			v.Settlements[i] = s
			return
		}
	}
	v.Settlements = append(v.Settlements, s)
}
