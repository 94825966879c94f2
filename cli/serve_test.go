package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

func TestAllowHosts(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	tests := []struct {
		host  string
		more  []string
		allow bool
	}{
		{"localhost:3000", nil, true},
		{"LocalHost", nil, true},
		{"127.0.0.1:3000", nil, true},
		{"127.8.9.1", nil, true},
		{"[::1]:3000", nil, true},
		{"[::1]", nil, true},
		{"evil.example:3000", nil, false},
		{"localhost.evil.example", nil, false},
		{"192.168.1.1", nil, false},
		{"", nil, false},
		{"agents.example", []string{"Agents.Example"}, true},
		{"agents.example:443", []string{"agents.example"}, true},
		{"other.example", []string{"agents.example"}, false},
		{"other.example", []string{"*"}, true},
	}
	for _, tt := range tests {
		t.Run(tt.host, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/agents/a/1", nil)
			r.Host = tt.host
			w := httptest.NewRecorder()
			allowHosts(tt.more, ok).ServeHTTP(w, r)
			if got := w.Code == http.StatusOK; got != tt.allow {
				t.Errorf("host %q answers %d", tt.host, w.Code)
			}
		})
	}
}

// newServer returns the handler of a server for one agent.
func newServer(t *testing.T, app App, addr string) (http.Handler, *server) {
	t.Helper()
	app.Name, app.Demo = "app", script.New(script.Func(func(*model.Request) script.Turn { return script.Say("hi") }))
	app.Agents = []*flue.Agent{{Name: "helper", Render: func(r *flue.Render) string {
		flue.UseModel(r, "demo/one")
		return ""
	}}}
	s := &server{program: &program{app: app, out: new(bytes.Buffer)}, log: slog.New(slog.DiscardHandler)}
	rt, err := flue.Open(t.Context(), flue.Config{Agents: app.Agents, Providers: map[string]model.Provider{"demo": app.Demo}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return s.handler(rt, tcp), s
}

func serve(h http.Handler, method, host, path string) int {
	r := httptest.NewRequest(method, path, nil)
	r.Host = host
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func TestHandler(t *testing.T) {
	locked := App{Middleware: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	}}
	routes := func(mux *http.ServeMux, rt *flue.Runtime) {
		mux.HandleFunc("GET /approvals/{id}", func(w http.ResponseWriter, r *http.Request) {
			if _, err := rt.Instance("helper", r.PathValue("id")).Approvals(r.Context()); err != nil {
				w.WriteHeader(http.StatusTeapot)
			}
		})
	}
	tests := []struct {
		name               string
		app                App
		addr               string
		method, host, path string
		want               int
	}{
		{"health", App{}, "127.0.0.1:80", "GET", "localhost", "/health", 200},
		{"health under another name", App{}, "127.0.0.1:80", "GET", "10.0.0.1", "/health", 200},
		{"health needs no authentication", locked, "127.0.0.1:80", "GET", "localhost", "/health", 200},
		{"health is read", App{}, "127.0.0.1:80", "POST", "localhost", "/health", 404},
		{"an agent", App{}, "127.0.0.1:80", "GET", "localhost", "/agents/helper/a", 404}, // it has no conversation yet
		{"another name", App{}, "127.0.0.1:80", "GET", "evil.example", "/agents/helper/a", 403},
		{"another name where others may connect", App{}, "0.0.0.0:80", "GET", "agents.example", "/agents/helper/a", 404},
		{"authentication", locked, "127.0.0.1:80", "GET", "localhost", "/agents/helper/a", 401},
		{"no agent", App{}, "127.0.0.1:80", "GET", "localhost", "/agents/nobody/a", 404},
		{"a route of the program", App{Routes: routes}, "127.0.0.1:80", "GET", "localhost", "/approvals/a", 418}, // there is no conversation
		{"a route of the program behind authentication", App{Routes: routes, Middleware: locked.Middleware}, "127.0.0.1:80", "GET", "localhost", "/approvals/a", 401},
		{"nothing", App{}, "127.0.0.1:80", "GET", "localhost", "/", 404},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := newServer(t, tt.app, tt.addr)
			if got := serve(h, tt.method, tt.host, tt.path); got != tt.want {
				t.Errorf("%s %s answers %d, want %d", tt.method, tt.path, got, tt.want)
			}
		})
	}
}

// The command that is printed can be pasted: the body that a shell makes of it
// is the message.
func TestAnnounce(t *testing.T) {
	const message = `Where's "ORD-1"? It costs $5 \ day!`
	_, s := newServer(t, App{Example: message}, "127.0.0.1:80")
	s.announce(&net.TCPAddr{IP: net.IPv4zero, Port: 1234})
	out := s.out.(*bytes.Buffer).String()
	if !strings.HasPrefix(out, "app listens on http://localhost:1234\n  http://localhost:1234/agents/helper/{conversation}\n") {
		t.Errorf("the announcement is\n%s", out)
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell to paste into")
	}
	_, line, _ := strings.Cut(out, "  curl ")
	line, _, _ = strings.Cut(line, "\n")
	args, err := exec.Command(sh, "-c", "printf '%s\\n' "+line).Output()
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Split(strings.TrimSpace(string(args)), "\n")
	var body struct{ Kind, Body string }
	if err := json.Unmarshal([]byte(words[len(words)-1]), &body); err != nil || body.Kind != "user" || body.Body != message {
		t.Errorf("the body is %s (%v)", words[len(words)-1], err)
	}
}

// deadlined is a response whose connection notes how long it may be read from.
type deadlined struct {
	http.ResponseWriter
	at time.Time
}

func (d *deadlined) SetReadDeadline(at time.Time) error {
	d.at = at
	return nil
}

func TestBoundBody(t *testing.T) {
	h := boundBody(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, tt := range []struct {
		body  io.Reader
		bound bool
	}{{nil, false}, {strings.NewReader("{}"), true}, {io.MultiReader(strings.NewReader("{}")), true}} {
		w := &deadlined{ResponseWriter: httptest.NewRecorder()}
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/agents/helper/a", tt.body))
		if left := time.Until(w.at); tt.bound != (left > 0 && left <= bodyTimeout) {
			t.Errorf("a body of type %T may be read until %v", tt.body, w.at)
		}
	}
}

func TestAddress(t *testing.T) {
	tests := []struct{ flag, port, want string }{
		{"", "", "127.0.0.1:3000"},
		{"", "8080", "127.0.0.1:8080"},
		{":9090", "8080", ":9090"},
	}
	for _, tt := range tests {
		t.Setenv("PORT", tt.port)
		if got := (&server{addr: tt.flag}).address(); got != tt.want {
			t.Errorf("--addr %q and PORT %q: %s, want %s", tt.flag, tt.port, got, tt.want)
		}
	}
}
