package sqlite_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The simulated disk believes that SQLite's sync is one of the operating system.
// This looks at what is really asked of it, by tracing another process.
func TestSystemCalls(t *testing.T) {
	tool, err := exec.LookPath("strace")
	if err == nil {
		err = exec.CommandContext(t.Context(), tool, "-f", "-o", os.DevNull, "true").Run()
	}
	if err != nil {
		if os.Getenv("FLUE_REQUIRE_ALL") != "" {
			t.Fatalf("strace is needed, and allowed to trace: install it (%v)", err)
		}
		t.Skipf("strace is missing or may not trace (%v): install it to see which system calls stand behind an acknowledgement", err)
	}
	early := premature(t, tool, "step")
	for _, what := range early {
		t.Error(what)
	}
	// The same without syncs, to see that the trace is understood.
	if len(premature(t, tool, "hasty")) < 20 {
		t.Error("nothing is wrong with a process that does not sync")
	}
}

// premature runs a process that writes step by step, and returns what it said
// before the operating system had been asked to make it true.
func premature(t *testing.T, tool, role string) (early []string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, out := filepath.Join(dir, "flue.db"), filepath.Join(t.TempDir(), "trace")
	cmd := exec.CommandContext(t.Context(), tool, "-f", "-y", "-s", "40", "-o", out,
		"-e", "trace=write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2", os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"="+role, fileVar+"="+file)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	trace, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}

	// Which files have been written since they were synced, which threads are in
	// a sync of what, and whether the directory must be synced.
	dirty, syncing, renamed := make(map[string]bool), make(map[string]string), false
	acks := 0
	call := regexp.MustCompile(`^(\d+) +(<\.\.\. )?(\w+)(?:\(| resumed>)(?:\d+<([^>]*)>)?(.*)`)
	for line := range strings.Lines(string(trace)) {
		m := call.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		thread, resumed, name, on, rest := m[1], m[2] != "", m[3], m[4], m[5]
		switch {
		case strings.HasSuffix(name, "sync"):
			if strings.Contains(rest, "<unfinished") {
				syncing[thread] = on
				continue
			}
			if resumed {
				on = syncing[thread]
			}
			delete(dirty, on)
			renamed = renamed && on != dir
		case resumed:
			// Counted when it began.
		case strings.HasPrefix(on, file):
			dirty[on] = true
		case strings.HasPrefix(name, "rename") && strings.Contains(rest, file):
			renamed = true
			if dirty[file+"-new"] {
				early = append(early, "a new store has its name before its content is synced")
			}
		case strings.Contains(rest, `"opened`) && renamed:
			early = append(early, "a new store is open before its name is synced")
		case strings.Contains(rest, `"acknowledged`):
			acks++
			if dirty[file+"-wal"] {
				early = append(early, fmt.Sprintf("acknowledgement %d comes before the log is synced", acks))
			}
		}
	}
	if acks != 20 {
		t.Errorf("%d acknowledgements in the trace, want 20", acks)
	}
	return early
}
