package cli

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/openai"
)

// models are the model providers of a program.
type models struct {
	providers map[string]model.Provider

	// missing has the providers that have no key, and the variable to set.
	missing map[string]string
	demo    bool // the scripted demo stands in for those
}

// A dialect is a wire format that a provider may speak.
type dialect string

const (
	dialectAnthropic dialect = "anthropic"
	dialectOpenAI    dialect = "openai"
)

// A service is a provider as the environment describes it.
type service struct {
	name    string
	dialect dialect
	baseURL string
	key     string
}

// wellKnown are the providers that need no more than a key.
var wellKnown = [...]struct {
	dialect dialect // and the provider's name
	key     string
	baseURL string
}{
	{dialectAnthropic, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"},
	{dialectOpenAI, "OPENAI_API_KEY", "OPENAI_BASE_URL"},
}

// newModels makes the providers that the environment configures, given as
// os.Environ has it, and those of the App.
func newModels(app *App, environ []string) (*models, error) {
	env := make(map[string]string)
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok {
			env[k] = v
		}
	}
	m := &models{providers: make(map[string]model.Provider), missing: make(map[string]string), demo: app.Demo != nil}
	services, err := compatible(env)
	if err != nil {
		return nil, err
	}
	for _, w := range wellKnown {
		s := service{name: string(w.dialect), dialect: w.dialect, baseURL: env[w.baseURL], key: env[w.key]}
		if err := checkURL(w.baseURL, s.baseURL); err != nil {
			return nil, err
		}
		if s.key != "" || s.baseURL != "" { // a server of one's own may need no key
			services = append(services, s)
			continue
		}
		m.missing[s.name] = w.key
		m.providers[s.name] = app.Demo
		if app.Demo == nil {
			m.providers[s.name] = keyless{provider: s.name, variable: w.key}
		}
	}
	for _, s := range services {
		m.providers[s.name] = s.provider()
	}
	for name, provider := range app.Providers {
		m.providers[name] = provider
		delete(m.missing, name)
	}
	return m, nil
}

// scripted reports whether the demo answers for the provider of a specifier,
// and which variable would change that.
func (m *models) scripted(specifier string) (variable string, ok bool) {
	if !m.demo {
		return "", false
	}
	name, _ := model.SplitSpecifier(specifier)
	variable, ok = m.missing[name]
	return variable, ok
}

func (s *service) provider() model.Provider {
	if s.dialect == dialectAnthropic {
		return anthropic.New(anthropic.Config{Name: s.name, BaseURL: s.baseURL, APIKey: s.key})
	}
	return openai.New(openai.Config{Name: s.name, BaseURL: s.baseURL, APIKey: s.key})
}

// The variables of a provider that speaks a well-known wire format:
// FLUE_PROVIDER_OLLAMA_BASE_URL is the base URL of the provider "ollama".
const (
	servicePrefix  = "FLUE_PROVIDER_"
	serviceBaseURL = "_BASE_URL"
	serviceKey     = "_API_KEY"
	serviceAPI     = "_API"
)

// compatible reads the providers that FLUE_PROVIDER variables describe, in the
// order of their names.
func compatible(env map[string]string) ([]service, error) {
	found := make(map[string]*service)
	for _, variable := range slices.Sorted(maps.Keys(env)) {
		rest, ok := strings.CutPrefix(variable, servicePrefix)
		if !ok {
			continue
		}
		field := ""
		for _, f := range [...]string{serviceBaseURL, serviceKey, serviceAPI} {
			if strings.HasSuffix(rest, f) {
				field = f
				break
			}
		}
		name := providerName(strings.TrimSuffix(rest, field))
		if field == "" || name == "" {
			return nil, fmt.Errorf("variable %s is not one of %s<NAME>%s, %s and %s", variable, servicePrefix, serviceBaseURL, serviceKey, serviceAPI)
		}
		s := found[name]
		if s == nil {
			s = &service{name: name, dialect: dialectOpenAI}
			found[name] = s
		}
		if err := s.set(variable, field, env[variable]); err != nil {
			return nil, err
		}
	}
	var services []service
	for _, name := range slices.Sorted(maps.Keys(found)) {
		s := found[name]
		if s.baseURL == "" {
			return nil, fmt.Errorf("provider %s has no address: set %s%s%s", name, servicePrefix, variableName(name), serviceBaseURL)
		}
		services = append(services, *s)
	}
	return services, nil
}

// set takes the value of one variable.
func (s *service) set(variable, field, value string) error {
	if w, ok := nativeVariables(s.name); ok {
		return fmt.Errorf("variable %s: the provider %s is set up with %s instead; for another server give it another name", variable, s.name, w)
	}
	switch field {
	case serviceBaseURL:
		s.baseURL = value
		return checkURL(variable, value)
	case serviceKey:
		s.key = value
	case serviceAPI:
		s.dialect = dialect(value)
		if s.dialect != dialectAnthropic && s.dialect != dialectOpenAI {
			return fmt.Errorf("variable %s: use %s or %s", variable, dialectAnthropic, dialectOpenAI)
		}
	}
	return nil
}

func nativeVariables(provider string) (string, bool) {
	for _, w := range wellKnown {
		if string(w.dialect) == provider {
			return w.key + " and " + w.baseURL, true
		}
	}
	return "", false
}

// providerName is the name that specifiers use for the NAME in a variable.
func providerName(s string) string {
	return strings.ReplaceAll(strings.ToLower(s), "_", "-")
}

func variableName(provider string) string {
	return strings.ReplaceAll(strings.ToUpper(provider), "-", "_")
}

// checkURL checks a base URL if there is one. It does not show it, since it may
// have a password in it.
func checkURL(variable, value string) error {
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("variable %s is not a URL that begins with https:// or http://", variable)
	}
	return nil
}

// keyless is a provider that cannot answer because it has no key.
type keyless struct{ provider, variable string }

func (k keyless) Stream(context.Context, *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		yield(nil, &model.Error{
			Provider: k.provider, Class: model.Auth,
			Message: "there is no key: set " + k.variable + " in the environment or in " + defaultEnvFile,
		})
	}
}
