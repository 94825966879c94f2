package sqlite_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

var readOnly = sqlite.Options{ReadOnly: true}

// A reader sees what the process writes that has the file open, and takes
// nothing from it: neither the lock nor the log.
func TestReadOnlyBesideAWriter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flue.db")
	s := open(t, file, sqlite.Options{})
	admit(t, s, "s1")
	r := open(t, file, readOnly)
	if got, want := journal(t, r), []string{"birth", "admit s1"}; !slices.Equal(got, want) {
		t.Errorf("the reader sees %q, want %q", got, want)
	}
	admit(t, s, "s2")
	if got, want := journal(t, r), []string{"birth", "admit s1", "admit s2"}; !slices.Equal(got, want) {
		t.Errorf("after a write the reader sees %q, want %q", got, want)
	}
	subs, err := r.Unsettled(t.Context(), addr)
	if err != nil || len(subs) != 2 || subs[1].ID != "s2" {
		t.Errorf("unsettled are %+v, %v", subs, err)
	}
	locked(t, file)
	closeStore(t, r)
	locked(t, file)
	admit(t, s, "s3")
	closeStore(t, s)

	s = open(t, file, sqlite.Options{})
	defer closeStore(t, s)
	if got := head(t, s); got != 3 {
		t.Errorf("head is %d, want 3", got)
	}
}

// It sees the newest writes of a process that has died, which are in the log.
func TestReadOnlyAfterAKill(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flue.db")
	s := open(t, file, sqlite.Options{})
	admit(t, s, "s1")
	copied := filepath.Join(t.TempDir(), "flue.db")
	if err := s.Between(t.Context(), func() error {
		for _, suffix := range []string{"", "-wal"} {
			b, err := os.ReadFile(file + suffix)
			if err == nil {
				err = os.WriteFile(copied+suffix, b, 0o600)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	admit(t, s, "s2") // not in the copy
	closeStore(t, s)

	r := open(t, copied, readOnly)
	if got := head(t, r); got != 1 {
		t.Errorf("head is %d, want 1", got)
	}
	closeStore(t, r)
	s = open(t, copied, sqlite.Options{})
	defer closeStore(t, s)
	if got := head(t, s); got != 1 {
		t.Errorf("after the reader the head is %d, want 1", got)
	}
}

func TestReadOnlyWritesNothing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "flue.db")
	fresh(t, file)
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, file, readOnly)
	ctx, l := t.Context(), store.Lease{Address: addr, Node: "n1", Epoch: 1 << 41}
	errs := make(map[string]error)
	_, errs["Admit"] = r.Admit(ctx, admission("s2"))
	_, errs["Abort"] = r.Abort(ctx, addr, []byte("x"))
	_, errs["Append"] = r.Append(ctx, l, store.Write{Payload: []byte("x")})
	_, errs["Claim"] = r.Claim(ctx, "n1", 1)
	_, errs["Take"] = r.Take(ctx, "n1", addr)
	errs["Renew"] = r.Renew(ctx, "n1", time.Hour)
	errs["Release"] = r.Release(ctx, l)
	errs["Release of nothing"] = r.Release(ctx)
	for call, err := range errs {
		if !errors.Is(err, store.ErrReadOnly) {
			t.Errorf("%s: error %v, want ErrReadOnly", call, err)
		}
	}
	if n := r.Commits(); n != 0 {
		t.Errorf("%d commits", n)
	}
	if err := r.Check(ctx); err != nil {
		t.Errorf("Check: %v", err)
	}
	if err := r.Backup(ctx, filepath.Join(t.TempDir(), "copy.db")); err != nil {
		t.Errorf("Backup: %v", err)
	}
	closeStore(t, r)
	if _, err := r.Read(ctx, addr, -1, 1); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Read of a closed store: %v", err)
	}
	if _, err := r.Admit(ctx, admission("s2")); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Admit to a closed store: %v", err)
	}
	after, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Error("the file has changed")
	}
}

func TestReadOnlyCreatesNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := sqlite.Open(t.Context(), filepath.Join(dir, "flue.db"), readOnly); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opening what is not there: %v, want fs.ErrNotExist", err)
	}
	if diff := cmp.Diff(map[string]string{}, contents(t, dir)); diff != "" {
		t.Errorf("it left something (-want +got):\n%s", diff)
	}
	for name, file := range foreign(t) {
		s, err := sqlite.Open(t.Context(), file, readOnly)
		if err == nil {
			closeStore(t, s)
		}
		if !errors.Is(err, store.ErrFormat) {
			t.Errorf("opening %s: %v, want ErrFormat", name, err)
		}
	}
}

func TestCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flue.db")
	s := open(t, file, sqlite.Options{})
	for range 200 {
		appendTo(t, s, takeNew(t, s), "some work")
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("a sound file: %v", err)
	}
	closeStore(t, s)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	clear(whole[len(whole)-8192:])
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, file, sqlite.Options{})
	defer closeStore(t, s)
	if err := s.Check(t.Context()); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a spoiled file: %v, want ErrCorrupt", err)
	}
}

// takeNew takes the instance, which is made if need be.
func takeNew(t *testing.T, s *sqlite.Store) store.Lease {
	t.Helper()
	if _, err := s.Instance(t.Context(), addr); errors.Is(err, store.ErrNotFound) {
		admit(t, s, "s1")
	}
	return take(t, s)
}

// An instance whose batches are all gone does not hide the others.
func TestInstancesDamaged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flue.db")
	fresh(t, file)
	raw(t, file, "DELETE FROM batches", "INSERT INTO instances (agent, name, uid, incarnation, unsettled) VALUES ('zeta', 'x', 'u', 'i', 0)",
		"INSERT INTO batches (instance, offset, epoch, sum, payload) VALUES (2, 0, 0, 0, x'00')")
	r := open(t, file, readOnly)
	defer closeStore(t, r)
	got, err := r.Instances(t.Context(), store.Address{}, 10)
	want := []store.Instance{{Address: addr, Head: -1}, {Address: store.Address{Agent: "zeta", ID: "x"}, UID: "u", Incarnation: "i"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
