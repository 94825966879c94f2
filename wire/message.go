// Package wire is the protocol between an agent server and its clients: the
// types, their JSON form, and the rules for applying updates.
//
// It is the protocol that @flue/sdk 2.0.3 speaks. Field names, their presence
// and their absence are part of it; the order of fields is not, but is kept.
package wire

import "github.com/go-json-experiment/json/jsontext"

// A Snapshot is a whole conversation at one offset.
type Snapshot struct {
	V              int          `json:"v"` // 1
	ConversationID string       `json:"conversationId"`
	Offset         Offset       `json:"offset"`
	Messages       []Message    `json:"messages"`
	Settlements    []Settlement `json:"settlements"`
	Incarnation    string       `json:"incarnation,omitzero"` // absent inside a conversation-reset
}

// A Message is one entry of a conversation. All turns of a response are one
// assistant message.
type Message struct {
	ID           string         `json:"id"`
	Role         Role           `json:"role"`
	Purpose      string         `json:"purpose"` // user, assistant, dispatch, advisory
	Display      string         `json:"display"` // visible, hidden, diagnostic
	SubmissionID string         `json:"submissionId,omitzero"`
	TurnID       string         `json:"turnId,omitzero"`
	Signal       *Signal        `json:"signal,omitzero"`
	Settlement   *Ending        `json:"settlement,omitzero"`
	Parts        []Part         `json:"parts"`
	Metadata     jsontext.Value `json:"metadata,omitzero"`
}

// Role is the lane that a message is shown in.
type Role string

// The roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleSystem    Role = "system"
)

// A Signal is the envelope of a message that is not a chat turn.
type Signal struct {
	TagName    string            `json:"tagName,omitzero"`
	Attributes map[string]string `json:"attributes,omitzero"`
}

// An Ending marks the advisory message of a submission that did not complete.
type Ending struct {
	Outcome string `json:"outcome"`
}

// A Part is one piece of a message. Type says which fields it has.
type Part struct {
	Type       string         `json:"type"` // text, reasoning, file, dynamic-tool, data-<name>
	ToolName   string         `json:"toolName,omitzero"`
	ToolCallID string         `json:"toolCallId,omitzero"`
	Text       *string        `json:"text,omitzero"`  // text and reasoning
	State      string         `json:"state,omitzero"` // streaming, done; or a tool's state
	MediaType  string         `json:"mediaType,omitzero"`
	ID         string         `json:"id,omitzero"`
	Size       *int           `json:"size,omitzero"`
	Filename   string         `json:"filename,omitzero"`
	Input      jsontext.Value `json:"input,omitzero"`
	Output     jsontext.Value `json:"output,omitzero"`
	ErrorText  *string        `json:"errorText,omitzero"`
	DurationMS *int64         `json:"durationMs,omitzero"`
	Data       jsontext.Value `json:"data,omitzero"`
}

// The types and states of parts.
const (
	PartText      = "text"
	PartReasoning = "reasoning"
	PartFile      = "file"
	PartTool      = "dynamic-tool"
	PartData      = "data-" // and the name

	StateStreaming       = "streaming"
	StateDone            = "done"
	StateInputAvailable  = "input-available"
	StateOutputAvailable = "output-available"
	StateOutputError     = "output-error"
)

// A Settlement is the outcome of one submission.
type Settlement struct {
	SubmissionID string         `json:"submissionId"`
	Outcome      string         `json:"outcome"` // completed, failed, aborted
	Error        jsontext.Value `json:"error,omitzero"`
	AnsweredBy   string         `json:"answeredBySubmissionId,omitzero"`
	Budget       *Budget        `json:"budget,omitzero"` // the limit that ended the response, when one did
}

// A Budget names the limit of an agent's budget that was reached.
type Budget struct {
	Scope string `json:"scope"` // submission, instance
	Limit string `json:"limit"` // turns, tool_calls, tokens, dollars, wall_time
}
