package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/flue-go/flue/store"
)

// An OverloadError refuses a message because this process has more to do than it
// can take on. Nothing was stored.
type OverloadError struct {
	Reason     string        // OverMemory or OverBacklog
	RetryAfter time.Duration // when there may be room again: 1 s to 30 s
}

// The reasons for which messages are refused.
const (
	OverMemory  = "memory"
	OverBacklog = "backlog"
)

func (e *OverloadError) Error() string {
	return fmt.Sprintf("the engine is overloaded (%s); there may be room in %s", e.Reason, e.RetryAfter)
}

// sampling is how often the load is measured.
const sampling = time.Second

// A pressure says whether there is more to do than this process can take on. What
// is asked of it for each message is what was measured last.
type pressure struct {
	backlog int           // how many instances may wait; negative if there is no bound
	limit   uint64        // bytes; zero if there is no bound
	memory  func() uint64 // bytes in use that a collection cannot free

	unowned atomic.Int64 // instances in a shared store that have work and no owner, as far as they were counted
	rate    atomic.Int64 // places that come free in a thousand seconds
	heavy   atomic.Bool  // memory is above the limit

	reason atomic.Pointer[string] // why messages are refused; nil if they are not
	gauged bool                   // memory is that of this process
}

func (p *pressure) init(cfg *Config) {
	p.backlog = cfg.Backlog
	if p.memory = cfg.Memory; p.memory == nil {
		p.memory, p.gauged = newHeap().used, true
	}
	switch {
	case cfg.MemoryLimit > 0:
		p.limit = uint64(cfg.MemoryLimit)
	case cfg.MemoryLimit == 0:
		if soft := debug.SetMemoryLimit(-1); soft > 0 && soft < math.MaxInt64 {
			p.limit = uint64(soft) / 10 * 9
		}
	}
}

// A heap measures what this process uses of memory.
type heap struct {
	samples []metrics.Sample
}

func newHeap() *heap {
	h := new(heap)
	for _, name := range []string{
		"/memory/classes/total:bytes", "/memory/classes/heap/released:bytes", "/memory/classes/heap/free:bytes",
		"/memory/classes/heap/objects:bytes", "/gc/heap/live:bytes",
	} {
		h.samples = append(h.samples, metrics.Sample{Name: name})
	}
	return h
}

// used returns the bytes that a collection cannot free: what lived at the last one,
// and what the runtime has for itself. What has become garbage since does not count,
// or a limit for the collector would always be reached before a collection.
func (h *heap) used() uint64 {
	metrics.Read(h.samples)
	value := func(i int) uint64 { return h.samples[i].Value.Uint64() }
	total, released, free, objects, live := value(0), value(1), value(2), value(3), value(4)
	garbage := uint64(0)
	if live > 0 && objects > live {
		garbage = objects - live
	}
	return total - min(total, released+free+garbage)
}

// Overload returns why a message is not accepted now, or nil.
func (e *Engine) Overload() *OverloadError {
	reason := e.pressure.judge(e.line.length.Load())
	if e.pressure.changes(reason) {
		e.tellPressure(reason)
	}
	if reason == "" {
		return nil
	}
	return &OverloadError{Reason: reason, RetryAfter: e.pressure.retryAfter(reason, e.line.length.Load())}
}

// judge says for what reason there is too much to do, if there is. What has been
// reached is left again when there is some room.
func (p *pressure) judge(waiting int64) string {
	if p.heavy.Load() {
		return OverMemory
	}
	if p.backlog < 0 {
		return ""
	}
	most := int64(p.backlog)
	if was := p.reason.Load(); was != nil && *was == OverBacklog {
		most = p.room()
	}
	if waiting+p.unowned.Load() >= max(most, 1) {
		return OverBacklog
	}
	return ""
}

// room is below how many waiting instances messages are accepted again.
func (p *pressure) room() int64 { return int64(p.backlog) - int64(p.backlog)/10 }

// changes notes the reason, and reports whether it is another one.
func (p *pressure) changes(reason string) bool {
	old := p.reason.Load()
	if old == nil && reason == "" || old != nil && *old == reason {
		return false
	}
	now := &reason
	if reason == "" {
		now = nil
	}
	return p.reason.CompareAndSwap(old, now) // or somebody else has noticed
}

// retryAfter is when there may be room again: when so many places have come free,
// at the rate of late, that the line is short enough. It is spread, so that those
// who are refused at the same time do not come back at the same time.
func (p *pressure) retryAfter(reason string, waiting int64) time.Duration {
	wait := 5 * time.Second
	if reason == OverBacklog {
		if rate := p.rate.Load(); rate > 0 {
			over := max(waiting+p.unowned.Load()-p.room(), 0) + 1
			wait = time.Duration(min(over*1000/rate, 30)) * time.Second
		} else {
			wait = 15 * time.Second
		}
	}
	wait += time.Duration(rand.Int64N(int64(wait)/2 + int64(time.Second)))
	return min(max(wait, time.Second), 30*time.Second).Round(time.Second)
}

func (e *Engine) tellPressure(reason string) {
	working, waiting := e.line.counts()
	if reason == "" {
		e.cfg.Log.Info("there is room again, and new messages are accepted", "node", e.cfg.Node, "working", working, "waiting", waiting)
		e.tell(Event{Type: EventRelieved, Time: time.Now()})
		return
	}
	e.cfg.Log.Warn("there is more work than this process can take on, and new messages are refused until there is room",
		"node", e.cfg.Node, "reason", reason, "working", working, "waiting", waiting)
	e.tell(Event{Type: EventOverloaded, Time: time.Now(), Reason: reason})
}

// measure measures the load from time to time, until the engine closes.
func (e *Engine) measure() {
	tick := time.NewTicker(sampling)
	defer tick.Stop()
	m := meter{e: e}
	for {
		select {
		case <-e.drain:
			return
		case <-tick.C:
			m.sample()
		}
	}
}

// A meter is what measure knows from one sample to the next.
type meter struct {
	e      *Engine
	served int64
	rate   float64 // of places that come free, in a second; an average that forgets
	full   int     // samples in a row at which all places were taken and somebody waited
	calm   int     // samples in a row at which nobody waited
	told   bool    // that all places are taken
	heavy  int     // samples in a row above the limit
}

func (m *meter) sample() {
	e, p := m.e, &m.e.pressure
	served := e.line.served.Load()
	m.rate += (float64(served-m.served) - m.rate) / 5
	m.served = served
	p.rate.Store(int64(m.rate * 1000))
	if p.limit > 0 {
		m.weigh(p.memory())
	}
	e.countUnowned()
	e.Overload() // to tell of a change though nobody sends anything
	m.tellPlaces()
}

// weigh notes whether too much memory is in use. It is left when there is some
// room again. What is in use is known after a collection, and a process that refuses
// work may come to none by itself for minutes.
func (m *meter) weigh(used uint64) {
	p := &m.e.pressure
	limit := p.limit
	if p.heavy.Load() {
		limit -= limit / 20
	}
	heavy := used > limit
	p.heavy.Store(heavy)
	m.e.line.loosen(!heavy)
	if m.heavy++; !heavy {
		m.heavy = 0
	}
	if p.gauged && m.heavy%collectAfter == collectAfter-1 {
		runtime.GC()
	}
}

// collectAfter is after how many samples above the limit memory is collected.
const collectAfter = 10

// tellPlaces logs that all places are taken and conversations wait, and that none
// does any more, once for each time that lasts.
func (m *meter) tellPlaces() {
	working, waiting := m.e.line.counts()
	if waiting > 0 {
		m.full, m.calm = m.full+1, 0
	} else {
		m.full, m.calm = 0, m.calm+1
	}
	switch {
	case !m.told && m.full >= 2:
		m.told = true
		m.e.cfg.Log.Warn("all places are taken, and conversations wait", "node", m.e.cfg.Node, "working", working, "waiting", waiting)
	case m.told && m.calm >= 10:
		m.told = false
		m.e.cfg.Log.Info("no conversation waits for a place any more", "node", m.e.cfg.Node, "working", working)
	}
}

// replayed returns the receipt of a message that was accepted before, if it was:
// that takes no work. A message that could be none is not looked for.
func (e *Engine) replayed(ctx context.Context, a Admission, req *store.Admission) (store.Receipt, bool, error) {
	if !a.Repeatable {
		return store.Receipt{}, false, nil
	}
	if _, err := e.cfg.Store.Submission(ctx, a.Address, a.Submission); err != nil {
		if errors.Is(err, store.ErrNotFound) {
			err = nil
		}
		return store.Receipt{}, false, err
	}
	// A condition that holds for no instance leaves nothing to do but to compare.
	again := *req
	again.Birth, again.Node, again.Condition = nil, "", store.Condition{UID: noInstance}
	r, err := e.cfg.Store.Admit(ctx, &again)
	var condition *store.ConditionError
	if errors.As(err, &condition) {
		return store.Receipt{}, false, nil
	}
	return r, err == nil, err
}

// noInstance is the uid of no instance.
const noInstance = "none"
