package cli

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

func TestNewModels(t *testing.T) {
	demo, own := script.New(), script.New()
	kind := func(p model.Provider) string {
		switch p {
		case demo:
			return "demo"
		case own:
			return "own"
		}
		if _, ok := p.(*model.Unavailable); ok {
			return "none"
		}
		return "real"
	}
	// What is told of these, whatever else there is.
	names := []string{"anthropic", "openai", "ollama", "amazon-bedrock", "local"}
	tests := []struct {
		name    string
		app     App
		env     []string
		want    map[string]string
		missing map[string]string
	}{
		{
			name: "nothing set", app: App{},
			want: map[string]string{"anthropic": "none", "openai": "none", "ollama": "real", "amazon-bedrock": "none"},
		},
		{
			name: "a demo", app: App{Demo: demo}, env: []string{"OPENAI_API_KEY=k"},
			want:    map[string]string{"anthropic": "demo", "openai": "real", "ollama": "real", "amazon-bedrock": "none"},
			missing: map[string]string{"anthropic": "ANTHROPIC_API_KEY"},
		},
		{
			name: "the program's own", app: App{Demo: demo, Providers: map[string]model.Provider{"anthropic": own, "local": own}}, env: []string{"ANTHROPIC_API_KEY=k"},
			want:    map[string]string{"anthropic": "own", "openai": "demo", "ollama": "real", "amazon-bedrock": "none", "local": "own"},
			missing: map[string]string{"openai": "OPENAI_API_KEY"},
		},
		{
			name: "one that the program has set up itself, without a key",
			app:  App{Demo: demo, Providers: map[string]model.Provider{"local": &model.Unavailable{Name: "local", Variables: []string{"A", "B"}}}},
			want: map[string]string{"anthropic": "demo", "openai": "demo", "ollama": "real", "amazon-bedrock": "none", "local": "demo"},
			missing: map[string]string{
				"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY", "local": "A or B",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := newModels(&tt.app, tt.env)
			if err != nil {
				t.Fatal(err)
			}
			got, missing := map[string]string{}, map[string]string{}
			for _, name := range names {
				if p, ok := m.providers[name]; ok {
					got[name] = kind(p)
				}
				if variable, ok := m.scripted(name + "/model"); ok {
					missing[name] = variable
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("providers (-want +got):\n%s", diff)
			}
			want := maps.Clone(tt.missing)
			if want == nil {
				want = map[string]string{}
			}
			if diff := cmp.Diff(want, missing); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := newModels(&App{}, []string{"FLUE_PROVIDER_X_API_KEY=k"}); err == nil {
		t.Error("a provider without an address was accepted")
	}
}

// The demo costs nothing, whoever it stands in for, and the App's own catalog
// takes the place of the one that is built in.
func TestCatalog(t *testing.T) {
	m, err := newModels(&App{Demo: script.New()}, []string{"OPENAI_API_KEY=k"})
	if err != nil {
		t.Fatal(err)
	}
	if info, known := m.lookup("anthropic", "claude-haiku-4-5"); !known || !info.Cost.Free || info.ContextWindow == 0 {
		t.Errorf("the demo: %+v, %v", info, known)
	}
	if info, known := m.lookup("openai", "gpt-5"); !known || info.Cost.Free || info.Cost.Input == 0 {
		t.Errorf("a real model: %+v, %v", info, known)
	}
	own := App{Catalog: func(string, string) (model.Info, bool) { return model.Info{ContextWindow: 7}, true }}
	if m, err = newModels(&own, nil); err != nil {
		t.Fatal(err)
	}
	if info, _ := m.lookup("openai", "gpt-5"); info.ContextWindow != 7 {
		t.Errorf("the App's catalog: %+v", info)
	}
}
