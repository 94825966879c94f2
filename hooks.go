package flue

import (
	"context"
	"fmt"
	"slices"

	"github.com/flue-go/flue/internal/schema"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
)

// ModelOptions refines [UseModel]. The zero value means the defaults.
type ModelOptions struct {
	// Thinking is how much the model should reason before it answers. The
	// default is ThinkingMedium for a model that is known to reason.
	Thinking Thinking

	// Fallbacks are the models to turn to when the agent's model fails, in the
	// order of preference, at most 8. A model that is overloaded, whose quota is
	// used up, that asks to wait longer than five seconds or that has failed
	// twice in a row in a way that may pass gives way to the next one for the
	// rest of the response; the next response begins with the agent's model
	// again. The last model is given as many tries as Config.Retries says. What
	// another model would refuse as well, such as a wrong key, ends the response.
	Fallbacks []string

	// Compaction says when the conversation is summarized. Nil means the
	// defaults.
	Compaction *Compaction
}

// Compaction says when a conversation that outgrows the model's context window
// is summarized, and how much of it is kept as it is. Zero fields mean the
// defaults.
type Compaction struct {
	// Off turns summaries at a threshold off. A conversation that the model
	// refuses as too long is still summarized, and so is one for which
	// [Instance.Compact] is called.
	Off bool
	// ReserveTokens is the room that is kept free in the context window: the
	// conversation is summarized when more tokens than the window less the reserve
	// would be sent. Default: 20,000, or what the model can answer at most if that
	// is less, or a third of the window where either would be half of it.
	ReserveTokens int
	// KeepRecentTokens is how much of the newest conversation stays as it is.
	// Default 8,000; never more than half of what the window leaves for the
	// conversation.
	KeepRecentTokens int
	// Model writes the summaries, as "provider/model". Default: the agent's, which
	// is also asked when this one fails.
	Model string
	// Instructions are added to what the one that writes a summary is asked for,
	// such as what must not be lost. They are those of the latest render.
	Instructions string
}

// Thinking is a level of reasoning effort.
type Thinking = model.Thinking

// The levels of reasoning effort. A model that lacks a level uses the nearest
// that it has.
const (
	ThinkingOff     = model.ThinkingOff
	ThinkingMinimal = model.ThinkingMinimal
	ThinkingLow     = model.ThinkingLow
	ThinkingMedium  = model.ThinkingMedium
	ThinkingHigh    = model.ThinkingHigh
	ThinkingXHigh   = model.ThinkingXHigh
	ThinkingMax     = model.ThinkingMax
)

// UseModel declares the agent's model as "provider/model", such as
// "anthropic/claude-haiku-4-5". Every render must call it exactly once. At most
// one ModelOptions may be given.
//
// The values may differ between renders, but a response keeps those of the
// render with which it started: what is computed from state takes effect with
// the next response. Only a model that the program no longer has is replaced by
// that of the latest render.
func UseModel(r *Render, specifier string, options ...ModelOptions) {
	const hook = "UseModel"
	r.enterRoot(hook, "A delegate's model is that of its declaration.")
	if r.settings != nil {
		r.misuse(hook, "was called twice", "An agent has one model: call UseModel once in every render.")
	}
	if p, _ := model.SplitSpecifier(specifier); p == "" {
		r.misuse(hook, fmt.Sprintf("got the specifier %q", specifier), `Write it as "provider/model", such as "anthropic/claude-haiku-4-5".`)
	}
	if len(options) > 1 {
		r.misuse(hook, "got more than one ModelOptions", "Pass at most one.")
	}
	s := &journal.Settings{Model: specifier}
	for _, o := range options {
		if !o.Thinking.Valid() {
			r.misuse(hook, fmt.Sprintf("got the thinking level %q", o.Thinking), "Use one of the Thinking constants.")
		}
		s.Thinking = string(o.Thinking)
		s.Fallbacks = r.fallbacks(hook, specifier, o.Fallbacks)
		s.Compaction = r.compaction(hook, o.Compaction)
	}
	r.settings = s
}

// maxFallbacks bounds the models that a response may turn to.
const maxFallbacks = 8

// fallbacks are the specifiers in the form that is stored.
func (r *Render) fallbacks(hook, first string, specifiers []string) []string {
	if len(specifiers) > maxFallbacks {
		r.misuse(hook, fmt.Sprintf("got %d fallbacks", len(specifiers)), fmt.Sprintf("Name at most %d.", maxFallbacks))
	}
	for i, s := range specifiers {
		if p, _ := model.SplitSpecifier(s); p == "" {
			r.misuse(hook, fmt.Sprintf("got the fallback %q", s), `Write it as "provider/model", such as "openai/gpt-5".`)
		}
		if s == first || slices.Contains(specifiers[:i], s) {
			r.misuse(hook, fmt.Sprintf("got the model %q twice", s), "A model that has failed is not asked again in the same response.")
		}
	}
	return slices.Clone(specifiers)
}

// compaction is c in the form that is stored.
func (r *Render) compaction(hook string, c *Compaction) *journal.Compaction {
	if c == nil {
		return nil
	}
	if c.ReserveTokens < 0 || c.KeepRecentTokens < 0 {
		r.misuse(hook, "got a compaction with a negative number of tokens", "Leave a number zero for the default, or set Off.")
	}
	if p, _ := model.SplitSpecifier(c.Model); c.Model != "" && p == "" {
		r.misuse(hook, fmt.Sprintf("got a compaction with the specifier %q", c.Model), `Write it as "provider/model", or leave it empty for the agent's model.`)
	}
	if len(c.Instructions) > maxSummaryInstructions {
		r.misuse(hook, fmt.Sprintf("got instructions for summaries of %d bytes", len(c.Instructions)), fmt.Sprintf("Use at most %d.", maxSummaryInstructions))
	}
	r.summary = c.Instructions
	return &journal.Compaction{Off: c.Off, ReserveTokens: c.ReserveTokens, KeepRecentTokens: c.KeepRecentTokens, Model: c.Model}
}

// UseInstruction adds text to the agent's instruction, after the text that the
// agent function returns, separated by a blank line. It may be called any
// number of times. The text must not be blank.
func UseInstruction(r *Render, text string) {
	const hook = "UseInstruction"
	r.enter(hook)
	if isBlank(text) {
		r.misuse(hook, "got a blank text", "Leave the call out when there is nothing to say.")
	}
	r.instructions = append(r.instructions, text)
}

// UseTool offers a tool to the model in this render. It may be called
// conditionally: a tool that a render does not declare cannot be called. When
// the set of tools differs from what the model was told last, the model is told
// of the difference before it is called. Names are unique within a render; a
// second tool of a name panics with a [*ToolNameConflictError].
func UseTool(r *Render, tool *ToolDefinition) {
	const hook = "UseTool"
	r.enter(hook)
	if tool == nil {
		r.misuse(hook, "got a nil tool", "Make the tool with flue.NewTool.")
	}
	if !r.claim(kindTool, tool.name) {
		panic(&ToolNameConflictError{Agent: r.agent, Tool: tool.name})
	}
	r.tools = append(r.tools, tool)
}

// UseInitialData returns the data that the instance was created with: what the
// sender of its first message sent along, recorded once and the same for ever.
// It is the zero value of T if there was none, and in a delegate. It panics if
// the data does not fit T, which fails the submission. The data is never sent to
// clients.
func UseInitialData[T any](r *Render) T {
	const hook = "UseInitialData"
	r.enter(hook)
	var v T
	if len(r.view.InitialData) == 0 || r.frame == subagentFrame {
		return v
	}
	if err := schema.Unmarshal(r.view.InitialData, &v); err != nil {
		r.misuse(hook, fmt.Sprintf("the recorded data does not fit %T: %v", v, misfit(err)),
			"Declare Agent.InitialData, so that data that does not fit is refused when it is sent, and keep the type compatible with what was recorded.")
	}
	return v
}

// UseDelivery returns the message that is in front of the model. It begins with
// the one that woke the response, and moves on to each message that joins the
// response and to each signal that a hook appends, in the order in which the
// model reads them; what the runtime itself tells the model does not count. It is
// the same for the whole of a render, and the same again after a crash.
// Attachments are named, without their bytes. In a delegate it is the task.
func UseDelivery(r *Render) Message {
	r.enter("UseDelivery")
	return delivered(r.view.Delivery)
}

// UseDispatchMessage returns a function that sends a message to this instance
// itself, with all that a message from outside has: a receipt, its own start
// hooks, a place in the order. If a response is under way when the message
// comes it joins it before the next model call; otherwise it wakes a new one.
//
// The function must not be called while the agent function runs. Each call sends
// once more: a tool or hook that is run again after a crash should pass an
// idempotency key that it derives from what it works on.
func UseDispatchMessage(r *Render) func(ctx context.Context, m Message, options ...DispatchOptions) (Receipt, error) {
	const hook = "UseDispatchMessage"
	r.enterRoot(hook, "A delegate has no instance of its own: return what it found as its result.")
	self := r.self
	return func(ctx context.Context, m Message, options ...DispatchOptions) (Receipt, error) {
		var o SendOptions
		switch {
		case !r.over.Load():
			return Receipt{}, &HookError{
				Agent: r.agent, Hook: hook, Reason: "its function was called during the render",
				Fix: "A render only reads: send from a tool or from the callback of an event hook.",
			}
		case watcher(ctx) != nil:
			return Receipt{}, &HookError{
				Agent: r.agent, Hook: hook, Reason: "its function was called by a callback that only observes the response",
				Fix: "Send from a tool or from the callback of UseAgentStart or UseAgentFinish.",
			}
		case self == nil:
			return Receipt{}, &HookError{Agent: r.agent, Hook: hook, Reason: "has no runtime behind it", Fix: "Run the agent in a flue.Runtime."}
		case len(options) > 1:
			return Receipt{}, &HookError{Agent: r.agent, Hook: hook, Reason: "its function got more than one DispatchOptions", Fix: "Pass at most one."}
		case len(options) == 1:
			o.IdempotencyKey = options[0].IdempotencyKey
		}
		return self.Dispatch(ctx, m, o)
	}
}

// DispatchOptions refines the function that [UseDispatchMessage] returns.
type DispatchOptions struct {
	IdempotencyKey string // see SendOptions
}
