package postgres

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flue-go/flue/store"
)

// maxPage bounds the batches of a page, so that the statement does not look at the
// whole of a long journal for the first part of it.
const maxPage = 4096

// readSQL reads a page and its row, as one statement and so as of one moment. It
// adds sizes up before it fetches any payload: PostgreSQL keeps large ones apart,
// with their sizes in the row.
//
//	behind: where what precedes the page ends
//	seen:   how many batches the bound by number leaves
const readSQL = `
SELECT i.id, i.uid, i.incarnation, i.head, i.unsettled,
	coalesce((SELECT p.pos + p.span FROM @.batches p WHERE p.instance = i.id AND p.pos <= $3::bigint ORDER BY p.pos DESC LIMIT 1), $3::bigint) AS behind,
	coalesce(b.seen, 0), coalesce(b.pos, 0), coalesce(b.epoch, 0), coalesce(b.span, 0), coalesce(b.sum, 0), coalesce(b.payload, '')
FROM @.instances i LEFT JOIN LATERAL (
	SELECT * FROM (
		SELECT x.*, count(*) OVER () AS seen, row_number() OVER w AS n, sum(octet_length(x.payload)) OVER w AS size
		FROM (
			SELECT pos, epoch, span, sum, payload FROM @.batches
			WHERE instance = i.id AND pos > $3::bigint AND pos <= i.head ORDER BY pos LIMIT $4::bigint
		) x WINDOW w AS (ORDER BY x.pos ROWS UNBOUNDED PRECEDING)
	) y WHERE y.n = 1 OR y.size <= %d
) b ON true
WHERE i.agent = $1::text AND i.name = $2::text ORDER BY b.pos`

// Read implements [store.Store].
func (s *Store) Read(ctx context.Context, addr store.Address, after int64, limit int) (store.Page, error) {
	p, err := s.page(ctx, addr, max(after, -1), limit)
	if err != nil {
		return store.Page{}, fmt.Errorf("read %v: %w", addr, advise(err))
	}
	return p, nil
}

func (s *Store) page(ctx context.Context, addr store.Address, after int64, limit int) (p store.Page, err error) {
	if !storable(addr.Agent, addr.ID) {
		return p, s.closedOr(ctx, store.ErrNotFound)
	}
	if limit < 1 || limit > maxPage {
		limit = maxPage
	}
	found, next, seen := false, int64(0), int64(0)
	err = s.call(ctx, s.reading(), func(ctx context.Context, c *pgx.Conn) error {
		p, found = store.Page{}, false
		return each(ctx, c, func(rows pgx.Rows) error {
			var b store.Batch
			var id, check, behind int64
			in := store.Instance{Address: addr}
			if err := rows.Scan(&id, &in.UID, &in.Incarnation, &in.Head, &in.Unsettled, &behind,
				&seen, &b.Offset, &b.Epoch, &b.Span, &check, &b.Payload); err != nil {
				return err
			}
			if !found {
				found, next, p.Instance = true, max(after, behind)+1, in
			}
			if seen == 0 {
				return nil // the row has no batch
			}
			if b.Offset != next {
				return missing(next)
			}
			if check != sum(contentSum(b.Epoch, b.Span, b.Payload), id, b.Offset) {
				return fmt.Errorf("%w: batch %d does not match its checksum", store.ErrCorrupt, b.Offset)
			}
			p.Batches = append(p.Batches, b)
			next = b.Last() + 1
			return nil
		}, s.sql.read, addr.Agent, addr.ID, after, limit)
	})
	switch {
	case err != nil:
		return p, err
	case !found:
		return p, store.ErrNotFound
	case int(seen) == len(p.Batches) && len(p.Batches) < limit && after < p.Head && next <= p.Head:
		return p, missing(next)
	}
	return p, nil
}

func missing(offset int64) error {
	return fmt.Errorf("%w: batch %d is missing", store.ErrCorrupt, offset)
}

// advise says what to do about damage that was found in an instance.
func advise(err error) error {
	if errors.Is(err, store.ErrCorrupt) {
		return fmt.Errorf("%w; restore a backup to get it back; other instances are not concerned", err)
	}
	return err
}

// Instance implements [store.Store].
func (s *Store) Instance(ctx context.Context, addr store.Address) (store.Instance, error) {
	in := store.Instance{Address: addr}
	err := s.row(ctx, s.sql.instance, []any{addr.Agent, addr.ID}, []any{&in.UID, &in.Incarnation, &in.Head, &in.Unsettled})
	if err != nil {
		return store.Instance{}, fmt.Errorf("instance %v: %w", addr, err)
	}
	return in, nil
}

const submissionSQL = `
SELECT u.pos, u.accepted_at, u.outcome, u.settled_at FROM @.instances i JOIN @.submissions u ON u.instance = i.id
WHERE i.agent = $1::text AND i.name = $2::text AND u.id = $3::text`

// Submission implements [store.Store].
func (s *Store) Submission(ctx context.Context, addr store.Address, id string) (store.Submission, error) {
	sub := store.Submission{ID: id}
	var at int64
	err := s.row(ctx, s.sql.submission, []any{addr.Agent, addr.ID, id}, []any{&sub.Offset, &at, &sub.Outcome, &sub.SettledAt})
	if err != nil {
		return store.Submission{}, fmt.Errorf("submission %q of %v: %w", id, addr, err)
	}
	sub.AcceptedAt = time.UnixMicro(at).UTC()
	return sub, nil
}

const attachmentSQL = `
SELECT a.media_type, a.filename, a.digest, b.data FROM @.instances i
JOIN @.attachments a ON a.instance = i.id LEFT JOIN @.blobs b ON b.instance = a.instance AND b.digest = a.digest
WHERE i.agent = $1::text AND i.name = $2::text AND a.id = $3::text`

// Attachment implements [store.Store].
func (s *Store) Attachment(ctx context.Context, addr store.Address, id string) (store.Attachment, error) {
	a := store.Attachment{ID: id}
	var digest []byte
	err := s.row(ctx, s.sql.attachment, []any{addr.Agent, addr.ID, id}, []any{&a.MediaType, &a.Filename, &digest, &a.Data})
	if err == nil {
		if n := copy(a.Digest[:], digest); n != len(a.Digest) || sha256.Sum256(a.Data) != a.Digest {
			err = fmt.Errorf("%w: the data does not match its digest", store.ErrCorrupt)
		}
	}
	if err != nil {
		return store.Attachment{}, fmt.Errorf("attachment %q of %v: %w", id, addr, advise(err))
	}
	return a, nil
}

const instancesSQL = `
SELECT agent, name, uid, incarnation, head, unsettled FROM @.instances
WHERE (agent, name) > ($1::text, $2::text) ORDER BY agent, name LIMIT $3::bigint`

// Instances implements [store.Lister].
func (s *Store) Instances(ctx context.Context, after store.Address, limit int) ([]store.Instance, error) {
	var rows []store.Instance
	err := s.rows(ctx, func() { rows = nil }, func(r pgx.Rows) error {
		var in store.Instance
		err := r.Scan(&in.Agent, &in.ID, &in.UID, &in.Incarnation, &in.Head, &in.Unsettled)
		rows = append(rows, in)
		return err
	}, s.sql.instances, after.Agent, after.ID, min(max(int64(limit), 0), math.MaxInt32))
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	return rows, nil
}

const unsettledSQL = `
SELECT coalesce(u.id, ''), coalesce(u.pos, 0), coalesce(u.accepted_at, 0) FROM @.instances i
LEFT JOIN @.submissions u ON u.instance = i.id AND u.outcome = ''
WHERE i.agent = $1::text AND i.name = $2::text ORDER BY u.pos`

// Unsettled implements [store.Lister].
func (s *Store) Unsettled(ctx context.Context, addr store.Address) ([]store.Submission, error) {
	open, found := []store.Submission(nil), false
	if !storable(addr.Agent, addr.ID) {
		return nil, s.closedOr(ctx, store.ErrNotFound)
	}
	err := s.rows(ctx, func() { open, found = nil, false }, func(r pgx.Rows) error {
		var sub store.Submission
		var at int64
		err := r.Scan(&sub.ID, &sub.Offset, &at)
		sub.AcceptedAt = time.UnixMicro(at).UTC()
		if found = true; sub.ID != "" {
			open = append(open, sub)
		}
		return err
	}, s.sql.unsettled, addr.Agent, addr.ID)
	if err == nil && !found {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("unsettled submissions of %v: %w", addr, err)
	}
	return open, nil
}
