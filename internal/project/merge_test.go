package project_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/wire"
)

// Text that has been merged shows the same conversation, piece by piece of the
// journal that is left.
func TestMergedTextShowsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := conversation(t)
		whole, merged := &wire.Conversation{}, &wire.Conversation{}
		for i := 0; i < len(records); {
			run := []journal.Batch{{Records: records[i : i+1]}}
			turn, ok := run[0].Streamed()
			for i++; ok && i < len(records); i++ {
				next := journal.Batch{Records: records[i : i+1]}
				if t, streamed := next.Streamed(); !streamed || t != turn {
					break
				}
				run = append(run, next)
			}
			for j, b := range run {
				read(t, whole, i-len(run)+j, b.Records)
			}
			if ok {
				run = []journal.Batch{journal.Merge(run)}
			}
			read(t, merged, i-len(run), run[0].Records)
			if diff := cmp.Diff(whole, merged, cmpopts.IgnoreUnexported(wire.Conversation{})); diff != "" {
				t.Fatalf("merged, the conversation is another (-whole +merged):\n%s", diff)
			}
		}
	})
}
