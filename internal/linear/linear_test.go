package linear_test

import (
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/flue-go/flue/internal/linear"
)

// An op is an operation of which all comes before the next one begins, unless its
// outcome is unknown.
type op struct{ in, out any }

func history(ops []op, unknown func(op) bool) []porcupine.Operation {
	var out []porcupine.Operation
	for i, o := range ops {
		p := porcupine.Operation{Input: o.in, Output: o.out, Call: int64(2 * i), Return: int64(2*i + 1)}
		if unknown(o) {
			p.Return = linear.Infinity
		}
		out = append(out, p)
	}
	return out
}

// judge checks that the models take the history or do not.
func judge(t *testing.T, name string, ops []porcupine.Operation, legal bool, models ...linear.Model) {
	t.Helper()
	got := true
	for _, m := range models {
		if err := m.Check(ops, 5*time.Second); err != nil {
			got = false
			if !strings.HasPrefix(err.Error(), m.Name) || strings.Contains(err.Error(), "by itself") {
				t.Errorf("%s: it is not said what is wrong: %v", name, err)
			}
		}
	}
	if got != legal {
		t.Errorf("%s: legal %v, want %v", name, got, legal)
	}
}

func TestIntake(t *testing.T) {
	type request = linear.Request
	type answer = linear.Answer
	send := func(id string, place int64) op {
		return op{
			request{Instance: "h", Kind: linear.Admit, ID: id, Identity: "a", Held: true},
			answer{OK: true, Place: place, UID: "u", Created: place == 1},
		}
	}
	with := func(o op, change func(in *request, out *answer)) op {
		in, out := o.in.(request), o.out.(answer)
		change(&in, &out)
		return op{in, out}
	}
	again := func(_ *request, out *answer) { out.Duplicate = true }
	unknown := func(_ *request, out *answer) { *out = answer{Unknown: true, Place: out.Place, UID: out.UID} }
	read := func(id, outcome string) op {
		return op{request{Instance: "h", Kind: linear.Read, ID: id, Held: true}, answer{Outcome: outcome}}
	}
	abort := func(ok bool) op { return op{request{Instance: "h", Kind: linear.Abort, Held: true}, answer{OK: ok}} }
	for _, tt := range []struct {
		name  string
		ops   []op
		legal bool
	}{
		{"in order", []op{send("a", 1), send("b", 2), with(send("a", 1), again), abort(true), read("a", "aborted"), read("b", ""), read("b", "aborted"), abort(false)}, true},
		{"a place twice", []op{send("a", 1), send("b", 1)}, false},
		{"places out of order", []op{send("a", 1), send("b", 3), send("c", 2)}, false},
		{"a replay at another place", []op{send("a", 1), with(send("a", 2), again)}, false},
		{"a replay that is taken for new", []op{send("a", 1), send("a", 2)}, false},
		{"another message under the id", []op{send("a", 1), with(send("a", 1), func(in *request, out *answer) { in.Identity, out.Duplicate = "b", true })}, false},
		{"a conflict with nothing", []op{with(send("a", 1), func(_ *request, out *answer) { *out = answer{Refused: linear.Conflict} })}, false},
		{"created twice", []op{send("a", 1), with(send("b", 2), func(_ *request, out *answer) { out.Created = true })}, false},
		{"another uid", []op{send("a", 1), with(send("b", 2), func(_ *request, out *answer) { out.UID = "v" })}, false},
		{"only to create, and it exists", []op{send("a", 1), with(send("b", 2), func(in *request, _ *answer) { in.Condition.Create = true })}, false},
		{"to go on with another", []op{send("a", 1), with(send("b", 2), func(in *request, _ *answer) { in.Condition.UID = "v" })}, false},
		{"refused although the condition holds", []op{send("a", 1), with(send("b", 2), func(in *request, out *answer) {
			in.Condition.UID, *out = "u", answer{Refused: linear.Condition, UID: "u"}
		})}, false},
		{"refused for a uid that it does not have", []op{send("a", 1), with(send("b", 2), func(in *request, out *answer) {
			in.Condition.UID, *out = "v", answer{Refused: linear.Condition, UID: "w"}
		})}, false},
		{"refused without a reason that is told", []op{send("a", 1), with(send("b", 2), func(in *request, out *answer) {
			in.Condition.UID, *out = "v", answer{Refused: linear.Condition, Untold: true}
		})}, true},
		{"accepted without an answer, and sent again", []op{with(send("a", 1), unknown), with(send("a", 1), func(_ *request, out *answer) { out.Duplicate, out.Created = true, true })}, true},
		{"sent again before it was accepted", []op{with(send("a", 1), unknown), send("a", 1)}, true},
		{"accepted without an answer after the next one", []op{with(send("a", 2), unknown), send("b", 1)}, true},
		{"not there after it was accepted", []op{send("a", 1), with(read("a", ""), func(_ *request, out *answer) { out.Refused = linear.Absent })}, false},
		{"aborted by nobody", []op{send("a", 1), read("a", "aborted")}, false},
		{"aborted by what was before it", []op{send("a", 1), abort(true), send("b", 2), read("b", "aborted")}, false},
		{"aborted without an answer", []op{send("a", 1), with(abort(true), unknown), read("a", "aborted")}, true},
		{"completed by nothing", []op{send("a", 1), read("a", "completed")}, false},
		{"aborted though it answers", []op{send("a", 1), abort(true), with(read("a", "aborted"), func(in *request, _ *answer) { in.Held = false })}, false},
		{"never settled", []op{send("a", 1), with(read("a", ""), func(in *request, _ *answer) { in.Held, in.Final = false, true })}, false},
		{"an abort that found nothing", []op{send("a", 1), abort(false)}, false},
		{"an abort of nothing", []op{send("a", 1), abort(true), abort(false), abort(true)}, false},
		{"open after its outcome", []op{send("a", 1), abort(true), read("a", "aborted"), read("a", "")}, false},
	} {
		ops := history(tt.ops, func(o op) bool { return o.out.(answer).Unknown })
		judge(t, tt.name, ops, tt.legal, linear.Intake(), linear.Settlement())
	}
}

// What only the model of settlements refuses.
func TestSettlement(t *testing.T) {
	read := func(out linear.Answer) op {
		return op{linear.Request{Instance: "e", Kind: linear.Read, ID: "a"}, out}
	}
	sent := op{linear.Request{Instance: "e", Kind: linear.Admit, ID: "a"}, linear.Answer{OK: true}}
	done, open, absent := linear.Answer{Outcome: "completed"}, linear.Answer{}, linear.Answer{Refused: linear.Absent}
	for _, tt := range []struct {
		name  string
		ops   []op
		legal bool
	}{
		{"in order", []op{read(absent), sent, read(open), read(done), read(done), sent}, true},
		{"another outcome", []op{sent, read(done), read(linear.Answer{Outcome: "failed"})}, false},
		{"gone", []op{sent, read(done), read(absent)}, false},
		{"open again", []op{sent, read(done), read(open)}, false},
		{"there before it was sent", []op{read(open), sent}, false},
	} {
		judge(t, tt.name, history(tt.ops, func(op) bool { return false }), tt.legal, linear.Settlement())
	}
}

func TestStep(t *testing.T) {
	step := func(made, value string) op {
		return op{linear.StepRun{Key: "k"}, linear.StepResult{Made: made, Value: value, Known: true}}
	}
	lost := func(made string) op { return op{linear.StepRun{Key: "k"}, linear.StepResult{Made: made}} }
	for _, tt := range []struct {
		name  string
		ops   []op
		legal bool
	}{
		{"one value", []op{step("1", "1"), step("", "1")}, true},
		{"a value that was recorded without an answer", []op{lost("1"), step("", "1")}, true},
		{"one that was not", []op{lost("1"), step("2", "2"), step("", "2")}, true},
		{"run again", []op{step("1", "1"), step("2", "2")}, false},
		{"another value", []op{step("1", "1"), step("", "2")}, false},
		{"a value of nobody", []op{step("", "1")}, false},
	} {
		judge(t, tt.name, history(tt.ops, func(o op) bool { return !o.out.(linear.StepResult).Known }), tt.legal, linear.Step())
	}
}

func TestOwnership(t *testing.T) {
	take := func(e int64) op { return op{linear.Hold{Instance: "i", Kind: linear.Take}, linear.Held{Epoch: e}} }
	put := func(e int64) op { return op{linear.Hold{Instance: "i", Kind: linear.Append, Epoch: e}, linear.Held{}} }
	give := func(e int64) op { return op{linear.Hold{Instance: "i", Kind: linear.Release, Epoch: e}, linear.Held{}} }
	fenced := func(e int64) op {
		return op{linear.Hold{Instance: "i", Kind: linear.Append, Epoch: e}, linear.Held{Fenced: true}}
	}
	lost := func(o op) op {
		out := o.out.(linear.Held)
		out.Unknown, out.Epoch = true, 0
		return op{o.in, out}
	}
	for _, tt := range []struct {
		name  string
		ops   []op
		legal bool
	}{
		{"in order", []op{take(1), put(1), take(2), fenced(1), put(2), give(2), take(3), put(3)}, true},
		{"an old owner writes", []op{take(1), take(2), put(2), put(1)}, false},
		{"two owners under one epoch", []op{take(1), put(1), take(1)}, false},
		{"epochs fall", []op{take(2), take(1)}, false},
		{"nobody's epoch", []op{take(1), put(2)}, false},
		{"refused without a reason", []op{take(1), fenced(1)}, false},
		{"it was given back", []op{take(1), give(1), fenced(1)}, true},
		{"it was given back and is used", []op{take(1), give(1), put(1)}, false},
		{"what is given back was lost before", []op{take(1), take(2), give(1), put(2)}, true},
		{"a take that nobody was told of", []op{take(1), lost(take(2)), put(2)}, true},
		{"one that shows by its fence", []op{take(1), lost(take(2)), fenced(1), take(3), put(3)}, true},
		{"one that shows by its fence alone", []op{take(1), lost(take(2)), fenced(1)}, true},
		{"one that has not happened", []op{take(1), lost(take(2)), put(1)}, true},
		{"one that comes late", []op{take(1), lost(take(2)), put(1), put(2), fenced(1)}, true},
		{"one that does not fence", []op{take(1), lost(take(2)), put(2), put(1)}, false},
		{"an epoch before anybody asked for it", []op{take(1), put(2), lost(take(2))}, false},
		{"an append that may be or not", []op{take(1), take(2), lost(put(1)), put(2)}, true},
		{"a release that may be or not", []op{take(1), lost(give(1)), put(1), fenced(1)}, true},
	} {
		ops := linear.Takes(history(tt.ops, func(o op) bool { return o.out.(linear.Held).Unknown }))
		judge(t, tt.name, ops, tt.legal, linear.Ownership())
	}
}

// Who cannot be sure fails.
func TestCheckWithoutTime(t *testing.T) {
	var ops []porcupine.Operation
	for i := range 200 { // all at once
		ops = append(ops, porcupine.Operation{
			Input: linear.StepRun{Key: "k"}, Output: linear.StepResult{Made: string(rune('a' + i)), Value: "x", Known: i%2 == 0}, Call: 0, Return: linear.Infinity,
		})
	}
	if linear.Step().Check(ops, time.Nanosecond) == nil {
		t.Error("a check without time passes")
	}
}
