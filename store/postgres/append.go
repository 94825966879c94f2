package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"runtime"

	"github.com/jackc/pgx/v5"

	"github.com/flue-go/flue/store"
)

// Append implements [store.Store].
//
// Durability: when it returns nil, the batch and its settlements survive what the
// database promises for a commit.
func (s *Store) Append(ctx context.Context, lease store.Lease, w store.Write) (int64, error) {
	size := len(w.Payload) + attachedBytes(w.Attachments)
	if err := cmp.Or(w.Validate(), sendable(size)); err != nil {
		return 0, err
	}
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	if !plausible(lease) {
		return 0, refused(lease, store.ErrFenced)
	}
	o := &op{lease: lease, write: &w, size: size}
	err := s.submit(ctx, o)
	if err == nil && o.busy {
		err = s.appendAlone(ctx, o)
	}
	if err != nil {
		return 0, refused(lease, err)
	}
	s.grown(o.id, lease.Address, o.offset)
	return o.offset, nil
}

// grown lets other processes know.
func (s *Store) grown(id int64, addr store.Address, head int64) {
	s.ids.put(id, addr)
	s.signals.grown(id, head)
}

func refused(lease store.Lease, err error) error {
	return fmt.Errorf("append to %v as epoch %d: %w", lease.Address, lease.Epoch, err)
}

// write does groups until the queue is closed and empty. While one group is made
// durable the next one gathers, so that the rate of commits adapts to the database
// without a timer.
func (s *Store) write() {
	var group []*op
	for {
		// The callers of the last group are about to run. Let them, so that
		// their next ops are in this group and not in the one after it.
		runtime.Gosched()
		group = s.queue.next(group)
		if len(group) == 0 {
			return
		}
		m := s.writing()
		m.pool = s.urgent
		err := s.run(context.Background(), m, func(ctx context.Context, c *pgx.Conn) error {
			return s.appendGroup(ctx, c, group, false)
		})
		s.queue.landed(group)
		for _, o := range group {
			if err != nil {
				o.err = err
			}
			close(o.done)
		}
		clear(group)
	}
}

// appendAlone does an op whose row was locked, as an admission does for a moment.
// Others must not wait with it, so it has a connection and a transaction of its
// own.
func (s *Store) appendAlone(ctx context.Context, o *op) error {
	for {
		if err := s.run(ctx, s.writing(), func(ctx context.Context, c *pgx.Conn) error {
			return s.appendGroup(ctx, c, []*op{o}, true)
		}); err != nil {
			return err
		}
		if !o.busy {
			return o.err
		}
	}
}

// appendGroup does ops in one transaction and one round trip and leaves each its
// verdict. An error is that of all.
//
// It is one statement, so the database has all of it before it takes a lock. With
// wait, another one locks the rows first; without it, rows that are locked by
// others are left out as busy.
func (s *Store) appendGroup(ctx context.Context, c *pgx.Conn, ops []*op, wait bool) error {
	query, args := s.appendQuery(ops, wait)
	for _, o := range ops {
		o.busy = true // if there is no answer
	}
	b := s.batch()
	if wait {
		b.Queue(s.sql.lock, ops[0].lease.Agent, ops[0].lease.ID)
	}
	written := false
	b.Queue(query, args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var i, id, offset int64
			var verdict string
			if err := rows.Scan(&i, &id, &offset, &verdict); err != nil {
				return err
			}
			if o := ops[i-1]; o.judge(verdict, offset) {
				o.id, written = id, true
			}
		}
		return rows.Err()
	})
	if err := answer(c.SendBatch(ctx, b).Close()); err != nil {
		return err
	}
	if written {
		s.commits.Add(1)
	}
	return nil
}

// judge takes the verdict that the database has come to. It reports whether the op
// was done.
func (o *op) judge(verdict string, offset int64) bool {
	o.offset, o.busy, o.err = offset, false, nil
	switch verdict {
	case "done":
		return true
	case "fenced":
		o.err = store.ErrFenced
	case "settled":
		o.err = store.ErrSettled
	case "clash":
		o.err = store.ErrConflict
	default:
		o.busy = true
	}
	return false
}

// appendQuery makes the arrays of a group. Whoever waits is told why something was
// not done.
func (s *Store) appendQuery(ops []*op, wait bool) (string, []any) {
	n := len(ops)
	var (
		agents, names, nodes = make([]string, n), make([]string, n), make([]string, n)
		epochs, sums         = make([]int64, n), make([]int64, n)
		payloads             = make([][]byte, n)
		twice, clash         = make([]bool, n), make([]bool, n)
		settled              settlements
		attached             attachments
	)
	for i, o := range ops {
		agents[i], names[i], nodes[i], epochs[i] = o.lease.Agent, o.lease.ID, o.lease.Node, o.lease.Epoch
		payloads[i] = blob(o.write.Payload)
		sums[i] = contentSum(o.lease.Epoch, 0, o.write.Payload)
		twice[i] = settled.add(i+1, o.write.Settle)
		clash[i] = attached.add(i+1, o.write.Attachments)
	}
	args := []any{agents, names, nodes, epochs, sums, payloads} // $1 to $6
	if !wait && len(settled.ops) == 0 && len(attached.ops) == 0 {
		return s.sql.append, args
	}
	args = append(args, twice, clash)                               // $7, $8
	args = append(args, settled.ops, settled.ids, settled.outcomes) // $9 to $11
	return s.sql.appendAll, append(args, attached.args()...)        // $12 to $19
}

// settlements are those of a group, as columns.
type settlements struct {
	ops           []int64
	ids, outcomes []string
}

// add reports whether one is named twice.
func (s *settlements) add(op int, settle []store.Settlement) (twice bool) {
	seen := make(map[string]struct{}, len(settle))
	for _, st := range settle {
		if _, ok := seen[st.Submission]; ok {
			return true
		}
		seen[st.Submission] = struct{}{}
		s.ops = append(s.ops, int64(op))
		s.ids = append(s.ids, st.Submission)
		s.outcomes = append(s.outcomes, st.Outcome)
	}
	return false
}

// attachments are those of a group, as columns, and the bytes of each digest once.
type attachments struct {
	ops                    []int64
	ids, mediaTypes, files []string
	digests                [][]byte
	blobOps                []int64
	blobDigests, blobs     [][]byte
}

// add reports whether an id stands for two contents.
func (a *attachments) add(op int, as []store.Attachment) (clash bool) {
	ids := make(map[string][sha256.Size]byte, len(as))
	held := make(map[[sha256.Size]byte]struct{}, len(as))
	for i := range as {
		at := &as[i]
		if digest, ok := ids[at.ID]; ok {
			clash = clash || digest != at.Digest
			continue
		}
		ids[at.ID] = at.Digest
		a.ops = append(a.ops, int64(op))
		a.ids = append(a.ids, at.ID)
		a.mediaTypes = append(a.mediaTypes, at.MediaType)
		a.files = append(a.files, at.Filename)
		a.digests = append(a.digests, at.Digest[:])
		if _, ok := held[at.Digest]; !ok {
			held[at.Digest] = struct{}{}
			a.blobOps = append(a.blobOps, int64(op))
			a.blobDigests = append(a.blobDigests, at.Digest[:])
			a.blobs = append(a.blobs, blob(at.Data))
		}
	}
	return clash
}

func attachedBytes(as []store.Attachment) (n int) {
	for i := range as {
		n += len(as[i].Data)
	}
	return n
}

func (a *attachments) args() []any {
	return []any{a.ops, a.ids, a.mediaTypes, a.files, a.digests, a.blobOps, a.blobDigests, a.blobs}
}

// blob is p as a value that is never NULL.
func blob(p []byte) []byte {
	if p == nil {
		return []byte{}
	}
	return p
}
