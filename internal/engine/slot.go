package engine

import (
	"container/list"
	"sync"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
)

// A slot is the place in memory of an instance that this process owns: its
// lease, its folded state between drivers, and the intake that its driver has
// not taken yet.
type slot struct {
	addr store.Address
	wake chan struct{} // has a value when inbox has grown

	mu     sync.Mutex
	lease  store.Lease
	driven bool // a driver owns mem
	inbox  []intake
	mem    *memory
	damage error // why the instance was set aside
	doom   error // why what its driver had made cannot be stored

	elem *list.Element // in slots.idle, when it rests there; guarded by slots.mu
	size int           // as counted in slots.size
}

// memory is what a driver knows of its instance. It is nil when it must be read
// from the store.
type memory struct {
	state    *fold.State
	messages []model.Message // the model's form of state.Context, as far as it has been built
	built    int             // how many items of state.Context are in messages
	images   []imageRef      // images of messages whose bytes are in the store
	writers  []string        // the names of the data parts of the latest render
}

func newMemory() *memory {
	return &memory{state: &fold.State{Head: -1}}
}

// intake is a batch that was taken in for the instance. If the batch has no
// records, it only says that the journal reaches to the offset.
type intake struct {
	offset int64
	batch  journal.Batch
}

// occupy makes the caller the slot's driver. It reports false if there is one.
func (s *slot) occupy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.driven {
		return false
	}
	s.driven = true
	return true
}

func (s *slot) vacate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.driven = false
}

// deliver adds intake and wakes the driver.
func (s *slot) deliver(in ...intake) {
	s.mu.Lock()
	if s.damage == nil { // nobody will take it; the journal has it
		s.inbox = append(s.inbox, in...)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take returns the intake that has arrived.
func (s *slot) take() []intake {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.inbox
	s.inbox = nil
	return in
}

// slots holds the slots of all instances that this process owns. Idle ones are
// kept up to a budget and given back in the order in which they were used last.
type slots struct {
	budget int

	mu     sync.Mutex
	byAddr map[store.Address]*slot
	idle   list.List // of *slot, least recently used first
	size   int
}

func (t *slots) init(budget int) {
	t.budget = budget
	t.byAddr = make(map[store.Address]*slot)
	t.idle.Init()
}

// find returns the instance's slot, or nil if this process does not own it.
// The slot is no longer idle: it will not be given back before it rests again.
func (t *slots) find(addr store.Address) *slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byAddr[addr]
	if s != nil {
		t.unrest(s)
	}
	return s
}

// damage returns why the instance was set aside, or nil.
func (t *slots) damage(addr store.Address) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byAddr[addr]
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.damage
}

// adopt returns the slot for a new lease. What an earlier lease remembered is
// forgotten. It returns nil if a driver still runs under an earlier lease: that
// driver finds out at its next append and begins again.
func (t *slots) adopt(l store.Lease) *slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byAddr[l.Address]
	if s == nil {
		s = &slot{addr: l.Address, wake: make(chan struct{}, 1)}
		t.byAddr[l.Address] = s
	}
	t.unrest(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.Epoch > s.lease.Epoch {
		s.lease = l
		if !s.driven {
			s.mem = nil
		}
	}
	return s
}

func (t *slots) unrest(s *slot) {
	if s.elem != nil {
		t.idle.Remove(s.elem)
		s.elem = nil
		t.size -= s.size
	}
}

// rest makes the slot idle, if nothing has arrived for it meanwhile, and
// returns the leases of slots that must be given back to keep the budget. It
// reports false if the driver must go on.
func (t *slots) rest(s *slot, mem *memory) (evicted []store.Lease, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.mu.Lock()
	if len(s.inbox) > 0 {
		s.mu.Unlock()
		return nil, false
	}
	s.driven, s.mem = false, mem
	s.mu.Unlock()
	s.size = slotSize + mem.state.Size
	s.elem = t.idle.PushBack(s)
	t.size += s.size
	for t.size > t.budget && t.idle.Len() > 0 {
		old := t.idle.Front().Value.(*slot)
		t.unrest(old)
		delete(t.byAddr, old.addr)
		evicted = append(evicted, old.lease)
	}
	return evicted, true
}

// slotSize is what an idle slot holds beside its conversation.
const slotSize = 2048

// leases returns the leases of all slots.
func (t *slots) leases() []store.Lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []store.Lease
	for _, s := range t.byAddr {
		s.mu.Lock()
		out = append(out, s.lease)
		s.mu.Unlock()
	}
	return out
}

// drop forgets the slot.
func (t *slots) drop(s *slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unrest(s)
	if t.byAddr[s.addr] == s {
		delete(t.byAddr, s.addr)
	}
}
