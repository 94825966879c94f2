package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// A tardy store is late with its answer to the first message: until the instance is
// taken, which is late then.
type tardy struct {
	store.Store
	once  sync.Once
	taken chan struct{} // closed when the instance is about to be taken
	takes int
	fails int // how many takes fail
}

func (s *tardy) Admit(ctx context.Context, a *store.Admission) (store.Receipt, error) {
	r, err := s.Store.Admit(ctx, a)
	if r.Lease != nil && s.taken != nil {
		<-s.taken
	}
	return r, err
}

func (s *tardy) Take(ctx context.Context, node string, addr store.Address) (store.Lease, error) {
	if s.takes++; s.takes <= s.fails {
		return store.Lease{}, refuse()
	}
	if s.taken != nil {
		s.once.Do(func() { close(s.taken) })
		time.Sleep(time.Second)
	}
	return s.Store.Take(ctx, node, addr)
}

// An instance that is found to be owned by nobody here, while the answer that gives it
// to this process is under way, is taken without a call being made twice.
func TestTakeBesideAnAdmission(t *testing.T) {
	ask := func(e *engine.Engine, addr store.Address, id string) {
		_, _ = e.Admit(context.Background(), engine.Admission{
			Address: addr, Submission: id, Identity: []byte(id), Origin: "direct",
			Message: journal.Message{Kind: journal.User, Body: "hello"},
		})
	}
	for name, tt := range map[string]struct {
		shared, only bool
		then         func(*engine.Engine) // what has the instance be taken
	}{
		"by another message":                         {then: func(e *engine.Engine) { ask(e, chat, "second") }},
		"by looking for its work":                    {only: true},
		"of a shared store":                          {shared: true},
		"of a shared store, by looking for its work": {shared: true, only: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.budget.MaxAttempts = 1
				w.reply = func(ctx context.Context, _ *model.Request, yield func(model.Event, error) bool) {
					pause(ctx, 10*time.Second)
					say(yield, "yes")
				}
				if tt.only {
					w.only = []store.Address{chat}
				}
				s := memstore.New()
				late := &tardy{Store: s, taken: make(chan struct{})}
				var st store.Store = late
				if tt.shared {
					st = &tardyShared{Sharer: s, tardy: late}
				}
				e := w.start(t, st)
				defer stop(t, e)
				synctest.Wait()
				go ask(e, chat, "first")
				synctest.Wait()
				if tt.then != nil {
					tt.then(e)
				}
				if got := settled(t, e, chat, "first"); got != journal.Completed {
					t.Error(got)
				}
				if n := w.asked(); n != 1 {
					t.Errorf("the model was asked %d times", n)
				}
				for _, ev := range w.seen() {
					if ev.Type == engine.EventStalled || ev.Type == engine.EventRecovered {
						t.Errorf("%s: %s %v", ev.Type, ev.Reason, ev.Error)
					}
				}
			})
		})
	}
}

// tardyShared is a tardy store that processes share.
type tardyShared struct {
	store.Sharer
	tardy *tardy
}

func (s *tardyShared) Admit(ctx context.Context, a *store.Admission) (store.Receipt, error) {
	return s.tardy.Admit(ctx, a)
}

func (s *tardyShared) Take(ctx context.Context, node string, addr store.Address) (store.Lease, error) {
	return s.tardy.Take(ctx, node, addr)
}

// A message for an instance that this process owns and has forgotten is answered
// although the store fails at first.
func TestTakeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.cache = -1 // nothing stays idle
		w.reply = echo
		e := w.start(t, &keeping{tardy{Store: memstore.New(), fails: 2}})
		defer stop(t, e)
		for range 2 {
			id := send(t, e, chat, "hello")
			time.Sleep(10 * time.Second)
			if sub, err := e.Submission(t.Context(), chat, id); err != nil || sub.Outcome != journal.Completed {
				t.Errorf("%q, %v", sub.Outcome, err)
			}
		}
	})
}

// A keeping store takes nothing back.
type keeping struct{ tardy }

func (*keeping) Release(context.Context, ...store.Lease) error { return refuse() }
