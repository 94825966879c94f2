package wire

import "github.com/go-json-experiment/json/jsontext"

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
)

// A Chunk is one change to a conversation. Type says which fields it has.
type Chunk struct {
	Type           ChunkType      `json:"type"`
	Incarnation    string         `json:"incarnation,omitzero"` // of a checkpoint, which has nothing else
	ConversationID string         `json:"conversationId,omitzero"`
	Snapshot       *Snapshot      `json:"snapshot,omitempty"`
	Message        *Message       `json:"message,omitempty"`
	MessageID      string         `json:"messageId,omitzero"`
	ToolCallID     string         `json:"toolCallId,omitzero"`
	ToolName       string         `json:"toolName,omitzero"`
	SubmissionID   string         `json:"submissionId,omitzero"`
	TurnID         string         `json:"turnId,omitzero"`
	Metadata       jsontext.Value `json:"metadata,omitempty"`
	Kind           string         `json:"kind,omitzero"` // of a delta: text, reasoning
	Delta          string         `json:"delta,omitzero"`
	Name           string         `json:"name,omitzero"`
	Data           jsontext.Value `json:"data,omitempty"`
	Input          jsontext.Value `json:"input,omitempty"`
	Output         jsontext.Value `json:"output,omitempty"`
	ErrorText      *string        `json:"errorText,omitempty"`
	DurationMS     *int64         `json:"durationMs,omitempty"`
	Outcome        string         `json:"outcome,omitzero"`
	Error          jsontext.Value `json:"error,omitempty"`
	AnsweredBy     string         `json:"answeredBySubmissionId,omitzero"`
	Timestamp      string         `json:"timestamp,omitzero"` // ISO 8601, milliseconds, UTC
	Position       *Position      `json:"position,omitempty"` // absent on a checkpoint
}

// A Position orders the chunks of a conversation: by batch, then by index.
// Clients drop a chunk whose position is not greater than the last one's.
type Position struct {
	Batch int64 `json:"batch"`
	Index int   `json:"index"`
}

// TimestampLayout is the form of a chunk's timestamp, for time.Time.Format of
// a UTC time.
const TimestampLayout = "2006-01-02T15:04:05.000Z"
