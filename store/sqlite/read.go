package sqlite

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"time"

	"github.com/flue-go/flue/store"
)

// A reader is a connection that can only read.
type reader struct {
	conn                                            *conn
	instance, batches, submission, attachment, open *stmt
	instances, unsettled                            *stmt // for a Lister
	accepted, attached                              *stmt // for an Exporter
	checkpoint                                      *stmt // nil if the file is of a version that had none
}

func newReader(file string) (*reader, error) {
	c, err := dial(file, readOnly)
	if err != nil {
		return nil, err
	}
	r := &reader{conn: c}
	err = c.exec(context.Background(), "PRAGMA busy_timeout = 5000", "PRAGMA trusted_schema = OFF")
	for _, p := range []struct {
		stmt  **stmt
		query string
	}{
		{&r.instance, `SELECT id, uid, incarnation, unsettled, (SELECT max(offset) FROM batches WHERE instance = instances.id)
			FROM instances WHERE agent = ?1 AND name = ?2`},
		{&r.submission, `SELECT s.offset, s.accepted_at, s.outcome, s.settled_at
			FROM instances i JOIN submissions s ON s.instance = i.id WHERE i.agent = ?1 AND i.name = ?2 AND s.id = ?3`},
		{&r.attachment, `SELECT a.media_type, a.filename, a.digest, b.data
			FROM instances i JOIN attachments a ON a.instance = i.id
			JOIN blobs b ON b.instance = a.instance AND b.digest = a.digest
			WHERE i.agent = ?1 AND i.name = ?2 AND a.id = ?3`},
		{&r.open, `SELECT id FROM instances WHERE unsettled > 0 AND id > ?1 ORDER BY id`},
		{&r.instances, `SELECT agent, name FROM instances WHERE (agent, name) > (?1, ?2) ORDER BY agent, name LIMIT ?3`},
		{&r.unsettled, `SELECT s.id, s.offset, s.accepted_at
			FROM instances i JOIN submissions s ON s.instance = i.id
			WHERE i.agent = ?1 AND i.name = ?2 AND s.outcome = '' ORDER BY s.offset`},
		{&r.accepted, `SELECT s.id, s.offset, s.identity, s.accepted_at, s.outcome, s.settled_at
			FROM instances i JOIN submissions s ON s.instance = i.id
			WHERE i.agent = ?1 AND i.name = ?2 AND s.id > ?3 ORDER BY s.id LIMIT ?4`},
		{&r.attached, `SELECT a.id FROM instances i JOIN attachments a ON a.instance = i.id
			WHERE i.agent = ?1 AND i.name = ?2 AND a.id > ?3 ORDER BY a.id LIMIT ?4`},
	} {
		if err == nil {
			*p.stmt, err = c.prepare(p.query)
		}
	}
	if err == nil {
		err = r.prepareVersion()
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return r, nil
}

// prepareVersion prepares what depends on the version of the file, which is an
// older one if it is only read.
func (r *reader) prepareVersion() error {
	var version int64
	if err := r.conn.value("PRAGMA user_version", &version); err != nil {
		return err
	}
	var err error
	if version < 2 {
		r.batches, err = r.conn.prepare(`SELECT offset, epoch, sum, payload, 0, ?2 FROM batches
			WHERE instance = ?1 AND offset > ?2 AND offset <= ?3 ORDER BY offset LIMIT ?4`)
		return err
	}
	// The last column is where what precedes the page ends: in the same statement,
	// so that all of it is of one moment.
	r.batches, err = r.conn.prepare(`SELECT offset, epoch, sum, payload, span,
			coalesce((SELECT offset + span FROM batches WHERE instance = ?1 AND offset <= ?2 ORDER BY offset DESC LIMIT 1), ?2)
		FROM batches WHERE instance = ?1 AND offset > ?2 AND offset <= ?3 ORDER BY offset LIMIT ?4`)
	if err != nil {
		return err
	}
	r.checkpoint, err = r.conn.prepare(`SELECT c.instance, c.offset, c.sum, c.data
		FROM instances i JOIN checkpoints c ON c.instance = i.id
		WHERE i.agent = ?1 AND i.name = ?2 AND c.offset <= ?3 ORDER BY c.offset DESC LIMIT 1`)
	return err
}

// read runs fn with a reader, once one is free.
func (s *Store) read(ctx context.Context, fn func(*reader) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	var r *reader
	select {
	case r = <-s.readers:
	case <-ctx.Done():
		return ctx.Err()
	}
	// Back goes the reader, or the permission to open one.
	defer func() { s.readers <- r }()
	if r == nil {
		var err error
		if r, err = newReader(s.file); err != nil {
			return err
		}
	}
	err := fn(r)
	if code(err) >= 0 {
		// It is unclear what state the connection is in.
		_ = r.conn.close()
		r = nil
	}
	return err
}

// Instance implements [store.Store].
func (s *Store) Instance(ctx context.Context, addr store.Address) (in store.Instance, err error) {
	err = s.read(ctx, func(r *reader) error {
		in, _, err = r.row(addr)
		return err
	})
	return in, err
}

// row returns the row of an instance and its id in the file.
func (r *reader) row(addr store.Address) (in store.Instance, id int64, err error) {
	row, err := r.instance.get(addr.Agent, addr.ID)
	if err == nil && row == nil {
		err = store.ErrNotFound
	}
	in.Address = addr
	if err == nil {
		var unsettled int64
		err = row.scan(&id, &in.UID, &in.Incarnation, &unsettled, &in.Head)
		in.Unsettled = int(unsettled)
	}
	if err != nil {
		return store.Instance{}, 0, advise(fmt.Errorf("instance %v: %w", addr, err))
	}
	return in, id, nil
}

// Read implements [store.Store].
func (s *Store) Read(ctx context.Context, addr store.Address, after int64, limit int) (p store.Page, err error) {
	err = s.read(ctx, func(r *reader) error {
		p, err = r.page(addr, max(after, -1), limit)
		return err
	})
	if err != nil {
		return store.Page{}, advise(fmt.Errorf("read %v: %w", addr, err))
	}
	return p, nil
}

// page reads a page. No transaction is needed: the batches are of one moment, and
// none of those up to the head of the row is gone since the row was read.
func (r *reader) page(addr store.Address, after int64, limit int) (p store.Page, err error) {
	var id int64
	if p.Instance, id, err = r.row(addr); err != nil || after >= p.Head {
		return p, err
	}
	if limit < 1 {
		limit = -1 // none
	}
	next, size, full := after+1, 0, false
	err = r.batches.each(func(row row) error {
		var b store.Batch
		var sum, before int64
		if err := row.scan(&b.Offset, &b.Epoch, &sum, &b.Payload, &b.Span, &before); err != nil {
			return err
		}
		if len(p.Batches) == 0 {
			next = max(next, before+1) // after may lie within what a batch stands for
		}
		if b.Offset != next {
			return fmt.Errorf("%w: batch %d is missing", store.ErrCorrupt, next)
		}
		if sum != spanSum(id, b.Offset, b.Epoch, b.Span, b.Payload) {
			return fmt.Errorf("%w: batch %d does not match its checksum", store.ErrCorrupt, b.Offset)
		}
		if size += len(b.Payload); size > store.PageBytes && len(p.Batches) > 0 {
			full = true
			return io.EOF
		}
		p.Batches = append(p.Batches, b)
		next = b.Last() + 1
		return nil
	}, id, after, p.Head, int64(limit))
	if err == nil && !full && next <= p.Head && len(p.Batches) != limit {
		err = fmt.Errorf("%w: batch %d is missing", store.ErrCorrupt, next)
	}
	return p, err
}

// Submission implements [store.Store].
func (s *Store) Submission(ctx context.Context, addr store.Address, id string) (sub store.Submission, err error) {
	err = s.read(ctx, func(r *reader) error {
		row, err := r.submission.get(addr.Agent, addr.ID, id)
		if err != nil {
			return err
		}
		if row == nil {
			return store.ErrNotFound
		}
		var at int64
		err = row.scan(&sub.Offset, &at, &sub.Outcome, &sub.SettledAt)
		sub.ID, sub.AcceptedAt = id, time.UnixMicro(at).UTC()
		return err
	})
	if err != nil {
		return store.Submission{}, advise(fmt.Errorf("submission %q of %v: %w", id, addr, err))
	}
	return sub, nil
}

// Attachment implements [store.Store].
func (s *Store) Attachment(ctx context.Context, addr store.Address, id string) (a store.Attachment, err error) {
	err = s.read(ctx, func(r *reader) error {
		row, err := r.attachment.get(addr.Agent, addr.ID, id)
		if err != nil {
			return err
		}
		if row == nil {
			return store.ErrNotFound
		}
		var digest []byte
		if err := row.scan(&a.MediaType, &a.Filename, &digest, &a.Data); err != nil {
			return err
		}
		a.ID = id
		if n := copy(a.Digest[:], digest); n != len(a.Digest) || sha256.Sum256(a.Data) != a.Digest {
			return fmt.Errorf("%w: the data does not match its digest", store.ErrCorrupt)
		}
		return nil
	})
	if err != nil {
		return store.Attachment{}, advise(fmt.Errorf("attachment %q of %v: %w", id, addr, err))
	}
	return a, nil
}
