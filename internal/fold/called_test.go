package fold_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

// named is a turn whose calls are named before they run.
func named(stop journal.Stop, calls ...string) journal.Record {
	r := done(stop, calls...).(*journal.TurnDone)
	r.Named = true
	return r
}

func called(calls ...string) journal.Record { return &journal.Called{Turn: "t1", Calls: calls} }

// notRun is the outcome of a call that was not run.
func notRun(call string) journal.Record {
	return &journal.Outcome{Turn: "t1", Call: call, Failed: true, Content: "it was not run"}
}

// A call is named once, by its turn, before anything can come of it.
func TestCallsAreNamedBeforeTheyRun(t *testing.T) {
	ms := int64(0)
	asked := slices.Clip(running(started, named(journal.StopToolUse, "a", "b")))
	old := slices.Clip(running(started, done(journal.StopToolUse, "a", "b")))
	for _, tt := range []struct {
		name    string
		records []journal.Record
		next    journal.Record
		refused bool
	}{
		{"first", asked, called("a"), false},
		{"all", asked, called("a", "b"), false},
		{"in another order", asked, called("b"), false},
		{"nothing", asked, called(), true},
		{"twice in one", asked, called("a", "a"), true},
		{"twice", append(asked, called("a")), called("a"), true},
		{"a call that the turn did not make", asked, called("c"), true},
		{"of another turn", asked, &journal.Called{Turn: "t2", Calls: []string{"a"}}, true},
		{"one that has an outcome", append(asked, notRun("a")), called("a"), true},
		{"of a turn that names none", old, called("a"), true},
		{"of a turn that was cut by the output limit", running(started, named(journal.StopLength, "a")), called("a"), true},
		{"after the batch", append(asked, notRun("a"), notRun("b"), batch), called("a"), true},

		{"result", append(asked, called("a")), outcome("a", false), false},
		{"result of one that was not named", append(asked, called("a")), outcome("b", false), true},
		{"not run", asked, notRun("a"), false},
		{"not run, with a duration", asked, &journal.Outcome{Turn: "t1", Call: "a", Failed: true, DurationMS: &ms}, true},
		{"not run, with a write", asked, &journal.Outcome{Turn: "t1", Call: "a", Failed: true, Writes: []journal.VarWrite{{Seq: 1, Name: "v"}}}, true},
		{"step", append(asked, called("a")), stepOf(journal.CallScope("a"), "s", `1`), false},
		{"step of one that was not named", append(asked, called("a")), stepOf(journal.CallScope("b"), "s", `1`), true},
		{"result, in an older turn", old, outcome("a", false), false},
		{"step, in an older turn", old, stepOf(journal.CallScope("a"), "s", `1`), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st, before := apply(t, tt.records...), apply(t, tt.records...)
			err := st.Apply(tt.next)
			var rule *fold.RuleError
			if errors.As(err, &rule) != tt.refused {
				t.Fatalf("%v, want it refused: %v", err, tt.refused)
			}
			if diff := diff(before, st); tt.refused && diff != "" {
				t.Errorf("what was refused has changed the state (-before +after):\n%s", diff)
			}
		})
	}
}

func TestMayHaveRun(t *testing.T) {
	st := apply(t, running(started, named(journal.StopToolUse, "a", "b"), called("b"))...)
	if r := &st.Response; r.MayHaveRun("a") || !r.MayHaveRun("b") {
		t.Errorf("a: %v, b: %v", r.MayHaveRun("a"), r.MayHaveRun("b"))
	}
	st = apply(t, running(started, done(journal.StopToolUse, "a"))...)
	if !st.Response.MayHaveRun("a") {
		t.Error("nothing is known of a call of an older turn")
	}
	// The next turn begins anew.
	st = apply(t, running(
		started, named(journal.StopToolUse, "a"), called("a"), outcome("a", false), batch,
		&journal.TurnStarted{Turn: "t2", Response: "r1", Submission: "s1"},
		&journal.TurnDone{Turn: "t2", Response: "r1", Submission: "s1", Stop: journal.StopToolUse, Blocks: []journal.Block{{Kind: journal.ToolCall, Call: "b", Name: "tool"}}},
	)...)
	if st.Response.Named || !st.Response.MayHaveRun("b") {
		t.Errorf("the response is %+v", st.Response)
	}
}
