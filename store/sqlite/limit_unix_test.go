//go:build unix

package sqlite_test

import (
	"errors"
	"fmt"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

func init() { roles["limited"] = limitedRole }

// limitedRole writes until the operating system refuses to make a file larger,
// and says what it says after that.
func limitedRole(file string) error {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := sqlite.Open(ctx, file, sqlite.Options{})
	if err != nil {
		return err
	}
	if err := s.Renew(ctx, "n1", time.Hour); err != nil {
		return err
	}
	limit := syscall.Rlimit{Cur: 500_000, Max: 500_000}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	err = writeOne(s, 0, say)
	say("failed %v", strings.ReplaceAll(err.Error(), "\n", " "))
	if !errors.Is(err, sqlite.ErrDisk) && !errors.Is(err, sqlite.ErrFull) {
		return fmt.Errorf("the error has no type: %w", err)
	}
	if _, err := s.Admit(ctx, admission("late")); !errors.Is(err, store.ErrPoisoned) {
		return fmt.Errorf("a write after that: %w", err)
	}
	if _, _, err := batches(s, instance(0)); err != nil {
		return fmt.Errorf("a read after that: %w", err)
	}
	return s.Close()
}

// The operating system itself refuses to write: the file has reached the size
// that its process may give it.
func TestFileSizeLimit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flue.db")
	c := start(t, "limited", file)
	acks, failed := make(map[string]bool), ""
	for c.lines.Scan() {
		if text, ok := strings.CutPrefix(c.lines.Text(), "failed "); ok {
			failed = text
			continue
		}
		if failed != "" {
			t.Errorf("after the failure: %s", c.lines.Text())
		}
		acks[c.lines.Text()] = true
	}
	if err := c.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if failed == "" || len(acks) < 10 {
		t.Fatalf("%d acknowledgements, then the failure %q", len(acks), failed)
	}
	t.Logf("%d acknowledgements, then: %s", len(acks), failed)
	s := open(t, file, sqlite.Options{})
	defer closeStore(t, s)
	verifyAcks(t, s, acks)
}
