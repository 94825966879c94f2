// Package exchange carries one streamed model call over HTTP: it sends the
// request, reads the events of the answer, notices a silent or cut stream, and
// turns whatever went wrong into a [model.Error] of the right class. It knows
// no provider's format and never retries.
package exchange

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/flue-go/flue/internal/sse"
	"github.com/flue-go/flue/model"
)

// Defaults of an Endpoint.
const (
	DefaultIdleTimeout    = 2 * time.Minute
	DefaultFirstTimeout   = 5 * time.Minute
	DefaultContentTimeout = 15 * time.Minute
)

const (
	maxAnswer  = 128 << 20 // bytes of one answer
	maxFailure = 64 << 10  // bytes read of an answer that reports a failure
)

// The causes with which a call is ended when its server is silent, or says
// nothing but that it is there.
var (
	errSilent  = errors.New("the server went silent")
	errDrought = errors.New("the server sent no content")
)

// An Endpoint is where calls go. It is safe for concurrent use; its fields must
// not change after the first call.
type Endpoint struct {
	Provider string // name used in errors
	URL      *url.URL
	Header   http.Header // sent with every call
	Client   *http.Client

	// Token, if any, is asked before each call for the bearer token to send,
	// in place of an Authorization in Header. FirstTimeout includes the wait for it.
	Token model.TokenSource

	// Classify, if any, says what a code of this service's own means. It goes
	// before the rules for all services; an empty class leaves it to them.
	Classify func(code string) model.Class

	// Secrets are removed from every message that a server sends back.
	Secrets []string

	// IdleTimeout bounds each wait for more bytes of an answer that has begun,
	// FirstTimeout the wait for its first byte, and ContentTimeout all waits
	// between pieces of content, whatever else is sent. Zero means the default.
	IdleTimeout    time.Duration
	FirstTimeout   time.Duration
	ContentTimeout time.Duration
}

// ParseBase checks a base URL and returns the URL of path below it. A trailing
// slash and a query string are kept out of the way of the path.
func ParseBase(base, path string) (*url.URL, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, errors.New("base URL does not parse; it must look like https://host/path")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("base URL must begin with http:// or https:// and name a host")
	}
	if u.User != nil {
		return nil, errors.New("base URL must not hold credentials; configure a key or a header")
	}
	return u.JoinPath(path), nil
}

// NewClient returns the client to use for calls: client, or one that uses the
// default transport when client is nil, that does not follow redirects. A
// redirect would send the key to a host that nobody configured.
func NewClient(client *http.Client) *http.Client {
	c := http.Client{}
	if client != nil {
		c = *client
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// Open posts body, a JSON document, and returns the stream of the answer. The
// error is a *model.Error, or the cause of ctx when that ended. The caller must
// close the stream.
func (e *Endpoint) Open(ctx context.Context, body []byte) (*Stream, error) {
	s := &Stream{endpoint: e, parent: ctx}
	callCtx, cancel := context.WithCancelCause(ctx)
	s.ctx, s.cancel = callCtx, cancel
	s.silence = NewWatch(orDefault(e.FirstTimeout, max(DefaultFirstTimeout, e.IdleTimeout)), func() { cancel(errSilent) })
	s.drought = NewWatch(orDefault(e.ContentTimeout, max(DefaultContentTimeout, e.IdleTimeout)), func() { cancel(errDrought) })

	req, err := http.NewRequestWithContext(callCtx, http.MethodPost, e.URL.String(), bytes.NewReader(body))
	if err != nil {
		s.Close()
		return nil, e.fail(model.Invalid, "the request cannot be built", err)
	}
	req.Header = e.Header.Clone()

	s.silence.Start()
	if err := s.authorize(req); err != nil {
		defer s.Close()
		return nil, s.Fail(err)
	}
	if name := unsendable(req.Header); name != "" {
		s.Close()
		return nil, e.fail(model.Auth, fmt.Sprintf("the header %s has a character that no header can have, such as a line break; look at the key that was set", name), nil)
	}
	resp, err := e.Client.Do(req)
	s.silence.Stop()
	if err != nil {
		defer s.Close()
		return nil, s.Fail(err)
	}
	s.body = resp.Body
	if err := s.admit(resp); err != nil {
		s.Close()
		return nil, err
	}
	s.events = sse.NewReader(s, 0)
	return s, nil
}

// authorize sets the token of the call, when there is a source of tokens.
func (s *Stream) authorize(req *http.Request) error {
	e := s.endpoint
	if e.Token == nil {
		return nil
	}
	token, err := e.Token(req.Context())
	var own *model.Error
	var urlErr *url.Error // its text holds the URL, which may hold a key
	var network net.Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &urlErr):
		return e.fail(model.Retryable, "no token for the call: "+e.redact(urlErr.Err.Error()), urlErr.Err)
	case errors.As(err, &network):
		return e.fail(model.Retryable, "no token for the call: "+e.redact(err.Error()), err)
	case err != nil:
		return e.fail(model.Auth, "no token for the call: "+e.redact(err.Error()), err)
	case strings.TrimSpace(token) == "":
		return e.fail(model.Auth, "the source of tokens returned an empty one", nil)
	}
	token = strings.TrimSpace(token)
	req.Header.Set("Authorization", "Bearer "+token)
	call := *e
	call.Secrets = append([]string{token}, e.Secrets...)
	longestFirst(call.Secrets)
	s.endpoint = &call
	return nil
}

// admit refuses an answer that is not a stream of events.
func (s *Stream) admit(resp *http.Response) error {
	ok := resp.StatusCode >= 200 && resp.StatusCode < 300
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if ok && media != "application/json" && media != "text/html" {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(s, maxFailure))
	if err != nil && len(body) == 0 {
		if ctxErr := s.parent.Err(); ctxErr != nil {
			return s.Fail(err)
		}
	}
	f := parseFailure(body)
	f.status = resp.StatusCode
	switch {
	case ok && f.message == "":
		f.message = fmt.Sprintf("answered with %s instead of an event stream; check the base URL", media)
		f.code = "invalid_request_error"
		f.status = 0
	case ok:
		f.status = 0 // a failure that came with a 200: its own words decide
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		f.message = "redirected elsewhere; set the base URL to the final address"
	}
	if after := retryAfter(resp.Header, time.Now()); after > 0 {
		f.retry = after
	}
	failure := s.endpoint.failure(f)
	failure.Status = resp.StatusCode
	if id := requestID(resp.Header); id != "" {
		failure.Message += " (request " + id + ")"
	}
	return failure
}

// fail returns an error of this endpoint.
func (e *Endpoint) fail(class model.Class, message string, cause error) *model.Error {
	return &model.Error{Provider: e.Provider, Class: class, Message: message, Err: cause}
}

// redact removes the endpoint's secrets from what a server said.
func (e *Endpoint) redact(s string) string {
	for _, secret := range e.Secrets {
		if len(secret) >= 4 {
			s = strings.ReplaceAll(s, secret, "[redacted]")
		}
	}
	return s
}

func orDefault(d, fallback time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return fallback
}

// Header returns the headers of a call with a JSON body: the codec's own, then
// the configured ones, which replace those of the same name.
func Header(own, configured map[string]string) http.Header {
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "text/event-stream")
	// A compressed stream would be held back by whoever compresses it.
	h.Set("Accept-Encoding", "identity")
	h.Set("User-Agent", "flue-go")
	for _, fields := range []map[string]string{own, configured} {
		for name, value := range fields {
			h.Set(name, value)
		}
	}
	return h
}

// unsendable returns the name of a header whose value cannot be sent, or nothing.
// The transport would call that a failure of the connection.
func unsendable(h http.Header) string {
	for name, values := range h {
		for _, v := range values {
			if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return name
			}
		}
	}
	return ""
}

// Secrets returns what must not appear in a message: the values of the headers
// that carry credentials.
func Secrets(h http.Header) []string {
	var secrets []string
	for name, values := range h {
		name = strings.ToLower(name)
		for _, part := range []string{"auth", "key", "token", "secret", "cookie"} {
			if strings.Contains(name, part) {
				for _, v := range values {
					secrets = append(secrets, v, strings.TrimPrefix(v, "Bearer "))
				}
				break
			}
		}
	}
	longestFirst(secrets)
	return secrets
}

// longestFirst sorts secrets for redaction: otherwise a part of one would be
// replaced and the rest remain.
func longestFirst(secrets []string) {
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
}
