package flue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// A shaky store fails as it is told to.
type shakyStore struct {
	*memstore.Store

	mu   sync.Mutex
	err  error // of every call of a client, if not nil
	done bool  // what is asked for is done all the same
}

func (s *shakyStore) fail(err error, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.done = err, done
}

func shake[T any](s *shakyStore, do func() (T, error)) (T, error) {
	s.mu.Lock()
	err, done := s.err, s.done
	s.mu.Unlock()
	var v T
	if err == nil || done {
		var own error
		if v, own = do(); own != nil {
			return v, own
		}
	}
	if err != nil {
		var zero T
		return zero, err
	}
	return v, nil
}

func (s *shakyStore) Admit(ctx context.Context, a *store.Admission) (store.Receipt, error) {
	return shake(s, func() (store.Receipt, error) { return s.Store.Admit(ctx, a) })
}

func (s *shakyStore) Abort(ctx context.Context, addr store.Address, payload []byte) (bool, error) {
	return shake(s, func() (bool, error) { return s.Store.Abort(ctx, addr, payload) })
}

func (s *shakyStore) Instance(ctx context.Context, addr store.Address) (store.Instance, error) {
	return shake(s, func() (store.Instance, error) { return s.Store.Instance(ctx, addr) })
}

func (s *shakyStore) Submission(ctx context.Context, addr store.Address, id string) (store.Submission, error) {
	return shake(s, func() (store.Submission, error) { return s.Store.Submission(ctx, addr, id) })
}

func (s *shakyStore) Read(ctx context.Context, addr store.Address, after int64, limit int) (store.Page, error) {
	return shake(s, func() (store.Page, error) { return s.Store.Read(ctx, addr, after, limit) })
}

func (s *shakyStore) Attachment(ctx context.Context, addr store.Address, id string) (store.Attachment, error) {
	return shake(s, func() (store.Attachment, error) { return s.Store.Attachment(ctx, addr, id) })
}

// served is a runtime on s behind a server, with an agent named actor.
func served(t *testing.T, s store.Store, limits flue.Limits, reply func(*model.Request) script.Turn) (*flue.Runtime, *httptest.Server, *lockedLog) {
	t.Helper()
	log := new(lockedLog)
	agent := plain(nil)
	agent.Name = "actor"
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{agent}, Providers: map[string]model.Provider{"fake": script.New(script.Func(reply))}, Store: s, Limits: limits,
		Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.StripPrefix("/agents/actor", rt.Handler("actor")))
	t.Cleanup(func() {
		server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := rt.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return rt, server, log
}

// A lockedLog can be read while it is written.
type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// An httpAnswer is what a server has answered.
type httpAnswer struct {
	status int
	header http.Header
	body   string
	Error  struct {
		Type    flue.Code
		Message string
		Details string
		Meta    map[string]any
	}
}

func request(t *testing.T, method, url, body string) httpAnswer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := httpAnswer{status: resp.StatusCode, header: resp.Header, body: string(data)}
	_ = json.Unmarshal(data, &a)
	return a
}

// While the store cannot be reached, requests are answered with a 503 that says
// when to come again, and what it means to do so. A message that is sent again
// under its key is accepted once, whether the first try was or not.
func TestStoreUnavailable(t *testing.T) {
	secret := errors.New("dial tcp 10.0.0.7:5432: connect: connection refused")
	for _, tt := range []struct {
		name    string
		err     error
		done    bool // and the write is done
		writes  flue.Code
		reads   flue.Code
		details string // of a write
	}{
		{"unreachable", fmt.Errorf("%w: %w", store.ErrUnavailable, secret), false, flue.CodeStoreUnavailable, flue.CodeStoreUnavailable, "not known"},
		{"the answer is lost", fmt.Errorf("%w: %w", store.ErrUnavailable, secret), true, flue.CodeStoreUnavailable, flue.CodeStoreUnavailable, "not known"},
		{"an error of another store", secret, true, flue.CodeStoreUnavailable, flue.CodeInternal, "not known"},
		{"poisoned", fmt.Errorf("%w: %w", store.ErrPoisoned, secret), false, flue.CodeStoreUnavailable, flue.CodeStoreUnavailable, "was not accepted"},
		{"its own timeout", fmt.Errorf("no answer: %w", context.DeadlineExceeded), true, flue.CodeStoreUnavailable, flue.CodeInternal, "not known"},
		{"damaged", fmt.Errorf("%w: %w", store.ErrCorrupt, secret), false, flue.CodeInternal, flue.CodeInternal, ""},
		{"closed", store.ErrClosed, false, flue.CodeUnavailable, flue.CodeUnavailable, "another process"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &shakyStore{Store: memstore.New()}
			rt, server, log := served(t, s, flue.Limits{}, sayOK)
			url := server.URL + "/agents/actor/one"
			if got := request(t, "POST", url, `{"kind":"user","body":"first"}`); got.status != http.StatusAccepted {
				t.Fatal(got)
			}
			body := `{"kind":"user","body":"second","idempotencyKey":"k"}`
			s.fail(tt.err, tt.done)
			check := func(what string, got httpAnswer, code flue.Code, details string) {
				t.Helper()
				status, after := http.StatusServiceUnavailable, "5"
				switch code {
				case flue.CodeInternal:
					status, after = http.StatusInternalServerError, ""
				case flue.CodeUnavailable:
					after = "1"
				}
				if got.status != status || got.Error.Type != code || got.header.Get("Retry-After") != after || !strings.Contains(got.Error.Details, details) {
					t.Errorf("%s: %d %s, Retry-After %q", what, got.status, got.body, got.header.Get("Retry-After"))
				}
				if strings.Contains(got.body, "10.0.0.7") {
					t.Errorf("%s: the client is told of the cause: %s", what, got.body)
				}
			}
			check("a message", request(t, "POST", url, body), tt.writes, tt.details)
			check("an abort", request(t, "POST", url+"/abort", ""), tt.writes, tt.details)
			check("the history", request(t, "GET", url, ""), tt.reads, "")
			check("a file", request(t, "GET", url+"/attachments/x", ""), tt.reads, "")
			if tt.writes == flue.CodeStoreUnavailable && errors.Is(tt.err, secret) && !strings.Contains(log.String(), "10.0.0.7") {
				t.Errorf("the log does not have the cause:\n%s", log)
			}

			in := rt.Instance("actor", "one")
			m, key := flue.User("second"), flue.SendOptions{IdempotencyKey: "k"}
			_, err := in.Dispatch(t.Context(), m, key)
			if got := errors.Is(err, &flue.Error{Code: tt.writes}); got != (tt.writes != flue.CodeInternal) {
				t.Errorf("Dispatch: %v", err)
			}
			if tt.writes == flue.CodeStoreUnavailable && (!errors.Is(err, tt.err) || !strings.Contains(err.Error(), tt.err.Error())) {
				t.Errorf("Dispatch does not tell the cause: %v", err)
			}
			_, err = in.Read(t.Context(), "sub_x")
			if got := errors.Is(err, &flue.Error{Code: tt.reads}); got != (tt.reads != flue.CodeInternal) {
				t.Errorf("Read: %v", err)
			}

			s.fail(nil, false)
			r, err := in.Dispatch(t.Context(), m, key)
			if err != nil || r.Duplicate != tt.done {
				t.Fatalf("%+v, %v", r, err)
			}
			if again, err := in.Dispatch(t.Context(), m, key); err != nil || !again.Duplicate || again.Submission != r.Submission {
				t.Errorf("%+v, %v", again, err)
			}
			if _, err := in.Read(t.Context(), r.Submission); err != nil && !tt.done { // it may have been aborted
				t.Error(err)
			}
			if n := admitted(t, s.Store, "second"); n != 1 {
				t.Errorf("the message is there %d times", n)
			}
		})
	}
}

// admitted counts the messages with the body that an instance was sent.
func admitted(t *testing.T, s store.Store, body string) (n int) {
	t.Helper()
	for b, err := range store.Batches(t.Context(), s, store.Address{Agent: "actor", ID: "one"}, -1) {
		if err != nil {
			t.Fatal(err)
		}
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range batch.Records {
			if a, ok := r.(*journal.Admitted); ok && a.Message.Body == body {
				n++
			}
		}
	}
	return n
}

// Who has sent a message and gone away is told nothing: the message may be there or
// not, and that is no failure of the store.
func TestSenderThatHasGone(t *testing.T) {
	s := &shakyStore{Store: memstore.New()}
	rt, _, _ := served(t, s, flue.Limits{}, sayOK)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := rt.Instance("actor", "one").Dispatch(ctx, flue.User("hello"))
	if !errors.Is(err, context.Canceled) || errors.Is(err, &flue.Error{Code: flue.CodeStoreUnavailable}) {
		t.Errorf("%v", err)
	}
}
