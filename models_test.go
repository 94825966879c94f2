package flue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/providers"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// askOnce opens a runtime, sends one message to the agent, and returns the reply.
func askOnce(t *testing.T, cfg flue.Config, text string) (*flue.Reply, error) {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	rt, err := flue.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	r, err := rt.Dispatch(t.Context(), cfg.Agents[0].Name, "one", flue.User(text))
	if err != nil {
		t.Fatal(err)
	}
	return rt.Instance(cfg.Agents[0].Name, "one").Read(t.Context(), r.Submission)
}

// A picky is a provider that has only the model "known".
type picky struct{ *script.Provider }

func (picky) Check(id string) error {
	if id != "" && id != "known" {
		return fmt.Errorf("the provider has no model %q, but known", id)
	}
	return nil
}

// A model that cannot be asked fails its response before anything is done for
// it: no hook runs and no request is made.
func TestModelThatCannotBeAsked(t *testing.T) {
	tests := []struct {
		name, model string
		options     []flue.ModelOptions
		want        []string
	}{
		{
			"no such provider", "antropic/x", nil,
			[]string{`model "antropic/x": there is no provider "antropic" (did you mean "anthropic"?)`, "this program has anthropic, picky", "groq (set GROQ_API_KEY)", "bedrock"},
		},
		{"nothing like it", "nobody/x", nil, []string{`there is no provider "nobody"; this program has`}},
		{"no key", "groq/x", nil, []string{`model "groq/x": the provider "groq" cannot be used: no key; set GROQ_API_KEY`}},
		{"not built in", "bedrock/x", nil, []string{"it is a module of its own"}},
		{"a model that the provider refuses", "picky/x", nil, []string{`model "picky/x": the provider has no model "x", but known`}},
		{"a fallback", "picky/known", []flue.ModelOptions{{Fallbacks: []string{"groq/x"}}}, []string{`fallback groq/x: model "groq/x"`, "GROQ_API_KEY"}},
		{"the model of the summaries", "picky/known", []flue.ModelOptions{{Compaction: &flue.Compaction{Model: "groq/x"}}}, []string{"GROQ_API_KEY"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ran := false
			agent := &flue.Agent{Name: "actor", Render: func(r *flue.Render) string {
				flue.UseModel(r, tt.model, tt.options...)
				flue.UseAgentStart(r, func(context.Context, *flue.AgentStart) error { ran = true; return nil })
				return ""
			}}
			p := script.New(script.Say("asked after all"))
			var events []flue.EventType
			_, err := askOnce(t, flue.Config{
				Agents: []*flue.Agent{agent},
				Providers: map[string]model.Provider{
					"anthropic": p, "picky": picky{p}, "void": nil,
					"groq":    &model.Unavailable{Name: "groq", Variables: []string{"GROQ_API_KEY"}},
					"bedrock": &model.Unavailable{Name: "bedrock", Reason: "it is a module of its own"},
				},
				Observe: func(ev flue.Event) { events = append(events, ev.Type) },
			}, "hello")
			var ended *flue.SubmissionError
			if !errors.As(err, &ended) || ended.Code != flue.CodeOperationFailed {
				t.Fatalf("error %v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(ended.Message, want) {
					t.Errorf("%q does not say %q", ended.Message, want)
				}
			}
			if ran {
				t.Error("a start hook ran")
			}
			for _, ev := range events {
				if ev == flue.EventTurnStarted {
					t.Error("a model was asked")
				}
			}
		})
	}
}

// A model that the catalog does not know is asked, and the log says so once.
func TestModelThatIsNotInTheCatalog(t *testing.T) {
	var log bytes.Buffer
	var told []model.Expense
	agent := plain(func(*flue.Render) {})
	_, err := askOnce(t, flue.Config{
		Agents: []*flue.Agent{agent}, Providers: map[string]model.Provider{"fake": script.New(script.Call("x", nil), script.Say("ok"))},
		Catalog: func(string, string) (model.Info, bool) { return model.Info{}, false },
		Similar: func(provider, id string) []string { return []string{provider + " " + id + "-2"} },
		Log:     slog.New(slog.NewTextHandler(&log, nil)),
		Observe: func(ev flue.Event) {
			if ev.Type == flue.EventTurnDone {
				told = append(told, ev.Cost)
			}
		},
	}, "hello")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "does not know this model"); n != 1 || !strings.Contains(log.String(), "fake any-2") {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
	if want := []model.Expense{{Unknown: 1}, {Unknown: 1}}; !cmp.Equal(told, want) {
		t.Errorf("costs %+v, want %+v", told, want)
	}
}

// With StrictModels a model that nobody lists is refused before a request, with
// those that there are. A provider's own list is as good as the catalog's.
func TestStrictModels(t *testing.T) {
	for specifier, want := range map[string]string{
		"fake/known":   "",
		"fake/mine":    "",
		"fake/mine-2b": "",
		"fake/knwon":   `model "fake/knwon": nobody lists this model of "fake", and Config.StrictModels refuses those; the provider has mine, mine-2*; the catalog has known (did you mean one of these?)`,
	} {
		asked := 0
		agent := &flue.Agent{Name: "actor", Render: func(r *flue.Render) string {
			flue.UseModel(r, specifier)
			return ""
		}}
		_, err := askOnce(t, flue.Config{
			Agents: []*flue.Agent{agent}, StrictModels: true,
			Providers: map[string]model.Provider{"fake": lister{script.New(script.Func(func(*model.Request) script.Turn {
				asked++
				return script.Say("ok")
			}))}},
			Catalog: func(_, id string) (model.Info, bool) { return model.Info{}, id == "known" },
			Similar: func(string, string) []string { return []string{"known"} },
		}, "hello")
		if want == "" && (err != nil || asked != 1) || want != "" && (err == nil || !strings.Contains(err.Error(), want) || asked > 0) {
			t.Errorf("%s: asked %d times, error %v", specifier, asked, err)
		}
	}
}

type lister struct{ *script.Provider }

func (lister) ModelIDs() []string { return []string{"mine", "mine-2*"} }

// When neither the catalog nor the provider has a model, the error names some like
// it.
func TestModelThatTheProviderDoesNotHave(t *testing.T) {
	_, err := askOnce(t, flue.Config{
		Agents:    []*flue.Agent{plain(func(*flue.Render) {})},
		Providers: map[string]model.Provider{"fake": script.New(script.Fail(&model.Error{Class: model.Invalid, Status: 404, Message: "no such model"}))},
		Similar:   func(string, string) []string { return []string{"any-2", "any-3"} },
	}, "hello")
	if err == nil || !strings.Contains(err.Error(), "404: no such model; models with such a name: any-2, any-3") {
		t.Errorf("error %v", err)
	}
}

// Middleware stands around each provider, the first outermost, and what a model
// has sent is sent back to it under the name of the provider.
func TestMiddleware(t *testing.T) {
	var mu sync.Mutex
	var calls []string
	tag := func(name string) model.Middleware {
		return func(provider string, next model.Provider) model.Provider {
			return model.StreamFunc(func(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
				mu.Lock()
				calls = append(calls, name+" "+provider+"/"+req.Model)
				mu.Unlock()
				return next.Stream(ctx, req)
			})
		}
	}
	var origin model.Origin
	agent := plain(func(*flue.Render) {})
	st := memstore.New()
	reply, err := askOnce(t, flue.Config{
		Agents: []*flue.Agent{agent}, Store: st, Middleware: []model.Middleware{tag("outer"), tag("inner")},
		Providers: map[string]model.Provider{"fake": script.New(script.Func(func(req *model.Request) script.Turn {
			if script.Step(req) == 0 {
				return script.Call("x", nil)
			}
			origin = req.Messages[1].Origin
			return script.Say("ok")
		}))},
	}, "hello")
	if err != nil || reply.Text != "ok" {
		t.Fatalf("%v, %v", reply, err)
	}
	want := []string{"outer fake/any", "inner fake/any", "outer fake/any", "inner fake/any"}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if want := (model.Origin{Provider: "fake", Model: "any"}); origin != want {
		t.Errorf("the origin is %+v, want %+v", origin, want)
	}
	for b, err := range store.Batches(t.Context(), st, store.Address{Agent: "actor", ID: "one"}, -1) {
		if err != nil {
			t.Fatal(err)
		}
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range batch.Records {
			if r, ok := r.(*journal.TurnDone); ok && r.Provider != "fake" {
				t.Errorf("the journal has a turn of %s", r.Provider)
			}
		}
	}
}

// A middleware that does not do its part is found when the runtime is opened,
// and one may refuse models.
func TestMiddlewareThatRefuses(t *testing.T) {
	agent := plain(func(*flue.Render) {})
	providers := map[string]model.Provider{"fake": script.New(script.Say("ok")), "void": nil}
	for _, m := range []model.Middleware{nil, func(string, model.Provider) model.Provider { return nil }} {
		if _, err := flue.Open(t.Context(), flue.Config{Agents: []*flue.Agent{agent}, Providers: providers, Middleware: []model.Middleware{m}}); err == nil {
			t.Error("a middleware that is nothing was accepted")
		}
	}
	_, err := askOnce(t, flue.Config{
		Agents: []*flue.Agent{agent}, Providers: providers,
		Middleware: []model.Middleware{func(_ string, next model.Provider) model.Provider { return picky{next.(*script.Provider)} }},
	}, "hello")
	if err == nil || !strings.Contains(err.Error(), "but known") {
		t.Errorf("error %v", err)
	}
}

// A provider that is registered under a name that it does not know loses what its
// models send for themselves. The log says so.
func TestProviderUnderAnotherName(t *testing.T) {
	for name, want := range map[string]bool{"fast": true, "anthropic": false} {
		var log bytes.Buffer
		p := providers.Only(anthropic.New(anthropic.Config{Name: "anthropic", BaseURL: "http://model.test", APIKey: "k"}), "*")
		rt, err := flue.Open(t.Context(), flue.Config{
			Agents: []*flue.Agent{{Name: "a", Render: func(*flue.Render) string { return "" }}}, Providers: map[string]model.Provider{name: p},
			Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := rt.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "registered under another name than its own"); got != want {
			t.Errorf("%s: warned is %v: %s", name, got, log.String())
		}
	}
}
