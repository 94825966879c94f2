package postgres

// lockSQL waits for the row of an instance. A statement after it in the same
// transaction sees all that whoever had the row before has written: at READ
// COMMITTED, what a statement sees of other tables is as of its beginning, and
// not as of when it got its locks.
const lockSQL = `SELECT 1 FROM @.instances WHERE agent = $1::text AND name = $2::text FOR UPDATE`

// appendSQL does a group of appends that settle nothing and bring no attachments,
// which nearly all are. They depend on nothing but the rows, and those are as of the
// moment at which they were locked (l). Rows that are locked by others are left out,
// so it never waits, and no order of locking is needed against deadlocks.
//
// What has not been done has no answer: it may be fenced, or only busy. Whatever is
// not done is an answer, or none, but no error, so that it costs its neighbours
// nothing.
const appendSQL = `
WITH l AS MATERIALIZED (
	SELECT w.op, w.epoch, w.sum, w.payload, i.id, i.head + 1 AS pos
	FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[]) WITH ORDINALITY
		AS w(agent, name, node, epoch, sum, payload, op)
	CROSS JOIN LATERAL (
		SELECT i.id, i.owner, i.epoch, i.head FROM @.instances i
		WHERE i.agent = w.agent AND i.name = w.name AND i.owner = w.node AND i.epoch = w.epoch
		FOR UPDATE SKIP LOCKED
	) i WHERE i.owner = w.node AND i.epoch = w.epoch -- once more, so that few are expected
), batch AS (
	INSERT INTO @.batches (instance, pos, epoch, span, sum, payload)
	SELECT l.id, l.pos, l.epoch, 0, %[1]s, l.payload FROM l
), row AS (
	UPDATE @.instances i SET head = l.pos FROM l WHERE i.id = l.id
)
SELECT l.op, l.id, l.pos, 'done' FROM l`

// appendAllSQL does a group of any appends.
//
//	w: what is to be written
//	f: whether an append settles something twice, or one of its attachment ids
//	   stands for two contents, which the client has looked at
//	s: the rows whose owners ask, as of the statement's beginning, each looked up
//	   by itself: a plan that is made while there are few would read them all
//	l: those of them that could be locked at once and are still the same, so that
//	   what the statement sees of other tables belongs to them
//	k: those that nothing speaks against
//
// Its arguments, all of them columns; op is the number of an append, from 1:
//
//	$1 to $6   appends: agent, id and node of the lease, epoch, sum and payload
//	$7 to $8   of the same appends: see f
//	$9 to $11  settlements: op, submission and outcome
//	$12 to $16 attachments: op, id, media type, filename and digest
//	$17 to $19 the bytes of each digest once for each op: op, digest and data
const appendAllSQL = `
WITH w AS MATERIALIZED (
	SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[]) WITH ORDINALITY
		AS w(agent, name, node, epoch, sum, payload, op)
), f AS MATERIALIZED (
	SELECT * FROM unnest($7::boolean[], $8::boolean[]) WITH ORDINALITY AS f(twice, clash, op)
), st AS MATERIALIZED (
	SELECT * FROM unnest($9::bigint[], $10::text[], $11::text[]) AS st(op, id, outcome)
), n AS MATERIALIZED (
	SELECT * FROM unnest($12::bigint[], $13::text[], $14::text[], $15::text[], $16::bytea[]) AS n(op, id, media_type, filename, digest)
), s AS MATERIALIZED (
	SELECT w.op, i.id, i.owner, i.epoch, i.head FROM w CROSS JOIN LATERAL (
		SELECT i.id, i.owner, i.epoch, i.head FROM @.instances i WHERE i.agent = w.agent AND i.name = w.name OFFSET 0
	) i WHERE i.owner = w.node AND i.epoch = w.epoch
), l AS MATERIALIZED (
	SELECT s.op, i.id, i.head FROM s
	JOIN @.instances i ON i.id = s.id AND i.owner = s.owner AND i.epoch = s.epoch AND i.head = s.head
	FOR UPDATE OF i SKIP LOCKED
), bad AS MATERIALIZED (
	SELECT s.op FROM s JOIN st ON st.op = s.op
	LEFT JOIN @.submissions u ON u.instance = s.id AND u.id = st.id
	WHERE u.outcome IS DISTINCT FROM ''
	UNION ALL SELECT f.op FROM f WHERE f.twice
), clash AS MATERIALIZED (
	SELECT s.op FROM s JOIN n ON n.op = s.op
	JOIN @.attachments a ON a.instance = s.id AND a.id = n.id
	WHERE a.digest <> n.digest
	UNION ALL SELECT f.op FROM f WHERE f.clash
), k AS MATERIALIZED (
	SELECT l.op, l.id, l.head + 1 AS pos, coalesce(c.settles, 0) AS settles FROM l
	LEFT JOIN (SELECT st.op, count(*) AS settles FROM st GROUP BY st.op) c ON c.op = l.op
	WHERE l.op NOT IN (SELECT op FROM bad) AND l.op NOT IN (SELECT op FROM clash)
), batch AS (
	INSERT INTO @.batches (instance, pos, epoch, span, sum, payload)
	SELECT k.id, k.pos, w.epoch, 0, %[1]s, w.payload FROM k JOIN w ON w.op = k.op
), row AS (
	UPDATE @.instances i SET head = k.pos, unsettled = i.unsettled - k.settles,
		ready_at = CASE WHEN i.unsettled <= k.settles THEN NULL WHEN k.settles > 0 THEN clock_timestamp() ELSE i.ready_at END
	FROM k WHERE i.id = k.id
), settlement AS (
	UPDATE @.submissions u SET outcome = st.outcome, settled_at = k.pos
	FROM k JOIN st ON st.op = k.op WHERE u.instance = k.id AND u.id = st.id
), attachment AS (
	INSERT INTO @.attachments (instance, id, media_type, filename, digest)
	SELECT k.id, n.id, n.media_type, n.filename, n.digest FROM k JOIN n ON n.op = k.op
	ON CONFLICT DO NOTHING
), blob AS (
	INSERT INTO @.blobs (instance, digest, data)
	SELECT k.id, d.digest, d.data FROM k
	JOIN unnest($17::bigint[], $18::bytea[], $19::bytea[]) AS d(op, digest, data) ON d.op = k.op
	ON CONFLICT DO NOTHING
)
SELECT w.op, coalesce(k.id, 0), coalesce(k.pos, 0), CASE
	WHEN k.op IS NOT NULL THEN 'done'
	WHEN s.op IS NULL THEN 'fenced'
	WHEN w.op IN (SELECT op FROM bad) THEN 'settled'
	WHEN w.op IN (SELECT op FROM clash) THEN 'clash'
	ELSE 'busy' END
FROM w LEFT JOIN s ON s.op = w.op LEFT JOIN k ON k.op = w.op`
