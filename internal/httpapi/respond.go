package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/flue-go/flue/wire"
)

// secure sets the headers of everything that a browser could be made to load:
// reads and errors.
func secure(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
}

// reply writes a whole response. The body of an answer to HEAD is left out.
func (x *exchange) reply(status int, body ...[]byte) {
	x.committed = true
	x.bound()
	if x.r.Method == http.MethodHead {
		x.w.WriteHeader(status)
		return
	}
	n := 0
	for _, b := range body {
		n += len(b)
	}
	x.w.Header().Set("Content-Length", strconv.Itoa(n))
	x.w.WriteHeader(status)
	for _, b := range body {
		if err := x.write(b); err != nil {
			return // the client has gone
		}
	}
}

// notFound answers a path that is nothing of ours.
func (x *exchange) notFound() {
	x.w.Header().Set("Content-Type", "text/plain; charset=UTF-8")
	x.reply(http.StatusNotFound, []byte("404 Not Found"))
}

// allowed reports whether the request has one of the methods, and answers it
// if it has not.
func (x *exchange) allowed(methods ...string) bool {
	if slices.Contains(methods, x.r.Method) {
		return true
	}
	x.w.Header().Set("Allow", strings.Join(methods, ", "))
	x.fail(wire.MethodNotAllowed(x.r.Method, methods...))
	return false
}

// statusClientGone is for logs: the client that it would tell has gone.
const statusClientGone = 499

// fail answers with an error. One that a client may not be told of is logged
// and answered with a reference to the log line.
func (x *exchange) fail(err error) {
	if x.gone(err) {
		secure(x.w.Header())
		x.reply(statusClientGone)
		return
	}
	e := x.public(err)
	h := x.w.Header()
	secure(h)
	h.Set("Content-Type", "application/json")
	if e.Ref != "" {
		h.Set("Flue-Error-Ref", e.Ref)
	}
	if after := e.RetryAfterSeconds(); after > 0 {
		h.Set("Retry-After", strconv.FormatInt(after, 10))
	}
	x.reply(e.Status(), e.Encode())
}

// gone reports whether err is there only because the client has gone.
func (x *exchange) gone(err error) bool {
	return x.r.Context().Err() != nil && isEnd(err)
}

// isEnd reports whether err is that of a context.
func isEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// public returns what the client is told of err.
func (x *exchange) public(err error) *wire.Error {
	e, ok := asWire(err)
	switch {
	case !ok:
		return x.internal("request failed", slog.Any("error", err))
	case e.Ref != "": // it was logged where the reference was made
		return e
	case e.Code == wire.CodeInternal:
		cause := e.Err
		if cause == nil {
			cause = e
		}
		return x.internal("request failed", slog.Any("error", cause))
	case e.Status() >= http.StatusInternalServerError && e.Err != nil:
		x.h.Logger.LogAttrs(x.r.Context(), slog.LevelWarn, "request refused", append(x.about(), slog.Any("error", e.Err))...)
	}
	return e
}

// internal logs a failure under a new reference and returns the error that
// carries the reference to the client.
func (x *exchange) internal(msg string, attrs ...slog.Attr) *wire.Error {
	ref := "err_" + rand.Text()
	x.h.Logger.LogAttrs(x.r.Context(), slog.LevelError, msg, append(append(x.about(), slog.String("ref", ref)), attrs...)...)
	return wire.Internal(ref, nil)
}

// about are the attributes of a log line that say which request it is about.
func (x *exchange) about() []slog.Attr {
	as := []slog.Attr{slog.String("method", x.r.Method), slog.String("path", requestPath(x.r))}
	if tp := traceparent(x.r.Header); tp != "" {
		as = append(as, slog.String("traceparent", tp))
	}
	return as
}

// readBody reads the body of a message. A request without one gives nil.
func (x *exchange) readBody() ([]byte, error) {
	if x.r.ContentLength == 0 {
		return nil, nil
	}
	if typ := x.r.Header.Get("Content-Type"); !isJSON(typ) {
		return nil, wire.UnsupportedMediaType(typ)
	}
	if x.r.ContentLength > x.h.MaxBody {
		return nil, wire.TooLarge(x.h.MaxBody)
	}
	size := int(max(512, x.r.ContentLength+1)) // one more, so that the end is seen without growing
	body, err := readAll(http.MaxBytesReader(x.w, x.r.Body, x.h.MaxBody), size)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, wire.TooLarge(x.h.MaxBody)
	}
	if err != nil {
		return nil, &wire.Error{
			Code: wire.CodeInvalidRequest, Message: "Request is malformed.", Details: "The request body ended early or is not well-formed.", Err: err,
		}
	}
	return body, nil
}

// firstRead is how much room a body gets, in bytes, before any of it has come. A
// size costs nothing to announce.
const firstRead = 64 << 10

// readAll is io.ReadAll into a buffer that grows with what comes, up to the size
// that is expected and beyond it only if that was wrong.
func readAll(r io.Reader, size int) ([]byte, error) {
	b := make([]byte, 0, min(size, firstRead))
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
		if len(b) == cap(b) {
			larger := 2 * len(b)
			if len(b) < size {
				larger = min(larger, size)
			}
			b = append(make([]byte, 0, larger), b...)
		}
	}
}

// isJSON reports whether a Content-Type is that of JSON. It looks at the media
// type alone: "text/plain; application/json" is a type that a web page may
// send anywhere without asking.
func isJSON(contentType string) bool {
	typ, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(typ), "application/json")
}

// traceparent returns the trace context of the request if it has a valid one.
func traceparent(h http.Header) string {
	tp := h.Get("Traceparent")
	const n = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if len(tp) < n || len(tp) > 256 {
		return ""
	}
	version, trace, parent, flags := tp[:2], tp[3:35], tp[36:52], tp[53:n]
	switch {
	case tp[2] != '-' || tp[35] != '-' || tp[52] != '-',
		!isHex(version) || !isHex(trace) || !isHex(parent) || !isHex(flags),
		version == "ff" || strings.Trim(trace, "0") == "" || strings.Trim(parent, "0") == "":
		return ""
	case len(tp) > n && (version == "00" || tp[n] != '-' || strings.ContainsFunc(tp, func(r rune) bool { return r <= ' ' || r > '~' })):
		return ""
	}
	return tp
}

func isHex(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') })
}

// asWire returns the error of the wire in err's chain.
func asWire(err error) (*wire.Error, bool) { return errors.AsType[*wire.Error](err) }
