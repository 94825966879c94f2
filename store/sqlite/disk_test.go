package sqlite_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/flue-go/flue/store/sqlite"
)

// A disk is a directory in which everything that SQLite does to files is seen
// and recorded, can be made to fail, and can be played back as it would be found
// after a loss of power.
//
// It stands between SQLite and the operating system. Reads are those of the
// real files, which is what a process sees that has not lost power.
type disk struct {
	dir string

	mu    sync.Mutex
	log   []event
	known map[string]bool // files whose content the log can tell

	// fail, if not nil, is asked before everything that is done, and returns
	// the result code of SQLite that it fails with, or 0.
	fail func(event) int32
	// lies says of which files the disk reports a sync that does not happen.
	lies func(file string) bool
	// blind makes the disk record nothing.
	blind bool
}

// An event is one thing that was done to a file.
type event struct {
	kind kind
	file string // its name in the directory
	off  int64  // of a write, or the size that a file is cut to
	data []byte // that was written, or that was there at the start
	to   string // the new name
}

type kind string

const (
	onRead     kind = "read" // is not recorded
	onLoad     kind = "load" // was there before the recording
	onCreate   kind = "create"
	onWrite    kind = "write"
	onTruncate kind = "truncate"
	onSync     kind = "sync"
	onBadSync  kind = "failed sync"
	onDelete   kind = "delete"
	onSyncDir  kind = "sync of the directory"
	onRename   kind = "rename"
)

var disks struct {
	sync.Mutex
	hook sync.Once
	dirs map[string]*disk
	open map[uintptr]opened // by the address of SQLite's file
}

type opened struct {
	disk *disk
	name string
}

// newDisk makes a disk of an existing directory.
func newDisk(t testing.TB, dir string) *disk {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	disks.hook.Do(func() {
		// SQLite sets itself up at the first use.
		raw(t, filepath.Join(t.TempDir(), "first.db"), "PRAGMA user_version = 1")
		hookFiles(sqlite3.Xsqlite3_vfs_find, sqlite3.Xsqlite3_malloc)
		sqlite.OnSync(synced)
	})
	d := &disk{dir: dir, known: make(map[string]bool)}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), "-shm") {
			d.opening(e.Name())
		}
	}
	disks.Lock()
	defer disks.Unlock()
	if disks.dirs == nil {
		disks.dirs, disks.open = make(map[string]*disk), make(map[uintptr]opened)
	}
	disks.dirs[dir] = d
	return d
}

// eject ends the disk; its directory is an ordinary one again.
func (d *disk) eject() {
	disks.Lock()
	defer disks.Unlock()
	delete(disks.dirs, d.dir)
}

// now is the number of events so far.
func (d *disk) now() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.log)
}

// events returns what has been recorded.
func (d *disk) events() []event {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.log)
}

// setFail makes what is done from now on fail as fn says.
func (d *disk) setFail(fn func(event) int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = fn
}

// crash makes the disk deaf, so that whatever a store does when it is closed has
// no effect, as if its process had been killed. The returned function ends that.
func (d *disk) crash() (revive func()) {
	d.setFail(func(e event) int32 {
		if e.kind == onRead {
			return 0
		}
		return sqlite3.SQLITE_IOERR
	})
	return func() { d.setFail(nil) }
}

// before is called before something is done. A result that is not 0 is that
// of SQLite's call, and nothing is done.
func (d *disk) before(e event) int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		if code := d.fail(e); code != 0 {
			if e.kind == onSync {
				d.record(event{kind: onBadSync, file: e.file})
			}
			return code
		}
	}
	if e.kind == onRead || e.kind == onSync && d.lies != nil && d.lies(e.file) {
		return 0
	}
	d.record(e)
	return 0
}

func (d *disk) record(e event) {
	if !d.blind {
		d.log = append(d.log, e)
	}
}

// synced is called when the store itself, and not SQLite, has synced a directory
// or rewritten and synced a file.
func synced(path string) {
	disks.Lock()
	whole, d := disks.dirs[path], disks.dirs[filepath.Dir(path)]
	disks.Unlock()
	if whole != nil {
		whole.mu.Lock()
		defer whole.mu.Unlock()
		whole.renamed()
		whole.record(event{kind: onSyncDir})
	}
	if d != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		name := filepath.Base(path)
		data, err := os.ReadFile(path)
		if err != nil {
			panic(err)
		}
		d.record(event{kind: onWrite, file: name, data: data})
		d.record(event{kind: onSync, file: name})
	}
}

// renamed records that a store has got its name, if it has.
func (d *disk) renamed() {
	for name := range d.known {
		right, ok := strings.CutSuffix(name, "-new")
		if _, err := os.Lstat(filepath.Join(d.dir, right)); ok && err == nil {
			delete(d.known, name)
			d.known[right] = true
			d.record(event{kind: onRename, file: name, to: right})
		}
	}
}

// opening is called before a file is opened, and perhaps made.
func (d *disk) opening(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renamed()
	if d.known[name] || d.blind {
		return
	}
	d.known[name] = true
	data, err := os.ReadFile(filepath.Join(d.dir, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.record(event{kind: onCreate, file: name})
	default:
		d.record(event{kind: onLoad, file: name, data: data})
	}
}

func (d *disk) deleted(name string, dirSync bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known[name] {
		return
	}
	delete(d.known, name)
	d.record(event{kind: onDelete, file: name})
	if dirSync {
		d.record(event{kind: onSyncDir, file: name})
	}
}

// at is the object at an address of SQLite's.
func at[T any](address uintptr) *T {
	return (*T)(*(*unsafe.Pointer)(unsafe.Pointer(&address)))
}

// function is the function at an address, as SQLite's C has it, translated.
func function[F any](address uintptr) F {
	return *(*F)(unsafe.Pointer(&struct{ uintptr }{address}))
}

// replace puts f where a function of SQLite's was and returns that.
func replace[F any](where *uintptr, f F) (original F) {
	original = function[F](*where)
	kept = append(kept, f)
	*where = *(*uintptr)(unsafe.Pointer(&f))
	return original
}

var kept []any // what only SQLite refers to

// hookFiles puts the disks between SQLite and the files of the operating
// system. Files elsewhere are not touched.
//
// T is the state of a C thread, which every function of SQLite takes and nothing
// here looks at. That it is a parameter saves a dependency on its package.
func hookFiles[T any](find func(*T, uintptr) uintptr, alloc func(*T, int32) uintptr) {
	vfs := at[sqlite3.Tsqlite3_vfs](find(new(T), 0))
	methods := make(map[uintptr]uintptr) // of files: the original ones, ours

	var open func(*T, uintptr, uintptr, uintptr, int32, uintptr) int32
	open = replace(&vfs.FxOpen, func(tls *T, vfs, name, file uintptr, flags int32, out uintptr) int32 {
		d, base := diskOf(name)
		if d == nil {
			return open(tls, vfs, name, file, flags, out)
		}
		d.opening(base)
		code := open(tls, vfs, name, file, flags, out)
		if code != sqlite3.SQLITE_OK {
			return code
		}
		disks.Lock()
		defer disks.Unlock()
		disks.open[file] = opened{d, base}
		its := at[uintptr](file)
		if methods[*its] == 0 {
			// In memory of C's, as SQLite expects it.
			m := alloc(tls, int32(unsafe.Sizeof(sqlite3.Tsqlite3_io_methods{})))
			*at[sqlite3.Tsqlite3_io_methods](m) = *at[sqlite3.Tsqlite3_io_methods](*its)
			hookFile[T](at[sqlite3.Tsqlite3_io_methods](m))
			methods[*its] = m
		}
		*its = methods[*its]
		return code
	})

	var remove func(*T, uintptr, uintptr, int32) int32
	remove = replace(&vfs.FxDelete, func(tls *T, vfs, name uintptr, dirSync int32) int32 {
		d, base := diskOf(name)
		if d == nil {
			return remove(tls, vfs, name, dirSync)
		}
		d.mu.Lock()
		fail := d.fail
		d.mu.Unlock()
		if fail != nil {
			if code := fail(event{kind: onDelete, file: base}); code != 0 {
				return code
			}
		}
		code := remove(tls, vfs, name, dirSync)
		if code == sqlite3.SQLITE_OK {
			d.deleted(base, dirSync != 0)
		}
		return code
	})
}

// diskOf returns the disk that the file at a path is on, which is a C string.
func diskOf(path uintptr) (*disk, string) {
	if path == 0 {
		return nil, "" // a temporary file
	}
	var b []byte
	for ; *at[byte](path) != 0; path++ {
		b = append(b, *at[byte](path))
	}
	dir, name := filepath.Split(string(b))
	if strings.HasSuffix(name, "-lock") {
		return nil, ""
	}
	disks.Lock()
	defer disks.Unlock()
	return disks.dirs[filepath.Clean(dir)], name
}

// hookFile makes the methods of a file tell its disk before they do what the
// original ones do.
func hookFile[T any](ours *sqlite3.Tsqlite3_io_methods) {
	its := func(file uintptr) opened {
		disks.Lock()
		defer disks.Unlock()
		return disks.open[file]
	}

	var closing func(*T, uintptr) int32
	closing = replace(&ours.FxClose, func(tls *T, file uintptr) int32 {
		disks.Lock()
		delete(disks.open, file)
		disks.Unlock()
		return closing(tls, file)
	})

	var read func(*T, uintptr, uintptr, int32, int64) int32
	read = replace(&ours.FxRead, func(tls *T, file, buf uintptr, n int32, off int64) int32 {
		f := its(file)
		if code := f.disk.before(event{kind: onRead, file: f.name, off: off}); code != 0 {
			return code
		}
		return read(tls, file, buf, n, off)
	})

	var write func(*T, uintptr, uintptr, int32, int64) int32
	write = replace(&ours.FxWrite, func(tls *T, file, buf uintptr, n int32, off int64) int32 {
		f := its(file)
		data := slices.Clone(unsafe.Slice(at[byte](buf), n))
		if code := f.disk.before(event{kind: onWrite, file: f.name, off: off, data: data}); code != 0 {
			if code == sqlite3.SQLITE_FULL { // there was room for a part
				f.disk.mu.Lock()
				f.disk.record(event{kind: onWrite, file: f.name, off: off, data: data[:n/2]})
				f.disk.mu.Unlock()
				write(tls, file, buf, n/2, off)
			}
			return code
		}
		return write(tls, file, buf, n, off)
	})

	var truncate func(*T, uintptr, int64) int32
	truncate = replace(&ours.FxTruncate, func(tls *T, file uintptr, size int64) int32 {
		f := its(file)
		if code := f.disk.before(event{kind: onTruncate, file: f.name, off: size}); code != 0 {
			return code
		}
		return truncate(tls, file, size)
	})

	// Nothing is really synced: what a loss of power leaves is known anyway.
	replace(&ours.FxSync, func(_ *T, file uintptr, _ int32) int32 {
		f := its(file)
		return f.disk.before(event{kind: onSync, file: f.name})
	})
}

// A platter is what is on a disk while power goes away: what is certain to be
// found later, and what may be.
type platter struct {
	rnd   *rand.Rand
	files map[string]*inode
}

// An inode is a file. Of a name, it says what it stands for.
type inode struct {
	synced  []byte
	pending []event // since the last sync
	named   bool    // the directory is certain to have it under its name
	gone    bool    // it has been deleted
	before  *inode  // what the name may still stand for
}

// sector is what a disk writes at once.
const sector = 512

func newPlatter(seed uint64) *platter {
	return &platter{rnd: rand.New(rand.NewPCG(seed, 7)), files: make(map[string]*inode)}
}

// play does what the event did.
func (p *platter) play(e event) {
	f := p.files[e.file]
	switch e.kind {
	case onLoad:
		p.files[e.file] = &inode{synced: bytes.Clone(e.data), named: true}
	case onCreate:
		p.files[e.file] = &inode{before: f.former()}
	case onDelete:
		p.files[e.file] = &inode{gone: true, before: f.former()}
	case onSyncDir:
		p.syncDir()
	case onRename:
		// Until the directory is synced there may be either name.
		p.files[e.file] = &inode{gone: true, before: f}
		moved := *f
		moved.named, moved.before = false, p.files[e.to].former()
		p.files[e.to] = &moved
	case onWrite, onTruncate:
		f.pending = append(f.pending, e)
	case onSync:
		for _, e := range f.pending {
			f.synced = apply(f.synced, e)
		}
		f.pending = nil
		if !f.named {
			p.syncDir() // SQLite does so with the first sync of a log or journal
		}
	case onBadSync:
		// The system may now take for clean what has never been written.
		f.synced = p.some(f, p.chance())
		f.pending = nil
	default:
		panic(e.kind)
	}
}

func (p *platter) syncDir() {
	for _, f := range p.files {
		f.named, f.before = true, nil
	}
}

// former is what a name stands for on a disk that does not know of its latest
// change.
func (f *inode) former() *inode {
	switch {
	case f == nil:
		return nil
	case f.named && !f.gone:
		return f
	}
	return f.before
}

// apply does what the event did to b, in place.
func apply(b []byte, e event) []byte {
	size := e.off + int64(len(e.data))
	if e.kind == onWrite {
		size = max(int64(len(b)), size)
	}
	if n := size - int64(len(b)); n > 0 {
		b = append(b, make([]byte, n)...)
	}
	b = b[:size]
	if e.kind == onWrite {
		copy(b[e.off:], e.data)
	}
	return b
}

// A loss is how much is lost of what was not synced.
type loss string

const (
	loseAll  loss = "nothing unsynced"
	loseNone loss = "everything"
	loseSome loss = "some writes"
	loseTorn loss = "some sectors"
)

var losses = []loss{loseAll, loseNone, loseSome, loseTorn}

// chance is how likely an unsynced write is there. The extremes are the most
// interesting, since every file has a chance of its own.
func (p *platter) chance() float64 {
	return []float64{0, 0.1, 0.5, 0.9, 1}[p.rnd.IntN(5)]
}

// some is the content of f if some of its unsynced writes have happened.
func (p *platter) some(f *inode, chance float64) []byte {
	b := bytes.Clone(f.synced)
	for _, e := range f.pending {
		if p.rnd.Float64() < chance {
			b = apply(b, e)
		}
	}
	return b
}

// torn is the content of f if some sectors of its unsynced writes have been
// written. Where a file has grown without them there is nothing but zeros.
func (p *platter) torn(f *inode, chance float64) []byte {
	b := bytes.Clone(f.synced)
	for _, e := range f.pending {
		if e.kind == onTruncate {
			if p.rnd.Float64() < chance {
				b = apply(b, e)
			}
			continue
		}
		if p.rnd.Float64() < chance && int64(len(b)) < e.off+int64(len(e.data)) {
			b = apply(b, event{kind: onTruncate, off: e.off + int64(len(e.data))})
		}
		for start := e.off; start < e.off+int64(len(e.data)); {
			end := min(start/sector*sector+sector, e.off+int64(len(e.data)))
			if p.rnd.Float64() < chance {
				b = apply(b, event{kind: onWrite, off: start, data: e.data[start-e.off : end-e.off]})
			}
			start = end
		}
	}
	return b
}

// off returns the files that may be found if power goes away now. They are
// good until something else is played.
func (p *platter) off(l loss) map[string][]byte {
	files := make(map[string][]byte)
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		f := p.files[name]
		switch l {
		case loseAll:
			if !f.named {
				f = f.before
			}
		case loseSome, loseTorn:
			if !f.named && p.rnd.IntN(2) == 0 {
				f = f.before
			}
		}
		if f == nil || f.gone {
			continue
		}
		switch l {
		case loseAll:
			files[name] = f.synced
		case loseNone:
			files[name] = p.some(f, 1)
		case loseSome:
			files[name] = p.some(f, p.chance())
		case loseTorn:
			files[name] = p.torn(f, p.chance())
		}
	}
	return files
}

// writeFiles puts files into a directory.
func writeFiles(dir string, files map[string][]byte) error {
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return fmt.Errorf("write clone: %w", err)
		}
	}
	return nil
}
