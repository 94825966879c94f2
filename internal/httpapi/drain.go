package httpapi

import (
	"context"
	"net/http"
	"sync"
)

// Drains tells waiting requests when to stop. A server that shuts down waits
// for its requests but does not tell them, so a stream would hold it up until
// its reader leaves; therefore each server that serves the handler is asked to
// say so. The zero value is ready to use.
type drains struct {
	mu      sync.Mutex
	closed  bool
	waiting map[*waiter]struct{}
	servers map[*http.Server]bool // that serve the handler; true once they shut down
}

// A waiter is one request that waits.
type waiter struct {
	server *http.Server // nil if it is not known
	cancel context.CancelFunc
}

// meet asks the server of a request to say when it shuts down, once. Each request
// does that at once, whether it will wait or not: one that is asked after it has
// said so says nothing.
func (d *drains) meet(r *http.Request) {
	server := serverOf(r)
	if server == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.servers[server]; known {
		return
	}
	if d.servers == nil {
		d.servers = make(map[*http.Server]bool)
	}
	d.servers[server] = false
	server.RegisterOnShutdown(func() { d.shutdown(server) })
}

// serverOf returns the server that a request came by, or nil.
func serverOf(r *http.Request) *http.Server {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	return server
}

// context returns a context for a request that waits.
func (d *drains) context(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	w := &waiter{server: serverOf(r), cancel: cancel}

	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.servers[w.server] {
		cancel()
		return ctx, cancel
	}
	if d.waiting == nil {
		d.waiting = make(map[*waiter]struct{})
	}
	d.waiting[w] = struct{}{}
	return ctx, func() {
		d.mu.Lock()
		delete(d.waiting, w)
		d.mu.Unlock()
		cancel()
	}
}

// shutdown ends the waiting requests of one server, and those that come.
func (d *drains) shutdown(s *http.Server) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.servers[s] = true
	for w := range d.waiting {
		if w.server == s {
			w.cancel()
		}
	}
}

// close ends all waiting requests, and those that come.
func (d *drains) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for w := range d.waiting {
		w.cancel()
	}
}
