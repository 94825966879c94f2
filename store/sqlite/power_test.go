package sqlite_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

var powerClones = flag.Int("power.clones", 0, "cut the power until there were so many distinct states of the files (default: for 20 s, or 2 s with -short)")

// A history is what happened to a store, as its users know it.
type history struct {
	disk *disk

	mu       sync.Mutex
	acks     []ack // in the order of time
	subs     []submission
	journals map[store.Address][]store.Batch // everything that was ever written
}

// An ack is an acknowledged write: the journal of an instance must have this
// offset if power goes away after that moment.
type ack struct {
	at     int // events of the disk before it
	addr   store.Address
	offset int64
}

// A submission that was acknowledged or at least tried.
type submission struct {
	addr       store.Address
	row        store.Submission
	attachment *store.Attachment
}

func (h *history) ack(addr store.Address, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acks = append(h.acks, ack{at: h.disk.now(), addr: addr, offset: offset})
}

// admitOne admits a submission of random size, with an attachment now and then.
func (h *history) admitOne(s *sqlite.Store, rnd *rand.Rand, addr store.Address, id string) (store.Receipt, error) {
	a := &store.Admission{
		Address: addr, Submission: id, Identity: []byte(id), Payload: noise(rnd, "admit "+id),
		Birth: &store.Birth{UID: "uid", Payload: noise(rnd, "birth")}, Node: "n1",
	}
	sub := submission{addr: addr, row: store.Submission{ID: id}}
	if rnd.IntN(3) == 0 {
		at := attachment("file "+id, string(noise(rnd, "attachment ")))
		a.Attachments = []store.Attachment{at}
		sub.attachment = &at
	}
	h.mu.Lock()
	h.subs = append(h.subs, sub)
	h.mu.Unlock()
	r, err := s.Admit(ctx, a)
	if err == nil {
		h.ack(addr, r.Offset)
	}
	return r, err
}

// noise is a payload: mostly small, at times of several pages.
func noise(rnd *rand.Rand, label string) []byte {
	n := 20 + rnd.IntN(400)
	if rnd.IntN(8) == 0 {
		n = rnd.IntN(40_000)
	}
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(rnd.Uint32())
	}
	return append([]byte(label+" "), p...)
}

// work makes one instance do so many submissions, each admitted, worked on in
// some batches, sometimes aborted, and settled. It stops at the first error.
func (h *history) work(s *sqlite.Store, rnd *rand.Rand, addr store.Address, run string, n int) error {
	for i := range n {
		id := fmt.Sprintf("%s-%d", run, i)
		r, err := h.admitOne(s, rnd, addr, id)
		if err != nil {
			return err
		}
		l := r.Lease
		if l == nil {
			taken, err := s.Take(ctx, "n1", addr)
			if err != nil {
				return err
			}
			l = &taken
		}
		if rnd.IntN(4) == 0 {
			if _, err := s.Abort(ctx, addr, []byte("abort "+id)); err != nil {
				return err
			}
		}
		for range rnd.IntN(3) {
			if err := h.append(s, *l, store.Write{Payload: noise(rnd, "work "+id)}); err != nil {
				return err
			}
		}
		if rnd.IntN(10) == 0 {
			continue // stays open
		}
		if err := h.append(s, *l, store.Write{
			Payload: noise(rnd, "end "+id), Settle: []store.Settlement{{Submission: id, Outcome: "completed"}},
		}); err != nil {
			return err
		}
	}
	return nil
}

func (h *history) append(s *sqlite.Store, l store.Lease, w store.Write) error {
	offset, err := s.Append(ctx, l, w)
	if err == nil {
		h.ack(l.Address, offset)
	}
	return err
}

// together has several instances work at the same time.
func (h *history) together(s *sqlite.Store, seed uint64, run string, instances, submissions int) error {
	errs := make([]error, instances)
	var wg sync.WaitGroup
	for g := range instances {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(g)))
			errs[g] = h.work(s, rnd, instance(g), fmt.Sprintf("%s-%d", run, g), submissions)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// learn reads everything that there is, which is what every later state is
// compared with.
func (h *history) learn(s *sqlite.Store) error {
	h.journals = make(map[store.Address][]store.Batch)
	for i := range h.subs {
		sub := &h.subs[i]
		row, err := s.Submission(ctx, sub.addr, sub.row.ID)
		switch {
		case errors.Is(err, store.ErrNotFound):
			sub.row.Offset = -1 // never written
		case err != nil:
			return err
		default:
			sub.row = row
		}
		if h.journals[sub.addr] != nil {
			continue
		}
		if h.journals[sub.addr], _, err = batches(s, sub.addr); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	return nil
}

// batches reads a whole journal.
func batches(s store.Store, addr store.Address) (bs []store.Batch, in store.Instance, err error) {
	for {
		p, err := s.Read(ctx, addr, int64(len(bs))-1, 0)
		if err != nil {
			return nil, in, err
		}
		bs = append(bs, p.Batches...)
		if int64(len(bs)) > p.Head {
			return bs, p.Instance, nil
		}
	}
}

// check compares a store with what happened until a moment: all that was
// acknowledged by then is there, each journal is a prefix of the true one, and
// the index says what the journals say.
func (h *history) check(s *sqlite.Store, acks []ack) error {
	need := make(map[store.Address]int64)
	for _, a := range acks {
		need[a.addr] = max(need[a.addr], a.offset)
	}
	heads, unsettled := make(map[store.Address]int64), make(map[store.Address]int)
	for addr, truth := range h.journals {
		got, in, err := batches(s, addr)
		if errors.Is(err, store.ErrNotFound) {
			in.Head, err = -1, nil
		}
		if err != nil {
			return err
		}
		if least, ok := need[addr]; ok && in.Head < least {
			return fmt.Errorf("%v: head is %d, but offset %d was acknowledged", addr, in.Head, least)
		}
		if len(got) > len(truth) {
			return fmt.Errorf("%v: %d batches, only %d were ever written", addr, len(got), len(truth))
		}
		for i, b := range got {
			if b.Offset != truth[i].Offset || b.Epoch != truth[i].Epoch || !bytes.Equal(b.Payload, truth[i].Payload) {
				return fmt.Errorf("%v: batch %d is not what was written", addr, i)
			}
		}
		heads[addr], unsettled[addr] = in.Head, in.Unsettled
	}
	for _, sub := range h.subs {
		row, err := s.Submission(ctx, sub.addr, sub.row.ID)
		there := sub.row.Offset >= 0 && sub.row.Offset <= heads[sub.addr]
		if there != (err == nil) || err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("submission %q of %v: error %v with head %d, it was admitted at %d", sub.row.ID, sub.addr, err, heads[sub.addr], sub.row.Offset)
		}
		if !there {
			continue
		}
		settled := sub.row.Outcome != "" && sub.row.SettledAt <= heads[sub.addr]
		if settled != (row.Outcome != "") || row.Offset != sub.row.Offset {
			return fmt.Errorf("submission %q of %v is %+v with head %d, in the end it was %+v", sub.row.ID, sub.addr, row, heads[sub.addr], sub.row)
		}
		if !settled {
			unsettled[sub.addr]--
		}
		if a := sub.attachment; a != nil {
			if got, err := s.Attachment(ctx, sub.addr, a.ID); err != nil || !bytes.Equal(got.Data, a.Data) {
				return fmt.Errorf("attachment %q of %v: %d bytes, error %v", a.ID, sub.addr, len(got.Data), err)
			}
		}
	}
	for addr, n := range unsettled {
		if n != 0 {
			return fmt.Errorf("%v: the count of unsettled submissions is wrong by %d", addr, n)
		}
	}
	found, err := s.Integrity(ctx)
	if err == nil && found != "ok" {
		err = fmt.Errorf("integrity check: %s", found)
	}
	return err
}

// A cutter cuts the power again and again and looks at what is left.
type cutter struct {
	t      *testing.T
	dir    string
	seen   map[[32]byte]bool // states of the files and what must be in them
	files  map[[32]byte]bool // states of the files
	clones int
	cuts   int
	again  int // cuts while a store recovered from a cut
}

// memoryDir makes a directory in memory if the system has a place for that, for
// files whose syncs are simulated. Thousands of real ones would take minutes.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "flue-sqlite-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newCutter(t *testing.T) *cutter {
	return &cutter{t: t, dir: memoryDir(t), seen: make(map[[32]byte]bool), files: make(map[[32]byte]bool)}
}

// cut plays the log of a history and cuts the power at about one in every so
// many events. Each state that can be found then must hold what it should.
func (c *cutter) cut(h *history, seed uint64, every, depth int, done func() bool) error {
	p := newPlatter(seed)
	acks := 0
	for n, e := range h.disk.events() {
		p.play(e)
		for acks < len(h.acks) && h.acks[acks].at <= n+1 {
			acks++
		}
		if e.kind == onLoad || p.rnd.IntN(every) != 0 {
			continue
		}
		if c.cuts++; depth > 0 {
			c.again++
		}
		for _, l := range losses {
			files := p.off(l)
			if !c.news(files, acks) {
				continue
			}
			err := c.recover(h, files, h.acks[:acks], p.rnd, depth == 0 && p.rnd.IntN(40) == 0)
			if err != nil {
				keep := filepath.Join(c.t.ArtifactDir(), fmt.Sprintf("seed %d event %d", seed, n))
				if os.MkdirAll(keep, 0o700) == nil {
					_ = writeFiles(keep, files)
				}
				return fmt.Errorf("seed %d, power lost after event %d (%s of %s), of what was not synced there is %s: %w", seed, n, e.kind, e.file, l, err)
			}
			if done != nil && done() {
				return nil
			}
		}
	}
	return nil
}

// news reports whether this state has not been looked at yet.
func (c *cutter) news(files map[string][]byte, acks int) bool {
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(hash, "%q %d ", name, len(files[name]))
		hash.Write(files[name])
	}
	key := [32]byte(hash.Sum(nil))
	c.files[key] = true
	for i, b := range binary.BigEndian.AppendUint64(nil, uint64(acks)) {
		key[i] ^= b
	}
	if c.seen[key] {
		return false
	}
	c.seen[key] = true
	return true
}

// recover opens a store from what was found and checks it. Then it writes on,
// and the power may be cut again in the middle of all that.
func (c *cutter) recover(h *history, files map[string][]byte, acks []ack, rnd *rand.Rand, again bool) (err error) {
	c.clones++
	dir := filepath.Join(c.dir, fmt.Sprint(c.clones))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := writeFiles(dir, files); err != nil {
		return err
	}
	if rnd.IntN(4) == 0 { // the index of the log is not synced by anyone
		if err := writeFiles(dir, map[string][]byte{"flue.db-shm": fill("", 32<<10)}); err != nil {
			return err
		}
	}
	d := newDisk(c.t, dir)
	d.blind = !again
	defer d.eject()
	s, err := sqlite.Open(ctx, filepath.Join(dir, "flue.db"), sqlite.Options{Readers: 1})
	if err != nil {
		return err
	}
	then := &history{disk: d, subs: slices.Clone(h.subs)}
	err = func() error {
		if err := h.check(s, acks); err != nil {
			return err
		}
		return then.goOn(s, rnd, again)
	}()
	if err := errors.Join(err, s.Close()); err != nil || !again {
		return err
	}
	then.acks = append(slices.Clone(acks), then.acks...)
	for i := range acks {
		then.acks[i].at = 0
	}
	return c.cut(then, rnd.Uint64(), 8, 1, nil)
}

// goOn writes to a store that has been recovered.
func (h *history) goOn(s *sqlite.Store, rnd *rand.Rand, much bool) error {
	if err := s.Renew(ctx, "n1", time.Hour); err != nil {
		return err
	}
	n := 1
	if much {
		n = 3
	}
	addr := instance(0)
	if err := h.work(s, rnd, addr, fmt.Sprintf("after %d", rnd.Uint64()), n); err != nil {
		return err
	}
	if err := h.learn(s); err != nil {
		return err
	}
	newest := int64(0)
	for _, b := range h.journals[addr] {
		if b.Epoch < newest && b.Epoch > 0 {
			return fmt.Errorf("epoch %d follows epoch %d", b.Epoch, newest)
		}
		newest = max(newest, b.Epoch)
	}
	return nil
}

// Conditions under which a history is made.
type conditions struct {
	options sqlite.Options
	setup   []string               // statements for the connection that writes
	lies    func(file string) bool // see disk
}

// workload makes a history: a new store, several instances at work, the log
// merged again and again, and reopened in the middle.
func workload(t *testing.T, seed uint64, c conditions) *history {
	t.Helper()
	dir := memoryDir(t)
	h := &history{disk: newDisk(t, dir)}
	h.disk.lies = c.lies
	defer h.disk.eject()
	for run := range 2 {
		s := open(t, filepath.Join(dir, "flue.db"), c.options)
		err := func() error {
			// Merge often, so that the log starts anew often.
			setup := append([]string{fmt.Sprintf("PRAGMA wal_autocheckpoint = %d", 20+seed%5*20)}, c.setup...)
			if err := s.Exec(ctx, setup...); err != nil {
				return err
			}
			if err := s.Renew(ctx, "n1", time.Hour); err != nil {
				return err
			}
			if err := h.together(s, seed+uint64(run), fmt.Sprint("run ", run), 4, 8); err != nil {
				return err
			}
			return h.learn(s)
		}()
		if err := errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// Power goes away at every moment, and takes with it anything that has not been
// synced, whole writes or sectors. What was acknowledged is there.
func TestPowerLoss(t *testing.T) {
	const fewest = 20 // states, however slow the machine is
	limit, start := 20*time.Second, time.Now()
	if testing.Short() {
		limit = 2 * time.Second
	}
	c := newCutter(t)
	done := func() bool {
		if *powerClones > 0 {
			return len(c.files) >= *powerClones
		}
		return time.Since(start) > limit && len(c.files) >= fewest
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("FLUE_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("FLUE_SEED: %v", err)
		}
	}
	acks := 0
	for ; !done(); seed++ {
		t.Logf("FLUE_SEED=%d", seed)
		h := workload(t, seed, conditions{})
		acks += len(h.acks)
		if err := c.cut(h, seed, 16, 0, done); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d cuts of the power, %d of them during the recovery from another; %d different states of the files; %d acknowledgements; %v",
		c.cuts, c.again, len(c.files), acks, time.Since(start).Round(time.Second))
}

// SyncNormal may lose what was acknowledged last, and nothing but that: what is
// left is consistent.
func TestPowerLossWithSyncNormal(t *testing.T) {
	h := workload(t, 1, conditions{options: sqlite.Options{Sync: sqlite.SyncNormal}})
	every := 40
	if testing.Short() {
		every = 400
	}
	promised := &history{disk: h.disk, subs: h.subs, journals: h.journals}
	c := newCutter(t)
	if err := c.cut(promised, 1, every, 0, nil); err != nil {
		t.Error(err)
	}
	t.Logf("%d different states of the files", len(c.files))
}

// The same test fails if something is wrong with what is synced.
func TestPowerLossIsNoticed(t *testing.T) {
	for _, tt := range []struct {
		name string
		conditions
	}{
		{"SyncNormal", conditions{options: sqlite.Options{Sync: sqlite.SyncNormal}}},
		{"synchronous = OFF", conditions{setup: []string{"PRAGMA synchronous = OFF"}}},
		{"no sync of the log", conditions{lies: func(file string) bool { return file == "flue.db-wal" }}},
		{"no sync of the file", conditions{lies: func(file string) bool { return file == "flue.db" }}},
		{"no sync of a new file", conditions{lies: func(file string) bool { return file == "flue.db-new" }}},
		{"no sync", conditions{lies: func(string) bool { return true }}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var err error
			c := newCutter(t)
			start := time.Now()
			for seed := uint64(1); seed <= 5 && err == nil; seed++ {
				err = c.cut(workload(t, seed, tt.conditions), seed, 16, 0, nil)
			}
			if err == nil {
				t.Fatalf("%d different states of the files, and nothing was wrong with any of them", len(c.files))
			}
			t.Logf("after %d states, %v: %v", len(c.files), time.Since(start).Round(time.Millisecond), err)
		})
	}
}
