package tap_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/flue-go/flue/conformance/tap"
)

func TestTap(t *testing.T) {
	gone := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/stream":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprint(w, ": one\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			close(gone)
		default:
			b, _ := io.ReadAll(r.Body)
			w.Header().Set("X-Host", r.Host)
			w.WriteHeader(http.StatusTeapot)
			_, _ = fmt.Fprintf(w, "%s %s %s %s", r.Method, r.RequestURI, b, r.Header.Get("X-Forwarded-For"))
		}
	}))
	defer srv.Close()
	p, err := tap.Start(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()

	resp, err := http.Post(p.URL+"/a%2Fb?q=1", "text/x", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if got := string(b); got != "POST /a%2Fb?q=1 body " {
		t.Errorf("the server saw %q", got)
	}
	if want := strings.TrimPrefix(p.URL, "http://"); resp.Header.Get("X-Host") != want {
		t.Errorf("the server saw the host %q, want %q", resp.Header.Get("X-Host"), want)
	}

	resp, err = http.Get(p.URL + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(resp.Body)
	if line, err := br.ReadString('\n'); err != nil || line != ": one\n" {
		t.Fatalf("stream: %q, %v", line, err)
	}
	p.Cut()
	if _, err := io.ReadAll(br); err == nil {
		t.Error("a stream that was cut looks complete")
	}
	_ = resp.Body.Close()
	<-gone

	xs := p.Exchanges()
	if len(xs) != 2 {
		t.Fatalf("%d exchanges, want 2", len(xs))
	}
	if x := xs[0]; x.Target != "/a%2Fb?q=1" || string(x.Body) != "body" || x.Response.Status != http.StatusTeapot || !strings.HasPrefix(string(x.Response.Body), "POST") {
		t.Errorf("first exchange %+v", x)
	}
	if x := xs[1]; len(x.Response.Pieces) != 1 || x.Response.Pieces[0].Data != ": one\n\n" {
		t.Errorf("second exchange %+v", x.Response)
	}
	if xs := p.Exchanges(); len(xs) != 0 {
		t.Errorf("%d exchanges were not forgotten", len(xs))
	}
}
