package wire

import (
	"cmp"

	"github.com/go-json-experiment/json/jsontext"
)

// ChunkType says what a [Chunk] changes.
type ChunkType string

// The types of chunk.
const (
	ChunkCheckpoint      ChunkType = "stream-checkpoint"
	ChunkReset           ChunkType = "conversation-reset"
	ChunkMessageAppended ChunkType = "message-appended"
	ChunkMessageStarted  ChunkType = "message-started"
	ChunkMessageDelta    ChunkType = "message-delta"
	ChunkMessageMetadata ChunkType = "message-metadata"
	ChunkDataPart        ChunkType = "data-part"
	ChunkToolInput       ChunkType = "tool-input"
	ChunkToolOutput      ChunkType = "tool-output"
	ChunkToolOutputError ChunkType = "tool-output-error"
	ChunkCompleted       ChunkType = "message-completed"
	ChunkSettled         ChunkType = "submission-settled"

	// ChunkRetracted says that a turn of a message has come to nothing. It is no
	// chunk of the wire: clients are sent the message as it is without the turn.
	ChunkRetracted ChunkType = "turn-retracted"
)

// A Chunk is one change to a conversation. Type says which fields it has.
//
// A field that is not set is absent on the wire, so a delta must not be empty:
// a chunk that changes nothing is not sent at all.
type Chunk struct {
	Type           ChunkType      `json:"type"`
	Incarnation    string         `json:"incarnation,omitzero"` // of a checkpoint, which has nothing else
	ConversationID string         `json:"conversationId,omitzero"`
	Snapshot       *Snapshot      `json:"snapshot,omitzero"`
	Message        *Message       `json:"message,omitzero"`
	MessageID      string         `json:"messageId,omitzero"`
	ToolCallID     string         `json:"toolCallId,omitzero"`
	ToolName       string         `json:"toolName,omitzero"`
	SubmissionID   string         `json:"submissionId,omitzero"`
	TurnID         string         `json:"turnId,omitzero"`
	Metadata       jsontext.Value `json:"metadata,omitzero"`
	Kind           string         `json:"kind,omitzero"` // of a delta: text, reasoning
	Delta          string         `json:"delta,omitzero"`
	Name           string         `json:"name,omitzero"`
	Data           jsontext.Value `json:"data,omitzero"`
	Input          jsontext.Value `json:"input,omitzero"`
	Output         jsontext.Value `json:"output,omitzero"`
	ErrorText      *string        `json:"errorText,omitzero"`
	DurationMS     *int64         `json:"durationMs,omitzero"`
	Outcome        string         `json:"outcome,omitzero"`
	Error          jsontext.Value `json:"error,omitzero"`
	AnsweredBy     string         `json:"answeredBySubmissionId,omitzero"`
	Budget         *Budget        `json:"budget,omitzero"`    // of a settlement
	Timestamp      string         `json:"timestamp,omitzero"` // ISO 8601, milliseconds, UTC
	Position       *Position      `json:"position,omitzero"`  // absent on a checkpoint
}

// A Position orders the chunks of a conversation: by batch, then by index.
// Clients drop a chunk whose position is not greater than the last one's.
type Position struct {
	Batch int64 `json:"batch"`
	Index int   `json:"index"`
}

// Compare returns -1, 0 or 1 as p is before, at or after o.
func (p Position) Compare(o Position) int {
	return cmp.Or(cmp.Compare(p.Batch, o.Batch), cmp.Compare(p.Index, o.Index))
}

// TimestampLayout is the form of a chunk's timestamp, for time.Time.Format of
// a UTC time.
const TimestampLayout = "2006-01-02T15:04:05.000Z"
