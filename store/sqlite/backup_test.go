package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

func TestBackup(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "flue.db"), sqlite.Options{Sync: sqlite.SyncNormal})
	defer closeStore(t, s)
	admit(t, s, "s1")
	l := take(t, s)
	for i := range 100 {
		appendTo(t, s, l, fmt.Sprint(i))
	}
	before := head(t, s)

	// Writes go on meanwhile.
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 100; ; i++ {
			select {
			case <-stop:
				return
			default:
				if _, err := s.Append(t.Context(), l, store.Write{Payload: []byte(fmt.Sprint(i))}); err != nil {
					t.Errorf("Append during a backup: %v", err)
					return
				}
			}
		}
	})
	path := filepath.Join(dir, "it's a copy.db")
	err := s.Backup(t.Context(), path)
	close(stop)
	writer.Wait()
	if err != nil {
		t.Fatal(err)
	}

	b := open(t, path, sqlite.Options{})
	defer closeStore(t, b)
	copied := journal(t, b)
	if int64(len(copied)) <= before {
		t.Errorf("the copy has %d batches, %d were there before", len(copied), before+1)
	}
	for i, p := range copied[2:] {
		if p != fmt.Sprint(i) {
			t.Errorf("batch %d of the copy is %q", i+2, p)
		}
	}
	if _, err := os.Stat(path + "-new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary file is left: %v", err)
	}
}

func TestBackupReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "flue.db"), sqlite.Options{})
	defer closeStore(t, s)
	admit(t, s, "s1")
	for _, name := range []string{"flue.db", "other"} {
		path := filepath.Join(dir, name)
		if name == "other" {
			if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Backup(t.Context(), path); !errors.Is(err, fs.ErrExist) {
			t.Errorf("Backup over %s: error %v, want ErrExist", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Backup(ctx, filepath.Join(dir, "never")); !errors.Is(err, context.Canceled) {
		t.Errorf("Backup with an ended context: error %v", err)
	}
	if got := head(t, s); got != 1 {
		t.Errorf("head is %d, want 1", got)
	}
}

// What a backup that was killed has left may be of one that runs: it is not touched, and
// the error says what it is and what to do.
func TestBackupAfterAKilledOne(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "flue.db"), sqlite.Options{})
	defer closeStore(t, s)
	admit(t, s, "s1")
	path := filepath.Join(dir, "copy.db")
	left := path + "-new"
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := s.Backup(t.Context(), path)
	if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), left) || !strings.Contains(err.Error(), "remove") {
		t.Errorf("Backup beside what another one has left: error %v", err)
	}
	if data, err := os.ReadFile(left); string(data) != "half" || err != nil {
		t.Errorf("what it has left is %q, %v", data, err)
	}
	if err := os.Remove(left); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(t.Context(), path); err != nil {
		t.Errorf("Backup when it is removed: %v", err)
	}
}

func TestCloseDuringBackup(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "flue.db"), sqlite.Options{Sync: sqlite.SyncNormal})
	admit(t, s, "s1")
	l := take(t, s)
	for range 20 {
		appendTo(t, s, l, string(fill("", 1<<20)))
	}
	done := make(chan error)
	go func() { done <- s.Backup(t.Context(), filepath.Join(dir, "copy.db")) }()
	closeStore(t, s)
	err := <-done
	if err != nil && !errors.Is(err, store.ErrClosed) {
		t.Errorf("Backup: error %v, want none or ErrClosed", err)
	}
	for _, name := range []string{"copy.db", "copy.db-new"} {
		if _, serr := os.Stat(filepath.Join(dir, name)); err != nil && !errors.Is(serr, fs.ErrNotExist) {
			t.Errorf("the backup that was given up left %s", name)
		}
	}
}
