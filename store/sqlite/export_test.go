package sqlite

import (
	"context"
	"errors"
	"fmt"
)

// LimitPages makes the disk look full once the file has n more pages.
func (s *Store) LimitPages(ctx context.Context, n int64) error {
	return s.Between(ctx, func() error {
		var pages int64
		if err := s.writer.conn.value("PRAGMA page_count", &pages); err != nil {
			return err
		}
		return s.writer.conn.exec(ctx, fmt.Sprintf("PRAGMA max_page_count = %d", pages+n))
	})
}

// OnSync calls fn after every sync that is not SQLite's own.
func OnSync(fn func(path string)) { synced = fn }

// Exec runs statements on the connection that writes, between two groups.
func (s *Store) Exec(ctx context.Context, statements ...string) error {
	return s.Between(ctx, func() error { return s.writer.conn.exec(ctx, statements...) })
}

// Integrity returns what SQLite finds wrong with the file, or "ok".
func (s *Store) Integrity(ctx context.Context) (found string, err error) {
	err = s.Between(ctx, func() error { return s.writer.conn.value("PRAGMA integrity_check", &found) })
	return found, err
}

// Between runs fn between two groups, when no transaction is open, so that the
// files are what they would be after a crash at that moment.
func (s *Store) Between(ctx context.Context, fn func() error) error {
	return s.submit(ctx, 0, func(w *writer) error {
		// A group that has begun is committed first, as if it ended here.
		if w.begun {
			if _, err := w.commit.run(); err != nil {
				return w.fail(err)
			}
			w.begun = false
		}
		return fn()
	})
}

// Merge moves all of the log into the file and empties it.
func (s *Store) Merge(ctx context.Context) error {
	return s.Between(ctx, func() error {
		checkpoint, err := s.writer.conn.prepare("PRAGMA wal_checkpoint(TRUNCATE)")
		if err != nil {
			return err
		}
		r, err := checkpoint.get()
		if err != nil {
			return err
		}
		if busy := r[0].(int64); busy != 0 {
			return errors.New("the log could not be merged")
		}
		return nil
	})
}

// SpoilCommit makes the commit of the group fail that it becomes a member of.
func (s *Store) SpoilCommit(ctx context.Context) error {
	if err := s.Between(ctx, func() error {
		return s.writer.conn.exec(ctx,
			"PRAGMA foreign_keys = ON",
			"CREATE TEMP TABLE parent (id INTEGER PRIMARY KEY)",
			"CREATE TEMP TABLE child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
		)
	}); err != nil {
		return err
	}
	return s.submit(ctx, 0, func(w *writer) error {
		orphan, err := w.conn.prepare("INSERT INTO child VALUES (1)")
		if err == nil {
			_, err = w.exec(orphan)
		}
		return err
	})
}

// Forget empties the writer's cache.
func (s *Store) Forget(ctx context.Context) error {
	return s.submit(ctx, 0, func(w *writer) error {
		w.cache = cache{}
		return nil
	})
}

// Owned returns how many instances have an entry among the owners.
func (s *Store) Owned() int { return s.writer.owners.Len() }

// Pragma returns the value of a pragma of the connection that writes.
func (s *Store) Pragma(ctx context.Context, name string) (v int64, err error) {
	err = s.submit(ctx, 0, func(w *writer) error { return w.conn.value("PRAGMA "+name, &v) })
	return v, err
}
