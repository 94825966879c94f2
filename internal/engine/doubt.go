package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/flue-go/flue/store"
)

// doubts are the instances for which a write has failed without being refused.
// It may have been done all the same, and then nobody was told of it: the
// supervisor asks the store until it has an answer.
type doubts struct {
	mu    sync.Mutex
	addrs map[store.Address]bool
}

// add notes an instance if err leaves open whether a write was done.
func (d *doubts) add(addr store.Address, err error) {
	if err != nil && !refused(err) {
		d.put(addr)
	}
}

func (d *doubts) put(addr store.Address) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.addrs == nil {
		d.addrs = make(map[store.Address]bool)
	}
	d.addrs[addr] = true
}

// take returns the instances and forgets them.
func (d *doubts) take() map[store.Address]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	addrs := d.addrs
	d.addrs = nil
	return addrs
}

// refused reports whether err says that nothing was written, and that it would
// not be otherwise if one looked.
func refused(err error) bool {
	var condition *store.ConditionError
	for _, known := range []error{
		store.ErrNotFound, store.ErrConflict, store.ErrOwned, store.ErrClosed, store.ErrReadOnly, store.ErrPoisoned, store.ErrInvalid, store.ErrTooLarge,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return errors.As(err, &condition)
}

// ErrUnanswered is the error of a write that the store has neither done nor
// refused, as far as is known: whether it was done is not.
var ErrUnanswered = errors.New("the store has failed, and whether it has done what it was asked is not known")

// unanswered marks an error of a write that was made with ctx, if it leaves open
// whether the write was done.
func unanswered(ctx context.Context, err error) error {
	if err == nil || refused(err) || isDamage(err) || errors.Is(err, store.ErrFormat) || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnanswered, err)
}

// doubters is how many doubts are settled at a time.
const doubters = 8

// settleDoubts takes up instances that have grown without this process being
// told. When the store does not answer for one, the others are left for later: the
// supervisor waits no longer than for a few answers.
func (e *Engine) settleDoubts(ctx context.Context) {
	addrs := make(chan store.Address)
	var silent atomic.Bool
	var wg sync.WaitGroup
	for range doubters {
		wg.Go(func() {
			for addr := range addrs {
				if silent.Load() {
					e.doubts.put(addr)
				} else if err := e.settleDoubt(ctx, addr); err != nil {
					silent.Store(true)
					e.doubts.add(addr, err)
				}
			}
		})
	}
	for addr := range e.doubts.take() {
		addrs <- addr
	}
	close(addrs)
	wg.Wait()
}

func (e *Engine) settleDoubt(ctx context.Context, addr store.Address) error {
	inst, err := e.cfg.Store.Instance(ctx, addr)
	switch {
	case errors.Is(err, store.ErrNotFound), isDamage(err):
		return nil
	case err != nil:
		return err
	case inst.Unsettled > 0 && e.slots.damage(addr) == nil:
		e.route(addr, intake{offset: inst.Head})
	}
	return nil
}
