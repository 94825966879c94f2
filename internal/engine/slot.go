package engine

import (
	"container/list"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
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
	term   *term // in which the lease was got; nil if there is none yet
	driven bool  // a driver owns mem
	inbox  []intake
	mem    *memory
	damage error // why the instance was set aside
	aside  int64 // how far its journal had been read then; -1 if that is not known
	doom   error // why what its driver had made cannot be stored
	paused *paused

	waiter waiter // of the slot, in the line
	queued bool   // it waits for a place
	urgent bool   // something has come that waits for no place
	astray bool   // its driver has failed, and reads the journal before it goes on
	parked int    // what it holds meanwhile, as counted in slots.parked

	known  atomic.Int64           // the newest offset that its driver knows of, or will
	motion atomic.Pointer[motion] // when its work last came further
	saving chan struct{}          // holds a value while a checkpoint is being written
	saved  atomic.Int64           // the size of the newest checkpoint, in bytes

	elem *list.Element // in slots.idle, when it rests there; guarded by slots.mu
	size int           // as counted in slots.size

	rested time.Time // when it began to rest; guarded by slots.mu
}

// memory is what a driver knows of its instance. It is nil when it must be read
// from the store.
type memory struct {
	state   *fold.State
	view             // state.Context in the model's form, as far as it has been built
	writers []string // the names of the data parts of the latest render
	backlog backlog
	text    stream

	// What a request holds beside the conversation, in tokens: by the latest
	// render, for what the model was told then, and in the latest request.
	fixedNow  int
	fixedOf   *journal.Resources
	fixedThen int
}

func newMemory() *memory {
	return &memory{state: &fold.State{Head: -1}}
}

// size is roughly how many bytes are held. The texts of the view are those of the
// state.
func (m *memory) size() int {
	size := m.state.Size + len(m.messages)*viewSize
	for _, told := range []*journal.Resources{m.state.Baseline, m.state.Told} {
		if told == nil {
			continue
		}
		for i := range told.Declared {
			r := &told.Declared[i]
			size += viewSize + len(r.Name) + len(r.Description)
		}
	}
	if m.state.Born != nil {
		size += len(m.state.Born.InitialData)
	}
	return size
}

// viewSize is what a message of a view holds beside its text.
const viewSize = 288

// forget drops the model's form of the context, which has changed its beginning.
func (m *memory) forget() { m.view, m.fixedThen = view{}, 0 }

// intake is a batch that was taken in for the instance. If the batch has no
// records, it only says that the journal reaches to the offset.
type intake struct {
	offset int64
	batch  journal.Batch
	size   int // of the batch, as it is stored
}

// owned reports whether the slot has a lease.
func (s *slot) owned() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.Epoch != 0
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
	for _, i := range in {
		s.knows(i.offset)
	}
	if s.queued || s.astray {
		s.lighten()
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// goesAstray says that the driver takes nothing until it has read the journal, which may
// be long.
func (s *slot) goesAstray() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.astray = true
	s.lighten()
}

// maxQueued bounds what the inbox of an instance holds that waits for a place, or whose
// driver has failed, in bytes.
const maxQueued = 16 << 10

// lighten drops what is in the inbox if it is much, but how far the journal
// reaches: the driver reads it when it has a place. The lock is held.
func (s *slot) lighten() {
	size, head := 0, int64(-1)
	for _, in := range s.inbox {
		size += in.size
		head = max(head, in.offset)
	}
	if size > maxQueued || len(s.inbox) > maxQueued/256 {
		s.inbox = append([]intake(nil), intake{offset: head})
	}
}

// knows notes that the driver knows of the offset, or will.
func (s *slot) knows(offset int64) {
	for {
		known := s.known.Load()
		if offset <= known || s.known.CompareAndSwap(known, offset) {
			return
		}
	}
}

// hurry says that something has arrived that waits for no place.
func (s *slot) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.urgent = true
}

// hurries reports whether something has arrived, and was not taken, that waits for no
// place.
func (s *slot) hurries() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.urgent
}

// take returns the intake that has arrived.
func (s *slot) take() []intake {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.inbox
	s.inbox, s.urgent = nil, false
	return in
}

// slots holds the slots of all instances that this process owns. Idle ones are
// kept up to a budget and given back in the order in which they were used last.
type slots struct {
	budget int

	// launch runs drivers for a slot that has got a place.
	launch func(*slot)

	parked  atomic.Int64 // what those hold that wait for a place
	damaged atomic.Int64 // how many are set aside

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

// findBehind is find for a slot that does not know of an offset.
func (t *slots) findBehind(addr store.Address, offset int64) *slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byAddr[addr]
	if s == nil || s.known.Load() >= offset {
		return nil
	}
	t.unrest(s)
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

// peek is find for a caller that does not use the slot.
func (t *slots) peek(addr store.Address) *slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byAddr[addr]
}

// adopt returns the slot for a new lease. What an earlier lease remembered is
// forgotten. A driver may still run under that one: it finds out at its next append
// and begins again.
func (t *slots) adopt(l store.Lease, term *term) *slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.place(l.Address)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.Epoch > s.lease.Epoch {
		s.lease, s.term = l, term
		if s.damage != nil { // somebody else has had it since
			s.damage, s.driven = nil, false
			t.damaged.Add(-1)
		}
		if !s.driven {
			s.mem = nil
		}
	}
	return s
}

// keep returns the instance's slot, which need not have a lease: its driver gets
// one when it may.
func (t *slots) keep(addr store.Address) *slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.place(addr)
}

// place returns the instance's slot, which is not idle. The lock is held.
func (t *slots) place(addr store.Address) *slot {
	s := t.byAddr[addr]
	if s == nil {
		s = &slot{addr: addr, wake: make(chan struct{}, 1), saving: make(chan struct{}, 1)}
		s.waiter = waiter{slot: s, let: func() { t.launch(s) }}
		t.byAddr[addr] = s
	}
	t.unrest(s)
	return s
}

// mend forgets a slot that was set aside. It reports false if it is not any more.
func (t *slots) mend(s *slot) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.byAddr[s.addr] != s || s.damage == nil {
		return false
	}
	delete(t.byAddr, s.addr)
	t.damaged.Add(-1)
	return true
}

// stale forgets the idle slots whose leases are not of the term, and returns
// those. If others share the store it forgets those that were set aside, too:
// another process may have tried them, and they may have been repaired.
func (t *slots) stale(term *term, shared bool) (leases []store.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.byAddr {
		s.mu.Lock()
		if shared && s.damage != nil && s.term != term {
			delete(t.byAddr, s.addr)
			t.damaged.Add(-1)
			leases = append(leases, s.lease)
		}
		s.mu.Unlock()
	}
	for el := t.idle.Front(); el != nil; {
		s := el.Value.(*slot)
		el = el.Next()
		s.mu.Lock()
		lease, old := s.lease, s.term != term
		s.mu.Unlock()
		if old {
			t.remove(s)
			leases = append(leases, lease)
		}
	}
	return leases
}

// occupy makes the caller the slot's driver. It reports false if the slot has one, or
// is gone. A slot can have come to rest since it was found: it is not idle any more.
func (t *slots) occupy(s *slot) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byAddr[s.addr] != s {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.driven {
		return false
	}
	t.unrest(s)
	s.driven = true
	return true
}

// gone reports whether the slot was given up since it was found.
func (t *slots) gone(s *slot) bool { return t.peek(s.addr) != s }

// discard forgets a slot that has no lease. It reports false if it has got one, or if
// something has arrived for it.
func (t *slots) discard(s *slot) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease.Epoch != 0 || len(s.inbox) > 0 {
		return false
	}
	t.remove(s)
	return true
}

// remove forgets the slot, but not another one that has come in its place. The lock is
// held.
func (t *slots) remove(s *slot) {
	t.unrest(s)
	if t.byAddr[s.addr] == s {
		delete(t.byAddr, s.addr)
	}
}

func (t *slots) unrest(s *slot) {
	if s.elem != nil {
		t.idle.Remove(s.elem)
		s.elem = nil
		t.size -= s.size
	}
}

// rest makes the slot idle, if nothing has arrived for it meanwhile, and
// returns the slots that must be given back to keep the budget, which nobody else
// knows any more. That is the slot itself if it was given up before: there may be another
// one in its place. It reports false if the driver must go on.
func (t *slots) rest(s *slot, mem *memory) (evicted []*slot, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.mu.Lock()
	if len(s.inbox) > 0 {
		s.mu.Unlock()
		return nil, false
	}
	s.driven, s.mem = false, mem
	s.mu.Unlock()
	t.unrest(s)
	if t.byAddr[s.addr] != s {
		return []*slot{s}, true
	}
	s.rested = time.Now()
	s.size = slotSize + mem.size()
	s.elem = t.idle.PushBack(s)
	t.size += s.size
	// The last one stays, however large it is: who speaks to it is likely to go on.
	for t.size > t.budget && (t.idle.Len() > 1 || t.budget < 0 && t.idle.Len() > 0) {
		old := t.idle.Front().Value.(*slot)
		t.remove(old)
		evicted = append(evicted, old)
	}
	return evicted, true
}

// park prepares a slot for waiting. What it remembers is kept up to the budget of
// idle ones; beyond that it is read again when the slot has a place.
func (t *slots) park(s *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued = true
	s.lighten()
	if s.mem == nil {
		return
	}
	size := slotSize + s.mem.size()
	if t.parked.Add(int64(size)) > int64(max(t.budget, 0)) {
		t.parked.Add(-int64(size))
		s.mem = nil
		return
	}
	s.parked = size
}

// unpark ends park.
func (t *slots) unpark(s *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued, s.astray = false, false
	if s.parked > 0 {
		t.parked.Add(-int64(s.parked))
		s.parked = 0
	}
}

// takeIdle forgets the idle slots and returns them.
func (t *slots) takeIdle() (idle []*slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for el := t.idle.Front(); el != nil; {
		s := el.Value.(*slot)
		el = el.Next()
		t.remove(s)
		idle = append(idle, s)
	}
	return idle
}

// restless takes out up to limit slots that have been idle since before a time, which
// nobody else knows any more then.
func (t *slots) restless(before time.Time, limit int) (out []*slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(out) < limit && t.idle.Len() > 0 {
		s := t.idle.Front().Value.(*slot)
		if !s.rested.Before(before) {
			break
		}
		t.remove(s)
		out = append(out, s)
	}
	return out
}

// slotSize is what an idle slot holds beside its conversation.
const slotSize = 2048

// all returns all slots.
func (t *slots) all() []*slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.byAddr))
}

// kept returns the slot's lease, and what is known of its instance if no driver
// has that.
func (s *slot) kept() (store.Lease, *memory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease, s.mem
}

// drop forgets the slot.
func (t *slots) drop(s *slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(s)
}
