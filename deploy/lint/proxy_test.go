package lint

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/flue-go/flue/internal/pgtest"
)

// nginx returns where the proxy is, or skips the test.
func nginx(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("nginx")
	if err != nil {
		if os.Getenv("FLUE_REQUIRE_ALL") != "" {
			t.Fatal("nginx is needed: apt-get install nginx-light")
		}
		t.Skip("nginx is needed: apt-get install nginx-light")
	}
	return path
}

// freePort returns an address of this machine on which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// run starts a program that is stopped in order at the end of the test.
func run(t *testing.T, env []string, name string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir, c.Env = t.TempDir(), append(os.Environ(), env...)
	var out strings.Builder
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM) // it may have been stopped before
		_ = c.Wait()
		if t.Failed() {
			t.Logf("%s %s:\n%s", filepath.Base(name), strings.Join(args, " "), out.String())
		}
	})
	return c
}

// await waits until the URL answers with the status.
func await(t *testing.T, url string, status int) string {
	t.Helper()
	var last string
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		res, err := http.Get(url)
		if err != nil {
			last = err.Error()
			continue
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if last = fmt.Sprint(res.Status, " ", string(body)); err == nil && res.StatusCode == status {
			return string(body)
		}
	}
	t.Fatalf("%s: %s, want %d", url, last, status)
	return ""
}

// A fleet is what compose.yaml describes, without containers.
type fleet struct {
	url      string // of the proxy
	env      []string
	replicas []*exec.Cmd
}

// start starts three replicas as compose.yaml does, and the proxy in front.
func start(t *testing.T) *fleet {
	t.Helper()
	nginx(t) // skips the test at once
	f := &fleet{env: []string{"FLUE_DB=" + pgtest.Database(t), "ANTHROPIC_API_KEY=", "FLUE_DB_LISTEN="}}
	migrate := exec.Command(program, "migrate")
	migrate.Env = append(os.Environ(), f.env...)
	if out, err := migrate.CombinedOutput(); err != nil {
		t.Fatalf("migrate: %v\n%s", err, out)
	}
	var args, addrs []string
	for _, command := range compose(t).Commands() {
		if command[0] == "serve" {
			args = command
		}
	}
	for range 3 {
		addr := freePort(t)
		mine := slices.Clone(args)
		mine[slices.Index(mine, "0.0.0.0:3000")] = addr
		f.replicas = append(f.replicas, run(t, f.env, program, mine...))
		await(t, "http://"+addr+"/health", http.StatusOK)
		addrs = append(addrs, addr)
	}
	f.url = inFront(t, addrs...)
	return f
}

// inFront starts the proxy in front of servers, and returns its URL.
func inFront(t *testing.T, addrs ...string) string {
	t.Helper()
	proxy := nginx(t)
	var upstream strings.Builder
	for _, addr := range addrs {
		fmt.Fprintf(&upstream, "server %s max_fails=2 fail_timeout=5s;\n", addr)
	}
	// What Docker's name server would be asked for is written out.
	config, dir, listen := read(t, folder+"/nginx.conf"), t.TempDir(), freePort(t)
	for _, c := range [][2]string{
		{"server flue:3000 resolve max_fails=2 fail_timeout=5s;", upstream.String()}, {"listen 8080;", "listen " + listen + ";"}, {" /tmp/", " " + dir + "/"},
	} {
		if !strings.Contains(config, c[0]) {
			t.Fatalf("nginx.conf has no %q", c[0])
		}
		config = strings.ReplaceAll(config, c[0], c[1])
	}
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, nil, proxy, "-e", "stderr", "-p", dir, "-c", file, "-g", "daemon off;")
	url := "http://" + listen
	await(t, url+"/health", http.StatusNotFound)
	return url
}

// While the database is away every replica refuses every request for a moment.
// Clients are told so, by the replica, and how long to wait; none of their messages
// is sent to two replicas, and no replica is taken for broken.
func TestRefusalsReachClients(t *testing.T) {
	var asked atomic.Int64
	var addrs []string
	for range 3 {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"type":"store_unavailable"}`)
		}))
		t.Cleanup(s.Close)
		addrs = append(addrs, s.Listener.Addr().String())
	}
	url := inFront(t, addrs...)
	const requests = 30
	for i := range requests {
		method := []string{http.MethodGet, http.MethodPost}[i%2]
		req, err := http.NewRequestWithContext(t.Context(), method, url+"/agents/assistant/c", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "7" || !strings.Contains(string(body), "store_unavailable") {
			t.Errorf("%s %d: %s, Retry-After %q, %s, %v", method, i, res.Status, res.Header.Get("Retry-After"), body, err)
		}
	}
	if n := asked.Load(); n != requests {
		t.Errorf("the replicas were asked %d times, want %d", n, requests)
	}
}

// send sends a message and returns where the conversation is to be followed.
func (f *fleet) send(t *testing.T, id string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/agents/assistant/"+id, strings.NewReader(`{"kind":"user","body":"What time is it?"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Forwarded-Proto", "https") // a lie
	req.Header.Set("X-Forwarded-Host", "evil.example")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer struct{ StreamURL string }
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusAccepted || json.Unmarshal(body, &answer) != nil {
		t.Fatalf("sending to %s: %s %s, %v", id, res.Status, body, err)
	}
	return answer.StreamURL
}

// answered waits for the answer, which is read from any replica.
func (f *fleet) answered(t *testing.T, id string) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if body := await(t, f.url+"/agents/assistant/"+id, http.StatusOK); strings.Contains(body, "The tool answers: ") {
			return
		} else if time.Now().After(until) {
			t.Fatalf("%s has no answer: %s", id, body)
		}
	}
}

// owned returns how many conversations each live node owns.
func (f *fleet) owned(t *testing.T) (owned []int) {
	t.Helper()
	c := exec.Command(program, "inspect", "nodes", "--json")
	c.Env = append(os.Environ(), f.env...)
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		var n struct {
			Live  bool
			Owned int
		}
		if err := json.Unmarshal([]byte(line), &n); err != nil {
			t.Fatal(err)
		}
		if n.Live {
			owned = append(owned, n.Owned)
		}
	}
	return owned
}

// The proxy spreads conversations over the replicas, passes live text on as it
// comes, tells clients its own name, and loses no request when a replica goes.
func TestFleet(t *testing.T) {
	f := start(t)
	const conversations = 12
	for i := range conversations {
		id := fmt.Sprint("c", i)
		if url := f.send(t, id); url != f.url+"/agents/assistant/"+id {
			t.Errorf("clients are told to read from %s", url)
		}
	}
	for i := range conversations {
		f.answered(t, fmt.Sprint("c", i))
	}
	if owned := f.owned(t); len(owned) != 3 || slices.Contains(owned, 0) {
		t.Errorf("the replicas own %v conversations", owned)
	}
	f.follow(t, "c0")

	if err := f.replicas[1].Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * conversations {
		f.send(t, fmt.Sprint("d", i))
	}
	for i := range 3 * conversations {
		f.answered(t, fmt.Sprint("d", i))
	}
}

// follow reads the stream of a conversation until it has caught up. The stream
// stays open, so a proxy that gathers answers would hand nothing on.
func (f *fleet) follow(t *testing.T, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/agents/assistant/"+id+"?view=updates&live=sse&offset=-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"upToDate":true`) {
			return
		}
	}
	t.Errorf("the stream of %s has not caught up: %v", id, lines.Err())
}

// The proxy asks for what the composition has.
func TestProxied(t *testing.T) {
	name, to, _ := strings.Cut(proxied(read(t, folder+"/nginx.conf")), ":")
	for _, s := range compose(t).project.Services {
		if len(s.Command) == 0 || s.Command[0] != "serve" {
			continue
		}
		if p, _ := port(s.Command); s.Name != name || fmt.Sprint(p) != to {
			t.Errorf("the proxy sends to %s:%s, and %s listens on port %d", name, to, s.Name, p)
		}
		return
	}
	t.Error("nothing serves")
}
