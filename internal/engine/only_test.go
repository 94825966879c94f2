package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// A process that is meant for some conversations leaves the work of others to
// others, but for what it sends itself.
func TestOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var hang atomic.Bool
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if hang.Load() {
				<-ctx.Done()
				return
			}
			echo(ctx, req, yield)
		}
		s := memstore.New()
		mine, others, sent := chat, store.Address{Agent: "chat", ID: "others"}, store.Address{Agent: "chat", ID: "sent"}
		// Two messages that nobody works on: their process has died.
		first := w.start(t, s)
		hang.Store(true)
		ids := map[store.Address]string{}
		for _, addr := range []store.Address{mine, others} {
			ids[addr] = send(t, first, addr, "one")
		}
		synctest.Wait()
		hang.Store(false)
		s = s.Reopen()
		stop(t, first)

		w.only = []store.Address{mine, {Agent: "chat", ID: "none"}, {Agent: "unknown", ID: "x"}}
		e := w.start(t, s)
		defer stop(t, e)
		if got := settled(t, e, mine, ids[mine]); got != "completed" {
			t.Errorf("its own work settled %s", got)
		}
		time.Sleep(time.Minute)
		if in, err := s.Instance(t.Context(), others); err != nil || in.Unsettled != 1 {
			t.Errorf("the work of others: %+v, %v; want it left alone", in, err)
		}
		if n, err := s.Unowned(t.Context(), 10); err != nil || n != 1 {
			t.Errorf("%d are free, %v", n, err)
		}
		if got := settled(t, e, sent, send(t, e, sent, "two")); got != "completed" {
			t.Errorf("what it has sent settled %s", got)
		}
	})
}
