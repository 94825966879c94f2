package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

// locked fails the test unless the file cannot be opened for another's sake.
func locked(t *testing.T, file string) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), file, sqlite.Options{})
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, store.ErrLocked) {
		t.Fatalf("Open of a store that is open: error %v, want ErrLocked", err)
	}
	if !strings.Contains(err.Error(), filepath.Base(file)) && runtime.GOOS != "windows" {
		t.Errorf("the error does not name the file: %v", err)
	}
	if !strings.Contains(err.Error(), "stop the other process") {
		t.Errorf("the error does not say what to do: %v", err)
	}
}

func TestLockInOneProcess(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "flue.db")
	s := open(t, file, sqlite.Options{})
	locked(t, file)
	admit(t, s, "s1") // goes on
	closeStore(t, s)

	s = open(t, file, sqlite.Options{})
	admit(t, s, "s2")
	closeStore(t, s)
}

func TestLockThroughLink(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "flue.db"), filepath.Join(t.TempDir(), "flue.db")
	s := open(t, file, sqlite.Options{})
	defer closeStore(t, s)
	if err := os.Symlink(file, link); err != nil {
		t.Skipf("no symbolic links: %v", err)
	}
	locked(t, link)
}

func TestLockBetweenProcesses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flue.db")
	s := open(t, file, sqlite.Options{})
	other := start(t, "open", file)
	if other.lines.Scan(); other.lines.Text() != "locked" {
		t.Errorf("the other process says %q, want locked", other.lines.Text())
	}
	if err := other.cmd.Wait(); err != nil {
		t.Errorf("the other process: %v", err)
	}
	admit(t, s, "s1")
	closeStore(t, s)

	other = start(t, "open", file)
	if other.lines.Scan(); other.lines.Text() != "opened" {
		t.Fatalf("the other process says %q, want opened", other.lines.Text())
	}
	locked(t, file)

	// The lock ends with the process, however that ends.
	other.kill(t)
	s = open(t, file, sqlite.Options{})
	defer closeStore(t, s)
	if got := head(t, s); got != 1 {
		t.Errorf("head is %d, want 1", got)
	}
}

// After a process has been killed in the middle of its work, the next one has
// the file and the unfinished work at once.
func TestTakeoverAfterKill(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flue.db")
	for range 5 {
		worker := start(t, "write", file)
		for range 20 {
			if !worker.lines.Scan() {
				t.Fatalf("the worker ended: %v", worker.cmd.Wait())
			}
		}
		locked(t, file)
		worker.kill(t)

		began := time.Now()
		s := open(t, file, sqlite.Options{}) // the first try
		if err := s.Renew(t.Context(), "n2", time.Minute); err != nil {
			t.Fatal(err)
		}
		open := 0
		for g := range writers {
			in, err := s.Instance(t.Context(), instance(g))
			if err == nil && in.Unsettled > 0 {
				open++
			} else if err != nil && !errors.Is(err, store.ErrNotFound) {
				t.Fatal(err)
			}
		}
		leases, err := s.Claim(t.Context(), "n2", 100)
		if err != nil || len(leases) != open {
			t.Errorf("%d of %d unfinished instances are claimed, error %v", len(leases), open, err)
		}
		for _, l := range leases {
			if _, err := s.Append(t.Context(), l, store.Write{Payload: []byte("taken over")}); err != nil {
				t.Error(err)
			}
		}
		t.Logf("%d instances taken over after %v", len(leases), time.Since(began).Round(time.Millisecond))
		closeStore(t, s)
	}
}
