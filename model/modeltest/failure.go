package modeltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flue-go/flue/model"
)

func wantClass(t *testing.T, err error, class model.Class) {
	t.Helper()
	var e *model.Error
	switch {
	case !errors.As(err, &e):
		t.Errorf("error = %v (%T), want a *model.Error of class %s", err, err, class)
	case e.Class != class:
		t.Errorf("error = %v of class %s, want class %s", e, e.Class, class)
	case e.Provider == "" || e.Error() == "":
		t.Errorf("error %#v does not say whose it is or what it is", e)
	}
	if err != nil && strings.Contains(err.Error(), Key) {
		t.Errorf("the API key is in the error: %v", err)
	}
}

// failures tests refusals: those of the suite, and what statuses mean alone.
func (r *runner) failures(t *testing.T) {
	all := r.Failures
	for class, statuses := range map[model.Class][]int{
		model.Retryable:   {408, 409, 425, 500, 502, 503, 504},
		model.RateLimited: {429},
		model.Overloaded:  {529},
		model.Quota:       {402},
		model.Overflow:    {413},
		model.Auth:        {401, 403},
		model.Invalid:     {400, 404, 405, 422},
	} {
		for _, status := range statuses {
			all = append(all, Failure{Name: fmt.Sprintf("bare %d", status), Status: status, Class: class})
		}
	}
	all = append(all,
		Failure{Name: "echoed key", Status: 401, Body: "no such key: " + Key, Class: model.Auth, Message: "no such key"},
		Failure{Name: "retry after seconds", Status: 429, Header: map[string]string{"Retry-After": "7"}, Class: model.RateLimited, RetryAfter: 7 * time.Second},
		Failure{Name: "retry after milliseconds", Status: 503, Header: map[string]string{"Retry-After-Ms": "250"}, Class: model.Retryable, RetryAfter: 250 * time.Millisecond},
		Failure{Name: "retry after a very long time", Status: 503, Header: map[string]string{"Retry-After": "9999999999"}, Class: model.Retryable, RetryAfter: 24 * time.Hour},
		Failure{Name: "redirect", Status: 307, Header: map[string]string{"Location": "/elsewhere"}, Class: model.Invalid},
		Failure{Name: "a web page", Status: 200, Header: map[string]string{"Content-Type": "text/html"}, Body: "<html></html>", Class: model.Invalid},
		Failure{Name: "endless body", Status: 500, Body: strings.Repeat("x", 4<<20), Class: model.Retryable},
	)
	for _, f := range all {
		t.Run(f.Name, func(t *testing.T) {
			r.answer(func(w http.ResponseWriter, _ *http.Request) {
				for name, value := range f.Header {
					w.Header().Set(name, value)
				}
				w.WriteHeader(f.Status)
				_, _ = io.WriteString(w, f.Body)
			})
			got, err := Collect(t, r.provider(0).Stream(t.Context(), Hello()))
			wantClass(t, err, f.Class)
			var e *model.Error
			if !errors.As(err, &e) {
				return
			}
			if len(got.Events) > 0 {
				t.Errorf("events before the error: %v", got.Events)
			}
			if e.Status != f.Status || e.RetryAfter != f.RetryAfter {
				t.Errorf("status %d, retry after %v; want %d, %v", e.Status, e.RetryAfter, f.Status, f.RetryAfter)
			}
			if !strings.Contains(e.Error(), f.Message) || len(e.Error()) > 8<<10 {
				t.Errorf("error = %.300q (%d bytes), want %q in it", e, len(e.Error()), f.Message)
			}
		})
	}
}

// connection tests servers that do not answer at all.
func (r *runner) connection(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	p := r.New(Settings{BaseURL: closed.URL, APIKey: Key, Client: r.client})
	_, err := Collect(t, p.Stream(t.Context(), Hello()))
	wantClass(t, err, model.Retryable)

	r.answer(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err = Collect(t, r.provider(0).Stream(t.Context(), Hello()))
	wantClass(t, err, model.Retryable)

	for _, headers := range []bool{false, true} {
		left := make(chan struct{})
		r.answer(func(w http.ResponseWriter, req *http.Request) {
			if headers {
				send(w, nil)
			}
			hold(t, req, left)
		})
		p := r.New(Settings{BaseURL: r.server.URL, APIKey: Key, Client: r.client, IdleTimeout: idle, FirstTimeout: idle})
		_, err := Collect(t, p.Stream(t.Context(), Hello()))
		wantClass(t, err, model.Retryable)
		gone(t, left)
	}
}

// request tests that a request is JSON, is the same each time, and that the
// caller's value is left alone.
func (r *runner) request(t *testing.T, x Exchange) {
	var bodies [][]byte
	r.answer(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		bodies = append(bodies, body)
		if strings.Contains(req.URL.String(), Key) {
			t.Errorf("the API key is in the URL %s", req.URL)
		}
		send(w, x.Stream)
	})
	before := fmt.Sprintf("%#v", *x.Request)
	for range 2 {
		if _, err := Collect(t, r.provider(0).Stream(t.Context(), x.Request)); err != nil {
			t.Fatal(err)
		}
	}
	if len(bodies) != 2 || !json.Valid(bodies[0]) || !bytes.Equal(bodies[0], bodies[1]) {
		t.Errorf("two calls sent %q: want the same JSON twice", bodies)
	}
	if after := fmt.Sprintf("%#v", *x.Request); before != after {
		t.Errorf("the request was changed from\n%s\nto\n%s", before, after)
	}
}

// lateTools tests that a tool that came in the middle of the conversation is
// sent, behind the tools that were there before, whether or not the call that
// brought it in is still among the messages.
func (r *runner) lateTools(t *testing.T, x Exchange) {
	var body string
	r.answer(func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		body = string(b)
		send(w, x.Stream)
	})
	for _, after := range []string{"call_2", "call_3", "call_that_was_compacted_away"} {
		req := Unlocked(model.Origin{Provider: "test", Model: x.Request.Model})
		req.Tools[1].After = after
		if _, err := Collect(t, r.provider(0).Stream(t.Context(), req)); err != nil {
			t.Fatal(err)
		}
		late, others := req.Tools[1], []model.Tool{req.Tools[0], req.Tools[2]}
		at := strings.Index(body, late.Description)
		if at < 0 || !strings.Contains(body, `"`+late.Name+`"`) || !strings.Contains(body, `"channel"`) {
			t.Errorf("after %s: a tool that came later is not sent whole:\n%s", after, body)
		}
		for _, tool := range others {
			if i := strings.Index(body, tool.Description); i < 0 || i > at {
				t.Errorf("after %s: %s is not sent before the tool that came later:\n%s", after, tool.Name, body)
			}
		}
		for _, result := range req.Messages[2].Blocks {
			if !strings.Contains(body, result.Text) {
				t.Errorf("after %s: the result %q is not sent:\n%s", after, result.Text, body)
			}
		}
	}
}

// concurrent tests one provider under several calls at once.
func (r *runner) concurrent(t *testing.T, x Exchange) {
	r.answer(func(w http.ResponseWriter, _ *http.Request) { send(w, events(x.Stream)...) })
	p := r.provider(0)
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			got, err := Collect(t, p.Stream(t.Context(), x.Request))
			if err != nil {
				t.Errorf("error = %v", err)
				return
			}
			compare(t, x, got)
		})
	}
	calls.Wait()
}
