package engine_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/google"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/modeltest/rules"
	"github.com/flue-go/flue/model/openai"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// dialects are the codecs, each with what its service refuses.
func dialects() []modeltest.Dialect {
	const base, key = "http://model.test", "k"
	return []modeltest.Dialect{
		{New: func(c *http.Client) model.Provider {
			return anthropic.New(anthropic.Config{Name: "test", BaseURL: base, APIKey: key, Client: c})
		}, Rules: rules.Anthropic},
		{New: func(c *http.Client) model.Provider {
			return openai.New(openai.Config{Name: "test", BaseURL: base, APIKey: key, Client: c})
		}, Rules: rules.ChatCompletions},
		{New: func(c *http.Client) model.Provider {
			return openai.NewResponses(openai.Config{Name: "test", BaseURL: base, APIKey: key, Client: c})
		}, Rules: rules.Responses},
		{New: func(c *http.Client) model.Provider {
			return google.New(google.Config{Name: "test", BaseURL: base, APIKey: key, Client: c})
		}, Rules: rules.Gemini},
	}
}

// Whatever is said, called and cut, and whatever the settings and the window are,
// no request is one that a provider would refuse for its form, in the words of
// each service, pinned messages and calls that wait are there while there is room,
// and the conversation goes on.
func TestAnyConversationIsWellFormed(tb *testing.T) {
	requests, made, services := 0, 0, dialects()
	rapid.Check(tb, func(t *rapid.T) {
		w := newWorld()
		w.every = 0
		n := &narrow{window: rapid.IntRange(800, 4000).Draw(t, "window")}
		n.use(w, true)
		n.judge = func(i int, req *model.Request) []string {
			return services[i%len(services)].Refused(context.Background(), req)
		}
		info := model.Info{ContextWindow: n.window, MaxOutput: rapid.IntRange(0, n.window).Draw(t, "output"), Images: true}
		if rapid.IntRange(0, 2).Draw(t, "known") == 0 {
			info = model.Info{}
		}
		w.infos = map[string]model.Info{"m": info}
		settings := &journal.Compaction{
			Off:           rapid.IntRange(0, 5).Draw(t, "off") == 0,
			ReserveTokens: rapid.IntRange(0, n.window*5/4).Draw(t, "reserve"), KeepRecentTokens: rapid.IntRange(0, n.window).Draw(t, "keep"),
		}
		var waiting []string
		w.tools = []engine.Tool{
			w.tool("look", func(_ context.Context, c *engine.Work) engine.Result {
				return engine.Result{Content: prose(len(c.ID), len(c.ID)*len(c.ID)%400), Failed: len(c.ID)%3 == 0}
			}),
			w.tool("dump", func(context.Context, *engine.Work) engine.Result {
				return engine.Result{Content: strings.Repeat("😀é lorem ", 2000)}
			}),
		}
		for i := range w.tools {
			w.tools[i].Shown = -1
		}
		w.render = func(engine.View) (*engine.Plan, error) {
			return &engine.Plan{Settings: journal.Settings{Model: "test/m", Compaction: settings}, Instructions: "be brief", Tools: w.tools, Waiting: waiting}, nil
		}
		n.sum = func(i int, _ *model.Request) string {
			return []string{"gist", "", strings.Repeat("gist ", 2000)}[i%3]
		}
		var plan []int // what the model does next
		calls := 0
		n.answer = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			kind := 0
			if len(plan) > 0 {
				kind, plan = plan[0], plan[1:]
			}
			calls++
			switch kind {
			case 1:
				call(yield, fmt.Sprintf("look a%d", calls))
			case 2:
				call(yield, fmt.Sprintf("look a%d", calls), fmt.Sprintf("look bbb%d {}", calls), fmt.Sprintf("none c%d x", calls))
			case 3:
				call(yield, fmt.Sprintf("dump d%d", calls))
			case 4: // the stream is cut
				yield(model.Delta{Kind: model.Text, Text: "half an ans"}, nil)
				yield(nil, &model.Error{Class: model.Invalid, Message: "broken"})
			default:
				say(yield, prose(calls, calls%90))
			}
		}
		s := memstore.New()
		e, err := w.open(s)
		if err != nil {
			t.Fatal(err)
		}
		defer stop(tb, e)
		for i := range rapid.IntRange(5, 40).Draw(t, "messages") {
			plan = rapid.SliceOfN(rapid.SampledFrom([]int{0, 0, 1, 1, 2, 3, 4}), 0, 6).Draw(t, "plan")
			a := engine.Admission{Address: chat, Submission: fmt.Sprint("sub_", i), Identity: []byte{1}, Origin: "direct", Message: journal.Message{
				Kind: journal.User, Body: fmt.Sprintf("m%d %s", i, prose(i, rapid.IntRange(0, 120).Draw(t, "words"))), Pinned: rapid.IntRange(0, 6).Draw(t, "pin") == 0,
			}}
			for k := range rapid.IntRange(-3, 2).Draw(t, "images") {
				addImage(&a, 10*i+k)
			}
			if rapid.IntRange(0, 9).Draw(t, "command") == 0 {
				a.Message = journal.Message{Kind: journal.Signal, Type: journal.SignalCompaction, Attributes: map[string]string{engine.CommandDo: engine.CommandCompact}}
			}
			if calls > 0 && rapid.IntRange(0, 4).Draw(t, "wait") == 0 {
				waiting = append(waiting, fmt.Sprintf("a%d", calls))
			}
			if _, err := e.Admit(context.Background(), a); err != nil {
				t.Fatal(err)
			}
			settled(tb, e, chat, a.Submission)
		}
		if len(n.faults) > 0 {
			t.Fatalf("%q", n.faults[:min(len(n.faults), 3)])
		}
		requests += n.requests
		made += len(n.summaries)
		// Whatever became of those, a small one is answered.
		plan = nil
		id := send(tb, e, chat, "and now")
		if got := settled(tb, e, chat, id); got != "completed" {
			t.Fatalf("the next message settled %s: %s", got, lastError(tb, s))
		}
	})
	tb.Logf("%d requests, %d summaries", requests, made)
}

// lastError is the error of the latest settlement.
func lastError(t testing.TB, s store.Store) string {
	t.Helper()
	last := ""
	for _, r := range records(t, s, chat) {
		if r, ok := r.(*journal.Settled); ok {
			last = string(r.Error)
		}
	}
	return last
}
