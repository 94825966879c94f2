package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/flue-go/flue/wire"
)

// stream sends changes as server-sent events until the client leaves or the
// server closes. first is what the read at the offset gave.
func (x *exchange) stream(after wire.Offset, first Updates) {
	if !canFlush(x.w) {
		x.fail(errNoFlush)
		return
	}
	h := x.w.Header()
	secure(h)
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	x.committed = true
	x.w.WriteHeader(http.StatusOK)

	ctx, cancel := x.waiting()
	defer cancel()
	x.unbound()
	s := &stream{x: x, offset: after, incarnation: first.Incarnation}
	if err := s.run(ctx, first); err != nil && ctx.Err() == nil {
		x.internal("conversation stream ended", slog.Any("error", err))
	}
}

var errNoFlush = errors.New("the response writer cannot flush: middleware that wraps it needs an Unwrap method, see http.ResponseController")

// canFlush reports whether events can be sent one by one through w.
func canFlush(w http.ResponseWriter) bool {
	for {
		switch v := w.(type) {
		case interface{ FlushError() error }, http.Flusher:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return false
		}
	}
}

// A stream is one reader of server-sent events.
type stream struct {
	x           *exchange
	offset      wire.Offset // up to which everything has been sent
	incarnation string
	buf         []byte
	gone        bool // a write has failed

	beat    time.Time // when the next heartbeat is due
	control time.Time // when the next control event is due
}

// keepBuffer is how large a buffer an idle stream keeps, in bytes.
const keepBuffer = 16 << 10

// run sends until ctx ends or the client is gone, which is no error, or the
// backend fails.
func (s *stream) run(ctx context.Context, u Updates) error {
	s.beat = time.Now().Add(s.x.h.Heartbeat)
	s.buf = append(s.buf, "event: data\ndata:["...)
	s.buf = appendCheckpoint(s.buf, s.incarnation)
	s.buf = append(s.buf, "]\n\n"...)
	for {
		s.cycle(u)
		if s.gone || ctx.Err() != nil {
			return nil
		}
		if u.UpToDate {
			if err := s.wait(ctx); err != nil || s.gone || ctx.Err() != nil {
				return err
			}
		}
		var err error
		u, err = s.x.h.Backend.More(ctx, s.x.id, s.offset, pageSize)
		if err != nil {
			return s.failed(ctx, err)
		}
		if u.Incarnation != s.incarnation {
			return nil // made anew: the client has to begin with a snapshot
		}
	}
}

// failed makes nothing of an error that is there because the stream is ending,
// or that tells the client to begin again.
func (s *stream) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil && isEnd(err) {
		return nil
	}
	e, ok := asWire(err)
	if !ok {
		return err
	}
	switch e.Code {
	case wire.CodeOffsetGone, wire.CodeStreamNotFound, wire.CodeUnavailable, wire.CodeStoreUnavailable:
		return nil
	}
	return err
}

// wait waits for a batch after the stream's offset, and keeps the connection
// alive meanwhile.
func (s *stream) wait(ctx context.Context) error {
	for !s.gone {
		due := s.beat
		if s.control.Before(due) {
			due = s.control
		}
		window, stop := context.WithDeadline(ctx, due)
		err := s.x.h.Backend.Wait(window, s.x.id, s.offset)
		ended := window.Err() != nil
		stop()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return nil
		case !ended:
			return s.failed(ctx, err)
		}
		s.keepAlive(time.Now())
	}
	return nil
}

// keepAlive sends what is due.
func (s *stream) keepAlive(now time.Time) {
	if !now.Before(s.beat) {
		s.buf = append(s.buf, ": heartbeat\n\n"...)
		for !now.Before(s.beat) {
			s.beat = s.beat.Add(s.x.h.Heartbeat)
		}
	}
	if !now.Before(s.control) {
		s.appendControl(true)
	}
	s.flush()
}

// cycle sends what one read gave. Both of its events, and on the first time
// the checkpoint before them, go out in one flush.
func (s *stream) cycle(u Updates) {
	if len(u.Chunks) > 0 {
		s.buf = append(s.buf, "event: data\ndata:["...)
		s.buf = append(s.buf, u.Chunks...)
		s.buf = append(s.buf, "]\n\n"...)
	}
	s.offset = u.Next
	s.appendControl(u.UpToDate)
	s.flush()
}

func (s *stream) appendControl(upToDate bool) {
	s.buf = append(s.buf, "event: control\ndata:{\"streamNextOffset\":\""...)
	s.buf, _ = s.offset.AppendText(s.buf) // never fails
	s.buf = append(s.buf, '"')
	if upToDate {
		s.buf = append(s.buf, `,"upToDate":true`...)
	}
	s.buf = append(s.buf, "}\n\n"...)
	s.control = time.Now().Add(s.x.h.LongPoll)
}

// flush sends the buffered events.
func (s *stream) flush() {
	s.x.bound()
	err := s.x.write(s.buf)
	if err == nil {
		err = s.x.control.Flush()
	}
	s.gone = err != nil
	s.buf = s.buf[:0]
	if cap(s.buf) > keepBuffer {
		s.buf = nil
	}
}
