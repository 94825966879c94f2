package exchange

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/flue-go/flue/internal/sse"
	"github.com/flue-go/flue/model"
)

// A Stream is one answer being received. It is not safe for concurrent use.
type Stream struct {
	endpoint *Endpoint
	parent   context.Context // the caller's
	ctx      context.Context // ends with the parent, and when the server is silent
	cancel   context.CancelCauseFunc
	silence  *Watch // of the wait for more bytes
	drought  *Watch // of all waits since there was content
	body     io.ReadCloser
	events   *sse.Reader
	begun    bool
	received int64
	err      error // what ended the body
}

// errTooLong ends an answer that exceeds the limit.
var errTooLong = fmt.Errorf("the answer is larger than %d MiB", maxAnswer>>20)

// Next returns the next event. Its error is raw; pass it to [Stream.Fail].
func (s *Stream) Next() (sse.Event, error) { return s.events.Next() }

// Read reads the body. The watches run only in here: a consumer that takes its
// time must not be taken for a silent server.
func (s *Stream) Read(p []byte) (int, error) {
	if s.received > maxAnswer {
		return 0, errTooLong
	}
	s.silence.Reset()
	s.silence.Start()
	if s.begun {
		s.drought.Start()
	}
	n, err := s.body.Read(p)
	s.silence.Stop()
	s.drought.Stop()
	s.received += int64(n)
	if n > 0 && !s.begun {
		s.begun = true
		s.silence.SetLimit(orDefault(s.endpoint.IdleTimeout, DefaultIdleTimeout))
	}
	if err != nil {
		s.err = err
	}
	return n, err
}

// Content says that what was read has brought the answer on. Signs of life, such
// as pings, do not.
func (s *Stream) Content() { s.drought.Reset() }

// Hurry shortens the wait for more bytes, once only an epilogue is missing.
func (s *Stream) Hurry(limit time.Duration) { s.silence.SetLimit(min(s.silence.Limit(), limit)) }

// Fail returns the error to report for err, which ended the call: the cause of
// the caller's context if that ended, otherwise a *model.Error that says what
// happened. An end of file means that the stream was cut, since the caller did
// not see the answer's own end.
func (s *Stream) Fail(err error) error {
	var reported *model.Error
	var urlErr *url.Error
	switch {
	case s.parent.Err() != nil:
		return context.Cause(s.parent)
	case errors.Is(context.Cause(s.ctx), errSilent):
		return s.endpoint.fail(model.Retryable, fmt.Sprintf("sent nothing for %v", s.silence.Limit()), errSilent)
	case errors.Is(context.Cause(s.ctx), errDrought):
		return s.endpoint.fail(model.Retryable, fmt.Sprintf("sent nothing but signs of life for %v", s.drought.Limit()), errDrought)
	case errors.As(err, &reported):
		return reported
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return s.endpoint.fail(model.Retryable, "the stream was cut before the answer was complete", io.ErrUnexpectedEOF)
	case errors.Is(err, errTooLong):
		return s.endpoint.fail(model.Invalid, err.Error(), err)
	case errors.As(err, &urlErr): // its text holds the URL, which may hold a key
		return s.endpoint.fail(model.Retryable, "no connection to "+s.endpoint.URL.Host+": "+urlErr.Err.Error(), urlErr.Err)
	}
	return s.endpoint.fail(model.Retryable, "the stream broke: "+err.Error(), err)
}

// Malformed returns the error for an answer that does not follow its format.
func (s *Stream) Malformed(format string, args ...any) error {
	return s.endpoint.fail(model.Retryable, "malformed answer: "+fmt.Sprintf(format, args...), nil)
}

// Interrupted returns the error for an answer that its server did not finish.
func (s *Stream) Interrupted(format string, args ...any) error {
	return s.endpoint.fail(model.Retryable, fmt.Sprintf(format, args...), nil)
}

// Rejected returns the error for a failure that the server reported inside the
// stream, as JSON.
func (s *Stream) Rejected(data []byte) error {
	return s.endpoint.failure(parseFailure(data))
}

// drainTime bounds all waiting for the end of a body whose answer is complete.
const drainTime = 50 * time.Millisecond

// Close ends the call.
func (s *Stream) Close() { s.release(false) }

// Complete is Close for an answer that was received whole. It reads the few bytes
// that close the body, so that the connection can carry the next call.
func (s *Stream) Complete() { s.release(true) }

func (s *Stream) release(drain bool) {
	if s.body != nil {
		if drain && s.err == nil {
			timer := time.AfterFunc(drainTime, func() { s.cancel(nil) })
			_, _ = io.CopyN(io.Discard, s, 4<<10)
			timer.Stop()
		}
		s.cancel(nil)
		_ = s.body.Close()
	}
	s.cancel(nil)
	s.silence.Stop()
	s.drought.Stop()
}
