package faultnet

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"syscall"
)

// A Balancer is a load balancer of the simplest kind: it hands each request to
// the next server in turn, whatever came before and however that server is. Only
// if a server refuses the connection is the next one tried. Answers are passed on
// as they come. It is safe for concurrent use.
type Balancer struct {
	proxy     httputil.ReverseProxy
	transport *http.Transport

	mu      sync.Mutex
	servers []*url.URL
	next    int
	refused int
	failed  int
}

// NewBalancer returns a balancer with room for n servers, none of which is there
// yet. Close it.
func NewBalancer(n int) *Balancer {
	b := &Balancer{servers: make([]*url.URL, n)}
	b.transport = &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	b.proxy = httputil.ReverseProxy{
		Rewrite:       func(*httputil.ProxyRequest) {}, // the transport chooses
		Transport:     b,
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ErrorHandler:  b.fail,
	}
	return b
}

// Close drops the idle connections to servers.
func (b *Balancer) Close() { b.transport.CloseIdleConnections() }

// Set puts the server at the URL in a place, instead of the one that was there.
func (b *Balancer) Set(place int, server string) error {
	u, err := url.Parse(server)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servers[place] = u
	return nil
}

// Refused returns how many connections servers have refused.
func (b *Balancer) Refused() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused
}

// Failed returns how many requests were answered with 502.
func (b *Balancer) Failed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

func (b *Balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) { b.proxy.ServeHTTP(w, r) }

func (b *Balancer) fail(w http.ResponseWriter, r *http.Request, _ error) {
	if r.Context().Err() == nil { // the client is still there
		b.mu.Lock()
		b.failed++
		b.mu.Unlock()
	}
	w.WriteHeader(http.StatusBadGateway)
}

var errNoServer = errors.New("faultnet: no server takes connections")

// RoundTrip makes the request of the server whose turn it is.
func (b *Balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil { // a server that refuses the connection must not have eaten it
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	for range len(b.servers) {
		to := b.turn()
		if to == nil {
			continue
		}
		out := r.Clone(r.Context())
		out.URL.Scheme, out.URL.Host = to.Scheme, to.Host
		out.Body, out.ContentLength = nil, int64(len(body))
		if len(body) > 0 {
			out.Body = io.NopCloser(bytes.NewReader(body))
		}
		resp, err := b.transport.RoundTrip(out)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return resp, err
		}
		b.mu.Lock()
		b.refused++
		b.mu.Unlock()
	}
	return nil, errNoServer
}

// turn returns the next server, nil if there is none in its place.
func (b *Balancer) turn() *url.URL {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.servers[b.next]
	b.next = (b.next + 1) % len(b.servers)
	return u
}
