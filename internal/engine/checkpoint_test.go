package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// A counted store counts what is read of journals, and notes every checkpoint.
type counted struct {
	*memstore.Store
	mu      sync.Mutex
	reads   int
	whole   int // reads that begin at the start of a journal
	batches int
	saved   []store.Checkpoint
	bytes   int // appended
}

func (s *counted) Read(ctx context.Context, addr store.Address, after int64, limit int) (store.Page, error) {
	p, err := s.Store.Read(ctx, addr, after, limit)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if after < 0 {
		s.whole++
	}
	s.batches += len(p.Batches)
	return p, err
}

func (s *counted) Append(ctx context.Context, l store.Lease, w store.Write) (int64, error) {
	s.mu.Lock()
	s.bytes += len(w.Payload)
	s.mu.Unlock()
	return s.Store.Append(ctx, l, w)
}

func (s *counted) SaveCheckpoint(ctx context.Context, l store.Lease, c store.Checkpoint) error {
	s.mu.Lock()
	s.saved = append(s.saved, c)
	s.mu.Unlock()
	return s.Store.SaveCheckpoint(ctx, l, c)
}

// chatter holds so many messages that are answered at once.
func chatter(t *testing.T, w *world, s store.Store, messages int) {
	t.Helper()
	e := w.start(t, s)
	for i := range messages {
		if got := settled(t, e, chat, send(t, e, chat, fmt.Sprint("message ", i))); got != "completed" {
			t.Fatalf("settled %s", got)
		}
	}
	stop(t, e)
}

// However long a conversation is, whoever takes it up reads its newest
// checkpoint, which is as large as the model's window, and what has come since,
// which is bounded.
func TestLoadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.every = 0
		(&narrow{window: 8000}).use(w, true)
		durable := memstore.New()
		var before int
		for _, messages := range []int{400, 400, 800} {
			chatter(t, w, durable, messages)
			durable = durable.Reopen()
			s := &counted{Store: durable}
			e := w.start(t, s)
			if got := settled(t, e, chat, send(t, e, chat, "and now")); got != "completed" {
				t.Fatalf("settled %s", got)
			}
			// Batches have two records and more; writing a checkpoint reads one, and
			// is left out while another is being written.
			if s.reads > 6 || s.batches > 512 {
				t.Errorf("after %d messages more, %d batches were read in %d pages", messages, s.batches, s.reads)
			}
			stop(t, e)
			for _, c := range s.saved {
				if len(c.Data) > 250_000 { // just before a compaction it is 180,000; the whole would be 600,000 in the end
					t.Errorf("after %d messages more a checkpoint has %d bytes", messages, len(c.Data))
				}
			}
			if in, err := durable.Instance(t.Context(), chat); err != nil || int(in.Head) < before+2*messages {
				t.Errorf("the head is %d, %v", in.Head, err)
			} else {
				before = int(in.Head)
			}
			durable = durable.Reopen()
		}
		if saved, err := engine.LoadsAlike(t.Context(), durable, chat); err != nil || saved == 0 {
			t.Errorf("a checkpoint of %d bytes: %v", saved, err)
		}
	})
}

// A message to a conversation that ten readers follow costs as many reads of the store
// and as many bytes late as early, and its readers do not cost a read each.
func TestFollowedMessageCostsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.every = 0
		(&narrow{window: 8000}).use(w, true)
		s := &counted{Store: memstore.New()}
		e := w.start(t, s)
		defer stop(t, e)
		one := func(i int) {
			if got := settled(t, e, chat, send(t, e, chat, fmt.Sprintf("message %04d", i))); got != journal.Completed {
				t.Fatalf("settled %s", got)
			}
		}
		// cost is that of ten messages, and of what follows by itself.
		cost := func(from int) (reads, batches, bytes int) {
			synctest.Wait()
			s.mu.Lock()
			reads, batches, bytes = s.reads, s.batches, s.bytes
			s.mu.Unlock()
			for i := range 10 {
				one(from + i)
				time.Sleep(time.Second) // simulated
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.reads - reads, s.batches - batches, s.bytes - bytes
		}
		one(0)
		var readers []*watcher
		for range 10 {
			readers = append(readers, newWatcher(t, e, chat))
		}
		reads, batches, bytes := cost(1)
		late := 1000
		if testing.Short() {
			late = 200
		}
		for i := 11; i < late; i++ {
			one(i)
		}
		lateReads, lateBatches, lateBytes := cost(late)
		t.Logf("ten messages early: %d reads of %d batches, %d bytes appended; late: %d reads of %d batches, %d bytes", reads, batches, bytes, lateReads, lateBatches, lateBytes)
		if lateReads > 2*max(reads, 10) || lateBatches > 2*max(batches, 10) || lateBytes > 2*bytes {
			t.Errorf("ten messages after many others cost more than twice what the first ten do")
		}
		if most := 10; reads > most || lateReads > most {
			t.Errorf("ten readers of what this process writes make it read the store %d and %d times for ten messages", reads, lateReads)
		}
		want := transcript(t, e, chat)
		for _, r := range readers {
			if got := r.stop(); len(got) != len(want) {
				t.Errorf("a reader has %d parts of %d", len(got), len(want))
			}
		}
	})
}

// What is written as checkpoints is in proportion to what is written as records,
// also while the context grows.
func TestCheckpointsAreAmortized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.every, w.reply = 0, echo
		s := &counted{Store: memstore.New()}
		messages, checkpoints := 3000, 4
		if testing.Short() {
			messages, checkpoints = 800, 2
		}
		chatter(t, w, s, messages)
		bytes := 0
		for _, c := range s.saved {
			bytes += len(c.Data)
		}
		if len(s.saved) < checkpoints || bytes > 3*s.bytes {
			t.Errorf("%d checkpoints of %d bytes for %d bytes of records", len(s.saved), bytes, s.bytes)
		}
	})
}

// A shelf has another checkpoint in the place of the newest one.
type shelf struct {
	store.Store
	newest func() (store.Checkpoint, error)
}

func (s *shelf) Checkpoint(ctx context.Context, addr store.Address, atMost int64) (store.Checkpoint, error) {
	if atMost == math.MaxInt64 {
		return s.newest()
	}
	return s.Store.(store.Checkpointer).Checkpoint(ctx, addr, atMost)
}

func (s *shelf) SaveCheckpoint(ctx context.Context, l store.Lease, c store.Checkpoint) error {
	return s.Store.(store.Checkpointer).SaveCheckpoint(ctx, l, c)
}

// newest returns the newest checkpoint of an instance.
func newest(t *testing.T, s store.Store, addr store.Address) store.Checkpoint {
	t.Helper()
	c, err := s.(store.Checkpointer).Checkpoint(t.Context(), addr, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A checkpoint that does not say what the journal says is passed over with one
// line in the log, and changes nothing but how much is read.
func TestUselessCheckpoint(t *testing.T) {
	changed := func(c store.Checkpoint, change func(*fold.Checkpoint)) store.Checkpoint {
		d, err := fold.DecodeCheckpoint(c.Data)
		if err != nil {
			t.Fatal(err)
		}
		change(d)
		c.Offset = d.State.Head
		if c.Data, err = d.Encode(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	lie := func(d *fold.Checkpoint) { d.State.Vars["note"] = []byte(`"a lie"`) }
	for _, tt := range []struct {
		name  string
		spoil func(good, other store.Checkpoint) (store.Checkpoint, error)
		lines int
	}{
		{"good", func(good, _ store.Checkpoint) (store.Checkpoint, error) { return good, nil }, 0},
		{"missing", func(_, _ store.Checkpoint) (store.Checkpoint, error) { return store.Checkpoint{}, store.ErrNotFound }, 0},
		{"unsupported", func(_, _ store.Checkpoint) (store.Checkpoint, error) {
			return store.Checkpoint{}, errors.ErrUnsupported
		}, 0},
		{"unreadable", func(good, _ store.Checkpoint) (store.Checkpoint, error) {
			return store.Checkpoint{Offset: good.Offset}, fmt.Errorf("%w: it is spoiled", store.ErrCorrupt)
		}, 1},
		{"torn", func(good, _ store.Checkpoint) (store.Checkpoint, error) {
			good.Data = good.Data[:len(good.Data)/2]
			return good, nil
		}, 1},
		{"empty", func(good, _ store.Checkpoint) (store.Checkpoint, error) {
			good.Data = nil
			return good, nil
		}, 1},
		{"of another version", func(good, _ store.Checkpoint) (store.Checkpoint, error) {
			good.Data = bytes.Replace(good.Data, []byte("flue-checkpoint "), []byte("flue-checkpoint 9"), 1)
			return good, nil
		}, 1},
		{"of another instance", func(_, other store.Checkpoint) (store.Checkpoint, error) { return other, nil }, 1},
		{"of another instance that says it is this one", func(_, other store.Checkpoint) (store.Checkpoint, error) {
			return changed(other, func(d *fold.Checkpoint) { d.State.Born.ID = chat.ID }), nil
		}, 1},
		{"of another journal", func(good, _ store.Checkpoint) (store.Checkpoint, error) {
			return changed(good, func(d *fold.Checkpoint) { lie(d); d.Tail[7]++ }), nil
		}, 1},
		{"ahead of the journal", func(good, _ store.Checkpoint) (store.Checkpoint, error) {
			return changed(good, func(d *fold.Checkpoint) { lie(d); d.State.Head += 100 }), nil
		}, 1},
		{"at another offset", func(good, _ store.Checkpoint) (store.Checkpoint, error) {
			return changed(good, func(d *fold.Checkpoint) { lie(d); d.State.Head-- }), nil
		}, 1},
		{"stored as another's", func(good, _ store.Checkpoint) (store.Checkpoint, error) {
			good.Offset--
			return good, nil
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				script(w)
				durable := memstore.New()
				chatter(t, w, durable, 3)
				e := w.start(t, durable)
				neighbour := store.Address{Agent: "chat", ID: "neighbour"}
				settled(t, e, neighbour, send(t, e, neighbour, "work"))
				settled(t, e, chat, send(t, e, chat, "work"))
				stop(t, e)
				durable = durable.Reopen()
				spoiled, failure := tt.spoil(newest(t, durable, chat), newest(t, durable, neighbour))
				s := &shelf{Store: durable, newest: func() (store.Checkpoint, error) { return spoiled, failure }}

				if _, err := engine.LoadsAlike(t.Context(), s, chat); err != nil {
					t.Error(err)
				}
				var log bytes.Buffer
				w.log = slog.New(slog.NewTextHandler(&log, nil))
				e = w.start(t, s)
				if got := settled(t, e, chat, send(t, e, chat, "and now")); got != "completed" {
					t.Errorf("the next message settled %s", got)
				}
				if vars, _, err := e.Vars(t.Context(), chat); err != nil || vars["note"] != nil || len(vars) == 0 {
					t.Errorf("the state is %s, %v", vars, err)
				}
				stop(t, e)
				// One for the driver and one for Vars.
				if got := strings.Count(log.String(), "passing over a checkpoint"); got != 2*tt.lines {
					t.Errorf("%d lines of the log, want %d:\n%s", got, 2*tt.lines, &log)
				}
				if text, _ := asked(w.last); text != "and now" || len(w.last.Messages) != 3*2+6+1 {
					t.Errorf("the model was shown %d messages, the last is %q", len(w.last.Messages), text)
				}
			})
		})
	}
}

// If both checkpoints are useless the journal is read from its start; if the
// newest one is, from the other.
func TestOlderCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply = echo
		durable := memstore.New()
		chatter(t, w, durable, 3)
		durable = durable.Reopen()
		good := newest(t, durable, chat)
		torn := store.Checkpoint{Offset: good.Offset, Data: good.Data[:100]}
		s := &shelf{Store: durable, newest: func() (store.Checkpoint, error) { return torn, nil }}
		saved, err := engine.LoadsAlike(t.Context(), s, chat)
		older, _ := durable.Checkpoint(t.Context(), chat, good.Offset-1)
		if err != nil || saved != len(older.Data) || older.Offset >= good.Offset {
			t.Errorf("read from %d bytes, %v; the older checkpoint at %d has %d", saved, err, older.Offset, len(older.Data))
		}
	})
}

// A repair that passes over what a checkpoint stands on makes the checkpoint
// useless, and damage behind it is judged by the whole journal.
func TestRepairBehindACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply = slowEcho
		s := talk(t, w)
		if saved, err := engine.LoadsAlike(t.Context(), s, chat); err != nil || saved == 0 {
			t.Fatalf("%d bytes, %v", saved, err)
		}
		head := newest(t, s, chat).Offset
		bad := holding(t, s, 2, isDelta)
		s = mend(t, s, &journal.Repair{From: bad, To: head})
		spoilt := struct {
			store.Store
			store.Checkpointer
		}{&spoiled{Store: s, bad: []int64{bad}}, s}
		saved, err := engine.LoadsAlike(t.Context(), spoilt, chat)
		if err != nil || saved != 0 {
			t.Errorf("after a repair: from %d bytes, %v", saved, err)
		}
		e := w.start(t, spoilt)
		if got := settled(t, e, chat, send(t, e, chat, "four")); got != "completed" {
			t.Errorf("settled %s", got)
		}
		stop(t, e)
		// The next checkpoint knows of the repair.
		if saved, err := engine.LoadsAlike(t.Context(), spoilt, chat); err != nil || saved == 0 {
			t.Errorf("after a checkpoint behind the repair: from %d bytes, %v", saved, err)
		}
	})
}

// A process that dies at a checkpoint, before it, after it or long after it, has
// lost nothing.
func TestCrashAtACheckpoint(t *testing.T) {
	runs := 0
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			for m, mode := range modes {
				n, step := 1, 1
				if testing.Short() {
					n, step = 1+m, len(modes)
				}
				for ; sc.crashAtCheckpoint(t, n, mode); n += step {
					runs++
				}
			}
		})
	}
	t.Logf("%d runs", runs)
}

// crashAtCheckpoint reports whether there was an n-th checkpoint.
func (sc scenario) crashAtCheckpoint(t *testing.T, n int, mode faultstore.Mode) (crashed bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		sc.script(w)
		w.merge = time.Second
		durable := memstore.New()
		fs := faultstore.New(durable)
		fs.CrashUpkeep(n, mode)
		began, acked, aborted := time.Now(), make(map[int]bool), false
		e := w.start(t, fs)
		crashed = sc.live(t, e, fs, began, acked, &aborted)
		if crashed {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := e.Close(ctx); err != nil {
				t.Fatal(err)
			}
			durable = durable.Reopen()
			fs.Flush()
			fs = faultstore.New(durable)
			e = w.start(t, fs)
			sc.live(t, e, fs, began, acked, &aborted)
		}
		stop(t, e)
		durable = durable.Reopen()
		e = w.start(t, durable)
		defer func() { stop(t, e) }()
		sc.check(t, w, e, durable, acked)
		if _, err := engine.LoadsAlike(t.Context(), durable, chat); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Fatalf("after a crash at checkpoint %d, %s", n, mode)
		}
	})
	return crashed
}

// A slow store takes its time over checkpoints.
type slow struct {
	*memstore.Store
	mu        sync.Mutex
	now, most int
	saved     int
}

func (s *slow) SaveCheckpoint(ctx context.Context, l store.Lease, c store.Checkpoint) error {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	time.Sleep(time.Minute)
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now--
		s.saved++
	}()
	return s.Store.SaveCheckpoint(ctx, l, c)
}

// Nothing waits for a checkpoint that is being written, there is never another
// one beside it, and Close waits for it.
func TestCheckpointIsBesideTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.every, w.reply = 4, echo
		s := &slow{Store: memstore.New()}
		e := w.start(t, s)
		began := time.Now()
		for i := range 20 {
			settled(t, e, chat, send(t, e, chat, fmt.Sprint(i)))
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("twenty messages took %s", took)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.most != 1 || s.now != 0 || s.saved < 2 {
			t.Errorf("%d checkpoints were written at once, %d are still, %d are done", s.most, s.now, s.saved)
		}
	})
}

// An instance that leaves memory is kept as it is then, if it has come far since
// its last checkpoint: when there is no room for it, and when the process ends.
func TestCheckpointWhenLeaving(t *testing.T) {
	for _, tt := range []struct {
		name     string
		cache    int
		messages int
		want     bool
	}{
		{"evicted", -1, 40, true},
		{"closed", 0, 40, true},
		{"evicted at once", -1, 2, false},
		{"closed at once", 0, 2, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.every, w.reply, w.cache = 1000, echo, tt.cache
				durable := memstore.New()
				chatter(t, w, durable, tt.messages)
				saved, err := engine.LoadsAlike(t.Context(), durable.Reopen(), chat)
				if err != nil || (saved > 0) != tt.want {
					t.Errorf("read from a checkpoint of %d bytes, want one: %v; %v", saved, tt.want, err)
				}
			})
		})
	}
}

// No checkpoint is written where none is wanted.
func TestNoCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.every, w.reply = -1, echo
		s := &counted{Store: memstore.New()}
		chatter(t, w, s, 300)
		if len(s.saved) > 0 {
			t.Errorf("%d were written", len(s.saved))
		}
		// Nor where there is no place for one.
		w.every = 1
		chatter(t, w, faultstore.New(struct{ store.Store }{memstore.New()}), 3)
		chatter(t, w, struct{ store.Store }{memstore.New()}, 3)
	})
}
