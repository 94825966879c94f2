package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// A stumbling program panics once for each message.
type stumbling struct {
	*world
	stumbles atomic.Bool
}

func (p *stumbling) Budget() engine.Budget {
	if p.stumbles.Swap(false) {
		panic("no budget")
	}
	return p.world.Budget()
}

// Faults over messages that have settled since do not count against later ones, nor do
// they make those wait longer, in an instance that never comes to rest.
func TestFaultsDoNotAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &stumbling{world: newWorld()}
		p.reply = echo
		const messages = 2 * 5 // an instance that fails five times in a row is given up
		began := time.Now()
		var e *engine.Engine
		outcomes := make(chan string, messages)
		p.stumbles.Store(true)
		e, err := engine.Open(context.Background(), engine.Config{
			Store: memstore.New(), Programs: map[string]engine.Program{"chat": p}, Models: p.world, Log: testLog(),
			Observe: func(ev engine.Event) { // by the driver, before it comes to rest
				if ev.Type != engine.EventSettled {
					return
				}
				if outcomes <- ev.Outcome; len(outcomes) < messages {
					p.stumbles.Store(true)
					send(t, e, chat, "go on")
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer stop(t, e)
		send(t, e, chat, "go")
		for range messages {
			if got := <-outcomes; got != journal.Completed {
				t.Errorf("settled %s", got)
			}
		}
		within(t, "the whole", began, messages*250*time.Millisecond)
	})
}
