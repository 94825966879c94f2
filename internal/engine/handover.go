package engine

import (
	"context"
	"time"

	"github.com/flue-go/flue/store"
)

// What this process cannot work on, others that share the store may. So it does not
// take such work on, and what it has taken it gives back: the store is the line, for
// all of them. A store that serves one process has no others, and there the work
// waits in the process's own line.

// parts reports whether this process takes no more work on.
func (e *Engine) parts() bool {
	return e.draining() || e.leaving.Load() && e.shared()
}

// takesOn reports whether this process may take an instance on now.
func (e *Engine) takesOn() bool {
	switch {
	case e.parts():
		return false
	case !e.shared() || e.line.free(1) > 0:
		return true
	}
	e.outside.Store(true)
	return false
}

// claimer is the node to which an admission gives its instance; none if this process
// takes nothing on.
func (e *Engine) claimer() string {
	if e.takesOn() {
		return e.cfg.Node
	}
	return ""
}

// claims returns how many instances to claim at once.
func (e *Engine) claims() int {
	switch {
	case e.parts():
		return 0
	case e.shared():
		return e.line.free(claimPage)
	}
	return claimPage
}

// placeFreed is called when a place has become free that nobody here waits for.
func (e *Engine) placeFreed() {
	if e.outside.Load() {
		nudge(e.scan)
	}
}

// handOff gives an instance back that has work, so that it is claimed by whoever has
// a place for it. The caller has occupied the slot.
func (e *Engine) handOff(s *slot) {
	s.mu.Lock()
	lease, term, m := s.lease, s.term, s.mem
	s.mu.Unlock()
	e.outside.Store(true)
	e.slots.drop(s) // what comes from now on takes it anew
	defer e.follow(s)
	if lease.Epoch == 0 {
		return
	}
	e.lastCheckpoint(s, lease, m)
	err := e.cfg.Store.Release(e.writes, lease)
	if err == nil {
		if e.line.free(1) > 0 { // one has come free meanwhile
			nudge(e.scan)
		}
		return
	}
	e.cfg.Log.Warn("giving an instance back that is not worked on here", "instance", lease.Address.String(), "error", err)
	if e.parts() {
		return
	}
	if s = e.slots.adopt(lease, term); e.slots.occupy(s) {
		e.queue(s)
	}
}

// handOver gives back all instances that wait or are idle, and so can be worked on by
// others at once.
func (e *Engine) handOver(ctx context.Context, last bool) {
	slots := e.line.clear(last)
	for _, s := range slots {
		e.slots.drop(s)
	}
	e.giveBack(ctx, append(slots, e.slots.takeIdle()...))
}

// giveBack gives instances back that nobody here knows any more: nobody can work on them
// until then. Those that are worth a checkpoint come last, and get one if that does not
// take long.
func (e *Engine) giveBack(ctx context.Context, slots []*slot) {
	var leases []store.Lease
	release := func() {
		if len(leases) == 0 {
			return
		}
		if err := e.cfg.Store.Release(e.writes, leases...); err != nil {
			e.cfg.Log.Warn("giving instances back; others can take them when this node's lease has lapsed", "instances", len(leases), "error", err)
		}
		leases = nil
	}
	var worth []*slot
	for _, s := range slots {
		lease, m := s.kept()
		switch {
		case lease.Epoch == 0: // it has been waiting for one
		case e.worthLast(s, m), len(s.saving) > 0: // it would be fenced
			worth = append(worth, s)
		default:
			leases = append(leases, lease)
		}
	}
	release()
	until := time.Now().Add(handOverTime)
	for i, s := range worth {
		lease, m := s.kept()
		if ctx.Err() == nil && time.Now().Before(until) {
			e.lastCheckpoint(s, lease, m)
		}
		if leases = append(leases, lease); len(leases) == handOverPage || i == len(worth)-1 {
			release()
		}
	}
}

const (
	// handOverTime is how long checkpoints are written for while others could take
	// over what they are of.
	handOverTime = 500 * time.Millisecond
	// handOverPage is how many instances with checkpoints are given back at once.
	handOverPage = 16
)

// Retire says that this process will be closed soon. If others share the store it
// takes nothing on any more, and gives back what it does not work on; what it works on
// goes on, message by message until Close.
func (e *Engine) Retire() {
	if !e.leaving.Swap(true) && e.shared() {
		e.begin(func() { e.handOver(e.ctx, false) })
	}
}

// countUnowned counts the instances that wait in a shared store while this process
// has no place for them.
func (e *Engine) countUnowned() {
	if !e.shared() {
		return
	}
	if e.line.free(1) > 0 && !e.outside.Load() || e.parts() || e.tenure.pending() != nil {
		e.pressure.unowned.Store(0)
		return
	}
	limit := max(e.pressure.backlog, e.line.most, 0) + 1
	ctx, cancel := context.WithTimeout(e.ctx, sampling)
	defer cancel()
	n, err := e.unowned(ctx, limit)
	if err != nil { // what was counted last is the best that is known
		return
	}
	e.pressure.unowned.Store(int64(n))
	if n > 0 {
		e.outside.Store(true)
	}
}

// unowned counts what waits in a shared store and this process could work on. What
// waits for the agents of other programs is no backlog of its.
func (e *Engine) unowned(ctx context.Context, limit int) (int, error) {
	agents, some := e.claimable()
	if !some {
		return 0, nil
	}
	return e.sharing.store.Unowned(ctx, limit, agents...)
}

// crowded reports whether others wait for the place of a driver that has come to the
// end of a message: in the line here, or in the store. The store is asked only if there
// was something there that this process had no place for.
func (e *Engine) crowded() bool {
	switch {
	case e.line.length.Load() > 0:
		return true
	case !e.shared():
		return false
	case e.pressure.unowned.Load() > 0:
		return true
	case !e.outside.Swap(false):
		return false
	}
	n, err := e.unowned(e.writes, 1)
	if n > 0 || err != nil {
		e.outside.Store(true)
	}
	return n > 0
}
