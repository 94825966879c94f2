package flue

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/model"
)

// A Render is one run of an agent function. Hooks take it first and record on
// it what the agent declares. It is valid until the agent function returns, and
// only on the goroutine that the function was called on.
type Render struct {
	agent string
	view  engine.View
	over  atomic.Bool

	model        string
	thinking     model.Thinking
	tools        []*ToolDefinition
	toolNames    map[string]bool
	states       map[string]bool
	instructions []string
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

// misuse panics with a HookError.
func (r *Render) misuse(hook, reason, fix string) {
	panic(&HookError{Agent: r.agent, Hook: hook, Reason: reason, Fix: fix})
}

// plan is what the render has declared.
func (r *Render) plan(returned string) (*engine.Plan, error) {
	if r.model == "" {
		return nil, &HookError{
			Agent: r.agent, Hook: "UseModel", Reason: "was not called",
			Fix: `An agent requires a model: call flue.UseModel(r, "provider/model") in the agent function, once in every render.`,
		}
	}
	p := &engine.Plan{Model: r.model, Thinking: r.thinking, System: r.system(returned)}
	for _, t := range r.tools {
		p.Tools = append(p.Tools, t.engineTool())
	}
	return p, nil
}

func (r *Render) system(returned string) string {
	var parts []string
	for _, s := range append([]string{returned}, r.instructions...) {
		if s = strings.TrimSpace(s); s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, "\n\n")
}

// render runs the agent function.
func (a *Agent) render(v engine.View) (plan *engine.Plan, err error) {
	r := &Render{agent: a.Name, view: v, toolNames: map[string]bool{}, states: map[string]bool{}}
	defer func() {
		r.over.Store(true)
		p := recover()
		if p == nil {
			return
		}
		misuse, ok := p.(*HookError)
		if !ok {
			panic(p) // the engine reports it with its stack
		}
		if misuse.Agent == "" {
			misuse.Agent = a.Name
		}
		plan, err = nil, misuse
	}()
	text := a.Render(r)
	if plan, err = r.plan(text); err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	return plan, nil
}
