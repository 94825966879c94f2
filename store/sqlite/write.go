package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/flue-go/flue/store"
)

// Admit implements [store.Store].
//
// Durability: when it returns nil, the submission survives what Options.Sync
// promises.
func (s *Store) Admit(ctx context.Context, a *store.Admission) (store.Receipt, error) {
	if err := a.Validate(); err != nil {
		return store.Receipt{}, err
	}
	size := len(a.Payload)
	if a.Birth != nil {
		size += len(a.Birth.Payload)
	}
	for _, at := range a.Attachments {
		size += len(at.Data)
	}
	var r store.Receipt
	if err := s.submit(ctx, size, func(w *writer) (err error) {
		r, err = w.admit(a)
		return err
	}); err != nil {
		return store.Receipt{}, err
	}
	return r, nil
}

func (w *writer) admit(a *store.Admission) (store.Receipt, error) {
	e, err := w.instance(a.Address)
	if err != nil {
		return store.Receipt{}, err
	}
	uid := ""
	if e != nil {
		uid = e.uid
		if r, ok, err := w.replay(e, a); ok || err != nil {
			return r, err
		}
	}
	if err := cmp.Or(a.CheckCondition(uid), w.attachable(e, a.Address, a.Attachments)); err != nil {
		return store.Receipt{}, err
	}

	created := e == nil
	if created {
		if e, err = w.create(a.Address, a.Birth); err != nil {
			return store.Receipt{}, err
		}
	}
	if err := w.attach(e, a.Attachments); err != nil {
		return store.Receipt{}, err
	}
	offset, err := w.append(e, 0, a.Payload)
	if err != nil {
		return store.Receipt{}, err
	}
	at := store.Timestamp(a.AcceptedAt)
	if _, err := w.exec(w.insertSubmission, e.id, a.Submission, offset, blob(a.Identity), at.UnixMicro()); err != nil {
		return store.Receipt{}, err
	}
	if err := w.count(e, 1); err != nil {
		return store.Receipt{}, err
	}
	if created {
		w.cache.put(e) // not before all of it has been written
	}

	r := receipt(e, a.Submission, offset, at)
	if epoch, ok := w.owners.Claim(e.id, a.Node); ok {
		r.Lease = &store.Lease{Address: a.Address, Node: a.Node, Epoch: epoch}
		w.given = append(w.given, grant{e.id, a.Node, epoch})
	}
	return r, nil
}

func receipt(e *entry, submission string, offset int64, at time.Time) store.Receipt {
	return store.Receipt{
		Submission: submission,
		UID:        e.uid,
		AcceptedAt: at,
		Before:     offset - 1,
		Offset:     offset,
		Created:    offset == 1, // only a birth comes before it
	}
}

// replay returns the receipt of an admission that was made before.
func (w *writer) replay(e *entry, a *store.Admission) (_ store.Receipt, ok bool, err error) {
	r, err := w.get(w.findSubmission, e.id, a.Submission)
	if r == nil || err != nil {
		return store.Receipt{}, false, err
	}
	var offset, at int64
	var identity []byte
	var outcome string
	if err := r.scan(&offset, &identity, &at, &outcome); err != nil {
		return store.Receipt{}, false, fmt.Errorf("submission %q of %v: %w", a.Submission, a.Address, err)
	}
	if !bytes.Equal(identity, a.Identity) {
		return store.Receipt{}, false, fmt.Errorf("submission %q of %v: %w", a.Submission, a.Address, store.ErrConflict)
	}
	first := receipt(e, a.Submission, offset, time.UnixMicro(at).UTC())
	first.Duplicate = true
	return first, true, nil
}

// attachable checks that every attachment id stands for one content. e is nil
// if the instance does not exist yet.
func (w *writer) attachable(e *entry, addr store.Address, as []store.Attachment) error {
	if len(as) == 0 {
		return nil
	}
	seen := make(map[string][]byte, len(as))
	for i := range as {
		at := &as[i]
		digest := seen[at.ID]
		if digest == nil && e != nil {
			r, err := w.get(w.findAttachment, e.id, at.ID)
			if err == nil && r != nil {
				err = r.scan(&digest)
			}
			if err != nil {
				return fmt.Errorf("attachment %q of %v: %w", at.ID, addr, err)
			}
		}
		if digest != nil && !bytes.Equal(digest, at.Digest[:]) {
			return fmt.Errorf("attachment %q of %v: %w", at.ID, addr, store.ErrConflict)
		}
		seen[at.ID] = at.Digest[:]
	}
	return nil
}

func (w *writer) attach(e *entry, as []store.Attachment) error {
	for i := range as {
		a := &as[i]
		digest := a.Digest[:sha256.Size:sha256.Size]
		if _, err := w.exec(w.insertBlob, e.id, digest, blob(a.Data)); err != nil {
			return err
		}
		if _, err := w.exec(w.insertAttachment, e.id, a.ID, a.MediaType, a.Filename, digest); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) create(addr store.Address, b *store.Birth) (*entry, error) {
	r, err := w.exec(w.insertInstance, addr.Agent, addr.ID, b.UID, b.Incarnation)
	if err != nil {
		return nil, err
	}
	id, err := r.LastInsertId()
	if err != nil {
		return nil, w.fail(err)
	}
	e := &entry{id: id, addr: clone(addr), uid: b.UID, head: -1}
	if _, err := w.append(e, 0, b.Payload); err != nil {
		return nil, err
	}
	return e, nil
}

// Abort implements [store.Store].
//
// Durability: when it returns nil, the abort survives what Options.Sync
// promises.
func (s *Store) Abort(ctx context.Context, addr store.Address, payload []byte) (bool, error) {
	if err := cmp.Or(addr.Validate(), store.ValidatePayload(payload)); err != nil {
		return false, err
	}
	var written bool
	err := s.submit(ctx, len(payload), func(w *writer) error {
		written = false // the group may be tried again
		e, err := w.instance(addr)
		if e == nil || err != nil || e.unsettled == 0 {
			return err
		}
		_, err = w.append(e, 0, payload)
		written = err == nil
		return err
	})
	return written && err == nil, err
}

// Append implements [store.Store].
//
// Durability: when it returns nil, the batch and its settlements survive what
// Options.Sync promises.
func (s *Store) Append(ctx context.Context, lease store.Lease, wr store.Write) (int64, error) {
	if err := wr.Validate(); err != nil {
		return 0, err
	}
	size := len(wr.Payload)
	for _, at := range wr.Attachments {
		size += len(at.Data)
	}
	var offset int64
	if err := s.submit(ctx, size, func(w *writer) (err error) {
		offset, err = w.appendOwned(lease, wr)
		return err
	}); err != nil {
		return 0, err
	}
	return offset, nil
}

func (w *writer) appendOwned(lease store.Lease, wr store.Write) (int64, error) {
	e, err := w.instance(lease.Address)
	if err != nil {
		return 0, err
	}
	if e == nil || !w.owners.Current(e.id, lease.Node, lease.Epoch) {
		return 0, fmt.Errorf("append to %v as epoch %d: %w", lease.Address, lease.Epoch, store.ErrFenced)
	}
	if err := cmp.Or(w.settleable(e, wr.Settle), w.attachable(e, lease.Address, wr.Attachments)); err != nil {
		return 0, err
	}
	if err := w.attach(e, wr.Attachments); err != nil {
		return 0, err
	}
	offset, err := w.append(e, lease.Epoch, wr.Payload)
	if err != nil || len(wr.Settle) == 0 {
		return offset, err
	}
	for _, st := range wr.Settle {
		if _, err := w.exec(w.settleSubmission, e.id, st.Submission, st.Outcome, offset); err != nil {
			return 0, err
		}
	}
	return offset, w.count(e, -int64(len(wr.Settle)))
}

// settleable checks that the submissions are open, each named once.
func (w *writer) settleable(e *entry, settle []store.Settlement) error {
	var seen map[string]struct{}
	if len(settle) > 1 {
		seen = make(map[string]struct{}, len(settle))
	}
	for _, st := range settle {
		r, err := w.get(w.findSubmission, e.id, st.Submission)
		if err != nil {
			return err
		}
		open := false
		if r != nil {
			var offset, at int64
			var identity []byte
			var outcome string
			if err := r.scan(&offset, &identity, &at, &outcome); err != nil {
				return fmt.Errorf("submission %q of %v: %w", st.Submission, e.addr, err)
			}
			open = outcome == ""
		}
		if _, twice := seen[st.Submission]; !open || twice {
			return fmt.Errorf("settle submission %q of %v: %w", st.Submission, e.addr, store.ErrSettled)
		}
		if seen != nil {
			seen[st.Submission] = struct{}{}
		}
	}
	return nil
}
