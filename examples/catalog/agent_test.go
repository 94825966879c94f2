package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/cli"
	"github.com/flue-go/flue/model"
)

// A server that hangs costs the conversation the tool's time and no more: the
// model is told, the request is given up, and the next message is answered.
func TestHangingServer(t *testing.T) {
	givenUp := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		products(w, r)
		if r.Context().Err() != nil {
			close(givenUp)
		}
	}))
	defer server.Close()
	ask := opened(t, server.URL, 50*time.Millisecond)

	got := ask("What does HNG-01 cost?")
	if want := `I could not look it up: Tool "lookup_catalog" timed out after 50ms`; !strings.HasPrefix(got, want) {
		t.Errorf("the model says %q, want %q", got, want)
	}
	select {
	case <-givenUp:
	case <-time.After(10 * time.Second):
		t.Error("the request still runs")
	}
	if got, want := ask("And KET-01?"), "The pour-over kettle costs 89.00 EUR."; !strings.HasPrefix(got, want) {
		t.Errorf("then the model says %q, want %q", got, want)
	}
}

func TestFailures(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ERR-01":
			http.Error(w, "secret details", http.StatusInternalServerError)
		case "/BAD-01":
			_, _ = w.Write([]byte("<html>"))
		default:
			products(w, r)
		}
	}))
	defer server.Close()
	ask := opened(t, server.URL, time.Minute)
	for _, tt := range []struct{ message, want string }{
		{"XXX-99?", "there is no product XXX-99"},
		{"ERR-01?", "the catalog answered 500 Internal Server Error"},
		{"BAD-01?", "reading the catalog's answer"},
	} {
		if got := ask(tt.message); !strings.Contains(got, tt.want) || strings.Contains(got, "secret") {
			t.Errorf("%s: the model says %q, want %q", tt.message, got, tt.want)
		}
	}
}

// opened returns a function that asks an assistant of the catalog.
func opened(t *testing.T, catalog string, timeout time.Duration) func(message string) string {
	t.Helper()
	base, err := url.Parse(catalog)
	if err != nil {
		t.Fatal(err)
	}
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{assistant(base, timeout)}, Providers: map[string]model.Provider{"anthropic": newDemo()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(t.Context()) })
	in := rt.Instance("catalog-assistant", "a")
	return func(message string) string {
		t.Helper()
		receipt, err := in.Dispatch(t.Context(), flue.User(message))
		if err != nil {
			t.Fatal(err)
		}
		reply, err := in.Read(t.Context(), receipt.Submission)
		if err != nil {
			t.Fatal(err)
		}
		return reply.Text
	}
}

func TestRunWithoutKey(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "")
	t.Setenv("ANTHROPIC_BASE_URL", "")
	for _, tt := range []struct{ message, want string }{
		{"What does KET-01 cost?", "The pour-over kettle costs 89.00 EUR."},
		{"What does HNG-01 cost?", `I could not look it up: Tool "lookup_catalog" timed out after 100ms`},
	} {
		var stdout, stderr bytes.Buffer
		code := cli.Run(t.Context(), app(), []string{"run", "--db", ":memory:", "--timeout", "100ms", "-m", tt.message}, strings.NewReader(""), &stdout, &stderr)
		if code != 0 || !strings.HasPrefix(stdout.String(), tt.want) || !strings.HasSuffix(stdout.String(), scriptedNote+"\n") {
			t.Errorf("exit code %d and %q, want %q\n%s", code, stdout.String(), tt.want, stderr.String())
		}
	}
}
