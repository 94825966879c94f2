package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/flue-go/flue/store"
)

// resolve returns the one name that a file is locked and opened under, whatever
// links lead to it.
func resolve(path string) (string, error) {
	if path == "" || path == ":memory:" {
		return "", fmt.Errorf("%w: path %q of a SQLite store: give the name of a file, or use package memstore", store.ErrInvalid, path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", path, err)
	}
	file, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, fs.ErrNotExist) {
		var dir string
		if dir, err = filepath.EvalSymlinks(filepath.Dir(abs)); errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("open %s: its directory does not exist; create it first: %w", path, fs.ErrNotExist)
		}
		file = filepath.Join(dir, filepath.Base(abs))
	}
	if err != nil {
		return "", fmt.Errorf("open %s: %w", path, err)
	}
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("open %s: not a regular file: %w", path, fs.ErrInvalid)
	}
	return file, nil
}

// lock makes this process the only one that has the store open. What it
// returns must stay open for as long as that has to be true.
//
// The lock is that of a transaction on an empty database beside the file. The
// operating system ends it with the process, however that dies, and SQLite
// knows how to take it on every system.
func lock(ctx context.Context, file string) (*conn, error) {
	c, err := dial(file+"-lock", create)
	if err != nil {
		return nil, err
	}
	err = c.exec(ctx, "PRAGMA busy_timeout = 0", "BEGIN EXCLUSIVE")
	if err == nil {
		return c, nil
	}
	if busy(err) {
		err = fmt.Errorf("open %s: %w; stop the other process first, or give this one a file of its own", file, store.ErrLocked)
	}
	return nil, errors.Join(err, c.close())
}

// prepareFile makes sure that the file is a store of this format, creating it if it
// is missing or empty. The caller holds the lock.
func prepareFile(ctx context.Context, file string) error {
	header, err := readHeader(file)
	if err != nil {
		return err
	}
	if len(header) == 0 {
		return createFile(ctx, file)
	}
	if err := checkHeader(file, header); err != nil {
		return err
	}
	if err := checkSize(file, header); err != nil {
		return err
	}
	return checkVersion(file, header)
}

// Format returns the format of the file at path, and that of this program, to which
// Open brings an older one. It changes nothing, and does not mind a process that has
// the file open. It fails with fs.ErrNotExist if there is no file, and with
// store.ErrFormat if it is something else than a store.
func Format(ctx context.Context, path string) (version, known int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, formatVersion, err
	}
	file, err := resolve(path)
	if err != nil {
		return 0, formatVersion, err
	}
	v, err := readFormat(file)
	return int(v), formatVersion, err
}

// checkReadable makes sure that the file is a store of this format without
// changing it.
func checkReadable(file string) error {
	v, err := readFormat(file)
	if err != nil {
		return err
	}
	return known(file, v)
}

// readFormat reads the format of a store. It looks through SQLite only: to open and
// close a file that this process has open elsewhere would end the locks that it has
// on it.
func readFormat(file string) (version int64, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", file, err)
	}
	if info.Size() == 0 {
		return 0, fmt.Errorf("open %s: %w: it is empty", file, store.ErrFormat)
	}
	c, err := dial(file, readOnly)
	if err != nil {
		return 0, err
	}
	var id int64
	err = c.value("PRAGMA application_id", &id)
	if err == nil {
		err = c.value("PRAGMA user_version", &version)
	}
	switch err := errors.Join(err, c.close()); {
	case code(err) == sqlite3.SQLITE_NOTADB:
		return 0, notDatabase(file)
	case err != nil:
		return 0, fmt.Errorf("open %s to read it: %w", file, err)
	case id != applicationID:
		return 0, foreignDatabase(file, uint32(id))
	}
	return version, nil
}

func notDatabase(file string) error {
	return fmt.Errorf("open %s: %w: it is not a SQLite database; give another path", file, store.ErrFormat)
}

func foreignDatabase(file string, id uint32) error {
	return fmt.Errorf("open %s: %w: it is a SQLite database of another application (id %#x); give another path", file, store.ErrFormat, id)
}

// The header of a SQLite file.
const (
	headerSize          = 100
	headerMagic         = "SQLite format 3\x00"
	headerPages         = 28
	headerUserVersion   = 60
	headerApplicationID = 68
)

// readHeader returns the first bytes of the file, or none if it is missing.
func readHeader(file string) ([]byte, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	defer f.Close()
	header := make([]byte, headerSize)
	n, err := io.ReadFull(f, header)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, fmt.Errorf("read header of store: %w", err)
	}
	return header[:n], nil
}

// checkHeader tells a store from other files before SQLite touches it. Stores
// are created with their stamp, so it is never only in the log.
func checkHeader(file string, header []byte) error {
	if len(header) < headerSize || string(header[:len(headerMagic)]) != headerMagic {
		return notDatabase(file)
	}
	if id := binary.BigEndian.Uint32(header[headerApplicationID:]); id != applicationID {
		return foreignDatabase(file, id)
	}
	return nil
}

// checkSize finds a file that has lost its end. While there is a log the file
// need not be whole.
func checkSize(file string, header []byte) error {
	if hasLog(file) {
		return nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	if want := int64(binary.BigEndian.Uint32(header[headerPages:])) * pageSize; info.Size() < want {
		return fmt.Errorf("%w: the file has %d bytes and should have %d", store.ErrCorrupt, info.Size(), want)
	}
	return nil
}

// hasLog reports whether there is a log with something in it.
func hasLog(file string) bool {
	info, err := os.Stat(file + "-wal")
	return err == nil && info.Size() > 0
}

// checkVersion checks the version of the format. A change of it that has not
// been merged into the file is in the log.
func checkVersion(file string, header []byte) error {
	v := int64(binary.BigEndian.Uint32(header[headerUserVersion:]))
	if hasLog(file) {
		// A connection that may not write leaves the log as it is.
		c, err := dial(file, readOnly)
		if err != nil {
			return err
		}
		if err := errors.Join(c.value("PRAGMA user_version", &v), c.close()); err != nil {
			return err
		}
	}
	return known(file, v)
}

// known refuses a version that this program does not know.
func known(file string, v int64) error {
	switch {
	case v > formatVersion:
		return fmt.Errorf("open %s: %w: it has format %d, and this version of the program knows formats up to %d; use a newer version",
			file, store.ErrFormat, v, formatVersion)
	case v < 1:
		return fmt.Errorf("open %s: %w: it has format %d, which no version ever wrote; restore it from a backup", file, store.ErrFormat, v)
	}
	return nil
}

// createFile makes a new store under another name and then renames it, so that
// whatever is found under the right name is a whole store.
func createFile(ctx context.Context, file string) error {
	if hasLog(file) {
		return fmt.Errorf("%w: the file is missing or empty, but its log %s-wal is there; if there never was anything to keep, remove the log to start afresh",
			store.ErrCorrupt, file)
	}
	temp := file + "-new"
	for _, suffix := range []string{"", "-journal", "-wal", "-shm"} {
		if err := os.Remove(temp + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("create store: %w", err)
		}
	}
	// Conversations are nobody else's business. SQLite gives the log the same
	// permissions.
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	if err := fillFile(ctx, temp); err != nil {
		return err
	}
	if err := os.Rename(temp, file); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	if err := syncDir(filepath.Dir(file)); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	return nil
}

func fillFile(ctx context.Context, file string) (err error) {
	c, err := dial(file, readWrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	return c.exec(ctx,
		// The page size must be set before anything else writes the file.
		fmt.Sprintf("PRAGMA page_size = %d", pageSize),
		"PRAGMA synchronous = FULL",
		"PRAGMA fullfsync = ON",
		"BEGIN",
		fmt.Sprintf("PRAGMA application_id = %d", applicationID),
		fmt.Sprintf("PRAGMA user_version = %d", formatVersion),
		schema,
		"COMMIT",
		"PRAGMA journal_mode = WAL",
	)
}

// rewriteLog writes the log that an earlier process has left once more, as it is,
// and syncs it.
//
// That process may have ended because a sync failed. The operating system then
// takes what it could not write for written, still shows it to everyone who
// reads, and does not try again. New writes would be appended to a log with a
// hole that only a loss of power reveals, and be lost behind it. The bytes are
// the same, so that an interruption changes nothing.
func rewriteLog(file string) error {
	log := file + "-wal"
	f, err := os.OpenFile(log, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = errors.Join(copyOnto(f), f.Sync(), f.Close())
	}
	if err != nil {
		return fmt.Errorf("open %s: its log cannot be made durable again: %w", file, err)
	}
	synced(log)
	return nil
}

// copyOnto replaces the content of f by itself.
func copyOnto(f *os.File) error {
	buf := make([]byte, 1<<20)
	for at := int64(0); ; {
		n, err := f.ReadAt(buf, at)
		if _, werr := f.WriteAt(buf[:n], at); werr != nil {
			return werr
		}
		at += int64(n)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// synced is told of the syncs that SQLite does not do itself. Tests that cut the
// power replace it.
var synced = func(path string) {}

// syncDir makes a rename in dir durable.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // a directory cannot be synced there, and need not be
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return err
	}
	synced(dir)
	return nil
}
