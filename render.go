package flue

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
)

// A Render is one run of an agent function. Hooks take it first and record on
// it what the agent declares. It is valid until the agent function returns, and
// only on the goroutine that the function was called on.
type Render struct {
	agent string
	view  engine.View
	self  *Instance // nil if there is no runtime behind the render
	frame frame
	over  atomic.Bool

	settings     *journal.Settings
	budget       *journal.Budget
	names        map[claim]bool
	tools        []*ToolDefinition
	instructions []string
	writers      []string
	summary      string   // what is asked of summaries
	waiting      []string // calls that wait for approval

	before, start, finish         []engine.Hook
	responseStart, responseFinish []engine.Hook
}

// A frame is what a render is for.
type frame uint8

const (
	rootFrame     frame = iota // an instance's next model call
	subagentFrame              // a delegate's task; it has no instance, and no client sees it
)

// A claim is a name that a render has given away. Each kind has names of its
// own.
type claim struct {
	kind nameKind
	name string
}

type nameKind string

const (
	kindTool   nameKind = "tool"
	kindState  nameKind = "state"
	kindWriter nameKind = "data writer"
)

// claim gives a name away and reports false if that was done before.
func (r *Render) claim(kind nameKind, name string) bool {
	c := claim{kind, name}
	if r.names[c] {
		return false
	}
	if r.names == nil {
		r.names = make(map[claim]bool)
	}
	r.names[c] = true
	return true
}

// InstanceID returns the id of the instance that is rendered.
func (r *Render) InstanceID() string { return r.view.ID }

// enter panics if the hook may not be called now.
func (r *Render) enter(hook string) {
	switch {
	case r == nil:
		panic(&HookError{Hook: hook, Reason: "was called without a render", Fix: "Pass on the *flue.Render that the agent function was called with."})
	case r.over.Load():
		panic(&HookError{
			Agent: r.agent, Hook: hook, Reason: "was called outside its render",
			Fix: "Call hooks only in the agent function itself or in functions that it calls, and do not keep the *flue.Render.",
		})
	}
}

// enterRoot is enter for a hook that belongs to an instance, which a delegate is
// not.
func (r *Render) enterRoot(hook, fix string) {
	r.enter(hook)
	if r.frame == subagentFrame {
		r.misuse(hook, "was called in a subagent", fix)
	}
}

// misuse panics with a HookError.
func (r *Render) misuse(hook, reason, fix string) {
	panic(&HookError{Agent: r.agent, Hook: hook, Reason: reason, Fix: fix})
}

// plan is what the render has declared.
func (r *Render) plan(returned string) (*engine.Plan, error) {
	p := &engine.Plan{
		Instructions: r.instruction(returned), Writers: slices.Sorted(slices.Values(r.writers)),
		Summary: r.summary, Waiting: r.waiting,
		Before: r.before, Start: r.start, Finish: r.finish, ResponseStart: r.responseStart, ResponseFinish: r.responseFinish,
	}
	switch {
	case r.settings != nil:
		p.Settings = *r.settings
		p.Settings.Budget = r.budget
	case r.frame == rootFrame:
		return nil, &HookError{
			Agent: r.agent, Hook: "UseModel", Reason: "was not called",
			Fix: `An agent requires a model: call flue.UseModel(r, "provider/model") in the agent function, once in every render.`,
		}
	}
	for _, t := range r.tools {
		p.Tools = append(p.Tools, t.engineTool())
	}
	if r.view.Kept {
		p.Tools = append(p.Tools, readOutputTool())
	}
	return p, nil
}

// instruction is the text that the agent function returned and those that it
// declared, in this order.
func (r *Render) instruction(returned string) string {
	parts := r.instructions // as they are: their authors format them
	if s := strings.TrimSpace(returned); s != "" {
		parts = append([]string{s}, parts...)
	}
	return strings.Join(parts, "\n\n")
}

// run calls the agent function and returns what it has declared. A hook that
// was used against its rules is an error; any other panic is not recovered.
func (r *Render) run(fn func(*Render) string) (plan *engine.Plan, err error) {
	defer func() {
		r.over.Store(true)
		p := recover()
		if p == nil {
			return
		}
		misuse, ok := p.(error)
		var hook *HookError
		var conflict *ToolNameConflictError
		switch {
		case !ok:
			panic(p) // the engine reports it with its stack
		case errors.As(misuse, &hook):
			if hook.Agent == "" {
				hook.Agent = r.agent
			}
		case errors.As(misuse, &conflict):
		default:
			panic(p)
		}
		plan, err = nil, misuse
	}()
	return r.plan(fn(r))
}
