package exchange_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/exchange"
)

// Each call gets a token of its own, in place of a fixed one.
func TestTokenOfEachCall(t *testing.T) {
	var sent []string
	e := endpoint(t, func(r *http.Request) (*http.Response, error) {
		sent = append(sent, r.Header.Get("Authorization"))
		return respond(r, 200, "text/event-stream", io.NopCloser(strings.NewReader(""))), nil
	})
	e.Header.Set("Authorization", "Bearer fixed")
	n := 0
	e.Token = func(context.Context) (string, error) { n++; return fmt.Sprintf(" token-%d\n", n), nil }
	for range 2 {
		s, err := e.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	if got := strings.Join(sent, ", "); got != "Bearer token-1, Bearer token-2" {
		t.Errorf("sent %s", got)
	}
}

// A server that echoes the token does not bring it into a message, neither in a
// refusal nor within a stream.
func TestTokenIsRedacted(t *testing.T) {
	token := func(context.Context) (string, error) { return "ya29.short-lived", nil }
	e := endpoint(t, func(r *http.Request) (*http.Response, error) {
		return respond(r, 401, "text/plain", io.NopCloser(strings.NewReader("expired: ya29.short-lived and sk-secret"))), nil
	})
	e.Token = token
	_, err := e.Open(t.Context(), nil)
	wantError(t, err, model.Auth, "expired: [redacted] and [redacted]")

	e = endpoint(t, func(r *http.Request) (*http.Response, error) {
		return respond(r, 200, "text/event-stream", io.NopCloser(strings.NewReader(""))), nil
	})
	e.Token = token
	s, err := e.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	wantError(t, s.Rejected([]byte(`{"error":{"message":"gone: ya29.short-lived"}}`)), model.Retryable, "gone: [redacted]")
}

type timeout struct{}

func (timeout) Error() string   { return "lookup timed out" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

func TestNoToken(t *testing.T) {
	for _, tt := range []struct {
		name  string
		token string
		err   error
		class model.Class
		part  string
	}{
		{"refused", "", errors.New("no credentials found"), model.Auth, "no token for the call: no credentials found"},
		{"empty", " ", nil, model.Auth, "empty"},
		{"network", "", fmt.Errorf("ask the metadata server: %w", timeout{}), model.Retryable, "lookup timed out"},
		{"network with an address", "", &url.Error{Op: "Post", URL: "http://h/?key=hunter2", Err: errors.New("connection refused")}, model.Retryable, "connection refused"},
		{"own class", "", &model.Error{Provider: "p", Class: model.Quota, Message: "no more"}, model.Quota, "no more"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := endpoint(t, func(*http.Request) (*http.Response, error) {
				t.Error("a request was sent without a token")
				return nil, errors.New("sent")
			})
			e.Token = func(context.Context) (string, error) { return tt.token, tt.err }
			_, err := e.Open(t.Context(), nil)
			wantError(t, err, tt.class, tt.part)
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the URL is in the error: %v", err)
			}
		})
	}
}

// A source that hangs is given up like a server that does, and ends with the call.
func TestTokenSourceThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := endpoint(t, nil)
		e.Token = func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		start := time.Now()
		_, err := e.Open(t.Context(), nil)
		wantError(t, err, model.Retryable, "sent nothing")
		if took := time.Since(start); took != exchange.DefaultFirstTimeout {
			t.Errorf("gave up after %v", took)
		}
		cause := errors.New("submission aborted")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		if _, err := e.Open(ctx, nil); err != cause {
			t.Errorf("error = %v, want the context's cause", err)
		}
	})
}

// A key with a line break in it is a mistake that no repetition mends. It is not
// shown.
func TestKeyThatCannotBeSent(t *testing.T) {
	e := endpoint(t, func(*http.Request) (*http.Response, error) {
		t.Error("a request was sent")
		return nil, errors.New("no")
	})
	e.Header.Set("Authorization", "Bearer sk-secret\nand more")
	_, err := e.Open(t.Context(), nil)
	wantError(t, err, model.Auth, "the header Authorization has a character that no header can have, such as a line break; look at the key that was set")
}

// A failure without a message is told by its codes, in which a server can echo a
// key as well.
func TestCodesAreRedacted(t *testing.T) {
	e := endpoint(t, func(r *http.Request) (*http.Response, error) {
		return respond(r, 401, "application/json", io.NopCloser(strings.NewReader(`{"error":{"type":"bad","code":"sk-secret"}}`))), nil
	})
	_, err := e.Open(t.Context(), nil)
	wantError(t, err, model.Auth, "bad [redacted]")
}
