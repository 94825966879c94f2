package exchange_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/exchange"
)

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// endpoint returns an Endpoint whose calls are answered by f.
func endpoint(t *testing.T, f transport) *exchange.Endpoint {
	t.Helper()
	u, err := exchange.ParseBase("http://model.test/v1/", "chat")
	if err != nil {
		t.Fatal(err)
	}
	return &exchange.Endpoint{
		Provider: "p", URL: u, Header: http.Header{}, Client: exchange.NewClient(&http.Client{Transport: f}),
		Secrets: []string{"sk-secret"},
	}
}

// respond returns a response with the given body, which ends with its request.
func respond(r *http.Request, status int, contentType string, body io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {contentType}}, Body: body,
	}
}

// pipe is a body that the test writes. It ends when its request does.
func pipe(r *http.Request) (*io.PipeReader, *io.PipeWriter) {
	pr, pw := io.Pipe()
	context.AfterFunc(r.Context(), func() { pw.CloseWithError(r.Context().Err()) })
	return pr, pw
}

func wantError(t *testing.T, err error, class model.Class, part string) {
	t.Helper()
	var e *model.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v (%T) is not a *model.Error", err, err)
	}
	if e.Class != class || !strings.Contains(e.Error(), part) {
		t.Errorf("error = %q (%s), want class %s and %q in it", e, e.Class, class, part)
	}
	if e.Provider != "p" {
		t.Errorf("error names provider %q", e.Provider)
	}
}

func TestSilentServer(t *testing.T) {
	tests := []struct {
		name   string
		answer transport
		after  time.Duration
	}{
		{"never answers", func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, exchange.DefaultFirstTimeout},
		{"headers, then nothing", func(r *http.Request) (*http.Response, error) {
			body, _ := pipe(r)
			return respond(r, 200, "text/event-stream", body), nil
		}, exchange.DefaultFirstTimeout},
		{"one event, then nothing", func(r *http.Request) (*http.Response, error) {
			body, w := pipe(r)
			go func() { _, _ = io.WriteString(w, "data: a\n\n") }()
			return respond(r, 200, "text/event-stream", body), nil
		}, exchange.DefaultIdleTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				s, err := endpoint(t, tt.answer).Open(t.Context(), nil)
				if err == nil {
					defer s.Close()
					for err == nil {
						_, err = s.Next()
					}
					err = s.Fail(err)
				}
				wantError(t, err, model.Retryable, "sent nothing for")
				if waited := time.Since(start); waited != tt.after {
					t.Errorf("gave up after %v, want %v", waited, tt.after)
				}
			})
		})
	}
}

// A server that speaks now and then is alive, however long the answer takes,
// and a consumer that is slow does not make its server silent.
func TestSlowIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := endpoint(t, func(r *http.Request) (*http.Response, error) {
			body, w := pipe(r)
			go func() {
				for range 5 {
					time.Sleep(exchange.DefaultIdleTimeout - time.Second)
					_, _ = io.WriteString(w, "data: a\n\n")
				}
				_ = w.Close()
			}()
			return respond(r, 200, "text/event-stream", body), nil
		})
		s, err := e.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		n := 0
		for {
			if _, err = s.Next(); err != nil {
				break
			}
			n++
			time.Sleep(10 * exchange.DefaultIdleTimeout) // the consumer's own work
		}
		if n != 5 || !errors.Is(err, io.EOF) {
			t.Errorf("read %d events, then %v; want 5, then EOF", n, err)
		}
	})
}

// A server that sends signs of life and nothing else is given up in the end: the
// waits for content add up, but not what the consumer does in between.
func TestOnlySignsOfLife(t *testing.T) {
	const beat = 20 * time.Second
	for _, tt := range []struct {
		name    string
		content int // every how many events
		busy    time.Duration
		limit   time.Duration
		after   time.Duration // zero: not within an hour
	}{
		{"pings for ever", 0, 0, 0, exchange.DefaultContentTimeout},
		{"pings while the consumer is busy", 0, beat, time.Minute, 0},
		{"a shorter limit", 0, 0, time.Minute, time.Minute},
		{"content at times", 10, 0, 0, 0},
		{"content too seldom", 10, 0, 2 * time.Minute, 2 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := endpoint(t, func(r *http.Request) (*http.Response, error) {
					body, w := pipe(r)
					go func() {
						for range int(time.Hour / beat) {
							if _, err := io.WriteString(w, "data: a\n\n"); err != nil {
								return
							}
							select {
							case <-time.After(beat):
							case <-r.Context().Done():
								return
							}
						}
						_ = w.Close()
					}()
					return respond(r, 200, "text/event-stream", body), nil
				})
				e.ContentTimeout = tt.limit
				s, err := e.Open(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				var waited time.Duration
				for n := 1; ; n++ {
					start := time.Now()
					_, err = s.Next()
					if waited += time.Since(start); err != nil {
						break
					}
					if tt.content > 0 && n%tt.content == 0 {
						waited = 0
						s.Content()
					}
					time.Sleep(tt.busy)
				}
				if tt.after == 0 {
					if !errors.Is(err, io.EOF) {
						t.Errorf("error = %v, want the end of the stream", err)
					}
					return
				}
				wantError(t, s.Fail(err), model.Retryable, "sent nothing but signs of life for "+tt.after.String())
				if waited != tt.after {
					t.Errorf("gave up after %v of waiting, want %v", waited, tt.after)
				}
			})
		})
	}
}

func TestContextCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("submission aborted")
		for _, phase := range []string{"connecting", "streaming"} {
			ctx, cancel := context.WithCancelCause(t.Context())
			e := endpoint(t, func(r *http.Request) (*http.Response, error) {
				if phase == "connecting" {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				body, _ := pipe(r)
				return respond(r, 200, "text/event-stream", body), nil
			})
			time.AfterFunc(time.Second, func() { cancel(cause) })
			s, err := e.Open(ctx, nil)
			if err == nil {
				_, err = s.Next()
				err = s.Fail(err)
				s.Close()
			}
			if err != cause {
				t.Errorf("%s: error = %v, want the context's cause", phase, err)
			}
		}
	})
}

func TestCompleteDrainsForReuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var body *io.PipeReader
		var w *io.PipeWriter
		e := endpoint(t, func(r *http.Request) (*http.Response, error) {
			body, w = pipe(r)
			return respond(r, 200, "text/event-stream", body), nil
		})
		for _, closes := range []bool{true, false} {
			s, err := e.Open(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				_, _ = io.WriteString(w, "data: end\n\n")
				if closes {
					_ = w.Close()
				}
			}()
			if _, err := s.Next(); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			s.Complete()
			if took := time.Since(start); closes && took != 0 || took > time.Second {
				t.Errorf("Complete took %v with a server that closes = %v", took, closes)
			}
		}
	})
}

// What comes after the end of an answer, byte by byte, does not hold it up.
func TestCompleteDoesNotWaitForDrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := make(chan struct{})
		e := endpoint(t, func(r *http.Request) (*http.Response, error) {
			body, w := pipe(r)
			go func() {
				defer close(stopped)
				_, err := io.WriteString(w, "data: end\n\n")
				for err == nil {
					time.Sleep(20 * time.Millisecond)
					_, err = io.WriteString(w, ":")
				}
			}()
			return respond(r, 200, "text/event-stream", body), nil
		})
		s, err := e.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		s.Complete()
		if took := time.Since(start); took > 50*time.Millisecond {
			t.Errorf("Complete took %v", took)
		}
		<-stopped
	})
}

func TestAnswerThatIsNoStream(t *testing.T) {
	tests := []struct {
		name        string
		status      int
		contentType string
		body        string
		class       model.Class
		part        string
	}{
		{"web page", 200, "text/html; charset=utf-8", "<html>hello</html>", model.Invalid, "text/html instead of an event stream"},
		{"json that is no failure", 200, "application/json", `{"choices":[]}`, model.Invalid, "application/json instead of an event stream"},
		{"failure with a 200", 200, "application/json", `{"error":{"message":"try later","type":"overloaded_error"}}`, model.Overloaded, "try later"},
		{"overflow with a 200", 200, "application/json", `{"error":{"message":"prompt is too long: 9 tokens"}}`, model.Overflow, "prompt is too long"},
		{"redirect", 307, "text/plain", "", model.Invalid, "redirected"},
		{"html error page", 502, "text/html", "<html>bad</html>", model.Retryable, "502: bad gateway"},
		{"empty body", 500, "", "", model.Retryable, "500: internal server error"},
		{"plain text", 503, "text/plain", "queue is\nfull", model.Retryable, "queue is full"},
		{"echoed key", 401, "application/json", `{"error":{"message":"bad key sk-secret"}}`, model.Auth, "bad key [redacted]"},
		{"huge body", 400, "text/plain", strings.Repeat("é", 1<<20), model.Invalid, "…"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := endpoint(t, func(r *http.Request) (*http.Response, error) {
				return respond(r, tt.status, tt.contentType, io.NopCloser(strings.NewReader(tt.body))), nil
			}).Open(t.Context(), nil)
			wantError(t, err, tt.class, tt.part)
			if strings.Contains(err.Error(), "sk-secret") {
				t.Errorf("the key is in the error: %v", err)
			}
			if n := len(err.Error()); n > 4<<10 {
				t.Errorf("the error is %d bytes long", n)
			}
		})
	}
}

func TestConnectionErrorHidesTheURL(t *testing.T) {
	e := endpoint(t, func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
	e.URL.RawQuery = "key=hunter2"
	_, err := e.Open(t.Context(), nil)
	wantError(t, err, model.Retryable, "no connection to model.test: connection refused")
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the query is in the error: %v", err)
	}
}

func TestParseBase(t *testing.T) {
	for _, tt := range []struct{ base, want, err string }{
		{base: "https://api.test", want: "https://api.test/v1/messages"},
		{base: "https://api.test/", want: "https://api.test/v1/messages"},
		{base: "http://127.0.0.1:8080/proxy/anthropic//", want: "http://127.0.0.1:8080/proxy/anthropic/v1/messages"},
		{base: "https://api.test/x?api-version=1", want: "https://api.test/x/v1/messages?api-version=1"},
		{base: "api.test", err: "must begin with http"},
		{base: "ftp://api.test", err: "must begin with http"},
		{base: "https://", err: "must begin with http"},
		{base: "https://user:pw@api.test", err: "must not hold credentials"},
		{base: "http://a b%", err: "does not parse"},
	} {
		u, err := exchange.ParseBase(tt.base, "v1/messages")
		switch {
		case tt.err == "" && (err != nil || u.String() != tt.want):
			t.Errorf("ParseBase(%q) = %v, %v; want %s", tt.base, u, err, tt.want)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("ParseBase(%q) error = %v, want %q in it", tt.base, err, tt.err)
		}
	}
}
