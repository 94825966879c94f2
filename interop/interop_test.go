package interop_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/google/go-cmp/cmp"
)

// answer is what a codec and an SDK must agree on.
type answer struct {
	Text      string
	Reasoning string
	Calls     []call
	Stop      model.StopReason
	Usage     model.Usage
}

type call struct {
	ID, Name string
	Args     any
}

// args decodes arguments; both sides may write no arguments as nothing or {}.
func args(raw string) any {
	var v any
	if json.Unmarshal([]byte(raw), &v) != nil {
		return raw
	}
	return v
}

// summarize reduces what a codec received.
func summarize(a modeltest.Answer) answer {
	out := answer{Stop: a.Done.Stop, Usage: a.Done.Usage}
	for _, b := range a.Blocks {
		switch b.Kind {
		case model.Text:
			out.Text += b.Text
		case model.Reasoning:
			out.Reasoning += b.Text
		case model.ToolCall:
			raw := b.Arguments
			if strings.TrimSpace(raw) == "" {
				raw = "{}"
			}
			out.Calls = append(out.Calls, call{b.CallID, b.Name, args(raw)})
		}
	}
	return out
}

// transcripts calls f with each recorded stream in a folder below model, and the
// address of a server that plays it.
func transcripts(t *testing.T, folder string, f func(t *testing.T, url string)) {
	files, err := filepath.Glob(filepath.Join("..", "model", folder, "*.sse"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded streams in %s: %v", folder, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			stream, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = w.Write(stream)
			}))
			defer server.Close()
			f(t, server.URL)
		})
	}
}

// requests calls f with each request of the golden files in a folder below model.
func requests(t *testing.T, folder string, f func(t *testing.T, body []byte)) {
	files, err := filepath.Glob(filepath.Join("..", "model", folder, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden requests in %s: %v", folder, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			f(t, body)
		})
	}
}

// same checks that an SDK's params, written again, say what body says, apart
// from the top-level fields that the SDK has elsewhere.
func same(t *testing.T, body, again []byte, elsewhere ...string) {
	t.Helper()
	var want, got map[string]any
	if err := json.Unmarshal(body, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(again, &got); err != nil {
		t.Fatal(err)
	}
	for _, field := range elsewhere {
		delete(want, field)
		delete(got, field)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request through the SDK's types (-sent +SDK):\n%s", diff)
	}
}

// recording returns a client that keeps the body of the last request.
func recording(last *[]byte) *http.Client {
	return &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		*last = body
		r.Body = io.NopCloser(bytes.NewReader(body))
		return http.DefaultTransport.RoundTrip(r)
	})}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
