package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
	"github.com/flue-go/flue/wire"
)

// wordy is a model that thinks and writes slowly, so that each word is appended by
// itself.
func wordy(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
	text, results := asked(req)
	if text == "work" && results == 0 {
		if !dictate(ctx, yield, 0, model.Reasoning, "I had better look.") || !dictate(ctx, yield, 1, model.Text, "Let me look it up.") {
			return
		}
		b := model.Block{Kind: model.ToolCall, Name: "work", CallID: fmt.Sprint("w", len(req.Messages))}
		yield(model.BlockDone{Index: 2, Block: b}, nil)
		yield(model.Done{Stop: model.StopToolUse}, nil)
		return
	}
	if dictate(ctx, yield, 0, model.Text, "You have said this to me: "+text) {
		yield(model.Done{Stop: model.StopEnd}, nil)
	}
}

func dictate(ctx context.Context, yield func(model.Event, error) bool, index int, kind model.BlockKind, text string) bool {
	for _, word := range strings.SplitAfter(text, " ") {
		if !yield(model.Delta{Index: index, Kind: kind, Text: word}, nil) || !pause(ctx, 2*time.Second) {
			return false
		}
	}
	return yield(model.BlockDone{Index: index, Block: model.Block{Kind: kind, Text: text}}, nil)
}

// all returns the batches of a journal.
func all(t testing.TB, s store.Store) []store.Batch {
	t.Helper()
	var out []store.Batch
	for b, err := range store.Batches(t.Context(), s, chat, -1) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// A client applies changes, as the SDK does.
type client struct {
	wire.Conversation
	seen   wire.Position
	resets int
}

// follow reads all changes after an offset.
func (c *client) follow(t testing.TB, e *engine.Engine, after int64, limit int) {
	t.Helper()
	for first := true; ; first = false {
		u, err := e.Updates(t.Context(), chat, after, limit)
		if err != nil {
			t.Fatalf("updates after %d: %v", after, err)
		}
		c.apply(t, u, first && after >= 0)
		if after = u.Next; u.UpToDate {
			return
		}
	}
}

func (c *client) apply(t testing.TB, u engine.Updates, resumed bool) {
	t.Helper()
	var chunks []wire.Chunk
	if err := json.Unmarshal(slices.Concat([]byte("["), u.Chunks, []byte("]")), &chunks); err != nil {
		t.Fatal(err)
	}
	for i := range chunks {
		if chunks[i].Position.Compare(c.seen) <= 0 && c.seen != (wire.Position{}) {
			t.Fatalf("a change at %+v behind %+v", chunks[i].Position, c.seen)
		}
		c.seen = *chunks[i].Position
		if chunks[i].Type == wire.ChunkReset && resumed {
			c.resets++
		}
		if err := c.Apply(&chunks[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// readers are clients that have each stopped at an offset, from -1 on.
func readers(t testing.TB, e *engine.Engine) []*client {
	t.Helper()
	list := []*client{{}}
	for c := new(client); ; {
		u, err := e.Updates(t.Context(), chat, int64(len(list)-2), 1)
		if err != nil {
			t.Fatal(err)
		}
		if u.Next != int64(len(list)-1) {
			t.Fatalf("after %d comes %d", len(list)-2, u.Next)
		}
		c.apply(t, u, false)
		list = append(list, c.clone(t))
		if u.UpToDate {
			return list
		}
	}
}

func (c *client) clone(t testing.TB) *client {
	t.Helper()
	var snap wire.Snapshot
	data, err := json.Marshal(wire.Snapshot{Messages: c.Messages, Settlements: c.Settlements})
	if err == nil {
		err = json.Unmarshal(data, &snap)
	}
	if err != nil {
		t.Fatal(err)
	}
	clone := &client{seen: c.seen}
	clone.Reset(&snap)
	return clone
}

func isText(b store.Batch) bool {
	d, err := journal.Decode(b.Payload)
	if err != nil {
		return false
	}
	_, ok := d.Streamed()
	return ok
}

// texts is how many batches hold nothing but text.
func texts(batches []store.Batch) int {
	n := 0
	for _, b := range batches {
		if isText(b) {
			n++
		}
	}
	return n
}

// sameConversation compares what a client has with the conversation as it is.
func sameConversation(t testing.TB, what string, c *client, e *engine.Engine) {
	t.Helper()
	snap, err := e.Snapshot(t.Context(), chat)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(snap.Messages, c.Messages, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s has other messages (-snapshot +client):\n%s", what, diff)
	}
	if diff := cmp.Diff(snap.Settlements, c.Settlements, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s has other settlements (-snapshot +client):\n%s", what, diff)
	}
}

// The text of old answers is kept in one piece; nothing else is changed. Whoever
// reads on gets the same, wherever he has stopped: within the text by a snapshot,
// elsewhere by what he has not seen.
func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply, w.tools = wordy, []engine.Tool{w.tool("work", nil)}
		s := memstore.New()
		e := w.start(t, s)
		first := send(t, e, chat, "work")
		time.Sleep(5 * time.Second)
		second := send(t, e, chat, "in the middle of the text")
		for _, id := range []string{first, second, send(t, e, chat, "one more")} {
			if got := settled(t, e, chat, id); got != "completed" {
				t.Fatalf("settled %s", got)
			}
		}
		before, list := all(t, s), readers(t, e)
		want, err := engine.StateOf(t.Context(), s, chat)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Minute)
		if n := len(all(t, s)); n != len(before) {
			t.Errorf("after 9 minutes %d of %d batches are left", n, len(before))
		}
		time.Sleep(90 * time.Second)
		after := all(t, s)
		inside := check(t, before, after)
		if texts(before) < 15 || texts(after) > 5 {
			t.Errorf("%d batches of text have become %d", texts(before), texts(after))
		}
		if got, err := engine.StateOf(t.Context(), s, chat); err != nil || string(got) != string(want) {
			t.Errorf("the journal folds to\n%s\nand did to\n%s\n%v", got, want, err)
		}
		if _, err := engine.LoadsAlike(t.Context(), s, chat); err != nil {
			t.Error(err)
		}
		// The engine that wrote it still has the pieces; the next one does not.
		for i, c := range list {
			c = c.clone(t)
			c.follow(t, e, int64(i-1), 1)
			sameConversation(t, fmt.Sprint("who goes on at once after ", i-1), c, e)
		}
		stop(t, e)
		e = w.start(t, s.Reopen())
		defer func() { stop(t, e) }()
		for i, c := range list {
			offset := int64(i - 1)
			for _, limit := range []int{1, 3, 1000} {
				c := c.clone(t)
				c.follow(t, e, offset, limit)
				sameConversation(t, fmt.Sprintf("who goes on after %d, %d at a time,", offset, limit), c, e)
				if reset := c.resets > 0; reset != inside[offset] {
					t.Errorf("who goes on after %d is reset: %v, is within merged text: %v", offset, reset, inside[offset])
				}
			}
		}
	})
}

// check compares a journal with what was made of it, and returns the offsets at
// which one would stop within merged text.
func check(t testing.TB, before, after []store.Batch) (inside map[int64]bool) {
	t.Helper()
	inside = make(map[int64]bool)
	next := int64(0)
	for _, b := range after {
		if b.Offset != next {
			t.Fatalf("batch %d follows batch %d", b.Offset, next-1)
		}
		next = b.Last() + 1
		old := before[b.Offset]
		if b.Span == 0 {
			if diff := cmp.Diff(old, b); diff != "" {
				t.Errorf("batch %d was changed (-before +after):\n%s", b.Offset, diff)
			}
			continue
		}
		if b.Epoch != old.Epoch {
			t.Errorf("batch %d was of epoch %d and is of %d", b.Offset, old.Epoch, b.Epoch)
		}
		for o := b.Offset; o < b.Last(); o++ {
			inside[o] = true
		}
		for _, piece := range before[b.Offset : b.Last()+1] {
			if !isText(piece) {
				t.Errorf("batch %d stands for batch %d, which is not text", b.Offset, piece.Offset)
			}
		}
	}
	if next != int64(len(before)) {
		t.Errorf("the journal has %d offsets, and had %d", next, len(before))
	}
	return inside
}

// What is not settled is left alone, however old it is.
func TestRetentionWaitsForSettlement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply = wordy
		w.tools = []engine.Tool{w.tool("work", func(ctx context.Context, _ *engine.Work) engine.Result {
			pause(ctx, 40*time.Minute)
			return engine.Result{Content: "done"}
		})}
		s := memstore.New()
		e := w.start(t, s)
		defer func() { stop(t, e) }()
		id := send(t, e, chat, "work")
		time.Sleep(35 * time.Minute)
		before := texts(all(t, s))
		if before < 5 {
			t.Fatalf("%d batches of text", before)
		}
		settled(t, e, chat, id)
		time.Sleep(9 * time.Minute)
		if n := texts(all(t, s)); n < before {
			t.Errorf("%d of %d batches of text are left", n, before)
		}
		time.Sleep(2 * time.Minute)
		if n := texts(all(t, s)); n > 3 {
			t.Errorf("%d batches of text are left at the end", n)
		}
	})
}

// It makes no difference whether the instance is still in memory, or was taken up
// by another process since.
func TestRetentionOfWhatWasForgotten(t *testing.T) {
	for _, tt := range []struct {
		name    string
		every   int
		cache   int
		restart bool
	}{
		{"kept", 1, 0, false},
		{"evicted", 1, -1, false},
		{"evicted, no checkpoint", -1, -1, false},
		{"taken up from a checkpoint", 1, 0, true},
		{"taken up from the start", -1, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.reply, w.every, w.cache = wordy, tt.every, tt.cache
				s := memstore.New()
				e := w.start(t, s)
				defer func() { stop(t, e) }()
				settled(t, e, chat, send(t, e, chat, "one"))
				if tt.restart {
					time.Sleep(time.Minute)
					stop(t, e)
					s = s.Reopen()
					e = w.start(t, s)
					time.Sleep(time.Hour)
					if n := texts(all(t, s)); n < 5 {
						t.Errorf("%d batches of text are left, and nobody has touched it", n)
					}
					before := texts(all(t, s))
					settled(t, e, chat, send(t, e, chat, "hi"))
					synctest.Wait()
					// The old answer at once, the new one in its time.
					if n := texts(all(t, s)); n < 5 || n > before+1 {
						t.Errorf("%d batches of text, and there were %d before an answer as long", n, before)
					}
				}
				time.Sleep(11 * time.Minute)
				if n := texts(all(t, s)); n > 2 {
					t.Errorf("%d batches of text are left", n)
				}
				if tt.cache == 0 {
					return
				}
				// It was taken for that, and given back.
				if err := s.Renew(t.Context(), "other", time.Minute); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Take(t.Context(), "other", chat); err != nil {
					t.Errorf("another node cannot take it: %v", err)
				}
			})
		})
	}
}

// Pieces are kept for as long as one says.
func TestRetentionOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for after, want := range map[time.Duration]bool{-1: false, time.Minute: true} {
			w := newWorld()
			w.reply, w.merge = wordy, after
			s := memstore.New()
			e := w.start(t, s)
			settled(t, e, chat, send(t, e, chat, "one"))
			time.Sleep(2 * time.Minute)
			if got := texts(all(t, s)) == 1; got != want {
				t.Errorf("merged after %s: %v, want %v", after, got, want)
			}
			time.Sleep(time.Hour)
			stop(t, e)
			// Nor where it cannot be done.
			w.merge = time.Minute
			for _, s := range []store.Store{struct{ store.Store }{memstore.New()}, faultstore.New(struct{ store.Store }{memstore.New()})} {
				e := w.start(t, s)
				settled(t, e, chat, send(t, e, chat, "one"))
				time.Sleep(time.Hour)
				stop(t, e)
			}
		}
	})
}

// What a repair passes over, and what cannot be read, stay as they are: the repair
// names their offsets.
func TestRetentionLeavesRepairsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply = wordy
		s := memstore.New()
		e := w.start(t, s)
		settled(t, e, chat, send(t, e, chat, "one"))
		settled(t, e, chat, send(t, e, chat, "two"))
		stop(t, e)
		bad := holding(t, s, 3, isDelta)
		s = mend(t, s, &journal.Repair{From: bad, To: bad})
		// As memory alone: a driver is to find what there is to merge.
		spoilt := struct {
			store.Store
			store.Pruner
		}{&spoiled{Store: s, bad: []int64{bad}}, s}
		e = w.start(t, spoilt)
		settled(t, e, chat, send(t, e, chat, "three"))
		time.Sleep(time.Hour)
		stop(t, e)
		merged := 0
		for _, b := range all(t, s) {
			if b.Span > 0 {
				merged++
				if b.Offset <= bad && bad <= b.Last() {
					t.Errorf("batch %d stands for %d to %d, and %d was passed over", b.Offset, b.Offset, b.Last(), bad)
				}
			}
		}
		if merged < 4 {
			t.Errorf("%d batches were merged", merged)
		}
		if _, err := engine.StateOf(t.Context(), spoilt, chat); err != nil {
			t.Errorf("the journal cannot be continued any more: %v", err)
		}
		e = w.start(t, spoilt)
		defer stop(t, e)
		if got := settled(t, e, chat, send(t, e, chat, "four")); got != "completed" {
			t.Errorf("settled %s", got)
		}
		if _, err := e.Snapshot(t.Context(), chat); err != nil {
			t.Error(err)
		}
	})
}

// So does a batch of text that can be read and breaks a rule.
func TestRetentionLeavesBrokenRulesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply = wordy
		s := memstore.New()
		e := w.start(t, s)
		settled(t, e, chat, send(t, e, chat, "one"))
		stop(t, e)
		batches := all(t, s)
		bad := holding(t, s, 3, isDelta)
		b, err := journal.Decode(batches[bad].Payload)
		if err != nil {
			t.Fatal(err)
		}
		broken := *b.Records[0].(*journal.TurnDelta)
		broken.Block = -1
		wrong := encoded(t, &broken)
		repair := encoded(t, &journal.Repair{From: bad, To: bad})
		batches = slices.Insert(batches, int(bad), store.Batch{Payload: wrong})
		s = memstore.New()
		copyTo(t, s, append(batches, store.Batch{Payload: repair}))
		s = s.Reopen()
		if _, err := engine.StateOf(t.Context(), s, chat); err != nil {
			t.Fatal(err)
		}
		e = w.start(t, s)
		defer func() { stop(t, e) }()
		settled(t, e, chat, send(t, e, chat, "two"))
		time.Sleep(time.Hour)
		if n := texts(all(t, s)); n != 4 {
			t.Errorf("%d batches of text are left, want 4", n)
		}
		if _, err := engine.StateOf(t.Context(), s, chat); err != nil {
			t.Errorf("the journal cannot be continued any more: %v", err)
		}
	})
}

func encoded(t *testing.T, records ...journal.Record) []byte {
	t.Helper()
	data, err := journal.Encode(journal.Batch{At: time.Now(), Records: records})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A batch that stands for others and is spoiled can be passed over by a repair.
func TestRepairOfMergedText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply = wordy
		s := memstore.New()
		e := w.start(t, s)
		settled(t, e, chat, send(t, e, chat, "one"))
		list := readers(t, e)
		time.Sleep(time.Hour)
		stop(t, e)
		bad := holding(t, s, 1, isDelta)
		s = mend(t, s, &journal.Repair{From: bad, To: bad})
		spoilt := &spoiled{Store: s, bad: []int64{bad}}
		e = w.start(t, spoilt)
		defer stop(t, e)
		if got := settled(t, e, chat, send(t, e, chat, "two")); got != "completed" {
			t.Errorf("settled %s", got)
		}
		for i, c := range list {
			c.follow(t, e, int64(i-1), 2)
			if n := len(c.Settlements); n != 2 {
				t.Errorf("who goes on after %d has %d settlements", i-1, n)
			}
		}
	})
}

// A process that dies while it merges has changed all of it or nothing.
func TestCrashAtMerge(t *testing.T) {
	for _, mode := range modes {
		for n, crashed := 1, true; crashed; n++ {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.reply, w.every, w.tools = wordy, -1, []engine.Tool{w.tool("work", nil)}
				durable := memstore.New()
				fs := faultstore.New(durable)
				fs.CrashUpkeep(n, mode)
				e := w.start(t, fs)
				for _, text := range []string{"work", "two"} {
					settled(t, e, chat, send(t, e, chat, text))
				}
				before := all(t, durable)
				want, err := engine.StateOf(t.Context(), durable, chat)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				crashed = fs.Crashed()
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if err := e.Close(ctx); err != nil {
					t.Fatal(err)
				}
				durable = durable.Reopen()
				fs.Flush()
				check(t, before, all(t, durable))
				if got, err := engine.StateOf(t.Context(), durable, chat); err != nil || string(got) != string(want) {
					t.Errorf("the journal folds to\n%s\nand did to\n%s\n%v", got, want, err)
				}
				e = w.start(t, durable)
				defer stop(t, e)
				if got := settled(t, e, chat, send(t, e, chat, "and now")); got != "completed" {
					t.Errorf("settled %s", got)
				}
				time.Sleep(time.Hour)
				if n := texts(all(t, durable)); n > 5 {
					t.Errorf("%d batches of text are left", n)
				}
			})
			if t.Failed() || n > 20 {
				t.Fatalf("after a crash at merge %d, %s", n, mode)
			}
		}
	}
}

// A paged store has short pages, and lets something happen between two of them.
type paged struct {
	*memstore.Store
	between func(after int64)
}

func (s *paged) Read(ctx context.Context, addr store.Address, after int64, limit int) (store.Page, error) {
	if s.between != nil {
		s.between(after)
	}
	if limit <= 0 || limit > 3 {
		limit = 3
	}
	return s.Store.Read(ctx, addr, after, limit)
}

// Whoever reads a journal while it is merged gets the whole text.
func TestMergedWhileRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply, w.merge = wordy, -1
		durable := memstore.New()
		e := w.start(t, durable)
		settled(t, e, chat, send(t, e, chat, "one"))
		want := transcript(t, e, chat)
		stop(t, e)
		durable = durable.Reopen()
		batches := all(t, durable)
		from := slices.IndexFunc(batches, isText)
		to := from
		for isText(batches[to+1]) {
			to++
		}
		for cut := from - 1; cut <= to; cut++ {
			s := memstore.New()
			copyTo(t, s, batches)
			l, err := s.Take(t.Context(), "copy", chat)
			if err != nil {
				t.Fatal(err)
			}
			p := &paged{Store: s}
			p.between = func(after int64) {
				if after < int64(cut) {
					return
				}
				p.between = nil
				run := store.Run{From: int64(from), To: int64(to)}
				var pieces []journal.Batch
				for _, b := range batches[from : to+1] {
					piece, err := journal.Decode(b.Payload)
					if err != nil {
						t.Fatal(err)
					}
					pieces = append(pieces, piece)
				}
				if run.Payload, err = journal.Encode(journal.Merge(pieces)); err == nil {
					err = s.Prune(t.Context(), l, []store.Run{run})
				}
				if err != nil {
					t.Error(err)
				}
			}
			e := w.start(t, p)
			began := 0
			snap, err := e.SnapshotBetween(t.Context(), chat, -1, 1<<62, func(c *wire.Chunk) {
				if c == nil {
					began++
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := lines(snap); !slices.Equal(got, want) || began > 1 {
				t.Errorf("merged at %d, begun again %d times: the conversation is %q, want %q", cut, began, got, want)
			}
			stop(t, e)
		}
	})
}

// copyTo makes the instance of a journal in an empty store.
func copyTo(t testing.TB, s *memstore.Store, batches []store.Batch) {
	t.Helper()
	if err := s.Renew(t.Context(), "copy", time.Hour); err != nil {
		t.Fatal(err)
	}
	first, err := journal.Decode(batches[0].Payload)
	if err != nil {
		t.Fatal(err)
	}
	born := first.Records[0].(*journal.Born)
	r, err := s.Admit(t.Context(), &store.Admission{
		Address: chat, Submission: "copy", Payload: batches[1].Payload, Node: "copy",
		Birth: &store.Birth{UID: born.UID, Incarnation: born.Incarnation, Payload: batches[0].Payload},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range batches[2:] {
		write := store.Write{Payload: b.Payload}
		if i == 0 {
			write.Settle = []store.Settlement{{Submission: "copy", Outcome: "completed"}}
		}
		if _, err := s.Append(t.Context(), *r.Lease, write); err != nil {
			t.Fatal(err)
		}
	}
}

// A clumsy store fails to prune at first.
type clumsy struct {
	*memstore.Store
	failures atomic.Int32 // that are to come
}

func (s *clumsy) Prune(ctx context.Context, l store.Lease, runs []store.Run) error {
	if s.failures.Add(-1) >= 0 {
		return faultstore.ErrInjected
	}
	return s.Store.Prune(ctx, l, runs)
}

// What has failed is tried again.
func TestRetentionTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply = wordy
		s := &clumsy{Store: memstore.New()}
		s.failures.Store(3)
		e := w.start(t, s)
		defer stop(t, e)
		settled(t, e, chat, send(t, e, chat, "one"))
		time.Sleep(12 * time.Minute)
		if n := texts(all(t, s)); n < 5 || s.failures.Load() != 2 {
			t.Errorf("%d batches of text are left after the first failure, %d are to come", n, s.failures.Load())
		}
		time.Sleep(time.Hour)
		if n := texts(all(t, s)); n != 1 {
			t.Errorf("%d batches of text are left", n)
		}
	})
}

// Text that is young when its instance is taken up gets its time.
func TestRetentionSparesYoungText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply = wordy
		s := memstore.New()
		e := w.start(t, s)
		settled(t, e, chat, send(t, e, chat, "one"))
		stop(t, e)
		before := texts(all(t, s))
		time.Sleep(5 * time.Minute)
		s = s.Reopen()
		w.reply = echo // in one piece
		e = w.start(t, s)
		defer func() { stop(t, e) }()
		settled(t, e, chat, send(t, e, chat, "two"))
		time.Sleep(4 * time.Minute)
		if n := texts(all(t, s)); n != before || n < 5 {
			t.Errorf("after 9 minutes %d of %d batches of text are left", n, before)
		}
		time.Sleep(2 * time.Minute)
		if n := texts(all(t, s)); n != 1 {
			t.Errorf("after 11 minutes %d batches of text are left", n)
		}
	})
}
