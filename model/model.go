// Package model defines how the engine talks to a language model: a request
// with messages goes in, a stream of typed events comes out.
//
// A [Provider] is the whole contract. It knows one wire format and nothing of
// agents, journals or retries: one call to Stream is one try, and what to
// do about a failure is the engine's decision, made from [Error.Class].
// Package modeltest checks an implementation against recorded exchanges.
package model

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
)

// A Provider streams the answers of one model service.
//
// Implementations must be safe for concurrent use.
type Provider interface {
	// Stream sends req and yields the events of the answer as they arrive.
	//
	// A successful answer is a sequence of [Delta] and [BlockDone] events that
	// ends with exactly one [Done]. A failed one ends with a non-nil error as
	// the last pair, normally an [*Error]; events yielded before it are what
	// was received. When ctx ends, Stream stops promptly and yields ctx's
	// cause. Breaking out of the loop closes the connection.
	//
	// A stream that ends without the provider's own end-of-message marker was
	// cut and must be reported as a retryable error, never as a Done.
	Stream(ctx context.Context, req *Request) iter.Seq2[Event, error]
}

// A Request is one model call.
type Request struct {
	Model    string    // the model's id at the provider, without the provider's name
	System   string    // the system prompt; may be empty
	Messages []Message // the conversation, oldest first, ending with a user or tool message
	Tools    []Tool    // the tools the model may call, in a stable order; see Tool.After
	// ToolsOff forbids the model to call the tools. They are sent all the same:
	// the conversation may have calls of them, which some services refuse
	// without, and the provider's prompt cache stays warm. A service that cannot
	// be told that is offered none, and reads the calls as text. What a model
	// calls all the same, the engine does not run.
	ToolsOff bool

	Thinking Thinking // reasoning effort; the zero value leaves it to the provider

	// MaxOutput bounds the answer in tokens. Zero means the model's own limit
	// from the catalog, or the provider's default when that is unknown.
	MaxOutput int

	// CacheKey is an opaque value that is stable for one conversation. A
	// provider that routes by such a key uses it to keep its prompt cache warm.
	CacheKey string

	// Info is what is known of the model. Fields are zero where unknown.
	Info Info
}

// Role says whose message a [Message] is.
type Role string

// The roles. Tool results travel in a message of role RoleTool, all results
// of one batch in one message, in the order of the calls.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// A Message is one entry of the conversation.
type Message struct {
	Role   Role
	Blocks []Block

	// Origin names the model that wrote an assistant message. A provider
	// replays Block.Opaque only to the origin it came from.
	Origin Origin
}

// An Origin identifies the provider and model that produced a message.
type Origin struct {
	Provider string
	Model    string
}

// BlockKind is the kind of a [Block].
type BlockKind string

// The kinds of block.
const (
	Text       BlockKind = "text"
	Reasoning  BlockKind = "reasoning"
	ToolCall   BlockKind = "tool_call"
	ToolResult BlockKind = "tool_result"
	Image      BlockKind = "image"
)

// A Block is one piece of a message. Which fields are set depends on Kind.
type Block struct {
	Kind BlockKind

	// Text is the text of a Text or Reasoning block, and the content of a
	// ToolResult.
	Text string

	// CallID, Name and Arguments describe a ToolCall. Arguments is the text
	// exactly as the model wrote it, which need not be valid JSON; a provider
	// that must send JSON sends it when it is an object, and an empty object
	// otherwise. CallID alone ties a ToolResult to its call.
	CallID    string
	Name      string
	Arguments string

	// IsError marks a ToolResult as a failure.
	IsError bool

	// MediaType and Data hold an Image.
	MediaType string
	Data      []byte

	// Opaque is what the provider sent beside the text and wants back
	// unchanged: a reasoning signature, a redacted block, an encrypted item.
	// Its format is the provider's own.
	Opaque json.RawMessage
}

// A Tool is a function offered to the model.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON Schema of the arguments; always an object

	// After is the id of the tool call whose result brought this tool in. It
	// is empty for tools that were there when the conversation's baseline was
	// taken. A provider that can load a tool at that point of the conversation
	// does so, which keeps its prompt cache; others present it like any other
	// tool. So does every provider when the call is no longer among the
	// messages. Tools that came later are sent behind the others, so that a
	// new one moves none of them.
	After string
}

// Thinking is how much a model should reason before it answers.
type Thinking string

// The levels of reasoning effort, from none to most. A provider maps a level
// that its model does not have to the nearest one it has.
const (
	ThinkingDefault Thinking = ""
	ThinkingOff     Thinking = "off"
	ThinkingMinimal Thinking = "minimal"
	ThinkingLow     Thinking = "low"
	ThinkingMedium  Thinking = "medium"
	ThinkingHigh    Thinking = "high"
	ThinkingXHigh   Thinking = "xhigh"
	ThinkingMax     Thinking = "max"
)

// Valid reports whether t is one of the levels above.
func (t Thinking) Valid() bool {
	switch t {
	case ThinkingDefault, ThinkingOff, ThinkingMinimal, ThinkingLow, ThinkingMedium, ThinkingHigh, ThinkingXHigh, ThinkingMax:
		return true
	}
	return false
}

// An Event is one step of a streamed answer: a [Delta], a [BlockDone] or a
// [Done].
type Event interface{ event() }

// A Delta is a piece of a Text or Reasoning block, or of the arguments of a
// ToolCall, in the order in which it came. Index counts the blocks of the answer
// from zero. Deltas of a block concatenate to its text, or to its arguments, and
// all come before its [BlockDone]; those of several blocks may take turns. The
// deltas of a call are for observers, and a provider may leave them out.
type Delta struct {
	Index int
	Kind  BlockKind
	Text  string

	// CallID and Name are those of a ToolCall, as far as they are known yet. Once
	// known they do not change.
	CallID, Name string
}

// A BlockDone ends the block at Index and carries it whole. Every block of an
// answer ends with one, in the order of the indices.
type BlockDone struct {
	Index int
	Block Block
}

// A Done ends the answer.
type Done struct {
	Stop   StopReason
	Reason string // what the provider called it, as it came
	Usage  Usage
	Model  string // the model that answered, when the provider says

	// Charged is what the call cost in US dollars, when the provider says; nil
	// otherwise. It is believed rather than the catalog's prices.
	Charged *float64
}

func (Delta) event()     {}
func (BlockDone) event() {}
func (Done) event()      {}

// StopReason says why the model stopped.
type StopReason string

// The reasons. A provider reports what it was told; whether tool calls are run
// is decided from the answer's content.
const (
	StopEnd      StopReason = "stop"
	StopToolUse  StopReason = "tool_use"
	StopLength   StopReason = "length"
	StopFiltered StopReason = "filtered" // refused or cut by a content filter
)

// Usage counts the tokens of one call. Input excludes what was read from or
// written to the provider's cache; Output includes Reasoning.
type Usage struct {
	Input      int `json:"input"`
	Output     int `json:"output"`
	CacheRead  int `json:"cacheRead,omitempty"`
	CacheWrite int `json:"cacheWrite,omitempty"`
	Reasoning  int `json:"reasoning,omitempty"`
}

// Total is the number of tokens the call used.
func (u Usage) Total() int { return u.Input + u.Output + u.CacheRead + u.CacheWrite }

// Add returns the sum of u and v.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Input: u.Input + v.Input, Output: u.Output + v.Output,
		CacheRead: u.CacheRead + v.CacheRead, CacheWrite: u.CacheWrite + v.CacheWrite,
		Reasoning: u.Reasoning + v.Reasoning,
	}
}

// Info is what is known of a model. A zero field means unknown, never none, but
// for what Known says.
type Info struct {
	Name          string     // display name
	ContextWindow int        // tokens
	MaxOutput     int        // tokens
	Reasoning     bool       // the model can reason
	Levels        []Thinking // the reasoning levels it accepts, when they are listed
	Images        bool       // the model accepts images
	Known         bool       // what is false here is so: without Images, the model takes none
	DeferredTools bool       // the model can load a tool in the middle of a conversation; see Tool.After
	Cost          Cost
}

// SplitSpecifier splits "provider/model" at the first slash. Either part is
// empty when the specifier has no such form.
func SplitSpecifier(spec string) (provider, id string) {
	provider, id, ok := strings.Cut(spec, "/")
	if !ok || provider == "" || id == "" {
		return "", ""
	}
	return provider, id
}
