package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

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
	st, err := e.fold(ctx, addr)
	if err != nil {
		return nil, "", err
	}
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
	if s, ok := e.hub.since(addr, after, limit); ok {
		return Updates{Incarnation: s.incarnation, Chunks: s.chunks, Next: s.next, UpToDate: s.upToDate}, nil
	}
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
	u := Updates{Incarnation: page.Incarnation, Next: after}
	for _, b := range page.Batches {
		batch, err := decode(addr, b)
		if err != nil {
			if err := e.passed(ctx, addr, b.Offset, err); err != nil {
				return Updates{}, err
			}
		}
		if chunks := encodeChunks(page.Incarnation, b.Offset, batch); len(chunks) > 0 {
			if len(u.Chunks) > 0 {
				u.Chunks = append(u.Chunks, ',')
			}
			u.Chunks = append(u.Chunks, chunks...)
		}
		u.Next = b.Offset
	}
	u.UpToDate = u.Next >= page.Head
	return u, nil
}

// updatesPast is Updates where one of the batches cannot be read: those before
// it one at a time, then nothing in its place.
func (e *Engine) updatesPast(ctx context.Context, addr store.Address, after int64, limit int, cause error) (Updates, error) {
	if limit != 1 {
		return e.Updates(ctx, addr, after, 1)
	}
	inst, err := e.cfg.Store.Instance(ctx, addr)
	if err != nil {
		return Updates{}, err
	}
	if err := e.passed(ctx, addr, after+1, cause); err != nil {
		return Updates{}, err
	}
	return Updates{Incarnation: inst.Incarnation, Next: after + 1, UpToDate: after+1 >= inst.Head}, nil
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

// ErrDamaged is the error of waiting for an instance that was set aside because
// its journal cannot be continued, and of sending it a message.
var ErrDamaged = errors.New("the instance is set aside: its journal cannot be continued")

// Wait returns nil when the instance has a batch after the offset, and ctx's
// error if ctx ends first. It fails with ErrDamaged if none will come.
func (e *Engine) Wait(ctx context.Context, addr store.Address, after int64) error {
	inst, ok := e.hub.head(addr)
	if !ok {
		var err error
		if inst, err = e.cfg.Store.Instance(ctx, addr); err != nil {
			return err
		}
	}
	if inst.Head > after {
		return nil
	}
	broken := func() error {
		if err := e.slots.damage(addr); err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return nil
	}
	if err := e.hub.wait(ctx, e.ended, inst, after, broken); err != nil {
		return err
	}
	return broken()
}

// Snapshot returns the conversation up to its head.
func (e *Engine) Snapshot(ctx context.Context, addr store.Address) (*wire.Snapshot, error) {
	return e.SnapshotAfter(ctx, addr, int64(wire.Start), nil)
}

// SnapshotAfter returns what the batches after the offset add to a
// conversation: messages that began before it are missing. If each is not nil it
// is called with every change on the way.
func (e *Engine) SnapshotAfter(ctx context.Context, addr store.Address, after int64, each func(*wire.Chunk)) (*wire.Snapshot, error) {
	inst, err := e.cfg.Store.Instance(ctx, addr)
	if err != nil {
		return nil, err
	}
	var v wire.Conversation
	snap := &wire.Snapshot{V: 1, Incarnation: inst.Incarnation, ConversationID: project.ConversationID(inst.Incarnation)}
	for b, err := range store.Batches(ctx, e.cfg.Store, addr, after) {
		var unreadable *store.BatchError
		if err != nil && !errors.As(err, &unreadable) {
			return nil, err
		}
		var batch journal.Batch
		if err == nil {
			batch, err = decode(addr, b)
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
			if each != nil {
				each(&c)
			}
		}
		after = b.Offset
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
