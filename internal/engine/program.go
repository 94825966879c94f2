package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
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
}

// A View is what a render may read. Nothing in it may be modified.
type View struct {
	ID          string // of the instance
	UID         string
	InitialData json.RawMessage // nil if there is none
	Vars        map[string]json.RawMessage
	Delivery    journal.Message
}

// A Plan is the outcome of a render.
type Plan struct {
	Model    string // provider/model
	Thinking model.Thinking
	System   string
	Tools    []Tool
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
	Run     func(ctx context.Context, c *Call, arguments string) Result
}

// A Result is what a call came to.
type Result struct {
	Content string          // what the model reads
	Output  json.RawMessage // what clients see; nil means Content
	Failed  bool
	EndTurn bool
}
