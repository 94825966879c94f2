package fold_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

// A journal whose text has been merged folds to what it folded to before, from the
// end of each turn on, and so does what is behind a checkpoint.
func TestMergedTextFoldsToTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := begun(t)
		batches := []journal.Batch{{At: time.UnixMilli(1), Records: []journal.Record{born}}}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			r := journal.Record(nil)
			if rapid.IntRange(0, 9).Draw(t, "who") > 0 {
				r = w.owner()
			}
			if r == nil {
				r = w.intake()
			}
			w.apply(r)
			if last := &batches[len(batches)-1]; rapid.IntRange(0, 3).Draw(t, "together") == 0 && len(batches) > 1 {
				last.Records = append(last.Records, r)
			} else {
				batches = append(batches, journal.Batch{At: time.UnixMilli(2), Records: []journal.Record{r}})
			}
		}
		whole, merged := apply(t), apply(t)
		var kept []*fold.State // from checkpoints in the merged journal
		for i := 0; i < len(batches); {
			run := []journal.Batch{batches[i]}
			turn, ok := batches[i].Streamed()
			for i++; ok && i < len(batches); i++ {
				if next, streamed := batches[i].Streamed(); !streamed || next != turn {
					break
				}
				run = append(run, batches[i])
			}
			for _, b := range run {
				fold1(t, whole, b)
			}
			// Only what has ended is merged. An open turn is the last one.
			last := i == len(batches)
			if ok && !last && rapid.IntRange(0, 3).Draw(t, "merge") > 0 {
				run = []journal.Batch{journal.Merge(run)}
			}
			for _, b := range run {
				fold1(t, merged, b)
				for _, st := range kept {
					fold1(t, st, b)
				}
			}
			if whole.Phase == fold.Streaming {
				continue
			}
			sameState(t, "merged", whole, merged)
			for _, st := range kept {
				sameState(t, "from a checkpoint on", whole, st)
			}
			if rapid.IntRange(0, 5).Draw(t, "keep") == 0 {
				kept = append(kept, decode(t, encode(t, merged)))
			}
		}
	})
}

func fold1(t *rapid.T, st *fold.State, b journal.Batch) {
	t.Helper()
	for _, r := range b.Records {
		if err := st.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
}

// The context holds what the model is shown, and nothing that is much larger.
func TestContextIsBare(t *testing.T) {
	o := outcome("a", false, journal.VarWrite{Seq: 1, Name: "v", Value: []byte(`1`)}).(*journal.Outcome)
	o.Output = []byte(`{"large":true}`)
	st := apply(t, running(started, done(journal.StopToolUse, "a"), o, batch)...)
	shown := st.Context[len(st.Context)-1].Outcomes[0]
	if shown.Output != nil || shown.Writes != nil || shown.Content != o.Content || shown.Call != "a" {
		t.Errorf("the context holds %+v", shown)
	}
	if string(st.Vars["v"]) != "1" || string(o.Output) != `{"large":true}` || len(o.Writes) != 1 {
		t.Errorf("the state is %s, the record %+v", st.Vars, o)
	}
}
