package sqlite

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/flue-go/flue/store"
)

// classify adds what a caller may branch on to an error of the driver.
func classify(err error) error {
	switch code(err) {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	return err
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
