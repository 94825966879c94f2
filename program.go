package flue

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/model"
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
	return engine.Budget{MaxAttempts: d.MaxAttempts, Timeout: d.Timeout}
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

// models finds the provider and the data of a model specifier.
type models struct {
	providers map[string]model.Provider
	catalog   func(provider, id string) (model.Info, bool)
}

func (m models) Resolve(specifier string) (engine.Model, error) {
	name, id := model.SplitSpecifier(specifier)
	p := m.providers[name]
	if p == nil {
		return engine.Model{}, fmt.Errorf("model %q: there is no provider %q here; this program has %s", specifier, name, list(m.providers))
	}
	resolved := engine.Model{Provider: p, Origin: model.Origin{Provider: name, Model: id}}
	if m.catalog != nil {
		resolved.Info, _ = m.catalog(name, id)
	}
	return resolved, nil
}
