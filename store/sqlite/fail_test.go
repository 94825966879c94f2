package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

// refusesWrites checks that nothing can be written any more, but all can be
// read.
func refusesWrites(t *testing.T, s store.Store, l store.Lease) {
	t.Helper()
	before := head(t, s)
	_, admitErr := s.Admit(t.Context(), admission("late"))
	_, appendErr := s.Append(t.Context(), l, store.Write{Payload: []byte("late")})
	_, abortErr := s.Abort(t.Context(), addr, []byte("late"))
	_, takeErr := s.Take(t.Context(), l.Node, addr)
	for call, err := range map[string]error{"Admit": admitErr, "Append": appendErr, "Abort": abortErr, "Take": takeErr} {
		if !errors.Is(err, store.ErrPoisoned) {
			t.Errorf("%s after the failure: error %v, want ErrPoisoned", call, err)
		} else if !strings.Contains(err.Error(), "reopen") {
			t.Errorf("%s does not say what to do: %v", call, err)
		} else if errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s says that the instance is damaged: %v", call, err)
		}
	}
	if after := head(t, s); after != before {
		t.Errorf("head went from %d to %d", before, after)
	}
}

func TestFullDisk(t *testing.T) {
	const writers = 16
	file := filepath.Join(t.TempDir(), "flue.db")
	s := open(t, file, sqlite.Options{})
	admit(t, s, "s1")
	l := take(t, s)
	if err := s.LimitPages(t.Context(), 20); err != nil {
		t.Fatal(err)
	}
	var acked sync.Map
	var wg sync.WaitGroup
	for g := range writers {
		wg.Go(func() {
			for i := 0; ; i++ {
				p := fill(fmt.Sprintf("%d-%d ", g, i), 2000)
				_, err := s.Append(t.Context(), l, store.Write{Payload: p})
				if err == nil {
					acked.Store(string(p), true)
					continue
				}
				if errors.Is(err, store.ErrFenced) || !strings.Contains(err.Error(), "full") {
					t.Errorf("Append: error %v, want one that says that the disk is full", err)
				}
				return
			}
		})
	}
	wg.Wait()
	refusesWrites(t, s, l)
	closeStore(t, s)

	s = open(t, file, sqlite.Options{})
	defer closeStore(t, s)
	found := make(map[string]bool)
	for _, p := range journal(t, s) {
		found[p] = true
	}
	n := 0
	acked.Range(func(p, _ any) bool {
		n++
		if !found[p.(string)] {
			t.Errorf("batch %.10q was acknowledged and is lost", p)
		}
		return true
	})
	if n == 0 || len(found) != n+2 {
		t.Errorf("%d batches were acknowledged, %d are there beside the admission", n, len(found)-2)
	}
	appendTo(t, s, take(t, s), "goes on")
}

func TestFailedCommit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flue.db")
	s := open(t, file, sqlite.Options{})
	admit(t, s, "s1")
	l := take(t, s)
	if err := s.SpoilCommit(t.Context()); err == nil || errors.Is(err, store.ErrPoisoned) {
		t.Fatalf("the spoiled commit: error %v, want its own", err)
	} else if errors.Is(err, store.ErrCorrupt) {
		t.Errorf("the instances of a failed commit are said to be damaged: %v", err)
	}
	refusesWrites(t, s, l)
	closeStore(t, s)

	s = open(t, file, sqlite.Options{})
	defer closeStore(t, s)
	if got := head(t, s); got != 1 {
		t.Errorf("head is %d, want 1", got)
	}
	appendTo(t, s, take(t, s), "goes on")
}

// An owner that gives its instances back leaves nothing in memory.
func TestReleaseLeavesNothing(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "flue.db"), sqlite.Options{})
	defer closeStore(t, s)
	admit(t, s, "s1")
	l := take(t, s)
	if got := s.Owned(); got != 1 {
		t.Errorf("%d instances are owned, want 1", got)
	}
	if err := s.Release(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if got := s.Owned(); got != 0 {
		t.Errorf("%d instances are owned after release, want 0", got)
	}
}

// A forgetful store loses its cache before every write.
type forgetful struct{ *sqlite.Store }

func (f forgetful) Admit(ctx context.Context, a *store.Admission) (store.Receipt, error) {
	if err := f.Forget(ctx); err != nil {
		return store.Receipt{}, err
	}
	return f.Store.Admit(ctx, a)
}

func (f forgetful) Append(ctx context.Context, l store.Lease, w store.Write) (int64, error) {
	if err := f.Forget(ctx); err != nil {
		return 0, err
	}
	return f.Store.Append(ctx, l, w)
}

// What decides on each system whether a commit survives a loss of power is checked
// by name; TestPowerLoss shows what it does.
func TestSync(t *testing.T) {
	for _, tt := range []struct {
		name string
		sync sqlite.Sync
		want map[string]int64
	}{
		{"default", 0, map[string]int64{"synchronous": 2, "fullfsync": 1, "checkpoint_fullfsync": 1}},
		{"normal", sqlite.SyncNormal, map[string]int64{"synchronous": 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t, filepath.Join(t.TempDir(), "flue.db"), sqlite.Options{Sync: tt.sync})
			defer closeStore(t, s)
			for name, want := range tt.want {
				got, err := s.Pragma(t.Context(), name)
				if err != nil || got != want {
					t.Errorf("%s is %d, %v, want %d", name, got, err, want)
				}
			}
		})
	}
}
