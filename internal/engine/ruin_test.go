package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store/memstore"
)

// A brittle program panics where the engine asks for its budget, which is before
// an attempt is durable.
type brittle struct {
	*world
	broken atomic.Bool
}

func (b *brittle) Budget() engine.Budget {
	if b.broken.Load() {
		panic("no budget")
	}
	return b.world.Budget()
}

// A fault that comes before anything is appended ends the message in the end: no
// attempt and no deadline would.
func TestFaultBeforeTheFirstAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &brittle{world: newWorld()}
		b.reply = echo
		b.broken.Store(true)
		s := memstore.New()
		e, err := engine.Open(context.Background(), engine.Config{
			Store: s, Programs: map[string]engine.Program{"chat": b}, Models: b.world, Observe: b.observe, Log: testLog(),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer stop(t, e)
		if got := settled(t, e, chat, send(t, e, chat, "go")); got != journal.Failed {
			t.Errorf("settled %s", got)
		}
		b.broken.Store(false)
		if got := settled(t, e, chat, send(t, e, chat, "again")); got != journal.Completed {
			t.Errorf("the next message settled %s", got)
		}
	})
}
