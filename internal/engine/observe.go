package engine

import (
	"context"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flue-go/flue/model"
)

// ObserveOptions says which events an observer gets. The zero value stands for
// those of all instances, without what is told while a model answers.
type ObserveOptions struct {
	// Agent and Instance, if set, are the name of the agent and the id of the
	// instance whose events are wanted.
	Agent, Instance string

	// Deltas asks for text_delta, thinking_delta and toolcall_delta: what a model
	// says, while it says it. They are told before they are durable, so a crash
	// may take back what they told.
	Deltas bool

	// Requests asks for turn_request: what a model is shown, with each text cut to
	// MaxEventText, without the bytes of images, and without its oldest messages
	// if it is larger than 1 MiB.
	Requests bool

	// Buffer is how many events may wait to be taken, of which deltas fill at most
	// half. Default 1024. What comes while it is full is dropped and counted.
	Buffer int
}

const defaultBuffer = 1024

// observers hands events over to those who have subscribed. Telling an event
// takes no longer than putting it into their buffers, whatever they do.
type observers struct {
	list     atomic.Pointer[[]*observer]
	deltas   atomic.Int32 // how many want them
	requests atomic.Int32

	mu     sync.Mutex // guards changes of list
	closed bool
}

// An observer is one subscription.
type observer struct {
	options ObserveOptions
	ready   chan struct{} // has a value when there is something new

	mu      sync.Mutex
	waiting []waitingEvent
	lost    int  // events dropped behind the last one that waits
	closed  bool // nothing more will come
}

// A waitingEvent is an event that an observer has not taken.
type waitingEvent struct {
	Event
	lost int // how many were dropped before it
}

// tell hands an event over.
func (e *Engine) tell(ev Event) {
	var list []*observer
	if p := e.observers.list.Load(); p != nil {
		list = *p
	}
	if e.tap == nil && len(list) == 0 {
		return
	}
	ev.bound()
	if e.tap != nil {
		e.tap(ev)
	}
	for _, o := range list {
		if o.wants(&ev) {
			o.put(ev)
		}
	}
}

func (o *observer) wants(ev *Event) bool {
	switch {
	case o.options.Agent != "" && o.options.Agent != ev.Instance.Agent,
		o.options.Instance != "" && o.options.Instance != ev.Instance.ID:
		return false
	case ev.Type.isDelta():
		return o.options.Deltas
	case ev.Type == EventTurnRequest:
		return o.options.Requests
	}
	return true
}

// put adds an event, or counts it if there is no room.
func (o *observer) put(ev Event) {
	room := o.options.Buffer
	if ev.Type.isDelta() {
		room = (room + 1) / 2
	}
	o.mu.Lock()
	switch {
	case o.closed:
	case len(o.waiting) >= room:
		o.lost++
	default:
		o.waiting = append(o.waiting, waitingEvent{ev, o.lost})
		o.lost = 0
	}
	o.mu.Unlock()
	o.wake()
}

func (o *observer) wake() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// next returns the next event. It reports false when there is none to come, or
// when ctx has ended.
func (o *observer) next(ctx context.Context) (Event, bool) {
	for ctx.Err() == nil {
		ev, ok, closed := o.take()
		if ok || closed {
			return ev, ok
		}
		select {
		case <-o.ready:
		case <-ctx.Done():
		}
	}
	return Event{}, false
}

// take returns what is next, if something is.
func (o *observer) take() (ev Event, ok, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lost := &o.lost
	if len(o.waiting) > 0 {
		first := &o.waiting[0]
		if lost = &first.lost; *lost == 0 {
			ev = first.Event
			*first = waitingEvent{}
			if o.waiting = o.waiting[1:]; len(o.waiting) == 0 {
				o.waiting = nil
			}
			return ev, true, o.closed
		}
	}
	if n := *lost; n > 0 {
		*lost = 0
		return Event{Type: EventDropped, Time: time.Now(), Dropped: n}, true, o.closed
	}
	return Event{}, false, o.closed
}

// close ends the subscription. What waits can still be taken, unless it is to be
// forgotten.
func (o *observer) close(forget bool) {
	o.mu.Lock()
	o.closed = true
	if forget {
		o.waiting, o.lost = nil, 0
	}
	o.mu.Unlock()
	o.wake()
}

// Observe subscribes to what happens from now on. The subscription ends when ctx
// ends, when the loop over the events is left, or when the engine has been closed
// and all is taken. The events of one instance come in order. Only one loop may
// run over them, and once.
//
// However slow the observer is, nothing waits for it: events that do not fit into
// its buffer are dropped, and an event in their place says how many.
func (e *Engine) Observe(ctx context.Context, options ObserveOptions) iter.Seq[Event] {
	if options.Buffer <= 0 {
		options.Buffer = defaultBuffer
	}
	o := &observer{options: options, ready: make(chan struct{}, 1)}
	e.observers.add(o)
	unsubscribe := func() {
		e.observers.remove(o)
		o.close(true)
	}
	stop := context.AfterFunc(ctx, unsubscribe)
	return func(yield func(Event) bool) {
		defer stop()
		defer unsubscribe()
		for {
			ev, ok := o.next(ctx)
			if !ok || !yield(ev) {
				return
			}
		}
	}
}

func (t *observers) add(o *observer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		o.close(false)
		return
	}
	t.set(append(slices.Clip(t.current()), o))
	t.count(o, 1)
}

func (t *observers) remove(o *observer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.current(), o); i >= 0 {
		t.set(slices.Delete(slices.Clone(t.current()), i, i+1))
		t.count(o, -1)
	}
}

// finish ends all subscriptions: what has been told can still be taken.
func (t *observers) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, o := range t.current() {
		o.close(false)
		t.count(o, -1)
	}
	t.set(nil)
}

func (t *observers) current() []*observer {
	if p := t.list.Load(); p != nil {
		return *p
	}
	return nil
}

// set replaces the list, which readers may hold.
func (t *observers) set(list []*observer) { t.list.Store(&list) }

func (t *observers) count(o *observer, by int32) {
	if o.options.Deltas {
		t.deltas.Add(by)
	}
	if o.options.Requests {
		t.requests.Add(by)
	}
}

// maxShownRequest bounds the texts of the messages of a turn_request, in bytes.
const maxShownRequest = 1 << 20

// shown is a request as observers see it, and how many of its messages are left
// out. It shares no memory that anybody changes.
func shown(req *model.Request) (out *model.Request, omitted int) {
	out = &model.Request{
		Model: req.Model, System: head(req.System, MaxEventText), Thinking: req.Thinking, MaxOutput: req.MaxOutput, Tools: slices.Clone(req.Tools), ToolsOff: req.ToolsOff,
	}
	size := 0
	first := len(req.Messages)
	for ; first > 0; first-- {
		for _, b := range req.Messages[first-1].Blocks {
			size += min(len(b.Text), MaxEventText) + min(len(b.Arguments), MaxEventText)
		}
		if size > maxShownRequest {
			break
		}
	}
	for _, m := range req.Messages[first:] {
		m.Blocks = slices.Clone(m.Blocks)
		for i := range m.Blocks {
			b := &m.Blocks[i]
			b.Text, b.Arguments = head(b.Text, MaxEventText), head(b.Arguments, MaxEventText)
			b.Data, b.Opaque = nil, nil
		}
		out.Messages = append(out.Messages, m)
	}
	return out, first
}

type tapKey struct{}

// WithTap returns a context with which Open tells fn every event in the moment
// in which it is told, on the goroutine that does the work. It is for tests, to
// which it matters what had happened when something else did: fn must not block.
func WithTap(ctx context.Context, fn func(Event)) context.Context {
	return context.WithValue(ctx, tapKey{}, fn)
}

// tapOf returns the tap of the context.
func tapOf(ctx context.Context) func(Event) {
	fn, _ := ctx.Value(tapKey{}).(func(Event))
	return fn
}
