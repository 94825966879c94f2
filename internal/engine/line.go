package engine

import (
	"container/list"
	"sync"
	"sync/atomic"
)

// A line hands out the places of this process, in the order in which they were
// asked for. Who works on an instance has one; a model call, a tool and a hook
// belong to the place of their instance.
type line struct {
	most int // places, at least one; negative if there is no bound

	// tight keeps the number of taken places from growing: a place that is given
	// up goes to the next in the line, and otherwise none is given out but a single
	// one, so that the line never stands still.
	tight atomic.Bool

	// freed, if set, is called when a place has become free that nobody in the line
	// has got. No lock is held.
	freed func()

	served atomic.Int64 // places that were given up so far
	length atomic.Int64 // of waiting

	mu      sync.Mutex
	taken   int
	away    int       // who wait without a place and come back to the head of the line
	waiting list.List // of *waiter
	closed  bool
}

// A waiter is who waits for a place, or has one.
type waiter struct {
	slot *slot  // nil for a driver that comes back from a pause
	let  func() // called once when it has got its place, without a lock

	elem *list.Element // in line.waiting; guarded by line.mu
}

// takes reports whether there is a place to give out. The lock is held.
func (l *line) takes() bool {
	switch {
	case l.most >= 0 && l.taken >= l.most:
		return false
	case l.tight.Load():
		return l.taken == 0
	}
	return true
}

// try takes a place, unless there is none or others wait for it.
func (l *line) try() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting.Len() > 0 || !l.takes() {
		return false
	}
	l.taken++
	return true
}

// enter takes a place and reports true, or puts w at the end of the line. It
// reports false without doing either if the line is closed.
func (l *line) enter(w *waiter) (got, stands bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return false, false
	case l.waiting.Len() == 0 && l.takes():
		l.taken++
		return true, false
	}
	w.elem = l.waiting.PushBack(w)
	l.length.Store(int64(l.waiting.Len()))
	return false, true
}

// next takes the head out of the line and gives it a place, which must be there.
// The lock is held.
func (l *line) next() *waiter {
	w := l.waiting.Remove(l.waiting.Front()).(*waiter)
	w.elem = nil
	l.length.Store(int64(l.waiting.Len()))
	return w
}

// leave gives a place up. The next in the line gets it, unless there are more
// places taken than there are.
func (l *line) leave() {
	l.served.Add(1)
	l.mu.Lock()
	l.taken--
	var w *waiter
	if l.waiting.Len() > 0 && (l.most < 0 || l.taken < l.most) {
		l.taken++
		w = l.next()
	}
	freed := w == nil && l.takes()
	l.mu.Unlock()
	switch {
	case w != nil:
		w.let()
	case freed && l.freed != nil:
		l.freed()
	}
}

// pass gives the caller's place up, to the next in the line, and puts w at its end.
// It reports false if nobody waits, and the caller keeps its place.
func (l *line) pass(w *waiter) bool {
	l.mu.Lock()
	if l.closed || l.waiting.Len() == 0 {
		l.mu.Unlock()
		return false
	}
	w.elem = l.waiting.PushBack(w)
	l.length.Store(int64(l.waiting.Len()))
	l.mu.Unlock()
	l.leave()
	return true
}

// force takes a place whether there is one or not.
func (l *line) force() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken++
}

// expedite takes w out of the line and gives it a place whether there is one or
// not. It reports false if w does not stand in the line.
func (l *line) expedite(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.remove(w) {
		return false
	}
	l.taken++
	return true
}

// remove takes w out of the line if it stands there. The lock is held.
func (l *line) remove(w *waiter) bool {
	if w.elem == nil {
		return false
	}
	l.waiting.Remove(w.elem)
	w.elem = nil
	l.length.Store(int64(l.waiting.Len()))
	return true
}

// step gives up a place for a pause. It reports false, and the caller keeps its
// place, if as many pause as there are places: what pauses holds memory, too.
func (l *line) step() bool {
	l.mu.Lock()
	if l.most >= 0 && l.away >= l.most {
		l.mu.Unlock()
		return false
	}
	l.away++
	l.mu.Unlock()
	l.leave()
	return true
}

// back ends a pause: it takes a place and reports true, or puts w at the head of
// the line.
func (l *line) back(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away--
	if l.takes() {
		l.taken++
		return true
	}
	w.elem = l.waiting.PushFront(w)
	l.length.Store(int64(l.waiting.Len()))
	return false
}

// backAtOnce ends a pause with a place, whether there is one or not.
func (l *line) backAtOnce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away--
	l.taken++
}

// settle is backAtOnce for who stands in the line since back.
func (l *line) settle(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.remove(w) {
		l.taken++
	}
}

// counts returns how many places are taken, and how many instances wait for one.
func (l *line) counts() (working, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken, l.waiting.Len()
}

// loosen says whether the number of taken places may grow, and lets those in who
// have a place then.
func (l *line) loosen(free bool) {
	if l.tight.Swap(!free) == !free || !free {
		return
	}
	var in []*waiter
	l.mu.Lock()
	for l.waiting.Len() > 0 && l.takes() {
		l.taken++
		in = append(in, l.next())
	}
	freed := l.waiting.Len() == 0 && l.takes()
	l.mu.Unlock()
	for _, w := range in {
		w.let()
	}
	if freed && l.freed != nil {
		l.freed()
	}
}

// free returns how many places are free and wait for nobody, at most limit.
func (l *line) free(limit int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed || l.waiting.Len() > 0 || !l.takes():
		return 0
	case l.tight.Load():
		return min(1, limit)
	case l.most < 0:
		return limit
	}
	return min(l.most-l.taken, limit)
}

// clear takes all instances out of the line. If last is set none may enter it any
// more.
func (l *line) clear(last bool) []*slot {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = l.closed || last
	var out []*slot
	for el := l.waiting.Front(); el != nil; {
		w := el.Value.(*waiter)
		el = el.Next()
		if w.slot != nil {
			l.remove(w)
			out = append(out, w.slot)
		}
	}
	return out
}
