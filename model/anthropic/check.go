package anthropic

import "github.com/flue-go/flue/model"

var _ model.Checker = (*Provider)(nil)

// Check implements [model.Checker]: it returns the flaw of the Config, if it
// has one. The API has models that are not known here, so no id is refused.
func (p *Provider) Check(string) error { return p.err }
