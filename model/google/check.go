package google

import "github.com/flue-go/flue/model"

var _ model.Checker = (*Provider)(nil)

// Check implements [model.Checker]: it returns the flaw of the configuration, if
// it has one, and refuses what cannot be a model's id. The API has models that
// are not known here.
func (p *Provider) Check(id string) error {
	if p.err != nil || id == "" {
		return p.err
	}
	_, err := p.address(id)
	return err
}
