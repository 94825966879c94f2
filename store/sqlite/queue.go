package sqlite

import (
	"context"
	"sync"
	"sync/atomic"
)

// Bounds of a group. They keep the wait of its first member short; whatever
// does not fit is first in the next one.
const (
	maxGroup      = 512
	maxGroupBytes = 16 << 20
)

// An op is one member of a group: a call that waits for its turn to write.
type op struct {
	// do does the op on the writer's goroutine. It first checks everything that
	// can refuse the op, and returns the refusal without having written.
	do   func(*writer) error
	size int // of what it writes, about

	state atomic.Int32
	err   error
	done  chan struct{}
}

// An op is waiting until either the writer takes it or its caller gives up.
const (
	waiting int32 = iota
	taken
	abandoned
)

// A queue holds the ops that wait, in the order of arrival.
type queue struct {
	mu     sync.Mutex
	ops    []*op
	closed bool
	wake   chan struct{} // has a token if there may be something to do
}

// push adds o. The queue must not be closed.
func (q *queue) push(o *op) {
	q.mu.Lock()
	q.ops = append(q.ops, o)
	q.mu.Unlock()
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// close makes next return nothing once all ops are taken.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
}

// next waits for ops and returns the next group of them in group's memory, or
// nothing when the queue is closed.
func (q *queue) next(group []*op) []*op {
	for {
		group = group[:0]
		size := 0
		q.mu.Lock()
		n := 0
		for _, o := range q.ops {
			if len(group) == maxGroup || len(group) > 0 && size+o.size > maxGroupBytes {
				break
			}
			n++
			if o.state.CompareAndSwap(waiting, taken) {
				group = append(group, o)
				size += o.size
			}
		}
		rest := copy(q.ops, q.ops[n:])
		clear(q.ops[rest:])
		q.ops = q.ops[:rest]
		closed := q.closed
		q.mu.Unlock()

		if len(group) > 0 {
			return group
		}
		if closed && rest == 0 {
			return nil
		}
		if rest == 0 {
			<-q.wake
		}
	}
}

// submit has the writer do an op and waits for its verdict. If ctx ends before
// the writer takes the op, it is not done.
func (s *Store) submit(ctx context.Context, size int, do func(*writer) error) error {
	if err := s.enterToWrite(ctx); err != nil {
		return err
	}
	defer s.leave()
	o := &op{do: do, size: size, done: make(chan struct{})}
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
