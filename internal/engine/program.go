package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/wire"
)

// A Program is an agent as the engine sees it. It must be safe for concurrent
// use.
type Program interface {
	// Render says what the next model call is to look like. It must be a pure
	// read. It may be called for a turn that is then not made.
	Render(ctx context.Context, v View) (*Plan, error)

	// Budget bounds each submission.
	Budget() Budget
}

// A Budget bounds the work on one submission.
type Budget struct {
	MaxAttempts int           // tries, the first included
	Timeout     time.Duration // from the first attempt to the end

	// ParallelCalls is how many calls of one turn run side by side; the others
	// wait for their turn. Zero means the default, which is [ParallelCalls].
	ParallelCalls int
}

// A View is what a render may read. Nothing in it may be modified.
type View struct {
	ID          string // of the instance
	UID         string
	InitialData json.RawMessage // nil if there is none
	Vars        map[string]json.RawMessage
	Delivery    journal.Message
	Kept        bool // the model has been told of results that were kept, and may ask for them
}

// A Plan is the outcome of a render.
type Plan struct {
	// Settings are what the render would have for a whole response. Those of
	// the render with which a response starts hold until it ends.
	Settings journal.Settings

	Instructions string
	Tools        []Tool
	Resources    []journal.Resource // what is declared beside tools, in order
	Writers      []string           // names of data parts, sorted; the same in every render

	// Summary is what the author asks of whoever summarizes the conversation,
	// and Waiting are the ids of calls that stay in it as they are.
	Summary string
	Waiting []string

	// The callbacks of the hooks, in the order of their declaration. Those of
	// Before run before those of Start, one after another.
	Before, Start, Finish         []Hook
	ResponseStart, ResponseFinish []Hook
}

// A Hook is a callback that runs at a seam of the response. An error fails the
// submission.
type Hook struct {
	Name string
	Run  func(ctx context.Context, w *Work) error
}

// tool returns the plan's tool of that name, or nil.
func (p *Plan) tool(name string) *Tool {
	for i := range p.Tools {
		if p.Tools[i].Spec.Name == name {
			return &p.Tools[i]
		}
	}
	return nil
}

// A Tool is a function that the model may call.
type Tool struct {
	Spec    model.Tool
	Timeout time.Duration // zero means the submission's own
	Run     func(ctx context.Context, w *Work, arguments string) Result

	// Shown is how many bytes of a result the model reads at once; what is longer
	// is kept beside the journal. Zero means MaxShown, less means all.
	Shown int

	// Again says that a call which was interrupted is run again: what must not
	// happen twice is in its steps, or the tool sees to it by the call's key.
	Again bool
}

// A Result is what a call came to.
type Result struct {
	Content string          // what the model reads
	Output  json.RawMessage // what clients see; nil means Content
	Failed  bool
	EndTurn bool
	Err     error // why it failed, for this side
}

// A TimeoutError says that a tool call was given up because its tool's timeout
// was up.
type TimeoutError struct {
	Tool  string
	After time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("Tool %q timed out after %dms", e.Tool, e.After.Milliseconds())
}

// Code returns the error's stable category.
func (e *TimeoutError) Code() wire.Code { return wire.CodeToolTimeout }
