package cli

import (
	"maps"
	"strings"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/catalog"
	"github.com/flue-go/flue/model/providers"
)

// models are the model providers of a program.
type models struct {
	providers map[string]model.Provider
	catalog   func(provider, id string) (model.Info, bool)

	// missing are the providers that lack a key, for which the demo stands in.
	missing map[string]*model.Unavailable
}

// newModels makes the providers that the environment sets up, given as
// os.Environ has it, and those of the App.
func newModels(app *App, environ []string) (*models, error) {
	all, err := providers.FromEnv(environ)
	if err != nil {
		return nil, err
	}
	m := &models{providers: all, catalog: app.Catalog, missing: make(map[string]*model.Unavailable)}
	maps.Copy(all, app.Providers)
	for name, p := range all {
		u, ok := p.(*model.Unavailable)
		if !ok {
			continue
		}
		switch {
		case u.Reason != "": // a key would not change it
		case app.Demo != nil:
			m.missing[name] = u
			all[name] = app.Demo
		default:
			all[name] = &model.Unavailable{
				Name: name, Variables: u.Variables, Reason: u.Needs() + " in the environment or in " + defaultEnvFile,
			}
		}
	}
	if m.catalog == nil {
		m.catalog = catalog.Lookup
	}
	return m, nil
}

// lookup is the catalog of the program. What a script says costs nothing.
func (m *models) lookup(provider, id string) (model.Info, bool) {
	info, known := m.catalog(provider, id)
	if _, ok := m.missing[provider]; ok {
		info.Cost, known = model.Cost{Free: true}, true
	}
	return info, known
}

// scripted reports whether the demo answers for the provider of a specifier,
// and which variable would change that.
func (m *models) scripted(specifier string) (variable string, ok bool) {
	name, _ := model.SplitSpecifier(specifier)
	u, ok := m.missing[name]
	if !ok {
		return "", false
	}
	return strings.Join(u.Variables, " or "), true
}
