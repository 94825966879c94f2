package flue

import (
	"encoding/json"
	"fmt"

	"github.com/flue-go/flue/model"
)

// ModelOptions refines [UseModel]. The zero value leaves everything to the
// provider.
type ModelOptions struct {
	// Thinking is how much the model should reason before it answers.
	Thinking Thinking
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
)

// UseModel declares the agent's model as "provider/model", such as
// "anthropic/claude-haiku-4-5". Every render must call it exactly once. At most
// one ModelOptions may be given.
func UseModel(r *Render, specifier string, options ...ModelOptions) {
	const hook = "UseModel"
	r.enter(hook)
	if r.model != "" {
		r.misuse(hook, "was called twice", "An agent has one model: call UseModel once in every render.")
	}
	if p, _ := model.SplitSpecifier(specifier); p == "" {
		r.misuse(hook, fmt.Sprintf("got the specifier %q", specifier), `Write it as "provider/model", such as "anthropic/claude-haiku-4-5".`)
	}
	if len(options) > 1 {
		r.misuse(hook, "got more than one ModelOptions", "Pass at most one.")
	}
	for _, o := range options {
		if !o.Thinking.Valid() {
			r.misuse(hook, fmt.Sprintf("got the thinking level %q", o.Thinking), "Use one of the Thinking constants.")
		}
		r.thinking = o.Thinking
	}
	r.model = specifier
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
// conditionally: a tool that a render does not declare cannot be called. Names
// are unique within a render.
func UseTool(r *Render, tool *ToolDefinition) {
	const hook = "UseTool"
	r.enter(hook)
	if tool == nil {
		r.misuse(hook, "got a nil tool", "Make the tool with flue.NewTool.")
	}
	if r.toolNames[tool.name] {
		r.misuse(hook, fmt.Sprintf("got a second tool named %q", tool.name), "Tool names are unique within a render: rename one, or declare it once.")
	}
	r.toolNames[tool.name] = true
	r.tools = append(r.tools, tool)
}

// UseInitialData returns the data that the instance was created with: what the
// sender of its first message sent along, recorded once and the same for ever.
// It is the zero value of T if there was none. It panics if the data does not
// fit T, which fails the submission.
func UseInitialData[T any](r *Render) T {
	const hook = "UseInitialData"
	r.enter(hook)
	var v T
	if len(r.view.InitialData) == 0 {
		return v
	}
	if err := json.Unmarshal(r.view.InitialData, &v); err != nil {
		r.misuse(hook, fmt.Sprintf("the recorded data does not fit %T: %v", v, err),
			"Declare Agent.InitialData, so that data that does not fit is refused when it is sent, and keep the type compatible with what was recorded.")
	}
	return v
}

// UseDelivery returns the message that is in front of the model: the one that
// woke the response, or the latest that joined it. It is the same for the whole
// of a render. Attachments are named, without their bytes.
func UseDelivery(r *Render) Message {
	r.enter("UseDelivery")
	return delivered(r.view.Delivery)
}
