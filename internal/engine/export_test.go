package engine

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/store"
)

// reader is an engine that only reads a store.
func reader(s store.Store) *Engine {
	e := &Engine{cfg: Config{Store: s, Log: slog.New(slog.DiscardHandler)}}
	e.checkpoints, _ = s.(store.Checkpointer)
	return e
}

// Hear acts on a signal.
func (e *Engine) Hear(sig store.Signal) { e.sharing.hear(sig) }

// BeginToLeave is the first half of Retire: nothing has been given back yet.
func (e *Engine) BeginToLeave() { e.leaving.Store(true) }

// LoadsAlike fails unless the state of an instance is the same from its newest
// checkpoint as from the start of its journal. It returns the size of the
// checkpoint that was used, or zero.
func LoadsAlike(ctx context.Context, s store.Store, addr store.Address) (saved int, err error) {
	e := reader(s)
	l, err := e.load(ctx, addr)
	if err != nil {
		return 0, err
	}
	got, err := (&fold.Checkpoint{State: l.state}).Encode()
	if err != nil {
		return 0, err
	}
	want, err := StateOf(ctx, s, addr)
	if err != nil {
		return 0, err
	}
	if !bytes.Equal(got, want) {
		return 0, fmt.Errorf("from its checkpoint the state is\n%s\nfrom the start\n%s", got, want)
	}
	return l.saved, nil
}

// StateOf is the stored form of what the whole journal of an instance folds to.
func StateOf(ctx context.Context, s store.Store, addr store.Address) ([]byte, error) {
	l, err := reader(s).replay(ctx, addr)
	if err != nil {
		return nil, err
	}
	return (&fold.Checkpoint{State: l.state}).Encode()
}

// Held is what an idle instance is taken to hold in memory, and a function that
// keeps it there.
func Held(ctx context.Context, s store.Store, addr store.Address, shown bool) (bytes int, keep func(), err error) {
	l, err := reader(s).load(ctx, addr)
	if err != nil {
		return 0, nil, err
	}
	m := &memory{state: l.state}
	if shown {
		(&driver{memory: m}).extend()
	}
	return m.size(), func() { runtime.KeepAlive(m) }, nil
}

// Queued is what those hold in memory that wait for a place, in bytes.
func Queued(e *Engine) (bytes int) {
	for _, s := range e.slots.all() {
		s.mu.Lock()
		if s.queued {
			bytes += s.parked
			for _, in := range s.inbox {
				bytes += in.size
			}
			if s.mem != nil && s.parked == 0 {
				bytes += s.mem.size()
			}
		}
		s.mu.Unlock()
	}
	return bytes
}
