package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flue-go/flue/store"
)

var (
	_ store.Exporter = (*Store)(nil)
	_ store.Importer = (*Store)(nil)
)

const acceptedSQL = `
SELECT coalesce(u.id, ''), coalesce(u.pos, 0), coalesce(u.identity, ''), coalesce(u.accepted_at, 0), coalesce(u.outcome, ''), coalesce(u.settled_at, 0)
FROM @.instances i LEFT JOIN @.submissions u ON u.instance = i.id AND u.id > $3::text
WHERE i.agent = $1::text AND i.name = $2::text ORDER BY u.id LIMIT $4::bigint`

// Accepted implements [store.Exporter].
func (s *Store) Accepted(ctx context.Context, addr store.Address, after string, limit int) ([]store.Accepted, error) {
	var list []store.Accepted
	err := s.rowsOf(ctx, s.sql.accepted, addr, after, limit, func() { list = nil }, func(r pgx.Rows) error {
		var a store.Accepted
		var at int64
		err := r.Scan(&a.ID, &a.Offset, &a.Identity, &at, &a.Outcome, &a.SettledAt)
		if a.AcceptedAt = time.UnixMicro(at).UTC(); a.ID != "" {
			list = append(list, a)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("submissions of %v: %w", addr, err)
	}
	return list, nil
}

const attachedSQL = `
SELECT coalesce(a.id, '') FROM @.instances i LEFT JOIN @.attachments a ON a.instance = i.id AND a.id > $3::text
WHERE i.agent = $1::text AND i.name = $2::text ORDER BY a.id LIMIT $4::bigint`

// AttachmentIDs implements [store.Exporter].
func (s *Store) AttachmentIDs(ctx context.Context, addr store.Address, after string, limit int) ([]string, error) {
	var ids []string
	err := s.rowsOf(ctx, s.sql.attached, addr, after, limit, func() { ids = nil }, func(r pgx.Rows) error {
		var id string
		err := r.Scan(&id)
		if id != "" {
			ids = append(ids, id)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attachments of %v: %w", addr, err)
	}
	return ids, nil
}

// rowsOf runs a query that has at least one row for an instance that exists.
func (s *Store) rowsOf(ctx context.Context, query string, addr store.Address, after string, limit int, begin func(), scan func(pgx.Rows) error) error {
	if !storable(addr.Agent, addr.ID, after) {
		return s.closedOr(ctx, store.ErrNotFound)
	}
	found := false
	err := s.rows(ctx, func() { found = false; begin() }, func(r pgx.Rows) error {
		found = true
		return scan(r)
	}, query, addr.Agent, addr.ID, after, max(limit, 1))
	switch {
	case err == nil && !found:
		return store.ErrNotFound
	case limit < 1:
		begin()
	}
	return err
}

const importSQL = `
INSERT INTO @.instances (agent, name, uid, incarnation, head, unsettled, owner, epoch, ready_at)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::bigint, $6::bigint, '', 0, CASE WHEN $6::bigint > 0 THEN clock_timestamp() END)
ON CONFLICT (agent, name) DO NOTHING RETURNING id`

const (
	importBatchesSQL = `INSERT INTO @.batches (instance, pos, epoch, span, sum, payload)
		SELECT $1::bigint, * FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[])`
	importSubmissionsSQL = `INSERT INTO @.submissions (instance, id, pos, identity, accepted_at, outcome, settled_at)
		SELECT $1::bigint, * FROM unnest($2::text[], $3::bigint[], $4::bytea[], $5::bigint[], $6::text[], $7::bigint[])`
	importAttachmentSQL = `INSERT INTO @.attachments (instance, id, media_type, filename, digest) VALUES ($1::bigint, $2::text, $3::text, $4::text, $5::bytea)`
	importBlobSQL       = `INSERT INTO @.blobs (instance, digest, data) VALUES ($1::bigint, $2::bytea, $3::bytea) ON CONFLICT DO NOTHING`
)

// Import implements [store.Importer]. Options.Timeout bounds each of its statements,
// and the context all of it. With store.ErrUnavailable it may succeed later.
func (s *Store) Import(ctx context.Context, in store.Import) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	sound, err := store.NewSound(&in.Instance)
	if err != nil {
		return err
	}
	i := importer{ctx: ctx, sql: &s.sql, sound: sound, patience: s.opts.Timeout, lax: s.lax.Load()}
	waiting, cancel := i.bounded()
	defer cancel()
	c, err := s.pool.Acquire(waiting)
	if err != nil {
		return cmp.Or(ctx.Err(), unreached(err))
	}
	defer c.Release()
	if err := i.begin(c); err != nil {
		return cmp.Or(ctx.Err(), unfinished(err))
	}
	defer i.rollback()
	if err := i.all(&in); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("import %v: %w", in.Address, err)
	}
	if err := i.commit(); err != nil {
		return fmt.Errorf("import %v: %w", in.Address, answer(err))
	}
	s.commits.Add(1)
	s.grown(i.id, in.Address, in.Head)
	if in.Unsettled > 0 {
		s.signals.freed(i.id)
	}
	return nil
}

// An importer puts one instance into the tables, in one transaction.
type importer struct {
	ctx      context.Context
	tx       pgx.Tx
	sql      *statements
	sound    *store.Sound
	patience time.Duration // for each answer
	lax      bool          // see [Store.batch]
	id       int64
}

// bounded is for what has one answer.
func (i *importer) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(i.ctx, i.patience)
}

func (i *importer) begin(c *pgxpool.Conn) (err error) {
	ctx, cancel := i.bounded()
	defer cancel()
	i.tx, err = c.BeginTx(ctx, dialectOf(c.Conn()).transaction())
	return err
}

func (i *importer) commit() error {
	ctx, cancel := i.bounded()
	defer cancel()
	return i.tx.Commit(ctx)
}

// rollback ends what was not committed, whoever has given up.
func (i *importer) rollback() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(i.ctx), i.patience)
	defer cancel()
	_ = i.tx.Rollback(ctx)
}

func (i *importer) exec(query string, args ...any) error {
	ctx, cancel := i.bounded()
	defer cancel()
	if _, err := i.tx.Exec(ctx, query, args...); err != nil {
		return unfinished(err)
	}
	return nil
}

// value runs a statement that has one value, or none.
func (i *importer) value(into any, query string, args ...any) error {
	ctx, cancel := i.bounded()
	defer cancel()
	return i.tx.QueryRow(ctx, query, args...).Scan(into)
}

func (i *importer) all(in *store.Import) error {
	if i.lax {
		if err := i.exec(syncSQL); err != nil {
			return err
		}
	}
	err := i.value(&i.id, i.sql.importInstance, in.Agent, in.ID, in.UID, in.Incarnation, in.Head, in.Unsettled)
	if errors.Is(err, pgx.ErrNoRows) {
		return i.exists(in.Address)
	}
	if err != nil {
		return unfinished(err)
	}
	for _, part := range []func(*store.Import) error{i.batches, i.submissions, i.attachments} {
		if err := part(in); err != nil {
			return err
		}
	}
	if err := i.sound.End(); err != nil {
		return err
	}
	return i.exec(i.sql.importEpoch, i.id, i.sound.Epoch)
}

// exists refuses an instance that is there.
func (i *importer) exists(addr store.Address) error {
	e := &store.ConditionError{Address: addr, Exists: true}
	if err := i.value(&e.UID, i.sql.importFound, addr.Agent, addr.ID); err != nil {
		return unfinished(err)
	}
	return e
}

// importPage is how many rows one statement inserts, and how many bytes about.
const (
	importPage  = 1000
	importBytes = 4 << 20
)

func (i *importer) batches(in *store.Import) error {
	var offsets, epochs, spans, sums []int64
	var payloads [][]byte
	size := 0
	flush := func() error {
		if len(offsets) == 0 {
			return nil
		}
		err := i.exec(i.sql.importBatches, i.id, offsets, epochs, spans, sums, payloads)
		offsets, epochs, spans, sums, payloads, size = offsets[:0], epochs[:0], spans[:0], sums[:0], payloads[:0], 0
		return err
	}
	for b, err := range in.Batches {
		if err == nil {
			err = i.sound.Batch(&b)
		}
		if err == nil && (len(offsets) == importPage || size+len(b.Payload) > importBytes) {
			err = flush()
		}
		if err != nil {
			return err
		}
		offsets, epochs, spans = append(offsets, b.Offset), append(epochs, b.Epoch), append(spans, b.Span)
		sums = append(sums, sum(contentSum(b.Epoch, b.Span, b.Payload), i.id, b.Offset))
		payloads = append(payloads, blob(b.Payload))
		size += len(b.Payload)
	}
	return flush()
}

func (i *importer) submissions(in *store.Import) error {
	var ids, outcomes []string
	var offsets, accepted, settled []int64
	var identities [][]byte
	flush := func() error {
		if len(ids) == 0 {
			return nil
		}
		err := i.exec(i.sql.importSubmissions, i.id, ids, offsets, identities, accepted, outcomes, settled)
		ids, offsets, identities, accepted, outcomes, settled = ids[:0], offsets[:0], identities[:0], accepted[:0], outcomes[:0], settled[:0]
		return err
	}
	for a, err := range in.Submissions {
		if err == nil {
			err = i.sound.Submission(&a)
		}
		if err == nil && len(ids) == importPage {
			err = flush()
		}
		if err != nil {
			return err
		}
		ids, offsets, identities = append(ids, a.ID), append(offsets, a.Offset), append(identities, blob(a.Identity))
		accepted, outcomes, settled = append(accepted, a.AcceptedAt.UnixMicro()), append(outcomes, a.Outcome), append(settled, a.SettledAt)
	}
	return flush()
}

func (i *importer) attachments(in *store.Import) error {
	seen := make(map[[sha256.Size]byte]bool)
	for a, err := range in.Attachments {
		if err == nil {
			err = i.sound.Attachment(&a)
		}
		if err == nil {
			err = i.exec(i.sql.importAttachment, i.id, a.ID, a.MediaType, a.Filename, a.Digest[:])
		}
		if err == nil && !seen[a.Digest] {
			seen[a.Digest] = true
			err = i.exec(i.sql.importBlob, i.id, a.Digest[:], blob(a.Data))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
