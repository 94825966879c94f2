package engine

import (
	"context"
	"errors"

	"github.com/flue-go/flue/store"
)

// search looks for unfinished work that nobody does.
func (e *Engine) search(ctx context.Context) error {
	if e.cfg.Only != nil {
		return e.claimOnly(ctx)
	}
	return e.claim(ctx)
}

// claimOnly is claim for an engine that takes up the work of some instances only.
func (e *Engine) claimOnly(ctx context.Context) error {
	for _, addr := range e.cfg.Only {
		if e.slots.peek(addr) != nil || e.cfg.Programs[addr.Agent] == nil {
			continue
		}
		in, err := e.cfg.Store.Instance(ctx, addr)
		switch {
		case errors.Is(err, store.ErrNotFound), isDamage(err):
			continue
		case err != nil:
			e.ailments.note(err)
			return err
		}
		if in.Unsettled == 0 {
			continue
		}
		if s := e.take(addr); s != nil {
			e.hand(s, intake{offset: in.Head})
		}
	}
	return nil
}
