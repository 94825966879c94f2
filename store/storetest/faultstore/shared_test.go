package faultstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// heard is a signal and when it came.
type heard struct {
	store.Signal
	at time.Duration
}

// listen listens for as long as do runs.
func listen(t *testing.T, s *faultstore.Store, do func()) (signals []heard, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = s.Listen(ctx, func(sig store.Signal) { signals = append(signals, heard{sig, time.Since(began)}) })
	}()
	synctest.Wait()
	do()
	cancel()
	<-done
	return signals, err
}

// grow makes the store send a signal n times, one a second.
func grow(t *testing.T, s store.Store, n int) {
	t.Helper()
	if err := s.Renew(t.Context(), "n1", time.Hour); err != nil {
		t.Fatal(err)
	}
	l, err := s.Take(t.Context(), "n1", addr)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := s.Append(t.Context(), l, store.Write{Payload: []byte("work")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
}

func TestSignals(t *testing.T) {
	const n = 200
	for name, tt := range map[string]struct {
		signals  faultstore.Signals
		min, max int // signals that come
		ordered  bool
	}{
		"as they come": {faultstore.Signals{}, n, n, true},
		"lost":         {faultstore.Signals{Lost: 1}, 0, 0, true},
		"half lost":    {faultstore.Signals{Lost: 0.5}, n / 4, n * 3 / 4, true},
		"twice":        {faultstore.Signals{Twice: 1}, 2 * n, 2 * n, true},
		"late":         {faultstore.Signals{Late: 5 * time.Second}, n, n, false},
		"exactly late": {faultstore.Signals{Late: 5 * time.Second, Exact: true}, n, n, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			inner := memstore.New()
			s := faultstore.New(inner)
			if _, err := s.Admit(t.Context(), admission("s1")); err != nil {
				t.Fatal(err)
			}
			s.SetSignals(tt.signals)
			got, err := listen(t, s, func() {
				grow(t, inner, n)
				time.Sleep(time.Minute)
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: Listen: %v", name, err)
			}
			if len(got) == 0 || got[0].Kind != store.Missed {
				t.Fatalf("%s: nothing was said of signals that may have been missed: %v", name, got)
			}
			got = got[1:]
			if len(got) < tt.min || len(got) > tt.max {
				t.Errorf("%s: %d signals of %d", name, len(got), n)
			}
			byHead := func(a, b heard) int { return int(a.Head - b.Head) }
			if slices.IsSortedFunc(got, byHead) != tt.ordered {
				t.Errorf("%s: in order: %v", name, !tt.ordered)
			}
			if tt.signals.Exact && got[0].at != 5*time.Second {
				t.Errorf("%s: the first one comes after %v", name, got[0].at)
			}
		})
	}
}

func TestNoSignals(t *testing.T) {
	s := faultstore.New(memstore.New())
	s.SetSignals(faultstore.Signals{None: true})
	if err := s.Listen(t.Context(), nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Listen: %v", err)
	}
}

// plain hides what a store has beyond the contract.
type plain struct{ store.Store }

// A store that only one process may open is none that several can share, however it
// is wrapped.
func TestNotShared(t *testing.T) {
	s := faultstore.New(plain{memstore.New()})
	_, heads := s.Heads(t.Context(), nil)
	_, owned := s.Owned(t.Context(), "n1", store.Address{}, 1)
	_, unowned := s.Unowned(t.Context(), 1)
	_, nodes := s.Nodes(t.Context())
	_, work := s.Work(t.Context(), 1)
	for call, err := range map[string]error{
		"Listen": s.Listen(t.Context(), nil), "Watch": s.Watch(t.Context(), nil),
		"Heads": heads, "Owned": owned, "Unowned": unowned, "Nodes": nodes, "Work": work,
	} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// No signal comes while the line is down, and that some were missed is told when it
// is up again. None comes after a crash.
func TestSignalsAndTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		s := faultstore.New(inner)
		if _, err := s.Admit(t.Context(), admission("s1")); err != nil {
			t.Fatal(err)
		}
		got, _ := listen(t, s, func() {
			s.Cut(faultstore.Before, false)
			grow(t, inner, 3)
			s.Mend()
			synctest.Wait()
			grow(t, inner, 2)
			s.CrashNow()
			grow(t, inner, 3)
		})
		var kinds []store.SignalKind
		for _, h := range got {
			kinds = append(kinds, h.Kind)
		}
		if want := []store.SignalKind{store.Missed, store.Missed, store.Grown, store.Grown}; !slices.Equal(kinds, want) {
			t.Errorf("%v, want %v", kinds, want)
		}
	})
}
