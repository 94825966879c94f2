// Package tap records the traffic between a client and a server, and cuts its
// connections when it is told to.
package tap

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/flue-go/flue/conformance/transcript"
)

// A Tap is a proxy on 127.0.0.1 in front of one server. Requests and responses
// pass through it as they are, and streams piece by piece. It is safe for
// concurrent use.
type Tap struct {
	URL string // where clients connect to

	start  time.Time
	server *http.Server
	done   chan struct{}
	target *http.Transport

	mu        sync.Mutex
	conns     map[net.Conn]struct{}
	exchanges []*transcript.Exchange
}

// Start runs a tap in front of the server at target. It must be closed.
func Start(target string) (*Tap, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &Tap{
		URL: "http://" + l.Addr().String(), start: time.Now(), conns: make(map[net.Conn]struct{}), done: make(chan struct{}), target: &http.Transport{},
	}
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // connections that are cut are no news
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = u.Scheme, u.Host
			r.Out.Host = r.In.Host // the server must see what the client asked for
		},
		Transport: t.target, FlushInterval: -1, ErrorLog: quiet, ModifyResponse: t.response,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	t.server = &http.Server{
		Handler: t.requests(proxy), ErrorLog: quiet, ReadHeaderTimeout: time.Minute,
		ConnState: t.connState,
	}
	go func() {
		defer close(t.done)
		_ = t.server.Serve(l) // ends with Close
	}()
	return t, nil
}

// Close ends the tap and every connection through it.
func (t *Tap) Close() {
	_ = t.server.Close()
	<-t.done
	t.target.CloseIdleConnections()
}

// Cut drops every connection of a client, wherever it is.
func (t *Tap) Cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.conns {
		_ = c.Close()
	}
}

func (t *Tap) connState(c net.Conn, s http.ConnState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch s {
	case http.StateNew:
		t.conns[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(t.conns, c)
	}
}

// Exchanges returns what has passed so far, in the order of the requests, and
// forgets it. What a response that is not complete has yet to bring is lost.
func (t *Tap) Exchanges() []*transcript.Exchange {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.exchanges
	t.exchanges = nil
	for i, x := range out {
		c := *x
		if x.Response != nil {
			r := *x.Response
			r.Body, r.Pieces = bytes.Clone(r.Body), slices.Clone(r.Pieces)
			c.Response = &r
		}
		out[i] = &c
	}
	return out
}

type exchangeKey struct{}

// requests records each request and passes it on.
func (t *Tap) requests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		x := &transcript.Exchange{Method: r.Method, Target: r.RequestURI, Header: r.Header.Clone(), Body: body}
		t.mu.Lock()
		t.exchanges = append(t.exchanges, x)
		t.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
	})
}

// response records a response, and its body as it comes.
func (t *Tap) response(r *http.Response) error {
	x, ok := r.Request.Context().Value(exchangeKey{}).(*transcript.Exchange)
	if !ok {
		return nil
	}
	t.mu.Lock()
	x.Response = &transcript.Response{Status: r.StatusCode, Header: r.Header.Clone()}
	t.mu.Unlock()
	r.Body = &recorder{ReadCloser: r.Body, tap: t, to: x.Response, stream: r.Header.Get("Content-Type") == "text/event-stream"}
	return nil
}

// A recorder notes what is read through it.
type recorder struct {
	io.ReadCloser
	tap    *Tap
	to     *transcript.Response
	stream bool
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	if n > 0 {
		r.tap.mu.Lock()
		defer r.tap.mu.Unlock()
		r.to.Body = append(r.to.Body, b[:n]...)
		if r.stream {
			r.to.Pieces = append(r.to.Pieces, transcript.Piece{At: time.Since(r.tap.start), Data: string(b[:n])})
		}
	}
	return n, err
}
