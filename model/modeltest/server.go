package modeltest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flue-go/flue/model"
)

// patience bounds every wait for something that must happen.
const patience = 10 * time.Second

type runner struct {
	Suite
	server *httptest.Server
	client *http.Client

	mu      sync.Mutex
	handler http.HandlerFunc
}

func (r *runner) serve(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	h := r.handler
	r.mu.Unlock()
	h(w, req)
}

// answer sets how the server answers from now on.
func (r *runner) answer(h http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handler = h
}

// provider returns the provider under test, with the idle timeout given.
func (r *runner) provider(timeout time.Duration) model.Provider {
	return r.New(Settings{BaseURL: r.server.URL, APIKey: Key, Client: r.client, IdleTimeout: timeout})
}

// send writes parts of a stream, each in a chunk of its own.
func send(w http.ResponseWriter, parts ...[]byte) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	for _, p := range parts {
		_, _ = w.Write(p)
		_ = flush.Flush()
	}
}

// hold blocks until the client has left. It closes left then.
func hold(t *testing.T, req *http.Request, left chan<- struct{}) {
	_, _ = io.Copy(io.Discard, req.Body) // or the server does not look at the connection
	select {
	case <-req.Context().Done():
		close(left)
	case <-time.After(patience):
		t.Error("the provider does not close the connection")
	}
}

// gone waits until hold has seen the client leave.
func gone(t *testing.T, left <-chan struct{}) {
	t.Helper()
	select {
	case <-left:
	case <-time.After(patience):
		t.Error("the connection is still open")
	}
}

// events splits a stream after each blank line.
func events(stream []byte) [][]byte {
	var parts [][]byte
	for _, e := range strings.SplitAfter(string(stream), "\n\n") {
		if e != "" {
			parts = append(parts, []byte(e))
		}
	}
	return parts
}

// countGoroutines returns a check that there are no more goroutines than now.
// Connections take a moment to wind down, so it looks again for a while.
func countGoroutines(t *testing.T) (check func()) {
	before := runtime.NumGoroutine()
	return func() {
		t.Helper()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for deadline := time.Now().Add(patience); ; <-tick.C {
			n := runtime.NumGoroutine()
			if n <= before {
				return
			}
			if time.Now().After(deadline) {
				stacks := make([]byte, 1<<20)
				t.Errorf("%d goroutines before, %d after:\n%s", before, n, stacks[:runtime.Stack(stacks, true)])
				return
			}
		}
	}
}
