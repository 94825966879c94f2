// Package sqlite keeps journals in one SQLite file, for one process.
//
//	s, err := sqlite.Open(ctx, "flue.db", sqlite.Options{})
//
// Writes of all instances share commits: while one group of them is made
// durable, the next one gathers. Reads go to connections of their own and never
// wait for a write.
//
// Only one process at a time has a file open, under a lock that ends with the
// process. Opening therefore proves that every earlier owner of an instance is
// dead, and unfinished work can be claimed at once. For several processes on
// one database use a store that is made for it.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/flue-go/flue/store"
)

// Options configure a store. The zero value is right for production.
type Options struct {
	// Sync says what a write waits for. The default is SyncFull.
	Sync Sync

	// Readers is how many reads can be made at the same time, each on a
	// connection that is opened when first needed and uses up to 2 MiB of
	// memory. The default is 4.
	Readers int

	// ReadOnly opens a file that is there for reading only, without the lock:
	// also while another process has it open, whose writes are then seen as
	// they come. Whatever would write fails with store.ErrReadOnly.
	ReadOnly bool
}

// A Sync is a degree of durability.
type Sync int

const (
	// SyncFull makes every write durable before it is acknowledged: it survives
	// the loss of power.
	SyncFull Sync = iota
	// SyncNormal leaves it to the operating system when to write the log to
	// disk: an acknowledged write survives the death of the process, but the
	// last ones before a loss of power may be gone. What is left is consistent.
	// It is several times faster for a single writer.
	SyncNormal
)

func (o *Options) setDefaults() error {
	if o.Readers == 0 {
		o.Readers = 4
	}
	if o.Readers < 0 || o.Readers > 1000 {
		return fmt.Errorf("%w: Options.Readers is %d, want 1 to 1000", store.ErrInvalid, o.Readers)
	}
	if o.Sync != SyncFull && o.Sync != SyncNormal {
		return fmt.Errorf("%w: Options.Sync is %d, want SyncFull or SyncNormal", store.ErrInvalid, o.Sync)
	}
	return nil
}

// pragmas set up the connection that writes.
func (o *Options) pragmas() []string {
	ps := []string{
		"PRAGMA busy_timeout = 5000", // for a person with a SQLite shell
		"PRAGMA wal_autocheckpoint = 1000",
		"PRAGMA journal_size_limit = 67108864",
		"PRAGMA cache_size = -8192",
		"PRAGMA trusted_schema = OFF",
	}
	if o.Sync == SyncNormal {
		return append(ps, "PRAGMA synchronous = NORMAL")
	}
	return append(ps,
		"PRAGMA synchronous = FULL",
		// Where it differs from a plain sync, on macOS, only this one reaches
		// the disk.
		"PRAGMA fullfsync = ON",
		"PRAGMA checkpoint_fullfsync = ON",
	)
}

var _ store.Store = (*Store)(nil)

// A Store is a SQLite file that holds journals. It is safe for concurrent use.
type Store struct {
	file    string
	lock    *conn // nil, like the writer, if the store is only read
	queue   queue
	writer  *writer
	readers chan *reader // idle ones; nil stands for one that is not open yet

	life   sync.Mutex
	closed bool
	calls  sync.WaitGroup // in flight; grows only while not closed
	close  sync.Once

	quit    chan struct{}  // closed to end the checkpointer and backups
	running sync.WaitGroup // the writer and the checkpointer
}

// Open opens the store in the file at path, or creates it there; its directory
// must exist. The log and the lock are kept beside the file, under its name with
// -wal, -shm and -lock added.
//
// It fails with store.ErrLocked if another process has the file open, with
// store.ErrFormat if the file is something else or was written by a newer
// version, and with store.ErrCorrupt if it is damaged, all without changing it.
// With Options.ReadOnly it creates and locks nothing, and fails with
// fs.ErrNotExist if there is no file.
//
// The context bounds the opening, not the life of the store.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	file, err := resolve(path)
	if err != nil {
		return nil, err
	}
	s := &Store{
		file:    file,
		queue:   queue{wake: make(chan struct{}, 1)},
		readers: make(chan *reader, o.Readers),
		quit:    make(chan struct{}),
	}
	if o.ReadOnly {
		s.openReaders(o)
		if err := checkReadable(file); err != nil {
			return nil, err
		}
		return s, nil
	}
	if s.lock, err = lock(ctx, file); err != nil {
		return nil, err
	}
	if err := s.start(ctx, o); err != nil {
		if errors.Is(err, store.ErrCorrupt) {
			err = fmt.Errorf("open %s: %w; restore it from a backup", path, err)
		}
		return nil, errors.Join(err, s.lock.close())
	}
	return s, nil
}

func (s *Store) start(ctx context.Context, o Options) error {
	if err := prepareFile(ctx, s.file); err != nil {
		return err
	}
	if err := rewriteLog(s.file); err != nil {
		return err
	}
	c, err := dial(s.file, readWrite)
	if err != nil {
		return err
	}
	if s.writer, err = newWriter(ctx, c, &s.queue, o); err == nil {
		err = s.writer.boot(ctx)
	}
	if err != nil {
		return errors.Join(err, c.close())
	}
	s.openReaders(o)
	s.running.Go(s.writer.run)
	s.running.Go(s.checkpoint)
	return nil
}

// openReaders lets readers be opened when they are needed.
func (s *Store) openReaders(o Options) {
	for range o.Readers {
		s.readers <- nil
	}
}

// Path returns the absolute path of the file, with links resolved.
func (s *Store) Path() string { return s.file }

// Commits returns how many commits the store has made since it was opened. One
// commit makes a whole group of writes durable.
func (s *Store) Commits() int64 {
	if s.writer == nil {
		return 0
	}
	return s.writer.commits.Load()
}

// enterToWrite is enter for a call that writes.
func (s *Store) enterToWrite(ctx context.Context) error {
	if err := s.enter(ctx); err != nil || s.writer != nil {
		return err
	}
	s.leave()
	return fmt.Errorf("%s: %w", s.file, store.ErrReadOnly)
}

// enter begins a call. If it returns nil, leave must be called at the end.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	s.calls.Add(1)
	return nil
}

func (s *Store) leave() { s.calls.Done() }

// Close implements [store.Store]. The log is merged into the file, which is
// complete without it afterwards, unless another process has the file open. A
// backup that is running is given up.
func (s *Store) Close() (err error) {
	s.close.Do(func() { err = s.shut() })
	return err
}

func (s *Store) shut() error {
	s.life.Lock()
	s.closed = true
	s.life.Unlock()
	close(s.quit)
	s.calls.Wait()
	s.queue.close()
	s.running.Wait()
	var errs []error
	for range cap(s.readers) {
		if r := <-s.readers; r != nil {
			errs = append(errs, r.conn.close())
		}
	}
	if s.writer != nil {
		errs = append(errs, s.writer.conn.close(), s.lock.close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close %s: %w", s.file, err)
	}
	return nil
}
