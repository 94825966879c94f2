package model_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// Bounds of the model of the long conversation, in tokens.
const longWindow, longOutput, longMessages = 6000, 1500, 150

// A conversation that is much longer than the window of its model, with calls side
// by side, images, reasoning and answers that break off, is in order for every
// service all the time, summaries included.
func TestLongConversationOfEachCodec(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(apis)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { holdLong(t, apis[name]) })
		})
	}
}

func holdLong(t *testing.T, a api) {
	l := &longService{t: t, api: a}
	codec := a.codec(&http.Client{Transport: l})
	look := flue.NewTool(flue.Tool{Name: "look", Description: "Look something up."}, func(context.Context, struct{}) (string, error) {
		return strings.Repeat("found it ", 60), nil
	})
	agent := &flue.Agent{Name: "clerk", Render: func(r *flue.Render) string {
		flue.UseModel(r, "service/m", flue.ModelOptions{Compaction: &flue.Compaction{KeepRecentTokens: 600}})
		flue.UseTool(r, look)
		return "Help customers."
	}}
	st := memstore.New()
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{agent}, Store: st, Log: slog.New(slog.DiscardHandler),
		Catalog: func(string, string) (model.Info, bool) {
			return model.Info{ContextWindow: longWindow, MaxOutput: longOutput, Images: true}, true
		},
		Providers: map[string]model.Provider{"service": model.StreamFunc(func(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
			l.answer = l.to(req)
			return codec.Stream(ctx, req)
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	for i := range longMessages {
		var attached []flue.Attachment
		if i%20 == 7 {
			attached = append(attached, flue.Attachment{MediaType: "image/png", Data: []byte("\x89PNG\r\n\x1a\n....")})
		}
		r, err := rt.Dispatch(t.Context(), agent.Name, "one", flue.User(fmt.Sprintf("m%d %s", i, strings.Repeat("some words ", 60)), attached...))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rt.Instance(agent.Name, "one").Read(t.Context(), r.Submission); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	compactions, turns := 0, 0
	for b, err := range store.Batches(t.Context(), st, store.Address{Agent: "clerk", ID: "one"}, -1) {
		if err != nil {
			t.Fatal(err)
		}
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range batch.Records {
			switch r := r.(type) {
			case *journal.Compacted:
				if compactions++; r.Dropped {
					t.Error("a compaction without a summary")
				}
			case *journal.TurnDone:
				turns++
			}
		}
	}
	if compactions < 5 || turns < longMessages*4/3 {
		t.Errorf("%d compactions in %d turns", compactions, turns)
	}
	t.Logf("%d compactions in %d turns, the largest prompt had %d tokens", compactions, turns, l.largest)
}

// A longService answers what the request that is under way asks for.
type longService struct {
	t       *testing.T
	api     api
	answer  says
	turns   int
	largest int
}

// to is the answer to a request. What it says of the tokens is at times more than
// the engine thinks.
func (l *longService) to(req *model.Request) says {
	l.turns++
	tokens := len(req.System)/4 + 20
	for _, m := range req.Messages {
		for _, b := range m.Blocks {
			tokens += (len(b.Text)+len(b.Arguments))/4 + 4
		}
	}
	if l.turns%4 == 0 {
		tokens = tokens * 5 / 4
	}
	l.largest = max(l.largest, tokens)
	if out := req.MaxOutput; tokens+out > longWindow {
		l.t.Errorf("request %d has %d tokens and asks for %d more", l.turns, tokens, out)
	}
	a := says{stop: model.StopEnd, input: tokens, blocks: []model.Block{think("Hm."), text(strings.Repeat("an answer ", 40))}}
	switch last := req.Messages[len(req.Messages)-1]; {
	case strings.HasPrefix(req.System, "You write the summary"):
		a.blocks = []model.Block{text("They said some words.")}
	case l.turns%31 == 0:
		a.cut = true
	case last.Role == model.RoleUser && l.turns%3 == 1:
		a.stop = model.StopToolUse
		a.blocks = []model.Block{think("Two at a time."), text("Let me look."), call("look", `{}`), call("look", `{"a":1}`)}
	}
	return a
}

func (l *longService) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	for _, problem := range l.api.refuses(body) {
		l.t.Errorf("the service would refuse request %d: %s", l.turns, problem)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body: io.NopCloser(strings.NewReader(l.api.say(l.answer))),
	}, nil
}
