package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flue-go/flue/internal/project"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/wire"
)

func entryID(submission string) string { return project.EntryID(submission) }

// stage applies records to the state and keeps them for the next commit. An
// error means that the driver broke a rule; nothing that was staged with it is
// durable, and the driver must end.
func (d *driver) stage(records ...journal.Record) error {
	for _, r := range records {
		if err := d.state.Apply(r); err != nil {
			return &fault{fmt.Errorf("staging for %s: %w", d.slot.addr, err)}
		}
		d.staged = append(d.staged, r)
		d.tellRecord(r)
		switch r.(type) {
		case *journal.Entry, *journal.State, *journal.ToolBatch:
			d.current = false
		case *journal.Compacted:
			d.forget()
		}
	}
	return nil
}

// A fault is a mistake of the driver. It hides the rule that was broken from
// isDamage: the journal itself is sound, since nothing was appended.
type fault struct{ err error }

func (f *fault) Error() string { return f.err.Error() }

func isFault(err error) bool {
	var f *fault
	return errors.As(err, &f)
}

// emit keeps an event until what is staged is durable.
func (d *driver) emit(ev Event) {
	ev.Time, ev.Instance = time.Now(), d.slot.addr
	if ev.Submission == "" && d.state.Active != nil {
		ev.Submission = d.state.Active.Submission
	}
	d.events = append(d.events, ev)
}

// commit appends what is staged as one batch, then tells readers and
// observers. After an error the driver does not know what is durable.
func (d *driver) commit() error {
	if len(d.staged) > 0 {
		return d.append()
	}
	d.tellEvents()
	return nil
}

// tellEvents tells observers what is durable by now.
func (d *driver) tellEvents() {
	for _, ev := range d.events {
		d.e.cfg.Observe(ev)
	}
	d.events = d.events[:0]
}

func (d *driver) append() error {
	batch := journal.Batch{At: d.e.Now(), Records: d.staged}
	w := store.Write{Attachments: d.attached}
	for _, r := range batch.Records {
		if s, ok := r.(*journal.Settled); ok {
			w.Settle = append(w.Settle, store.Settlement{Submission: s.Submission, Outcome: s.Outcome})
		}
	}
	var err error
	if w.Payload, err = journal.Encode(batch); err != nil {
		return &fault{err}
	}
	if err := d.holds(); err != nil {
		return fmt.Errorf("appending to the journal of %s: %w", d.slot.addr, err)
	}
	offset, err := d.e.cfg.Store.Append(d.storeContext(), d.lease, w)
	if err != nil {
		d.e.hub.doubt(d.slot.addr) // it may be there all the same
		return fmt.Errorf("appending to the journal of %s: %w", d.slot.addr, err)
	}
	d.appended = true
	// Observers come after readers, and whatever fails from here on: no other driver
	// tells them.
	defer d.tellEvents()
	chunks, err := d.advance(offset, batch)
	if err != nil {
		d.e.hub.forget(d.slot.addr) // nobody publishes it
		return err
	}
	d.e.hub.publish(d.slot.addr, d.state.Born.Incarnation, offset, encodeChunks(chunks))
	d.staged, d.attached = nil, nil
	d.idle = 0
	d.noticeAbort()
	d.slot.moved(d.state)
	d.backlog.add(len(batch.Records), len(w.Payload))
	d.streamed(offset, batch)
	d.checkpoint(batch)
	return nil
}

// advance brings the state to a batch that was appended, and returns what readers are
// sent of that.
func (d *driver) advance(offset int64, batch journal.Batch) ([]wire.Chunk, error) {
	if err := d.catchUp(offset); err != nil {
		return nil, err
	}
	d.state.Advance(offset)
	d.slot.knows(offset)
	return d.e.chunks(d.storeContext(), d.slot.addr, d.state.Born.Incarnation, offset, batch)
}

// storeContext is the context of the driver's own reads and writes. They are
// short, and are finished even while the engine is being closed.
func (d *driver) storeContext() context.Context { return d.e.writes }

// intake folds what has arrived for the instance since the last act.
func (d *driver) intake() error {
	for _, in := range d.slot.take() {
		switch {
		case in.offset <= d.state.Head:
		case in.offset == d.state.Head+1 && len(in.batch.Records) > 0:
			if err := apply(d.state, d.slot.addr, in.offset, in.batch); err != nil {
				return err
			}
			d.backlog.add(len(in.batch.Records), in.size)
		default: // told of out of order
			if err := d.catchUp(in.offset + 1); err != nil {
				return err
			}
		}
	}
	d.noticeAbort()
	return nil
}

// noticeAbort stops the work on the active submission if an abort covers it.
func (d *driver) noticeAbort() {
	if d.attempt != nil && d.state.Active != nil && d.state.Active.Aborted {
		d.cancel(errAborted)
	}
}

// catchUp folds the batches between the head and the offset, which others have
// taken in.
func (d *driver) catchUp(offset int64) error {
	for d.state.Head+1 < offset {
		page, err := d.e.cfg.Store.Read(d.storeContext(), d.slot.addr, d.state.Head, int(min(offset-d.state.Head-1, loadPage)))
		if err != nil {
			return fmt.Errorf("reading the journal of %s: %w", d.slot.addr, err)
		}
		if len(page.Batches) == 0 {
			return fmt.Errorf("reading the journal of %s: %w: nothing at offset %d", d.slot.addr, store.ErrCorrupt, d.state.Head+1)
		}
		for _, b := range page.Batches {
			batch, err := journal.Decode(b.Payload)
			if err != nil {
				return fmt.Errorf("offset %d of %s: %w", b.Offset, d.slot.addr, err)
			}
			if err := apply(d.state, d.slot.addr, b.Offset, batch); err != nil {
				return err
			}
			d.e.hub.publishKnown(d.slot.addr, "", b.Offset, batch) // it was taken in elsewhere
			d.backlog.add(len(batch.Records), len(b.Payload))
		}
	}
	return nil
}
