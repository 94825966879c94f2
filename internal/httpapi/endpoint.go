package httpapi

import (
	"mime"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/flue-go/flue/wire"
)

// largeBody is above which size a message is not even read while none is accepted. A
// smaller one is, since it may be one that was accepted before.
const largeBody = 64 << 10

// prompt admits a message.
func (x *exchange) prompt() {
	if x.r.URL.Query().Has("wait") {
		x.fail(wire.InvalidRequest("Agent prompts are fire-and-forget and do not support `?wait=result`. " +
			"Await completion with the SDK client's `wait()`, or read the conversation stream (GET this URL)."))
		return
	}
	if n := x.r.ContentLength; n < 0 || n > largeBody {
		if err := x.h.Backend.Accepts(); err != nil {
			x.fail(err)
			return
		}
	}
	body, err := x.readBody()
	if err != nil {
		x.fail(err)
		return
	}
	p, err := wire.ParsePrompt(body)
	if err != nil {
		x.fail(err)
		return
	}
	p.Traceparent = traceparent(x.r.Header)
	a, err := x.h.Backend.Send(x.r.Context(), x.id, p)
	if err != nil {
		x.fail(err)
		return
	}
	a.StreamURL = x.streamURL()
	b, err := json.Marshal(a, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		x.fail(err)
		return
	}
	h := x.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Location", a.StreamURL)
	h.Set("Stream-Next-Offset", a.Offset.String())
	x.reply(http.StatusAccepted, b)
}

// abort aborts what is unsettled. A body is ignored, whatever it is.
func (x *exchange) abort() {
	aborted, err := x.h.Backend.Abort(x.r.Context(), x.id)
	if err != nil {
		x.fail(err)
		return
	}
	x.w.Header().Set("Content-Type", "application/json")
	if aborted {
		x.reply(http.StatusOK, []byte(`{"aborted":true}`))
		return
	}
	x.reply(http.StatusOK, []byte(`{"aborted":false}`))
}

// head tells where the conversation's head is.
func (x *exchange) head() {
	head, err := x.h.Backend.Head(x.r.Context(), x.id)
	if err != nil {
		x.fail(err)
		return
	}
	x.readHeaders(head, true)
	x.reply(http.StatusOK)
}

// attachment sends the bytes of a file. They are the uploader's, so a browser
// that is sent to them is told not to run them.
func (x *exchange) attachment(id string) {
	f, err := x.h.Backend.Attachment(x.r.Context(), x.id, id)
	if err != nil {
		x.fail(err)
		return
	}
	typ := f.MediaType
	if _, _, err := mime.ParseMediaType(typ); err != nil || strings.ContainsAny(typ, "\r\n") {
		typ = "application/octet-stream"
	}
	h := x.w.Header()
	secure(h)
	h.Set("Content-Type", typ)
	h.Set("Content-Disposition", "inline")
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	h.Set("Content-Security-Policy", "sandbox")
	x.reply(http.StatusOK, f.Data)
}

// snapshot sends the conversation up to its head.
func (x *exchange) snapshot() {
	s, err := x.h.Backend.Snapshot(x.r.Context(), x.id)
	if err != nil {
		x.fail(err)
		return
	}
	b, err := json.Marshal(s, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		x.fail(err)
		return
	}
	x.readHeaders(s.Offset, true)
	x.reply(http.StatusOK, b)
}

// readHeaders sets the headers of a read that reached next.
func (x *exchange) readHeaders(next wire.Offset, upToDate bool) {
	h := x.w.Header()
	secure(h)
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Stream-Next-Offset", next.String())
	if upToDate {
		h.Set("Stream-Up-To-Date", "true")
	}
}
