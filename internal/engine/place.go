package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/flue-go/flue/store"
)

// A place is one of the line that a driver has.
type place struct {
	line *line

	mu   sync.Mutex
	lent int // pieces of the driver's code that wait for other instances
}

// lend gives the place up while code of its driver waits for another instance,
// which may need it: otherwise they could wait for each other. The rest of the
// driver's code goes on.
func (p *place) lend() {
	p.mu.Lock()
	p.lent++
	first := p.lent == 1
	p.mu.Unlock()
	if first {
		p.line.leave()
	}
}

// back ends a lend. The place is there again at once, though there may be one too
// many then: who has waited long for something should not wait again to use it.
func (p *place) back() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lent--; p.lent == 0 {
		p.line.force()
	}
}

// pause waits without a place, and then for one. It reports false if ctx or stop
// ended first; then the place is there at once.
func (p *place) pause(ctx context.Context, stop <-chan struct{}, wait time.Duration) bool {
	a := p.absent(wait)
	defer a.end()
	for {
		select {
		case <-a.timer.C:
			a.ask()
		case <-a.turn:
			return true
		case <-ctx.Done():
			return false
		case <-stop:
			return false
		}
	}
}

// shortPause is how long a pause may last for which a place is not given up.
const shortPause = time.Second

// An absence is a pause of a driver. A long one leaves its place to others: nothing
// is worked on meanwhile. Whoever comes back goes to the head of the line, because
// what it works on has begun.
type absence struct {
	line  *line
	left  bool // the place was given up
	timer *time.Timer
	turn  chan struct{} // closed when the pause is over and the place is there
	asked bool
	self  waiter
}

func (p *place) absent(wait time.Duration) *absence {
	a := &absence{line: p.line, timer: time.NewTimer(wait), turn: make(chan struct{})}
	a.self.let = func() { close(a.turn) }
	a.left = wait >= shortPause && p.line.step()
	return a
}

// ask ends the pause.
func (a *absence) ask() {
	a.asked = true
	if !a.left || a.line.back(&a.self) {
		close(a.turn)
	}
}

// end has the place back, whatever has ended the absence.
func (a *absence) end() {
	a.timer.Stop()
	switch {
	case !a.left:
	case a.asked:
		a.line.settle(&a.self)
	default:
		a.line.backAtOnce()
	}
}

// linger is a pause of a driver that has an active submission: it ends early when
// ctx does, when the engine closes, and when the submission is aborted.
func (d *driver) linger(ctx context.Context, wait time.Duration) error {
	a := d.place.absent(wait)
	defer a.end()
	for !d.state.Active.Aborted {
		select {
		case <-a.timer.C:
			a.ask()
		case <-a.turn:
			return nil
		case <-ctx.Done():
			return nil
		case <-d.e.drain:
			return nil
		case <-d.slot.wake:
			if err := d.intake(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Away says that the work waits for another instance until back is called, so that
// that one can be worked on in its place. It must be called for nothing else.
func (w *Work) Away() (back func()) {
	u := w.unit
	if u == nil || !u.lend() {
		return func() {}
	}
	return sync.OnceFunc(u.takeBack)
}

// lend reports false if the unit is over.
func (u *unit) lend() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return false
	}
	u.lent++
	u.place.lend()
	return true
}

func (u *unit) takeBack() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over { // it was taken back by then
		return
	}
	u.lent--
	u.place.back()
}

// close ends the unit. What it has left behind can write nothing, and has no place
// to give up.
func (u *unit) close() {
	close(u.closed)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = true
	for ; u.lent > 0; u.lent-- {
		u.place.back()
	}
}

// errYielded ends a driver whose instance waits again behind others.
var errYielded = errors.New("others wait for a place")

// makesWay reports whether a response that is complete ends although there are
// messages that could join it, because others wait for a place: a conversation that
// is spoken to all the time would keep its own for ever. The messages begin a
// response of their own, in their turn.
func (d *driver) makesWay() bool {
	d.alone = d.alone || d.e.crowded()
	return d.alone
}

// yield lets others work first. If processes share the store, all that wait for a
// place do so there.
func (d *driver) yield() error {
	if d.e.shared() {
		d.e.outside.Store(true)
		return d.giveUp("")
	}
	if err := d.commit(); err != nil {
		return err
	}
	d.plan, d.current = nil, false
	d.slot.mu.Lock()
	d.slot.mem = d.memory
	d.slot.mu.Unlock()
	return errYielded
}

// enter gives the slot, which has no driver but is occupied, a driver when there
// is a place for one.
func (e *Engine) enter(s *slot) {
	switch {
	case !e.parts() && e.line.try():
		e.launch(s)
	case !e.parts() && (!e.shared() || !s.owned()):
		e.queue(s)
	default:
		e.aside(func() { e.handOff(s) })
	}
}

// queue has the slot wait in this process.
func (e *Engine) queue(s *slot) {
	e.slots.park(s)
	switch got, stands := e.line.enter(&s.waiter); {
	case got, e.hastens(s):
		e.launch(s)
	case !stands: // the engine closes
		e.handOff(s)
	}
}

// launch runs drivers for a slot that has a place.
func (e *Engine) launch(s *slot) {
	if !e.begin(func() { e.drive(s) }) {
		e.line.leave()
		s.vacate()
	}
}

// startAtOnce is start for an instance that is to be aborted: it waits for no place,
// since to abort what waits is little work and makes the line shorter. The slot can be on
// its way into the line, or be about to be given up: whoever does that looks whether it
// hurries when it stands there, or is gone.
func (e *Engine) startAtOnce(s *slot) {
	s.hurry()
	switch {
	case e.parts():
		e.start(s)
	case e.slots.occupy(s):
		e.line.force()
		e.launch(s)
	case e.slots.gone(s):
		e.follow(s)
	case e.line.expedite(&s.waiter):
		e.launch(s)
	}
}

// hastens takes a slot that hurries out of the line, if it stands there, and gives it a
// place.
func (e *Engine) hastens(s *slot) bool { return s.hurries() && e.line.expedite(&s.waiter) }

// follow starts the instance of a slot that hurries and was given up.
func (e *Engine) follow(s *slot) {
	if !s.hurries() || e.parts() {
		return
	}
	if next := e.hold(s.addr); next != nil {
		e.startAtOnce(next)
	}
}

// hold returns the slot of an instance, which is taken if nobody here has it. It returns
// nil if this process cannot own it.
func (e *Engine) hold(addr store.Address) *slot {
	s := e.slots.find(addr)
	if s == nil && !e.parts() {
		s = e.take(addr)
	}
	return s
}
