package flue

import (
	"context"
	"unicode/utf8"

	"github.com/flue-go/flue/internal/engine"
)

// program is an agent in the form that the engine runs.
type program struct {
	agent *Agent
	rt    *Runtime
}

func (p program) Render(_ context.Context, v engine.View) (*engine.Plan, error) {
	r := &Render{agent: p.agent.Name, view: v, self: p.rt.Instance(p.agent.Name, v.ID)}
	return r.run(func(r *Render) string {
		useApprovals(r, p.agent) // before the agent's own hooks: a decision is carried out whatever the agent declares
		return p.agent.Render(r)
	})
}

func (p program) Budget() engine.Budget {
	d := p.agent.Durability.withDefaults()
	return engine.Budget{MaxAttempts: d.MaxAttempts, Timeout: d.Timeout, ParallelCalls: p.agent.ParallelCalls}
}

// clip cuts s to at most limit bytes, at the end of a character.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}
