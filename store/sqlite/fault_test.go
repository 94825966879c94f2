package sqlite_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

// A fault makes the n-th of the events that it is about fail, and all after it
// if it stays.
type fault struct {
	name string
	kind kind
	file string
	code int32
}

var faults = []fault{
	{"a write to the log fails", onWrite, "flue.db-wal", sqlite3.SQLITE_IOERR_WRITE},
	{"no room for the log", onWrite, "flue.db-wal", sqlite3.SQLITE_FULL},
	{"a sync of the log fails", onSync, "flue.db-wal", sqlite3.SQLITE_IOERR_FSYNC},
	{"a write to the file fails", onWrite, "flue.db", sqlite3.SQLITE_IOERR_WRITE},
	{"no room for the file", onWrite, "flue.db", sqlite3.SQLITE_FULL},
	{"a sync of the file fails", onSync, "flue.db", sqlite3.SQLITE_IOERR_FSYNC},
	{"a cut of the log fails", onTruncate, "flue.db-wal", sqlite3.SQLITE_IOERR_TRUNCATE},
	{"a read of the file fails", onRead, "flue.db", sqlite3.SQLITE_IOERR_READ},
	{"a read of the log fails", onRead, "flue.db-wal", sqlite3.SQLITE_IOERR_READ},
}

// on returns what makes a disk fail so, from the n-th time on.
func (f fault) on(n int, stays bool, hit *atomic.Bool) func(event) int32 {
	return func(e event) int32 {
		if e.kind != f.kind || e.file != f.file {
			return 0
		}
		if n--; n > 0 || n < 0 && !stays {
			return 0
		}
		hit.Store(true)
		return f.code
	}
}

// Whatever goes wrong with the disk, and whenever: nothing is acknowledged after
// a write that failed in its commit, and nothing that was acknowledged is lost,
// neither to a process that opens the store next, nor to a loss of power before
// or after that.
func TestDiskFaults(t *testing.T) {
	for _, f := range faults {
		for _, stays := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stays=%v", f.name, stays), func(t *testing.T) {
				hits, runs := 0, 3
				if testing.Short() {
					runs = 1
				}
				for seed := range uint64(runs) {
					if faulty(t, f, stays, seed) {
						hits++
					}
					if t.Failed() {
						t.Fatalf("with seed %d", seed)
					}
				}
				if hits == 0 && !testing.Short() {
					t.Error("the fault never happened")
				}
			})
		}
	}
}

func faulty(t *testing.T, f fault, stays bool, seed uint64) (hit bool) {
	rnd := rand.New(rand.NewPCG(seed, 3))
	dir := memoryDir(t)
	file := filepath.Join(dir, "flue.db")
	d := newDisk(t, dir)
	defer d.eject()
	h := &history{disk: d}
	s := open(t, file, sqlite.Options{})
	if err := s.Exec(ctx, "PRAGMA wal_autocheckpoint = 20", "PRAGMA cache_size = 10", "PRAGMA journal_size_limit = 50000"); err != nil {
		t.Fatal(err)
	}
	if err := s.Renew(ctx, "n1", time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := h.together(s, seed, "before", 3, 2); err != nil {
		t.Fatal(err)
	}

	var happened atomic.Bool
	n := 40
	if f.kind == onTruncate || f.file == "flue.db" {
		n = 4
	}
	d.setFail(f.on(1+rnd.IntN(n), stays, &happened))
	first := h.untilFailure(t, s, seed)
	if first != nil {
		afterFailure(t, s, h, f, stays, first)
	}
	d.setFail(nil)
	if !happened.Load() {
		closeStore(t, s)
		return false
	}

	// What the next process finds is in the log for all the later ones.
	revive := d.crash()
	_ = s.Close() // it may well fail
	revive()
	s = open(t, file, sqlite.Options{})
	err := h.learn(s)
	if err == nil {
		err = h.check(s, h.acks)
	}
	if err != nil {
		t.Errorf("after the failure %v, the next process: %v", first, err)
	}
	if err := s.Renew(ctx, "n1", time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.together(s, seed, "after", 3, 1), h.learn(s)); err != nil {
		t.Errorf("writing on: %v", err)
	}
	closeStore(t, s)
	every := 60
	if testing.Short() {
		every = 300
	}
	if err := newCutter(t).cut(h, seed, every, 1, nil); err != nil {
		t.Errorf("after the failure %v: %v", first, err)
	}
	return true
}

// untilFailure has several instances work until something fails, and returns
// what failed first.
func (h *history) untilFailure(t *testing.T, s *sqlite.Store, seed uint64) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	var poisoned atomic.Bool
	for g := range 3 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(g)))
			for i := range 8 {
				late := poisoned.Load()
				err := h.work(s, rnd, instance(g), fmt.Sprintf("faulty-%d-%d", g, i), 1)
				if late && err == nil {
					t.Error("a submission was acknowledged after the store had begun to refuse them")
				}
				if errors.Is(err, store.ErrPoisoned) {
					poisoned.Store(true)
				}
				if err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs { // all members of its group have the first one
		if !errors.Is(err, store.ErrPoisoned) {
			return err
		}
	}
	if len(errs) > 0 {
		t.Errorf("no write failed for its own reason, but there was %v", errs[0])
	}
	return nil
}

// afterFailure checks that a store whose disk failed accepts nothing, and that
// what it says when it is read is true.
func afterFailure(t *testing.T, s *sqlite.Store, h *history, f fault, stays bool, first error) {
	t.Helper()
	if want := map[bool]error{true: sqlite.ErrFull, false: sqlite.ErrDisk}[f.code == sqlite3.SQLITE_FULL]; !errors.Is(first, want) {
		t.Errorf("a write failed with %v, want %v", first, want)
	}
	_, err := s.Admit(ctx, admission("late"))
	switch {
	case f.kind == onRead && errors.Is(err, sqlite.ErrDisk) && !errors.Is(err, store.ErrPoisoned):
		// Nothing is in doubt after a read.
	case f.kind == onRead && err == nil && !stays:
		h.mu.Lock()
		h.subs = append(h.subs, submission{addr: addr, row: store.Submission{ID: "late"}})
		h.mu.Unlock()
	case !errors.Is(err, store.ErrPoisoned) || !strings.Contains(err.Error(), "reopen"):
		t.Errorf("a write after %v: error %v, want ErrPoisoned", first, err)
	}
	need := make(map[store.Address]int64)
	for _, a := range h.acks {
		need[a.addr] = max(need[a.addr], a.offset)
	}
	for addr, least := range need {
		bs, in, err := batches(s, addr)
		if f.kind == onRead && errors.Is(err, sqlite.ErrDisk) {
			continue
		}
		if err != nil || in.Head < least || int64(len(bs)) <= least {
			t.Errorf("reading %v after %v: head %d, %d batches, error %v; offset %d was acknowledged", addr, first, in.Head, len(bs), err, least)
		}
	}
}
