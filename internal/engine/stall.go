package engine

import (
	"fmt"
	"time"

	"github.com/flue-go/flue/internal/fold"
)

// A motion is what the work on an instance was at when it last came further.
type motion struct {
	at         time.Time
	phase      fold.Phase
	submission string
	turn       string
	told       time.Time // when observers were last told that it stalls
}

// moved notes that the work on the slot has come further.
func (s *slot) moved(st *fold.State) {
	m := &motion{at: time.Now(), phase: st.Phase, turn: st.Response.Turn}
	if st.Active != nil {
		m.submission = st.Active.Submission
	}
	s.motion.Store(m)
}

// pauses says that nothing is to be expected of the work for a while.
func (s *slot) pauses(wait time.Duration) {
	if m := s.motion.Load(); m != nil {
		later := *m
		later.at = time.Now().Add(wait)
		s.motion.Store(&later)
	}
}

// watch tells observers of work that comes no further, again and again as long
// as that lasts: a tool that does not return, a model that goes silent.
func (e *Engine) watch() {
	tick := time.NewTicker(e.cfg.StallAfter / 2)
	defer tick.Stop()
	for {
		select {
		case <-e.drain:
			return
		case <-tick.C:
			for _, s := range e.slots.driven() {
				e.lookAt(s)
			}
		}
	}
}

func (e *Engine) lookAt(s *slot) {
	m := s.motion.Load()
	if m == nil || m.submission == "" {
		return
	}
	since := m.at
	if m.told.After(since) {
		since = m.told
	}
	now := time.Now()
	if now.Sub(since) < e.cfg.StallAfter {
		return
	}
	told := *m
	told.told = now
	if !s.motion.CompareAndSwap(m, &told) { // it moves
		return
	}
	idle := now.Sub(m.at)
	e.cfg.Log.Warn("work on an instance comes no further", "instance", s.addr.String(), "submission", m.submission, "phase", m.phase.String(), "for", idle)
	e.tell(Event{
		Type: EventStalled, Time: now, Instance: s.addr, Submission: m.submission, Turn: m.turn, Took: idle,
		Reason: fmt.Sprintf("nothing has happened for %s in phase %s", idle.Round(time.Second), m.phase),
	})
}

// driven returns the slots that have a driver.
func (t *slots) driven() []*slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*slot
	for _, s := range t.byAddr {
		s.mu.Lock()
		if s.driven {
			out = append(out, s)
		}
		s.mu.Unlock()
	}
	return out
}
