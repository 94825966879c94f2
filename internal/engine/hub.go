package engine

import (
	"container/list"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/flue-go/flue/internal/project"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/wire"
)

// A hub keeps the newest batches of recently active instances in the form that
// readers are sent, and tells waiting readers when there are more. However many
// readers an instance has, a batch is projected and encoded once.
//
// It is a cache: a reader that needs what it does not have reads the store. What
// it has of an instance is true, but it may not be all: a batch may be stored
// whose append was reported as failed, and what is published early may come late.
// So that a tail is complete is known only of one that somebody waits for, and
// only from when the store was asked after the waiting had begun; see [hub.enter].
// Of a store that other processes write to, it holds only as long as somebody waits:
// then signals are heeded, and the store is asked from time to time.
type hub struct {
	budget int  // bytes
	shared bool // other processes may write to the store

	mu    sync.Mutex
	tails map[store.Address]*tail
	used  list.List // of *tail, least recently used first
	size  int
}

// tailBytes bounds what the hub keeps, over all instances.
const tailBytes = 4 << 20

// tailBatches bounds the batches kept of one instance.
const tailBatches = 64

// A tail is the end of one instance's journal.
type tail struct {
	addr        store.Address
	incarnation string           // empty while it is not known
	head        int64            // an offset that the journal has reached; -1 if none is known
	whole       bool             // the journal reaches no further, or the hub will be told
	doubts      int              // how often it was said that it may reach further
	chunks      map[int64][]byte // by offset: the batch's chunks, comma-separated JSON
	low         int64            // no offset below it is in chunks
	grown       chan struct{}    // closed and replaced when readers should look
	waiting     int              // readers that wait or hold the tail
	left        time.Time        // when a reader last waited
	touched     time.Time        // when it was last said that a reader elsewhere waits
	told        time.Time        // when the owner elsewhere was last told of a reader here
	moved       time.Time        // when the instance was last said to have grown elsewhere
	elem        *list.Element
	size        int
}

// publish adds a batch. Batches of one instance may come in any order.
func (h *hub) publish(addr store.Address, incarnation string, offset int64, chunks []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tail(addr)
	if t.incarnation == "" {
		t.incarnation = incarnation
	}
	if t.incarnation != incarnation {
		return
	}
	if t.low < 0 {
		t.low = offset
	}
	if _, ok := t.chunks[offset]; !ok && offset >= t.low {
		t.chunks[offset] = chunks
		h.grow(t, len(chunks)+tailOverhead)
	}
	for len(t.chunks) > tailBatches {
		if old, ok := t.chunks[t.low]; ok {
			delete(t.chunks, t.low)
			h.grow(t, -len(old)-tailOverhead)
		}
		t.low++
	}
	t.reach(offset)
	h.shrink()
}

// reach notes that the journal has come to the offset, and wakes who waits.
func (t *tail) reach(offset int64) {
	if offset > t.head {
		t.head = offset
		t.wake()
	}
}

// wake makes all who wait look.
func (t *tail) wake() {
	close(t.grown)
	t.grown = make(chan struct{})
}

const tailOverhead = 64

// publishKnown is publish for a writer that need not know the incarnation: the
// batch is added only if the hub has the instance's tail.
func (h *hub) publishKnown(addr store.Address, incarnation string, offset int64, b journal.Batch) {
	if incarnation == "" {
		if incarnation = h.incarnation(addr); incarnation == "" {
			h.forget(addr) // who waits may have asked the store before it had the batch
			return
		}
	}
	h.publish(addr, incarnation, offset, encodeChunks(project.Chunks(project.ConversationID(incarnation), offset, b)))
}

// incarnation returns that of the instance's tail, or nothing.
func (h *hub) incarnation(addr store.Address) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.tails[addr]; t != nil {
		return t.incarnation
	}
	return ""
}

func encodeChunks(chunks []wire.Chunk) []byte {
	var out []byte
	for i := range chunks {
		data, err := encodeChunk(&chunks[i])
		if err != nil {
			continue // raw JSON that is not JSON, which Encode has refused before
		}
		if len(out) > 0 {
			out = append(out, ',')
		}
		out = append(out, data...)
	}
	return out
}

// encodeChunk encodes a change: as lenient as the journal, so that readers miss
// nothing that it keeps, and to the same bytes for the same change, whoever asks.
func encodeChunk(c *wire.Chunk) ([]byte, error) {
	return json.Marshal(c, json.Deterministic(true), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
}

// tail returns the instance's tail, making one of which nothing is known. The hub
// must be locked.
func (h *hub) tail(addr store.Address) *tail {
	t := h.tails[addr]
	if t == nil {
		if h.tails == nil {
			h.tails = make(map[store.Address]*tail)
		}
		t = &tail{addr: addr, head: -1, low: -1, chunks: make(map[int64][]byte), grown: make(chan struct{})}
		t.elem = h.used.PushBack(t)
		h.tails[addr] = t
		h.grow(t, 256)
		return t
	}
	h.used.MoveToBack(t.elem)
	return t
}

func (h *hub) grow(t *tail, n int) {
	t.size += n
	h.size += n
}

// shrink drops the tails that were not used for longest and that nobody waits
// for.
func (h *hub) shrink() {
	for el := h.used.Front(); el != nil && h.size > h.budget; {
		t := el.Value.(*tail)
		el = el.Next()
		if t.waiting == 0 {
			h.drop(t)
		}
	}
}

func (h *hub) drop(t *tail) {
	h.used.Remove(t.elem)
	delete(h.tails, t.addr)
	h.size -= t.size
}

// poke wakes those who wait for the instance, though nothing has come.
func (h *hub) poke(addr store.Address) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.tails[addr]; t != nil {
		t.wake()
	}
}

// doubt notes that the instance's journal may have grown, or may still grow, by a
// batch that nobody publishes. Whoever wants to know asks the store.
func (h *hub) doubt(addr store.Address) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.tails[addr]; t != nil {
		t.whole = false
		t.doubts++
	}
}

// forget is doubt for a moment from which on the store has the answer, and makes
// those who wait ask it.
func (h *hub) forget(addr store.Address) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.tails[addr]; t != nil {
		t.whole = false
		t.doubts++
		t.wake()
	}
}

// watched reports whether somebody is reading the instance live.
func (h *hub) watched(addr store.Address) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tails[addr]
	return t != nil && (t.followed() || time.Since(t.touched) < watchMemory)
}

// followed reports whether a reader waits here, or is away for a moment.
func (t *tail) followed() bool { return t.waiting > 0 || time.Since(t.left) < watchMemory }

// lasts reports whether the tail is whole, and still will be a moment later. The hub
// must be locked.
func (h *hub) lasts(t *tail) bool { return t.whole && (!h.shared || t.followed()) }

// touch notes that somebody reads the instance live in another process.
func (h *hub) touch(addr store.Address) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tail(addr).touched = time.Now()
}

// tellAgain reports whether the owner elsewhere should be told now that somebody
// waits here, and counts it as told if so.
func (h *hub) tellAgain(addr store.Address) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, now := h.tails[addr], time.Now()
	if t == nil || !t.followed() || now.Sub(t.told) < watchEvery*9/10 {
		return false
	}
	t.told = now
	return true
}

// awaited returns the instances that readers wait for.
func (h *hub) awaited() []store.Address {
	h.mu.Lock()
	defer h.mu.Unlock()
	var addrs []store.Address
	for el := h.used.Front(); el != nil; el = el.Next() {
		if t := el.Value.(*tail); t.followed() {
			addrs = append(addrs, t.addr)
		}
	}
	return addrs
}

// behind reports whether somebody waits for the instance and should see what there
// is up to the offset. Otherwise what the hub has is not taken for all there is.
func (h *hub) behind(addr store.Address, offset int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tails[addr]
	if t == nil || t.head >= offset {
		return false
	}
	if !t.followed() {
		t.whole = false
		t.doubts++
		return false
	}
	// Whoever has begun to work on what has been quiet may not know of the readers.
	if now := time.Now(); now.Sub(t.moved) >= watchEvery/2 {
		t.told, t.moved = time.Time{}, now
	} else {
		t.moved = now
	}
	return true
}

// end returns the newest offset that the hub knows of the instance, if somebody
// waits for it.
func (h *hub) end(addr store.Address) (int64, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tails[addr]
	if t == nil || !t.followed() {
		return 0, false
	}
	return t.head, true
}

// reach notes that the journal has come to the offset, and wakes who waits.
func (h *hub) reach(addr store.Address, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.tails[addr]; t != nil {
		t.reach(offset)
	}
}

// watchMemory is how long a reader counts as watching after it last waited: a
// polling reader is away between its requests.
const watchMemory = 3 * time.Second

// A span is a run of a tail.
type span struct {
	incarnation string
	chunks      []byte
	next        int64
	upToDate    bool
}

// since returns up to limit batches after the offset, if the hub has them.
func (h *hub) since(addr store.Address, after int64, limit int) (span, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tails[addr]
	if t == nil || t.incarnation == "" || after > t.head {
		return span{}, false
	}
	h.used.MoveToBack(t.elem)
	s := span{incarnation: t.incarnation, next: after}
	for s.next < t.head && limit > 0 {
		chunks, ok := t.chunks[s.next+1]
		if !ok { // it is too old, or was not told of, or comes out of order
			break
		}
		if len(chunks) > 0 {
			if len(s.chunks) > 0 {
				s.chunks = append(s.chunks, ',')
			}
			s.chunks = append(s.chunks, chunks...)
		}
		s.next++
		limit--
	}
	s.upToDate = s.next == t.head && h.lasts(t)
	return s, s.next > after || s.upToDate
}

// enter begins to wait for the instance. The caller must call leave. The hub may
// know nothing of the instance, or not enough: then the caller asks the store, now
// that nothing is missed any more, and calls confirm.
func (h *hub) enter(addr store.Address) *tail {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tail(addr)
	if t.whole && !h.lasts(t) {
		t.whole = false
		t.doubts++
	}
	t.waiting++
	return t
}

func (h *hub) leave(t *tail) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.waiting--
	t.left = time.Now()
	if t.waiting == 0 && t.incarnation == "" { // there is no such instance
		h.drop(t)
	}
}

// A look is what a waiting reader sees of a tail.
type look struct {
	head   int64
	whole  bool
	doubts int
	grown  <-chan struct{} // closed when it is worth another look
}

func (h *hub) look(t *tail) look {
	h.mu.Lock()
	defer h.mu.Unlock()
	return look{head: t.head, whole: t.whole, doubts: t.doubts, grown: t.grown}
}

// confirm notes what the store says of an instance, if there was no new doubt since
// the look after which it was asked.
func (h *hub) confirm(t *tail, since look, inst store.Instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.incarnation != inst.Incarnation {
		h.grow(t, 256-t.size) // what there is, is of another one
		clear(t.chunks)
		t.incarnation, t.head, t.low = inst.Incarnation, -1, -1
	}
	t.reach(inst.Head)
	if t.doubts == since.doubts {
		t.whole = true
	}
}
