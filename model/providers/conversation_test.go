package providers_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/catalog"
	"github.com/flue-go/flue/model/providers"
)

// streams are the recorded answers of each API, by the end of its path: one that
// asks for tools, and one of text.
var streams = map[string][2]string{
	"/messages":              {"../anthropic/testdata/tools.sse", "../anthropic/testdata/text.sse"},
	"/chat/completions":      {"../openai/testdata/tools.sse", "../openai/testdata/text.sse"},
	"/responses":             {"../openai/testdata/responses/tools.sse", "../openai/testdata/responses/text.sse"},
	":streamGenerateContent": {"../google/testdata/tools.sse", "../google/testdata/text.sse"},
}

// serve answers requests with recorded streams, in turn.
func serve(t *testing.T) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		for end, files := range streams {
			if !strings.HasSuffix(path.Clean(r.URL.Path), end) {
				continue
			}
			n := requests.Add(1) - 1
			if n == 1 && !strings.Contains(string(body), "The clock says noon") {
				t.Errorf("the second request does not have the tool's result: %s", body)
			}
			answer, err := os.ReadFile(files[min(n, 1)])
			if err != nil {
				t.Error(err)
			}
			w.Header().Set("Content-Type", "text/event-stream")
			if _, err := w.Write(answer); err != nil {
				t.Error(err)
			}
			return
		}
		http.Error(w, "nobody answers at "+r.URL.Path, http.StatusNotFound)
	}))
	t.Cleanup(s.Close)
	return s, &requests
}

// An agent of each provider of the table holds a conversation with a server that
// plays what was recorded of its API: it calls tools, is given their results, and
// answers.
func TestConversations(t *testing.T) {
	lookup := flue.NewTool(flue.Tool{Name: "lookup_order", Description: "Look up an order.", Idempotent: true}, func(context.Context, map[string]any) (string, error) { return "shipped", nil })
	now := flue.NewTool(flue.Tool{Name: "now", Description: "The time.", Idempotent: true}, func(context.Context, struct{}) (string, error) { return "The clock says noon.", nil })
	for _, s := range providers.Known() {
		if s.API == "" {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			server, requests := serve(t)
			name := strings.ReplaceAll(strings.ToUpper(s.Name), "-", "_")
			env := []string{
				"FLUE_PROVIDER_" + name + "_BASE_URL=" + server.URL + "/v1", "FLUE_PROVIDER_" + name + "_API_KEY=the-key",
			}
			if s.API == providers.GoogleVertex {
				env = append(env[:1], "GOOGLE_CLOUD_PROJECT=the-project", "GOOGLE_CLOUD_ACCESS_TOKEN=the-token")
			}
			ps, err := providers.FromEnv(env)
			if err != nil {
				t.Fatal(err)
			}
			agent := &flue.Agent{Name: "clerk", Render: func(r *flue.Render) string {
				flue.UseModel(r, s.Name+"/some-model")
				flue.UseTool(r, lookup)
				flue.UseTool(r, now)
				return "Help."
			}}
			var used model.Usage
			rt, err := flue.Open(t.Context(), flue.Config{
				Agents: []*flue.Agent{agent}, Providers: ps, Catalog: catalog.Lookup, Log: slog.New(slog.DiscardHandler), Retries: -1,
				Observe: func(ev flue.Event) {
					if ev.Type == flue.EventTurnDone {
						used = used.Add(ev.Usage)
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close(context.WithoutCancel(t.Context()))
			r, err := rt.Dispatch(t.Context(), "clerk", "one", flue.User("Where are my orders?"))
			if err != nil {
				t.Fatal(err)
			}
			reply, err := rt.Instance("clerk", "one").Read(t.Context(), r.Submission)
			if err != nil {
				t.Fatal(err)
			}
			if err := rt.Close(t.Context()); err != nil { // all events are told
				t.Fatal(err)
			}
			if !strings.HasSuffix(reply.Text, "Ask away.") || requests.Load() != 2 || used.Input == 0 || used.Output == 0 {
				t.Errorf("reply %q after %d requests, used %+v", reply.Text, requests.Load(), used)
			}
		})
	}
}
