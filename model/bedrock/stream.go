package bedrock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/exchange"
)

// The causes with which a call is ended when the service is silent, or sends
// nothing that is part of the answer.
var (
	errSilent  = errors.New("the service went silent")
	errDrought = errors.New("the service sent no content")
)

// A transport sends requests with a body of its own. The SDK closes a request's body
// as soon as there is a response, and the transport, which may still look for the
// body's end, then closes the connection.
type transport struct{ aws.HTTPClient }

// Do implements [aws.HTTPClient].
func (t transport) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return t.HTTPClient.Do(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	own := *r
	own.Body = io.NopCloser(bytes.NewReader(body))
	return t.HTTPClient.Do(&own)
}

// A stream is one answer being received. It is not safe for concurrent use.
type stream struct {
	provider *Provider
	parent   context.Context // the caller's
	ctx      context.Context // ends with the parent, and when the service is silent
	cancel   context.CancelCauseFunc
	silence  *exchange.Watch // of the wait for the next event
	drought  *exchange.Watch // of all waits since there was content
	begun    bool
	events   *bedrockruntime.ConverseStreamEventStream
}

// open sends a request. The caller must close the stream.
func (p *Provider) open(ctx context.Context, in *bedrockruntime.ConverseStreamInput) (*stream, error) {
	s := &stream{provider: p, parent: ctx}
	callCtx, cancel := context.WithCancelCause(ctx)
	s.ctx, s.cancel = callCtx, cancel
	s.silence = exchange.NewWatch(p.first, func() { cancel(errSilent) })
	s.drought = exchange.NewWatch(p.content, func() { cancel(errDrought) })
	s.silence.Start()
	out, err := p.client().ConverseStream(callCtx, in)
	s.silence.Stop()
	if err != nil {
		defer s.close()
		return nil, s.fail(err)
	}
	s.events = out.GetStream()
	return s, nil
}

// next returns the next event, or the error to report.
func (s *stream) next() (types.ConverseStreamOutput, error) {
	s.silence.Reset()
	s.silence.Start()
	defer s.silence.Stop()
	if s.begun {
		s.drought.Start()
		defer s.drought.Stop()
	}
	select {
	case e, ok := <-s.events.Events():
		if ok {
			s.begun = true
			s.hurry(s.provider.idle)
			return e, nil
		}
		if err := s.events.Err(); err != nil {
			return nil, s.fail(err)
		}
		return nil, s.fail(io.ErrUnexpectedEOF)
	case <-s.ctx.Done():
		return nil, s.fail(context.Cause(s.ctx))
	}
}

// hurry shortens the wait for more events, once only an epilogue is missing.
func (s *stream) hurry(limit time.Duration) { s.silence.SetLimit(min(s.silence.Limit(), limit)) }

// fail returns the error to report for err, which ended the call: the cause of
// the caller's context if that ended, otherwise a *model.Error.
func (s *stream) fail(err error) error {
	switch {
	case s.parent.Err() != nil:
		return context.Cause(s.parent)
	case errors.Is(context.Cause(s.ctx), errSilent):
		return s.provider.fail(model.Retryable, fmt.Sprintf("sent nothing for %v", s.silence.Limit()), errSilent)
	case errors.Is(context.Cause(s.ctx), errDrought):
		return s.provider.fail(model.Retryable, fmt.Sprintf("sent nothing but signs of life for %v", s.drought.Limit()), errDrought)
	}
	return s.provider.failure(err)
}

// malformed returns the error for an answer that does not follow its format.
func (s *stream) malformed(format string, args ...any) error {
	return s.provider.fail(model.Retryable, "malformed answer: "+fmt.Sprintf(format, args...), nil)
}

func (s *stream) close() {
	s.silence.Stop()
	s.drought.Stop()
	s.cancel(nil)
	if s.events != nil {
		_ = s.events.Close()
	}
}
