package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// A tardyStore is slow for one instance: with the answer to what was admitted for it,
// and with taking it back.
type tardyStore struct {
	*memstore.Store
	slow            store.Address
	answer, release time.Duration // how long they take
	asked, back     atomic.Int32  // how often it was given back, and how often that was done
}

func (s *tardyStore) Admit(ctx context.Context, a *store.Admission) (store.Receipt, error) {
	r, err := s.Store.Admit(ctx, a)
	if a.Address == s.slow {
		time.Sleep(s.answer) // simulated
	}
	return r, err
}

func (s *tardyStore) Release(ctx context.Context, leases ...store.Lease) error {
	if len(leases) == 1 && leases[0].Address == s.slow {
		s.asked.Add(1)
		if !pause(ctx, s.release) { // simulated
			return ctx.Err()
		}
		defer s.back.Add(1)
	}
	return s.Store.Release(ctx, leases...)
}

// Close waits for what is given back because it was found out meanwhile that it must be,
// but not for a store that does not answer. Nothing is begun when it has returned.
func TestCloseWaitsForWhatIsAside(t *testing.T) {
	for _, tt := range []struct {
		name            string
		answer, release time.Duration
		work            time.Duration // that Close waits for
		patience        time.Duration // of who closes
		took            time.Duration
		asked, back     int32
	}{
		{"found while work ends", time.Second, time.Minute, 10 * time.Second, time.Hour, 61 * time.Second, 1, 1},
		{"done before the work", time.Second, time.Second, 10 * time.Second, time.Hour, 10 * time.Second, 1, 1},
		{"no answer", time.Second, time.Hour, 10 * time.Second, 20 * time.Second, 22 * time.Second, 1, 0},
		{"found afterwards", time.Minute, 0, 10 * time.Second, time.Hour, 10 * time.Second, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, durable := newWorld(), memstore.New()
				w.node = "a"
				w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
					pause(ctx, tt.work)
					echo(ctx, req, yield)
				}
				slow := &tardyStore{Store: durable.Share(), slow: conversation("slow"), answer: tt.answer, release: tt.release}
				e := w.start(t, slow)
				busy := send(t, e, chat, "busy")
				synctest.Wait()
				answered := make(chan struct{})
				var late string
				go func() { defer close(answered); late = send(t, e, slow.slow, "late") }()
				synctest.Wait()

				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), tt.patience)
				defer cancel()
				if err := e.Close(ctx); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took != tt.took {
					t.Errorf("it was closed after %v, want %v", took, tt.took)
				}
				if asked, back := slow.asked.Load(), slow.back.Load(); asked != tt.asked || back != tt.back {
					t.Errorf("the instance was given back %d times, and it was done %d times, want %d and %d", asked, back, tt.asked, tt.back)
				}
				<-answered
				synctest.Wait()
				if asked := slow.asked.Load(); asked != tt.asked {
					t.Errorf("it was given back after the end, %d times", asked)
				}
				young := newWorld()
				young.node, young.reply = "b", echo
				next := young.start(t, durable.Share())
				defer stop(t, next)
				for addr, id := range map[store.Address]string{chat: busy, slow.slow: late} {
					if got := settled(t, next, addr, id); got != journal.Completed {
						t.Errorf("%s settled %s", addr, got)
					}
				}
			})
		})
	}
}
