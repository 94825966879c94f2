package journal

import "github.com/go-json-experiment/json/jsontext"

// A Message is what was delivered to an instance.
type Message struct {
	Kind        MessageKind       `json:"kind"`
	Body        string            `json:"body"`
	Attachments []Attachment      `json:"files,omitempty"`
	Type        string            `json:"type,omitzero"` // of a signal
	Attributes  map[string]string `json:"attrs,omitempty"`
	TagName     string            `json:"tag,omitzero"`
	Pinned      bool              `json:"pin,omitzero"` // no summary takes its place
}

// MessageKind tells a person's chat turn from everything else.
type MessageKind string

// The kinds of message.
const (
	User   MessageKind = "user"
	Signal MessageKind = "signal"
)

// An Attachment refers to a file that the store keeps.
type Attachment struct {
	ID        string `json:"id"`
	MediaType string `json:"type"`
	Filename  string `json:"name,omitzero"`
	Size      int    `json:"size"`
}

// A Block is one piece of what a model said. See model.Block, whose form it
// mirrors: the journal keeps a form of its own because it must stay readable.
type Block struct {
	Kind      BlockKind      `json:"kind"`
	Text      string         `json:"text,omitzero"`
	Call      string         `json:"call,omitzero"`
	Name      string         `json:"name,omitzero"`
	Arguments string         `json:"args,omitzero"`
	Opaque    jsontext.Value `json:"opaque,omitzero"` // what the provider wants back, as it came

	// Again says that a call may be run again if it is interrupted, by the tool
	// that was offered to the model.
	Again bool `json:"again,omitzero"`
}

// MaxBlocks bounds the blocks of one turn.
const MaxBlocks = 4096

// BlockKind is the kind of a [Block].
type BlockKind string

// The kinds of block.
const (
	Text      BlockKind = "text"
	Reasoning BlockKind = "reasoning"
	ToolCall  BlockKind = "tool_call"
)

// The types of signal that only the runtime writes. No sender may use them.
const (
	SignalAborted     = "submission_aborted"
	SignalFailed      = "submission_interrupted"
	SignalInterrupted = "stream_interrupted"
	SignalContinued   = "stream_continued"

	SignalResources    = "resources"
	SignalInstructions = "instructions"

	SignalRepaired = "conversation_repaired"

	// SignalCompaction is a summary as the model reads it, and what asks for one
	// as it is delivered.
	SignalCompaction = "compaction"

	SignalBudget = "budget"

	SignalApproval       = "approval_decision"
	SignalApprovalResult = "approval_result"
)
