package sqlite_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

// old makes a file of an earlier format.
func old(t testing.TB, format int) string {
	t.Helper()
	script, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("format%d.sql", format)))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "flue.db")
	raw(t, file, string(script), "PRAGMA journal_mode = WAL")
	return file
}

// columns lists the columns of all tables and indexes of a file.
func columns(t testing.TB, file string) []string {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(`SELECT m.type || ' ' || m.name || '.' || c.name || ' ' || c.type || c."notnull" || c.pk
		FROM sqlite_master m JOIN pragma_table_xinfo(m.name) c WHERE m.type = 'table'
		UNION ALL SELECT 'index ' || m.name || ' ' || coalesce(m.sql, '') FROM sqlite_master m WHERE m.type = 'index' ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// wantOld fails the test unless a store has what the files of old have.
func wantOld(t testing.TB, s *sqlite.Store) {
	t.Helper()
	want := []string{"birth", "admit s1", "admit s2"}
	for i := range 20 {
		want = append(want, fmt.Sprint("batch ", i))
	}
	if diff := cmp.Diff(want, journal(t, s)); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}
	if sub, err := s.Submission(t.Context(), addr, "s1"); err != nil || sub.Outcome != "completed" || sub.SettledAt != 13 {
		t.Errorf("submission s1 is %+v, %v", sub, err)
	}
	if a, err := s.Attachment(t.Context(), addr, "a1"); err != nil || string(a.Data) != "data" {
		t.Errorf("attachment a1 is %q, %v", a.Data, err)
	}
}

// A file of an earlier version becomes one of this one when it is opened, with
// everything that it held.
func TestUpgrade(t *testing.T) {
	file := old(t, 1)
	s := open(t, file, sqlite.Options{})
	wantOld(t, s)
	l := take(t, s)
	appendTo(t, s, l, "more")
	if err := s.SaveCheckpoint(t.Context(), l, store.Checkpoint{Offset: 23, Data: []byte("kept")}); err != nil {
		t.Error(err)
	}
	closeStore(t, s)

	s = open(t, file, sqlite.Options{})
	if c, err := s.Checkpoint(t.Context(), addr, math.MaxInt64); err != nil || string(c.Data) != "kept" {
		t.Errorf("the checkpoint is %q, %v", c.Data, err)
	}
	if got := head(t, s); got != 23 {
		t.Errorf("head is %d, want 23", got)
	}
	closeStore(t, s)

	made := filepath.Join(t.TempDir(), "flue.db")
	fresh(t, made)
	if diff := cmp.Diff(columns(t, made), columns(t, file)); diff != "" {
		t.Errorf("an upgraded file is not like a new one (-new +upgraded):\n%s", diff)
	}
}

// To read an old file changes nothing of it.
func TestReadOnlyOfAnOldFormat(t *testing.T) {
	file := old(t, 1)
	before := contents(t, filepath.Dir(file))["flue.db"]
	s := open(t, file, readOnly)
	wantOld(t, s)
	if _, err := s.Checkpoint(t.Context(), addr, math.MaxInt64); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Checkpoint: error %v, want ErrNotFound", err)
	}
	closeStore(t, s)
	if after := contents(t, filepath.Dir(file))["flue.db"]; after != before {
		t.Errorf("the file was %s and is %s", before, after)
	}
}

// A checkpoint that is damaged says so, and the one before it is still there.
func TestDamagedCheckpoint(t *testing.T) {
	for _, change := range []string{
		"UPDATE checkpoints SET data = CAST('tow' AS BLOB) WHERE offset = 2",
		"UPDATE checkpoints SET data = CAST('' AS BLOB) WHERE offset = 2",
		"UPDATE checkpoints SET sum = sum + 1 WHERE offset = 2",
		"UPDATE checkpoints SET offset = 3 WHERE offset = 2",
		// The payload of a batch is no checkpoint.
		"UPDATE checkpoints SET (sum, data) = (SELECT sum, payload FROM batches WHERE offset = 2) WHERE offset = 2",
	} {
		file := filepath.Join(t.TempDir(), "flue.db")
		s := open(t, file, sqlite.Options{})
		admit(t, s, "s1")
		l := take(t, s)
		for i := range 3 {
			appendTo(t, s, l, fmt.Sprint("batch ", i))
		}
		for offset, data := range []string{1: "one", 2: "two"} {
			if data == "" {
				continue
			}
			if err := s.SaveCheckpoint(t.Context(), l, store.Checkpoint{Offset: int64(offset), Data: []byte(data)}); err != nil {
				t.Fatal(err)
			}
		}
		closeStore(t, s)
		raw(t, file, change)

		s = open(t, file, sqlite.Options{})
		c, err := s.Checkpoint(t.Context(), addr, math.MaxInt64)
		if !errors.Is(err, store.ErrCorrupt) || c.Offset < 2 || c.Data != nil {
			t.Errorf("%s: Checkpoint: %+v, error %v, want ErrCorrupt", change, c, err)
		}
		if c, err := s.Checkpoint(t.Context(), addr, c.Offset-1); err != nil || string(c.Data) != "one" {
			t.Errorf("%s: the one before is %q, %v", change, c.Data, err)
		}
		if got := strings.Join(journal(t, s), ","); got != "birth,admit s1,batch 0,batch 1,batch 2" {
			t.Errorf("%s: the journal is %s", change, got)
		}
		closeStore(t, s)
	}
}

// The format of a file can be asked for beside whoever has it open, and changes
// nothing.
func TestFormat(t *testing.T) {
	file := old(t, 1)
	before := contents(t, filepath.Dir(file))["flue.db"]
	version, known, err := sqlite.Format(t.Context(), file)
	if err != nil || version != 1 || known != 2 {
		t.Errorf("an old file has format %d of %d, %v", version, known, err)
	}
	if after := contents(t, filepath.Dir(file))["flue.db"]; after != before {
		t.Errorf("the file was %s and is %s", before, after)
	}
	s := open(t, file, sqlite.Options{})
	if version, known, err := sqlite.Format(t.Context(), file); err != nil || version != known {
		t.Errorf("an open file has format %d of %d, %v", version, known, err)
	}
	closeStore(t, s)

	newer := old(t, 1)
	raw(t, newer, "PRAGMA user_version = 99")
	if version, _, err := sqlite.Format(t.Context(), newer); err != nil || version != 99 {
		t.Errorf("a newer file has format %d, %v", version, err)
	}
	if _, _, err := sqlite.Format(t.Context(), filepath.Join(t.TempDir(), "none.db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	text := filepath.Join(t.TempDir(), "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := sqlite.Format(t.Context(), text); !errors.Is(err, store.ErrFormat) {
		t.Errorf("a text: %v", err)
	}
}
