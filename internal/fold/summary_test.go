package fold_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

func summarizing(reason journal.CompactionReason) *journal.Summarizing {
	return &journal.Summarizing{Submission: "s1", Reason: reason, Provider: "p", Model: "m", Guess: journal.Usage{Input: 500, Output: 50}, AtMost: 9}
}

func unsummarized(reason journal.CompactionReason, next int64) *journal.Unsummarized {
	cost := int64(7)
	return &journal.Unsummarized{
		Submission: "s1", Reason: reason, Error: &journal.TurnError{Class: "auth"}, Next: next,
		Usage: journal.Usage{Input: 1000, Output: 5}, Guess: journal.Usage{Output: 20}, Calls: 2, Cost: &cost,
	}
}

// What a summary took that could not be had counts: for the response if it was to
// be made for it, and for the instance.
func TestUnsummarizedCounts(t *testing.T) {
	cut := unsummarized(journal.CompactionThreshold, 0)
	cut.Error = nil
	other := unsummarized(journal.CompactionManual, 1)
	other.Submission = "s9"
	for name, tt := range map[string]struct {
		records  []journal.Record
		response bool
	}{
		"failed":               {[]journal.Record{summarizing(journal.CompactionThreshold), unsummarized(journal.CompactionThreshold, 1)}, true},
		"cut":                  {[]journal.Record{summarizing(journal.CompactionThreshold), cut}, true},
		"for another's asking": {[]journal.Record{summarizing(journal.CompactionManual), other}, false},
	} {
		st, before := apply(t, append(long(), tt.records...)...), apply(t, long()...)
		resp := &st.Response
		if st.Usage.Input-before.Usage.Input != 1000 || st.Spent.Guessed != 20 || st.Cost.Nano != 7 || st.Summarizing != nil {
			t.Errorf("%s: the instance has used %+v, %+v and %+v", name, st.Usage, st.Spent, st.Cost)
		}
		if counted := resp.Usage.Input-before.Response.Usage.Input == 1000 && resp.Spent.Guessed == 20 && resp.Cost.Nano == 7; counted != tt.response {
			t.Errorf("%s: the response has used %+v, %+v and %+v", name, resp.Usage, resp.Spent, resp.Cost)
		}
		if shown(st) != shown(before) || st.Phase != before.Phase {
			t.Errorf("%s: the context is %s in phase %s", name, shown(st), st.Phase)
		}
	}
}

// One of which nobody says how it has ended counts what was estimated: when the
// next is begun, and when a repair ends all that was under way.
func TestSummaryThatIsLeft(t *testing.T) {
	left := append(long(), summarizing(journal.CompactionThreshold))
	st := apply(t, append(slices.Clone(left), summarizing(journal.CompactionThreshold))...)
	if st.Summarizing == nil || st.Spent.Guessed != 550 || st.Cost.AtMost != 9 || st.Cost.Bounded != 1 || st.Response.Spent.Guessed != 550 {
		t.Errorf("the instance has used %+v and %+v", st.Spent, st.Cost)
	}
	at := int64(len(left))
	b := append(one(left...), nil, []journal.Record{repair(at, at)})
	st, err := fold.Replay(b.read())
	if err != nil || st.Summarizing != nil || st.Spent.Guessed != 550 {
		t.Errorf("after a repair: %+v, %v", st.Spent, err)
	}
}

// Failures are counted until a summary is had. What was dropped instead is none.
func TestFailedSummariesInARow(t *testing.T) {
	threshold, overflow := journal.CompactionThreshold, journal.CompactionOverflow
	cut := unsummarized(threshold, 0)
	cut.Error = nil
	dropped := compacted("k", "t4")
	dropped.Dropped = true
	two := []journal.Record{summarizing(threshold), unsummarized(threshold, 10), summarizing(overflow), unsummarized(overflow, 30)}
	for name, tt := range map[string]struct {
		more []journal.Record
		want fold.Unsummarized
	}{
		"two":           {nil, fold.Unsummarized{Failures: 2, Overflows: 1, Next: 30}},
		"and a cut":     {[]journal.Record{summarizing(threshold), cut}, fold.Unsummarized{Failures: 2, Overflows: 1, Next: 30}},
		"and a turn":    {turn("t5"), fold.Unsummarized{Failures: 2, Overflows: 1, Next: 30}},
		"and one less":  {[]journal.Record{summarizing(threshold), dropped}, fold.Unsummarized{Failures: 2, Overflows: 1, Next: 30}},
		"and a summary": {[]journal.Record{summarizing(threshold), compacted("k", "t4")}, fold.Unsummarized{}},
	} {
		records := slices.Concat(long(), two, tt.more)
		if st := apply(t, records...); st.Unsummarized != tt.want || st.Summarizing != nil {
			t.Errorf("%s: %+v", name, st.Unsummarized)
		}
	}
	// A compaction that is undone further on was had all the same.
	records := slices.Concat(long(), two, []journal.Record{summarizing(threshold), compacted("k", "t4"), uncompacted("k")})
	if st, err := fold.Replay(one(records...).read()); err != nil || st.Unsummarized != (fold.Unsummarized{}) || st.Summarizing != nil {
		t.Errorf("undone: %+v, %v", st.Unsummarized, err)
	}
}

// While requests are refused as too large, one summary is asked for.
func TestUnrelieved(t *testing.T) {
	over := []journal.Record{
		&journal.TurnStarted{Turn: "t5", Response: "r1", Submission: "s1"},
		&journal.TurnDone{Turn: "t5", Stop: journal.StopError, Error: &journal.TurnError{Class: journal.ClassOverflow}},
	}
	failed := []journal.Record{summarizing(journal.CompactionOverflow), unsummarized(journal.CompactionOverflow, 1)}
	if st := apply(t, slices.Concat(long(), over, failed)...); !st.Response.Unrelieved || st.Response.Relieved {
		t.Errorf("the response is %+v", st.Response)
	}
	if st := apply(t, slices.Concat(long(), over, failed, turn("t6", "c6"))...); st.Response.Unrelieved || st.Unsummarized.Overflows != 1 {
		t.Errorf("after an answer the response is %+v", st.Response)
	}
	if st := apply(t, slices.Concat(long(), failed)...); st.Response.Unrelieved {
		t.Error("no request was refused")
	}
}

// A summary is made where the conversation is at rest, for a submission, and ends
// once.
func TestSummaryRules(t *testing.T) {
	begin, end := summarizing(journal.CompactionThreshold), unsummarized(journal.CompactionThreshold, 1)
	open := append(long(), &journal.TurnStarted{Turn: "t5", Response: "r1", Submission: "s1"})
	for name, tt := range map[string]struct {
		records []journal.Record
		last    journal.Record
	}{
		"in a turn":           {open, begin},
		"of nobody":           {[]journal.Record{born}, begin},
		"none was begun":      {long(), end},
		"it has ended":        {append(long(), begin, end), end},
		"it was had":          {append(long(), begin, compacted("k", "t4")), end},
		"among calls that go": {append(long(), turn("t5", "c5")[:2]...), begin},
	} {
		var rule *fold.RuleError
		if err := apply(t, tt.records...).Apply(tt.last); !errors.As(err, &rule) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
