package flue

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/near"
	"github.com/flue-go/flue/model"
)

// A ModelError says that a model cannot be asked: there is no such provider,
// or it is not set up. It is found before a request is made.
type ModelError struct {
	Model  string // the specifier
	Reason string // with what to do about it
	Err    error  // what the provider says, if it is there
}

func (e *ModelError) Error() string { return fmt.Sprintf("model %q: %s", e.Model, e.Reason) }

// Unwrap returns the cause.
func (e *ModelError) Unwrap() error { return e.Err }

// models finds the provider and the data of a model specifier.
type models struct {
	providers map[string]model.Provider // as they were given
	wrapped   map[string]model.Provider // as they are asked
	catalog   func(provider, id string) (model.Info, bool)
	similar   func(provider, id string) []string
	strict    bool // see Config.StrictModels
	log       *slog.Logger

	mu     sync.Mutex
	warned map[string]bool // specifiers
}

// maxWarned bounds the models that are warned of: an agent may take the name of
// its model from whoever talks to it.
const maxWarned = 1000

// newModels puts the middleware around the providers.
func newModels(cfg *Config, log *slog.Logger) (*models, error) {
	m := &models{
		providers: maps.Clone(cfg.Providers), wrapped: maps.Clone(cfg.Providers),
		catalog: cfg.Catalog, similar: cfg.Similar, strict: cfg.StrictModels, log: log, warned: make(map[string]bool),
	}
	for _, name := range slices.Sorted(maps.Keys(m.providers)) {
		if p, ok := m.providers[name].(model.Named); ok && p.Name() != "" && p.Name() != name {
			log.Warn("a provider is registered under another name than its own: what its models send for themselves, such as signed reasoning, is not sent back to them; give it this name in its Config",
				"registered", name, "name", p.Name())
		}
	}
	for i := len(cfg.Middleware) - 1; i >= 0; i-- {
		if cfg.Middleware[i] == nil {
			return nil, fmt.Errorf("flue: Config.Middleware has a nil function at %d", i)
		}
		for name, p := range m.wrapped {
			if p == nil {
				continue
			}
			if m.wrapped[name] = cfg.Middleware[i](name, p); m.wrapped[name] == nil {
				return nil, fmt.Errorf("flue: the function at %d of Config.Middleware returned nil for the provider %q", i, name)
			}
		}
	}
	return m, nil
}

// Resolve implements [engine.Resolver].
func (m *models) Resolve(specifier string) (engine.Model, error) {
	name, id := model.SplitSpecifier(specifier)
	if err := m.check(specifier, name, id); err != nil {
		return engine.Model{}, err
	}
	resolved := engine.Model{Provider: m.wrapped[name], Origin: model.Origin{Provider: name, Model: id}}
	for _, p := range [...]model.Provider{m.providers[name], m.wrapped[name]} {
		if r, ok := p.(model.LossReporter); ok {
			resolved.Losses = r
		}
	}
	known := false
	if m.catalog != nil {
		resolved.Info, known = m.catalog(name, id)
	}
	if known {
		return resolved, nil
	}
	if m.strict {
		if err := m.listed(specifier, name, id); err != nil {
			return engine.Model{}, err
		}
	}
	resolved.Similar = m.likes(name, id)
	if m.catalog != nil {
		m.warn(specifier, resolved.Similar)
	}
	return resolved, nil
}

// likes names models like one that is not known.
func (m *models) likes(name, id string) []string {
	if m.similar == nil {
		return nil
	}
	return m.similar(name, id)
}

// listed refuses a model that is in no list of its provider.
func (m *models) listed(specifier, name, id string) error {
	var ids []string
	for _, p := range [...]model.Provider{m.providers[name], m.wrapped[name]} {
		if l, ok := p.(model.Lister); ok {
			ids = append(ids, l.ModelIDs()...)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids) // without middleware they are one
	for _, pattern := range ids {
		if begin, all := strings.CutSuffix(pattern, "*"); pattern == id || all && strings.HasPrefix(id, begin) {
			return nil
		}
	}
	reason := fmt.Sprintf("nobody lists this model of %q, and Config.StrictModels refuses those", name)
	if len(ids) > 0 {
		reason += "; the provider has " + strings.Join(ids, ", ")
	}
	if likes := m.likes(name, id); len(likes) > 0 {
		reason += "; the catalog has " + strings.Join(likes, ", ") + " (did you mean one of these?)"
	}
	return &ModelError{Model: specifier, Reason: reason + "; if it is there, have Config.Catalog tell of it"}
}

// check refuses a model of a provider that is not there or cannot be used.
func (m *models) check(specifier, name, id string) error {
	if name == "" {
		return &ModelError{Model: specifier, Reason: `write it as "provider/model", such as "anthropic/claude-haiku-4-5"`}
	}
	p := m.providers[name]
	if p == nil {
		return &ModelError{Model: specifier, Reason: m.unknown(name)}
	}
	for _, p := range [...]model.Provider{p, m.wrapped[name]} {
		if c, ok := p.(model.Checker); ok {
			if err := c.Check(id); err != nil {
				return &ModelError{Model: specifier, Reason: reason(err), Err: err}
			}
		}
	}
	return nil
}

// reason is what a provider says of itself.
func reason(err error) string {
	if u, ok := err.(*model.Error); ok && u.Message != "" {
		return fmt.Sprintf("the provider %q cannot be used: %s", u.Provider, u.Message)
	}
	return err.Error()
}

// unknown says of a name that no provider has which ones there are.
func (m *models) unknown(name string) string {
	var usable, missing []string
	for _, n := range slices.Sorted(maps.Keys(m.providers)) {
		switch p := m.providers[n].(type) {
		case nil:
		case *model.Unavailable:
			missing = append(missing, n+needs(p))
		default:
			usable = append(usable, n)
		}
	}
	s := fmt.Sprintf("there is no provider %q", name)
	if similar := near.Names(name, slices.Collect(maps.Keys(m.providers))); len(similar) > 0 {
		s += fmt.Sprintf(" (did you mean %q?)", similar[0])
	}
	s += "; this program has " + orNone(usable)
	if len(missing) > 0 {
		s += "; it knows but cannot use " + strings.Join(missing, ", ")
	}
	return s
}

// needs is what a provider that is not set up needs, for a list.
func needs(u *model.Unavailable) string {
	if len(u.Variables) == 0 {
		return ""
	}
	return " (set " + strings.Join(u.Variables, " or ") + ")"
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// warn says once of a model that nothing is known of it. It is used all the
// same: models are newer than catalogs.
func (m *models) warn(specifier string, similar []string) {
	m.mu.Lock()
	seen := m.warned[specifier] || len(m.warned) >= maxWarned
	if !seen {
		m.warned[specifier] = true
	}
	m.mu.Unlock()
	if seen {
		return
	}
	attrs := []slog.Attr{slog.String("model", specifier)}
	if len(similar) > 0 {
		attrs = append(attrs, slog.Any("similar", similar))
	}
	m.log.LogAttrs(context.Background(), slog.LevelWarn, "the catalog does not know this model: it is asked, but its context window, output limit and price are unknown", attrs...)
}
