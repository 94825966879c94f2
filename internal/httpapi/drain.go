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
	servers map[*http.Server]struct{}
}

// A waiter is one request that waits.
type waiter struct {
	server *http.Server // nil if it is not known
	cancel context.CancelFunc
}

// context returns a context for a request that waits.
func (d *drains) context(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	w := &waiter{server: server, cancel: cancel}

	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		cancel()
		return ctx, cancel
	}
	if d.waiting == nil {
		d.waiting = make(map[*waiter]struct{})
		d.servers = make(map[*http.Server]struct{})
	}
	d.waiting[w] = struct{}{}
	if _, known := d.servers[server]; server != nil && !known {
		d.servers[server] = struct{}{}
		server.RegisterOnShutdown(func() { d.shutdown(server) })
	}
	return ctx, func() {
		d.mu.Lock()
		delete(d.waiting, w)
		d.mu.Unlock()
		cancel()
	}
}

// shutdown ends the waiting requests of one server.
func (d *drains) shutdown(s *http.Server) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.servers, s)
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
