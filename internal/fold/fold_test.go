package fold_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

// Short forms of records, for tables.
var (
	born    = &journal.Born{Agent: "a", ID: "c", UID: "u", Incarnation: "i"}
	abort   = &journal.Abort{}
	started = &journal.TurnStarted{Turn: "t1", Response: "r1", Submission: "s1"}
	batch   = &journal.ToolBatch{Turn: "t1"}
)

func admitted(id string) journal.Record { return &journal.Admitted{Submission: id} }

func attempt(id string) journal.Record {
	return &journal.Attempt{Submission: id, Ordinal: 1, MaxAttempts: 3, Deadline: 9}
}

func entry(id string) journal.Record {
	return &journal.Entry{ID: "e_" + id, Submission: id, Purpose: journal.Input, Message: journal.Message{Kind: journal.User, Body: id}}
}

func notice(signal string) journal.Record {
	return &journal.Entry{ID: "n_" + signal, Submission: "s1", Purpose: journal.Notice, Message: journal.Message{Kind: journal.Signal, Type: signal}}
}

func done(stop journal.Stop, calls ...string) journal.Record {
	t := &journal.TurnDone{Turn: "t1", Response: "r1", Submission: "s1", Stop: stop, Blocks: []journal.Block{{Kind: journal.Text, Text: "x"}}}
	for _, c := range calls {
		t.Blocks = append(t.Blocks, journal.Block{Kind: journal.ToolCall, Call: c, Name: "tool"})
	}
	return t
}

func outcome(call string, end bool, writes ...journal.VarWrite) journal.Record {
	return &journal.Outcome{Turn: "t1", Call: call, Content: "ok", EndTurn: end, Writes: writes}
}

func delta(block int, text string) journal.Record {
	return &journal.TurnDelta{Turn: "t1", Response: "r1", Block: block, BlockKind: journal.Text, Text: text}
}

// foreign is a record that no journal has.
type foreign struct{}

func (foreign) Kind() journal.Kind { return "foreign" }

func seam(name journal.SeamName) journal.Record { return &journal.Seam{Name: name, Submission: "s1"} }

func settled(id, outcome string) journal.Record {
	return &journal.Settled{Submission: id, Outcome: outcome}
}

// diff compares all that a state shows.
func diff(a, b *fold.State) string {
	return cmp.Diff(a, b, cmpopts.IgnoreUnexported(fold.State{}, fold.Response{}))
}

// fataler is what testing.TB and rapid.T have in common here.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func apply(t fataler, records ...journal.Record) *fold.State {
	t.Helper()
	st := &fold.State{Head: -1}
	for i, r := range records {
		if err := st.Apply(r); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
	}
	return st
}

// running is the journal of an instance that has begun s1 and has s2 waiting.
func running(more ...journal.Record) []journal.Record {
	return append([]journal.Record{born, admitted("s1"), admitted("s2"), attempt("s1"), entry("s1")}, more...)
}

// chained is running with fallbacks to turn to.
func chained(more ...journal.Record) []journal.Record {
	return running(append([]journal.Record{&journal.Seam{Name: journal.SeamStart, Submission: "s1", Response: "r1", Settings: &journal.Settings{
		Model: "p/a", Fallbacks: []string{"p/b", "p/c"},
	}}}, more...)...)
}

// said is the end of a turn with something that readers saw.
func said(stop journal.Stop, kind journal.BlockKind) *journal.TurnDone {
	return &journal.TurnDone{Turn: "t1", Stop: stop, Blocks: []journal.Block{{Kind: kind, Text: "x"}}}
}

// A turn can be retracted if it came to nothing and readers saw some of it.
func TestRetract(t *testing.T) {
	for _, r := range []*journal.TurnDone{said(journal.StopError, journal.Text), said(journal.StopError, journal.Reasoning), said(journal.StopAborted, journal.Reasoning)} {
		st := apply(t, running(started, r)...)
		if st.Response.Retract != "t1" {
			t.Fatalf("after %s with %s: it is %q", r.Stop, r.Blocks[0].Kind, st.Response.Retract)
		}
		if err := st.Apply(&journal.TurnStarted{Turn: "t2", Response: "r1", Retracts: "t1"}); err != nil || st.Response.Retract != "" {
			t.Errorf("retracting: %v, then it is %q", err, st.Response.Retract)
		}
	}
}

func fallback(to string) journal.Record { return &journal.Fallback{Response: "r1", To: to} }

func TestPhases(t *testing.T) {
	for _, tt := range []struct {
		name    string
		records []journal.Record
		want    fold.Phase
	}{
		{"nothing", nil, fold.Unborn},
		{"born", []journal.Record{born}, fold.Idle},
		{"admitted", []journal.Record{born, admitted("s1")}, fold.Idle},
		{"attempt", []journal.Record{born, admitted("s1"), attempt("s1")}, fold.Input},
		{"entry", running(), fold.Model},
		{"turn", running(started), fold.Streaming},
		{"answer", running(started, done(journal.StopEnd)), fold.Finish},
		{"cut by the output limit", running(started, done(journal.StopLength)), fold.Finish},
		{"failed call", running(started, done(journal.StopError)), fold.Model},
		{"aborted turn", running(started, done(journal.StopAborted)), fold.Model},
		{"tool calls", running(started, done(journal.StopToolUse, "a")), fold.Tools},
		{"tool calls, though it says stop", running(started, done(journal.StopEnd, "a")), fold.Tools},
		{"one outcome of two", running(started, done(journal.StopToolUse, "a", "b"), outcome("a", false)), fold.Tools},
		{"batch", running(started, done(journal.StopToolUse, "a"), outcome("a", false), batch), fold.Model},
		{"batch that ends the turn", running(started, done(journal.StopToolUse, "a", "b"), outcome("a", true), outcome("b", true), batch), fold.Finish},
		{"batch that is not of one mind", running(started, done(journal.StopToolUse, "a", "b"), outcome("a", true), outcome("b", false), batch), fold.Model},
		{"joined while finishing", running(started, done(journal.StopEnd), entry("s2")), fold.Model},
		{"closed", running(started, done(journal.StopEnd), seam(journal.SeamClosed)), fold.Closed},
		{"settled", running(started, done(journal.StopEnd), seam(journal.SeamClosed), settled("s1", "completed")), fold.Idle},
		{"failed at rest", running(settled("s1", "failed")), fold.Idle},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := apply(t, tt.records...).Phase; got != tt.want {
				t.Errorf("phase %s, want %s", got, tt.want)
			}
		})
	}
}

// A record that breaks a rule is refused, and the state stays as it was.
func TestRules(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before []journal.Record
		record journal.Record
	}{
		{"anything before the birth", nil, admitted("s1")},
		{"second birth", []journal.Record{born}, born},
		{"admitted twice", []journal.Record{born, admitted("s1")}, admitted("s1")},
		{"admitted while active", running(), admitted("s1")},
		{"attempt out of order", []journal.Record{born, admitted("s1"), admitted("s2")}, attempt("s2")},
		{"attempt of another while one is active", running(), attempt("s2")},
		{"attempt of nothing", []journal.Record{born}, attempt("s1")},
		{"release of nothing", []journal.Record{born}, &journal.Release{Submission: "s1"}},
		{"release of another", running(), &journal.Release{Submission: "s2"}},
		{"release twice", running(&journal.Release{Submission: "s1"}), &journal.Release{Submission: "s1"}},
		{"entry without an attempt", []journal.Record{born, admitted("s1")}, entry("s1")},
		{"entry twice", running(), entry("s1")},
		{"join out of order", append([]journal.Record{born, admitted("s1"), admitted("s2"), admitted("s3")}, attempt("s1"), entry("s1")), entry("s3")},
		{"join while streaming", running(started), entry("s2")},
		{"join between calls and their batch", running(started, done(journal.StopToolUse, "a")), entry("s2")},
		{"notice while streaming", running(started), notice("x")},
		{"entry for no purpose", running(), &journal.Entry{Submission: "s1"}},
		{"turn before the entry", []journal.Record{born, admitted("s1"), attempt("s1")}, started},
		{"two turns at once", running(started), started},
		{"turn of another response", running(started, done(journal.StopError)), &journal.TurnStarted{Turn: "t2", Response: "r2"}},
		{"text without a turn", running(), &journal.TurnDelta{Turn: "t1", BlockKind: journal.Text, Text: "x"}},
		{"text of an earlier block", running(started, &journal.TurnDelta{Turn: "t1", Block: 1, BlockKind: journal.Text, Text: "x"}), &journal.TurnDelta{Turn: "t1", Block: 0, BlockKind: journal.Text, Text: "x"}},
		{"text of another turn", running(started), &journal.TurnDelta{Turn: "t9", BlockKind: journal.Text, Text: "x"}},
		{"text of another kind", running(started, delta(0, "x")), &journal.TurnDelta{Turn: "t1", BlockKind: journal.Reasoning, Text: "x"}},
		{"text of a block below the first", running(started), delta(-1, "x")},
		{"text of a block without bound", running(started), delta(journal.MaxBlocks, "x")},
		{"end without a turn", running(), done(journal.StopEnd)},
		{"unknown end of a turn", running(started), done("tired")},
		{"call without an id", running(started), done(journal.StopToolUse, "")},
		{"two calls with one id", running(started), done(journal.StopToolUse, "a", "a")},
		{"call id of an earlier turn", running(started, done(journal.StopToolUse, "a"), outcome("a", false), batch, started), done(journal.StopToolUse, "a")},
		{"end of another turn", running(started), &journal.TurnDone{Turn: "t9", Stop: journal.StopEnd}},
		{"outcome without a batch", running(), outcome("a", false)},
		{"outcome of no call", running(started, done(journal.StopToolUse, "a")), outcome("b", false)},
		{"outcome twice", running(started, done(journal.StopToolUse, "a", "b"), outcome("a", false)), outcome("a", false)},
		{"outcome of another turn", running(started, done(journal.StopToolUse, "a")), &journal.Outcome{Turn: "t9", Call: "a"}},
		{"batch of another turn", running(started, done(journal.StopToolUse, "a"), outcome("a", false)), &journal.ToolBatch{Turn: "t9"}},
		{"batch without calls", running(), batch},
		{"batch without all outcomes", running(started, done(journal.StopToolUse, "a", "b"), outcome("a", false)), batch},
		{"closed before the end", running(), seam(journal.SeamClosed)},
		{"start before the entry", []journal.Record{born, admitted("s1"), attempt("s1")}, seam(journal.SeamStart)},
		{"closed for another", running(started, done(journal.StopEnd), entry("s2"), started, done(journal.StopEnd)), &journal.Seam{Name: journal.SeamClosed, Submission: "s2"}},
		{"unknown seam", running(), seam("x")},
		{"completed before it is closed", running(started, done(journal.StopEnd)), settled("s1", "completed")},
		{"failed while streaming", running(started), settled("s1", "failed")},
		{"failed with an open batch", running(started, done(journal.StopToolUse, "a")), settled("s1", "failed")},
		{"host before what joined it", running(started, done(journal.StopEnd), entry("s2")), settled("s1", "failed")},
		{"queued and completed", running(started, done(journal.StopEnd), seam(journal.SeamClosed)), settled("s2", "completed")},
		{"failed though it is closed", running(started, done(journal.StopEnd), seam(journal.SeamClosed)), settled("s1", "failed")},
		{"joined and failed though it is closed", running(started, done(journal.StopEnd), entry("s2"), started, done(journal.StopEnd), seam(journal.SeamClosed)), settled("s2", "failed")},
		{"joined and completed before it is closed", running(started, done(journal.StopEnd), entry("s2")), settled("s2", "completed")},
		{"host before what joined it, though it is closed", running(started, done(journal.StopEnd), entry("s2"), started, done(journal.StopEnd), seam(journal.SeamClosed)), settled("s1", "completed")},
		{"unknown outcome", running(), settled("s1", "lost")},
		{"settled without an admission", running(), settled("s9", "failed")},
		{"settled twice", running(settled("s1", "failed")), settled("s1", "failed")},
		{"retracts without a failure", running(started, done(journal.StopToolUse, "a"), outcome("a", false), batch), &journal.TurnStarted{Turn: "t2", Response: "r1", Retracts: "t1"}},
		{"retracts what nobody saw", running(started, &journal.TurnDone{Turn: "t1", Stop: journal.StopError}), &journal.TurnStarted{Turn: "t2", Response: "r1", Retracts: "t1"}},
		{"retracts another turn", running(started, said(journal.StopError, journal.Text)), &journal.TurnStarted{Turn: "t2", Response: "r1", Retracts: "t0"}},
		{"retracts an answer that goes on", running(started, said(journal.StopAborted, journal.Text)), &journal.TurnStarted{Turn: "t2", Response: "r1", Retracts: "t1"}},
		{"fallback without a failure", chained(), fallback("p/b")},
		{"fallback to a model out of order", chained(started, done(journal.StopError)), fallback("p/c")},
		{"fallback beyond the last", running(started, done(journal.StopError)), fallback("")},
		{"fallback of another response", chained(started, done(journal.StopError)), &journal.Fallback{Response: "r2", To: "p/b"}},
		{"fallback twice for one failure", chained(started, done(journal.StopError), fallback("p/b")), fallback("p/c")},
		{"fallback after an answer", chained(started, done(journal.StopEnd)), fallback("p/b")},
		{"from the future", running(), &journal.Unknown{Name: "later"}},
		{"no record of ours", running(), foreign{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st, same := apply(t, tt.before...), apply(t, tt.before...)
			err := st.Apply(tt.record)
			var rule *fold.RuleError
			if !errors.As(err, &rule) {
				t.Fatalf("error %v, want a RuleError", err)
			}
			if diff := diff(same, st); diff != "" {
				t.Errorf("the refused record changed the state:\n%s", diff)
			}
		})
	}
	if err := apply(t, running()...).Apply(&journal.Unknown{Name: "later", Optional: true}); err != nil {
		t.Errorf("an optional record from the future: %v", err)
	}
}

func TestBudgetIsStampedOnce(t *testing.T) {
	st := apply(t, running()...)
	again := &journal.Attempt{Submission: "s1", Ordinal: 2, MaxAttempts: 99, Deadline: 99}
	if err := st.Apply(again); err != nil {
		t.Fatal(err)
	}
	if a := st.Active; a.Attempts != 2 || a.MaxAttempts != 3 || a.Deadline != 9 {
		t.Errorf("the active submission is %+v", a)
	}
	if err := st.Apply(&journal.Release{Submission: "s1"}); err != nil {
		t.Fatal(err)
	}
	if st.Active.Attempts != 1 {
		t.Errorf("%d attempts after a release, want 1", st.Active.Attempts)
	}
}

func TestAbortCoversWhatIsUnsettled(t *testing.T) {
	st := apply(t, running(started, done(journal.StopEnd), entry("s2"), admitted("s3"), abort, admitted("s4"))...)
	if !st.Active.Aborted || !st.Joined[0].Aborted || !st.Queue[0].Aborted || st.Queue[1].Aborted {
		t.Errorf("active %v, joined %v, queue %v %v", st.Active.Aborted, st.Joined[0].Aborted, st.Queue[0].Aborted, st.Queue[1].Aborted)
	}
	if st.Joinable() != nil {
		t.Error("an aborted submission may join")
	}
}

// What a turn said before it was cut reaches the model only with the notice.
func TestCutTurn(t *testing.T) {
	items := func(more ...journal.Record) int {
		return len(apply(t, running(append([]journal.Record{started}, more...)...)...).Context)
	}
	for name, tt := range map[string]struct{ got, want int }{
		"without a notice":      {items(done(journal.StopAborted)), 1},
		"with the notice":       {items(done(journal.StopAborted), notice(journal.SignalInterrupted), notice(journal.SignalContinued)), 4},
		"with another one":      {items(done(journal.StopAborted), notice("other")), 2},
		"a failed turn":         {items(done(journal.StopError), notice(journal.SignalInterrupted)), 2},
		"after another message": {items(done(journal.StopAborted), entry("s2"), notice(journal.SignalInterrupted)), 3},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %d items in the context, want %d", name, tt.got, tt.want)
		}
	}
}

func TestWritesAreVisibleWithTheBatchInTheirOrder(t *testing.T) {
	write := func(n int, value string) journal.VarWrite {
		return journal.VarWrite{Seq: n, Name: "v", Value: []byte(value)}
	}
	records := running(started, done(journal.StopToolUse, "a", "b"), outcome("b", false, write(2, `"b"`)), outcome("a", false, write(1, `"a"`), write(3, `"c"`)))
	if st := apply(t, records...); st.Vars["v"] != nil {
		t.Errorf("visible before the batch: %s", st.Vars["v"])
	}
	if st := apply(t, append(records, batch)...); string(st.Vars["v"]) != `"c"` {
		t.Errorf("after the batch: %s, want the last write", st.Vars["v"])
	}
}

// What joined settles before its host, with the same outcome.
func TestJoinedSettlesFirst(t *testing.T) {
	closed := running(started, done(journal.StopEnd), entry("s2"), started, done(journal.StopEnd), seam(journal.SeamClosed))
	st := apply(t, append(closed, settled("s2", "completed"))...)
	if st.Phase != fold.Closed || len(st.Joined) != 0 || st.Active == nil {
		t.Errorf("phase %s, %d joined, active %v: want the host alone", st.Phase, len(st.Joined), st.Active)
	}
	if err := st.Apply(settled("s1", "completed")); err != nil {
		t.Fatal(err)
	}
	if st.Phase != fold.Idle || st.Unsettled() || st.Response.ID != "" {
		t.Errorf("phase %s, unsettled %v, response %q", st.Phase, st.Unsettled(), st.Response.ID)
	}
	// A queued submission that was aborted settles beside them, in any phase at rest.
	st = apply(t, append(running(), settled("s2", "aborted"))...)
	if st.Phase != fold.Model || len(st.Queue) != 0 || st.Active == nil {
		t.Errorf("phase %s with %d queued after a queued one was settled", st.Phase, len(st.Queue))
	}
}

// The text of an open turn is kept by block, and dropped when the turn ends.
func TestPartial(t *testing.T) {
	st := apply(t, running(started, delta(0, "a"), delta(0, "b"), delta(2, "c"), delta(2, "d"))...)
	want := []journal.Block{{Kind: journal.Text, Text: "ab"}, {}, {Kind: journal.Text, Text: "cd"}}
	if diff := cmp.Diff(want, st.Response.Partial); diff != "" {
		t.Errorf("partial (-want +got):\n%s", diff)
	}
	early := st.Response.Partial[2].Text
	for _, r := range []journal.Record{delta(2, "e"), done(journal.StopError), started} {
		if err := st.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	if early != "cd" {
		t.Errorf("text that was handed out has become %q", early)
	}
	if st.Response.Partial != nil {
		t.Errorf("a new turn begins with %v", st.Response.Partial)
	}
}

func TestFailures(t *testing.T) {
	failed := &journal.TurnDone{Turn: "t1", Stop: journal.StopError, Error: &journal.TurnError{Message: "x"}, Usage: journal.Usage{Input: 1}}
	st := apply(t, running(started, failed, started, failed)...)
	if r := st.Response; r.Failures != 2 || r.Turns != 0 || r.LastError == nil || r.Usage.Input != 2 || st.Usage.Input != 2 ||
		r.Cost.Unknown != 2 || st.Cost.Unknown != 2 {
		t.Errorf("after two failures: %+v", r)
	}
	for _, r := range []journal.Record{started, done(journal.StopToolUse, "a")} {
		if err := st.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	if r := st.Response; r.Failures != 0 || r.Turns != 1 || r.LastError != nil || !r.CallIDs["a"] {
		t.Errorf("after an answer: %+v", r)
	}
}

// The next model begins with no failure to its name, and the response keeps
// count of all.
func TestFallback(t *testing.T) {
	st := apply(t, chained(started, done(journal.StopError), started, done(journal.StopError))...)
	if r := &st.Response; r.Model() != "p/a" || r.Next() != "p/b" || r.Failures != 2 {
		t.Errorf("before: model %s, next %s, %d failures", r.Model(), r.Next(), r.Failures)
	}
	for _, to := range []string{"p/b", "p/c"} {
		for _, r := range []journal.Record{fallback(to), started, done(journal.StopError)} {
			if err := st.Apply(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r := &st.Response; r.Model() != "p/c" || r.Next() != "" || r.Failures != 1 || r.Errors != 4 {
		t.Errorf("after: model %s, next %s, %d failures, %d in all", r.Model(), r.Next(), r.Failures, r.Errors)
	}
}

func TestTruncatedCallsAreMarked(t *testing.T) {
	st := apply(t, running(started, done(journal.StopLength, "a"))...)
	if st.Phase != fold.Tools || !st.Response.Truncated {
		t.Errorf("phase %s, truncated %v", st.Phase, st.Response.Truncated)
	}
	for _, r := range []journal.Record{outcome("a", false), batch} {
		if err := st.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	if st.Response.Truncated {
		t.Error("still truncated after the batch")
	}
}

// A failed call does not end the turn, whatever it says.
func TestFailedCallDoesNotEndTheTurn(t *testing.T) {
	failed := &journal.Outcome{Turn: "t1", Call: "a", Failed: true, EndTurn: true}
	if st := apply(t, running(started, done(journal.StopToolUse, "a"), failed, batch)...); st.Phase != fold.Model {
		t.Errorf("phase %s, want model", st.Phase)
	}
}

func TestSize(t *testing.T) {
	size := func(records ...journal.Record) int { return apply(t, running(records...)...).Size }
	state := func(value string) journal.Record { return &journal.State{Name: "v", Value: []byte(value)} }
	big := string(make([]byte, 10_000))
	base := size()
	for name, tt := range map[string]struct{ got, least, most int }{
		"an answer":                   {size(started, &journal.TurnDone{Turn: "t1", Stop: journal.StopEnd, Blocks: []journal.Block{{Kind: journal.Text, Text: big}}}), 10_000, 11_000},
		"a call's result":             {size(started, done(journal.StopToolUse, "a"), &journal.Outcome{Turn: "t1", Call: "a", Content: big}, batch), 10_000, 11_500},
		"what the model is not shown": {size(started, done(journal.StopToolUse, "a"), &journal.Outcome{Turn: "t1", Call: "a", Output: []byte(`"` + big + `"`)}, batch), 0, 1_500},
		"a value that was replaced":   {size(started, done(journal.StopToolUse, "a", "b"), outcome("a", false, journal.VarWrite{Seq: 1, Name: "v", Value: []byte(`"` + big + `"`)}), outcome("b", false, journal.VarWrite{Seq: 2, Name: "v", Value: []byte(`1`)}), batch), 0, 3_000},
		"a cut turn":                  {size(started, &journal.TurnDone{Turn: "t1", Stop: journal.StopAborted, Blocks: []journal.Block{{Text: big}}}), 0, 0},
		"a cut turn, shown":           {size(started, &journal.TurnDone{Turn: "t1", Stop: journal.StopAborted, Blocks: []journal.Block{{Text: big}}}, notice(journal.SignalInterrupted)), 10_000, 11_000},
		"a value":                     {size(state(`"` + big + `"`)), 10_000, 11_000},
		"a value, replaced":           {size(state(`"`+big+`"`), state(`1`)), 1, 1_000},
	} {
		if got := tt.got - base; got < tt.least || got > tt.most {
			t.Errorf("%s adds %d bytes, want %d to %d", name, got, tt.least, tt.most)
		}
	}
}

func TestPhaseNames(t *testing.T) {
	if got := fmt.Sprint(fold.Streaming, fold.Phase(99)); got != "streaming phase 99" {
		t.Errorf("got %q", got)
	}
}

// Intake may be folded before or after the owner's batch that it raced with.
func TestIntakeCommutes(t *testing.T) {
	owner := [][]journal.Record{
		{started},
		{started, done(journal.StopEnd), seam(journal.SeamClosed), settled("s1", "completed")},
		{started, done(journal.StopEnd), entry("s2")},
		{settled("s1", "failed"), attempt("s2"), entry("s2")},
	}
	for i, own := range owner {
		for _, intake := range []journal.Record{admitted("s9"), abort} {
			first := apply(t, append(running(intake), own...)...)
			last := apply(t, append(running(own...), intake)...)
			if diff := diff(first, last); diff != "" {
				t.Errorf("batch %d and %s do not commute:\n%s", i, intake.Kind(), diff)
			}
		}
	}
}

// BenchmarkApply folds two-tool messages into states that have seen n records.
// The length of the journal must not show.
func BenchmarkApply(b *testing.B) {
	message := []journal.Record{
		admitted("s1"), attempt("s1"), entry("s1"), seam(journal.SeamStart), started, delta(0, "x"),
		done(journal.StopToolUse, "a", "b"), outcome("a", false, journal.VarWrite{Seq: 1, Name: "v", Value: []byte("1")}), outcome("b", false), batch,
		started, delta(0, "x"), delta(0, "y"), done(journal.StopEnd), seam(journal.SeamClosed), settled("s1", "completed"),
	}
	fold := func(b *testing.B, st *fold.State) {
		for _, r := range message {
			if err := st.Apply(r); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, n := range []int{100, 10_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			st := apply(b, born)
			for range n / len(message) {
				fold(b, st)
			}
			for b.Loop() {
				fold(b, st)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(message)), "ns/record")
		})
	}
}

// BenchmarkStream folds one answer that is streamed in n pieces.
func BenchmarkStream(b *testing.B) {
	piece := delta(0, "a piece of text")
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				st := apply(b, running(started)...)
				for range n {
					if err := st.Apply(piece); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/record")
		})
	}
}
