package engine

import (
	"testing"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

var hubAddr = store.Address{Agent: "chat", ID: "c1"}

func instanceAt(head int64) store.Instance {
	return store.Instance{Address: hubAddr, Incarnation: "inc", Head: head}
}

func (h *hub) expect(t *testing.T, what string, after int64, chunks string, next int64, upToDate, ok bool) {
	t.Helper()
	s, has := h.since(hubAddr, after, 100)
	if string(s.chunks) != chunks || has != ok || has && (s.next != next || s.upToDate != upToDate) {
		t.Errorf("%s: after %d there is %q up to %d, up to date %v, %v; want %q up to %d, %v, %v",
			what, after, s.chunks, s.next, s.upToDate, has, chunks, next, upToDate, ok)
	}
}

// What a reader was told before there was a doubt does not stand after it, however
// late it was looked up.
func TestHubDoubtWhileTheStoreIsAsked(t *testing.T) {
	for name, doubt := range map[string]func(*hub){
		"doubt":  func(h *hub) { h.doubt(hubAddr) },
		"forget": func(h *hub) { h.forget(hubAddr) },
	} {
		h := &hub{budget: tailBytes}
		tail := h.enter(hubAddr)
		before := h.look(tail)
		doubt(h) // the store has been asked and its answer is on the way
		h.confirm(tail, before, instanceAt(5))
		if h.look(tail).whole {
			t.Errorf("%s: the answer from before it counts", name)
		}
		h.expect(t, name, 5, "", 0, false, false)
		h.confirm(tail, h.look(tail), instanceAt(6))
		if now := h.look(tail); !now.whole || now.head != 6 {
			t.Errorf("%s: the answer from after it does not count: %+v", name, now)
		}
		h.expect(t, name, 6, "", 6, true, true)
		h.leave(tail)
	}
}

// A batch is not missed that comes while the store is asked of an instance that the hub
// knows nothing of.
func TestHubPublishWhileTheStoreIsAsked(t *testing.T) {
	h := &hub{budget: tailBytes}
	tail := h.enter(hubAddr)
	before := h.look(tail)
	// The store has answered that the journal reaches to 5, and then takes 6 in.
	h.publishKnown(hubAddr, "", 6, journal.Batch{Records: []journal.Record{&journal.Abort{}}})
	select {
	case <-before.grown:
	default:
		t.Error("nobody was woken")
	}
	h.confirm(tail, before, instanceAt(5))
	if now := h.look(tail); now.whole {
		t.Errorf("the journal is taken to end before it: %+v", now)
	}
	h.expect(t, "before it is asked again", 5, "", 0, false, false)
	h.confirm(tail, h.look(tail), instanceAt(6))
	h.expect(t, "when it was asked again", 6, "", 6, true, true)
	h.leave(tail)
}

// A forgotten tail wakes those who wait, and one that is doubted does not.
func TestHubForgetWakes(t *testing.T) {
	h := &hub{budget: tailBytes}
	tail := h.enter(hubAddr)
	h.confirm(tail, h.look(tail), instanceAt(5))
	grown := h.look(tail).grown
	h.doubt(hubAddr)
	select {
	case <-grown:
		t.Error("a doubt wakes")
	default:
	}
	h.forget(hubAddr)
	select {
	case <-grown:
	default:
		t.Error("nobody was woken")
	}
}

// A batch that is published when others have come and gone says nothing about the
// end of the journal.
func TestHubLatePublish(t *testing.T) {
	h := &hub{budget: tailBytes}
	h.publish(hubAddr, "inc", 5, []byte("five")) // it is at 8 by now, and that was dropped
	h.expect(t, "before it is confirmed", 4, "five", 5, false, true)
	h.expect(t, "before it is confirmed", 5, "", 0, false, false)
	tail := h.enter(hubAddr)
	if h.look(tail).whole {
		t.Error("the tail is taken to be whole")
	}
	h.confirm(tail, h.look(tail), instanceAt(8))
	h.expect(t, "with a gap", 4, "five", 5, false, true)
	h.expect(t, "with a gap", 5, "", 0, false, false)
	for offset, chunks := range map[int64]string{7: "seven", 6: "six", 8: "eight"} {
		h.publish(hubAddr, "inc", offset, []byte(chunks))
	}
	h.expect(t, "whole", 4, "five,six,seven,eight", 8, true, true)
	h.publish(hubAddr, "inc", 3, []byte("three"))
	h.expect(t, "older than what it begins with", 2, "", 0, false, false)
	h.leave(tail)
}

// Tails are dropped to keep the budget, but not while somebody waits; one of an
// instance that is not there goes with the last who waited for it; what another
// incarnation has left does not stay.
func TestHubSize(t *testing.T) {
	h := &hub{budget: 1000}
	tail := h.enter(hubAddr)
	h.leave(tail)
	if len(h.tails) != 0 || h.size != 0 || h.used.Len() != 0 {
		t.Errorf("an instance that is not there has left %d tails of %d bytes", len(h.tails), h.size)
	}
	tail = h.enter(hubAddr)
	h.publish(hubAddr, "inc", 1, make([]byte, 2000))
	if len(h.tails) != 1 {
		t.Error("the tail that somebody waits for was dropped")
	}
	h.confirm(tail, h.look(tail), store.Instance{Address: hubAddr, Incarnation: "other", Head: 0})
	if now := h.look(tail); now.head != 0 || len(tail.chunks) != 0 || h.size != tail.size {
		t.Errorf("of the new incarnation there is %+v with %d chunks; the sizes are %d and %d", now, len(tail.chunks), h.size, tail.size)
	}
	for i := range int64(2 * tailBatches) {
		h.publish(hubAddr, "other", i+1, []byte("x"))
	}
	if len(tail.chunks) != tailBatches {
		t.Errorf("%d batches are kept", len(tail.chunks))
	}
	h.leave(tail)
	h.publish(store.Address{Agent: "chat", ID: "c2"}, "inc", 1, make([]byte, 2000))
	if len(h.tails) != 0 || h.size != 0 {
		t.Errorf("%d tails of %d bytes are left", len(h.tails), h.size)
	}
}
