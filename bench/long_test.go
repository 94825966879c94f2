package bench_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite" // for bulk

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// The place of the long conversation.
var long = store.Address{Agent: "bench", ID: "long"}

// A life is the journal of a conversation as the engine writes it, of any length:
// eight records a message in three batches, and a compaction every hundred
// messages, so that the context holds two hundred messages at most.
type life struct {
	messages int
	pieces   int       // in which each answer is streamed; 0 means in none
	at       time.Time // of all batches
}

const (
	recordsPerMessage = 8
	compactEvery      = 100
	keepMessages      = 20
)

const (
	question = "Where is my order ORD-2024-0042, and when will it arrive?"
	answer   = "Your order has been shipped and arrives on Friday. You can follow the parcel with the number in the mail that we have sent you."
)

func id(kind string, i int) string { return fmt.Sprintf("%s_%026d", kind, i) }

// batches ranges over the batches.
func (l life) batches() iter.Seq[[]journal.Record] {
	return func(yield func([]journal.Record) bool) {
		if !yield([]journal.Record{&journal.Born{Agent: long.Agent, ID: long.ID, UID: id("inst", 0), Incarnation: id("inc", 0)}}) {
			return
		}
		for i := range l.messages {
			for _, b := range l.message(i) {
				if !yield(b) {
					return
				}
			}
		}
	}
}

// message returns the batches of one message.
func (l life) message(i int) (batches [][]journal.Record) {
	sub, turn, resp := id("sub", i), id("turn", i), id("entry", i)
	text := journal.Message{Kind: journal.User, Body: question}
	start := []journal.Record{
		&journal.Attempt{Submission: sub, Ordinal: 1, Node: "node", Reason: "first", Deadline: 1_796_025_941_011, MaxAttempts: 10},
		&journal.Entry{ID: id("in", i), Submission: sub, Purpose: journal.Input, Message: text},
		&journal.Seam{Name: journal.SeamStart, Submission: sub, Response: resp, Settings: &journal.Settings{Model: "instant/m"}},
		&journal.TurnStarted{Turn: turn, Response: resp, Submission: sub, Provider: "instant", Model: "m"},
	}
	batches = append(batches, []journal.Record{&journal.Admitted{Submission: sub, Message: text, Origin: "direct"}}, start)
	sent := 0
	for n := range l.pieces {
		end := len(answer) * (n + 1) / l.pieces
		batches = append(batches, []journal.Record{&journal.TurnDelta{Turn: turn, Response: resp, BlockKind: journal.Text, Text: answer[sent:end]}})
		sent = end
	}
	done := []journal.Record{
		&journal.TurnDone{
			Turn: turn, Response: resp, Submission: sub, Stop: journal.StopEnd, Provider: "instant", Model: "m",
			Blocks: []journal.Block{{Kind: journal.Text, Text: answer}}, Sent: []int{sent}, Usage: journal.Usage{Input: 100, Output: 30},
		},
		&journal.Seam{Name: journal.SeamClosed, Submission: sub},
		&journal.Settled{Submission: sub, Outcome: journal.Completed, AnsweredBy: sub},
	}
	batches = append(batches, done)
	if i%compactEvery == compactEvery-1 {
		batches = append(batches, []journal.Record{&journal.Compacted{
			ID: id("cmp", i), Reason: journal.CompactionThreshold, First: id("in", i-keepMessages), Before: 15_000, After: 3_000,
			Summary: strings.Repeat("The customer has asked for the state of an order, and was told when it arrives. ", 20),
		}})
	}
	return batches
}

// bulk writes the journal into a file as if the engine had: a million records in
// some seconds. It leaves out what nobody reads, such as who sent what.
func (l life) bulk(tb testing.TB, file string) {
	tb.Helper()
	s := openSQLite(tb, file)
	if err := s.Close(); err != nil {
		tb.Fatal(err)
	}
	db, err := sql.Open("sqlite", file)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	must := func(_ any, err error) {
		if err != nil {
			tb.Helper()
			tb.Fatal(err)
		}
	}
	must(db.Exec("PRAGMA synchronous = OFF"))
	tx, err := db.Begin()
	if err != nil {
		tb.Fatal(err)
	}
	must(tx.Exec("INSERT INTO instances (id, agent, name, uid, incarnation, unsettled) VALUES (1, ?, ?, ?, ?, 0)", long.Agent, long.ID, id("inst", 0), id("inc", 0)))
	batch, err := tx.Prepare("INSERT INTO batches (instance, offset, epoch, sum, payload) VALUES (1, ?, ?, ?, ?)")
	if err != nil {
		tb.Fatal(err)
	}
	submission, err := tx.Prepare("INSERT INTO submissions (instance, id, offset, identity, accepted_at, outcome, settled_at) VALUES (1, ?, ?, x'', 0, 'completed', ?)")
	if err != nil {
		tb.Fatal(err)
	}
	offset := int64(0)
	for records := range l.batches() {
		payload, err := journal.Encode(journal.Batch{At: l.at, Records: records})
		if err != nil {
			tb.Fatal(err)
		}
		epoch := int64(1)
		switch r := records[0].(type) {
		case *journal.Born:
			epoch = 0
		case *journal.Admitted:
			epoch = 0
			must(submission.Exec(r.Submission, offset, offset+2+int64(l.pieces)))
		}
		must(batch.Exec(offset, epoch, sum(1, offset, epoch, payload), payload))
		offset++
	}
	if err := tx.Commit(); err != nil {
		tb.Fatal(err)
	}
	must(db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"))
}

// sum is the checksum that docs/storage.md describes.
func sum(instance, offset, epoch int64, payload []byte) int64 {
	table := crc32.MakeTable(crc32.Castagnoli)
	var key [24]byte
	binary.LittleEndian.PutUint64(key[0:], uint64(instance))
	binary.LittleEndian.PutUint64(key[8:], uint64(offset))
	binary.LittleEndian.PutUint64(key[16:], uint64(epoch))
	return int64(crc32.Update(crc32.Checksum(key[:], table), table, payload))
}

// lengths are those that the figures are given for, in records.
var lengths = []int{100, 10_000, 1_000_000}

// aged returns a file with a journal of so many records, whose conversation the
// runtime has taken up once and given back: it has a checkpoint.
func aged(b *testing.B, records int) string {
	b.Helper()
	file := filepath.Join(b.TempDir(), "bench.db")
	life{messages: records / recordsPerMessage, at: time.Now()}.bulk(b, file)
	s := openSQLite(b, file)
	rt := open(b, s, instant{})
	for range 40 { // a checkpoint is written beside the work
		prompt(b, rt.Instance(long.Agent, long.ID))
	}
	shut(b, rt, s)
	return file
}

// forget removes the checkpoints of a file.
func forget(b *testing.B, file string) {
	b.Helper()
	db, err := sql.Open("sqlite", file)
	if err == nil {
		_, err = db.Exec("DELETE FROM checkpoints")
	}
	if err != nil {
		b.Fatal(err)
	}
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkColdStart is what it takes from the opening of a store and a runtime to
// the settlement of the first message to a conversation of so many records. It
// reports what that holds in memory.
func BenchmarkColdStart(b *testing.B) {
	for _, records := range lengths {
		b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) { benchColdStart(b, aged(b, records), false) })
	}
	b.Run("records=1000000/without-checkpoint", func(b *testing.B) { benchColdStart(b, aged(b, 1_000_000), true) })
}

func benchColdStart(b *testing.B, file string, forgetful bool) {
	before := heap()
	var held uint64
	for b.Loop() {
		b.StopTimer()
		if forgetful {
			forget(b, file)
		}
		b.StartTimer()
		s := openSQLite(b, file)
		rt := open(b, s, instant{})
		prompt(b, rt.Instance(long.Agent, long.ID))
		b.StopTimer()
		held = max(held, heap()-before)
		shut(b, rt, s)
		b.StartTimer()
	}
	b.ReportMetric(float64(held)/(1<<10), "KiB-held")
}

// BenchmarkAppendAt is one durable append to a journal of so many records.
func BenchmarkAppendAt(b *testing.B) {
	for _, records := range lengths {
		b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) {
			s := openSQLite(b, aged(b, records))
			defer s.Close()
			if err := s.Renew(b.Context(), "n", time.Hour); err != nil {
				b.Fatal(err)
			}
			l, err := s.Take(b.Context(), "n", long)
			if err != nil {
				b.Fatal(err)
			}
			payload := make([]byte, 300)
			for b.Loop() {
				if _, err := s.Append(b.Context(), l, store.Write{Payload: payload}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkMessageAt is a message, in process and on SQLite, to a conversation of
// so many records that has been taken up.
func BenchmarkMessageAt(b *testing.B) {
	for _, records := range lengths {
		b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) {
			s := openSQLite(b, aged(b, records))
			rt := open(b, s, instant{})
			defer shut(b, rt, s)
			in := rt.Instance(long.Agent, long.ID)
			prompt(b, in)
			b.ReportAllocs()
			for b.Loop() {
				prompt(b, in)
			}
		})
	}
}

// BenchmarkReadAt is the reply to the first message of a conversation of so many
// records.
func BenchmarkReadAt(b *testing.B) {
	for _, records := range lengths {
		b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) {
			s := openSQLite(b, aged(b, records))
			rt := open(b, s, instant{})
			defer shut(b, rt, s)
			in := rt.Instance(long.Agent, long.ID)
			for b.Loop() {
				if _, err := in.Read(context.Background(), id("sub", 0)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkMerge is what retention does to a conversation of 50 answers that were
// watched, each in 200 pieces, when it is taken up again. It reports the bytes of
// an answer's batches before and after.
func BenchmarkMerge(b *testing.B) {
	const answers, pieces = 50, 200
	for b.Loop() {
		b.StopTimer()
		file := filepath.Join(b.TempDir(), "bench.db")
		life{messages: answers, pieces: pieces, at: time.Now().Add(-time.Hour)}.bulk(b, file)
		s := openSQLite(b, file)
		batches, before := size(b, s)
		rt := open(b, s, instant{})
		b.StartTimer()
		prompt(b, rt.Instance(long.Agent, long.ID))
		left, after := size(b, s)
		for ; left > batches-answers*(pieces-1)+10; left, after = size(b, s) {
			time.Sleep(time.Millisecond)
		}
		b.StopTimer()
		b.ReportMetric(float64(before)/answers, "bytes/answer-before")
		b.ReportMetric(float64(after)/answers, "bytes/answer-after")
		shut(b, rt, s)
		b.StartTimer()
	}
}

// size returns how many batches there are, and how many bytes.
func size(b *testing.B, s store.Store) (batches, bytes int) {
	b.Helper()
	for batch, err := range store.Batches(b.Context(), s, long, -1) {
		if err != nil {
			b.Fatal(err)
		}
		batches++
		bytes += len(batch.Payload)
	}
	return batches, bytes
}

// The journal that the benchmarks read is one that the runtime goes on with.
func TestLongJournal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.db")
	life{messages: 250, pieces: 3, at: time.Now().Add(-time.Hour)}.bulk(t, file)
	s := openSQLite(t, file)
	rt := open(t, s, instant{})
	in := rt.Instance(long.Agent, long.ID)
	prompt(t, in)
	if r, err := in.Read(t.Context(), id("sub", 3)); err != nil || r.Text != answer {
		t.Errorf("the reply is %+v, %v", r, err)
	}
	snap, err := in.Conversation(t.Context())
	if err != nil || len(snap.Messages) != 2*251 || len(snap.Settlements) != 251 {
		t.Errorf("the conversation has %d messages and %d settlements, %v", len(snap.Messages), len(snap.Settlements), err)
	}
	shut(t, rt, s)
}

// BenchmarkFollowed is the n-th message to a conversation that ten clients follow
// by long-poll, up to when the last of them has its settlement. The store is in
// memory. The conversation is made anew before it has grown by a tenth.
func BenchmarkFollowed(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("message=%d", n), func(b *testing.B) {
			var f *followed
			for sent := 0; b.Loop(); sent++ {
				if sent%max(n/10, 1) == 0 {
					b.StopTimer()
					f.end(b)
					f = newFollowed(b, n)
					b.StartTimer()
				}
				f.prompt(b)
			}
			b.StopTimer()
			f.end(b)
		})
	}
}

// A followed conversation has had some messages, and is followed by ten clients.
type followed struct {
	s    store.Store
	rt   *flue.Runtime
	in   *flue.Instance
	seen chan int64 // settlements that a follower has seen
	stop context.CancelFunc
	wg   sync.WaitGroup

	offset string // from which they follow
}

const followers = 10

// newFollowed makes a conversation of which the next message is the n-th.
func newFollowed(b *testing.B, n int) *followed {
	b.Helper()
	f := &followed{s: memstore.New(), seen: make(chan int64, followers)}
	var err error
	f.rt, err = flue.Open(b.Context(), flue.Config{
		Agents: []*flue.Agent{{Name: "bench", Render: agent}}, Providers: providers(instant{}), Store: f.s,
		Catalog: func(string, string) (model.Info, bool) {
			return model.Info{ContextWindow: 32_000, MaxOutput: 1000}, true
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	f.in = f.rt.Instance(long.Agent, long.ID)
	for range n - 1 {
		prompt(b, f.in)
	}
	f.offset = "-1"
	if n > 1 {
		snap, err := f.in.Conversation(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		f.offset = snap.Offset.String()
		f.follow(b)
	}
	return f
}

// follow makes the clients follow, which is possible once the conversation is there.
func (f *followed) follow(b *testing.B) {
	var ctx context.Context
	ctx, f.stop = context.WithCancel(b.Context())
	h := f.rt.Handler("bench")
	for range followers {
		f.wg.Go(func() { followUp(ctx, h, f.offset, f.seen) })
	}
}

// prompt sends a message and waits until all followers have its settlement.
func (f *followed) prompt(b *testing.B) {
	if _, err := f.in.Dispatch(b.Context(), flue.User(question)); err != nil {
		b.Fatal(err)
	}
	if f.stop == nil {
		f.follow(b)
	}
	for range followers {
		<-f.seen
	}
}

func (f *followed) end(b *testing.B) {
	if f == nil {
		return
	}
	if f.stop != nil {
		f.stop()
	}
	f.wg.Wait()
	shut(b, f.rt, f.s)
}

// followUp follows the long conversation and tells of each settlement.
func followUp(ctx context.Context, h http.Handler, offset string, seen chan<- int64) {
	for ctx.Err() == nil {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/long?view=updates&live=long-poll&offset="+offset, nil).WithContext(ctx))
		if w.Code != http.StatusOK {
			return
		}
		for range bytes.Count(w.Body.Bytes(), []byte(`"type":"submission-settled"`)) {
			select {
			case seen <- 1:
			case <-ctx.Done():
			}
		}
		offset = w.Header().Get("Stream-Next-Offset")
	}
}
