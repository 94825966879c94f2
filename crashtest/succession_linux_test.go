package crashtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/flue-go/flue/internal/linear"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// A succession is what a journal tells of the owners of its instance, one after
// the other.
type succession struct {
	reigns []reign
	queue  []queued
}

// A reign is what was appended under one epoch.
type reign struct {
	epoch       int64
	first, last time.Time // appends
	released    bool      // its last append takes an attempt back
	left        int       // what was unsettled after it
}

// queued says how much was unsettled from a time on.
type queued struct {
	at time.Time
	n  int
}

// follow reads a succession. Wrong are epochs that fall, and two nodes under one
// epoch.
func follow(page store.Page) (s succession, wrong []string) {
	open := 0
	nodes := make(map[int64]string)
	for _, b := range page.Batches {
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			return s, append(wrong, fmt.Sprintf("batch %d: %v", b.Offset, err))
		}
		released := false
		for _, r := range batch.Records {
			switch r := r.(type) {
			case *journal.Admitted:
				open++
			case *journal.Settled:
				open--
			case *journal.Release:
				released = true
			case *journal.Attempt:
				if old := nodes[b.Epoch]; old != "" && old != r.Node {
					wrong = append(wrong, fmt.Sprintf("batch %d: %s and %s have the epoch %d", b.Offset, old, r.Node, b.Epoch))
				}
				nodes[b.Epoch] = r.Node
			}
		}
		s.queue = append(s.queue, queued{batch.At, open})
		if b.Epoch == 0 {
			continue
		}
		n := len(s.reigns)
		switch {
		case n > 0 && s.reigns[n-1].epoch == b.Epoch:
			s.reigns[n-1].last, s.reigns[n-1].released, s.reigns[n-1].left = batch.At, released, open
		case n > 0 && s.reigns[n-1].epoch > b.Epoch:
			wrong = append(wrong, fmt.Sprintf("batch %d has the epoch %d after %d", b.Offset, b.Epoch, s.reigns[n-1].epoch))
		default:
			s.reigns = append(s.reigns, reign{b.Epoch, batch.At, batch.At, released, open})
		}
	}
	return s, wrong
}

// shift changes all times.
func (s *succession) shift(by time.Duration) {
	for i := range s.reigns {
		r := &s.reigns[i]
		r.first, r.last = r.first.Add(by), r.last.Add(by)
	}
	for i := range s.queue {
		s.queue[i].at = s.queue[i].at.Add(by)
	}
}

// retime has the times of reigns by what their owners have written down themselves, as
// far as they have: what a process knows of the database's clock is less exact.
func (s *succession) retime(appended map[int64]appends) {
	for i := range s.reigns {
		r := &s.reigns[i]
		if a, ok := appended[r.epoch]; ok {
			r.first, r.last = a.first, a.last
		}
	}
}

// unsettled is how much there was at a time.
func (s *succession) unsettled(at time.Time) int {
	n := 0
	for _, q := range s.queue {
		if q.at.After(at) {
			break
		}
		n = q.n
	}
	return n
}

// after returns the first reign with a higher epoch, or nil.
func (s *succession) after(epoch int64) *reign {
	i := slices.IndexFunc(s.reigns, func(r reign) bool { return r.epoch > epoch })
	if i < 0 {
		return nil
	}
	return &s.reigns[i]
}

// of returns the reign of the epoch, or nil.
func (s *succession) of(epoch int64) *reign {
	i := slices.IndexFunc(s.reigns, func(r reign) bool { return r.epoch == epoch })
	if i < 0 {
		return nil
	}
	return &s.reigns[i]
}

// A takeover is how long work waited from what was done to its owner until another
// one went on with it.
type takeover struct {
	of    store.Address
	how   string
	began time.Time
	took  time.Duration
}

// inOrder is how a takeover came about whose owner gave its work back.
const inOrder = "release"

// inTurn is how one came about whose owner was told to end.
const inTurn = "the signal to end"

// takeovers measures. Work that its owner has gone on with was not taken over. The
// given epochs are those whose owner has given the instance back: one that takes an
// attempt back, because its lease had lapsed, goes on itself.
func (s *succession) takeovers(of store.Address, handovers []handover, given map[int64]bool) (all []takeover) {
	for i, r := range s.reigns {
		if r.released && given[r.epoch] && i+1 < len(s.reigns) && r.left > 0 {
			all = append(all, takeover{of, inOrder, r.last, s.reigns[i+1].first.Sub(r.last)})
		}
	}
	for _, h := range handovers {
		next := s.after(h.Epoch)
		if h.Address != of || next == nil || s.unsettled(h.at) == 0 {
			continue
		}
		old := s.of(h.Epoch)
		switch {
		case old == nil:
		case h.how == inTurn && old.left == 0: // it has come to the end of its work
			continue
		case h.how != inTurn && old.last.After(h.at.Add(100*time.Millisecond)):
			continue
		}
		all = append(all, takeover{of, h.how, h.at, next.first.Sub(h.at)})
	}
	return all
}

// late returns how long after the successor's first append something began that an
// owner has begun, if it did.
func (s *succession) late(node string, at time.Time, owners map[int64]string) (time.Duration, bool) {
	own := int64(0) // the newest epoch of the node that had begun
	for epoch, owner := range owners {
		if r := s.of(epoch); owner == node && epoch > own && (r == nil || !r.first.After(at)) {
			own = epoch
		}
	}
	if next := s.after(own); own > 0 && next != nil && next.first.Before(at) {
		return at.Sub(next.first), true
	}
	return 0, false
}

// owners returns who has taken an instance, by epoch.
func (h *holds) owners(of store.Address) map[int64]string { return h.owner[of.String()] }

// released returns the epochs that were given back, of an instance.
func (h *holds) released(of store.Address) map[int64]bool { return h.given[of.String()] }

// judge judges what replicas have done with ownership.
func (h *holds) judge() (operations int, err error) {
	ops := h.operations()
	return len(ops), linear.Ownership().Check(ops, judgeTime)
}
