package fold_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

// Short forms of the records that running code leaves at a seam.

// stepOf is a step with a value, or one that was only begun if the value is
// empty.
func stepOf(scope, name, value string) journal.Record {
	r := &journal.Step{Scope: scope, Name: name}
	if value != "" {
		r.Value = []byte(value)
	}
	return r
}

func dataOf(response string, opens bool) journal.Record {
	return &journal.Data{Response: response, Submission: "s1", Opens: opens, Name: "progress", Value: []byte(`1`)}
}

func metaOf(response string, opens bool, value string) journal.Record {
	return &journal.Metadata{Response: response, Submission: "s1", Opens: opens, Value: []byte(value)}
}

func appended(body string) journal.Record {
	return &journal.Entry{ID: "a_" + body, Submission: "s1", Purpose: journal.Appended, Message: journal.Message{Kind: journal.Signal, Type: "note", Body: body}}
}

func narration(signal string) journal.Record {
	return &journal.Entry{ID: "w_" + signal, Submission: "s1", Purpose: journal.Narration, Message: journal.Message{Kind: journal.Signal, Type: signal, Body: "told"}}
}

func startSeam(submission, response, model string) journal.Record {
	r := &journal.Seam{Name: journal.SeamStart, Submission: submission, Response: response}
	if model != "" {
		r.Settings = &journal.Settings{Model: model}
	}
	return r
}

func resourcesOf(baseline bool, tools ...string) journal.Record {
	r := &journal.Resources{Baseline: baseline}
	for _, name := range tools {
		r.Declared = append(r.Declared, journal.Resource{Kind: journal.ResourceTool, Name: name})
	}
	return r
}

// places is a journal that ends in each phase, with s1 active where one can be.
func places() map[fold.Phase][]journal.Record {
	return map[fold.Phase][]journal.Record{
		fold.Unborn:    nil,
		fold.Idle:      {born},
		fold.Input:     {born, admitted("s1"), admitted("s2"), attempt("s1")},
		fold.Model:     running(),
		fold.Streaming: running(started),
		fold.Tools:     running(started, done(journal.StopToolUse, "a")),
		fold.Finish:    running(started, done(journal.StopEnd)),
		fold.Closed:    running(started, done(journal.StopEnd), seam(journal.SeamClosed)),
	}
}

// starting is the submission whose start callbacks may run in a phase: the active
// one before its message is added, and then the one that may join.
func starting(p fold.Phase) string {
	if p == fold.Input {
		return "s1"
	}
	return "s2"
}

// Each record of running code is legal in these phases and refused in all
// others, where it changes nothing.
func TestSeamRecordPlaces(t *testing.T) {
	active := []fold.Phase{fold.Input, fold.Model, fold.Streaming, fold.Tools, fold.Finish, fold.Closed}
	resting := []fold.Phase{fold.Idle, fold.Input, fold.Model, fold.Finish, fold.Closed}
	for _, tt := range []struct {
		name   string
		record func(p fold.Phase) journal.Record
		legal  []fold.Phase
	}{
		{"a step of a call", func(fold.Phase) journal.Record { return stepOf(journal.CallScope("a"), "x", `1`) }, []fold.Phase{fold.Tools}},
		{"a step of a start callback", func(p fold.Phase) journal.Record { return stepOf(journal.StartScope(starting(p)), "x", `1`) }, []fold.Phase{fold.Input, fold.Model, fold.Finish}},
		{"a data part", func(p fold.Phase) journal.Record { return dataOf("r1", p <= fold.Model) }, active},
		{"metadata", func(p fold.Phase) journal.Record { return metaOf("r1", p <= fold.Model, `{}`) }, active},
		{"a signal that a hook appends", func(fold.Phase) journal.Record { return appended("x") }, []fold.Phase{fold.Model, fold.Finish}},
		{"narration", func(fold.Phase) journal.Record { return narration(journal.SignalResources) }, resting},
		{"resources", func(fold.Phase) journal.Record { return resourcesOf(false, "t") }, resting},
		{"the start seam", func(fold.Phase) journal.Record { return startSeam("s1", "r1", "p/m") }, []fold.Phase{fold.Model}},
		{"the cycle seam", func(fold.Phase) journal.Record { return seam(journal.SeamCycle) }, nil}, // nothing was appended
		{"the finish seam", func(fold.Phase) journal.Record { return seam(journal.SeamFinish) }, []fold.Phase{fold.Finish}},
		{"the closed seam", func(fold.Phase) journal.Record { return seam(journal.SeamClosed) }, []fold.Phase{fold.Finish}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for phase, before := range places() {
				st, same := apply(t, before...), apply(t, before...)
				if st.Phase != phase {
					t.Fatalf("phase %s, want %s", st.Phase, phase)
				}
				err := st.Apply(tt.record(phase))
				if slices.Contains(tt.legal, phase) {
					if err != nil {
						t.Errorf("in phase %s: %v", phase, err)
					}
					continue
				}
				var rule *fold.RuleError
				if !errors.As(err, &rule) {
					t.Errorf("in phase %s: error %v, want a RuleError", phase, err)
					continue
				}
				if rule.Kind != tt.record(phase).Kind() || rule.Phase != phase || rule.Reason == "" {
					t.Errorf("in phase %s: %+v", phase, rule)
				}
				if diff := diff(same, st); diff != "" {
					t.Errorf("in phase %s the refused record changed the state:\n%s", phase, diff)
				}
			}
		})
	}
}

// What is refused for another reason than the phase, with the reason.
func TestSeamRecordRules(t *testing.T) {
	call, start := journal.CallScope("a"), journal.StartScope("s2")
	tools := func(more ...journal.Record) []journal.Record {
		return running(append([]journal.Record{started, done(journal.StopToolUse, "a", "b")}, more...)...)
	}
	for _, tt := range []struct {
		name   string
		before []journal.Record
		record journal.Record
		reason string
	}{
		{"a step that has a value", tools(stepOf(call, "x", `1`)), stepOf(call, "x", `2`), "recorded before"},
		{"a begin of a step that has a value", tools(stepOf(call, "x", `1`)), stepOf(call, "x", ""), "recorded before"},
		{"a second begin", tools(stepOf(call, "x", "")), stepOf(call, "x", ""), "recorded before"},
		{"a value after begin and value", tools(stepOf(call, "x", ""), stepOf(call, "x", `1`)), stepOf(call, "x", `1`), "recorded before"},
		{"a start step that has a value", running(stepOf(start, "x", `1`)), stepOf(start, "x", `1`), "recorded before"},
		{"a start step of a submission that has started", running(), stepOf(journal.StartScope("s1"), "x", `1`), "not that of a submission that starts"},
		{"a cycle without a signal", running(started, done(journal.StopEnd)), seam(journal.SeamCycle), "appended a signal is false"},
		{"a close although a signal was appended", running(started, done(journal.StopEnd), appended("x")), seam(journal.SeamClosed), "appended a signal is true"},
		{"a step of no call of the turn", tools(), stepOf(journal.CallScope("z"), "x", `1`), "no call"},
		{"a step of a call that has ended", tools(outcome("a", false)), stepOf(call, "x", `1`), "outcome already"},
		{"data of another response", running(started), dataOf("r2", false), "not r2"},
		{"data that opens a response with a turn", running(started), dataOf("r1", true), "turn or not"},
		{"data that does not open one without", running(), dataOf("r1", false), "turn or not"},
		{"data of another response than what opened it", running(dataOf("r1", true)), dataOf("r2", true), "not r2"},
		{"metadata of another response", running(started), metaOf("r2", false, `{}`), "not r2"},
		{"metadata that opens a response with a turn", running(started), metaOf("r1", true, `{}`), "turn or not"},
		{"metadata that does not open one without", running(), metaOf("r1", false, `{}`), "turn or not"},
		{"a turn of another response than what opened it", running(dataOf("r9", true)), started, "not r1"},
		{"a start seam of another response", running(startSeam("s1", "r1", "p/m")), startSeam("s1", "r2", "p/m"), "not r2"},
		{"a cycle for another submission", running(started, done(journal.StopEnd)), &journal.Seam{Name: journal.SeamCycle, Submission: "s2"}, "s1 is active"},
		{"a finish for another submission", running(started, done(journal.StopEnd)), &journal.Seam{Name: journal.SeamFinish, Submission: "s2"}, "s1 is active"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st, same := apply(t, tt.before...), apply(t, tt.before...)
			err := st.Apply(tt.record)
			var rule *fold.RuleError
			if !errors.As(err, &rule) || !strings.Contains(rule.Reason, tt.reason) {
				t.Fatalf("error %v, want a RuleError about %q", err, tt.reason)
			}
			if diff := diff(same, st); diff != "" {
				t.Errorf("the refused record changed the state:\n%s", diff)
			}
		})
	}
}

// Steps last as long as the code that made them: to the outcome of the call, or
// to the start seam or the end of the submission. A submission whose start was
// under way when the response ended that it was to join starts again.
func TestStepsLastAsLongAsTheirWork(t *testing.T) {
	a, b, start := journal.CallScope("a"), journal.CallScope("b"), journal.StartScope("s1")
	scopes := func(records ...journal.Record) []string {
		var out []string
		for scope := range apply(t, records...).Steps {
			out = append(out, scope)
		}
		slices.Sort(out)
		return out
	}
	tools := running(started, done(journal.StopToolUse, "a", "b"), stepOf(a, "x", `1`), stepOf(b, "x", ""), stepOf(b, "x", `2`), stepOf(b, "y", ""))
	st := apply(t, tools...)
	if got := string(st.Steps[b]["x"].Value); got != `2` {
		t.Errorf("the step that was begun has the value %q", got)
	}
	if y := st.Steps[b]["y"]; y == nil || len(y.Value) != 0 {
		t.Errorf("the step that was only begun is %+v", y)
	}
	for _, tt := range []struct {
		name    string
		records []journal.Record
		want    []string
	}{
		{"both calls run", tools, []string{a, b}},
		{"one has ended", append(tools[:len(tools):len(tools)], outcome("a", false)), []string{b}},
		{"a start callback runs", append(running()[:4:4], stepOf(start, "x", `1`)), []string{start}},
		{"its message has been added", append(running()[:4:4], stepOf(start, "x", `1`), entry("s1")), []string{start}},
		{"the submission has started", append(running()[:4:4], stepOf(start, "x", `1`), entry("s1"), startSeam("s1", "r1", "p/m")), nil},
		{"another submission starts", running(stepOf(journal.StartScope("s2"), "x", `1`)), []string{journal.StartScope("s2")}},
		{"another submission has started", running(stepOf(journal.StartScope("s2"), "x", `1`), entry("s2"), startSeam("s2", "", "")), nil},
		{"the response that it was to join has ended", running(stepOf(journal.StartScope("s2"), "x", `1`), settled("s1", "failed")), []string{journal.StartScope("s2")}},
		{"it has ended as well, without a start", running(stepOf(journal.StartScope("s2"), "x", `1`), settled("s1", "failed"), settled("s2", "aborted")), nil},
	} {
		if diff := cmp.Diff(tt.want, scopes(tt.records...)); diff != "" {
			t.Errorf("%s: scopes (-want +got):\n%s", tt.name, diff)
		}
	}
	// A later call that repeats a step's name starts from nothing.
	again := running(started, done(journal.StopToolUse, "a"), stepOf(a, "x", `1`), outcome("a", false), batch,
		started, done(journal.StopToolUse, "c"), stepOf(journal.CallScope("c"), "x", `9`))
	if got := string(apply(t, again...).Steps[journal.CallScope("c")]["x"].Value); got != `9` {
		t.Errorf("the later call's step is %q", got)
	}
}

// A response begins with what is shown of it first: a data part, metadata, the
// start seam or a turn; all else is held to that id.
func TestResponseBegins(t *testing.T) {
	for _, tt := range []struct {
		name    string
		records []journal.Record
		started bool
	}{
		{"a data part", running(dataOf("r1", true)), false},
		{"metadata", running(metaOf("r1", true, `{"a":1}`)), false},
		{"the start seam", running(startSeam("s1", "r1", "p/m")), false},
		{"a turn", running(started), true},
		{"all of them", running(dataOf("r1", true), metaOf("r1", true, `{"a":1}`), startSeam("s1", "r1", "p/m"), started, dataOf("r1", false)), true},
	} {
		st := apply(t, tt.records...)
		if st.Response.ID != "r1" || st.Response.Started() != tt.started {
			t.Errorf("%s: response %q, started %v", tt.name, st.Response.ID, st.Response.Started())
		}
	}
}

// Metadata is kept in order for the hooks that come later, and ends with the
// response.
func TestMetadataIsKeptInOrder(t *testing.T) {
	records := running(metaOf("r1", true, `{"a":1}`), started, metaOf("r1", false, `{"a":2}`), done(journal.StopEnd))
	want := []json.RawMessage{json.RawMessage(`{"a":1}`), json.RawMessage(`{"a":2}`)}
	if diff := cmp.Diff(want, apply(t, records...).Response.Metadata); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if got := apply(t, append(records, settled("s1", "failed"))...).Response.Metadata; got != nil {
		t.Errorf("after the settlement there is still %s", got)
	}
}

// The settings with which a response starts are its own until it ends, whoever
// joins it.
func TestSettingsAreTheResponses(t *testing.T) {
	model := func(records ...journal.Record) string {
		if s := apply(t, records...).Response.Settings; s != nil {
			return s.Model
		}
		return ""
	}
	records := running(startSeam("s1", "r1", "p/first"), started, done(journal.StopEnd), entry("s2"), startSeam("s2", "", ""))
	if got := model(records...); got != "p/first" {
		t.Errorf("after a join the model is %q", got)
	}
	if got := model(running(seam(journal.SeamStart))...); got != "" {
		t.Errorf("a start seam of an older journal brings the model %q", got)
	}
	if got := model(running(startSeam("s1", "r1", "p/first"), settled("s1", "failed"))...); got != "" {
		t.Errorf("after the settlement the model is %q", got)
	}
}

// The finish hooks can send the model back to work, stand aside for a message
// that waits, or let the response close.
func TestFinishSeams(t *testing.T) {
	atEnd := running(started, done(journal.StopEnd))
	for _, tt := range []struct {
		name   string
		more   []journal.Record
		want   fold.Phase
		cycles int
	}{
		{"cycle", []journal.Record{appended("go on"), seam(journal.SeamCycle)}, fold.Model, 1},
		{"two cycles", []journal.Record{appended("go on"), seam(journal.SeamCycle), started, done(journal.StopEnd), appended("more"), seam(journal.SeamCycle)}, fold.Model, 2},
		{"finish", []journal.Record{seam(journal.SeamFinish)}, fold.Finish, 0},
		{"finish and a join", []journal.Record{seam(journal.SeamFinish), entry("s2")}, fold.Model, 0},
		{"finish and closed", []journal.Record{seam(journal.SeamFinish), seam(journal.SeamClosed)}, fold.Closed, 0},
		{"cycle, then closed", []journal.Record{appended("go on"), seam(journal.SeamCycle), started, done(journal.StopEnd), seam(journal.SeamClosed)}, fold.Closed, 1},
	} {
		st := apply(t, append(atEnd[:len(atEnd):len(atEnd)], tt.more...)...)
		if st.Phase != tt.want || st.Response.Cycles != tt.cycles {
			t.Errorf("%s: phase %s after %d cycles, want %s after %d", tt.name, st.Phase, st.Response.Cycles, tt.want, tt.cycles)
		}
	}
	ended := append(atEnd[:len(atEnd):len(atEnd)], appended("go on"), seam(journal.SeamCycle), settled("s1", "failed"), attempt("s2"))
	if n := apply(t, ended...).Response.Cycles; n != 0 {
		t.Errorf("the next response begins with %d cycles", n)
	}
}

// The delivery is what the model reads last of what somebody sent: messages and
// appended signals move it, the runtime's own words do not.
func TestDeliveryMoves(t *testing.T) {
	delivery := func(more ...journal.Record) string { return apply(t, running(more...)...).Delivery.Body }
	for _, tt := range []struct {
		name string
		got  string
		want string
	}{
		{"the message that woke the response", delivery(), "s1"},
		{"an appended signal", delivery(appended("note")), "note"},
		{"narration", delivery(narration(journal.SignalResources)), "s1"},
		{"narration after an append", delivery(appended("note"), narration(journal.SignalInstructions)), "note"},
		{"a notice", delivery(started, done(journal.StopAborted), notice(journal.SignalInterrupted), notice(journal.SignalContinued)), "s1"},
		{"a join", delivery(started, done(journal.StopEnd), entry("s2")), "s2"},
		{"an append after a join", delivery(entry("s2"), appended("note")), "note"},
		{"a join after an append", delivery(appended("note"), entry("s2")), "s2"},
		{"a tool batch", delivery(started, done(journal.StopToolUse, "a"), outcome("a", false), batch), "s1"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: the delivery is %q, want %q", tt.name, tt.got, tt.want)
		}
	}
	// All of it is in the context, in order.
	st := apply(t, running(appended("note"), narration(journal.SignalResources))...)
	var purposes []journal.Purpose
	for _, it := range st.Context {
		purposes = append(purposes, it.Entry.Purpose)
	}
	if diff := cmp.Diff([]journal.Purpose{journal.Input, journal.Appended, journal.Narration}, purposes); diff != "" {
		t.Errorf("context (-want +got):\n%s", diff)
	}
}

// The baseline is the first record of resources and each that says so; what was
// told last is the latest. Both outlive the response.
func TestBaselineAndTold(t *testing.T) {
	name := func(r *journal.Resources) string {
		if r == nil {
			return ""
		}
		return r.Declared[0].Name
	}
	for _, tt := range []struct {
		name           string
		records        []journal.Record
		baseline, told string
	}{
		{"nothing yet", running(), "", ""},
		{"the first", running(resourcesOf(true, "one")), "one", "one"},
		{"the first, unmarked", running(resourcesOf(false, "one")), "one", "one"},
		{"a change", running(resourcesOf(true, "one"), resourcesOf(false, "two")), "one", "two"},
		{"another baseline", running(resourcesOf(true, "one"), resourcesOf(false, "two"), resourcesOf(true, "three")), "three", "three"},
		{"the next response", running(resourcesOf(true, "one"), resourcesOf(false, "two"), settled("s1", "failed")), "one", "two"},
	} {
		st := apply(t, tt.records...)
		if name(st.Baseline) != tt.baseline || name(st.Told) != tt.told {
			t.Errorf("%s: baseline %q and told %q, want %q and %q", tt.name, name(st.Baseline), name(st.Told), tt.baseline, tt.told)
		}
	}
}

// The unlocker is the call of the batch just committed that may have changed
// what is declared: the first that succeeded, or rather the first that wrote.
// The next turn has none.
func TestUnlocker(t *testing.T) {
	write := journal.VarWrite{Seq: 1, Name: "v", Value: []byte(`1`)}
	failed := func(call string, writes ...journal.VarWrite) journal.Record {
		return &journal.Outcome{Turn: "t1", Call: call, Failed: true, Content: "no", Writes: writes}
	}
	for _, tt := range []struct {
		name     string
		outcomes []journal.Record
		want     string
	}{
		{"both succeeded", []journal.Record{outcome("a", false), outcome("b", false)}, "b"},
		{"both wrote", []journal.Record{outcome("a", false, write), outcome("b", false, write)}, "b"},
		{"the second wrote", []journal.Record{outcome("a", false), outcome("b", false, write)}, "b"},
		{"the first wrote", []journal.Record{outcome("a", false, write), outcome("b", false)}, "a"},
		{"the first failed", []journal.Record{failed("a"), outcome("b", false)}, "b"},
		{"the first wrote and failed", []journal.Record{failed("a", write), outcome("b", false)}, "b"},
		{"both failed", []journal.Record{failed("a"), failed("b")}, ""},
	} {
		records := append(running(started, done(journal.StopToolUse, "a", "b")), append(tt.outcomes, batch)...)
		if got := apply(t, records...).Response.Unlocker; got != tt.want {
			t.Errorf("%s: the unlocker is %q, want %q", tt.name, got, tt.want)
		}
		if got := apply(t, append(records, started)...).Response.Unlocker; got != "" {
			t.Errorf("%s: in the next turn the unlocker is %q", tt.name, got)
		}
	}
}

// What hooks see of a response: all calls of its committed batches, in order.
func TestRan(t *testing.T) {
	records := running(started, done(journal.StopToolUse, "a", "b"),
		&journal.Outcome{Turn: "t1", Call: "b", Tool: "second", Failed: true}, &journal.Outcome{Turn: "t1", Call: "a", Tool: "first"})
	if got := apply(t, records...).Response.Ran; got != nil {
		t.Errorf("before the batch: %v", got)
	}
	records = append(records, batch, started, done(journal.StopToolUse, "c"), &journal.Outcome{Turn: "t1", Call: "c", Tool: "third"}, batch)
	want := []fold.Ran{{Tool: "first"}, {Tool: "second", Failed: true}, {Tool: "third"}}
	if diff := cmp.Diff(want, apply(t, records...).Response.Ran); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// Intake may be folded before or after what running code has left.
func TestIntakeCommutesWithSeams(t *testing.T) {
	atEnd := []journal.Record{started, done(journal.StopEnd)}
	for i, own := range [][]journal.Record{
		{appended("x"), &journal.State{Name: "v", Value: []byte(`1`)}, dataOf("r1", true), metaOf("r1", true, `{}`), startSeam("s1", "r1", "p/m")},
		{resourcesOf(true, "t"), started, done(journal.StopError), narration(journal.SignalResources), resourcesOf(false)},
		{started, done(journal.StopToolUse, "a"), stepOf(journal.CallScope("a"), "x", ""), stepOf(journal.CallScope("a"), "x", `1`), dataOf("r1", false)},
		append(atEnd[:2:2], appended("x"), seam(journal.SeamCycle)),
		append(atEnd[:2:2], seam(journal.SeamFinish), entry("s2"), startSeam("s2", "", "")),
	} {
		for _, intake := range []journal.Record{admitted("s9"), abort} {
			first := apply(t, append(running(intake), own...)...)
			last := apply(t, append(running(own...), intake)...)
			if diff := diff(first, last); diff != "" {
				t.Errorf("batch %d and %s do not commute:\n%s", i, intake.Kind(), diff)
			}
		}
	}
}
