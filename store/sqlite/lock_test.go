package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

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
