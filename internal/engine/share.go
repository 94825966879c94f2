package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flue-go/flue/store"
)

// sharing is what an engine does so that other processes can use its store, too.
//
// Everything that it does follows from looking at the store from time to time.
// Signals only say when it is worth to look sooner: the work of this process takes
// intake of others at once, readers here are told of batches that others append,
// and owners elsewhere know that somebody watches, so that they append streamed
// text as often as for a reader of their own.
type sharing struct {
	e     *Engine
	store store.Sharer // nil if no other process can have the store open

	own     errands
	growth  chores // instances that have grown, which readers here wait for
	watches chores // instances of others that readers here wait for
	look    chan struct{}
	deaf    atomic.Bool   // the store sends no signals
	turned  chan struct{} // has a value when deaf has changed

	suspects map[store.Address]suspect // owned by this node, and not known here
	failing  bool
}

// A suspect is an instance that the store says is this node's, and of which this
// process does not know.
type suspect struct {
	epoch int64 // 0 means any
	since time.Time
}

// How often the store is asked for what signals may have missed, and how often if
// it sends none.
const (
	pollEvery     = time.Second
	pollEveryDeaf = 50 * time.Millisecond
)

// listenEvery is how often a store that sends no signals is asked again whether it
// does.
const listenEvery = time.Minute

// fetchers is how many instances are read at a time because they have grown.
const fetchers = 8

// sharerOf returns the store as one that several processes can have open, or nil if
// it is none.
func sharerOf(ctx context.Context, s store.Store) (store.Sharer, error) {
	sharer, ok := s.(store.Sharer)
	if !ok {
		return nil, nil
	}
	_, err := sharer.Heads(ctx, nil)
	if errors.Is(err, errors.ErrUnsupported) { // it wraps one that is none
		return nil, nil
	}
	return sharer, err
}

func (s *sharing) init(e *Engine, st store.Sharer) {
	s.e, s.store, s.look, s.turned = e, st, make(chan struct{}, 1), make(chan struct{}, 1)
	s.growth.init()
	s.watches.init()
}

// shared reports whether other processes may have the store open.
func (e *Engine) shared() bool { return e.sharing.store != nil }

// start begins to work, and returns a function that ends it. That does not wait for
// long for a store that does not answer.
func (s *sharing) start(ctx context.Context) (stop func()) {
	if s.store == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	left := make(chan struct{})
	go func() { defer close(left); s.run(ctx) }()
	return func() {
		cancel()
		grace := time.NewTimer(s.e.cfg.Grace)
		defer grace.Stop()
		select {
		case <-left:
		case <-grace.C:
			s.e.cfg.Log.Warn("the store does not answer what was asked of other processes", "node", s.e.cfg.Node)
		}
	}
}

// run works until ctx ends.
func (s *sharing) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.listen(ctx) })
	wg.Go(func() { s.tellWatched(ctx) })
	wg.Go(func() { s.giveIdleBack(ctx) })
	for range fetchers {
		wg.Go(func() { s.fetch(ctx) })
	}
	s.poll(ctx)
}

// listen hears signals.
func (s *sharing) listen(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; failures++ {
		err := s.store.Listen(ctx, s.hear)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errors.ErrUnsupported):
			if !s.deaf.Swap(true) {
				s.e.cfg.Log.Warn("the store sends no signals of what other processes do; it is asked all the time instead", "error", err)
				nudge(s.turned)
			}
			failures = 0
			sleep(ctx, listenEvery)
		case errors.Is(err, store.ErrClosed):
			return
		default:
			s.e.cfg.Log.Warn("listening to other processes; the store is asked from time to time meanwhile", "error", err)
			sleep(ctx, backoff(failures, 250*time.Millisecond, 30*time.Second))
		}
	}
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// hear acts on a signal. It never waits for the store.
func (s *sharing) hear(sig store.Signal) {
	e := s.e
	if s.deaf.CompareAndSwap(true, false) {
		e.cfg.Log.Info("the store sends signals of what other processes do again")
		nudge(s.turned)
	}
	switch sig.Kind {
	case store.Missed:
		nudge(s.look)
		nudge(e.scan)
	case store.Freed:
		if (sig.Address == store.Address{}) || e.cfg.Programs[sig.Agent] != nil {
			nudge(e.scan)
		}
	case store.Watched:
		if slot := e.slots.peek(sig.Address); slot != nil {
			e.hub.touch(sig.Address)
			nudge(slot.wake) // its text may have been put off
		}
	case store.Grown:
		s.grown(sig.Address, sig.Head)
	}
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// grown takes note that an instance's journal has reached an offset.
func (s *sharing) grown(addr store.Address, head int64) {
	e := s.e
	if !s.own.defers(addr, head) { // readers do not wait for an answer that may take long
		if slot := e.slots.findBehind(addr, head); slot != nil {
			e.hand(slot, intake{offset: head})
		}
	}
	if e.works(addr) { // readers here are told by its driver
		return
	}
	if e.hub.behind(addr, head) {
		s.growth.add(addr)
		s.follow(addr)
	}
}

// works reports whether this process has a driver for the instance that may act on
// its lease.
func (e *Engine) works(addr store.Address) bool {
	s := e.slots.peek(addr)
	if s == nil {
		return false
	}
	s.mu.Lock()
	driven, term := s.driven && !s.queued && s.damage == nil, s.term
	s.mu.Unlock()
	return driven && e.tenure.holds(term) == nil
}

// errands are instances for which this process is taking something in. A signal of
// that may come before the answer does: whoever has the answer hands over what it has
// taken in, which nobody has to read then.
type errands struct {
	mu   sync.Mutex
	open map[store.Address]*errand
}

type errand struct {
	n    int
	head int64 // that was told of meanwhile
}

// begin notes that something is being taken in for the instance.
func (r *errands) begin(addr store.Address) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = make(map[store.Address]*errand)
	}
	if r.open[addr] == nil {
		r.open[addr] = &errand{head: -1}
	}
	r.open[addr].n++
}

// end returns how far the journal has come by what was told meanwhile, or -1.
func (r *errands) end(addr store.Address) (head int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.open[addr]
	if d.n--; d.n == 0 {
		delete(r.open, addr)
	}
	return d.head
}

// admitted ends an errand, and acts on what was told meanwhile.
func (s *sharing) admitted(addr store.Address) {
	if head := s.own.end(addr); head >= 0 {
		s.grown(addr, head)
	}
}

// defers keeps a signal for the driver here until the end of what is being taken in,
// and reports whether it did.
func (r *errands) defers(addr store.Address, head int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.open[addr]
	if d == nil {
		return false
	}
	d.head = max(d.head, head)
	return true
}

// fetch reads what has grown, once for all who wait for it here.
func (s *sharing) fetch(ctx context.Context) {
	for {
		addr, ok := s.growth.next(ctx)
		if !ok {
			return
		}
		s.e.refresh(ctx, addr)
		s.growth.done(addr)
	}
}

// refresh brings the hub's tail of an instance up to date from the store. If the
// journal cannot be read those who wait find out for themselves; if the store has
// failed, it is tried again with the next poll.
func (e *Engine) refresh(ctx context.Context, addr store.Address) {
	after, ok := e.hub.end(addr)
	if !ok {
		return
	}
	if after < 0 { // nobody has looked yet: who waits is about to
		e.hub.forget(addr)
		return
	}
	page, err := e.cfg.Store.Read(ctx, addr, after, tailBatches)
	switch {
	case isDamage(err):
		e.hub.forget(addr)
		return
	case err != nil:
		e.hub.doubt(addr)
		return
	}
	for _, b := range page.Batches {
		batch, err := decodeToShow(addr, b)
		if err != nil || b.Span > 0 || b.Offset != after+1 {
			break
		}
		chunks, err := e.chunks(ctx, addr, page.Incarnation, b.Offset, batch)
		if err != nil {
			break
		}
		e.hub.publish(addr, page.Incarnation, b.Offset, encodeChunks(chunks))
		after = b.Offset
	}
	e.hub.reach(addr, page.Head) // what is missing is read by who wants it
}

// follow sees to it that the owner of an instance knows of a reader here.
func (s *sharing) follow(addr store.Address) {
	if s.store == nil || s.e.slots.peek(addr) != nil || !s.e.hub.tellAgain(addr) {
		return
	}
	s.watches.add(addr)
}

// watchEvery is how often an owner is told of a reader elsewhere. It must be well
// below watchMemory.
const watchEvery = time.Second

// tellWatched tells owners of readers here, at once of a new one and again as long
// as it waits.
func (s *sharing) tellWatched(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		fresh := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for _, addr := range s.e.hub.awaited() {
				s.follow(addr)
			}
		case <-s.watches.some:
			fresh = true
		}
		for addrs := range slices.Chunk(s.watches.all(), pollPage) {
			// Who is not told appends its text less often: nothing is lost.
			if err := s.store.Watch(ctx, addrs); errors.Is(err, errors.ErrUnsupported) {
				return
			}
			if fresh { // the store may have told of nothing before
				_ = s.compareHeads(ctx, addrs) // or the next poll does
			}
		}
	}
}

// poll looks at the store: regularly, and when signals were missed.
func (s *sharing) poll(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	fast := time.NewTicker(pollEveryDeaf)
	defer fast.Stop()
	for {
		var often <-chan time.Time
		if s.deaf.Load() {
			often = fast.C
		}
		whole := true // more than what readers here wait for
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.look:
		case <-often:
			whole = false
		case <-s.turned:
			continue
		}
		err := s.pollHeads(ctx)
		if whole {
			err = errors.Join(err, s.pollOwned(ctx))
		}
		if err != nil && !s.failing && ctx.Err() == nil {
			s.e.cfg.Log.Warn("looking for what other processes have done", "error", err)
		}
		s.failing = err != nil
	}
}

// pollPage is how many instances are asked for at a time.
const pollPage = 500

// pollOwned compares what this node owns with what it knows. While its lease has
// lapsed nobody knows what it owns.
func (s *sharing) pollOwned(ctx context.Context) error {
	if s.e.tenure.pending() != nil {
		return nil
	}
	suspects := make(map[store.Address]suspect)
	for after := (store.Address{}); ; {
		page, err := s.store.Owned(ctx, s.e.cfg.Node, after, pollPage)
		if err != nil {
			return err
		}
		for _, o := range page {
			s.compare(o, suspects)
			after = o.Address
		}
		if len(page) < pollPage {
			s.suspects = suspects
			return nil
		}
	}
}

// compare takes up what this node owns and has no slot for: the answer that gave it
// the instance was lost, or it could not be given back. It may also be on its way
// here or back, so only what stays so is taken, or given back if this program does
// not have its agent.
func (s *sharing) compare(o store.Owned, suspects map[store.Address]suspect) {
	e := s.e
	if slot := e.slots.findBehind(o.Address, o.Head); slot != nil {
		e.hand(slot, intake{offset: o.Head})
		return
	}
	if e.slots.peek(o.Address) != nil || e.draining() {
		return
	}
	if e.strangers.knows(o.Address) {
		e.strangers.keep(o.Lease)
		return
	}
	before, known := s.suspects[o.Address]
	if !known || before.epoch != o.Epoch && before.epoch != 0 {
		before = suspect{o.Epoch, time.Now()}
	}
	if time.Since(before.since) < pollEvery*9/10 {
		suspects[o.Address] = before
		return
	}
	if e.cfg.Programs[o.Agent] == nil {
		if err := e.cfg.Store.Release(e.writes, o.Lease); err != nil {
			suspects[o.Address] = before
		}
		return
	}
	slot := e.take(o.Address)
	if slot == nil { // it is tried again with the next look, whatever has become of it
		suspects[o.Address] = suspect{since: before.since}
		return
	}
	e.hand(slot, intake{offset: o.Head})
}

// pollHeads looks whether what readers wait for has grown. Who owns it does not
// matter: this process may be wrong about that.
func (s *sharing) pollHeads(ctx context.Context) error {
	for addrs := range slices.Chunk(s.e.hub.awaited(), pollPage) {
		if err := s.compareHeads(ctx, addrs); err != nil {
			return err
		}
	}
	return nil
}

func (s *sharing) compareHeads(ctx context.Context, addrs []store.Address) error {
	heads, err := s.store.Heads(ctx, addrs)
	if err != nil {
		return err
	}
	for i, addr := range addrs {
		if s.e.hub.behind(addr, heads[i]) {
			s.growth.add(addr)
			s.follow(addr)
		}
	}
	return nil
}

// How long instances rest in a process before it gives them back, so that others can
// take them on, and how many at once.
const (
	restFor  = time.Minute
	restPage = 64
)

// giveIdleBack gives back what has rested for long.
func (s *sharing) giveIdleBack(ctx context.Context) {
	tick := time.NewTicker(restFor / 6)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for ctx.Err() == nil {
			idle := s.e.slots.restless(time.Now().Add(-restFor), restPage)
			if len(idle) == 0 {
				break
			}
			s.e.giveBack(s.e.writes, idle)
		}
	}
}

// draining reports whether the engine closes.
func (e *Engine) draining() bool {
	select {
	case <-e.drain:
		return true
	default:
		return false
	}
}

// chores are instances that something has to be done for. Each is there once, and
// is given out to one at a time.
type chores struct {
	some chan struct{} // has a value when there may be one to give out

	mu   sync.Mutex
	open map[store.Address]struct{}
	busy map[store.Address]struct{} // given out, not done
}

func (c *chores) init() {
	c.some = make(chan struct{}, 1)
	c.open, c.busy = make(map[store.Address]struct{}), make(map[store.Address]struct{})
}

func (c *chores) add(addr store.Address) {
	c.mu.Lock()
	c.open[addr] = struct{}{}
	c.mu.Unlock()
	nudge(c.some)
}

// next waits for a chore. It reports false if ctx ends first.
func (c *chores) next(ctx context.Context) (store.Address, bool) {
	for {
		if addr, ok := c.take(); ok {
			return addr, true
		}
		select {
		case <-c.some:
		case <-ctx.Done():
			return store.Address{}, false
		}
	}
}

func (c *chores) take() (store.Address, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for addr := range c.open {
		if _, ok := c.busy[addr]; ok {
			continue
		}
		delete(c.open, addr)
		c.busy[addr] = struct{}{}
		if len(c.open) > 0 {
			nudge(c.some) // for another one
		}
		return addr, true
	}
	return store.Address{}, false
}

// done makes room for the next chore of the instance.
func (c *chores) done(addr store.Address) {
	c.mu.Lock()
	delete(c.busy, addr)
	more := len(c.open) > 0
	c.mu.Unlock()
	if more {
		nudge(c.some)
	}
}

// all takes all chores at once.
func (c *chores) all() []store.Address {
	c.mu.Lock()
	defer c.mu.Unlock()
	addrs := slices.Collect(maps.Keys(c.open))
	clear(c.open)
	return addrs
}
