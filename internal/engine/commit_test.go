package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// An interrupting store takes a message in just before an append that settles
// something, and cannot be read when the driver looks for what has come in between.
type interrupting struct {
	store.Store
	t       *testing.T
	on      atomic.Bool
	failing atomic.Bool
}

func (s *interrupting) Append(ctx context.Context, l store.Lease, w store.Write) (int64, error) {
	if len(w.Settle) > 0 && s.on.Swap(false) {
		payload, err := journal.Encode(journal.Batch{At: time.Now(), Records: []journal.Record{
			&journal.Admitted{Submission: "sub_between", Message: journal.Message{Kind: journal.User, Body: "between"}},
		}})
		if err != nil {
			s.t.Error(err)
		}
		_, err = s.Admit(ctx, &store.Admission{Address: l.Address, Submission: "sub_between", Identity: []byte("between"), AcceptedAt: time.Now(), Payload: payload})
		if err != nil {
			s.t.Error(err)
		}
		s.failing.Store(true)
	}
	return s.Store.Append(ctx, l, w)
}

func (s *interrupting) Read(ctx context.Context, addr store.Address, after int64, limit int) (store.Page, error) {
	if limit == 1 && s.failing.Swap(false) {
		return store.Page{}, fmt.Errorf("%w: a test says so", store.ErrUnavailable)
	}
	return s.Store.Read(ctx, addr, after, limit)
}

// What is durable is told, although the driver that has appended it fails then:
// observers hear of every settlement once, and readers need not wait for the next
// driver.
func TestAppendedBeforeAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply, w.every = echo, -1
		s := &interrupting{Store: memstore.New(), t: t}
		e := w.start(t, s)
		defer stop(t, e)
		settled(t, e, chat, send(t, e, chat, "zero"))
		synctest.Wait()
		s.on.Store(true)
		began := time.Now()
		id := send(t, e, chat, "one")
		if got := settled(t, e, chat, id); got != journal.Completed {
			t.Errorf("settled %s", got)
		}
		within(t, "to be told of the settlement", began, 0)
		if got := settled(t, e, chat, "sub_between"); got != journal.Completed {
			t.Errorf("what came in between settled %s", got)
		}
		synctest.Wait()
		told := map[string]int{}
		for _, ev := range w.seen() {
			if ev.Type == engine.EventSettled {
				told[ev.Submission]++
			}
		}
		if told[id] != 1 || told["sub_between"] != 1 || len(told) != 3 {
			t.Errorf("the settlements that were told of: %v", told)
		}
	})
}
