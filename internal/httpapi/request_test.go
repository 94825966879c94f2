package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/flue-go/flue/internal/httpapi"
	"github.com/flue-go/flue/wire"
)

func TestContentTypes(t *testing.T) {
	h := mounted(httpapi.Config{Backend: newFake()})
	const body = `{"kind":"user","body":"x"}`
	tests := []struct {
		contentType string
		status      int
	}{
		{"application/json", 202},
		{"application/json; charset=utf-8", 202},
		{"Application/JSON ;charset", 202},
		{"", 415},
		{"text/plain", 415},
		{"text/plain; application/json", 415}, // a page may send it anywhere without asking
		{"application/jsonp", 415},
		{"multipart/form-data; boundary=application/json", 415},
	}
	for _, test := range tests {
		header := http.Header{}
		if test.contentType != "" {
			header.Set("Content-Type", test.contentType)
		}
		if w := do(h, "POST", "/agents/chat/c", header, []byte(body)); w.Code != test.status {
			t.Errorf("Content-Type %q: %d %s, want %d", test.contentType, w.Code, w.Body, test.status)
		}
	}
}

// reader is a body of unknown length.
type reader struct{ io.Reader }

func TestBodyLimits(t *testing.T) {
	h := mounted(httpapi.Config{Backend: newFake(), MaxBody: 100})
	fits := `{"kind":"user","body":"` + strings.Repeat("x", 100-len(`{"kind":"user","body":""}`)) + `"}`
	tests := []struct {
		name   string
		body   io.Reader
		status int
		want   string
	}{
		{"at the limit", strings.NewReader(fits), 202, `"streamUrl"`},
		{"at the limit, length unknown", reader{strings.NewReader(fits)}, 202, `"streamUrl"`},
		{"above", strings.NewReader(fits + " "), 413, `{"error":{"type":"request_too_large","message":"Request body is too large.","details":"The server accepts bodies of at most 100 bytes."}}`},
		{"above, length unknown", reader{strings.NewReader(fits + " ")}, 413, `"request_too_large"`},
		{"cut off", reader{io.MultiReader(strings.NewReader("{"), failing{})}, 400, `"The request body ended early`},
		{"empty, length unknown", reader{strings.NewReader("")}, 400, `"Delivered messages must be`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := httptest.NewRequest("POST", "/agents/chat/c", test.body)
			r.Header.Set("Content-Type", jsonType)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != test.status || !strings.Contains(w.Body.String(), test.want) {
				t.Errorf("got %d %s, want %d with %s", w.Code, w.Body, test.status, test.want)
			}
		})
	}
}

// A client that announces a body and does not send it must not hold memory for it.
func TestAnnouncedBodyHoldsNoMemory(t *testing.T) {
	const size = 8 << 20
	h := mounted(httpapi.Config{Backend: newFake()})
	body := &roomy{r: strings.NewReader(`{"kind":"user","body":"` + strings.Repeat("x", size-len(`{"kind":"user","body":""}`)) + `"}`)}
	r := httptest.NewRequest("POST", "/agents/chat/c", body)
	r.Header.Set("Content-Type", jsonType)
	r.ContentLength = size
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusAccepted {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if len(body.rooms) == 0 || body.rooms[0] > 64<<10 {
		t.Errorf("before anything was sent there was room for %d bytes", body.rooms[0])
	}
	for _, room := range body.rooms {
		if room > size/2+1 {
			t.Errorf("there was room for %d bytes more, of %d", room, size)
		}
	}
}

// roomy notes how much each read could have given.
type roomy struct {
	r     io.Reader
	rooms []int
}

func (r *roomy) Read(p []byte) (int, error) {
	r.rooms = append(r.rooms, len(p))
	return r.r.Read(p)
}

// A body whose length is unknown is a body, so it needs a Content-Type.
func TestBodyWithoutContentType(t *testing.T) {
	h := mounted(httpapi.Config{Backend: newFake()})
	r := httptest.NewRequest("POST", "/agents/chat/c", reader{strings.NewReader(`{"kind":"user","body":"x"}`)})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusUnsupportedMediaType {
		t.Errorf("got %d %s, want 415", w.Code, w.Body)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestTraceparent(t *testing.T) {
	const valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	tests := []struct{ in, want string }{
		{valid, valid},
		{"cc" + valid[2:] + "-what-the-future-will-be", "cc" + valid[2:] + "-what-the-future-will-be"},
		{"", ""},
		{valid[:54], ""},
		{valid + "-x", ""},
		{"ff" + valid[2:], ""},
		{strings.ToUpper(valid), ""},
		{"00-00000000000000000000000000000000-b7ad6b7169203331-01", ""},
		{"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", ""},
		{strings.ReplaceAll(valid, "-", "_"), ""},
		{"cc" + valid[2:] + "-" + strings.Repeat("x", 300), ""},
	}
	for _, test := range tests {
		f := &capture{fake: newFake()}
		do(mounted(httpapi.Config{Backend: f}), "POST", "/agents/chat/c", http.Header{"Content-Type": {jsonType}, "Traceparent": {test.in}}, []byte(`{"kind":"user","body":"x"}`))
		if f.prompt.Traceparent != test.want {
			t.Errorf("traceparent %q became %q, want %q", test.in, f.prompt.Traceparent, test.want)
		}
	}
}

// capture remembers the prompt.
type capture struct {
	*fake
	prompt wire.Prompt
}

func (c *capture) Send(ctx context.Context, id string, p wire.Prompt) (wire.Admission, error) {
	c.prompt = p
	return c.fake.Send(ctx, id, p)
}

func TestAttachment(t *testing.T) {
	f := newFake()
	h := mounted(httpapi.Config{Backend: f})
	post(t, h, "/agents/chat/c", "x")
	files := map[string]wire.File{
		"png":  {MediaType: "image/png", Data: []byte("\x89PNG")},
		"none": {Data: []byte("x")},
		"evil": {MediaType: "image/png\r\nSet-Cookie: a=b", Data: []byte("x")},
		"html": {MediaType: "text/html", Data: []byte("<script>")},
	}
	f.conversations["c"].files = files
	types := map[string]string{"png": "image/png", "none": "application/octet-stream", "evil": "application/octet-stream", "html": "text/html"}
	for id, want := range types {
		w := do(h, "GET", "/agents/chat/c/attachments/"+id, nil, nil)
		for name, want := range map[string]string{
			"Content-Type": want, "Content-Length": fmt.Sprint(len(files[id].Data)), "Content-Disposition": "inline",
			"Cache-Control": "private, max-age=31536000, immutable", "Content-Security-Policy": "sandbox",
			"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "cross-origin",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: header %s is %q, want %q", id, name, got, want)
			}
		}
		if len(w.Header()) != 7 || w.Code != 200 || w.Body.String() != string(files[id].Data) {
			t.Errorf("%s: %d %v %q", id, w.Code, w.Header(), w.Body)
		}
	}
	w := do(h, "HEAD", "/agents/chat/c/attachments/png", nil, nil)
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET" || w.Body.Len() != 0 {
		t.Errorf("HEAD: %d %v %q, want 405 without a body", w.Code, w.Header(), w.Body)
	}
}

// requests are one of each kind that asks the backend.
var requests = []struct{ backend, method, target, body string }{
	{"Send", "POST", "/agents/chat/c", `{"kind":"user","body":"x"}`},
	{"Abort", "POST", "/agents/chat/c/abort", ""},
	{"Head", "HEAD", "/agents/chat/c", ""},
	{"Snapshot", "GET", "/agents/chat/c", ""},
	{"Updates", "GET", "/agents/chat/c?view=updates&offset=-1", ""},
	{"Updates", "GET", "/agents/chat/c?view=updates&offset=-1&live=sse", ""},
	{"Wait", "GET", "/agents/chat/c?view=updates&offset=0000000000000000_0000000000000009&live=long-poll", ""},
	{"Attachment", "GET", "/agents/chat/c/attachments/a", ""},
}

func TestFailuresAreLoggedOnceAndNotTold(t *testing.T) {
	causes := map[string]func() error{
		"plain error":    func() error { return errors.New("password is hunter2") },
		"internal error": func() error { return &wire.Error{Code: wire.CodeInternal, Message: "password is hunter2"} },
		"internal error with a cause": func() error {
			return fmt.Errorf("reading: %w", &wire.Error{Code: wire.CodeInternal, Message: "m", Err: errors.New("password is hunter2")})
		},
		"panic": func() error { panic("password is hunter2") },
	}
	for name, cause := range causes {
		t.Run(name, func(t *testing.T) {
			for _, req := range requests {
				var log strings.Builder
				f := newFake()
				h := mounted(httpapi.Config{Backend: f, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
				post(t, h, "/agents/chat/c", "x @text=1")
				f.before = func(method string) error {
					if method == req.backend {
						return cause()
					}
					return nil
				}
				w := do(h, req.method, req.target, http.Header{"Content-Type": {jsonType}}, []byte(req.body))
				ref := w.Header().Get("Flue-Error-Ref")
				if w.Code != http.StatusInternalServerError || !strings.HasPrefix(ref, "err_") || len(ref) != len("err_")+26 {
					t.Errorf("%s %s: %d, reference %q, want 500 with one", req.method, req.target, w.Code, ref)
				}
				if strings.Contains(w.Body.String(), "hunter2") {
					t.Errorf("%s %s told the cause: %s", req.method, req.target, w.Body)
				}
				want := `{"error":{"type":"internal_error","message":"An internal error occurred.","details":"The server encountered an unexpected error while handling this request.","ref":"` + ref + `"}}`
				if req.method != "HEAD" && w.Body.String() != want {
					t.Errorf("%s %s: %s, want %s", req.method, req.target, w.Body, want)
				}
				var line struct {
					Level  string `json:"level"`
					Ref    string `json:"ref"`
					Method string `json:"method"`
					Path   string `json:"path"`
				}
				if err := json.Unmarshal([]byte(log.String()), &line); err != nil { // fails for two lines
					t.Fatalf("%s %s: log %q: %v", req.method, req.target, log.String(), err)
				}
				if line.Level != "ERROR" || line.Ref != ref || line.Method != req.method || !strings.HasPrefix(line.Path, "/agents/chat/c") || !strings.Contains(log.String(), "hunter2") {
					t.Errorf("%s %s: log line %s", req.method, req.target, log.String())
				}
			}
		})
	}
}

// An error that already has a reference was logged by who made it.
func TestFailureWithReferenceIsPassedOn(t *testing.T) {
	var log strings.Builder
	f := newFake()
	f.before = func(string) error { return wire.Internal("err_made_elsewhere", errors.New("cause")) }
	w := do(mounted(httpapi.Config{Backend: f, Logger: slog.New(slog.NewTextHandler(&log, nil))}), "GET", "/agents/chat/c", nil, nil)
	if w.Header().Get("Flue-Error-Ref") != "err_made_elsewhere" || log.Len() != 0 {
		t.Errorf("headers %v, log %q", w.Header(), log.String())
	}
}

func TestUnavailable(t *testing.T) {
	var log strings.Builder
	f := newFake()
	f.before = func(string) error {
		return &wire.Error{Code: wire.CodeUnavailable, Message: "Closing.", Details: "Try again.", Err: errors.New("the cause")}
	}
	w := do(mounted(httpapi.Config{Backend: f, Logger: slog.New(slog.NewTextHandler(&log, nil))}), "GET", "/agents/chat/c", nil, nil)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || w.Header().Get("Flue-Error-Ref") != "" {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
	if !strings.Contains(log.String(), "the cause") || strings.Contains(w.Body.String(), "the cause") {
		t.Errorf("log %q, body %s", log.String(), w.Body)
	}
}

// What fails because the client has gone is nobody's fault.
func TestClientThatLeftIsNotAFailure(t *testing.T) {
	var log strings.Builder
	f := newFake()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.before = func(string) error { return fmt.Errorf("reading: %w", context.Canceled) }
	w := httptest.NewRecorder()
	mounted(httpapi.Config{Backend: f, Logger: slog.New(slog.NewTextHandler(&log, nil))}).
		ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/agents/chat/c", nil))
	if w.Code != 499 || log.Len() != 0 {
		t.Errorf("got %d, log %q, want 499 and nothing", w.Code, log.String())
	}
}

// A response that has begun cannot become an error, so it must be cut off.
func TestPanicInAStreamCutsItOff(t *testing.T) {
	f := newFake()
	srv := httptest.NewUnstartedServer(mounted(httpapi.Config{Backend: f}))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.Start()
	defer srv.Close()
	post(t, mounted(httpapi.Config{Backend: f}), "/agents/chat/c", "x")
	f.mu.Lock()
	f.before = func(method string) error {
		if method == "Wait" {
			panic("boom")
		}
		return nil
	}
	f.mu.Unlock()
	resp, err := srv.Client().Get(srv.URL + "/agents/chat/c?view=updates&offset=-1&live=sse")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err == nil {
		t.Errorf("the stream looks complete after a panic: %s", b)
	}
}

func TestNewNeedsABackend(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("New took a Config without a Backend")
		}
	}()
	httpapi.New(httpapi.Config{})
}
