package postgres

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flue-go/flue/store"
)

// admitSQL admits one submission.
//
//	me:    whether the node lives that the instance may be given to
//	s:     the instance, as of the statement's beginning
//	old:   the admission that was made before under the same id
//	clash: an attachment whose id stands for other bytes
//	born:  the instance, if this creates it
//	l:     the instance, if it could be locked at once and is still the same
//	k:     the same, and what becomes of its ownership
//	t:     where the batch goes
//
// Its arguments:
//
//	$1 to $2   agent and id of the instance
//	$3 to $5   id, identity and time of the submission
//	$6 to $7   the batch and its sum
//	$8 to $9   the condition: that it creates, that the instance has the uid
//	$10 to $13 uid, incarnation, batch and sum of a birth; no uid means none
//	$14        the node that the instance may be given to; none if it is empty
//	$15        one of the attachment ids stands for two contents
//	$16 to $19 attachments, as columns: id, media type, filename and digest
//	$20 to $21 the bytes of each digest once, as columns
//
// Nothing can refuse an admission that creates the instance, so a refused one does
// not leave it behind.
const admitSQL = `
WITH me AS MATERIALIZED (
	SELECT EXISTS (SELECT 1 FROM @.nodes WHERE name = $14::text AND lapses_at > clock_timestamp()) AS live
), s AS MATERIALIZED (
	SELECT id, uid, owner, epoch, head FROM @.instances WHERE agent = $1::text AND name = $2::text
), old AS MATERIALIZED (
	SELECT u.pos, u.identity, u.accepted_at FROM s JOIN @.submissions u ON u.instance = s.id AND u.id = $3::text
), n AS MATERIALIZED (
	SELECT * FROM unnest($16::text[], $17::text[], $18::text[], $19::bytea[]) AS n(id, media_type, filename, digest)
), clash AS MATERIALIZED (
	SELECT 1 FROM s CROSS JOIN n JOIN @.attachments a ON a.instance = s.id AND a.id = n.id
	WHERE a.digest <> n.digest LIMIT 1
), born AS (
	INSERT INTO @.instances (agent, name, uid, incarnation, head, unsettled, owner, epoch, ready_at)
	SELECT $1::text, $2::text, $10::text, $11::text, 1, 1,
		CASE WHEN me.live THEN $14::text ELSE '' END, CASE WHEN me.live THEN 1 ELSE 0 END, clock_timestamp()
	FROM me WHERE $10::text <> '' AND $9::text = '' AND NOT $15::boolean AND NOT EXISTS (SELECT 1 FROM s)
	ON CONFLICT (agent, name) DO NOTHING
	RETURNING id, epoch
), l AS MATERIALIZED (
	SELECT i.id, i.owner, i.epoch, i.head FROM s
	JOIN @.instances i ON i.id = s.id AND i.owner = s.owner AND i.epoch = s.epoch AND i.head = s.head
	WHERE NOT EXISTS (SELECT 1 FROM old) AND NOT EXISTS (SELECT 1 FROM clash) AND NOT $15::boolean
		AND NOT $8::boolean AND ($9::text = '' OR $9::text = s.uid)
	FOR UPDATE OF i SKIP LOCKED
), k AS MATERIALIZED (
	SELECT l.id, l.epoch, l.head,
		EXISTS (SELECT 1 FROM @.nodes o WHERE o.name = l.owner AND o.lapses_at > clock_timestamp()) AS owned
	FROM l
), t AS MATERIALIZED (
	SELECT k.id, k.head + 1 AS pos, k.owned, CASE WHEN me.live AND NOT k.owned THEN k.epoch + 1 ELSE 0 END AS given FROM k, me
	UNION ALL SELECT born.id, 1, false, born.epoch FROM born
), batch AS (
	INSERT INTO @.batches (instance, pos, epoch, span, sum, payload)
	SELECT t.id, t.pos, 0, 0, %[1]s, $6::bytea FROM t
	UNION ALL SELECT b.id, 0, 0, 0, %[2]s, $12::bytea FROM born b
), row AS (
	UPDATE @.instances i SET head = t.pos, unsettled = i.unsettled + 1, ready_at = coalesce(i.ready_at, clock_timestamp()),
		owner = CASE WHEN t.given > 0 THEN $14::text ELSE i.owner END,
		epoch = CASE WHEN t.given > 0 THEN t.given ELSE i.epoch END
	FROM t JOIN k ON k.id = t.id WHERE i.id = t.id
), submission AS (
	INSERT INTO @.submissions (instance, id, pos, identity, accepted_at, outcome, settled_at)
	SELECT t.id, $3::text, t.pos, $4::bytea, $5::bigint, '', 0 FROM t
), attachment AS (
	INSERT INTO @.attachments (instance, id, media_type, filename, digest)
	SELECT t.id, n.id, n.media_type, n.filename, n.digest FROM t CROSS JOIN n
	ON CONFLICT DO NOTHING
), blob AS (
	INSERT INTO @.blobs (instance, digest, data)
	SELECT t.id, d.digest, d.data FROM t CROSS JOIN unnest($20::bytea[], $21::bytea[]) AS d(digest, data)
	ON CONFLICT DO NOTHING
)
SELECT coalesce(s.uid, ''), coalesce(old.pos, 0), coalesce(old.identity, ''), coalesce(old.accepted_at, 0),
	EXISTS (SELECT 1 FROM clash), coalesce(t.id, 0), coalesce(t.pos, 0), coalesce(t.given, 0), coalesce(t.owned, false)
FROM me LEFT JOIN s ON true LEFT JOIN old ON true LEFT JOIN t ON true`

// An admitted is the answer of admitSQL.
type admitted struct {
	uid      string // of the instance that was there; empty if there was none
	first    int64  // the offset of the submission that was there, or 0
	identity []byte
	at       int64
	clash    bool
	id       int64 // of the instance, if the submission was written
	offset   int64
	given    int64 // the epoch of the ownership that came with it, or 0
	owned    bool  // by a live node, and was before
}

// Admit implements [store.Store].
//
// Durability: when it returns nil, the submission survives what the database
// promises for a commit.
func (s *Store) Admit(ctx context.Context, a *store.Admission) (store.Receipt, error) {
	size := len(a.Payload) + attachedBytes(a.Attachments)
	if a.Birth != nil {
		size += len(a.Birth.Payload)
	}
	if err := cmp.Or(a.Validate(), sendable(size)); err != nil {
		return store.Receipt{}, err
	}
	if err := s.enter(ctx); err != nil {
		return store.Receipt{}, err
	}
	defer s.leave()
	args, clash := admitArgs(a)
	// The statement does not wait for the row. If somebody has it, or has just
	// created it, the next one does.
	for wait := false; ; wait = true {
		var r admitted
		if err := s.run(ctx, s.writing(), func(ctx context.Context, c *pgx.Conn) (err error) {
			r, err = s.admit(ctx, c, a, args, wait)
			return err
		}); err != nil {
			return store.Receipt{}, fmt.Errorf("admit submission %q to %v: %w", a.Submission, a.Address, err)
		}
		if receipt, done, err := r.judge(a, clash); done {
			s.admitted(a, &r)
			return receipt, err
		}
	}
}

// admitted lets other processes know.
func (s *Store) admitted(a *store.Admission, r *admitted) {
	if r.id == 0 {
		return
	}
	s.grown(r.id, a.Address, r.offset)
	if r.given != 0 {
		s.ids.follow(r.id, a.Address)
	}
	if r.given == 0 && !r.owned {
		s.signals.freed(r.id)
	}
}

// admit sends the statement, all in one round trip and one transaction.
func (s *Store) admit(ctx context.Context, c *pgx.Conn, a *store.Admission, args []any, wait bool) (r admitted, err error) {
	b := s.batch()
	if wait {
		b.Queue(s.sql.lock, a.Agent, a.ID)
	}
	b.Queue(s.sql.admit, args...).QueryRow(func(row pgx.Row) error {
		return row.Scan(&r.uid, &r.first, &r.identity, &r.at, &r.clash, &r.id, &r.offset, &r.given, &r.owned)
	})
	if err := answer(c.SendBatch(ctx, b).Close()); err != nil {
		return r, err
	}
	if r.id != 0 {
		s.commits.Add(1)
	}
	return r, nil
}

// judge makes an answer of what the database has found. It reports false if the
// row was busy.
func (r *admitted) judge(a *store.Admission, clash bool) (_ store.Receipt, done bool, err error) {
	switch {
	case r.first != 0 && !bytes.Equal(r.identity, a.Identity):
		return store.Receipt{}, true, fmt.Errorf("submission %q of %v: %w", a.Submission, a.Address, store.ErrConflict)
	case r.first != 0:
		rc := receipt(a, r.uid, r.first, time.UnixMicro(r.at).UTC())
		rc.Duplicate = true
		return rc, true, nil
	case r.id != 0:
		uid := r.uid
		if uid == "" {
			uid = a.Birth.UID
		}
		rc := receipt(a, uid, r.offset, store.Timestamp(a.AcceptedAt))
		if r.given != 0 {
			rc.Lease = &store.Lease{Address: a.Address, Node: a.Node, Epoch: r.given}
		}
		return rc, true, nil
	}
	if err := a.CheckCondition(r.uid); err != nil {
		return store.Receipt{}, true, err
	}
	if clash || r.clash {
		return store.Receipt{}, true, fmt.Errorf("attachments of submission %q of %v: %w", a.Submission, a.Address, store.ErrConflict)
	}
	return store.Receipt{}, false, nil
}

func receipt(a *store.Admission, uid string, offset int64, at time.Time) store.Receipt {
	return store.Receipt{
		Submission: a.Submission,
		UID:        uid,
		AcceptedAt: at,
		Before:     offset - 1,
		Offset:     offset,
		Created:    offset == 1, // only a birth comes before it
	}
}

// admitArgs are the arguments of admitSQL. It reports whether an attachment id of
// the admission stands for two contents.
func admitArgs(a *store.Admission) (args []any, clash bool) {
	var attached attachments
	clash = attached.add(0, a.Attachments)
	var birth store.Birth
	if a.Birth != nil {
		birth = *a.Birth
	}
	return []any{
		a.Agent, a.ID, // $1, $2
		a.Submission, blob(a.Identity), a.AcceptedAt.UnixMicro(), // $3 to $5
		blob(a.Payload), contentSum(0, 0, a.Payload), // $6, $7
		a.Condition.Create, a.Condition.UID, // $8, $9
		birth.UID, birth.Incarnation, // $10, $11
		blob(birth.Payload), contentSum(0, 0, birth.Payload), // $12, $13
		a.Node, clash, // $14, $15
		attached.ids, attached.mediaTypes, attached.files, attached.digests, // $16 to $19
		attached.blobDigests, attached.blobs, // $20, $21
	}, clash
}

// abortSQL depends on nothing but the row, which is that of the moment at which it
// was locked.
const abortSQL = `
WITH k AS (
	UPDATE @.instances SET head = head + 1 WHERE agent = $1::text AND name = $2::text AND unsettled > 0
	RETURNING id, head
)
INSERT INTO @.batches (instance, pos, epoch, span, sum, payload)
SELECT k.id, k.head, 0, 0, %[1]s, $4::bytea FROM k
RETURNING instance, pos`

// Abort implements [store.Store].
//
// Durability: when it returns nil, the abort survives what the database promises
// for a commit.
func (s *Store) Abort(ctx context.Context, addr store.Address, payload []byte) (written bool, err error) {
	if err := cmp.Or(addr.Validate(), store.ValidatePayload(payload)); err != nil {
		return false, err
	}
	var id, offset int64
	err = s.call(ctx, s.writing(), func(ctx context.Context, c *pgx.Conn) error {
		written, err = s.doOne(ctx, c, s.sql.abort,
			[]any{addr.Agent, addr.ID, contentSum(0, 0, payload), blob(payload)}, []any{&id, &offset})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("abort %v: %w", addr, err)
	}
	if written {
		s.commits.Add(1)
		s.grown(id, addr, offset)
	}
	return written, nil
}
