package postgres

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/flue-go/flue/store"
)

// Bounds of a group. They keep the wait of its first member short; whatever does
// not fit is first in the next one.
const (
	maxGroup      = 512
	maxGroupBytes = 16 << 20
)

// An op is one append that waits for its turn, and then for its verdict.
type op struct {
	lease store.Lease
	write *store.Write
	size  int // of what it writes, about

	state  atomic.Int32
	id     int64 // of the instance
	offset int64
	err    error
	busy   bool // the row was locked: the caller has to wait for it alone
	done   chan struct{}
}

// An op is waiting until either a writer takes it or its caller gives up.
const (
	waiting int32 = iota
	taken
	abandoned
)

// A queue holds the ops that wait, in the order of arrival.
type queue struct {
	mu      sync.Mutex
	changed sync.Cond // something may be takeable, or the queue is closed
	ops     []*op
	flying  map[store.Address]struct{} // instances with an op in a group that is not done
	closed  bool
}

func (q *queue) init() {
	q.changed.L = &q.mu
	q.flying = make(map[store.Address]struct{})
}

// push adds o. The queue must not be closed.
func (q *queue) push(o *op) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ops = append(q.ops, o)
	q.changed.Signal()
}

// close makes next return nothing once all ops are taken.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}

// next waits for ops and returns the next group of them in group's memory, or
// nothing when the queue is closed and empty. An instance has at most one op in
// all groups that are not done, so that its appends are made in their order.
func (q *queue) next(group []*op) []*op {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if group = q.take(group[:0]); len(group) > 0 {
			if len(q.ops) > 0 {
				q.changed.Signal() // for another writer
			}
			return group
		}
		if q.closed && len(q.ops) == 0 {
			return nil
		}
		q.changed.Wait()
	}
}

func (q *queue) take(group []*op) []*op {
	size := 0
	left := q.ops[:0]
	for i, o := range q.ops {
		if len(group) == maxGroup || len(group) > 0 && size+o.size > maxGroupBytes {
			left = append(left, q.ops[i:]...)
			break
		}
		if _, ok := q.flying[o.lease.Address]; ok {
			left = append(left, o)
			continue
		}
		if o.state.CompareAndSwap(waiting, taken) {
			q.flying[o.lease.Address] = struct{}{}
			group = append(group, o)
			size += o.size
		}
	}
	clear(q.ops[len(left):])
	q.ops = left
	return group
}

// landed ends the flight of a group.
func (q *queue) landed(group []*op) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, o := range group {
		delete(q.flying, o.lease.Address)
	}
	if len(q.ops) > 0 || q.closed {
		q.changed.Broadcast()
	}
}

// submit has a writer do an op and waits for its verdict. If ctx ends before a
// writer takes the op, it is not done.
func (s *Store) submit(ctx context.Context, o *op) error {
	o.done = make(chan struct{})
	s.queue.push(o)
	select {
	case <-o.done:
	case <-ctx.Done():
		if o.state.CompareAndSwap(waiting, abandoned) {
			return ctx.Err()
		}
		<-o.done
	}
	return o.err
}
