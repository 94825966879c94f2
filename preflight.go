package flue

import (
	"fmt"

	"github.com/flue-go/flue/internal/engine"
)

// Preflight says what models a new instance of the agent would ask, its own
// first and then its fallbacks, before there is one. The error is a [*ModelError]
// if one of them cannot be asked: no message would be answered.
//
// It runs the agent function once, with no message, data or state. If that
// panics, because the function needs one of them, there is nothing to say, and
// the result is empty. An agent whose model depends on them may choose another
// one than this.
func (rt *Runtime) Preflight(agent string) ([]string, error) {
	a := rt.agents[agent]
	if a == nil {
		return nil, fmt.Errorf("flue: Preflight(%q): no such agent; this runtime has %s", agent, list(rt.agents))
	}
	plan := dryRender(a)
	if plan == nil {
		return nil, nil
	}
	models := append([]string{plan.Settings.Model}, plan.Settings.Fallbacks...)
	for _, m := range models {
		if _, err := rt.models.Resolve(m); err != nil {
			return models, err
		}
	}
	return models, nil
}

// dryRender runs the agent function for no instance, and returns nil if it
// cannot do without one.
func dryRender(a *Agent) (plan *engine.Plan) {
	defer func() {
		if recover() != nil {
			plan = nil
		}
	}()
	plan, err := (&Render{agent: a.Name}).run(a.Render)
	if err != nil {
		return nil
	}
	return plan
}
