package fold_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

// shown names the items of a context.
func shown(st *fold.State) string {
	var out []string
	for _, it := range st.Context {
		switch {
		case it.Summary != nil:
			out = append(out, "summary "+it.Summary.ID)
		case it.Outcomes != nil:
			out = append(out, "outcomes")
		default:
			out = append(out, it.ID())
		}
	}
	return strings.Join(out, ", ")
}

func compacted(id, first string, keep ...string) *journal.Compacted {
	return &journal.Compacted{ID: id, Submission: "s1", Reason: journal.CompactionThreshold, Summary: "what was before", First: first, Keep: keep}
}

func uncompacted(id string) journal.Record { return &journal.Uncompacted{ID: id} }

// turn is a turn of the response r1 with an id of its own, and with its outcomes
// if it makes a call.
func turn(id string, calls ...string) []journal.Record {
	out := []journal.Record{&journal.TurnStarted{Turn: id, Response: "r1", Submission: "s1"}}
	t := done(journal.StopToolUse, calls...).(*journal.TurnDone)
	t.Turn, t.Usage = id, journal.Usage{Input: 90, Output: 10}
	out = append(out, t)
	for _, c := range calls {
		out = append(out, &journal.Outcome{Turn: id, Call: c, Content: "ok"})
	}
	if len(calls) > 0 {
		out = append(out, &journal.ToolBatch{Turn: id})
	}
	return out
}

// long is a conversation of which the context is e_s1, t1, outcomes, t2,
// outcomes, t3, stream_interrupted, stream_continued, t4, outcomes.
func long() []journal.Record {
	var out []journal.Record
	out = append(out, turn("t1", "c1")...)
	out = append(out, turn("t2", "c2a", "c2b")...)
	out = append(out,
		&journal.TurnStarted{Turn: "t3", Response: "r1", Submission: "s1"},
		&journal.TurnDone{Turn: "t3", Stop: journal.StopAborted, Blocks: []journal.Block{{Kind: journal.Text, Text: "half"}}},
		notice(journal.SignalInterrupted), notice(journal.SignalContinued),
	)
	out = append(out, turn("t4", "c4")...)
	return running(out...)
}

func TestCompacted(t *testing.T) {
	for _, tt := range []struct {
		first string
		keep  []string
		want  string // the context, or why it is refused
	}{
		{"t1", nil, "summary k, t1, outcomes, t2, outcomes, t3, n_stream_interrupted, n_stream_continued, t4, outcomes"},
		{"t2", nil, "summary k, t2, outcomes, t3, n_stream_interrupted, n_stream_continued, t4, outcomes"},
		{"t4", nil, "summary k, t4, outcomes"},
		{"t4", []string{"e_s1"}, "summary k, e_s1, t4, outcomes"},
		{"t4", []string{"e_s1", "t1"}, "summary k, e_s1, t1, outcomes, t4, outcomes"},
		{"t4", []string{"t2"}, "summary k, t2, outcomes, t4, outcomes"},
		{"t4", []string{"t3"}, "summary k, t3, n_stream_interrupted, n_stream_continued, t4, outcomes"},

		{"e_s1", nil, "nothing before"},
		{"", nil, `no item ""`},
		{"t9", nil, `no item "t9"`},
		{"n_stream_interrupted", nil, "parted"},
		{"n_stream_continued", nil, "parted"},
		{"t2", []string{"t4"}, `no item "t4"`},
		{"t4", []string{"t2", "t1"}, `no item "t1"`},
		{"t4", []string{"t1", "t1"}, `no item "t1"`},
		{"t4", []string{"n_stream_interrupted"}, `no item "n_stream_interrupted"`},
		{"t4", []string{""}, `no item ""`},
	} {
		t.Run(fmt.Sprint(tt.first, tt.keep), func(t *testing.T) {
			st, same := apply(t, long()...), apply(t, long()...)
			err := st.Apply(compacted("k", tt.first, tt.keep...))
			if !strings.HasPrefix(tt.want, "summary") {
				var rule *fold.RuleError
				if !errors.As(err, &rule) || !strings.Contains(rule.Reason, tt.want) {
					t.Errorf("the error is %v, want one of %q", err, tt.want)
				}
				if diff := diff(same, st); diff != "" {
					t.Errorf("what is refused changes the state:\n%s", diff)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := shown(st); got != tt.want {
				t.Errorf("the context is\n%s, want\n%s", got, tt.want)
			}
			if st.Phase != same.Phase || st.Response.Turns != same.Response.Turns || st.Compaction().ID != "k" || st.Counted != (fold.Counted{}) {
				t.Errorf("the state is %+v", st)
			}
			if st.Size >= same.Size+1000 || st.Size <= 0 {
				t.Errorf("the size is %d, was %d", st.Size, same.Size)
			}
		})
	}
}

// A compaction replaces the one before it, and takes no turn or call apart that
// is under way.
func TestCompactedAgain(t *testing.T) {
	st := apply(t, long()...)
	for i, r := range []journal.Record{compacted("k1", "t2", "e_s1"), compacted("k2", "t4")} {
		if err := st.Apply(r); err != nil {
			t.Fatal(i, err)
		}
	}
	if got, want := shown(st), "summary k2, t4, outcomes"; got != want {
		t.Errorf("the context is %s, want %s", got, want)
	}
	for _, r := range slices.Concat(turn("t5"), []journal.Record{seam(journal.SeamClosed), settled("s1", "completed")}) {
		if err := st.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Apply(compacted("k3", "t5")); err != nil {
		t.Fatalf("at rest: %v", err)
	}
	for name, open := range map[string][]journal.Record{
		"an open turn": {&journal.TurnStarted{Turn: "t5", Response: "r1", Submission: "s1"}},
		"open calls":   turn("t5", "c5")[:2],
	} {
		st := apply(t, append(long(), open...)...)
		if err := st.Apply(compacted("k", "t2")); err == nil {
			t.Errorf("%s is compacted", name)
		}
		if err := st.Apply(uncompacted("k")); err == nil {
			t.Errorf("%s is uncompacted", name)
		}
	}
}

// What a compaction has used counts, for the response if it was made for it, and
// it is the new baseline.
func TestCompactionCounts(t *testing.T) {
	cost := int64(7)
	k := compacted("k", "t4")
	k.Usage, k.Calls, k.Cost = journal.Usage{Input: 1000, Output: 5}, 2, &cost
	k.Resources = &journal.Resources{Baseline: true, Instructions: "new"}
	st := apply(t, append(long(), &journal.Resources{Instructions: "old"}, k)...)
	if st.Usage.Input != 1000+3*90 || st.Response.Usage.Output != 5+3*10 || st.Cost.Nano != 7 || st.Response.Cost.Nano != 7 {
		t.Errorf("the usage is %+v, that of the response %+v, the costs %+v and %+v", st.Usage, st.Response.Usage, st.Cost, st.Response.Cost)
	}
	if st.Baseline.Instructions != "new" || st.Told != st.Baseline {
		t.Errorf("the baseline is %+v, told was %+v", st.Baseline, st.Told)
	}
	k.Submission = "s9"
	if st := apply(t, append(long(), k)...); st.Usage.Input != 1000+3*90 || st.Response.Usage.Input != 3*90 || st.Response.Cost.Nano != 0 {
		t.Errorf("the usage is %+v, that of the response %+v", st.Usage, st.Response.Usage)
	}
}

// The count is the provider's of the latest turn that was sent the whole
// context.
func TestCounted(t *testing.T) {
	st := apply(t, long()...)
	if want := (fold.Counted{Tokens: 100, Items: 9}); st.Counted != want {
		t.Errorf("counted %+v, want %+v", st.Counted, want)
	}
	uncounted := turn("t5", "c5")
	uncounted[1].(*journal.TurnDone).Usage = journal.Usage{}
	if st := apply(t, append(long(), uncounted...)...); st.Counted.Items != 9 {
		t.Errorf("a turn without usage makes it %+v", st.Counted)
	}
	fitted := turn("t5", "c5")
	fitted[0].(*journal.TurnStarted).Fitted = true
	if st := apply(t, append(long(), fitted...)...); st.Counted != (fold.Counted{}) {
		t.Errorf("a turn that was sent less makes it %+v", st.Counted)
	}
	if st := apply(t, slices.Concat(long(), fitted, turn("t6", "c6"))...); st.Counted.Items != 13 {
		t.Errorf("the turn after that makes it %+v", st.Counted)
	}
}

// Requests that were too large are counted until one is answered.
func TestOverflows(t *testing.T) {
	over := func(id string) []journal.Record {
		return []journal.Record{
			&journal.TurnStarted{Turn: id, Response: "r1", Submission: "s1"},
			&journal.TurnDone{Turn: id, Stop: journal.StopError, Error: &journal.TurnError{Class: journal.ClassOverflow}},
		}
	}
	st := apply(t, slices.Concat(long(), over("t5"))...)
	if r := st.Response; r.Overflows != 1 || r.Failures != 0 || r.Relieved || r.LastError == nil {
		t.Errorf("after the first: %+v", r)
	}
	st = apply(t, slices.Concat(long(), over("t5"), []journal.Record{compacted("k", "t4")}, over("t6"))...)
	if r := st.Response; r.Overflows != 2 || !r.Relieved {
		t.Errorf("after a compaction and the second: %+v", r)
	}
	st = apply(t, slices.Concat(long(), over("t5"), []journal.Record{compacted("k", "t4")}, turn("t6", "c6"))...)
	if r := st.Response; r.Overflows != 0 || r.Relieved {
		t.Errorf("after an answer: %+v", r)
	}
}

// A compaction that is undone leaves the context as if it had not been made, to
// whoever folds the journal from its start.
func TestUncompacted(t *testing.T) {
	k := compacted("k2", "t4")
	k.Resources = &journal.Resources{Baseline: true, Instructions: "new"}
	records := append(long(), compacted("k1", "t2"), k)
	live := apply(t, records...)
	var rule *fold.RuleError
	if err := live.Apply(uncompacted("k2")); !errors.As(err, &rule) || !rule.Undoes {
		t.Errorf("the live state says %v", err)
	}
	for name, records := range map[string][]journal.Record{
		"once": append(slices.Clone(records), uncompacted("k2")),
		"with turns in between": append(append(slices.Clone(records), turn("t5", "c5")...),
			uncompacted("k2")),
	} {
		st, err := fold.Replay(one(records...).read())
		if err != nil {
			t.Fatal(name, err)
		}
		want := "summary k1, t2, outcomes, t3, n_stream_interrupted, n_stream_continued, t4, outcomes"
		if got := strings.TrimSuffix(shown(st), ", t5, outcomes"); got != want || st.Compaction().ID != "k1" || st.Undone != nil {
			t.Errorf("%s: the context is\n%s, want\n%s", name, got, want)
		}
		if st.Baseline.Instructions != "new" {
			t.Errorf("%s: the baseline is %+v", name, st.Baseline)
		}
		// As the owner does it that is about to write the record.
		ahead, err := fold.ReplayWithout(one(records[:len(records)-1]...).read(), "k2")
		if err != nil {
			t.Fatal(name, err)
		}
		if err := ahead.Apply(records[len(records)-1]); err != nil {
			t.Fatal(name, err)
		}
		ahead.Head = st.Head
		if diff := diff(st, ahead); diff != "" {
			t.Errorf("%s: its owner has (-replayed +owner):\n%s", name, diff)
		}
	}
	if ahead, err := fold.ReplayWithout(one(append(slices.Clone(records), uncompacted("k2"))...).read(), "k1"); err != nil || ahead.Apply(uncompacted("k1")) != nil || ahead.Compaction() != nil {
		t.Errorf("undoing the one before: %v, %v", ahead.Compaction(), err)
	}
	both := append(slices.Clone(records), uncompacted("k2"), uncompacted("k1"), compacted("k3", "t1"))
	st, err := fold.Replay(one(both...).read())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := shown(st), "summary k3, t1, outcomes, t2, outcomes, t3, n_stream_interrupted, n_stream_continued, t4, outcomes"; got != want {
		t.Errorf("the context is\n%s, want\n%s", got, want)
	}
	for name, wrong := range map[string][]journal.Record{
		"one that never was":        {uncompacted("k9")},
		"one that is not the last":  {uncompacted("k1")},
		"one that is undone":        {uncompacted("k2"), uncompacted("k2")},
		"one that another replaced": {compacted("k3", "t4"), uncompacted("k1")},
	} {
		_, err := fold.Replay(one(append(slices.Clone(records), wrong...)...).read())
		var damage *fold.DamageError
		if !errors.As(err, &damage) {
			t.Errorf("undoing %s: %v", name, err)
		}
	}
}

// A repair that passes over an undoing passes over what it undid, too.
func TestUncompactedUnderRepair(t *testing.T) {
	records := append(long(), compacted("k1", "t2"), abort, uncompacted("k1"))
	b := one(records...)
	at := int64(len(records) - 2)
	b[at] = nil
	b = append(b, []journal.Record{repair(at, at+1)})
	st, err := fold.Replay(b.read())
	if err != nil {
		t.Fatal(err)
	}
	if got := shown(st); !strings.HasPrefix(got, "summary k1, t2") {
		t.Errorf("the context is %s", got)
	}
	if diff := cmp.Diff([]fold.Span{{From: at, To: at + 1}}, st.Passed); diff != "" {
		t.Error(diff)
	}
}

// A command is settled where it stands, and never becomes part of a conversation.
func TestCommand(t *testing.T) {
	command := &journal.Admitted{Submission: "s9", Message: journal.Message{Kind: journal.Signal, Type: journal.SignalCompaction}}
	mine := func(outcome string) journal.Record { return &journal.Settled{Submission: "s9", Outcome: outcome} }
	join := &journal.Entry{ID: "e2", Submission: "s9", Purpose: journal.Input, Message: command.Message}

	// By itself: it is active, and settled without a response.
	st := apply(t, born, command, attempt("s9"))
	if err := st.Apply(join); err == nil {
		t.Error("its message is part of the conversation")
	}
	if !st.Active.Command() || st.Phase != fold.Input {
		t.Errorf("the state is %+v", st)
	}
	for _, outcome := range []string{journal.Completed, journal.Failed, journal.Aborted} {
		if st := apply(t, born, command, attempt("s9"), mine(outcome)); st.Phase != fold.Idle || st.Unsettled() {
			t.Errorf("%s: the state is %+v", outcome, st)
		}
	}
	// Beside a response: it does not join, and is settled from the queue.
	live := append(long(), settled("s2", journal.Aborted), command)
	st = apply(t, live...)
	if st.Joinable() != nil || st.Command() == nil {
		t.Errorf("it joins %v, and is %v", st.Joinable(), st.Command())
	}
	if err := st.Apply(join); err == nil {
		t.Error("it has joined")
	}
	if st := apply(t, append(live, mine(journal.Completed))...); st.Active.Submission != "s1" || st.Command() != nil {
		t.Errorf("the state is %+v", st)
	}
	if err := st.Apply(&journal.Settled{Submission: "s1", Outcome: journal.Completed}); err == nil {
		t.Error("the response is settled before it is closed")
	}
	// Not while the conversation is not at rest, and not once it was aborted.
	open := apply(t, append(live, &journal.TurnStarted{Turn: "t5", Response: "r1", Submission: "s1"})...)
	if err := open.Apply(mine(journal.Completed)); err == nil {
		t.Error("it is settled in the middle of a turn")
	}
	if st := apply(t, append(live, abort)...); st.Command() != nil {
		t.Error("it is done although it was aborted")
	}
	// Messages behind it wait for it.
	if st := apply(t, append(live, admitted("s8"))...); st.Joinable() != nil {
		t.Errorf("%s overtakes it", st.Joinable().Submission)
	}
}
