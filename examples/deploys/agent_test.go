package main

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/cli"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// A desk is an assistant with what can be seen of its work.
type desk struct {
	t     *testing.T
	in    *flue.Instance
	fleet *Fleet

	mu       sync.Mutex
	requests []*model.Request
	lines    []string
	rt       *flue.Runtime
}

func newDesk(t *testing.T, m *script.Provider) *desk {
	d := &desk{t: t, fleet: newFleet([]string{"web", "worker"})}
	m.OnRequest = func(req *model.Request) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.requests = append(d.requests, req)
	}
	code := fstest.MapFS{"a.go": {Data: []byte("package a // flue\n\nvar flue = 1\n")}, "b/b.go": {Data: []byte("package b // flue")}, "c.go": {Data: []byte("package c")}}
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{assistant(d.fleet, code)}, Providers: map[string]model.Provider{"anthropic": m},
		Observe: func(ev flue.Event) {
			if ev.Type == flue.EventLog {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.lines = append(d.lines, fmt.Sprint(ev.Tool, ": ", *ev.Log))
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(t.Context()) })
	d.rt = rt
	d.in = rt.Instance("deploy-assistant", "team")
	return d
}

func (d *desk) ask(message string) string {
	d.t.Helper()
	receipt, err := d.in.Dispatch(d.t.Context(), flue.User(message))
	if err != nil {
		d.t.Fatal(err)
	}
	reply, err := d.in.Read(d.t.Context(), receipt.Submission)
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.TrimSuffix(reply.Text, scriptedNote)
}

func TestDeploy(t *testing.T) {
	d := newDesk(t, newDemo())
	for _, tt := range []struct{ ask, want string }{
		{"Deploy web v1.4.0", "Deployment 1: web is at v1.4.0."},
		{"Deploy billing v1.4.0", `That did not work: the service "billing" may not be deployed from here, only web, worker; tell the user, who can ask its owners`},
		{"Deploy worker v2.0.1", "Deployment 2: worker is at v2.0.1."},
	} {
		if got := d.ask(tt.ask); got != tt.want {
			t.Errorf("%q: the model says %q, want %q", tt.ask, got, tt.want)
		}
	}
	if len(d.fleet.byKey) != 2 {
		t.Errorf("%d services were deployed, want 2", len(d.fleet.byKey))
	}
	for key := range d.fleet.byKey {
		if !strings.HasPrefix(key, "call_") {
			t.Errorf("a deployment is recorded under %q, want its call's key", key)
		}
	}
}

// The system that deploys sees one deployment, however often it is asked for
// under a call's key.
func TestDeployOnce(t *testing.T) {
	f := newFleet([]string{"web"})
	for _, tt := range []struct {
		key  string
		want int
	}{{"call_a", 1}, {"call_a", 1}, {"call_b", 2}} {
		if d, err := f.Deploy(t.Context(), "web", "v1.0.0", tt.key); err != nil || d.ID != tt.want {
			t.Errorf("under %s: %+v, %v; want deployment %d", tt.key, d, err, tt.want)
		}
	}
}

// A version that is none reaches nothing.
func TestBadVersion(t *testing.T) {
	d := newDesk(t, script.New(script.Call("deploy_service", DeployInput{"web", "latest; rm -rf"}), script.Say("refused")))
	d.ask("go")
	if len(d.fleet.byKey) != 0 {
		t.Error("it was deployed")
	}
	last := d.requests[len(d.requests)-1]
	if results := script.LastResults(last); len(results) != 1 || !results[0].IsError || !strings.Contains(results[0].Text, "version") {
		t.Errorf("the model is told %+v, want what is wrong with the version", results)
	}
}

func TestSearch(t *testing.T) {
	d := newDesk(t, newDemo())
	if got, want := d.ask("Where is 'flue' used?"), "Lines that have it: 3, in a.go, b/b.go."; got != want {
		t.Errorf("the model says %q, want %q", got, want)
	}
	if got, want := d.ask("And 'nothing like it'?"), "There is nothing like that in the code."; got != want {
		t.Errorf("the model says %q, want %q", got, want)
	}
	// People see the lines that the tool logs, the model does not.
	if err := d.rt.Close(t.Context()); err != nil { // the observer has been told everything then
		t.Fatal(err)
	}
	if len(d.lines) != 2 || !strings.Contains(d.lines[0], "searched the code") || !strings.Contains(d.lines[0], "call_") {
		t.Errorf("the log has %q, want a line with its call's key for each search", d.lines)
	}
	if told := fmt.Sprint(d.requests[len(d.requests)-1].Messages); strings.Contains(told, "searched the code") {
		t.Errorf("the model is told %s", told)
	}
}

func TestRunWithoutKey(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "")
	t.Setenv("ANTHROPIC_BASE_URL", "")
	for _, tt := range []struct{ message, want string }{
		{"Deploy web v1.4.0", "Deployment 1: web is at v1.4.0."},
		{"Deploy billing v1.4.0", `That did not work: the service "billing" may not be deployed`},
		{"Where is 'func newFleet' used?", "Lines that have it: 1, in fleet.go."},
	} {
		var stdout, stderr bytes.Buffer
		code := cli.Run(t.Context(), app(), []string{"run", "--db", ":memory:", "-m", tt.message}, strings.NewReader(""), &stdout, &stderr)
		if code != 0 || !strings.HasPrefix(stdout.String(), tt.want) || !strings.HasSuffix(stdout.String(), scriptedNote+"\n") {
			t.Errorf("exit code %d and %q, want %q\n%s", code, stdout.String(), tt.want, stderr.String())
		}
	}
}
