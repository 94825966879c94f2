// Package sse reads server-sent events.
//
// A [Reader] is strict and bounded: it follows the WHATWG event-stream format
// (LF, CR and CRLF line ends in any mix, several data lines per event, comments,
// one leading byte-order mark), it never holds more than one event, and it tells
// a stream that ended between events from one that was cut inside an event.
// It does not reconnect; that is a decision of the caller.
package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// DefaultMaxEvent is the size limit of one event when [NewReader] is given none.
const DefaultMaxEvent = 8 << 20

// ErrTooLarge is matched by the error for an event that is larger than the limit.
var ErrTooLarge = errors.New("server-sent event is too large")

// An Event is one dispatched event.
type Event struct {
	// Name is the event's type; empty when the stream did not name it, which
	// the format defines to mean "message".
	Name string

	// Data is the payload: the data lines joined with newlines. It is valid
	// until the next call of [Reader.Next].
	Data []byte

	// ID is the last event id seen so far, which may come from an earlier event.
	ID string
}

// A Reader reads events from a stream. It is not safe for concurrent use.
type Reader struct {
	src io.Reader
	max int

	buf        []byte // unread bytes are buf[start:end]
	start, end int
	scanned    int // bytes after start known to hold no line end
	srcErr     error

	begun  bool // the place for a byte-order mark has passed
	skipLF bool // the previous line ended in CR; an LF now belongs to it

	name    []byte
	data    []byte
	hasData bool
	id      string
	err     error
}

// NewReader returns a Reader of src that refuses events larger than maxEvent
// bytes, counting its lines without their ends. Zero or less means [DefaultMaxEvent].
func NewReader(src io.Reader, maxEvent int) *Reader {
	if maxEvent <= 0 {
		maxEvent = DefaultMaxEvent
	}
	return &Reader{src: src, max: maxEvent}
}

// Next returns the next event that carries data. An event without data is not
// an event by the format; its lines are consumed and ignored.
//
// At the end of the stream Next returns [io.EOF] when the stream ended between
// events, and an error that wraps [io.ErrUnexpectedEOF] when it ended inside
// one, whose data is discarded. A failing source yields its own error, and an
// event over the limit one that wraps [ErrTooLarge]. Errors are permanent.
func (r *Reader) Next() (Event, error) {
	if r.err != nil {
		return Event{}, r.err
	}
	r.name, r.data, r.hasData = r.name[:0], r.data[:0], false
	size := 0
	for {
		line, err := r.line(r.max - size)
		if err != nil {
			r.err = r.ending(err, size > 0)
			return Event{}, r.err
		}
		if len(line) > 0 {
			size += len(line)
			r.field(line)
			continue
		}
		if r.hasData {
			return Event{Name: string(r.name), Data: r.data, ID: r.id}, nil
		}
		r.name, size = r.name[:0], 0
	}
}

// ending turns the reason why no line could be read into the error of Next.
// The bytes of an unfinished line count as being inside an event too.
func (r *Reader) ending(err error, inside bool) error {
	if errors.Is(err, io.EOF) && (inside || r.end > r.start) {
		return fmt.Errorf("event stream was cut inside an event: %w", io.ErrUnexpectedEOF)
	}
	return err
}

// line returns the next line without its end. The slice is valid until the
// next call. A line longer than limit is an error.
//
// A CR ends its line at once, without waiting to see whether an LF follows:
// waiting would hold back an event for as long as the server is silent.
func (r *Reader) line(limit int) ([]byte, error) {
	for {
		r.skipFraming()
		unread := r.buf[r.start:r.end]
		if i := bytes.IndexAny(unread[r.scanned:], "\r\n"); i >= 0 && (i+r.scanned) <= limit {
			n := r.scanned + i
			r.skipLF = unread[n] == '\r'
			r.start += n + 1
			r.scanned = 0
			return unread[:n], nil
		}
		if len(unread) > limit {
			return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, r.max)
		}
		r.scanned = len(unread)
		if r.srcErr != nil {
			return nil, r.srcErr
		}
		r.fill()
	}
}

// skipFraming drops the LF of a CRLF whose CR was already taken as a line end,
// and a byte-order mark at the start of the stream.
func (r *Reader) skipFraming() {
	if r.skipLF && r.end > r.start {
		r.skipLF = false
		if r.buf[r.start] == '\n' {
			r.start++
			r.scanned = 0
		}
	}
	if r.begun {
		return
	}
	mark := []byte("\xef\xbb\xbf")
	unread := r.buf[r.start:r.end]
	switch {
	case bytes.HasPrefix(unread, mark):
		r.start += len(mark)
		r.scanned = 0
		r.begun = true
	case !bytes.HasPrefix(mark, unread):
		r.begun = true
	}
}

const minRead = 4 << 10

// fill reads once from the source, making room first.
func (r *Reader) fill() {
	if r.start > 0 {
		copy(r.buf, r.buf[r.start:r.end])
		r.start, r.end = 0, r.end-r.start
	}
	if len(r.buf)-r.end < minRead/2 {
		grown := make([]byte, max(minRead, 2*len(r.buf)))
		copy(grown, r.buf[:r.end])
		r.buf = grown
	}
	for range 100 {
		n, err := r.src.Read(r.buf[r.end:])
		r.end += n
		if err != nil {
			r.srcErr = err
			return
		}
		if n > 0 {
			return
		}
	}
	r.srcErr = io.ErrNoProgress
}

// field applies one line that is not empty. Unknown fields are ignored, and so
// is retry, since nothing here reconnects.
func (r *Reader) field(line []byte) {
	key, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(key) {
	case "event":
		r.name = append(r.name[:0], value...)
	case "data":
		if r.hasData {
			r.data = append(r.data, '\n')
		}
		r.data = append(r.data, value...)
		r.hasData = true
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			r.id = string(value)
		}
	}
}
