package faultnet_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue/internal/faultnet"
)

// newBalancer is a balancer in front of servers with the handlers; a nil one
// refuses connections.
func newBalancer(t *testing.T, handlers ...http.HandlerFunc) (*faultnet.Balancer, *httptest.Server) {
	t.Helper()
	b := faultnet.NewBalancer(len(handlers))
	t.Cleanup(b.Close)
	for i, h := range handlers {
		srv := httptest.NewServer(h)
		t.Cleanup(srv.Close)
		if h == nil {
			srv.Close()
		}
		if err := b.Set(i, srv.URL); err != nil {
			t.Fatal(err)
		}
	}
	front := httptest.NewServer(b)
	t.Cleanup(front.Close)
	return b, front
}

// named answers with a name and with what it was sent.
func named(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %s", name, r.URL, body)
	}
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(url, "text/plain", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(got)
}

func TestBalancerTakesTurns(t *testing.T) {
	_, front := newBalancer(t, named("a"), named("b"), named("c"))
	for _, want := range []string{"a", "b", "c", "a", "b"} {
		if status, got := post(t, front.URL+"/x?y=z", "body"); status != 200 || got != want+" /x?y=z body" {
			t.Errorf("got %d %q, want one from %s", status, got, want)
		}
	}
}

func TestBalancerPassesOverWhoRefuses(t *testing.T) {
	b, front := newBalancer(t, named("a"), nil, named("c"))
	for _, want := range []string{"a", "c", "a", "c"} {
		if status, got := post(t, front.URL+"/", "body"); status != 200 || got != want+" / body" {
			t.Errorf("got %d %q, want one from %s", status, got, want)
		}
	}
	if b.Refused() != 2 || b.Failed() != 0 {
		t.Errorf("%d refused, %d failed", b.Refused(), b.Failed())
	}
}

func TestBalancerWithoutServers(t *testing.T) {
	b, front := newBalancer(t, nil, nil)
	if status, got := post(t, front.URL+"/", "body"); status != http.StatusBadGateway {
		t.Errorf("got %d %q, want 502", status, got)
	}
	if b.Failed() != 1 {
		t.Errorf("%d failed, want 1", b.Failed())
	}
	empty := faultnet.NewBalancer(1)
	w := httptest.NewRecorder()
	empty.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != http.StatusBadGateway {
		t.Errorf("got %d without any server, want 502", w.Code)
	}
}

// A server that takes the connection has had the request: another one must not be
// given it too.
func TestBalancerDoesNotRepeat(t *testing.T) {
	dies := func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	asked := 0
	_, front := newBalancer(t, dies, func(http.ResponseWriter, *http.Request) { asked++ })
	if status, _ := post(t, front.URL+"/", "body"); status != http.StatusBadGateway || asked != 0 {
		t.Errorf("got %d, and the other server was asked %d times", status, asked)
	}
}

func TestBalancerReplacesServers(t *testing.T) {
	b, front := newBalancer(t, named("old"))
	fresh := httptest.NewServer(named("new"))
	defer fresh.Close()
	if err := b.Set(0, fresh.URL); err != nil {
		t.Fatal(err)
	}
	if _, got := post(t, front.URL+"/", ""); got != "new / " {
		t.Errorf("got %q", got)
	}
	if b.Set(0, ":") == nil {
		t.Error("a URL that is none is taken")
	}
}

// Each piece of an answer is passed on at once, and a client that leaves is
// missed by the server.
func TestBalancerStreams(t *testing.T) {
	next, left := make(chan struct{}), make(chan struct{})
	_, front := newBalancer(t, func(w http.ResponseWriter, r *http.Request) {
		for range 3 {
			_, _ = io.WriteString(w, "piece\n")
			_ = http.NewResponseController(w).Flush()
			<-next
		}
		<-r.Context().Done()
		close(left)
	})
	resp, err := http.Get(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	for range 3 {
		if line, err := lines.ReadString('\n'); line != "piece\n" || err != nil {
			t.Fatalf("read %q, %v", line, err)
		}
		next <- struct{}{}
	}
	_ = resp.Body.Close()
	select {
	case <-left:
	case <-time.After(10 * time.Second):
		t.Error("the server was not told that the client has left")
	}
}
