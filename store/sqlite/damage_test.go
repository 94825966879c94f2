package sqlite_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

func TestDamage(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change string
	}{
		{"a changed payload", "UPDATE batches SET payload = CAST('admit s0' AS BLOB) WHERE offset = 1"},
		{"a changed epoch", "UPDATE batches SET epoch = epoch + 1 WHERE offset = 2"},
		{"a missing batch", "DELETE FROM batches WHERE offset = 1"},
		{"a missing first batch", "DELETE FROM batches WHERE offset = 0"},
		{"no batches", "DELETE FROM batches"},
		{"swapped batches", "UPDATE batches SET offset = CASE offset WHEN 1 THEN -2 WHEN 2 THEN 1 END WHERE offset IN (1, 2); UPDATE batches SET offset = 2 WHERE offset = -2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "flue.db")
			s := open(t, file, sqlite.Options{})
			admit(t, s, "s1")
			appendTo(t, s, take(t, s), "work")
			admit(t, s, "s2")
			closeStore(t, s)
			raw(t, file, tt.change)

			s = open(t, file, sqlite.Options{})
			defer closeStore(t, s)
			_, err := s.Read(t.Context(), addr, -1, 100)
			if !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("Read: error %v, want ErrCorrupt", err)
			}
		})
	}
}

func TestDamagedAttachment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flue.db")
	s := open(t, file, sqlite.Options{})
	a := admission("s1")
	a.Attachments = []store.Attachment{attachment("one", "some bytes"), attachment("two", "other bytes")}
	if _, err := s.Admit(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	raw(t, file, "UPDATE blobs SET data = CAST('some bites' AS BLOB) WHERE data = CAST('some bytes' AS BLOB)")

	s = open(t, file, sqlite.Options{})
	defer closeStore(t, s)
	if _, err := s.Attachment(t.Context(), addr, "one"); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Attachment: error %v, want ErrCorrupt", err)
	}
	if _, err := s.Attachment(t.Context(), addr, "two"); err != nil {
		t.Errorf("the other attachment: %v", err)
	}
}

func TestSameBytesAreStoredOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flue.db")
	s := open(t, file, sqlite.Options{})
	big := strings.Repeat("0123456789", 100_000)
	for _, id := range []string{"s1", "s2", "s3"} {
		a := admission(id)
		a.Attachments = []store.Attachment{attachment("a "+id, big), attachment("b "+id, big)}
		if _, err := s.Admit(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if limit := int64(len(big) * 3 / 2); info.Size() > limit {
		t.Errorf("six attachments of the same %d bytes take %d", len(big), info.Size())
	}
}

// A page that the disk has spoiled must not be taken for data, nor bring down
// anything but what is on it.
func TestSpoiledPages(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flue.db")
	s := open(t, file, sqlite.Options{})
	admit(t, s, "s1")
	l := take(t, s)
	for range 50 {
		appendTo(t, s, l, strings.Repeat("payload ", 100))
	}
	closeStore(t, s)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const page = 8192
	corrupt := 0
	for at := page; at < len(whole); at += page {
		spoiled := bytes.Clone(whole)
		clear(spoiled[at : at+page])
		copy(spoiled[at:], "spoiled")
		if err := os.WriteFile(file, spoiled, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := sqlite.Open(t.Context(), file, sqlite.Options{})
		if err == nil {
			for after := int64(-1); err == nil; {
				var p store.Page
				p, err = s.Read(t.Context(), addr, after, 10)
				after += int64(len(p.Batches))
				if len(p.Batches) == 0 {
					break
				}
			}
			if err == nil {
				_, err = s.Submission(t.Context(), addr, "s1")
			}
			if cerr := s.Close(); err == nil {
				err = cerr
			}
		}
		if errors.Is(err, store.ErrCorrupt) {
			corrupt++
		} else if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("page %d spoiled: error %v, want ErrCorrupt or none", at/page+1, err)
		}
	}
	if corrupt < 5 {
		t.Errorf("only %d spoiled pages were noticed", corrupt)
	}
}
