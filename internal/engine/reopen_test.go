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

// An outlasting store serves one process, and one engine after another there. It may
// fail meanwhile.
type outlasting struct {
	store.Store
	silent atomic.Bool // reads do not end before their context does
	lapses atomic.Bool // no lease is renewed
}

func (o *outlasting) Read(ctx context.Context, addr store.Address, after int64, limit int) (store.Page, error) {
	if o.silent.Load() {
		<-ctx.Done()
		return store.Page{}, context.Cause(ctx)
	}
	return o.Store.Read(ctx, addr, after, limit)
}

func (o *outlasting) Renew(ctx context.Context, node string, ttl time.Duration) error {
	if o.lapses.Load() {
		return refuse()
	}
	return o.Store.Renew(ctx, node, ttl)
}

// The next engine of a process, on a store that stays open, goes on with what the one
// before it has worked on, whatever had failed when that was closed.
func TestNextEngineGoesOn(t *testing.T) {
	for name, fails := range map[string]func(*outlasting) *atomic.Bool{
		"nothing":                  func(*outlasting) *atomic.Bool { return new(atomic.Bool) },
		"a read does not end":      func(s *outlasting) *atomic.Bool { return &s.silent },
		"the lease is not renewed": func(s *outlasting) *atomic.Bool { return &s.lapses },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(), &outlasting{Store: memstore.New()}
				w.cache, w.every = -1, -1 // the driver reads before it goes on
				w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
					if text, _ := asked(req); text == "long" {
						pause(ctx, time.Minute)
					}
					say(yield, "yes")
				}
				e := w.start(t, s)
				settled(t, e, chat, send(t, e, chat, "first"))
				synctest.Wait()
				fails(s).Store(true)
				id := send(t, e, chat, "long")
				time.Sleep(30 * time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := e.Close(ctx); err != nil {
					t.Error(err)
				}
				fails(s).Store(false)
				e = w.start(t, s)
				defer stop(t, e)
				time.Sleep(2 * time.Minute)
				if sub, err := e.Submission(t.Context(), chat, id); err != nil || sub.Outcome != journal.Completed {
					t.Errorf("%q, %v", sub.Outcome, err)
				}
			})
		})
	}
}
