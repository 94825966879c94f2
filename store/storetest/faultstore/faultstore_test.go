package faultstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

func TestContract(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return faultstore.New(memstore.New()) }, nil)
}

var addr = store.Address{Agent: "clerk", ID: "one"}

func admission(id string) *store.Admission {
	return &store.Admission{Address: addr, Submission: id, Payload: []byte(id), Birth: &store.Birth{UID: "uid"}}
}

func head(t *testing.T, s store.Store) int64 {
	t.Helper()
	in, err := s.Instance(context.Background(), addr)
	if errors.Is(err, store.ErrNotFound) {
		return -1
	}
	if err != nil {
		t.Fatal(err)
	}
	return in.Head
}

func TestModes(t *testing.T) {
	for _, tt := range []struct {
		mode       faultstore.Mode
		atOnce     int64 // the head when the failing call has returned
		afterFlush int64
	}{
		{faultstore.Before, 1, 1},
		{faultstore.After, 2, 2},
		{faultstore.Late, 1, 2},
		{faultstore.Torn, 2, 2},
	} {
		t.Run(string(tt.mode), func(t *testing.T) {
			ctx := t.Context()
			inner := memstore.New()
			s := faultstore.New(inner)
			s.Fail(2, tt.mode)
			if _, err := s.Admit(ctx, admission("s1")); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Admit(ctx, admission("s2")); !errors.Is(err, faultstore.ErrInjected) {
				t.Fatalf("second write: error %v, want ErrInjected", err)
			}
			if got := head(t, inner); got != tt.atOnce {
				t.Errorf("head after the failure is %d, want %d", got, tt.atOnce)
			}
			s.Flush()
			if got := head(t, inner); got != tt.afterFlush {
				t.Errorf("head after Flush is %d, want %d", got, tt.afterFlush)
			}
			if _, err := s.Admit(ctx, admission("s3")); err != nil {
				t.Errorf("third write: %v", err)
			}
		})
	}
}

// Of a torn write there is half of the payload.
func TestTorn(t *testing.T) {
	inner := memstore.New()
	s := faultstore.New(inner)
	s.Fail(1, faultstore.Torn)
	if _, err := s.Admit(t.Context(), admission("payload!")); !errors.Is(err, faultstore.ErrInjected) {
		t.Fatalf("error %v, want ErrInjected", err)
	}
	page, err := inner.Read(t.Context(), addr, -1, 10)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(page.Batches[len(page.Batches)-1].Payload); got != "payl" {
		t.Errorf("the batch is %q", got)
	}
}

func TestCrash(t *testing.T) {
	ctx := t.Context()
	inner := memstore.New()
	s := faultstore.New(inner)
	s.Crash(1, faultstore.After)
	if _, err := s.Admit(ctx, admission("s1")); !errors.Is(err, faultstore.ErrInjected) {
		t.Fatalf("the crashing write: error %v", err)
	}
	if _, err := s.Instance(ctx, addr); !errors.Is(err, faultstore.ErrCrashed) {
		t.Errorf("a read after the crash: error %v, want ErrCrashed", err)
	}
	if _, err := s.Admit(ctx, admission("s2")); !errors.Is(err, faultstore.ErrCrashed) {
		t.Errorf("a write after the crash: error %v, want ErrCrashed", err)
	}
	next := faultstore.New(inner.Reopen())
	if r, err := next.Admit(ctx, admission("s1")); err != nil || !r.Duplicate {
		t.Errorf("replay after the crash = %+v, %v", r, err)
	}
}

func TestCounts(t *testing.T) {
	ctx := t.Context()
	s := faultstore.New(memstore.New())
	if err := s.Renew(ctx, "n1", 1e9); err != nil {
		t.Fatal(err)
	}
	a := admission("s1")
	a.Node = "n1"
	r, err := s.Admit(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	s.Admit(ctx, a) // a replay
	s.Append(ctx, *r.Lease, store.Write{})
	s.Append(ctx, store.Lease{Address: addr}, store.Write{}) // refused
	s.Abort(ctx, addr, nil)
	s.Append(ctx, *r.Lease, store.Write{Settle: []store.Settlement{{Submission: "s1", Outcome: "aborted"}}})
	s.Abort(ctx, addr, nil) // nothing to abort

	if diff := cmp.Diff(faultstore.Counts{Admit: 2, Abort: 2, Append: 3}, s.Calls()); diff != "" {
		t.Errorf("Calls (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(faultstore.Counts{Admit: 1, Abort: 1, Append: 2}, s.Written()); diff != "" {
		t.Errorf("Written (-want +got):\n%s", diff)
	}
}

func TestHook(t *testing.T) {
	ctx := t.Context()
	s := faultstore.New(memstore.New())
	mine := errors.New("mine")
	var points []faultstore.Point
	s.SetHook(func(_ context.Context, p faultstore.Point) error {
		points = append(points, p)
		if p.N == 2 && !p.Done {
			return mine
		}
		return nil
	})
	if _, err := s.Admit(ctx, admission("s1")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Abort(ctx, addr, nil); !errors.Is(err, mine) {
		t.Errorf("Abort: error %v, want the hook's", err)
	}
	want := []faultstore.Point{
		{Op: faultstore.Admit, Address: addr, N: 1},
		{Op: faultstore.Admit, Address: addr, N: 1, Done: true},
		{Op: faultstore.Abort, Address: addr, N: 2},
	}
	if diff := cmp.Diff(want, points); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
	if got := head(t, s); got != 1 {
		t.Errorf("head is %d, want 1: the hook forbade the abort", got)
	}
}

// Upkeep is counted apart, and can fail in the same ways.
func TestUpkeep(t *testing.T) {
	for _, tt := range []struct {
		mode              faultstore.Mode
		atOnce, afterward bool // whether the checkpoint is there
	}{
		{faultstore.Before, false, false},
		{faultstore.After, true, true},
		{faultstore.Late, false, true},
	} {
		t.Run(string(tt.mode), func(t *testing.T) {
			ctx := t.Context()
			inner := memstore.New()
			s := faultstore.New(inner)
			s.CrashUpkeep(1, tt.mode)
			if err := s.Renew(ctx, "n", time.Minute); err != nil {
				t.Fatal(err)
			}
			a := admission("s1")
			a.Node = "n"
			r, err := s.Admit(ctx, a)
			if err != nil {
				t.Fatal(err)
			}
			there := func() bool {
				_, err := inner.Checkpoint(ctx, addr, 1)
				return err == nil
			}
			if err := s.SaveCheckpoint(ctx, *r.Lease, store.Checkpoint{Offset: 1}); !errors.Is(err, faultstore.ErrInjected) {
				t.Errorf("error %v, want ErrInjected", err)
			}
			if got := there(); got != tt.atOnce {
				t.Errorf("the checkpoint is there: %v, want %v", got, tt.atOnce)
			}
			s.Flush()
			if got := there(); got != tt.afterward {
				t.Errorf("the checkpoint is there in the end: %v, want %v", got, tt.afterward)
			}
			if s.Calls().Total() != 1 || s.Upkeep() != 1 || !s.Crashed() {
				t.Errorf("%d writes, upkeep %d, crashed %v", s.Calls().Total(), s.Upkeep(), s.Crashed())
			}
			if err := s.SaveCheckpoint(ctx, *r.Lease, store.Checkpoint{}); !errors.Is(err, faultstore.ErrCrashed) {
				t.Errorf("after the crash: error %v, want ErrCrashed", err)
			}
		})
	}
}

// What the other store does not offer, the wrapper refuses.
func TestUpkeepUnsupported(t *testing.T) {
	s := faultstore.New(struct{ store.Store }{memstore.New()})
	if err := s.SaveCheckpoint(t.Context(), store.Lease{}, store.Checkpoint{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("SaveCheckpoint: error %v, want ErrUnsupported", err)
	}
	if err := s.Prune(t.Context(), store.Lease{}, nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Prune: error %v, want ErrUnsupported", err)
	}
	if _, err := s.Checkpoint(t.Context(), addr, 0); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Checkpoint: error %v, want ErrUnsupported", err)
	}
}
