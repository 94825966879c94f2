package engine

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// An answer that somebody watches is appended in many small batches, which cost
// far more than its text. Once it is settled and old, the batches of each run that
// hold nothing else are merged into one that stands for all their offsets. The
// state that the journal folds to, and the text that a reader from before the run
// is sent, stay the same. One who stopped within the run, long ago, is sent a
// snapshot.

// retention merges what is due, one instance at a time.
type retention struct {
	e      *Engine
	pruner store.Pruner // nil if nothing is ever merged
	after  time.Duration
	wake   chan struct{} // has a value when tasks has a new first one

	mu    sync.Mutex
	marks map[store.Address]*unmerged
	tasks list.List // of *task, the next one first
}

// An unmerged says from where on an instance has something to merge.
type unmerged struct {
	from   int64
	passed []fold.Span // what repairs pass over; must be left alone
	tasks  int
}

// A task is to merge what an instance has up to an offset.
type task struct {
	addr store.Address
	to   int64
	due  time.Time
}

// maxTasks bounds what is remembered, at some 200 bytes a task. What comes beyond
// that stays in pieces.
const maxTasks = 1 << 14

func (r *retention) init(e *Engine) {
	r.e, r.after = e, e.cfg.MergeAfter
	r.wake = make(chan struct{}, 1)
	r.marks = make(map[store.Address]*unmerged)
	if r.after >= 0 {
		r.pruner, _ = e.cfg.Store.(store.Pruner)
	}
	if r.pruner != nil {
		e.wg.Go(r.run)
	}
}

// note remembers that the journal of an instance, whose response is settled at
// the offset to, has something to merge from an offset on.
func (r *retention) note(addr store.Address, from, to int64, passed []fold.Span, due time.Time) {
	if r.pruner == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tasks.Len() >= maxTasks {
		return
	}
	m := r.marks[addr]
	if m == nil {
		m = &unmerged{from: from}
		r.marks[addr] = m
	}
	m.from, m.passed = min(m.from, from), passed
	r.add(m, &task{addr, to, due})
}

func (r *retention) add(m *unmerged, t *task) {
	m.tasks++
	at := r.tasks.Back()
	for at != nil && at.Value.(*task).due.After(t.due) {
		at = at.Prev()
	}
	if at != nil {
		r.tasks.InsertAfter(t, at)
		return
	}
	r.tasks.PushFront(t)
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// from returns the offset from which on an instance has something to merge, or 0.
func (r *retention) from(addr store.Address) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.marks[addr]; m != nil {
		return m.from
	}
	return 0
}

// run does the tasks when they are due, until the engine closes.
func (r *retention) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if t := r.next(); t != nil {
			timer.Reset(r.e.Until(t.due))
			due = timer.C
		}
		select {
		case <-r.e.drain:
			return
		case <-r.wake:
		case <-due:
			if !r.e.await() { // nothing is written under a lease that has lapsed
				return
			}
			r.do()
		}
	}
}

// next returns the task that is due next, or nil.
func (r *retention) next() *task {
	r.mu.Lock()
	defer r.mu.Unlock()
	if el := r.tasks.Front(); el != nil {
		return el.Value.(*task)
	}
	return nil
}

// do does the first task.
func (r *retention) do() {
	r.mu.Lock()
	t := r.tasks.Remove(r.tasks.Front()).(*task)
	m := *r.marks[t.addr]
	r.mu.Unlock()

	young, err := r.merge(t.addr, m.from, t.to, m.passed)
	switch {
	case err == nil, errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrOwned), errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrPoisoned):
	case errors.Is(err, errors.ErrUnsupported), isDamage(err):
	default:
		r.e.cfg.Log.Warn("merging the text of old answers failed; it is tried again later", "instance", t.addr.String(), "error", err)
		young = r.e.Now().Add(mergeAgain)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.marks[t.addr]
	now.tasks--
	now.from = t.to + 1
	if !young.IsZero() {
		now.from = m.from
		r.add(now, &task{t.addr, t.to, young.Add(r.after)})
	}
	if now.tasks == 0 {
		delete(r.marks, t.addr)
	}
}

// mergeAgain is when what has failed is tried again, beyond the usual time.
const mergeAgain = time.Minute

// A prune is gathered until it has this many bytes.
const pruneBytes = 1 << 20

// merge merges what an instance has between two offsets. It returns when the
// first text was written that is too young for it.
func (r *retention) merge(addr store.Address, from, to int64, passed []fold.Span) (young time.Time, err error) {
	ctx := r.e.writes
	lease, giveBack, err := r.lease(ctx, addr)
	if err != nil {
		return young, err
	}
	defer giveBack()
	var runs []store.Run
	size := 0
	prune := func() error {
		if len(runs) == 0 {
			return nil
		}
		defer func() { runs, size = runs[:0], 0 }()
		return r.pruner.Prune(ctx, lease, runs)
	}
	before := r.e.Now().Add(-r.after)
	for p, err := range r.e.pieces(ctx, addr, from, to, passed) {
		if err != nil {
			return young, err
		}
		if p.at.After(before) {
			if young.IsZero() {
				young = p.at
			}
			continue
		}
		run := store.Run{From: p.from, To: p.to}
		if run.Payload, err = journal.Encode(journal.Merge(p.batches)); err != nil {
			return young, err
		}
		runs = append(runs, run)
		if size += len(run.Payload); size >= pruneBytes || len(runs) == store.MaxRuns {
			if err := prune(); err != nil {
				return young, err
			}
		}
	}
	return young, prune()
}

// lease returns the ownership of an instance: that of its slot, or one that is
// given back.
func (r *retention) lease(ctx context.Context, addr store.Address) (store.Lease, func(), error) {
	if s := r.e.slots.peek(addr); s != nil {
		l, _ := s.kept()
		return l, func() {}, r.e.slots.damage(addr)
	}
	l, err := r.e.cfg.Store.Take(ctx, r.e.cfg.Node, addr)
	if err != nil {
		return l, nil, err
	}
	return l, func() {
		// If it has been taken up meanwhile this lease is not current any more.
		if err := r.e.cfg.Store.Release(ctx, l); err != nil {
			r.e.cfg.Log.Warn("giving an instance back", "instance", addr.String(), "error", err)
		}
	}, nil
}

// A piecework is a run of batches that hold nothing but text of one turn.
type piecework struct {
	from, to int64
	turn     string
	epoch    int64
	at       time.Time // when the last one was written
	batches  []journal.Batch
}

// pieces ranges over the runs of two or more batches between two offsets that can
// be merged, until the engine closes.
func (e *Engine) pieces(ctx context.Context, addr store.Address, from, to int64, passed []fold.Span) func(yield func(*piecework, error) bool) {
	return func(yield func(*piecework, error) bool) {
		run := new(piecework)
		for b, err := range store.BatchesUpTo(ctx, e.cfg.Store, addr, from-1, to) {
			var unreadable *store.BatchError
			if err != nil && !errors.As(err, &unreadable) {
				yield(nil, fmt.Errorf("reading the journal of %s: %w", addr, err))
				return
			}
			select {
			case <-e.drain:
				return
			default:
			}
			next := pieceOf(b, err, passed)
			if run.takes(next) {
				continue
			}
			if len(run.batches) > 1 && !yield(run, nil) {
				return
			}
			run = next
		}
		if len(run.batches) > 1 {
			yield(run, nil)
		}
	}
}

// pieceOf is a run of one batch, or of none if it must be left alone.
func pieceOf(b store.Batch, err error, passed []fold.Span) *piecework {
	if err != nil || b.Epoch == 0 {
		return new(piecework)
	}
	if slices.ContainsFunc(passed, func(s fold.Span) bool { return s.From <= b.Last() && b.Offset <= s.To }) {
		return new(piecework)
	}
	batch, err := journal.Decode(b.Payload)
	turn, ok := batch.Streamed()
	if err != nil || !ok {
		return new(piecework)
	}
	return &piecework{from: b.Offset, to: b.Last(), turn: turn, epoch: b.Epoch, at: batch.At, batches: []journal.Batch{batch}}
}

// takes adds another run if it goes on with this one.
func (p *piecework) takes(next *piecework) bool {
	if len(p.batches) == 0 || len(next.batches) == 0 || next.turn != p.turn || next.epoch != p.epoch || next.from != p.to+1 {
		return false
	}
	p.to, p.at = next.to, next.at
	p.batches = append(p.batches, next.batches...)
	return true
}

// stream is what a driver knows of text that retention will have to merge.
type stream struct {
	from    int64 // the first batch that holds nothing else, or 0
	batches int   // how many there may be
}

// streamed takes note of a batch that was appended. When a response is settled
// what it streamed is handed to retention.
func (d *driver) streamed(offset int64, b journal.Batch) {
	if _, ok := b.Streamed(); ok {
		d.text.from = cmp.Or(d.text.from, offset)
		d.text.batches++
		return
	}
	settled := slices.ContainsFunc(b.Records, func(r journal.Record) bool {
		_, ok := r.(*journal.Settled)
		return ok
	})
	if settled && d.state.Resting() {
		d.leaveText(d.e.Now().Add(d.e.cfg.MergeAfter))
	}
}

// leaveText leaves what was streamed up to the head to retention.
func (d *driver) leaveText(due time.Time) {
	if d.text.batches > 1 {
		d.e.retention.note(d.slot.addr, d.text.from, d.state.Head, d.state.Passed, due)
	}
	d.text = stream{}
}

// find takes note of a batch that is read when an instance is taken up.
func (s *search) find(b store.Batch, batch journal.Batch) {
	turn, ok := batch.Streamed()
	if ok && s.turn == turn && s.next == b.Offset && s.found.from == 0 {
		s.found = stream{from: s.offset, batches: 2}
	}
	s.turn, s.offset, s.next = "", 0, 0
	if ok {
		s.turn, s.offset, s.next = turn, b.Offset, b.Last()+1
	}
}

// A search looks for the first batches of a journal that can be merged.
type search struct {
	found        stream
	turn         string // of the last batch that was read, if it holds nothing but text
	offset, next int64
}
