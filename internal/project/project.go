// Package project turns records into what clients see.
//
// It is the only projection there is: a live reader gets the chunks of each
// batch as it lands, a snapshot is the same chunks applied one after another.
// A batch is projected from its own records, without what came before it.
package project

import (
	"bytes"
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/wire"
)

// ConversationID returns the id that the wire gives to the conversation of an
// incarnation.
func ConversationID(incarnation string) string {
	return "conv_" + strings.TrimPrefix(incarnation, "inc_")
}

// Chunks returns what the batch at offset changes for a client of the
// conversation. It is empty for batches that are bookkeeping only.
func Chunks(conversation string, offset int64, b journal.Batch) []wire.Chunk {
	p := projector{conversation: conversation, offset: offset, at: b.At.UTC().Format(wire.TimestampLayout)}
	for _, r := range b.Records {
		p.record(r)
	}
	return p.chunks
}

type projector struct {
	conversation string
	offset       int64
	at           string
	chunks       []wire.Chunk
}

func (p *projector) add(c wire.Chunk) {
	c.ConversationID = p.conversation
	c.Position = &wire.Position{Batch: p.offset, Index: len(p.chunks)}
	p.chunks = append(p.chunks, c)
}

func (p *projector) record(r journal.Record) {
	switch r := r.(type) {
	case *journal.Born:
		p.add(wire.Chunk{Type: wire.ChunkReset, Snapshot: &wire.Snapshot{
			V: 1, ConversationID: p.conversation, Offset: wire.Offset(p.offset),
			Messages: []wire.Message{}, Settlements: []wire.Settlement{},
		}})
	case *journal.Entry:
		m := message(r)
		p.add(wire.Chunk{Type: wire.ChunkMessageAppended, Message: &m})
	case *journal.TurnStarted:
		if r.Retracts != "" {
			p.add(wire.Chunk{Type: wire.ChunkRetracted, MessageID: r.Response, SubmissionID: r.Submission, TurnID: r.Retracts})
		}
		if c := p.opened(r.Response); c != nil {
			c.TurnID = r.Turn // one start for both: clients pass over a second one
			return
		}
		p.add(wire.Chunk{
			Type: wire.ChunkMessageStarted, MessageID: r.Response, SubmissionID: r.Submission, TurnID: r.Turn, Timestamp: p.at,
		})
	case *journal.Data:
		p.open(r.Opens, r.Response, r.Submission)
		p.add(wire.Chunk{Type: wire.ChunkDataPart, MessageID: r.Response, Name: valid(r.Name), Data: value(r.Value)})
	case *journal.Metadata:
		if p.open(r.Opens, r.Response, r.Submission) {
			p.opened(r.Response).Metadata = value(r.Value)
			return
		}
		p.add(wire.Chunk{Type: wire.ChunkMessageMetadata, MessageID: r.Response, Metadata: value(r.Value)})
	case *journal.TurnDelta:
		p.delta(r.Response, r.BlockKind, r.Text)
	case *journal.TurnDone:
		p.turnDone(r)
	case *journal.Outcome:
		p.outcome(r)
	case *journal.Repair:
		p.repair(r)
	case *journal.Settled:
		p.add(wire.Chunk{
			Type: wire.ChunkSettled, SubmissionID: r.Submission, Outcome: r.Outcome, Error: value(r.Error), AnsweredBy: r.AnsweredBy, Budget: budget(r.Budget), Timestamp: p.at,
		})
	}
}

// budget is a limit as a client sees it.
func budget(b *journal.ExhaustedBudget) *wire.Budget {
	if b == nil {
		return nil
	}
	return &wire.Budget{Scope: string(b.Scope), Limit: string(b.Limit)}
}

// open begins the response's message before its first turn, and reports whether
// it has done so now. A client that has the message from an earlier batch does
// nothing.
func (p *projector) open(opens bool, response, submission string) bool {
	if !opens || p.opened(response) != nil {
		return false
	}
	p.add(wire.Chunk{Type: wire.ChunkMessageStarted, MessageID: response, SubmissionID: submission, Timestamp: p.at})
	return true
}

// opened returns the start of the response's message if this batch has opened it
// before its first turn.
func (p *projector) opened(response string) *wire.Chunk {
	for i := range p.chunks {
		if c := &p.chunks[i]; c.Type == wire.ChunkMessageStarted && c.MessageID == response && c.TurnID == "" {
			return c
		}
	}
	return nil
}

func (p *projector) delta(response string, kind journal.BlockKind, text string) {
	if text != "" {
		p.add(wire.Chunk{Type: wire.ChunkMessageDelta, MessageID: response, Kind: string(kind), Delta: valid(text)})
	}
}

// turnDone tells what the turn's deltas have not told yet: the rest of its
// text and its calls.
func (p *projector) turnDone(r *journal.TurnDone) {
	for i, b := range r.Blocks {
		switch b.Kind {
		case journal.Text, journal.Reasoning:
			p.delta(r.Response, b.Kind, r.Unsent(i))
		case journal.ToolCall:
			p.add(wire.Chunk{
				Type: wire.ChunkToolInput, MessageID: r.Response, ToolCallID: b.Call, ToolName: b.Name, Input: input(b.Arguments), Timestamp: p.at,
			})
		}
	}
	p.add(wire.Chunk{Type: wire.ChunkCompleted, MessageID: r.Response, Timestamp: p.at})
}

// input is a call's arguments as a client sees them: the value when the model
// wrote JSON, else the text itself.
func input(arguments string) jsontext.Value {
	arguments = valid(arguments)
	if strings.TrimSpace(arguments) == "" {
		return jsontext.Value("{}")
	}
	if v := jsontext.Value(arguments); v.IsValid() {
		return v
	}
	return text(arguments)
}

// value is raw JSON as a client sees it. The journal keeps JSON that a strict
// reader refuses; a client gets that as text.
func value(raw jsontext.Value) jsontext.Value {
	if len(raw) == 0 || raw.IsValid() {
		return raw
	}
	v := jsontext.Value(bytes.ToValidUTF8(raw, []byte("\uFFFD")))
	if err := v.Compact(); err == nil && v.IsValid() {
		return v
	}
	return text(string(v))
}

// text returns s as a JSON string.
func text(s string) jsontext.Value {
	v, err := jsontext.AppendQuote(nil, valid(s))
	if err != nil {
		return jsontext.Value(`""`)
	}
	return v
}

// valid returns s as the journal stores it, so that a reader who is told of a
// record before it was read back is told the same.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

func (p *projector) outcome(r *journal.Outcome) {
	c := wire.Chunk{Type: wire.ChunkToolOutput, ToolCallID: r.Call, DurationMS: r.DurationMS, Timestamp: p.at}
	switch {
	case r.Failed:
		content := valid(r.Content)
		c.Type, c.ErrorText = wire.ChunkToolOutputError, &content
	case len(r.Output) > 0:
		c.Output = value(r.Output)
	default:
		c.Output = text(r.Content)
	}
	p.add(c)
}

// repair ends what clients were told of and that will not come to its end.
func (p *projector) repair(r *journal.Repair) {
	const lost = "The record of this call was damaged. Its outcome is unknown."
	for _, call := range r.Calls {
		text := lost
		p.add(wire.Chunk{Type: wire.ChunkToolOutputError, ToolCallID: call, ErrorText: &text, Timestamp: p.at})
	}
	for _, id := range r.Messages {
		p.add(wire.Chunk{Type: wire.ChunkCompleted, MessageID: id, Timestamp: p.at})
	}
}

// message is an entry as a client sees it.
func message(r *journal.Entry) wire.Message {
	body := valid(r.Message.Body)
	m := wire.Message{
		ID: r.ID, SubmissionID: r.Submission, TurnID: r.Turn,
		Parts: []wire.Part{{Type: wire.PartText, Text: &body, State: wire.StateDone}},
	}
	for _, a := range r.Message.Attachments {
		m.Parts = append(m.Parts, wire.Part{Type: wire.PartFile, MediaType: a.MediaType, ID: a.ID, Size: &a.Size, Filename: a.Filename})
	}
	switch {
	case r.Purpose == journal.Notice:
		m.Role, m.Purpose, m.Display = wire.RoleSystem, "advisory", "hidden"
	case r.Purpose == journal.Narration:
		m.Role, m.Purpose, m.Display = wire.RoleSystem, "advisory", "diagnostic"
		m.Signal = signal(r.Message)
	case r.Purpose == journal.Advisory:
		m.Role, m.Purpose, m.Display = wire.RoleSystem, "advisory", "diagnostic"
		m.SubmissionID = "" // its attributes name the submission
		m.Settlement = &wire.Ending{Outcome: r.Ending}
		m.Signal = signal(r.Message)
	case r.Message.Kind == journal.Signal:
		m.Role, m.Purpose, m.Display = wire.RoleSystem, "dispatch", "diagnostic"
		m.Signal = signal(r.Message)
	default:
		m.Role, m.Purpose, m.Display = wire.RoleUser, "user", "visible"
	}
	return m
}

// signal is the envelope of a signal, or nil if there is nothing on it.
func signal(m journal.Message) *wire.Signal {
	if m.TagName == "" && len(m.Attributes) == 0 {
		return nil
	}
	return &wire.Signal{TagName: m.TagName, Attributes: m.Attributes}
}

// EntryID is the id of the entry that holds a submission's message.
func EntryID(submission string) string {
	return "entry_direct_" + base64.RawURLEncoding.EncodeToString([]byte(submission))
}
