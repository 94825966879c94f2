package sqlite_test

import (
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

// raw runs statements on a file as another program would.
func raw(t testing.TB, file string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, q := range statements {
		if _, err := db.Exec(q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

// fresh makes a store with some content and closes it.
func fresh(t testing.TB, file string) {
	t.Helper()
	s := open(t, file, sqlite.Options{})
	admit(t, s, "s1")
	closeStore(t, s)
}

// contents returns the digests of all files of a directory but the lock and the
// shared memory, which holds nothing that has to be kept.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	sums := make(map[string]string)
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(name, "-lock") || strings.HasSuffix(name, "-shm") {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, name))
		sums[name] = fmt.Sprintf("%d bytes %x", len(b), sha256.Sum256(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// foreign makes files that are not stores of this version, each alone in a
// directory.
func foreign(t testing.TB) map[string]string {
	files := make(map[string]string)
	file := func(name string) string {
		files[name] = filepath.Join(t.TempDir(), "flue.db")
		return files[name]
	}
	write := func(file, content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file("a text file"), "agents: []\n"+strings.Repeat("# more\n", 100))
	write(file("a short file"), "x")
	write(file("the beginning of a SQLite file"), "SQLite format 3\x00")
	raw(t, file("a database of another application"), "CREATE TABLE users (id INTEGER PRIMARY KEY)")
	raw(t, file("a database with another application's id"), "PRAGMA application_id = 42", "CREATE TABLE t (x)")

	newer := file("a store of a newer version")
	fresh(t, newer)
	raw(t, newer, "PRAGMA user_version = 3")

	older := file("a store of no version")
	fresh(t, older)
	raw(t, older, "PRAGMA user_version = 0")

	// The newer version's stamp is only in the log, as after a crash.
	logged := file("a store that a newer version has just converted")
	fresh(t, logged)
	db, err := sql.Open("sqlite", logged)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("PRAGMA user_version = 4"); err != nil {
		t.Fatal(err)
	}
	copied := file("the copy of a store that a newer version has just converted")
	copyFile(t, logged, copied)
	copyFile(t, logged+"-wal", copied+"-wal")
	if info, err := os.Stat(copied + "-wal"); err != nil || info.Size() == 0 {
		t.Fatalf("the log of the converted store is empty: %v", err)
	}
	delete(files, "a store that a newer version has just converted")
	return files
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	for name, file := range foreign(t) {
		t.Run(name, func(t *testing.T) {
			before := contents(t, filepath.Dir(file))
			s, err := sqlite.Open(t.Context(), file, sqlite.Options{})
			if err == nil {
				s.Close()
			}
			if !errors.Is(err, store.ErrFormat) {
				t.Errorf("Open: error %v, want ErrFormat", err)
			}
			if err != nil && !strings.Contains(err.Error(), filepath.Base(file)) {
				t.Errorf("the error does not name the file: %v", err)
			}
			if diff := cmp.Diff(before, contents(t, filepath.Dir(file))); diff != "" {
				t.Errorf("files changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestEmptyFileBecomesAStore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flue.db")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	fresh(t, file)
	s := open(t, file, sqlite.Options{})
	defer closeStore(t, s)
	if got := head(t, s); got != 1 {
		t.Errorf("head is %d, want 1", got)
	}
}

func TestNewFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flue ?#%41.db") // means nothing special
	// A creation that a crash has ended leaves these.
	for _, suffix := range []string{"-new", "-new-journal"} {
		if err := os.WriteFile(file+suffix, []byte("garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fresh(t, file)
	var names []string
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{"flue ?#%41.db", "flue ?#%41.db-lock"}, names); diff != "" {
		t.Errorf("files of a closed store (-want +got):\n%s", diff)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		t.Errorf("permissions are %v: others can read conversations", perm)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if size := int(b[16])<<8 | int(b[17]); size != 8192 {
		t.Errorf("page size is %d, want 8192", size)
	}
}

func TestLogWithoutFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flue.db")
	s := open(t, file, sqlite.Options{})
	admit(t, s, "s1")
	dir := t.TempDir()
	lost := filepath.Join(dir, "lost.db")
	copyFile(t, file+"-wal", lost+"-wal")
	closeStore(t, s)

	before := contents(t, dir)
	_, err := sqlite.Open(t.Context(), lost, sqlite.Options{})
	if !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Open: error %v, want ErrCorrupt", err)
	}
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
		t.Errorf("files changed (-before +after):\n%s", diff)
	}
}

func TestBadPaths(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		name, path string
		want       error
	}{
		{"none", "", store.ErrInvalid},
		{"memory", ":memory:", store.ErrInvalid},
		{"a directory", dir, fs.ErrInvalid},
		{"in a missing directory", filepath.Join(dir, "missing", "flue.db"), fs.ErrNotExist},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := sqlite.Open(t.Context(), tt.path, sqlite.Options{})
			if !errors.Is(err, tt.want) {
				t.Errorf("Open(%q): error %v, want %v", tt.path, err, tt.want)
			}
		})
	}
	for _, o := range []sqlite.Options{{Readers: -1}, {Sync: 7}} {
		if _, err := sqlite.Open(t.Context(), filepath.Join(dir, "flue.db"), o); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("Open with %+v: error %v, want ErrInvalid", o, err)
		}
	}
}
