package sqlite_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

// A file whose batch 3 stands for 3 to 6, and whose head is 9.
func pruned(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "flue.db")
	s := open(t, file, sqlite.Options{})
	defer closeStore(t, s)
	admit(t, s, "s1")
	l := take(t, s)
	for i := 2; i < 10; i++ {
		appendTo(t, s, l, fmt.Sprint("batch ", i))
	}
	if err := s.Prune(t.Context(), l, []store.Run{{From: 3, To: 6, Payload: []byte("three to six")}}); err != nil {
		t.Fatal(err)
	}
	return file
}

// Damage of what a batch stands for is found like any other.
func TestDamagedSpan(t *testing.T) {
	for _, change := range []string{
		"UPDATE batches SET span = span + 1 WHERE offset = 3",
		"UPDATE batches SET span = span - 1 WHERE offset = 3",
		"UPDATE batches SET span = 0 WHERE offset = 3",
		"UPDATE batches SET span = 1 << 62 WHERE offset = 3",
		"UPDATE batches SET span = -1 WHERE offset = 2",
		"UPDATE batches SET payload = CAST('three to sex' AS BLOB) WHERE offset = 3",
		"DELETE FROM batches WHERE offset = 3",
		"DELETE FROM batches WHERE offset = 7",
		"INSERT INTO batches (instance, offset, epoch, sum, payload) SELECT instance, 5, epoch, sum, payload FROM batches WHERE offset = 7",
	} {
		file := pruned(t)
		raw(t, file, change)
		s := open(t, file, sqlite.Options{})
		if _, err := s.Read(t.Context(), addr, -1, 100); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: Read: error %v, want ErrCorrupt", change, err)
		}
		closeStore(t, s)
	}
}

// Behind a batch that is damaged, and that stands for others, the journal can be
// read.
func TestReadBehindADamagedSpan(t *testing.T) {
	file := pruned(t)
	raw(t, file, "UPDATE batches SET payload = CAST('' AS BLOB) WHERE offset = 3")
	s := open(t, file, sqlite.Options{})
	defer closeStore(t, s)
	var got []string
	for b, err := range store.Batches(t.Context(), s, addr, -1) {
		var bad *store.BatchError
		if err != nil && !errors.As(err, &bad) {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(b.Offset, err != nil))
	}
	if want := "[0 false 1 false 2 false 3 true 7 false 8 false 9 false]"; fmt.Sprint(got) != want {
		t.Errorf("read %v, want %s", got, want)
	}
}
