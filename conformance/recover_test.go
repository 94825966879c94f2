package conformance_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/conformance/modelserver"
	"github.com/flue-go/flue/conformance/transcript"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/openai"
	"github.com/flue-go/flue/store/memstore"
)

// A process serves one agent from a store until it is killed.
type process struct {
	*httptest.Server
	rt *flue.Runtime
}

func serve(t *testing.T, agent *flue.Agent, path, models string, s *memstore.Store, observe func(flue.Event)) *process {
	t.Helper()
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{agent}, Store: s, Observe: observe, Grace: 100 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		Providers: map[string]model.Provider{"mock": openai.New(openai.Config{BaseURL: models + "/v1", Name: "mock"})},
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(path+"/", http.StripPrefix(path, rt.Handler(agent.Name)))
	return &process{httptest.NewServer(mux), rt}
}

// end ends the process. Its store must be another one's by then if it is to
// write no more.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.rt.Close(ctx); err != nil {
		t.Errorf("closing the runtime: %v", err)
	}
}

func (p *process) do(t *testing.T, method, target, body string) *transcript.Exchange {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, p.URL+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %s, %v\n%s", method, target, resp.Status, err, b)
	}
	return &transcript.Exchange{Method: method, Target: target, Response: &transcript.Response{Status: resp.StatusCode, Header: resp.Header, Body: b}}
}

// history waits until n submissions have ended, and reads the conversation.
func (p *process) history(t *testing.T, path string, n int) *transcript.Exchange {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		x := p.do(t, "GET", path+"?view=history", "")
		if settled, _ := decode(t, x.Response.Body)["settlements"].([]any); len(settled) >= n {
			return x
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d submissions have not ended:\n%s", n, x.Response.Body)
		}
	}
}

// What a client sees of a conversation whose server was killed while a tool ran
// is what was recorded: an ordinary call has an unknown outcome, a durable one is
// completed, and of its steps nothing shows.
func TestRecovery(t *testing.T) {
	tests := []struct {
		name  string
		mount string
		at    flue.EventType // the process dies when it has been told this
		times int
	}{
		{"53-recover-plain-tool", "tool", flue.EventToolStarted, 1},
		{"54-recover-durable-tool", "durable", flue.EventLog, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			recorded := recording(t, tt.name)
			var posts []*transcript.Exchange
			for _, x := range recorded.Exchanges {
				if x.Method == "POST" && x.Response != nil {
					posts = append(posts, x)
				}
			}
			path := posts[0].Target
			models := httptest.NewServer(new(modelserver.Server))
			defer models.Close()
			s := memstore.New()
			reached, seen := make(chan struct{}), 0
			p := serve(t, mounts[tt.mount], "/agents/"+tt.mount, models.URL, s, func(ev flue.Event) {
				if ev.Type == tt.at {
					if seen++; seen == tt.times {
						close(reached)
					}
				}
			})
			p.do(t, "POST", path, string(posts[0].Body))
			p.history(t, path, 1)
			p.do(t, "POST", path, string(posts[1].Body))
			select {
			case <-reached:
			case <-time.After(time.Minute):
				t.Fatal("the tool was never at work")
			}
			s = s.Reopen() // what the process has not written yet it never writes
			p.end(t)

			p = serve(t, mounts[tt.mount], "/agents/"+tt.mount, models.URL, s, nil)
			defer func() { p.end(t) }()
			for n := 2; n <= len(posts); n++ {
				if n > 2 {
					p.do(t, "POST", path, string(posts[n-1].Body))
				}
				p.history(t, path, n)
			}
			got := []*transcript.Exchange{p.do(t, "GET", path+"?view=updates&offset=-1", ""), p.history(t, path, len(posts))}
			c := &scenario{t: t, name: tt.name, recorded: recorded, got: got}
			c.histories()
			c.updates()
			if n := reads(recorded.Exchanges, path); n == 0 {
				t.Error("the recording has no history to compare with")
			}
		})
	}
}

// reads counts the histories of a conversation that were read.
func reads(xs []*transcript.Exchange, path string) (n int) {
	for _, x := range xs {
		if u, err := url.ParseRequestURI(x.Target); err == nil && isRead(x) && u.Path == path && u.Query().Get("view") == "history" {
			n++
		}
	}
	return n
}
