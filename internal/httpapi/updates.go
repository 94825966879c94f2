package httpapi

import (
	"context"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flue-go/flue/wire"
)

// read answers a GET of a conversation.
func (x *exchange) read() {
	q := x.r.URL.Query()
	view := "history"
	if q.Has("view") {
		view = q.Get("view")
	}
	switch view {
	case "history":
		if q.Has("offset") || q.Has("tail") || q.Has("live") {
			x.fail(wire.InvalidRequest("History reads do not accept offset, tail, or live parameters."))
			return
		}
		x.snapshot()
	case "updates":
		x.updates(q)
	default:
		x.fail(wire.InvalidRequest("Invalid agent conversation view. Use history or updates."))
	}
}

// updates sends what came after an offset: at once, or as it comes.
func (x *exchange) updates(q url.Values) {
	if q.Has("tail") {
		x.fail(wire.InvalidRequest("Update streams do not accept tail."))
		return
	}
	if len(q["offset"]) != 1 {
		x.fail(wire.InvalidRequest("Exactly one offset is required."))
		return
	}
	after, err := wire.ParseOffset(q.Get("offset"))
	if err != nil {
		x.fail(wire.InvalidRequest("Invalid offset format."))
		return
	}
	live := q.Get("live")
	if q.Has("live") && live != "long-poll" && live != "sse" {
		x.fail(wire.InvalidRequest("Invalid live mode. Use long-poll or sse."))
		return
	}
	// Whatever is wrong with the offset or the conversation has to be known
	// before a stream begins, since its status cannot be changed later.
	u, err := x.h.Backend.Updates(x.r.Context(), x.id, after, pageSize)
	if err != nil {
		x.fail(err)
		return
	}
	switch {
	case live == "sse":
		x.stream(after, u)
	case live == "long-poll" && u.Next == after:
		x.longPoll(after, u)
	default:
		x.page(u)
	}
}

// page sends one run of changes.
func (x *exchange) page(u Updates) {
	x.readHeaders(u.Next, u.UpToDate)
	open := appendCheckpoint([]byte{'['}, u.Incarnation)
	if len(u.Chunks) > 0 {
		open = append(open, ',')
	}
	x.reply(http.StatusOK, open, u.Chunks, []byte{']'})
}

// appendCheckpoint appends the chunk that names the incarnation, by which a
// client sees that a conversation was made anew under its offsets.
func appendCheckpoint(b []byte, incarnation string) []byte {
	b = append(b, `{"type":"stream-checkpoint","incarnation":`...)
	b, _ = jsontext.AppendQuote(b, incarnation) // an error means that bad text was replaced
	return append(b, '}')
}

// longPoll waits for a batch after the offset, which is the head's, and sends
// what there is then. If nothing comes in time it sends none, as it is.
func (x *exchange) longPoll(after wire.Offset, none Updates) {
	x.unbound()
	ctx, cancel := x.waiting()
	defer cancel()
	window, stop := context.WithTimeout(ctx, x.h.LongPoll)
	err := x.h.Backend.Wait(window, x.id, after)
	ended := window.Err() != nil
	stop()

	switch {
	case x.r.Context().Err() != nil:
		x.fail(x.r.Context().Err())
	case err != nil && !ended:
		x.fail(err)
	case err != nil: // the window or the server has come to its end
		x.page(none)
	default:
		u, err := x.h.Backend.Updates(x.r.Context(), x.id, after, pageSize)
		if err != nil {
			x.fail(err)
			return
		}
		x.page(u)
	}
}
