package fold_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

// A writer writes a journal as an owner and the senders beside it do: at every
// point it draws one of the records that the state's phase calls for.
type writer struct {
	t     *rapid.T
	st    *fold.State // as the owner sees it
	count int         // of ids
}

func (w *writer) id(prefix string) string {
	w.count++
	return fmt.Sprint(prefix, w.count)
}

func (w *writer) apply(r journal.Record) journal.Record {
	if err := w.st.Apply(r); err != nil {
		w.t.Fatalf("a legal record is refused: %v\n%#v", err, r)
	}
	return r
}

// intake is a record that anybody may write at any time.
func (w *writer) intake() journal.Record {
	if rapid.IntRange(0, 4).Draw(w.t, "abort") == 0 {
		return &journal.Abort{}
	}
	if rapid.IntRange(0, 5).Draw(w.t, "command") == 0 {
		return &journal.Admitted{Submission: w.id("s"), Message: journal.Message{Kind: journal.Signal, Type: journal.SignalCompaction}}
	}
	return &journal.Admitted{Submission: w.id("s"), Message: journal.Message{Kind: journal.User, Body: "hello"}}
}

// owner draws a record that the owner may write next, or nil if there is none.
func (w *writer) owner() journal.Record {
	st := w.st
	var may []journal.Record
	if len(st.Queue) > 0 {
		head := st.Queue[0]
		switch st.Phase {
		case fold.Idle:
			may = append(may, &journal.Attempt{Submission: head.Submission, Ordinal: 1, MaxAttempts: 3, Deadline: 99})
		case fold.Model, fold.Finish:
			if !head.Command() {
				may = append(may, input(head), input(head))
			}
		}
		if st.Resting() {
			may = append(may, &journal.Settled{Submission: head.Submission, Outcome: journal.Aborted})
			if head.Command() {
				may = append(may, &journal.Settled{Submission: head.Submission, Outcome: journal.Completed})
			}
		}
	}
	if st.Active != nil {
		may = append(may, w.response()...)
	}
	may = append(may, w.summary()...)
	if r := w.compacted(); r != nil {
		may = append(may, r)
	}
	may = append(may, &journal.State{Name: rapid.SampledFrom([]string{"v", "w"}).Draw(w.t, "name"), Value: jsontext.Value(`{"n":1}`)})
	if st.Active == nil && len(st.Queue) == 0 {
		return nil
	}
	return rapid.SampledFrom(may).Draw(w.t, "record")
}

func input(sub *fold.Submission) journal.Record {
	return &journal.Entry{ID: "e_" + sub.Submission, Submission: sub.Submission, Purpose: journal.Input, Message: sub.Message}
}

// compacted draws a compaction, or nil if there is nothing to compact.
func (w *writer) compacted() journal.Record {
	st := w.st
	var cuts []int
	for i, it := range st.Context {
		if i > 0 && it.ID() != "" && !it.Follows() && slices.IndexFunc(st.Context, func(o fold.Item) bool { return o.ID() == it.ID() }) == i {
			cuts = append(cuts, i)
		}
	}
	if len(cuts) == 0 || !st.Resting() || rapid.IntRange(0, 2).Draw(w.t, "compact") > 0 {
		return nil
	}
	cut := rapid.SampledFrom(cuts).Draw(w.t, "cut")
	r := &journal.Compacted{ID: w.id("k"), Summary: "so far", First: st.Context[cut].ID(), Usage: journal.Usage{Input: 1}, Calls: 1}
	for _, it := range st.Context[:cut] {
		if it.ID() != "" && !it.Follows() && rapid.IntRange(0, 3).Draw(w.t, "keep") == 0 {
			r.Keep = append(r.Keep, it.ID())
		}
	}
	return r
}

// summary lists what may be written of a summary that is not had.
func (w *writer) summary() []journal.Record {
	st := w.st
	switch {
	case st.Summarizing != nil:
		r := &journal.Unsummarized{Submission: st.Summarizing.Submission, Reason: st.Summarizing.Reason, Usage: journal.Usage{Input: 1}, Calls: 1}
		if rapid.Bool().Draw(w.t, "fails") {
			r.Error, r.Next = &journal.TurnError{Class: "auth"}, 7
		}
		return []journal.Record{r}
	case st.Active != nil && st.Resting():
		reason := rapid.SampledFrom([]journal.CompactionReason{journal.CompactionThreshold, journal.CompactionOverflow}).Draw(w.t, "reason")
		return []journal.Record{&journal.Summarizing{Submission: st.Active.Submission, Reason: reason, Model: "m", Guess: journal.Usage{Input: 1}}}
	}
	return nil
}

// response lists what may be written of the response under way.
func (w *writer) response() []journal.Record {
	st := w.st
	active, resp := st.Active.Submission, &st.Response
	var may []journal.Record
	if st.Active.Attempts > 0 {
		may = append(may, &journal.Release{Submission: active})
	} else {
		may = append(may, &journal.Attempt{Submission: active, Ordinal: 1})
	}
	if st.Resting() && st.Phase != fold.Closed && rapid.IntRange(0, 3).Draw(w.t, "give up") == 0 {
		may = append(may, w.end(journal.Failed), notice(journal.SignalInterrupted))
	}
	switch st.Phase {
	case fold.Input:
		if st.Active.Command() {
			return append(may, w.end(journal.Completed))
		}
		may = append(may, input(st.Active), input(st.Active))
	case fold.Model:
		id := resp.ID
		if id == "" {
			id = w.id("r")
		}
		turn := &journal.TurnStarted{Turn: w.id("t"), Response: id, Submission: active, Retracts: resp.Retract}
		may = append(may, turn, turn, &journal.Seam{Name: journal.SeamStart, Submission: active, Settings: &journal.Settings{Model: "p/a", Fallbacks: []string{"p/b"}}})
		if next := resp.Next(); next != "" && resp.LastError != nil {
			may = append(may, &journal.Fallback{Response: resp.ID, Submission: active, From: resp.Model(), To: next, Class: "overload"})
		}
	case fold.Streaming:
		block := max(len(resp.Partial)-1, 0) + rapid.IntRange(0, 2).Draw(w.t, "block")
		kind := journal.Text
		if block < len(resp.Partial) {
			kind = resp.Partial[block].Kind
		}
		may = append(may, &journal.TurnDelta{Turn: resp.Turn, Response: resp.ID, Block: block, BlockKind: kind, Text: "é"}, w.turnDone())
	case fold.Tools:
		for _, c := range resp.Calls {
			switch {
			case resp.Outcomes[c.Call] != nil:
			case resp.MayHaveRun(c.Call):
				may = append(may, w.outcome(c.Call))
			case resp.Truncated:
				may = append(may, &journal.Outcome{Turn: resp.Turn, Call: c.Call, Failed: true})
			default:
				may = append(may, &journal.Called{Turn: resp.Turn, Calls: []string{c.Call}}, &journal.Outcome{Turn: resp.Turn, Call: c.Call, Failed: true})
			}
		}
		if len(resp.Outcomes) == len(resp.Calls) {
			may = append(may, &journal.ToolBatch{Turn: resp.Turn}, &journal.ToolBatch{Turn: resp.Turn})
		}
	case fold.Finish:
		may = append(may, &journal.Seam{Name: journal.SeamClosed, Submission: active})
	case fold.Closed:
		may = append(may, w.end(journal.Completed), w.end(journal.Completed))
	}
	return may
}

// end settles what joined first, then the active submission.
func (w *writer) end(outcome string) journal.Record {
	id := w.st.Active.Submission
	if joined := w.st.Joined; len(joined) > 0 {
		id = rapid.SampledFrom(joined).Draw(w.t, "joined").Submission
	}
	return &journal.Settled{Submission: id, Outcome: outcome, AnsweredBy: w.st.Active.Submission}
}

func (w *writer) turnDone() journal.Record {
	r := &journal.TurnDone{
		Turn: w.st.Response.Turn, Response: w.st.Response.ID, Submission: w.st.Active.Submission, Usage: journal.Usage{Input: 1, Output: 2},
		Stop: rapid.SampledFrom([]journal.Stop{
			journal.StopEnd, journal.StopToolUse, journal.StopLength, journal.StopFiltered, journal.StopError, journal.StopAborted,
		}).Draw(w.t, "stop"),
		Blocks: []journal.Block{{Kind: journal.Text, Text: "done"}},
		Named:  rapid.Bool().Draw(w.t, "named"),
	}
	if r.Stop == journal.StopError {
		r.Error = &journal.TurnError{Class: "retryable", Message: "no"}
	}
	for range rapid.IntRange(0, 3).Draw(w.t, "calls") {
		r.Blocks = append(r.Blocks, journal.Block{Kind: journal.ToolCall, Call: w.id("c"), Name: "tool", Arguments: `{}`})
	}
	return r
}

func (w *writer) outcome(call string) journal.Record {
	r := &journal.Outcome{Turn: w.st.Response.Turn, Call: call, Content: "ok", EndTurn: rapid.Bool().Draw(w.t, "end"), Failed: rapid.Bool().Draw(w.t, "failed")}
	if rapid.Bool().Draw(w.t, "writes") {
		w.count++
		r.Writes = []journal.VarWrite{{Seq: w.count, Name: "v", Value: jsontext.Value(fmt.Sprint(w.count))}}
	}
	return r
}

// begun is a writer of a journal that has its birth.
func begun(t *rapid.T) *writer {
	w := &writer{t: t, st: &fold.State{Head: -1}}
	w.apply(born)
	return w
}

// whatever holds of every state, however it came about.
func (w *writer) check() {
	st := w.st
	if (st.Phase == fold.Idle) != (st.Active == nil) {
		w.t.Fatalf("phase %s with active %v", st.Phase, st.Active)
	}
	if st.Active == nil && (len(st.Joined) > 0 || st.Response.ID != "") {
		w.t.Fatalf("at rest with %d joined and response %q", len(st.Joined), st.Response.ID)
	}
	if (st.Phase == fold.Tools) != (len(st.Response.Calls) > 0) {
		w.t.Fatalf("phase %s with %d calls", st.Phase, len(st.Response.Calls))
	}
	seen := make(map[string]bool)
	for _, sub := range append(append([]*fold.Submission{}, st.Joined...), st.Queue...) {
		if seen[sub.Submission] || st.Active != nil && sub == st.Active {
			w.t.Fatalf("submission %s is open twice", sub.Submission)
		}
		seen[sub.Submission] = true
	}
	if st.Active != nil && st.Active.Attempts < 0 {
		w.t.Fatalf("%d attempts", st.Active.Attempts)
	}
	if st.Size < 0 {
		w.t.Fatalf("size %d", st.Size)
	}
}

// The state of a driver is the state of the next one, which reads the journal:
// stored and read again, batch by batch, the records fold to the same.
func TestLiveStateIsStoredState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := begun(t)
		read := &fold.State{Head: -1}
		batch := []journal.Record{born}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			r := journal.Record(nil)
			if rapid.IntRange(0, 3).Draw(t, "who") > 0 {
				r = w.owner()
			}
			if r == nil {
				r = w.intake()
			}
			batch = append(batch, w.apply(r))
			w.check()
			if rapid.Bool().Draw(t, "commit") {
				store(t, read, batch)
				batch = nil
				if diff := diff(w.st, read); diff != "" {
					t.Fatalf("the journal says otherwise (-live +read):\n%s", diff)
				}
			}
		}
	})
}

// store folds a batch as one that was written and read again.
func store(t *rapid.T, st *fold.State, records []journal.Record) {
	data, err := journal.Encode(journal.Batch{At: time.UnixMilli(1), Records: records})
	if err != nil {
		t.Fatal(err)
	}
	b, err := journal.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range b.Records {
		if err := st.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
}

// An owner appends without having seen the intake that lands just ahead. It
// folds its own batch first, and whoever reads the journal folds the intake
// first; both must come to the same state.
func TestIntakeRacesOwner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		live := begun(t)
		read := apply(t, born)
		for range rapid.IntRange(1, 30).Draw(t, "batches") {
			var own, ahead []journal.Record
			for range rapid.IntRange(0, 5).Draw(t, "own") {
				if r := live.owner(); r != nil {
					own = append(own, live.apply(r))
				}
			}
			for range rapid.IntRange(0, 3).Draw(t, "ahead") {
				ahead = append(ahead, live.apply(live.intake()))
			}
			for _, r := range append(ahead, own...) {
				if err := read.Apply(r); err != nil {
					t.Fatalf("the order of the journal is not legal: %v", err)
				}
			}
			if diff := diff(live.st, read); diff != "" {
				t.Fatalf("intake does not commute (-live +read):\n%s", diff)
			}
		}
	})
}

// Whatever comes, the fold does not panic, and what it refuses changes nothing.
func TestAnythingAtAnyTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := begun(t)
		same := apply(t, born)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			r := w.anything()
			if rapid.IntRange(0, 2).Draw(t, "legal") > 0 {
				if r = w.owner(); r == nil {
					r = w.intake()
				}
			}
			err := w.st.Apply(r)
			var rule *fold.RuleError
			switch {
			case err == nil:
				if err := same.Apply(r); err != nil {
					t.Fatalf("accepted once and then refused: %v", err)
				}
			case !errors.As(err, &rule):
				t.Fatalf("error %v, want a RuleError", err)
			}
			if diff := diff(same, w.st); diff != "" {
				t.Fatalf("a refused %s record changed the state (-want +got):\n%s", r.Kind(), diff)
			}
			w.check()
		}
	})
}

// names are the names of the items of the context.
func names(st *fold.State) []string {
	var out []string
	for _, it := range st.Context {
		out = append(out, it.ID())
	}
	return out
}

// anything draws a record without a thought for the phase. Its ids are often
// those of what is under way, so that the rules behind the phase are reached.
func (w *writer) anything() journal.Record {
	t, st := w.t, w.st
	subs, calls := []string{"s9", ""}, []string{"c9", ""}
	if st.Active != nil {
		subs = append(subs, st.Active.Submission)
	}
	if len(st.Queue) > 0 {
		subs = append(subs, st.Queue[len(st.Queue)-1].Submission)
	}
	for _, c := range st.Response.Calls {
		calls = append(calls, c.Call)
	}
	sub := rapid.SampledFrom(subs).Draw(t, "sub")
	turn := rapid.SampledFrom([]string{st.Response.Turn, st.Response.Turn, "t9"}).Draw(t, "turn")
	call := rapid.SampledFrom(calls).Draw(t, "call")
	kind := rapid.SampledFrom([]journal.BlockKind{journal.Text, journal.ToolCall, "?"}).Draw(t, "kind")
	block := journal.Block{Kind: kind, Call: call}
	hostile := map[fold.Phase][]journal.Record{
		fold.Streaming: {
			&journal.TurnDelta{Turn: turn, Block: rapid.SampledFrom([]int{-1, 0, 1, journal.MaxBlocks - 1, journal.MaxBlocks, 1 << 40}).Draw(t, "block"), BlockKind: kind, Text: "x"},
			&journal.TurnDone{Turn: turn, Stop: rapid.SampledFrom([]journal.Stop{journal.StopEnd, journal.StopAborted, "?"}).Draw(t, "stop"), Blocks: []journal.Block{block, block}},
		},
		fold.Tools: {&journal.Called{Turn: turn, Calls: []string{call}}, &journal.Outcome{Turn: turn, Call: call}, &journal.ToolBatch{Turn: turn}},
	}
	if fitting := hostile[st.Phase]; fitting != nil && rapid.Bool().Draw(t, "fitting") {
		return rapid.SampledFrom(fitting).Draw(t, "hostile")
	}
	return rapid.SampledFrom([]journal.Record{
		&journal.Born{UID: "other"},
		&journal.Admitted{Submission: sub},
		&journal.Attempt{Submission: sub},
		&journal.Release{Submission: sub},
		&journal.Entry{Submission: sub, Purpose: rapid.SampledFrom([]journal.Purpose{journal.Input, journal.Advisory, journal.Notice, "?"}).Draw(t, "purpose")},
		&journal.Seam{Submission: sub, Name: rapid.SampledFrom([]journal.SeamName{journal.SeamStart, journal.SeamClosed, "?"}).Draw(t, "seam")},
		&journal.State{Name: "v"},
		&journal.TurnStarted{Turn: "t8", Response: rapid.SampledFrom([]string{st.Response.ID, "r9"}).Draw(t, "resp"), Submission: sub},
		&journal.TurnDelta{Turn: turn, BlockKind: kind, Text: "x"},
		&journal.TurnDone{Turn: turn, Stop: journal.StopEnd, Blocks: []journal.Block{block}},
		&journal.Called{Turn: turn, Calls: []string{call, call}},
		&journal.Outcome{Turn: turn, Call: call},
		&journal.ToolBatch{Turn: turn},
		&journal.Settled{Submission: sub, Outcome: rapid.SampledFrom([]string{"completed", "failed", "?"}).Draw(t, "outcome")},
		&journal.Compacted{ID: "k", First: rapid.SampledFrom(append(names(st), "e9", "")).Draw(t, "first"), Keep: rapid.SliceOfN(rapid.SampledFrom(append(names(st), "")), 0, 2).Draw(t, "keep")},
		&journal.Uncompacted{ID: "k"},
		&journal.Summarizing{Submission: sub, Guess: journal.Usage{Input: 1}},
		&journal.Unsummarized{Submission: sub, Usage: journal.Usage{Input: 1}, Error: &journal.TurnError{Class: "auth"}},
		&journal.Unknown{Name: "later", Optional: rapid.Bool().Draw(t, "optional")},
	}).Draw(t, "anything")
}
