package sqlite_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

// spoilable makes a file of some instances that were written one after the
// other, so that each has pages of its own, and returns it and what is in it.
func spoilable(t *testing.T) ([]byte, *history) {
	t.Helper()
	dir := memoryDir(t)
	file := filepath.Join(dir, "flue.db")
	h := &history{disk: &disk{}}
	s := open(t, file, sqlite.Options{Sync: sqlite.SyncNormal})
	if err := s.Renew(ctx, "n1", time.Hour); err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(5, 5))
	for g := range 4 {
		if err := h.work(s, rnd, instance(g), fmt.Sprint("s", g), 2); err != nil {
			t.Fatal(err)
		}
		l, err := s.Take(ctx, "n1", instance(g))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			if err := h.append(s, l, store.Write{Payload: []byte(fmt.Sprint("more ", i))}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := h.learn(s); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return whole, h
}

// says fails the test unless err is nil or one that says that the data is
// damaged, and what to do about it.
func says(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrFormat) {
		t.Errorf("%s: error %v, want ErrCorrupt or ErrFormat", what, err)
	} else if text := err.Error(); !strings.Contains(text, "restore") && !strings.Contains(text, "give another path") && !strings.Contains(text, "newer version") {
		t.Errorf("%s: the error does not say what to do: %v", what, err)
	}
}

// A damage is what the instances of a damaged file are worth.
type damage struct {
	refused    bool // the file is not opened
	unreadable map[store.Address]bool
	unwritable map[store.Address]bool
}

// survey opens a damaged file and tries everything with all its instances, at
// the same time.
func survey(t *testing.T, what string, content []byte, h *history) damage {
	t.Helper()
	file := filepath.Join(memoryDir(t), "flue.db")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	d := damage{unreadable: make(map[store.Address]bool), unwritable: make(map[store.Address]bool)}
	s, err := sqlite.Open(ctx, file, sqlite.Options{Sync: sqlite.SyncNormal})
	says(t, what+": opening", err)
	if err != nil {
		d.refused = true
		return d
	}
	defer s.Close() // may fail with a file like this
	if err := s.Renew(ctx, "n1", time.Hour); err != nil {
		t.Fatal(err)
	}
	for addr, truth := range h.journals {
		got, _, err := batches(s, addr)
		if errors.Is(err, store.ErrNotFound) {
			err = fmt.Errorf("%w; restore a backup", store.ErrCorrupt) // its row is gone
		}
		says(t, fmt.Sprint(what, ": reading ", addr), err)
		d.unreadable[addr] = err != nil
		for i, b := range got {
			if i >= len(truth) || !bytes.Equal(b.Payload, truth[i].Payload) {
				t.Errorf("%s: batch %d of %v is wrong, and nobody says so", what, i, addr)
				break
			}
		}
		if err == nil && len(got) < len(truth) {
			t.Errorf("%s: %v ends at offset %d instead of %d, and nobody says so", what, addr, len(got)-1, len(truth)-1)
		}
	}
	if _, err := s.Claim(ctx, "n1", 100); err != nil {
		says(t, what+": claiming", err)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for addr := range h.journals {
		wg.Go(func() {
			for i := range 10 {
				err := writeTo(s, addr, fmt.Sprint("late ", i))
				if err == nil {
					continue
				}
				mu.Lock()
				d.unwritable[addr] = true
				mu.Unlock()
				if errors.Is(err, store.ErrPoisoned) || !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrConflict) {
					t.Errorf("%s: writing to %v: error %v, want ErrCorrupt", what, addr, err)
				}
			}
		})
	}
	wg.Wait()
	return d
}

// writeTo admits, appends and settles.
func writeTo(s *sqlite.Store, addr store.Address, id string) error {
	if _, err := s.Admit(ctx, &store.Admission{Address: addr, Submission: id, Payload: []byte(id)}); err != nil {
		var none *store.ConditionError
		if errors.As(err, &none) {
			return store.ErrNotFound // its row is gone
		}
		return err
	}
	l, err := s.Take(ctx, "n1", addr)
	if err != nil {
		return err
	}
	_, err = s.Append(ctx, l, store.Write{Payload: []byte(id), Settle: []store.Settlement{{Submission: id, Outcome: "completed"}}})
	return err
}

// One page after the other is spoiled. What is on it is damaged, and that is said.
// Everything else goes on: above all, it can be written.
func TestSpoiledPageStopsNobodyElse(t *testing.T) {
	whole, h := spoilable(t)
	const page = 8192
	refused, some, all, none := 0, 0, 0, 0
	for at := 0; at < len(whole); at += page {
		if testing.Short() && at/page%4 != 0 {
			continue
		}
		content := bytes.Clone(whole)
		clear(content[at : at+page])
		copy(content[at:], "spoiled")
		d := survey(t, fmt.Sprintf("page %d", at/page+1), content, h)
		hurt := 0
		for addr := range h.journals {
			if d.unreadable[addr] || d.unwritable[addr] {
				hurt++
			}
		}
		switch {
		case d.refused:
			refused++
		case hurt == 0:
			none++
		case hurt == len(h.journals):
			all++
		default:
			some++
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d pages: with %d of them spoiled the file is refused, with %d all instances are hurt, with %d only some, with %d none",
		len(whole)/page, refused, all, some, none)
	if some < 5 {
		t.Errorf("only %d pages belong to some instances: this tests little", some)
	}
}

// Flipped bits are noticed wherever they change a journal.
func TestFlippedBits(t *testing.T) {
	whole, h := spoilable(t)
	rounds := 200
	if testing.Short() {
		rounds = 30
	}
	rnd := rand.New(rand.NewPCG(8, 9))
	noticed := 0
	for range rounds {
		content := bytes.Clone(whole)
		at, n := rnd.IntN(len(whole)), 1+rnd.IntN(8)
		for i := range n {
			content[(at+i)%len(content)] ^= byte(1 << rnd.IntN(8))
		}
		d := survey(t, fmt.Sprintf("%d bytes from %d (page %d)", n, at, at/8192+1), content, h)
		if d.refused || len(d.unwritable) > 0 {
			noticed++
			continue
		}
		for _, bad := range d.unreadable {
			if bad {
				noticed++
				break
			}
		}
	}
	t.Logf("%d of %d were noticed; the others were where nothing is stored, or where nothing was looked up", noticed, rounds)
}

// A file that has lost its end is refused.
func TestTruncatedFile(t *testing.T) {
	whole, h := spoilable(t)
	for _, size := range []int{len(whole) - 1, len(whole) - 8192, len(whole) / 2, 3 * 8192, 8192, 5000, 100, 99, 16} {
		if d := survey(t, fmt.Sprint("cut to ", size), whole[:size], h); !d.refused {
			t.Errorf("a file that was cut to %d bytes is opened", size)
		}
	}
}
