package conformance_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/flue-go/flue/conformance/tap"
)

// needNode skips the test if the clients cannot be run.
func needNode(t *testing.T) {
	t.Helper()
	lack := func(what string) {
		t.Helper()
		if os.Getenv("FLUE_REQUIRE_ALL") != "" {
			t.Fatal(what)
		}
		t.Skip(what)
	}
	if _, err := exec.LookPath("node"); err != nil {
		lack("node is not installed: install Node.js 20 or newer, then run npm ci in conformance/node")
	}
	for _, p := range []string{"@flue/sdk", "@flue/react", "react", "react-test-renderer"} {
		if _, err := os.Stat(filepath.Join("node", "node_modules", filepath.FromSlash(p), "package.json")); err != nil {
			lack("the npm package " + p + " is not installed: run npm ci in conformance/node")
		}
	}
}

// A note is what the client printed.
type note struct {
	Label string `json:"label"`
	Value any    `json:"value"`
	Ask   string `json:"ask"`
	Done  bool   `json:"done"`
}

// runScenario runs one scenario of the driver against the server behind p.
func runScenario(t *testing.T, p *tap.Tap, name string) []note {
	t.Helper()
	return drive(t, p.URL, map[string]func(){"cut": p.Cut}, name)
}

// drive runs a scenario of the driver, with arguments, against the server at
// origin. What the client asks for is done by the functions of these names.
func drive(t *testing.T, origin string, asked map[string]func(), name string, args ...string) []note {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", append([]string{"driver.mjs", name, origin}, args...)...)
	cmd.Dir = "node"
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var notes []note
	done := false
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var n note
		if err := json.Unmarshal(lines.Bytes(), &n); err != nil {
			t.Errorf("the driver printed %s", lines.Text())
			continue
		}
		switch {
		case n.Ask != "":
			if fn := asked[n.Ask]; fn != nil {
				fn()
			} else {
				t.Errorf("the driver asks for %s, which nobody does", n.Ask)
			}
			_, _ = io.WriteString(stdin, "\n")
		case n.Done:
			done = true
		default:
			notes = append(notes, n)
		}
	}
	if err := cmd.Wait(); err != nil || !done {
		t.Fatalf("the client failed: %v, done %v, after %d notes\n%s", err, done, len(notes), stderr.String())
	}
	return notes
}
