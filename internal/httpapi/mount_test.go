package httpapi_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/flue-go/flue/internal/httpapi"
	"github.com/flue-go/flue/wire"
)

func TestMounts(t *testing.T) {
	f := newFake()
	api := httpapi.New(httpapi.Config{Backend: f})
	mux := func(pattern string, h http.Handler) http.Handler {
		m := http.NewServeMux()
		m.Handle(pattern, h)
		return m
	}
	mounts := []struct {
		name, prefix string
		h            http.Handler
	}{
		{"at the root", "", api},
		{"root pattern", "", mux("/", api)},
		{"strip", "/agents/chat", http.StripPrefix("/agents/chat", api)},
		{"strip with the slash", "/agents/chat", http.StripPrefix("/agents/chat/", api)},
		{"strip under a mux", "/agents/chat", mux("/agents/chat/", http.StripPrefix("/agents/chat", api))},
		{"strip with the slash under a mux", "/agents/chat", mux("/agents/chat/", http.StripPrefix("/agents/chat/", api))},
		{"subtree", "/agents/chat", mux("/agents/chat/", api)},
		{"subtree with host", "/agents/chat", mux("example.com/agents/chat/", api)},
		{"wildcard", "/agents/chat", mux("/agents/{agent}/", api)},
		{"rest", "/agents/chat", mux("/agents/chat/{rest...}", api)},
		{"subtree under a stripped one", "/v1/agents/chat", http.StripPrefix("/v1", mux("/agents/chat/", api))},
		{"strip in two steps", "/v1/agents/chat", mux("/v1/", http.StripPrefix("/v1", mux("/agents/chat/", http.StripPrefix("/agents/chat", api))))},
		{"escaped mount", "/agents/a%20b", mux("/agents/a%20b/", api)},
	}
	ids := map[string]string{
		"plain": "plain", "a%2Fb": "a/b", "a%2Fb%3Ac%20d": "a/b:c d", "%2e%2e": "..", "a%252Fb": "a%2Fb", "%C3%BC": "ü", "abort": "abort",
		"%2F%2Fagents%2Fchat%2Fx": "//agents/chat/x", "a;b=c": "a;b=c", "a+b": "a+b", "a%3Fb": "a?b",
	}
	for _, m := range mounts {
		t.Run(m.name, func(t *testing.T) {
			for escaped, id := range ids {
				f.mu.Lock()
				f.conversations = map[string]*conversation{}
				f.mu.Unlock()
				target := m.prefix + "/" + escaped
				w := do(m.h, "POST", target+"?foo=bar", http.Header{"Content-Type": {jsonType}}, []byte(`{"kind":"user","body":"x"}`))
				var a wire.Admission
				if err := json.Unmarshal(w.Body.Bytes(), &a); w.Code != http.StatusAccepted || err != nil {
					t.Errorf("POST %s: %d %s", target, w.Code, w.Body)
					continue
				}
				if want := "http://example.com" + target; a.StreamURL != want || w.Header().Get("Location") != want {
					t.Errorf("POST %s: stream URL %s and Location %s, want %s", target, a.StreamURL, w.Header().Get("Location"), want)
				}
				if f.conversations[id] == nil {
					t.Errorf("POST %s did not reach the conversation %q but %v", target, id, f.conversations)
				}
				if w := do(m.h, "GET", target, nil, nil); w.Code != http.StatusOK {
					t.Errorf("GET %s: %d %s", target, w.Code, w.Body)
				}
				if w := do(m.h, "POST", target+"/abort", nil, nil); w.Code != http.StatusOK {
					t.Errorf("POST %s/abort: %d %s", target, w.Code, w.Body)
				}
				if w := do(m.h, "GET", target+"/attachments/a%2Fb", nil, nil); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), `\"a/b\"`) {
					t.Errorf("GET %s/attachments/a%%2Fb: %d %s", target, w.Code, w.Body)
				}
			}
			for _, deep := range []string{"/c/more", "/c/", "/c/abort/", "/c/attachments", "/c/attachments/", "/c/attachments/a/b", m.prefix + "/c", "/agents/chat/c"} {
				if m.prefix == "" && deep == "/c" {
					continue
				}
				for _, method := range []string{"GET", "POST", "PUT"} {
					w := do(m.h, method, m.prefix+deep, nil, nil)
					if w.Code != http.StatusNotFound || w.Body.String() != "404 Not Found" && w.Body.String() != "404 page not found\n" {
						t.Errorf("%s %s: %d %s, want a plain 404", method, m.prefix+deep, w.Code, w.Body)
					}
				}
			}
		})
	}
}

// A mux matches a path by what it means, so the mount may be escaped.
func TestMountEscapedByTheClient(t *testing.T) {
	m := http.NewServeMux()
	m.Handle("/agents/a%20b/", httpapi.New(httpapi.Config{Backend: newFake()}))
	const target = "/%61gents/%61%20b/c%2Fd"
	post(t, m, target, "x")
	if w := do(m, "GET", "/agents/a%20b/c%2Fd", nil, nil); w.Code != http.StatusOK {
		t.Errorf("what was posted to %s is not there: %d %s", target, w.Code, w.Body)
	}
}

func TestNoID(t *testing.T) {
	for _, target := range []string{"/agents/chat", "/agents/chat/", "/agents/chat//", "/agents/chat//abort"} {
		w := do(mounted(httpapi.Config{Backend: newFake()}), "POST", target, nil, nil)
		if w.Code != http.StatusNotFound || w.Body.String() != "404 Not Found" {
			t.Errorf("POST %s: %d %s, want a plain 404", target, w.Code, w.Body)
		}
	}
}

func TestBadIDs(t *testing.T) {
	h := mounted(httpapi.Config{Backend: newFake()})
	for _, id := range []string{"%20", "%09%20", "%C2%A0", "%FF", "a%00b", strings.Repeat("x", 1025)} {
		for _, req := range []struct{ method, rest string }{{"GET", ""}, {"HEAD", ""}, {"POST", ""}, {"POST", "/abort"}, {"GET", "/attachments/a"}} {
			w := do(h, req.method, "/agents/chat/"+id+req.rest, http.Header{"Content-Type": {jsonType}}, []byte(`{"kind":"user","body":"x"}`))
			if w.Code != http.StatusBadRequest {
				t.Errorf("%s %.20s%s: %d %s, want 400", req.method, id, req.rest, w.Code, w.Body)
			}
		}
	}
	post(t, h, "/agents/chat/c", "x")
	for _, id := range []string{"%FF", "a%00b", strings.Repeat("x", 5000)} {
		w := do(h, "GET", "/agents/chat/c/attachments/"+id, nil, nil)
		if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), string(wire.CodeAttachmentNotFound)) {
			t.Errorf("attachment %.20s: %d %s, want 404", id, w.Code, w.Body)
		}
	}
}

func TestStreamURL(t *testing.T) {
	tests := []struct {
		name   string
		trust  bool
		change func(*http.Request)
		want   string
	}{
		{"plain", false, func(*http.Request) {}, "http://example.com/agents/chat/c"},
		{"TLS", false, func(r *http.Request) { r.TLS = &tls.ConnectionState{} }, "https://example.com/agents/chat/c"},
		{"forged", false, forward("https", "evil.example"), "http://example.com/agents/chat/c"},
		{"forwarded", true, forward("https", "api.example:8443"), "https://api.example:8443/agents/chat/c"},
		{"forwarded twice", true, forward("https, http", "api.example, inner"), "https://api.example/agents/chat/c"},
		{"forwarded nonsense", true, forward("javascript", "a/b?c"), "http://example.com/agents/chat/c"},
		{"forwarded user", true, forward("", "user@host"), "http://example.com/agents/chat/c"},
		{"absolute form", false, func(r *http.Request) { r.RequestURI = "http://other/agents/chat/c?q=1" }, "http://example.com/agents/chat/c"},
		{"no request line", false, func(r *http.Request) { r.RequestURI = "" }, "http://example.com/c"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := httptest.NewRequest("POST", "/agents/chat/c?x=1", strings.NewReader(`{"kind":"user","body":"x"}`))
			r.Header.Set("Content-Type", jsonType)
			test.change(r)
			w := httptest.NewRecorder()
			mounted(httpapi.Config{Backend: newFake(), TrustForwarded: test.trust}).ServeHTTP(w, r)
			if got := w.Header().Get("Location"); got != test.want {
				t.Errorf("Location %q, want %q", got, test.want)
			}
		})
	}
}

func forward(proto, host string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("X-Forwarded-Proto", proto)
		r.Header.Set("X-Forwarded-Host", host)
	}
}

// Whatever the path, the handler answers, and an id round-trips.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"c", "a/b", "..", "", " ", "a%2Fb", "\x00", "\xff", "agents/chat/x", "abort"} {
		f.Add(s)
	}
	back := newFake()
	m := http.NewServeMux()
	m.Handle("/agents/chat/", httpapi.New(httpapi.Config{Backend: back}))
	f.Fuzz(func(t *testing.T, id string) {
		back.mu.Lock()
		back.conversations = map[string]*conversation{}
		back.mu.Unlock()
		r := httptest.NewRequest("POST", "/", strings.NewReader(`{"kind":"user","body":"x"}`))
		r.Header.Set("Content-Type", jsonType)
		u, err := url.ParseRequestURI("/agents/chat/" + url.PathEscape(id))
		if err != nil {
			t.Skip()
		}
		r.URL, r.RequestURI = u, u.String()
		w := httptest.NewRecorder()
		m.ServeHTTP(w, r)
		if w.Code == http.StatusAccepted && back.conversations[id] == nil {
			t.Errorf("%q reached another conversation: %v", id, back.conversations)
		}
		if w.Code == http.StatusInternalServerError {
			t.Errorf("%q: %s", id, w.Body)
		}
	})
}
