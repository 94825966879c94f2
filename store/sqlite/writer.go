package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/internal/owners"
)

// A writer is the one that writes a file. All its methods run on the goroutine
// of run, one group at a time, and that is what makes them simple: what an op
// has checked stays true until the end of its group, and changes of ownership,
// which are ops too, are ordered with the writes that they fence.
type writer struct {
	conn   *conn
	queue  *queue
	owners *owners.Table[int64]
	cache  cache

	begin, commit, rollback      *stmt
	findInstance, findOpen       *stmt
	insertInstance, setUnsettled *stmt
	insertBatch                  *stmt
	findSubmission               *stmt
	insertSubmission             *stmt
	settleSubmission             *stmt
	findAttachment               *stmt
	insertAttachment, insertBlob *stmt
	dropCheckpoints              *stmt
	insertCheckpoint             *stmt
	findRun, dropBatches         *stmt
	replaceBatch                 *stmt

	begun   bool         // the group has a transaction
	given   []grant      // what admissions of the group have given to their nodes
	failed  error        // why the group cannot be committed
	poison  error        // why no group can
	commits atomic.Int64 // groups that were committed, for the checkpointer
}

// A grant is an ownership that is worth nothing if its group is not committed:
// the instance may not even exist.
type grant struct {
	id    int64
	node  string
	epoch int64
}

// newWriter prepares a connection for writing.
func newWriter(ctx context.Context, c *conn, q *queue, o Options) (*writer, error) {
	if err := c.exec(ctx, o.pragmas()...); err != nil {
		return nil, err
	}
	var mode string
	if err := c.value("PRAGMA journal_mode = WAL", &mode); err != nil {
		return nil, err
	}
	if mode != "wal" {
		return nil, fmt.Errorf("open %s: its file system cannot share memory, which SQLite's write-ahead log needs (journal mode is %q); use a local disk", c.file, mode)
	}
	w := &writer{conn: c, queue: q}
	if err := w.upgrade(ctx); err != nil {
		return nil, fmt.Errorf("bringing %s to format %d: %w", c.file, formatVersion, err)
	}
	for _, p := range []struct {
		stmt  **stmt
		query string
	}{
		{&w.begin, `BEGIN IMMEDIATE`},
		{&w.commit, `COMMIT`},
		{&w.rollback, `ROLLBACK`},
		{&w.findInstance, `SELECT id, uid, unsettled, (SELECT max(offset) FROM batches WHERE instance = instances.id)
			FROM instances WHERE agent = ?1 AND name = ?2`},
		{&w.findOpen, `SELECT agent, name FROM instances WHERE id = ?1 AND unsettled > 0`},
		{&w.insertInstance, `INSERT INTO instances (agent, name, uid, incarnation, unsettled) VALUES (?1, ?2, ?3, ?4, 0)`},
		{&w.setUnsettled, `UPDATE instances SET unsettled = ?2 WHERE id = ?1`},
		{&w.insertBatch, `INSERT INTO batches (instance, offset, epoch, sum, payload) VALUES (?1, ?2, ?3, ?4, ?5)`},
		{&w.findSubmission, `SELECT offset, identity, accepted_at, outcome FROM submissions WHERE instance = ?1 AND id = ?2`},
		{&w.insertSubmission, `INSERT INTO submissions (instance, id, offset, identity, accepted_at, outcome, settled_at)
			VALUES (?1, ?2, ?3, ?4, ?5, '', 0)`},
		{&w.settleSubmission, `UPDATE submissions SET outcome = ?3, settled_at = ?4 WHERE instance = ?1 AND id = ?2`},
		{&w.findAttachment, `SELECT digest FROM attachments WHERE instance = ?1 AND id = ?2`},
		{&w.insertAttachment, `INSERT INTO attachments (instance, id, media_type, filename, digest)
			VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING`},
		{&w.insertBlob, `INSERT INTO blobs (instance, digest, data) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING`},
		{&w.dropCheckpoints, `DELETE FROM checkpoints WHERE instance = ?1 AND (offset >= ?2 OR
			offset < (SELECT max(offset) FROM checkpoints WHERE instance = ?1 AND offset < ?2))`},
		{&w.findRun, `SELECT offset, epoch, span FROM batches WHERE instance = ?1 AND offset BETWEEN ?2 AND ?3 ORDER BY offset`},
		{&w.dropBatches, `DELETE FROM batches WHERE instance = ?1 AND offset > ?2 AND offset <= ?3`},
		{&w.replaceBatch, `UPDATE batches SET sum = ?3, payload = ?4, span = ?5 WHERE instance = ?1 AND offset = ?2`},
		{&w.insertCheckpoint, `INSERT INTO checkpoints (instance, offset, sum, data) VALUES (?1, ?2, ?3, ?4)`},
	} {
		var err error
		if *p.stmt, err = c.prepare(p.query); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// boot counts an opening of the file and makes the table of owners whose epochs
// are above those of all openings before. An opening has a trillion epochs,
// more than it can give.
func (w *writer) boot(ctx context.Context) error {
	if err := w.conn.exec(ctx, "BEGIN IMMEDIATE", "UPDATE meta SET value = value + 1 WHERE key = 'boot'"); err != nil {
		return err
	}
	var boot int64
	if err := w.conn.value("SELECT value FROM meta WHERE key = 'boot'", &boot); err != nil {
		return err
	}
	w.owners = owners.New[int64](boot << 40)
	return w.conn.exec(ctx, "COMMIT")
}

// run writes groups until the queue is closed and empty. While one group is
// made durable the next one gathers in the queue, so that the rate of commits
// adapts to the disk without a timer.
func (w *writer) run() {
	var group []*op
	for {
		// The callers of the last group are about to run. Let them, so that
		// their next ops are in this group and not in the one after it.
		runtime.Gosched()
		group = w.queue.next(group)
		if len(group) == 0 {
			return
		}
		w.group(group)
		clear(group)
	}
}

// group does ops in one transaction and tells each its verdict.
//
// If something that is stored cannot be read, it does them again, each in a
// transaction of its own, so that this is the trouble of those that need it.
func (w *writer) group(ops []*op) {
	err := w.try(ops)
	if err != nil && w.poison == nil && unreadable(err) && len(ops) > 1 {
		for i := range ops {
			w.verdict(ops[i:i+1], w.try(ops[i:i+1]))
		}
		return
	}
	w.verdict(ops, err)
}

// try does ops in one transaction. If it fails, none of them has been done, or
// the store is poisoned.
func (w *writer) try(ops []*op) error {
	if w.poison != nil {
		return w.poison
	}
	for _, o := range ops {
		if o.err = o.do(w); w.failed != nil {
			break
		}
	}
	return w.end()
}

func (w *writer) verdict(ops []*op, err error) {
	for _, o := range ops {
		if err != nil {
			// Even a refusal counts for nothing now: what it was based on may
			// have been part of this group.
			o.err = err
		}
		close(o.done)
	}
}

// end commits the group if it has written and nothing has failed. After a
// failed write the durability of the group, and of what SQLite believes about
// the file, is unknown: nothing more is written until it is opened again.
func (w *writer) end() error {
	if w.begun && w.failed == nil {
		if _, err := w.commit.run(); err != nil {
			w.poisoned(err)
		} else {
			w.begun = false
			w.commits.Add(1)
		}
	}
	err := w.failed
	if w.begun {
		_, rerr := w.rollback.run() // often SQLite has done so itself
		if w.poison == nil && !(unreadable(err) && (rerr == nil || code(rerr) == sqlite3.SQLITE_ERROR)) {
			w.poisoned(err)
		}
		w.cache = cache{}
		for _, l := range w.given {
			w.owners.Release(l.id, l.node, l.epoch)
		}
	}
	w.begun, w.failed, w.given = false, nil, w.given[:0]
	return err
}

// poisoned makes the group, and every later one, fail.
func (w *writer) poisoned(err error) {
	if errors.Is(err, store.ErrCorrupt) {
		// Not of the instances that happen to be in the group, nor of those that
		// will be refused.
		err = errors.New(err.Error())
	}
	w.failed = err
	w.poison = fmt.Errorf("%w; reopen the store once the cause is gone: %w", store.ErrPoisoned, err)
}

// fail makes the group end without a commit.
func (w *writer) fail(err error) error {
	w.failed = err
	return err
}

// exec runs a statement that writes, in the group's transaction.
func (w *writer) exec(s *stmt, args ...driver.Value) (driver.Result, error) {
	if !w.begun {
		if _, err := w.begin.run(); err != nil {
			return nil, w.fail(err) // nothing has been written: not poisonous
		}
		w.begun = true
	}
	r, err := s.run(args...)
	if err != nil {
		return nil, w.fail(err)
	}
	return r, nil
}

// get runs a query that an op is checked with. If what is stored cannot be read,
// that is the op's own trouble, unless there is a transaction: SQLite ends it then,
// or lets it write no more.
func (w *writer) get(s *stmt, args ...driver.Value) (row, error) {
	r, err := s.get(args...)
	if err != nil && (w.begun || !unreadable(err)) {
		return nil, w.fail(err)
	}
	return r, err
}

// An entry is what the writer remembers of an instance between two writes.
type entry struct {
	id        int64
	addr      store.Address
	uid       string
	head      int64
	unsettled int64
}

// instance returns the entry of an instance, or nil if there is none.
func (w *writer) instance(addr store.Address) (*entry, error) {
	if e := w.cache.get(addr); e != nil {
		return e, nil
	}
	r, err := w.get(w.findInstance, addr.Agent, addr.ID)
	if r == nil || err != nil {
		return nil, err
	}
	e := &entry{addr: clone(addr)}
	if err := r.scan(&e.id, &e.uid, &e.unsettled, &e.head); err != nil {
		return nil, fmt.Errorf("instance %v: %w", addr, err)
	}
	w.cache.put(e)
	return e, nil
}

// append writes a batch under the next offset.
func (w *writer) append(e *entry, epoch int64, payload []byte) (int64, error) {
	offset := e.head + 1
	sum := batchSum(e.id, offset, epoch, payload)
	if _, err := w.exec(w.insertBatch, e.id, offset, epoch, sum, blob(payload)); err != nil {
		return 0, err
	}
	e.head = offset
	return offset, nil
}

// count changes the number of unsettled submissions.
func (w *writer) count(e *entry, by int64) error {
	if _, err := w.exec(w.setUnsettled, e.id, e.unsettled+by); err != nil {
		return err
	}
	e.unsettled += by
	return nil
}

// clone copies an address, which may be part of a larger string of the caller.
func clone(a store.Address) store.Address {
	return store.Address{Agent: strings.Clone(a.Agent), ID: strings.Clone(a.ID)}
}

// blob is p as a value that is never NULL.
func blob(p []byte) []byte {
	if p == nil {
		return []byte{}
	}
	return p
}
