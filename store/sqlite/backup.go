package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/flue-go/flue/store"
)

// Backup writes a copy of the store, as of one moment, to a new file at path.
// Writes go on while it runs. The copy is a store of its own, without the log
// that the original may need, and appears under its name only when it is whole
// and on disk. It fails with [fs.ErrExist] if there is a file at path already.
//
// If ctx ends or the store is closed first, the backup is given up and leaves
// nothing. If the process is killed, it leaves a file with the name of path and
// "-new" behind it. Until somebody removes that file, backups to the same path fail
// with fs.ErrExist, because another process may be writing it.
func (s *Store) Backup(ctx context.Context, path string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel(nil)
	watch.Go(func() {
		select {
		case <-s.quit:
			cancel(store.ErrClosed)
		case <-ctx.Done():
		}
	})
	if err := s.backup(ctx, path); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("back up %s to %s: %w", s.file, path, err)
	}
	return nil
}

func (s *Store) backup(ctx context.Context, path string) (err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, fs.ErrExist)
	}
	// Of two backups to the same path, only one can create this file.
	temp := path + "-new"
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("another backup writes %s, or one that was killed has left it: if none is running, remove that file: %w", temp, fs.ErrExist)
	case err != nil:
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temp))
		}
	}()
	if err := f.Close(); err != nil {
		return err
	}
	c, err := dial(s.file, readOnly)
	if err != nil {
		return err
	}
	err = c.exec(ctx, "PRAGMA busy_timeout = 5000", "VACUUM INTO '"+strings.ReplaceAll(temp, "'", "''")+"'")
	if err := errors.Join(err, c.close()); err != nil {
		return err
	}
	if err := syncFile(temp); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncFile(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
