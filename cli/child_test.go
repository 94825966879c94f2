//go:build unix

package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flue-go/flue/internal/pgtest"
)

// A child is the program of testApp in a process of its own.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *bufio.Reader
	stderr *watched
	dir    string
}

// start starts a program in dir, with a mark file for the tool pause.
func start(t *testing.T, dir string, args ...string) *child {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), childPatience)
	t.Cleanup(cancel)
	c := &child{t: t, dir: dir, stderr: newWatched()}
	c.cmd = exec.CommandContext(ctx, os.Args[0], args...)
	c.cmd.Dir = dir
	c.cmd.Env = append(os.Environ(), childVariable+"=1", "GORACE=atexit_sleep_ms=0", "TEST_MARK="+filepath.Join(dir, "mark"),
		"ANTHROPIC_API_KEY=", "ANTHROPIC_BASE_URL=", "OPENAI_API_KEY=", "OPENAI_BASE_URL=", "PORT=")
	c.cmd.Stderr = c.stderr
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdout = bufio.NewReader(stdout)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // it has ended, normally
		if t.Failed() {
			t.Logf("standard error of app %s:\n%s", strings.Join(args, " "), c.stderr)
		}
	})
	return c
}

// wait returns the exit code and what is left of standard output.
func (c *child) wait() (code int, stdout string) {
	c.t.Helper()
	out, err := io.ReadAll(c.stdout)
	if err != nil {
		c.t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := c.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return c.cmd.ProcessState.ExitCode(), string(out)
}

func (c *child) signal(s os.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

func TestInterruptAborts(t *testing.T) {
	dir := t.TempDir()
	c := start(t, dir, "run", "--id", "a", "--json", "-m", "pause")
	c.stderr.await(t, `call    pause`)
	c.signal(os.Interrupt)
	code, stdout := c.wait()
	if code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	var e struct {
		Outcome string
		Error   struct{ Type string }
	}
	if err := json.Unmarshal([]byte(stdout), &e); err != nil || e.Outcome != "aborted" || e.Error.Type != "submission_aborted" {
		t.Errorf("standard output is %q (%v), want the envelope of an aborted run", stdout, err)
	}
	c.stderr.await(t, `abort   all work of this conversation`)

	// The abort is in the journal: nothing is taken up again.
	c = start(t, dir, "run", "--id", "a", "-m", "count")
	if code, stdout := c.wait(); code != 0 || stdout != "messages: 2\n" {
		t.Errorf("the next message: exit code %d and %q, want 0 and the reply", code, stdout)
	}
	if s := c.stderr.String(); strings.Contains(s, "resume") {
		t.Errorf("aborted work was taken up again:\n%s", s)
	}
}

func TestTerminateKeepsWork(t *testing.T) {
	dir := t.TempDir()
	c := start(t, dir, "run", "--id", "a", "-m", "pause")
	c.stderr.await(t, `call    pause`)
	c.signal(syscall.SIGTERM)
	if code, stdout := c.wait(); code != 143 || stdout != "" {
		t.Errorf("exit code %d and %q, want 143 and nothing", code, stdout)
	}
	c.stderr.await(t, `The work is kept: wait for it with run --agent echo --id a`)

	c = start(t, dir, "run", "--agent", "echo", "--id", "a")
	code, stdout := c.wait()
	if code != 0 || !strings.HasPrefix(stdout, "tool: ") {
		t.Errorf("exit code %d and %q, want 0 and the reply to the first message", code, stdout)
	}
	c.stderr.await(t, `resume  1 unfinished message in this conversation`)
}

func TestKilledWorkIsResumed(t *testing.T) {
	dir := t.TempDir()
	c := start(t, dir, "run", "--id", "a", "-m", "say this is finished")
	if code, _ := c.wait(); code != 0 {
		t.Fatalf("exit code %d, want 0", code)
	}
	c = start(t, dir, "run", "--id", "a", "-m", "pause")
	c.stderr.await(t, `call    pause`)
	c.signal(os.Kill)
	c.wait()

	c = start(t, dir, "run", "--id", "a", "-m", "count")
	if code, _ := c.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	c.stderr.await(t, `resume  1 unfinished message in this conversation`)
	c.stderr.await(t, `resume  an interrupted message, attempt 2`)
	c = start(t, dir, "run", "--id", "a", "-m", "count")
	if code, stdout := c.wait(); code != 0 || stdout != "messages: 4\n" {
		t.Errorf("exit code %d and %q, want 0 and all four messages", code, stdout)
	}
}

// A line of a pipeline that waits for its input can be interrupted.
func TestInterruptWhileReading(t *testing.T) {
	dir := t.TempDir()
	c := start(t, dir, "run", "--greeting", "hey", "-")
	// There is nothing to wait for that says that the signals are handled, but
	// before they are the same signal ends the program just as well.
	c.signal(os.Interrupt)
	code, stdout := c.wait()
	if stdout != "" || (code != 130 && code != -1) {
		t.Errorf("exit code %d and %q, want 130 and nothing", code, stdout)
	}
}

func TestServe(t *testing.T) {
	dir := t.TempDir()
	c := start(t, dir, "serve", "--addr", "127.0.0.1:0", "--log-format", "json")
	base := c.base()
	c.stderr.await(t, `"msg":"a scripted demo model answers.*"model":"anthropic/claude-haiku-4-5","variable":"ANTHROPIC_API_KEY"`)

	if status, body := get(t, base+"/health"); status != http.StatusOK || body != "ok" {
		t.Errorf("health is %d %q", status, body)
	}
	url := base + "/agents/echo/a"
	if status, body := post(t, url, `{"kind":"user","body":"say hello over http"}`); status != http.StatusAccepted {
		t.Fatalf("sending a message: %d %s", status, body)
	}
	c.stderr.await(t, `"msg":"message settled","instance":"agents/echo/a","submission":"sub_[^"]*","outcome":"completed"`)
	if status, body := get(t, url); status != http.StatusOK || !strings.Contains(body, "hello over http") {
		t.Errorf("the conversation is %d %s", status, body)
	}
	if _, body := postFrom(t, url, "agents.example", `{"kind":"user","body":"say it"}`); strings.Contains(body, "agents.example") {
		t.Errorf("without --trust-proxy a forwarded host is believed: %s", body)
	}
	if s := c.stderr.String(); strings.Contains(s, "hello over http") {
		t.Errorf("the log has the text of a message:\n%s", s)
	}
	if status, _ := get(t, base+"/agents/nobody/a"); status != http.StatusNotFound {
		t.Errorf("an agent that there is not answers %d", status)
	}

	// Another process cannot have the same conversations.
	other := start(t, dir, "run", "-m", "say it")
	if code, _ := other.wait(); code != 1 || !strings.Contains(other.stderr.String(), "If that is a server, talk to it over HTTP") {
		t.Errorf("a run beside the server: exit code %d, %s", code, other.stderr)
	}

	c.signal(syscall.SIGTERM)
	if code, _ := c.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestServeBehindProxy(t *testing.T) {
	c := start(t, t.TempDir(), "serve", "--addr", "127.0.0.1:0", "--trust-proxy")
	status, body := postFrom(t, c.base()+"/agents/echo/a", "agents.example", `{"kind":"user","body":"say it"}`)
	if status != http.StatusAccepted || !strings.Contains(body, "https://agents.example/agents/echo/a") {
		t.Errorf("%d %s, want a URL at the proxy", status, body)
	}
	c.signal(os.Interrupt)
	if code, _ := c.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// SIGTERM ends streams at once, lets what runs come to the end of its turn, and
// leaves the rest to the next start.
func TestServeDrains(t *testing.T) {
	dir := t.TempDir()
	c := start(t, dir, "serve", "--addr", "127.0.0.1:0", "--drain", "100ms")
	url := c.base() + "/agents/echo/a"
	if status, body := post(t, url, `{"kind":"user","body":"pause"}`); status != http.StatusAccepted {
		t.Fatalf("sending a message: %d %s", status, body)
	}
	stream, err := http.Get(url + "?view=updates&live=sse&offset=-1")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), `"toolName":"pause"`) {
		// until the call has begun
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	c.signal(syscall.SIGTERM)
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Errorf("the stream was cut, not ended: %v", err)
	}
	if code, _ := c.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	c.stderr.await(t, `msg="work left to the next start" instance=agents/echo/a`)

	c = start(t, dir, "run", "--id", "a")
	if code, stdout := c.wait(); code != 0 || !strings.HasPrefix(stdout, "tool: ") {
		t.Errorf("after the restart: exit code %d and %q, want 0 and the reply", code, stdout)
	}
}

// Between the signal and the end requests are still taken, for as long as load
// balancers may need to notice that the server is not ready.
func TestServeDrainDelay(t *testing.T) {
	dir := t.TempDir()
	c := start(t, dir, "serve", "--addr", "127.0.0.1:0", "--drain-delay", "3s")
	base := c.base()
	if status, body := get(t, base+"/health"); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	c.signal(syscall.SIGTERM)
	c.stderr.await(t, `shutting down`)
	want := `{"status":"unavailable","reasons":["draining"]}`
	for range 100 { // the line of the log comes first
		if status, body := get(t, base+"/health"); status == http.StatusServiceUnavailable && strings.TrimSpace(body) == want {
			want = ""
			break
		}
	}
	if want != "" {
		t.Error("it does not say that it drains")
	}
	if status, _ := get(t, base+"/health/live"); status != http.StatusOK {
		t.Errorf("live: %d", status)
	}
	if status, body := post(t, base+"/agents/echo/a", `{"kind":"user","body":"say it"}`); status != http.StatusAccepted {
		t.Errorf("a message: %d %s", status, body)
	}
	c.stderr.await(t, `msg="message settled" instance=agents/echo/a`) // nobody else could work on it
	if code, _ := c.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// What a server works on goes on elsewhere as soon as a call has ended after the
// signal, though the server still waits for a request that is slow.
func TestServeHandsOver(t *testing.T) {
	db := database(t)
	c := start(t, t.TempDir(), "serve", "--addr", "127.0.0.1:0")
	base := c.base()
	url := base + "/agents/echo/a"
	if status, body := post(t, url, `{"kind":"user","body":"toil"}`); status != http.StatusAccepted {
		t.Fatalf("sending a message: %d %s", status, body)
	}
	stream, err := http.Get(url + "?view=updates&live=sse&offset=-1")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), `"toolName":"breathe"`) {
		// until it works
	}
	owner := func() string {
		return pgtest.Value[string](t, db, `SELECT owner FROM flue.instances WHERE name = 'a'`)
	}
	first := owner()
	other := start(t, t.TempDir(), "serve", "--addr", "127.0.0.1:0")
	other.base()
	slow, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	const request = "POST /agents/echo/b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"
	if _, err := io.WriteString(slow, request); err != nil {
		t.Fatal(err)
	}
	answer := bufio.NewReader(slow)
	if line, err := answer.ReadString('\n'); !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q, %v", line, err)
	}
	waited := make(chan struct{}) // closed when the server waits for the request no longer
	go func() { defer close(waited); _, _ = io.Copy(io.Discard, answer) }()
	began := time.Now()
	c.signal(syscall.SIGTERM)
	for now := owner(); now == first || now == ""; now = owner() {
		select {
		case <-waited:
			t.Fatalf("%v after the signal %q still owned the conversation", time.Since(began), now)
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Logf("taken over after %v", time.Since(began))
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Errorf("the stream was cut, not ended: %v", err)
	}
	if code, _ := c.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	other.signal(os.Kill)
	other.wait()
}

// A second signal does not wait for anything.
func TestServeSecondSignal(t *testing.T) {
	c := start(t, t.TempDir(), "serve", "--addr", "127.0.0.1:0", "--drain", "1h")
	url := c.base() + "/agents/echo/a"
	if status, body := post(t, url, `{"kind":"user","body":"pause"}`); status != http.StatusAccepted {
		t.Fatalf("sending a message: %d %s", status, body)
	}
	waitForFile(t, filepath.Join(c.dir, "mark"))
	c.signal(syscall.SIGTERM)
	c.stderr.await(t, `shutting down`)
	c.signal(syscall.SIGTERM)
	if code, _ := c.wait(); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
}

// base returns the base URL that a server says it listens on.
func (c *child) base() string {
	c.t.Helper()
	line, err := c.stdout.ReadString('\n')
	if err != nil {
		c.t.Fatalf("reading the first line: %v", err)
	}
	base, ok := strings.CutPrefix(strings.TrimSpace(line), "app listens on ")
	if !ok {
		c.t.Fatalf("the first line is %q", line)
	}
	return base
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	res, err := http.Get(url)
	return body(t, res, err)
}

func post(t *testing.T, url, json string) (int, string) {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(json))
	return body(t, res, err)
}

// postFrom posts as a proxy does that is known as host.
func postFrom(t *testing.T, url, host, json string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(json))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Forwarded-Host", host)
	req.Header.Set("X-Forwarded-Proto", "https")
	res, err := http.DefaultClient.Do(req)
	return body(t, res, err)
}

func body(t *testing.T, res *http.Response, err error) (int, string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}
