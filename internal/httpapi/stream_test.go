package httpapi_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/conformance/transcript"
	"github.com/flue-go/flue/internal/httpapi"
	"github.com/flue-go/flue/wire"
)

const jsonType = "application/json"

// post delivers a message and expects that it is accepted.
func post(t testing.TB, h http.Handler, target, text string) {
	t.Helper()
	w := do(h, "POST", target, http.Header{"Content-Type": {jsonType}}, []byte(`{"kind":"user","body":"`+text+`"}`))
	if w.Code != http.StatusAccepted {
		t.Fatalf("POST %s: %d %s", target, w.Code, w.Body)
	}
}

// A pieceWriter notes what each flush sent and when.
type pieceWriter struct {
	header http.Header
	status int
	start  time.Time
	buf    strings.Builder
	pieces []transcript.Piece
	fail   func() error // if not nil, asked by each write
}

func newPieceWriter() *pieceWriter {
	return &pieceWriter{header: http.Header{}, start: time.Now()}
}

func (w *pieceWriter) Header() http.Header    { return w.header }
func (w *pieceWriter) WriteHeader(status int) { w.status = status }

func (w *pieceWriter) Write(b []byte) (int, error) {
	if w.fail != nil {
		if err := w.fail(); err != nil {
			return 0, err
		}
	}
	return w.buf.Write(b)
}

func (w *pieceWriter) Flush() {
	w.pieces = append(w.pieces, transcript.Piece{At: time.Since(w.start), Data: w.buf.String()})
	w.buf.Reset()
}

// events are the events of the pieces, each with the whole second of its
// arrival.
func events(pieces []transcript.Piece, m *transcript.Mask) []transcript.Piece {
	var out []transcript.Piece
	for _, p := range pieces {
		for e := range strings.SplitSeq(strings.TrimSuffix(p.Data, "\n\n"), "\n\n") {
			out = append(out, transcript.Piece{At: p.At.Truncate(time.Second), Data: m.Text(e)})
		}
	}
	return out
}

// The recorded stream was idle for 35 s: a heartbeat after 15 s, and after 30 s
// another one and a control event.
func TestRecordedIdleStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := mounted(httpapi.Config{Backend: newFake()})
		r := recording(t, "35-raw-sse-idle-40s")
		post(t, h, "/agents/chat/c-idle", "x @text=1")

		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		w := newPieceWriter()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", r.Exchanges[1].Target, nil))

		want := r.Exchanges[1].Response
		var recorded, ours transcript.Mask
		if diff := cmp.Diff(headers(want.Header, &recorded), headers(w.header, &ours)); diff != "" {
			t.Errorf("headers (-recorded +got):\n%s", diff)
		}
		if diff := cmp.Diff(events(want.Pieces, &recorded), events(w.pieces, &ours)); diff != "" {
			t.Errorf("events (-recorded +got):\n%s", diff)
		}
	})
}

// The recorded reads waited: one until the window's end, one until its client
// left, one until a message came.
func TestRecordedLongPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := mounted(httpapi.Config{Backend: newFake()})
		x := recording(t, "36-raw-longpoll-timeout-and-disconnect").Exchanges
		post(t, h, "/agents/chat/c-lp", "x @text=1")
		var recorded, ours transcript.Mask

		start := time.Now()
		got := do(h, x[2].Method, x[2].Target, nil, nil)
		if d := time.Since(start); d != 30*time.Second {
			t.Errorf("a read without news waited %v, want 30s", d)
		}
		compare(t, 3, x[2], got, &recorded, &ours)

		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		w := httptest.NewRecorder()
		start = time.Now()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", x[3].Target, nil))
		if d := time.Since(start); d != time.Second || w.Code != 499 || w.Body.Len() != 0 {
			t.Errorf("a read whose client left ended after %v with %d and %d bytes, want 1s, 499, none", d, w.Code, w.Body.Len())
		}

		done := make(chan struct{})
		go func() {
			defer close(done)
			got = do(h, x[4].Method, x[4].Target, nil, nil)
		}()
		time.Sleep(300 * time.Millisecond)
		start = time.Now()
		post(t, h, "/agents/chat/c-lp", "wake @text=1")
		<-done
		if d := time.Since(start); d != 0 {
			t.Errorf("a read was woken %v after the message", d)
		}
		// How much of the turn there is when the reader looks depends on the engine.
		body := ours.Text(got.Body.String())
		if want := "wake @text=1"; got.Code != 200 || !strings.Contains(body, want) {
			t.Errorf("the read that was woken got %d %s, want a message %q", got.Code, body, want)
		}
	})
}

func TestUpdatesArePagedByBatches(t *testing.T) {
	f := newFake()
	h := mounted(httpapi.Config{Backend: f})
	for range 14 {
		post(t, h, "/agents/chat/p", "n @text=1")
	}
	first := do(h, "GET", "/agents/chat/p?view=updates&offset=-1", nil, nil)
	if got := first.Header().Get("Stream-Next-Offset"); got != "0000000000000000_0000000000000099" {
		t.Errorf("the first page ends at %s, want batch 99", got)
	}
	if v, ok := first.Header()["Stream-Up-To-Date"]; ok {
		t.Errorf("the first page says Stream-Up-To-Date: %q", v)
	}
	last := do(h, "GET", "/agents/chat/p?view=updates&offset=0000000000000000_0000000000000099", nil, nil)
	if got := last.Header(); got.Get("Stream-Next-Offset") != "0000000000000000_0000000000000113" || got.Get("Stream-Up-To-Date") != "true" {
		t.Errorf("the last page has headers %v, want batch 113 and up to date", got)
	}
	// A waiting read does not wait while there is more.
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		do(h, "GET", "/agents/chat/p?view=updates&live=long-poll&offset=-1", nil, nil)
		if d := time.Since(start); d != 0 {
			t.Errorf("a long poll with news took %v", d)
		}
	})
}

func TestStreamReadsPagesAndFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		h := mounted(httpapi.Config{Backend: f})
		for range 14 {
			post(t, h, "/agents/chat/p", "n @text=1")
		}
		ctx, cancel := context.WithCancel(t.Context())
		w := newPieceWriter()
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/agents/chat/p?view=updates&offset=-1&live=sse", nil))
		}()
		synctest.Wait()
		post(t, h, "/agents/chat/p", "later @text=1")
		synctest.Wait()
		cancel()
		<-done

		var m transcript.Mask
		var controls []string
		var before strings.Builder
		for _, e := range events(w.pieces, &m) {
			if c, ok := strings.CutPrefix(e.Data, "event: control\ndata:"); ok {
				controls = append(controls, c)
			} else if len(controls) < 2 {
				before.WriteString(e.Data)
			}
		}
		if n := strings.Count(before.String(), `"n @text=1"`); n != 14 {
			t.Errorf("of 14 messages that were there before it began, the stream has sent %d", n)
		}
		want := []string{
			`{"streamNextOffset":"0000000000000000_0000000000000099"}`,
			`{"streamNextOffset":"0000000000000000_0000000000000113","upToDate":true}`,
			`{"streamNextOffset":"0000000000000000_0000000000000121","upToDate":true}`,
		}
		if diff := cmp.Diff(want, controls); diff != "" {
			t.Errorf("control events (-want +got):\n%s", diff)
		}
		if got := w.pieces[len(w.pieces)-1].Data; !strings.Contains(got, "later @text=1") {
			t.Errorf("the stream did not follow: %s", got)
		}
	})
}

// stream runs one stream to its end in the background.
func follow(ctx context.Context, h http.Handler, w http.ResponseWriter) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/agents/chat/s?view=updates&offset=-1&live=sse", nil))
	}()
	return done
}

func TestStreamEnds(t *testing.T) {
	tests := []struct {
		name  string
		cause func(f *fake, h *httpapi.Handler, w *pieceWriter)
		logs  bool
	}{
		{"when the handler closes", func(_ *fake, h *httpapi.Handler, _ *pieceWriter) { h.Close() }, false},
		{"when the client does not take an event", func(f *fake, _ *httpapi.Handler, w *pieceWriter) {
			w.fail = func() error { return errors.New("broken pipe") }
			f.mu.Lock()
			defer f.mu.Unlock()
			f.conversations["s"].append()
		}, false},
		{"when the conversation is made anew", func(f *fake, _ *httpapi.Handler, _ *pieceWriter) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.conversations["s"].incarnation = "inc_other"
			f.conversations["s"].append()
		}, false},
		{"when the conversation is gone", func(f *fake, _ *httpapi.Handler, _ *pieceWriter) {
			f.mu.Lock()
			defer f.mu.Unlock()
			c := f.conversations["s"]
			f.conversations = map[string]*conversation{}
			c.append()
		}, false},
		{"when the backend fails", func(f *fake, _ *httpapi.Handler, _ *pieceWriter) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.before = func(string) error { return errors.New("disk on fire") }
			f.conversations["s"].append()
		}, true},
		{"when the backend closes", func(f *fake, _ *httpapi.Handler, _ *pieceWriter) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.before = func(string) error { return &wire.Error{Code: wire.CodeUnavailable, Message: "closed"} }
			f.conversations["s"].append()
		}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				f := newFake()
				api := httpapi.New(httpapi.Config{Backend: f, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				h := http.StripPrefix("/agents/chat", api)
				post(t, h, "/agents/chat/s", "x")
				w := newPieceWriter()
				done := follow(t.Context(), h, w)
				synctest.Wait()
				test.cause(f, api, w)
				synctest.Wait()
				select {
				case <-done:
				default:
					t.Error("the stream goes on")
				}
				<-done
				if got := strings.Contains(log.String(), "disk on fire"); got != test.logs {
					t.Errorf("the log says %q, want the cause in it: %v", log.String(), test.logs)
				}
			})
		})
	}
}

func TestClosedHandlerDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := httpapi.New(httpapi.Config{Backend: newFake(), Logger: slog.New(slog.DiscardHandler)})
		h := http.StripPrefix("/agents/chat", api)
		post(t, h, "/agents/chat/s", "x @text=1")
		done := make(chan struct{})
		go func() {
			defer close(done)
			w := do(h, "GET", "/agents/chat/s?view=updates&live=long-poll&offset=0000000000000000_0000000000000009", nil, nil)
			if w.Code != http.StatusOK || w.Header().Get("Stream-Next-Offset") != "0000000000000000_0000000000000009" {
				t.Errorf("a read that was ended got %d %v", w.Code, w.Header())
			}
		}()
		synctest.Wait()
		start := time.Now()
		api.Close()
		<-done
		<-follow(t.Context(), h, newPieceWriter())
		if d := time.Since(start); d != 0 {
			t.Errorf("reads of a closed handler waited %v", d)
		}
	})
}

// A writer that cannot flush would hold the events back for ever.
func TestStreamNeedsFlush(t *testing.T) {
	h := mounted(httpapi.Config{Backend: newFake()})
	post(t, h, "/agents/chat/s", "x")
	w := httptest.NewRecorder()
	<-follow(t.Context(), h, struct{ http.ResponseWriter }{w})
	if w.Code != http.StatusInternalServerError || w.Header().Get("Flue-Error-Ref") == "" {
		t.Errorf("status %d, headers %v, want 500 with a reference", w.Code, w.Header())
	}
}

// Middleware may wrap the writer if it can be unwrapped.
func TestStreamThroughWrapper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := mounted(httpapi.Config{Backend: newFake()})
		post(t, h, "/agents/chat/s", "x")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := newPieceWriter()
		<-follow(ctx, h, wrapped{w})
		if len(w.pieces) == 0 {
			t.Error("nothing was flushed through the wrapper")
		}
	})
}

type wrapped struct{ w http.ResponseWriter }

func (w wrapped) Header() http.Header         { return w.w.Header() }
func (w wrapped) WriteHeader(status int)      { w.w.WriteHeader(status) }
func (w wrapped) Write(b []byte) (int, error) { return w.w.Write(b) }
func (w wrapped) Unwrap() http.ResponseWriter { return w.w }
