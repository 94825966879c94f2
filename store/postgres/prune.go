package postgres

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/flue-go/flue/store"
)

var _ store.Pruner = (*Store)(nil)

// Prune implements [store.Pruner]. The room that it frees is used again once the
// tables have been vacuumed.
//
// It looks at the batches before it locks the row, so that the owner's appends are
// not kept waiting for longer than the replacement takes. Under the lock it makes
// sure that they are still as many.
func (s *Store) Prune(ctx context.Context, lease store.Lease, runs []store.Run) error {
	size := 0
	for i := range runs {
		size += len(runs[i].Payload)
	}
	if err := cmp.Or(store.ValidateRuns(runs), sendable(size)); err != nil {
		return err
	}
	err := s.prune(ctx, lease, runs)
	if err != nil {
		return fmt.Errorf("prune %v as epoch %d: %w", lease.Address, lease.Epoch, err)
	}
	return nil
}

func (s *Store) prune(ctx context.Context, lease store.Lease, runs []store.Run) error {
	if !plausible(lease) {
		return s.closedOr(ctx, store.ErrFenced)
	}
	return s.call(ctx, s.writing(), func(ctx context.Context, c *pgx.Conn) error {
		id, head, err := s.owned(ctx, c, lease)
		if err != nil {
			return err
		}
		r, err := s.replacements(ctx, c, id, head, runs)
		if err != nil || len(runs) == 0 {
			return err
		}
		b := s.batch()
		b.Queue(s.sql.lock, lease.Agent, lease.ID)
		current, replaced := false, 0
		b.Queue(s.sql.replace, id, lease.Node, lease.Epoch, r.from, r.to, r.count, r.sums, r.payloads).QueryRow(func(row pgx.Row) error {
			return row.Scan(&current, &replaced)
		})
		err = answer(c.SendBatch(ctx, b).Close())
		switch {
		case err != nil:
			return err
		case !current:
			return store.ErrFenced
		case replaced != len(runs):
			return fmt.Errorf("%w: the batches of a run have changed meanwhile", store.ErrInvalid)
		}
		s.commits.Add(1)
		return nil
	})
}

const ownedSQL = `SELECT id, head FROM @.instances WHERE agent = $1::text AND name = $2::text AND owner = $3::text AND epoch = $4::bigint`

func (s *Store) owned(ctx context.Context, c *pgx.Conn, lease store.Lease) (id, head int64, err error) {
	found, err := one(ctx, c, s.sql.owned, []any{lease.Agent, lease.ID, lease.Node, lease.Epoch}, []any{&id, &head})
	if err == nil && !found {
		err = store.ErrFenced
	}
	return id, head, err
}

// replacements are runs as columns.
type replacements struct {
	from, to, count, sums []int64
	payloads              [][]byte
}

const withinSQL = `
SELECT r.run - 1, b.pos, b.epoch, b.span FROM unnest($2::bigint[], $3::bigint[]) WITH ORDINALITY AS r(start, stop, run)
JOIN @.batches b ON b.instance = $1::bigint AND b.pos BETWEEN r.start AND r.stop ORDER BY b.pos`

// replacements checks the runs of an instance against its batches.
func (s *Store) replacements(ctx context.Context, c *pgx.Conn, id, head int64, runs []store.Run) (r replacements, err error) {
	for i := range runs {
		r.from, r.to = append(r.from, runs[i].From), append(r.to, runs[i].To)
	}
	within := make([][]store.Batch, len(runs))
	err = each(ctx, c, func(rows pgx.Rows) error {
		var i int
		var b store.Batch
		err := rows.Scan(&i, &b.Offset, &b.Epoch, &b.Span)
		if err == nil {
			within[i] = append(within[i], b)
		}
		return err
	}, s.sql.within, id, r.from, r.to)
	if err != nil {
		return r, err
	}
	for i := range runs {
		if err := runs[i].Check(within[i], head); err != nil {
			return r, err
		}
		run, first := &runs[i], within[i][0]
		span := run.To - run.From
		r.count = append(r.count, int64(len(within[i])))
		r.sums = append(r.sums, sum(contentSum(first.Epoch, span, run.Payload), id, run.From))
		r.payloads = append(r.payloads, blob(run.Payload))
	}
	return r, nil
}

// replaceSQL replaces all runs or none, behind lockSQL, and only while they are
// made of as many batches as they were: another call of the same owner may have
// been before this one.
const replaceSQL = `
WITH l AS MATERIALIZED (
	SELECT id FROM @.instances WHERE id = $1::bigint AND owner = $2::text AND epoch = $3::bigint
), r AS MATERIALIZED (
	SELECT * FROM unnest($4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[]) AS r(start, stop, batches, sum, payload)
), fit AS MATERIALIZED (
	SELECT NOT EXISTS (SELECT 1 FROM r WHERE r.batches <>
		(SELECT count(*) FROM @.batches b WHERE b.instance = $1::bigint AND b.pos BETWEEN r.start AND r.stop)) AS yes
), gone AS (
	DELETE FROM @.batches b USING l, r, fit WHERE fit.yes AND b.instance = l.id AND b.pos > r.start AND b.pos <= r.stop
), placed AS (
	UPDATE @.batches b SET sum = r.sum, payload = r.payload, span = r.stop - r.start
	FROM l, r, fit WHERE fit.yes AND b.instance = l.id AND b.pos = r.start
	RETURNING b.pos
)
SELECT EXISTS (SELECT 1 FROM l), (SELECT count(*) FROM placed)`
