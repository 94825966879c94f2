// Package httpapi serves the conversations of one agent over HTTP, in the
// protocol of package wire.
//
//	POST /{id}                                 deliver a message
//	GET  /{id}                                 a snapshot, or the updates after an offset
//	HEAD /{id}                                 the offset of the head
//	POST /{id}/abort                           abort all unsettled work
//	GET  /{id}/attachments/{attachment}        the bytes of a file
//
// Where the agent is mounted, who may call it, and which origins a browser may
// call it from are decided outside: by the mux, and by middleware around the
// handler.
package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"
)

// Config is what a handler needs. Backend must be set; every other field has a
// default.
type Config struct {
	Backend Backend

	// Logger gets one line for every failure that clients are told nothing
	// about but its reference, and for every panic. Default: slog.Default().
	Logger *slog.Logger

	// TrustForwarded lets X-Forwarded-Proto and X-Forwarded-Host decide which
	// URL clients are told to read from. Set it only behind a proxy that sets
	// or removes these headers itself.
	TrustForwarded bool

	// MaxBody bounds the body of a message, in bytes. Default: 32 MiB, which
	// is two of the largest images.
	MaxBody int64

	// LongPoll is how long a read waits for news, and how long a stream stays
	// without a control event. Default: 30 s.
	LongPoll time.Duration

	// Heartbeat is the time between the comments that keep a stream from
	// looking dead to what is between it and its reader. Default: 15 s.
	Heartbeat time.Duration

	// WriteTimeout bounds the time that a reader takes for each 64 KiB of a
	// response, so that one that has stopped reading is dropped, and one that is
	// slow is not. It takes the place of the server's own WriteTimeout. It must be
	// longer than Heartbeat. Default: 30 s.
	WriteTimeout time.Duration
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.MaxBody <= 0 {
		c.MaxBody = 32 << 20
	}
	if c.LongPoll <= 0 {
		c.LongPoll = 30 * time.Second
	}
	if c.Heartbeat <= 0 {
		c.Heartbeat = 15 * time.Second
	}
	if c.WriteTimeout <= 0 {
		c.WriteTimeout = 30 * time.Second
	}
	return c
}

// pageSize is how many batches one read covers. It is part of the protocol.
const pageSize = 100

// A Handler is an [http.Handler]. It works under [http.StripPrefix] and as the
// handler of a subtree pattern of a [http.ServeMux] such as "/agents/chat/".
type Handler struct {
	Config
	drains drains
}

// New returns a handler. It panics if there is no Backend.
func New(c Config) *Handler {
	if c.Backend == nil {
		panic("httpapi: Config.Backend is nil")
	}
	return &Handler{Config: c.withDefaults()}
}

// Close ends every stream and answers every waiting read, now and from now on.
// Requests that do not wait are not touched. It does not wait for the requests
// to end; that is what the server's Shutdown does, which also ends the streams
// that it serves without a call to Close.
func (h *Handler) Close() { h.drains.close() }

// ServeHTTP serves one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{h: h, w: w, r: r, control: http.NewResponseController(w)}
	defer x.recover()
	h.drains.meet(r)
	x.route()
}

// An exchange is one request and its response.
type exchange struct {
	h         *Handler
	w         http.ResponseWriter
	r         *http.Request
	id        string // of the conversation
	committed bool   // the status has been written

	control *http.ResponseController // of w
	room    int                      // bytes that may still be written before the deadline
}

func (x *exchange) route() {
	p, ok := parsePath(relativePath(x.r))
	if !ok {
		x.notFound()
		return
	}
	if !x.allowed(p.methods()...) {
		return
	}
	if err := p.checkID(); err != nil {
		x.fail(err)
		return
	}
	x.id = p.id
	switch {
	case p.kind == pathAbort:
		x.abort()
	case p.kind == pathAttachment:
		x.attachment(p.attachment)
	case x.r.Method == http.MethodPost:
		x.prompt()
	case x.r.Method == http.MethodHead:
		x.head()
	default:
		x.read()
	}
}

// recover turns a panic into an internal error. If the response has begun, it
// is cut off instead, so that it cannot be taken for a complete one.
func (x *exchange) recover() {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	err := x.internal("request handler panicked", slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
	if x.committed {
		panic(http.ErrAbortHandler)
	}
	x.fail(err)
}

// waiting returns a context for waiting on behalf of the client: it ends when
// the client has gone, and when the handler or its server is closing.
func (x *exchange) waiting() (context.Context, context.CancelFunc) {
	return x.h.drains.context(x.r)
}
