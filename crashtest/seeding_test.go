package crashtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Each fault is found by the tests that are there to find it: one of them fails.
// That they do not end, or that the program they test panics somewhere else, is
// not enough. The same tests pass without the fault, on the same machine in the
// same run. It is built into them with an overlay; the tree stays as it is.
//
// It takes minutes, so it runs only when FLUE_FAULTS is set: with 1 all of them,
// with n one in n. Which share that is follows from the commit, or from FLUE_SEED.
func TestSeededFaults(t *testing.T) {
	oneIn := int(variable(t, "FLUE_FAULTS", 0))
	if oneIn < 1 {
		t.Skip("set FLUE_FAULTS=1 to see that the tests find seeded faults; it takes minutes")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(variable(t, "FLUE_SEED", int64(commit(t, root))))
	share := int(seed % uint64(oneIn))
	l := &laboratory{root: root, controls: make(map[experimentOf]func() error)}
	var chosen []fault
	for i, f := range faults {
		if i%oneIn == share {
			chosen = append(chosen, f)
			l.control(f)
		}
	}
	t.Logf("%d of %d faults, tried with %d selections of tests: share %d of %d (FLUE_SEED=%d)",
		len(chosen), len(faults), len(l.controls), share+1, oneIn, seed)
	for _, f := range chosen {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel() // most of the time goes into building
			l.try(t, f)
		})
	}
}

// commit is a number that changes with every commit, so that one change after
// another tries another share.
func commit(t *testing.T, root string) uint64 {
	t.Helper()
	cmd := exec.Command("git", "rev-parse", "HEAD")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Logf("the first share, because the commit is not known: %v", err)
		return 0
	}
	h := fnv.New32a()
	h.Write(out)
	return uint64(h.Sum32())
}

// Each fault can still be built in: its code is in its file exactly once.
func TestSeededFaultsApply(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) { f.seed(t, filepath.Join("..", filepath.FromSlash(f.file))) })
	}
}

// seed returns the source at path with the fault.
func (f *fault) seed(t *testing.T, path string) string {
	t.Helper()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(source)
	for _, change := range append([][2]string{{f.old, f.new}}, f.more...) {
		if n := strings.Count(text, change[0]); n != 1 {
			t.Fatalf("%s has the code of the fault %d times: bring the catalogue up to date", f.file, n)
		}
		text = strings.Replace(text, change[0], change[1], 1)
	}
	return text
}

// An experimentOf some tests is what several faults may share.
type experimentOf struct{ in, tests string }

// A laboratory runs tests with and without faults.
type laboratory struct {
	root     string
	controls map[experimentOf]func() error
}

// control provides for the tests of a fault to be run once without it.
func (l *laboratory) control(f fault) {
	e := experimentOf{f.in, f.tests}
	if l.controls[e] != nil {
		return
	}
	l.controls[e] = sync.OnceValue(func() error {
		out, err := l.run(e, "-v")
		if err != nil { // a machine that is short of time is not what is looked for
			out, err = l.run(e, "-v")
		}
		return healthy(out, err)
	})
}

// try runs the tests of a fault without it and with it.
func (l *laboratory) try(t *testing.T, f fault) {
	t.Helper()
	path := filepath.Join(l.root, filepath.FromSlash(f.file))
	dir := t.TempDir()
	faulty := filepath.Join(dir, "faulty.go")
	if err := os.WriteFile(faulty, []byte(f.seed(t, path)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: faulty}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	e := experimentOf{f.in, f.tests}
	switch err := l.controls[e](); {
	case errors.Is(err, errSkipped) && os.Getenv("FLUE_REQUIRE_ALL") == "":
		t.Skipf("NOT TRIED: %s of %s: %v", f.tests, f.in, err)
	case err != nil:
		t.Fatalf("without the fault, %s of %s: %v", f.tests, f.in, err)
	}
	for n := range tries {
		flags := []string{"-failfast", "-overlay=" + list}
		if f.hangs { // it would for as long as it may
			flags = append(flags, "-timeout=1m")
		}
		out, err := l.run(e, flags...)
		if err = f.found(out, err); err == nil {
			return
		}
		report := t.Logf
		if n == tries-1 {
			report = t.Errorf
		}
		report("try %d: %s of %s: %v", n+1, f.tests, f.in, err)
	}
}

// tries is how often tests may have a fault before them: some look for it in other
// places each time.
const tries = 3

// run runs tests, and returns what they print.
func (l *laboratory) run(e experimentOf, flags ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	args := append([]string{"test", "-vet=off", "-short", "-count=1", "-timeout=3m", "-run=" + e.tests}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, e.in)...)
	cmd.Dir = l.root
	// What this run is asked to do is not for them. Least of all may a test fail
	// because something is not installed.
	for _, v := range os.Environ() {
		switch name, _, _ := strings.Cut(v, "="); name {
		case "FLUE_FAULTS", "FLUE_REQUIRE_ALL", "FLUE_SEED":
		default:
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return string(out), err
}

// errSkipped is that tests do not run here.
var errSkipped = errors.New("nothing but skipped tests")

// healthy judges a run without a fault, which has told of every test.
func healthy(out string, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("it does not pass: %w:\n%s", err, tail(out))
	case strings.Contains(out, "\n--- PASS: "):
		return nil
	case strings.Contains(out, "\n--- SKIP: "):
		return fmt.Errorf("%w:\n%s", errSkipped, tail(out))
	}
	return fmt.Errorf("there is no such test:\n%s", tail(out))
}

// found judges a run with the fault.
func (f *fault) found(out string, err error) error {
	hung := strings.Contains(out, "panic: test timed out after ")
	switch {
	case err == nil:
		return errors.New("they pass with it")
	case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"):
		return fmt.Errorf("it does not build, so it shows nothing:\n%s", tail(out))
	case strings.HasPrefix(out, "--- FAIL: Test"), strings.Contains(out, "\n--- FAIL: Test"), hung && f.hangs:
		return nil
	case hung:
		return fmt.Errorf("they do not end, and none of them has failed:\n%s", tail(out))
	}
	return fmt.Errorf("none of them has failed, but: %w:\n%s", err, tail(out))
}

func tail(s string) string { return s[max(0, len(s)-2000):] }

// What counts as found, and what does not.
func TestFaultsAreFoundByFailedTests(t *testing.T) {
	failed := errors.New("exit status 1")
	for _, tt := range []struct {
		name  string
		out   string
		err   error
		hangs bool
		found bool
	}{
		{"a failed test", "--- FAIL: TestX (0.01s)\n    x_test.go:1: wrong\nFAIL\n", failed, false, true},
		{"a failed test behind its log", "a line\n--- FAIL: TestX (0.01s)\n", failed, false, true},
		{"a pass", "ok  \tx\t0.1s\n", nil, false, false},
		{"code that does not build", "x.go:1: undefined\nFAIL\tx [build failed]\n", failed, false, false},
		{"a test that does not end", "panic: test timed out after 1m0s\n", failed, false, false},
		{"a test that was expected not to end", "panic: test timed out after 1m0s\n", failed, true, true},
		{"a crash elsewhere", "panic: nil map\n\ngoroutine 7 [running]:\nFAIL\tx\t0.1s\n", failed, false, false},
		{"a part of a test, told by a parent that says nothing", "    --- FAIL: TestX/a (0.01s)\n", failed, false, false},
		{"a go command that was killed", "", context.DeadlineExceeded, false, false},
	} {
		f := fault{hangs: tt.hangs}
		if err := f.found(tt.out, tt.err); (err == nil) != tt.found {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	for out, want := range map[string]bool{
		"=== RUN   TestX\n--- PASS: TestX (0.00s)\nPASS\n": true,
		"=== RUN   TestX\n--- SKIP: TestX (0.00s)\nPASS\n": false,
		"testing: warning: no tests to run\nPASS\n":        false,
	} {
		if err := healthy(out, nil); (err == nil) != want {
			t.Errorf("%q: %v", out, err)
		}
	}
}
