package flue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/schema"
	"github.com/flue-go/flue/model"
)

// A Tool describes a function that the model may call. Pass it to [NewTool].
type Tool struct {
	// Name is what the model calls the tool by: 1 to 64 letters, digits, "-"
	// and "_", beginning with a letter. Some names belong to the framework.
	Name string

	// Description is all that the model knows of the tool: say what it does,
	// when to use it and what it returns.
	Description string

	// Timeout bounds one call. When it is up the call's context ends, the model
	// is told that the tool timed out, and what the function returns later is
	// dropped. Zero means that only the submission's own timeout applies.
	Timeout time.Duration

	// Idempotent says that a call may be run twice: what it does the second
	// time, under the same [CallKey], changes nothing. A call that is
	// interrupted is then run again, where another's outcome is unknown.
	Idempotent bool

	// MaxShown is how many bytes of a result the model reads at once. Of a longer
	// one it is shown the head and the tail; all of it is kept with the instance,
	// and the model can read on with a tool that the framework offers from then
	// on. Zero means 32 KiB, about eight thousand tokens; less means that every
	// result is shown whole. The least is 1 KiB.
	MaxShown int

	// Input replaces the schema of the arguments that is inferred from the
	// function's input type. It must describe an object.
	Input *Schema

	// Output, if set, is what a result must match.
	Output *Schema
}

// EndTurn is returned by a tool's function, beside its result, to end the
// response: if every call of the turn does so, the model is not called again.
// It is not a failure.
//
//	return report, flue.EndTurn
//
//lint:ignore ST1012 it is an instruction, not a failure, like fs.SkipAll
var EndTurn = errors.New("flue: end the turn")

// A ToolDefinition is a tool that can be declared with [UseTool]. Make one with
// [NewTool] or [NewDurableTool]. It is immutable and may be shared by agents and
// goroutines.
type ToolDefinition struct {
	name    string
	spec    model.Tool
	timeout time.Duration
	shown   int
	again   bool            // a call that is interrupted is run again
	ungated *ToolDefinition // what a gate stands in front of
	prepare func(w *engine.Work, arguments string) (json.RawMessage, error)
	run     func(ctx context.Context, w *engine.Work, arguments string) engine.Result
}

// Name returns the tool's name.
func (t *ToolDefinition) Name() string { return t.name }

// InputSchema returns the JSON Schema of the arguments, as the model sees it.
func (t *ToolDefinition) InputSchema() json.RawMessage { return t.spec.Schema }

func (t *ToolDefinition) engineTool() engine.Tool {
	return engine.Tool{Spec: t.spec, Timeout: t.timeout, Shown: t.shown, Again: t.again, Run: t.run}
}

// NewTool makes a tool of a Go function. It panics if the definition is bad, as
// regexp.MustCompile does, so that a bad tool fails when the program starts;
// [MakeTool] returns the error instead.
//
// In is a struct, or a map with string keys; its schema is inferred (see
// [SchemaFor]) and shown to the model. Arguments that do not match it never
// reach fn: the model is told what is wrong and can call again.
//
// A string that fn returns reaches the model as it is, any other value as
// JSON. An error that fn returns is shown to the model, which can try again, do
// something else or tell the user; say in it what to do next. A panic is an
// error too, whose text the model does not see.
//
// fn is called with a context that ends when the call must stop. [CallID], [Log]
// and the writes of [State] take it. Calls of one turn run side by side.
func NewTool[In, Out any](t Tool, fn func(ctx context.Context, in In) (Out, error)) *ToolDefinition {
	def, err := MakeTool(t, fn)
	if err != nil {
		panic(err.Error())
	}
	return def
}

// MakeTool is [NewTool] for tools that are made while the program runs: it
// returns an error if the definition is bad.
func MakeTool[In, Out any](t Tool, fn func(ctx context.Context, in In) (Out, error)) (*ToolDefinition, error) {
	return makeTool(t, fn != nil, func(ctx context.Context, _ *engine.Work, in In) (Out, error) { return fn(ctx, in) })
}

// NewDurableTool makes a tool whose work is completed whatever dies: when a
// call is interrupted, the next process runs fn again from its start, with what
// the steps have recorded. See [Do] for what belongs in a step. It panics if the
// definition is bad; [MakeDurableTool] returns the error instead.
//
// A call of an ordinary tool that is interrupted is not run again, because
// nobody can know what it has done already; the model is told that its outcome is
// unknown. So it is with a durable tool's call if the next process no longer
// offers the tool, or offers an ordinary one of its name. An error that fn
// returns is no interruption: it ends the call, and the model sees it.
func NewDurableTool[In, Out any](t Tool, fn func(ctx context.Context, step *Step, in In) (Out, error)) *ToolDefinition {
	def, err := MakeDurableTool(t, fn)
	if err != nil {
		panic(err.Error())
	}
	return def
}

// MakeDurableTool is [NewDurableTool] for tools that are made while the program
// runs: it returns an error if the definition is bad.
func MakeDurableTool[In, Out any](t Tool, fn func(ctx context.Context, step *Step, in In) (Out, error)) (*ToolDefinition, error) {
	def, err := makeTool(t, fn != nil, func(ctx context.Context, w *engine.Work, in In) (Out, error) {
		return fn(ctx, &Step{work: w}, in)
	})
	if def != nil {
		def.again = true
	}
	return def, err
}

func makeTool[In, Out any](t Tool, hasFunc bool, fn func(ctx context.Context, w *engine.Work, in In) (Out, error)) (*ToolDefinition, error) {
	if err := t.validate(hasFunc); err != nil {
		return nil, err
	}
	var byHand *schema.Schema
	if t.Input != nil {
		byHand = t.Input.s
	}
	input, err := schema.Arguments[In](byHand)
	if err != nil {
		return nil, fmt.Errorf("flue: tool %s: its input: %w", t.Name, err)
	}
	def := &ToolDefinition{
		name: t.Name, timeout: t.Timeout, shown: t.MaxShown, again: t.Idempotent,
		spec: model.Tool{Name: t.Name, Description: t.Description, Schema: input.JSON()},
	}
	var output *schema.Schema
	if t.Output != nil {
		output = t.Output.s
	}
	def.prepare = func(w *engine.Work, arguments string) (json.RawMessage, error) {
		var in In
		return decodeArguments(w, input, arguments, &in)
	}
	def.run = func(ctx context.Context, w *engine.Work, arguments string) engine.Result {
		var in In
		if _, err := decodeArguments(w, input, arguments, &in); err != nil {
			return failure(&ToolInputError{Tool: t.Name, Err: err})
		}
		out, err := fn(withWork(ctx, w), w, in)
		return result(t.Name, output, out, err)
	}
	return def, nil
}

// decodeArguments holds what the model wrote to the schema, repaired where the
// meaning is plain, and returns what it has decoded.
func decodeArguments(w *engine.Work, input *schema.Schema, arguments string, into any) (json.RawMessage, error) {
	prepared, repairs, err := input.DecodeArguments(arguments, into)
	if err != nil {
		return nil, err
	}
	for _, r := range repairs {
		if r.Kind != schema.EmptyArguments { // nothing is a usual way to write nothing
			w.Log.Warn("the model's arguments were repaired", slog.String("repair", r.String()))
		}
	}
	return prepared, nil
}

// maxToolName bounds the name of a tool; providers accept no longer ones.
const maxToolName = 64

func (t *Tool) validate(hasFunc bool) error {
	switch {
	case !validName(t.Name, maxToolName):
		return fmt.Errorf("flue: tool name %q: want 1 to %d letters, digits, '-' and '_', beginning with a letter", t.Name, maxToolName)
	case reservedTool(t.Name):
		return fmt.Errorf("flue: tool name %q belongs to the framework: choose another", t.Name)
	case isBlank(t.Description):
		return fmt.Errorf("flue: tool %s has no description: it is all that the model knows of the tool", t.Name)
	case t.Timeout < 0:
		return fmt.Errorf("flue: tool %s has a negative timeout: leave it zero for none", t.Name)
	case t.MaxShown > 0 && t.MaxShown < 1<<10:
		return fmt.Errorf("flue: tool %s shows %d bytes of a result: show at least 1024, or leave it zero for the default", t.Name, t.MaxShown)
	case !hasFunc:
		return fmt.Errorf("flue: tool %s has no function", t.Name)
	}
	return nil
}

// reservedTool reports whether the framework keeps the name for a tool of its
// own.
func reservedTool(name string) bool {
	switch name {
	case "task", "activate_skill", "read_skill_resource", "finish", "give_up", engine.ReadOutput:
		return true
	}
	return strings.HasPrefix(name, "mcp__") // tools of MCP servers
}

// MaxToolOutput bounds what a tool may return, as JSON or text, in bytes.
const MaxToolOutput = 4 << 20

// failure is what the model and observers are told of a failed call.
func failure(err error) engine.Result {
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if isBlank(text) {
		text = "The tool failed without saying why."
	}
	return engine.Result{Failed: true, Content: clip(text, MaxToolOutput), Err: err}
}

// result is what a function's return values mean.
func result(tool string, output *schema.Schema, out any, err error) engine.Result {
	end := errors.Is(err, EndTurn)
	if err != nil && !end {
		return failure(err)
	}
	data, err := output.Output(out)
	if err != nil {
		return failure(&ToolOutputError{Tool: tool, Err: err})
	}
	if depth(data) > schema.MaxDepth {
		return failure(&ToolOutputError{Tool: tool, Err: fmt.Errorf("it is nested more than %d levels deep", schema.MaxDepth)})
	}
	if len(data) > MaxToolOutput {
		return failure(&ToolOutputError{Tool: tool, Err: fmt.Errorf("it has %d bytes and at most %d are allowed; ask for less", len(data), MaxToolOutput)})
	}
	r := engine.Result{Content: string(data), Output: data, EndTurn: end}
	if v := reflect.ValueOf(out); v.IsValid() && v.Kind() == reflect.String && data[0] == '"' {
		if err := json.Unmarshal(data, &r.Content); err != nil {
			r.Content = v.String()
		}
	}
	return r
}

// depth is how deep a JSON value is nested.
func depth(data []byte) int {
	level, deepest, quoted := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			level++
			deepest = max(deepest, level)
		case c == '}' || c == ']':
			level--
		}
	}
	return deepest
}
