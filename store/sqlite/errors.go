package sqlite

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/flue-go/flue/store"
)

// Errors of the disk that a caller may branch on. They come with the error of
// SQLite that says what failed. After a write that fails with one of them the
// store refuses further writes, see store.ErrPoisoned.
var (
	// ErrFull means that there is no room left on the disk.
	ErrFull = errors.New("sqlite: the disk is full: free some space, then reopen the store")
	// ErrDisk means that the disk, or its file system, failed to read, write or
	// sync.
	ErrDisk = errors.New("sqlite: the disk failed: see the system's log, repair or replace it, then reopen the store")
)

// classify adds what a caller may branch on to an error of the driver.
func classify(err error) error {
	switch code(err) {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB,
		// What is written has been checked against what can be read. If SQLite
		// disagrees, a table and its index do too.
		sqlite3.SQLITE_CONSTRAINT:
		return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: %w", ErrFull, err)
	case sqlite3.SQLITE_IOERR:
		return fmt.Errorf("%w: %w", ErrDisk, err)
	}
	return err
}

// advise says what to do about damage that was found in an instance.
func advise(err error) error {
	if errors.Is(err, store.ErrCorrupt) {
		return fmt.Errorf("%w; restore a backup to get it back; other instances are not concerned", err)
	}
	return err
}

// unreadable reports whether something that is stored cannot be read. The fault
// is then in one place of the file, and nothing is wrong with what is written
// elsewhere.
func unreadable(err error) bool {
	var e *sqlite.Error
	if errors.As(err, &e) && e.Code() == sqlite3.SQLITE_IOERR_READ {
		return true
	}
	return errors.Is(err, store.ErrCorrupt)
}

// code returns SQLite's primary result code of err, or -1 if it has none.
func code(err error) int {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return -1
	}
	return e.Code() & 0xff
}

func busy(err error) bool { return code(err) == sqlite3.SQLITE_BUSY }
