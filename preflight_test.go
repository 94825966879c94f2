package flue_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

func TestPreflight(t *testing.T) {
	agent := func(name string, render func(r *flue.Render)) *flue.Agent {
		return &flue.Agent{Name: name, Render: func(r *flue.Render) string { render(r); return "" }}
	}
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{
			agent("good", func(r *flue.Render) {
				flue.UseModel(r, "fake/m", flue.ModelOptions{Fallbacks: []string{"fake/n"}})
				flue.UseDispatchMessage(r)
			}),
			agent("bad", func(r *flue.Render) { flue.UseModel(r, "nobody/m") }),
			agent("fallback", func(r *flue.Render) { flue.UseModel(r, "fake/m", flue.ModelOptions{Fallbacks: []string{"nobody/m"}}) }),
			agent("chooses", func(r *flue.Render) { flue.UseModel(r, flue.UseDelivery(r).Body) }),
			agent("panics", func(*flue.Render) { panic("no data") }),
			agent("none", func(*flue.Render) {}),
		},
		Providers: map[string]model.Provider{"fake": script.New()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	for _, tt := range []struct {
		agent string
		want  []string
		fails bool
	}{
		{"good", []string{"fake/m", "fake/n"}, false},
		{"bad", []string{"nobody/m"}, true},
		{"fallback", []string{"fake/m", "nobody/m"}, true},
		{"chooses", nil, false},
		{"panics", nil, false},
		{"none", nil, false},
	} {
		got, err := rt.Preflight(tt.agent)
		var refused *flue.ModelError
		if !slices.Equal(got, tt.want) || errors.As(err, &refused) != tt.fails || (err != nil) != tt.fails {
			t.Errorf("%s: %q, %v; want %q, failing %v", tt.agent, got, err, tt.want, tt.fails)
		}
	}
	if _, err := rt.Preflight("nobody"); err == nil {
		t.Error("an agent that is not there")
	}
}
