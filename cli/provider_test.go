package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/openai"
	"github.com/flue-go/flue/model/script"
)

func TestNewModels(t *testing.T) {
	demo, own := script.New(), script.New()
	kind := func(p model.Provider) string {
		switch p := p.(type) {
		case *anthropic.Provider, *openai.Provider:
			return strings.TrimPrefix(fmt.Sprintf("%T", p), "*")
		case keyless:
			return "none: " + p.variable
		case *script.Provider:
			if p == own {
				return "own"
			}
			return "demo"
		}
		return fmt.Sprintf("%T", p)
	}
	tests := []struct {
		name    string
		app     App
		env     []string
		want    map[string]string
		missing map[string]string
	}{
		{
			name: "nothing set", app: App{},
			want:    map[string]string{"anthropic": "none: ANTHROPIC_API_KEY", "openai": "none: OPENAI_API_KEY"},
			missing: map[string]string{"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"},
		},
		{
			name: "a demo", app: App{Demo: demo}, env: []string{"OPENAI_API_KEY=k"},
			want:    map[string]string{"anthropic": "demo", "openai": "openai.Provider"},
			missing: map[string]string{"anthropic": "ANTHROPIC_API_KEY"},
		},
		{
			name: "an empty key is none", app: App{Demo: demo}, env: []string{"ANTHROPIC_API_KEY=", "OPENAI_API_KEY=k"},
			want:    map[string]string{"anthropic": "demo", "openai": "openai.Provider"},
			missing: map[string]string{"anthropic": "ANTHROPIC_API_KEY"},
		},
		{
			name: "a server without a key", app: App{Demo: demo}, env: []string{"ANTHROPIC_BASE_URL=http://127.0.0.1:1", "OPENAI_BASE_URL=https://gateway.example/v1"},
			want:    map[string]string{"anthropic": "anthropic.Provider", "openai": "openai.Provider"},
			missing: map[string]string{},
		},
		{
			name: "compatible servers", app: App{Demo: demo},
			env: []string{
				"FLUE_PROVIDER_OLLAMA_BASE_URL=http://127.0.0.1:11434/v1",
				"FLUE_PROVIDER_MY_GATEWAY_BASE_URL=https://gateway.example", "FLUE_PROVIDER_MY_GATEWAY_API_KEY=k", "FLUE_PROVIDER_MY_GATEWAY_API=anthropic",
			},
			want:    map[string]string{"anthropic": "demo", "openai": "demo", "ollama": "openai.Provider", "my-gateway": "anthropic.Provider"},
			missing: map[string]string{"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"},
		},
		{
			name: "the program's own", app: App{Demo: demo, Providers: map[string]model.Provider{"anthropic": own, "local": own}}, env: []string{"ANTHROPIC_API_KEY=k"},
			want:    map[string]string{"anthropic": "own", "local": "own", "openai": "demo"},
			missing: map[string]string{"openai": "OPENAI_API_KEY"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := newModels(&tt.app, tt.env)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, name := range slices.Sorted(maps.Keys(m.providers)) {
				got[name] = kind(m.providers[name])
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("providers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.missing, m.missing); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
			for name := range m.providers {
				variable, scripted := m.scripted(name + "/model")
				if want := got[name] == "demo"; scripted != want || (scripted && variable != tt.missing[name]) {
					t.Errorf("scripted(%s) = %q, %v", name, variable, scripted)
				}
			}
		})
	}
}

func TestNewModelsErrors(t *testing.T) {
	tests := []struct{ name, env, want string }{
		{"no address", "FLUE_PROVIDER_OLLAMA_API_KEY=secret", "provider ollama has no address: set FLUE_PROVIDER_OLLAMA_BASE_URL"},
		{"a typing error", "FLUE_PROVIDER_OLLAMA_URL=http://secret", "FLUE_PROVIDER_OLLAMA_URL is not one of"},
		{"no name", "FLUE_PROVIDER_BASE_URL=http://secret", "FLUE_PROVIDER_BASE_URL is not one of"},
		{"another wire format", "FLUE_PROVIDER_X_API=secret", "variable FLUE_PROVIDER_X_API: use anthropic or openai"},
		{"no URL", "FLUE_PROVIDER_X_BASE_URL=secret", "variable FLUE_PROVIDER_X_BASE_URL is not a URL"},
		{"another scheme", "ANTHROPIC_BASE_URL=ftp://secret", "variable ANTHROPIC_BASE_URL is not a URL"},
		{"a URL that cannot be parsed", "OPENAI_BASE_URL=http://user:secret@[", "variable OPENAI_BASE_URL is not a URL"},
		{"a well-known one", "FLUE_PROVIDER_OPENAI_BASE_URL=http://secret", "the provider openai is set up with OPENAI_API_KEY and OPENAI_BASE_URL instead"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newModels(&App{}, []string{tt.env})
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v, want one with %q and without the value", err, tt.want)
			}
		})
	}
}
