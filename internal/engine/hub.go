package engine

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/flue-go/flue/internal/project"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// A hub keeps the newest batches of recently active instances in the form that
// readers are sent, and tells waiting readers when there are more. However many
// readers an instance has, a batch is projected and encoded once.
//
// It is a cache: a reader that needs what it does not have reads the store.
type hub struct {
	budget int // bytes

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
	incarnation string
	head        int64            // the newest offset known
	chunks      map[int64][]byte // by offset: the batch's chunks, comma-separated JSON
	low         int64            // no offset below it is in chunks
	grown       chan struct{}    // closed and replaced when head grows
	waiting     int              // readers that wait or hold the tail
	watched     time.Time        // when a reader last waited
	elem        *list.Element
	size        int
}

// publish adds a batch. Batches of one instance may come in any order.
func (h *hub) publish(addr store.Address, incarnation string, offset int64, b journal.Batch) {
	chunks := encodeChunks(incarnation, offset, b)
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tail(addr, incarnation, offset-1)
	if t.incarnation != incarnation {
		return
	}
	if _, ok := t.chunks[offset]; !ok {
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
	if offset > t.head {
		t.head = offset
		close(t.grown)
		t.grown = make(chan struct{})
	}
	h.shrink()
}

const tailOverhead = 64

// publishKnown is publish for a writer that need not know the incarnation: the
// batch is added only if the hub has the instance's tail.
func (h *hub) publishKnown(addr store.Address, incarnation string, offset int64, b journal.Batch) {
	if incarnation == "" {
		inst, ok := h.head(addr)
		if !ok {
			return
		}
		incarnation = inst.Incarnation
	}
	h.publish(addr, incarnation, offset, b)
}

func encodeChunks(incarnation string, offset int64, b journal.Batch) []byte {
	// As lenient as the journal, so that readers miss nothing that it keeps, and
	// the same bytes for the same change, whoever asks.
	lenient := json.JoinOptions(json.Deterministic(true), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	var out []byte
	for _, c := range project.Chunks(project.ConversationID(incarnation), offset, b) {
		data, err := json.Marshal(c, lenient)
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

// tail returns the instance's tail, making one that is known to be complete
// after the offset. The hub must be locked.
func (h *hub) tail(addr store.Address, incarnation string, after int64) *tail {
	t := h.tails[addr]
	if t == nil {
		if h.tails == nil {
			h.tails = make(map[store.Address]*tail)
		}
		t = &tail{addr: addr, incarnation: incarnation, head: after, low: after + 1, chunks: make(map[int64][]byte), grown: make(chan struct{})}
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
		if t.waiting > 0 {
			continue
		}
		h.used.Remove(t.elem)
		delete(h.tails, t.addr)
		h.size -= t.size
	}
}

// poke wakes those who wait for the instance, though nothing has come.
func (h *hub) poke(addr store.Address) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.tails[addr]; t != nil {
		close(t.grown)
		t.grown = make(chan struct{})
	}
}

// watched reports whether somebody is reading the instance live.
func (h *hub) watched(addr store.Address) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tails[addr]
	return t != nil && (t.waiting > 0 || time.Since(t.watched) < watchMemory)
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
	if t == nil || after > t.head || (after < t.head && after+1 < t.low) {
		return span{}, false
	}
	h.used.MoveToBack(t.elem)
	s := span{incarnation: t.incarnation, next: after}
	for s.next < t.head && limit > 0 {
		chunks, ok := t.chunks[s.next+1]
		if !ok {
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
	if s.next == after && after < t.head {
		return span{}, false // a batch that was told of out of order is still missing
	}
	s.upToDate = s.next == t.head
	return s, true
}

// wait returns when the instance has a batch after the offset, or has been
// poked. broken is asked after the wait has been registered, so that no poke is
// missed: its error ends the wait, and so does the end of the engine.
func (h *hub) wait(ctx context.Context, ended <-chan struct{}, inst store.Instance, after int64, broken func() error) error {
	h.mu.Lock()
	t := h.tail(inst.Address, inst.Incarnation, inst.Head)
	t.waiting++
	grown := t.grown
	ready := max(t.head, inst.Head) > after
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		t.waiting--
		t.watched = time.Now()
		h.mu.Unlock()
	}()
	if ready {
		return nil
	}
	if err := broken(); err != nil {
		return err
	}
	select {
	case <-grown:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-ended:
		return ErrEnded
	}
}

// head returns what the hub knows of the instance's newest offset.
func (h *hub) head(addr store.Address) (inst store.Instance, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tails[addr]
	if t == nil {
		return store.Instance{}, false
	}
	return store.Instance{Address: addr, Incarnation: t.incarnation, Head: t.head}, true
}
