package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/flue-go/flue/internal/project"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/wire"
)

// ErrOffsetGone is the error of a read beyond the head of a journal.
var ErrOffsetGone = errors.New("the offset is beyond the head of the journal")

// Updates is a run of changes to a conversation.
type Updates struct {
	Incarnation string
	Chunks      []byte // comma-separated JSON
	Next        int64
	UpToDate    bool

	confirmed bool // by the store, since it was asked for
}

// Instance returns the instance's index row, or store.ErrNotFound.
func (e *Engine) Instance(ctx context.Context, addr store.Address) (store.Instance, error) {
	return e.cfg.Store.Instance(ctx, addr)
}

// Submission returns a submission's index row, or store.ErrNotFound.
func (e *Engine) Submission(ctx context.Context, addr store.Address, id string) (store.Submission, error) {
	return e.cfg.Store.Submission(ctx, addr, id)
}

// Vars returns the instance's persistent state and its uid, or
// store.ErrNotFound.
func (e *Engine) Vars(ctx context.Context, addr store.Address) (vars map[string]json.RawMessage, uid string, err error) {
	l, err := e.load(ctx, addr)
	if err != nil {
		return nil, "", err
	}
	st := l.state
	if st.Born == nil {
		return nil, "", fmt.Errorf("reading the journal of %s: %w", addr, store.ErrNotFound)
	}
	return st.Vars, st.Born.UID, nil
}

// Attachment returns a file of the instance, or store.ErrNotFound.
func (e *Engine) Attachment(ctx context.Context, addr store.Address, id string) (store.Attachment, error) {
	return e.cfg.Store.Attachment(ctx, addr, id)
}

// Updates returns the changes of at most limit batches after the offset. It
// fails with ErrOffsetGone and store.ErrNotFound. A batch that cannot be read is
// left out if a repair passes over it.
func (e *Engine) Updates(ctx context.Context, addr store.Address, after int64, limit int) (Updates, error) {
	u, err := e.More(ctx, addr, after, limit)
	if err != nil || !u.UpToDate || u.confirmed || !e.shared() {
		return u, err
	}
	// It is the end as far as this process has been told, and others write, too.
	heads, err := e.sharing.store.Heads(ctx, []store.Address{addr})
	switch {
	case err != nil:
		return Updates{}, err
	case u.Next >= heads[0]:
		return u, nil
	case u.Next == after:
		return e.stored(ctx, addr, after, limit)
	}
	u.UpToDate = false
	return u, nil
}

// More is Updates for a reader that goes on from what it has read: that it is up to
// date is then true of a moment ago, and Wait returns when there is more.
func (e *Engine) More(ctx context.Context, addr store.Address, after int64, limit int) (Updates, error) {
	if s, ok := e.hub.since(addr, after, limit); ok {
		return Updates{Incarnation: s.incarnation, Chunks: s.chunks, Next: s.next, UpToDate: s.upToDate}, nil
	}
	return e.stored(ctx, addr, after, limit)
}

// stored is Updates from the store.
func (e *Engine) stored(ctx context.Context, addr store.Address, after int64, limit int) (Updates, error) {
	page, err := e.cfg.Store.Read(ctx, addr, after, limit)
	if errors.Is(err, store.ErrCorrupt) {
		return e.updatesPast(ctx, addr, after, limit, err)
	}
	if err != nil {
		return Updates{}, err
	}
	if after > page.Head {
		return Updates{Next: page.Head}, ErrOffsetGone
	}
	if len(page.Batches) > 0 && page.Batches[0].Offset > after+1 {
		return e.reset(ctx, addr)
	}
	u := Updates{Incarnation: page.Incarnation, Next: after, confirmed: true}
	for _, b := range page.Batches {
		batch, err := decodeToShow(addr, b)
		if err != nil {
			if err := e.passed(ctx, addr, b.Offset, err); err != nil {
				return Updates{}, err
			}
		}
		changes, err := e.chunks(ctx, addr, page.Incarnation, b.Offset, batch)
		if err != nil {
			return Updates{}, err
		}
		if chunks := encodeChunks(changes); len(chunks) > 0 {
			if len(u.Chunks) > 0 {
				u.Chunks = append(u.Chunks, ',')
			}
			u.Chunks = append(u.Chunks, chunks...)
		}
		u.Next = b.Last()
	}
	u.UpToDate = u.Next >= page.Head
	return u, nil
}

// reset returns the whole conversation, for a reader who has stopped within text
// that is not to be had in pieces any more. It comes behind all that the reader
// may have seen.
func (e *Engine) reset(ctx context.Context, addr store.Address) (Updates, error) {
	snap, err := e.Snapshot(ctx, addr)
	if err != nil {
		return Updates{}, err
	}
	u := Updates{Incarnation: snap.Incarnation, Next: int64(snap.Offset), UpToDate: true, confirmed: true}
	snap.Incarnation = ""
	u.Chunks, err = encodeChunk(&wire.Chunk{
		Type: wire.ChunkReset, ConversationID: snap.ConversationID, Snapshot: snap,
		Position: &wire.Position{Batch: u.Next, Index: math.MaxInt32},
	})
	if err != nil {
		return Updates{}, fmt.Errorf("encoding the conversation of %s: %w", addr, err)
	}
	return u, nil
}

// updatesPast is Updates where one of the batches cannot be read: those before
// it one at a time, then nothing in its place.
func (e *Engine) updatesPast(ctx context.Context, addr store.Address, after int64, limit int, cause error) (Updates, error) {
	if limit != 1 {
		return e.stored(ctx, addr, after, 1)
	}
	inst, err := e.cfg.Store.Instance(ctx, addr)
	if err != nil {
		return Updates{}, err
	}
	if err := e.passed(ctx, addr, after+1, cause); err != nil {
		return Updates{}, err
	}
	return Updates{Incarnation: inst.Incarnation, Next: after + 1, UpToDate: after+1 >= inst.Head, confirmed: true}, nil
}

// passed returns nil if a repair passes over the batch that could not be read for
// the cause, and the cause if none does.
func (e *Engine) passed(ctx context.Context, addr store.Address, offset int64, cause error) error {
	for b, err := range store.Batches(ctx, e.cfg.Store, addr, offset) {
		var unreadable *store.BatchError
		if err != nil && !errors.As(err, &unreadable) {
			return err
		}
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			continue
		}
		for _, r := range batch.Records {
			if r, ok := r.(*journal.Repair); ok && r.From <= offset && offset <= r.To && r.To < b.Offset {
				return nil
			}
		}
	}
	return cause
}

func decode(addr store.Address, b store.Batch) (journal.Batch, error) {
	batch, err := journal.Decode(b.Payload)
	if err != nil {
		return journal.Batch{}, fmt.Errorf("offset %d of %s: %w", b.Offset, addr, err)
	}
	return batch, nil
}

// decodeToShow is decode for readers. A record of a newer version that must not be
// passed over may say something to them, which they would miss without knowing it: they
// are sent to a process that can show it.
func decodeToShow(addr store.Address, b store.Batch) (journal.Batch, error) {
	batch, err := decode(addr, b)
	if err != nil {
		return journal.Batch{}, err
	}
	for _, r := range batch.Records {
		if u, ok := r.(*journal.Unknown); ok && !u.Optional {
			return journal.Batch{}, fmt.Errorf("offset %d of %s: %w", b.Offset, addr, &journal.FormatError{
				Reason: fmt.Sprintf("a record of kind %s and version %d, written by a newer version of this program", u.Name, u.Version), Newer: true,
			})
		}
	}
	return batch, nil
}

// Wait returns nil when the instance has a batch after the offset, and ctx's
// error if ctx ends first. It fails with ErrDamaged if none will come. It may
// return nil too soon: who waits has to look.
func (e *Engine) Wait(ctx context.Context, addr store.Address, after int64) error {
	t := e.hub.enter(addr)
	defer e.hub.leave(t)
	e.sharing.follow(addr)
	for {
		look := e.hub.look(t)
		if look.head > after {
			return nil
		}
		if look.whole {
			return e.awaitGrowth(ctx, addr, look.grown)
		}
		inst, err := e.cfg.Store.Instance(ctx, addr)
		if err != nil {
			return err
		}
		e.hub.confirm(t, look, inst)
	}
}

// awaitGrowth waits until somebody says that the instance has grown, or that no more
// can come of it.
func (e *Engine) awaitGrowth(ctx context.Context, addr store.Address, grown <-chan struct{}) error {
	// It is asked once the wait has been registered, so that no poke is missed.
	if err := e.setAside(ctx, addr); err != nil {
		return err
	}
	select {
	case <-grown:
		return e.broken(addr)
	case <-ctx.Done():
		return ctx.Err()
	case <-e.ended:
		return ErrEnded
	}
}

// Snapshot returns the conversation up to its head.
func (e *Engine) Snapshot(ctx context.Context, addr store.Address) (*wire.Snapshot, error) {
	return e.SnapshotBetween(ctx, addr, int64(wire.Start), math.MaxInt64, nil)
}

// SnapshotBetween returns what the batches after one offset and up to another add
// to a conversation: messages that began before are missing. If each is not nil it
// is called with every change on the way, and with nil if it has to begin again.
func (e *Engine) SnapshotBetween(ctx context.Context, addr store.Address, after, upTo int64, each func(*wire.Chunk)) (*wire.Snapshot, error) {
	if each == nil {
		each = func(*wire.Chunk) {}
	}
	for {
		snap, err := e.snapshot(ctx, addr, after, upTo, each)
		if !errors.Is(err, errMerged) {
			return snap, err
		}
		each(nil)
	}
}

// errMerged means that batches were merged between two pages of a journal, of
// which the first had some of them.
var errMerged = errors.New("the journal was changed while it was read")

// piecewise ranges over batches like store.BatchesUpTo, and fails with errMerged
// rather than to miss some that were merged meanwhile.
func (e *Engine) piecewise(ctx context.Context, addr store.Address, after, upTo int64) iter.Seq2[store.Batch, error] {
	return func(yield func(store.Batch, error) bool) {
		first := true // or as good as that: whatever offset it has
		for b, err := range store.BatchesUpTo(ctx, e.cfg.Store, addr, after, upTo) {
			var unreadable *store.BatchError
			switch {
			case err != nil && !errors.As(err, &unreadable):
			case b.Offset > after+1 && !first:
				err = errMerged
			}
			if !yield(b, err) || errors.Is(err, errMerged) {
				return
			}
			after = b.Last()
			first = unreadable != nil // nobody knows what else it stood for
		}
	}
}

func (e *Engine) snapshot(ctx context.Context, addr store.Address, after, upTo int64, each func(*wire.Chunk)) (*wire.Snapshot, error) {
	inst, err := e.cfg.Store.Instance(ctx, addr)
	if err != nil {
		return nil, err
	}
	var v wire.Conversation
	snap := &wire.Snapshot{V: 1, Incarnation: inst.Incarnation, ConversationID: project.ConversationID(inst.Incarnation)}
	for b, err := range e.piecewise(ctx, addr, after, upTo) {
		var unreadable *store.BatchError
		if err != nil && !errors.As(err, &unreadable) {
			return nil, err
		}
		var batch journal.Batch
		if err == nil {
			batch, err = decodeToShow(addr, b)
		}
		if err != nil {
			if err := e.passed(ctx, addr, b.Offset, err); err != nil {
				return nil, err
			}
		}
		for _, c := range project.Chunks(snap.ConversationID, b.Offset, batch) {
			if err := v.Apply(&c); err != nil {
				return nil, fmt.Errorf("offset %d of %s: %w", b.Offset, addr, err)
			}
			each(&c)
		}
		after = b.Last()
	}
	snap.Offset = wire.Offset(after)
	snap.Messages, snap.Settlements = v.Messages, v.Settlements
	if snap.Messages == nil {
		snap.Messages = []wire.Message{}
	}
	if snap.Settlements == nil {
		snap.Settlements = []wire.Settlement{}
	}
	return snap, nil
}

// A Commanded is what has come of a command.
type Commanded struct {
	Settled   *journal.Settled
	Compacted *journal.Compacted // nil if nothing was compacted
	At        time.Time          // when it was settled
}

// Commanded reads what has come of a command from the batches after the offset.
// It fails with store.ErrNotFound if it is not settled.
func (e *Engine) Commanded(ctx context.Context, addr store.Address, after int64, submission string) (Commanded, error) {
	var c Commanded
	for b, err := range store.Batches(ctx, e.cfg.Store, addr, after) {
		var unreadable *store.BatchError
		if errors.As(err, &unreadable) {
			continue
		}
		if err != nil {
			return c, err
		}
		batch, err := decode(addr, b)
		if err != nil {
			continue // damage is somebody else's to tell of
		}
		for _, r := range batch.Records {
			switch r := r.(type) {
			case *journal.Compacted:
				if r.Submission == submission && r.Reason == journal.CompactionManual {
					c.Compacted = r
				}
			case *journal.Settled:
				if r.Submission == submission {
					c.Settled, c.At = r, batch.At
					return c, nil
				}
			}
		}
	}
	return c, fmt.Errorf("submission %s of %s: %w", submission, addr, store.ErrNotFound)
}

// Compaction returns the latest compaction in effect, nil if there is none, and the
// instance's uid. It fails with store.ErrNotFound.
func (e *Engine) Compaction(ctx context.Context, addr store.Address) (c *journal.Compacted, uid string, err error) {
	l, err := e.load(ctx, addr)
	if err != nil {
		return nil, "", err
	}
	if l.state.Born == nil {
		return nil, "", fmt.Errorf("reading the journal of %s: %w", addr, store.ErrNotFound)
	}
	return l.state.Compaction(), l.state.Born.UID, nil
}
