package openai

import (
	"encoding/json"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/dialect"
)

// parameters returns the schema of a tool's arguments as it is sent, and
// whether the server is asked to hold the model to it.
func (s *service) parameters(t model.Tool) (schema json.RawMessage, strict bool) {
	if s.enforces(t) {
		return s.enforced.Convert(t).Schema, true
	}
	return s.schemas.Convert(t).Schema, false
}

func (s *service) enforces(t model.Tool) bool {
	return s.enforced != nil && !s.enforced.Convert(t).Unfit
}

// Losses implements [model.LossReporter].
func (s *service) Losses(tools []model.Tool) []model.Loss {
	var all []model.Loss
	for i, t := range tools {
		one := tools[i : i+1]
		if s.enforces(t) {
			all = append(all, s.enforced.Losses(one)...)
			continue
		}
		all = append(all, s.schemas.Losses(one)...)
		if s.enforced != nil {
			all = append(all, model.Loss{Tool: t.Name, Text: "the schema cannot be enforced; the tool is offered like any other"})
		}
	}
	return all
}

// tools returns the tools as they are sent.
func (p *Provider) tools(offered []model.Tool, names *dialect.Names) []tool {
	var ts []tool
	for _, t := range offered {
		f := function{Name: names.Alias(t.Name), Description: t.Description}
		f.Parameters, f.Strict = p.parameters(t)
		ts = append(ts, tool{Type: "function", Function: f})
	}
	return ts
}
