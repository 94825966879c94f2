package flue_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// A lossy is a provider that cannot tell its model of alternatives.
type lossy struct{ model.Provider }

func (lossy) Losses(tools []model.Tool) []model.Loss {
	var losses []model.Loss
	for _, t := range tools {
		if strings.Contains(string(t.Schema), "anyOf") {
			losses = append(losses, model.Loss{Tool: t.Name, Path: "/properties/order/anyOf", Text: "alternatives are lost"})
		}
	}
	return losses
}

// What a model cannot be told of a tool is logged once, also when a middleware
// stands before its provider. The arguments are checked for it all the same.
func TestSchemaThatTheProviderCannotSay(t *testing.T) {
	type args struct {
		Order any `json:"order"`
	}
	input, err := flue.ParseSchema([]byte(`{"type":"object","properties":{"order":{"anyOf":[{"type":"integer"},{"type":"string","minLength":3}]}},"required":["order"]}`))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	find := flue.NewTool(flue.Tool{Name: "find", Description: "Find one.", Input: input}, func(context.Context, args) (string, error) {
		ran++
		return "found", nil
	})
	agent := &flue.Agent{Name: "actor", Render: func(r *flue.Render) string {
		flue.UseModel(r, "fake/m")
		flue.UseTool(r, find)
		return ""
	}}
	p := script.New(script.Call("find", map[string]any{"order": "A"}), script.Call("find", map[string]any{"order": 7}), script.Say("done"))
	var log bytes.Buffer
	reply, err := askOnce(t, flue.Config{
		Agents: []*flue.Agent{agent}, Providers: map[string]model.Provider{"fake": lossy{p}}, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Middleware: []model.Middleware{func(_ string, next model.Provider) model.Provider { return model.StreamFunc(next.Stream) }},
	}, "find it")
	if err != nil || reply.Text != "done" || ran != 1 {
		t.Errorf("reply %v, %v; the tool ran %d times, want once, with the second arguments", reply, err, ran)
	}
	if n := strings.Count(log.String(), "/properties/order/anyOf: alternatives are lost"); n != 1 || !strings.Contains(log.String(), "tool=find provider=fake") {
		t.Errorf("told %d times, want once:\n%s", n, log.String())
	}
}
