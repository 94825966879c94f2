package fold_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

// bounded is a response with a budget that has come to its first turn.
func bounded(b *journal.Budget, rest ...journal.Record) []journal.Record {
	return append([]journal.Record{
		born, admitted("s1"), attempt("s1"), entry("s1"),
		&journal.Seam{Name: journal.SeamStart, Submission: "s1", Response: "r1", Settings: &journal.Settings{Model: "p/m", Budget: b}},
	}, rest...)
}

// spending is a turn that cost so much, of which the calls were let go.
func spending(id string, nano *int64, calls []string, let ...string) []journal.Record {
	t := done(journal.StopToolUse, calls...).(*journal.TurnDone)
	t.Turn, t.Usage, t.Cost, t.WorkMS, t.Named = id, journal.Usage{Input: 90, Output: 10, Reasoning: 5}, nano, 1000, true
	out := []journal.Record{&journal.TurnStarted{Turn: id, Response: "r1", Submission: "s1"}, t}
	if len(let) > 0 {
		out = append(out, &journal.Called{Turn: id, Calls: let})
	}
	for _, c := range calls {
		out = append(out, &journal.Outcome{Turn: id, Call: c, Content: "x", Failed: true})
	}
	return append(out, &journal.ToolBatch{Turn: id, WorkMS: 500})
}

func nano(n int64) *int64 { return &n }

func TestExhausted(t *testing.T) {
	used := append(spending("t1", nano(30), []string{"c1", "c2"}, "c1"), spending("t2", nil, []string{"c3"}, "c3")...)
	// Two turns and two calls of three, 200 tokens, 60 billionths of a dollar, since
	// the second turn counts as the first, and three seconds.
	for name, tt := range map[string]struct {
		limits journal.Limits
		want   journal.BudgetLimit
	}{
		"none":           {journal.Limits{}, ""},
		"turns":          {journal.Limits{Turns: 2}, journal.LimitTurns},
		"more turns":     {journal.Limits{Turns: 3}, ""},
		"calls":          {journal.Limits{ToolCalls: 2}, journal.LimitToolCalls},
		"more calls":     {journal.Limits{ToolCalls: 3}, ""},
		"tokens":         {journal.Limits{Tokens: 200}, journal.LimitTokens},
		"more tokens":    {journal.Limits{Tokens: 201}, ""},
		"dollars":        {journal.Limits{NanoDollars: 60}, journal.LimitDollars},
		"more dollars":   {journal.Limits{NanoDollars: 61}, ""},
		"time":           {journal.Limits{WorkMS: 3000}, journal.LimitWallTime},
		"more time":      {journal.Limits{WorkMS: 3001}, ""},
		"several":        {journal.Limits{Tokens: 1, Turns: 2, WorkMS: 1}, journal.LimitTurns},
		"the money only": {journal.Limits{Tokens: 1000, Turns: 1000, NanoDollars: 1}, journal.LimitDollars},
	} {
		t.Run(name, func(t *testing.T) {
			other := &journal.Limits{Turns: 100}
			for scope, b := range map[journal.BudgetScope]*journal.Budget{
				journal.ScopeSubmission: {Submission: &tt.limits, Instance: other},
				journal.ScopeInstance:   {Submission: other, Instance: &tt.limits},
			} {
				st := apply(t, bounded(b, used...)...)
				var want *journal.ExhaustedBudget
				if tt.want != "" {
					want = &journal.ExhaustedBudget{Scope: scope, Limit: tt.want}
				}
				if d := cmp.Diff(want, st.Exhausted()); d != "" {
					t.Errorf("of the %s (-want +got):\n%s", scope, d)
				}
			}
		})
	}
}

// The next response begins with nothing used of its own budget. What the instance
// has used stays.
func TestSpentOfTheInstance(t *testing.T) {
	b := &journal.Budget{Submission: &journal.Limits{Turns: 2}, Instance: &journal.Limits{Turns: 3}}
	end := []journal.Record{seam(journal.SeamClosed), settled("s1", journal.Completed)}
	end[0].(*journal.Seam).WorkMS = 7
	last := []journal.Record{
		&journal.TurnStarted{Turn: "t2", Response: "r1", Submission: "s1"},
		&journal.TurnDone{Turn: "t2", Stop: journal.StopEnd, Cost: nano(5)},
	}
	records := append(bounded(b, spending("t1", nano(30), []string{"c1"}, "c1")...), append(last, end...)...)
	st := apply(t, records...)
	if want := (fold.Spent{Turns: 2, ToolCalls: 1, WorkMS: 1507, Dearest: 30}); st.Spent != want || st.Exhausted() != nil {
		t.Errorf("the instance has spent %+v, want %+v; %v", st.Spent, want, st.Exhausted())
	}
	st = apply(t, append(records, admitted("s2"), attempt("s2"))...)
	if st.Response.Spent != (fold.Spent{}) || st.ExhaustedBy(b) != nil {
		t.Errorf("the next response begins with %+v; %v", st.Response.Spent, st.ExhaustedBy(b))
	}
	b.Instance.Turns = 2
	if got := st.ExhaustedBy(b); got == nil || *got != (journal.ExhaustedBudget{Scope: journal.ScopeInstance, Limit: journal.LimitTurns}) {
		t.Errorf("the instance has %v left", got)
	}
}

// Turns that fail or are cut count as money and time, and as no turn.
func TestSpentOfFailures(t *testing.T) {
	b := &journal.Budget{Submission: &journal.Limits{Turns: 1, NanoDollars: 90}}
	records := bounded(b, spending("t0", nano(30), nil)[:2]...)
	st := apply(t, records[:5]...)
	for i, stop := range []journal.Stop{journal.StopError, journal.StopAborted} {
		id := string(stop)
		for _, r := range []journal.Record{
			&journal.TurnStarted{Turn: id, Response: "r1", Submission: "s1"},
			&journal.TurnDone{Turn: id, Stop: stop, WorkMS: 10},
		} {
			if err := st.Apply(r); err != nil {
				t.Fatal(err)
			}
		}
		if want := (fold.Spent{WorkMS: int64(i+1) * 10}); st.Response.Spent != want || st.Exhausted() != nil {
			t.Fatalf("after a turn that ended as %s: %+v, %v", stop, st.Response.Spent, st.Exhausted())
		}
	}
	b.Submission.Turns = 0
	for _, r := range records[5:] {
		if err := st.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	if got := fold.Charged(st.Response.Cost, st.Response.Spent); got != 90 || st.Exhausted() == nil {
		t.Errorf("%d is charged for one call of 30 and two of unknown cost; %v", got, st.Exhausted())
	}
}

// A call of unknown cost counts what is estimated from its own tokens, and not
// what another one happened to cost.
func TestSpentOfEstimates(t *testing.T) {
	b := &journal.Budget{Submission: &journal.Limits{NanoDollars: 1000}}
	records := bounded(b, append(spending("t1", nano(30), nil)[:2], &journal.ToolBatch{Turn: "t1"})[:2]...)
	records[len(records)-1].(*journal.TurnDone).Stop = journal.StopError
	for _, id := range []string{"t2", "t3"} {
		records = append(records, &journal.TurnStarted{Turn: id, Response: "r1", Submission: "s1"}, &journal.TurnDone{Turn: id, Stop: journal.StopError, AtMost: 400})
	}
	st := apply(t, records...)
	if got := fold.Charged(st.Response.Cost, st.Response.Spent); got != 830 || st.Exhausted() != nil {
		t.Errorf("%d is charged; %v", got, st.Exhausted())
	}
	st = apply(t, append(records, &journal.TurnStarted{Turn: "t4", Response: "r1", Submission: "s1"}, &journal.TurnDone{Turn: "t4", Stop: journal.StopAborted})...)
	if got := fold.Charged(st.Response.Cost, st.Response.Spent); got != 1230 || st.Exhausted() == nil {
		t.Errorf("%d is charged with one of which nothing is known; %v", got, st.Exhausted())
	}
}

func TestChargedDoesNotOverflow(t *testing.T) {
	if got := fold.Charged(journal.Expense{Nano: math.MaxInt64 - 1, Unknown: 1 << 30}, fold.Spent{Dearest: 1e15}); got != math.MaxInt64 {
		t.Errorf("%d is charged", got)
	}
	if got := fold.Charged(journal.Expense{Nano: math.MaxInt64 - 1, Unknown: 1, Bounded: 1, AtMost: 2}, fold.Spent{}); got != math.MaxInt64 {
		t.Errorf("%d is charged", got)
	}
	if got := fold.Charged(journal.Expense{Nano: 3, Unknown: 2}, fold.Spent{}); got != 3 {
		t.Errorf("%d is charged when no cost is known", got)
	}
}

func TestCallsLeft(t *testing.T) {
	st := apply(t, bounded(&journal.Budget{Submission: &journal.Limits{ToolCalls: 3}, Instance: &journal.Limits{ToolCalls: 2}})...)
	left := []int{st.CallsLeft()}
	for _, r := range spending("t1", nil, []string{"c1", "c2"}, "c2") {
		if err := st.Apply(r); err != nil {
			t.Fatal(err)
		}
		left = append(left, st.CallsLeft())
	}
	want := []int{2, 2, 2, 1, 1, 1, 1} // at the start, and after turn_started, turn_done, called, two outcomes and the batch
	if d := cmp.Diff(want, left); d != "" {
		t.Errorf("calls left (-want +got):\n%s", d)
	}
	if st := apply(t, bounded(nil)...); st.CallsLeft() != math.MaxInt {
		t.Errorf("%d calls are left without a budget", st.CallsLeft())
	}
}

// Behind a turn that concludes there is only the end: calls lead to no other
// turn, finish hooks send nobody back, and no message joins.
func TestConcluding(t *testing.T) {
	limit := &journal.ExhaustedBudget{Scope: journal.ScopeSubmission, Limit: journal.LimitTurns}
	b := &journal.Budget{Submission: &journal.Limits{Turns: 1}}
	records := append(bounded(b, spending("t1", nil, []string{"c1"}, "c1")...), admitted("s2"))
	st := apply(t, records...)
	if st.Phase != fold.Model || st.Joinable() != nil {
		t.Fatalf("in phase %s %v may join", st.Phase, st.Joinable())
	}
	last := spending("t2", nil, []string{"c2"})
	last[0].(*journal.TurnStarted).Budget = limit
	st = apply(t, append(records, last...)...)
	if st.Phase != fold.Finish || st.Response.Concluding != limit || st.Joinable() != nil {
		t.Fatalf("the last turn leads to phase %s; %+v", st.Phase, st.Response)
	}
	if st.Response.Spent.ToolCalls != 1 {
		t.Errorf("%d calls count, of one that was run", st.Response.Spent.ToolCalls)
	}
	appended := &journal.Entry{ID: "e", Submission: "s1", Purpose: journal.Appended, Message: journal.Message{Kind: journal.Signal, Type: "check"}}
	if err := st.Apply(appended); err != nil {
		t.Fatal(err)
	}
	if err := st.Apply(seam(journal.SeamCycle)); err == nil {
		t.Error("the model is sent back to work after its last turn")
	}
	for _, r := range []journal.Record{
		seam(journal.SeamClosed), &journal.Settled{Submission: "s1", Outcome: journal.Completed, Budget: limit}, attempt("s2"),
	} {
		if err := st.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	if st.Response.Concluding != nil || st.Exhausted() != nil {
		t.Errorf("the next response begins as %+v", st.Response)
	}
}
