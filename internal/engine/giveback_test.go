package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// A checkpointHeld store keeps the checkpoint of one instance waiting.
type checkpointHeld struct {
	*memstore.Store
	addr store.Address
	free chan struct{}
}

func (s *checkpointHeld) SaveCheckpoint(ctx context.Context, l store.Lease, c store.Checkpoint) error {
	if l.Address == s.addr {
		<-s.free
	}
	return s.Store.SaveCheckpoint(ctx, l, c)
}

// What a process gives back because it has rested for long does not wait for a checkpoint
// of something else: nobody answers its messages until then.
func TestGivenBackWithoutWaitingForCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const worth, others = 20, 10 // how many are worth a checkpoint, and are not
		last := conversation("worth %d", worth-1)
		s := &checkpointHeld{memstore.New(), last, make(chan struct{})}
		w := newWorld()
		w.reply = echo
		a := w.joinHearing(t, "a", s, hearings[0].signals)
		defer stop(t, a.e)
		free := sync.OnceFunc(func() { close(s.free) })
		defer free()
		for i := range worth {
			for j := range 12 {
				addr := conversation("worth %d", i)
				settled(t, a.e, addr, send(t, a.e, addr, fmt.Sprint("hello ", j)))
			}
		}
		for i := range others {
			addr := conversation("other %d", i)
			settled(t, a.e, addr, send(t, a.e, addr, "hello"))
		}
		owned := func() int {
			t.Helper()
			nodes, err := s.Nodes(t.Context())
			if err != nil || nodes[0].Name != "a" {
				t.Fatal(nodes, err)
			}
			return nodes[0].Owned
		}
		if n := owned(); n != worth+others {
			t.Fatalf("%d instances are owned", n)
		}
		time.Sleep(time.Minute + 30*time.Second) // simulated: they have rested for long
		synctest.Wait()
		if n := owned(); n != worth%16 { // the last page of those that are worth a checkpoint
			t.Errorf("%d are not given back while a checkpoint is waited for", n)
		}
		b := newWorld()
		b.reply, b.node = echo, "b"
		e := b.start(t, s)
		defer stop(t, e)
		addr, began := conversation("other 0"), time.Now()
		if got := settled(t, e, addr, send(t, e, addr, "again")); got != journal.Completed {
			t.Errorf("settled %s", got)
		}
		within(t, "an answer elsewhere", began, time.Second)

		free()
		synctest.Wait()
		if n := owned(); n != 0 {
			t.Errorf("%d are not given back in the end", n)
		}
		for i := range worth {
			saved, err := engine.LoadsAlike(t.Context(), s, conversation("worth %d", i))
			if err != nil || saved == 0 {
				t.Errorf("the checkpoint of number %d has %d bytes: %v", i, saved, err)
			}
		}
	})
}
