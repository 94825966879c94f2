package fold_test

import (
	"fmt"
	"testing"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

// message returns the records of the i-th message of a conversation, eight, and of
// each hundredth a compaction more.
func message(i int) []journal.Record {
	id := func(kind string, i int) string { return fmt.Sprintf("%s_%026d", kind, i) }
	sub, turn, resp := id("sub", i), id("turn", i), id("entry", i)
	text := journal.Message{Kind: journal.User, Body: "Where is my order?"}
	records := []journal.Record{
		&journal.Admitted{Submission: sub, Message: text},
		&journal.Attempt{Submission: sub, Ordinal: 1, MaxAttempts: 10, Deadline: 1},
		&journal.Entry{ID: id("in", i), Submission: sub, Purpose: journal.Input, Message: text},
		&journal.Seam{Name: journal.SeamStart, Submission: sub, Response: resp},
		&journal.TurnStarted{Turn: turn, Response: resp, Submission: sub},
		&journal.TurnDone{Turn: turn, Response: resp, Submission: sub, Stop: journal.StopEnd, Blocks: []journal.Block{{Kind: journal.Text, Text: "On its way."}}},
		&journal.Seam{Name: journal.SeamClosed, Submission: sub},
		&journal.Settled{Submission: sub, Outcome: journal.Completed, AnsweredBy: sub},
	}
	if i%100 == 99 {
		records = append(records, &journal.Compacted{ID: id("cmp", i), Reason: journal.CompactionThreshold, First: id("in", i-20), Summary: "They talked."})
	}
	return records
}

// all applies records, which must be right.
func all(b *testing.B, st *fold.State, records []journal.Record) {
	for _, r := range records {
		if err := st.Apply(r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFoldAt folds the next hundred messages of a journal that has so many
// records: from one compaction to another. It begins with the same state each time,
// or it would be that of a longer journal.
func BenchmarkFoldAt(b *testing.B) {
	const messages, states = 100, 4
	for _, length := range []int{100, 10_000, 1_000_000} {
		b.Run(fmt.Sprintf("records=%d", length), func(b *testing.B) {
			base := apply(b, born)
			for i := range length / 8 {
				all(b, base, message(i))
			}
			var next []journal.Record // made before they are timed
			for i := range messages {
				next = append(next, message(length/8+i)...)
			}
			from := make([]*fold.State, states)
			folded := 0
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				for i := range from {
					from[i] = base.Snapshot()
				}
				b.StartTimer()
				for _, st := range from {
					all(b, st, next)
				}
				folded += states * len(next)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(folded), "ns/record")
		})
	}
}

// BenchmarkFoldQueued folds the records of messages to a conversation in which so
// many others wait all the time.
func BenchmarkFoldQueued(b *testing.B) {
	const messages = 100
	for _, waiting := range []int{0, 100, 10_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			st := apply(b, born)
			for i := range waiting {
				all(b, st, message(i)[:1])
			}
			next, folded := 0, 0
			ready := make([][]journal.Record, messages)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				for i := range ready {
					ready[i] = append(message(next + waiting + i)[:1:1], message(next + i)[1:]...)
					folded += len(ready[i])
				}
				next += messages
				b.StartTimer()
				for _, records := range ready {
					all(b, st, records)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(folded), "ns/record")
		})
	}
}

// BenchmarkCheckpoint encodes and decodes the state of a conversation of so many
// messages since it was last compacted.
func BenchmarkCheckpoint(b *testing.B) {
	for _, messages := range []int{10, 99} {
		st := apply(b, born)
		for i := range 100 + messages {
			for _, r := range message(i) {
				if err := st.Apply(r); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.Run(fmt.Sprintf("messages=%d/snapshot", messages), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = st.Snapshot()
			}
		})
		data := encode(b, st)
		b.Run(fmt.Sprintf("messages=%d/encode", messages), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				encode(b, st)
			}
		})
		b.Run(fmt.Sprintf("messages=%d/decode", messages), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				decode(b, data)
			}
		})
	}
}
