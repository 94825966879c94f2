package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// A checkpoint is due when this much has been appended since the last one, and
// at least half as much as that one is large: writing them costs a constant
// share of what is written anyway, however large they are.
const (
	checkpointRecords = 256
	checkpointBytes   = 1 << 20
)

// backlog is how much of a journal its newest checkpoint does not cover.
type backlog struct {
	records, bytes int
}

func (b *backlog) add(records, bytes int) {
	b.records += records
	b.bytes += bytes
}

// due reports whether a checkpoint should be written after so many records, if
// the last one has so many bytes.
func (b *backlog) due(every, saved int) bool {
	if every <= 1 {
		return every == 1 && b.records > 0
	}
	return (b.records >= every || b.bytes >= checkpointBytes) && b.bytes >= saved/2
}

// checkpoint writes a checkpoint if one is due and none is being written. It
// costs the driver a copy of what the state holds by itself; the rest is done
// beside it, unless a test wants one after every append: then the driver waits.
func (d *driver) checkpoint(last journal.Batch) {
	if !d.e.keepsCheckpoints() || !d.backlog.due(d.e.cfg.CheckpointEvery, int(d.slot.saved.Load())) {
		return
	}
	// Retention may merge a batch that holds nothing but text with others: no
	// checkpoint is tied to one.
	if _, ok := last.Streamed(); ok {
		return
	}
	select {
	case d.slot.saving <- struct{}{}:
	default:
		return // it will still be due
	}
	c := d.e.checkpointOf(d.slot.addr, d.memory, d.state.Snapshot())
	d.backlog = backlog{}
	save := func() {
		defer func() { <-d.slot.saving }()
		d.e.save(d.slot, d.lease, c)
	}
	if d.e.cfg.CheckpointEvery == 1 {
		save()
		return
	}
	d.e.wg.Go(save)
}

func (e *Engine) checkpointOf(addr store.Address, m *memory, st *fold.State) *fold.Checkpoint {
	return &fold.Checkpoint{State: st, Streamed: cmp.Or(e.retention.from(addr), m.text.from)}
}

// lastCheckpoint writes a checkpoint if it is worth it before the process forgets
// an instance that nobody drives. The caller must own its memory.
func (e *Engine) lastCheckpoint(s *slot, lease store.Lease, m *memory) {
	if !e.keepsCheckpoints() || m == nil || !m.state.Resting() {
		return
	}
	s.saving <- struct{}{} // none is in flight now, so that none is fenced by what comes next
	defer func() { <-s.saving }()
	if e.worthLast(s, m) {
		e.save(s, lease, e.checkpointOf(s.addr, m, m.state))
		m.backlog = backlog{}
	}
}

// worthLast reports whether an instance that the process is about to forget is worth
// a checkpoint.
func (e *Engine) worthLast(s *slot, m *memory) bool {
	if !e.keepsCheckpoints() || m == nil || !m.state.Resting() {
		return false
	}
	every := e.cfg.CheckpointEvery
	if every > 1 {
		every = max(every/4, 2)
	}
	return m.backlog.due(every, int(s.saved.Load()))
}

func (e *Engine) keepsCheckpoints() bool {
	return e.checkpoints != nil && e.cfg.CheckpointEvery > 0 && !e.unsupported.Load()
}

// save writes a checkpoint. It may fail: then there is none, and the next one
// will do.
func (e *Engine) save(s *slot, lease store.Lease, c *fold.Checkpoint) {
	if e.overtaken(s) {
		return
	}
	size, err := e.trySave(e.writes, lease, c)
	switch {
	case err == nil:
		s.saved.Store(int64(size))
	case errors.Is(err, errors.ErrUnsupported):
		e.unsupported.Store(true)
	case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrPoisoned), e.writes.Err() != nil:
	default:
		e.cfg.Log.Warn("writing a checkpoint; without it the instance takes longer to be taken up", "instance", s.addr.String(), "error", err)
	}
}

func (e *Engine) trySave(ctx context.Context, lease store.Lease, c *fold.Checkpoint) (size int, err error) {
	head := c.State.Head
	page, err := e.cfg.Store.Read(ctx, lease.Address, head-1, 1)
	if err != nil {
		return 0, err
	}
	if len(page.Batches) == 0 || page.Batches[0].Offset != head {
		return 0, fmt.Errorf("%w: the journal has no batch at offset %d", store.ErrCorrupt, head)
	}
	c.Tail = sha256.Sum256(page.Batches[0].Payload)
	data, err := c.Encode()
	if err != nil {
		return 0, err
	}
	return len(data), e.checkpoints.SaveCheckpoint(ctx, lease, store.Checkpoint{Offset: head, Data: data})
}

// loaded is an instance as its journal says it is.
type loaded struct {
	state   *fold.State
	backlog backlog
	saved   int    // the size of the checkpoint it was read from
	text    stream // what there is to merge
}

// load folds the journal of an instance: from the newest checkpoint that can be
// used, or from its start.
func (e *Engine) load(ctx context.Context, addr store.Address) (*loaded, error) {
	atMost := int64(math.MaxInt64)
	for range keptCheckpoints {
		if e.checkpoints == nil {
			break
		}
		c, err := e.checkpoints.Checkpoint(ctx, addr, atMost)
		switch {
		case errors.Is(err, store.ErrNotFound), errors.Is(err, errors.ErrUnsupported):
			return e.replay(ctx, addr)
		case err == nil:
			var l *loaded
			if l, err = e.resume(ctx, addr, c); err == nil {
				return l, nil
			}
		}
		var useless *unusableError
		if !errors.As(err, &useless) && !errors.Is(err, store.ErrCorrupt) {
			return nil, fmt.Errorf("taking %s up: %w", addr, err)
		}
		level := slog.LevelWarn
		var foreign *fold.ForeignError
		if errors.As(err, &foreign) { // as after an update of the program
			level = slog.LevelInfo
		}
		e.cfg.Log.Log(ctx, level, "passing over a checkpoint; reading more of the journal instead", "instance", addr.String(), "offset", c.Offset, "error", err)
		atMost = c.Offset - 1
	}
	return e.replay(ctx, addr)
}

// keptCheckpoints is how many checkpoints are tried, which is how many a store
// keeps.
const keptCheckpoints = 2

// An unusableError says why the state of an instance is not read from a
// checkpoint.
type unusableError struct{ err error }

func (e *unusableError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *unusableError) Unwrap() error { return e.err }

func unusable(format string, args ...any) error { return &unusableError{fmt.Errorf(format, args...)} }

// resume folds what comes after a checkpoint. Whether that can be judged without
// what comes before is decided strictly: damage, and what a repair says of it,
// need the whole journal.
func (e *Engine) resume(ctx context.Context, addr store.Address, stored store.Checkpoint) (*loaded, error) {
	c, err := fold.DecodeCheckpoint(stored.Data)
	if err != nil {
		return nil, &unusableError{err}
	}
	st := c.State
	if st.Head != stored.Offset || st.Born.Agent != addr.Agent || st.Born.ID != addr.ID {
		return nil, unusable("it is of %s/%s at offset %d", st.Born.Agent, st.Born.ID, st.Head)
	}
	l := &loaded{state: st, saved: len(stored.Data)}
	var found search
	tied := false
	for b, err := range store.Batches(ctx, e.cfg.Store, addr, st.Head-1) {
		var unreadable *store.BatchError
		switch {
		case errors.As(err, &unreadable):
			return nil, &unusableError{err}
		case err != nil:
			return nil, fmt.Errorf("reading the journal of %s: %w", addr, err)
		case tied:
			if err := l.apply(addr, b, &found); err != nil {
				return nil, err
			}
		case b.Offset != st.Head || sha256.Sum256(b.Payload) != c.Tail:
			return nil, unusable("the journal has another batch at offset %d", st.Head)
		}
		tied = true
	}
	if !tied {
		return nil, unusable("the journal does not reach to offset %d", st.Head)
	}
	if l.text = found.found; c.Streamed > 0 {
		l.text = stream{from: c.Streamed, batches: 2}
	}
	return l, nil
}

// apply folds a batch that lies behind the checkpoint. A repair breaks a rule here,
// because what it passes over has not been passed over.
func (l *loaded) apply(addr store.Address, b store.Batch, found *search) error {
	batch, err := journal.Decode(b.Payload)
	if err != nil {
		return &unusableError{err}
	}
	if err := apply(l.state, addr, b.Offset, batch); err != nil {
		return &unusableError{err}
	}
	l.backlog.add(len(batch.Records), len(b.Payload))
	found.find(b, batch)
	return nil
}

// replay folds the journal of an instance from its start, past whatever a repair
// passes over.
func (e *Engine) replay(ctx context.Context, addr store.Address) (*loaded, error) {
	l := new(loaded)
	var found search
	st, err := fold.Replay(e.batches(ctx, addr, &l.backlog, &found))
	var damage *fold.DamageError
	switch {
	case errors.As(err, &damage):
		return nil, fmt.Errorf("offset %d of %s: %w", damage.Offset, addr, err)
	case err != nil:
		return nil, fmt.Errorf("reading the journal of %s: %w", addr, err)
	}
	l.state, l.text = st, found.found
	return l, nil
}

// batches ranges over the whole journal of an instance. It counts, and looks
// through, what it has ranged over the last time.
func (e *Engine) batches(ctx context.Context, addr store.Address, read *backlog, found *search) fold.Batches {
	return func(yield func(fold.Batch, error) bool) {
		*read, *found = backlog{}, search{}
		for b, err := range store.Batches(ctx, e.cfg.Store, addr, -1) {
			fb := fold.Batch{Offset: b.Offset}
			var unreadable *store.BatchError
			if errors.As(err, &unreadable) {
				fb.Err, err = err, nil
			} else if err == nil {
				var batch journal.Batch
				batch, fb.Err = journal.Decode(b.Payload)
				fb.Records = batch.Records
				found.find(b, batch)
			}
			read.add(len(fb.Records), len(b.Payload))
			if !yield(fb, err) {
				return
			}
		}
	}
}
