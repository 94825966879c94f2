package flue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/wire"
)

// A gate holds code at a point in the lives of its process, until the process is
// dead. It opens itself once it has held somebody.
type gate struct {
	mu      sync.Mutex
	at      string
	reached chan struct{}
}

// shut makes the gate hold what passes the point next.
func (g *gate) shut(at string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at, g.reached = at, make(chan struct{})
}

// pass blocks if the gate is shut at the point, and returns an error then.
func (g *gate) pass(ctx context.Context, point string) error {
	g.mu.Lock()
	held := g.at == point
	if held {
		g.at = ""
		close(g.reached)
	}
	g.mu.Unlock()
	if !held {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// wait waits until somebody stands at the gate.
func (g *gate) wait(t *testing.T) {
	t.Helper()
	g.mu.Lock()
	reached := g.reached
	g.mu.Unlock()
	select {
	case <-reached:
	case <-time.After(30 * time.Second):
		t.Fatal("nobody came to the gate")
	}
}

// stepRecords are the records of steps in the journal, by name: the values, and
// "begun" for a step that was only begun.
func stepRecords(s *stage) map[string][]string {
	out := make(map[string][]string)
	for _, r := range s.records() {
		if step, ok := r.(*journal.Step); ok {
			value := "begun"
			if len(step.Value) > 0 {
				value = string(step.Value)
			}
			out[step.Name] = append(out[step.Name], value)
		}
	}
	return out
}

// outcomesIn are the outcomes of calls in the journal.
func outcomesIn(s *stage) []*journal.Outcome {
	var out []*journal.Outcome
	for _, r := range s.records() {
		if o, ok := r.(*journal.Outcome); ok {
			out = append(out, o)
		}
	}
	return out
}

// countNotes counts the remarks that begin with the prefix.
func countNotes(s *stage, prefix string) int {
	n := 0
	for _, note := range s.noted() {
		if strings.HasPrefix(note, prefix) {
			n++
		}
	}
	return n
}

// The provisioning of three steps, killed before, in and after each of them, and
// in a second life again: what was recorded is returned and not run, the first
// step that was not is run, and the code between the steps runs again.
func TestDurableToolReplaysSteps(t *testing.T) {
	type order struct {
		Customer string `json:"customer"`
	}
	type account struct {
		ID   string `json:"id"`
		Life int    `json:"life"`
	}
	names := []string{"create-account", "assign-domain", "send-welcome"}

	type kill struct {
		step  int
		where string
	}
	run := func(t *testing.T, kills ...kill) {
		var s *stage
		var g gate
		life := 1
		// ran[i] is in which lives step i ran, passed[i] in which the code before it.
		ran, passed := make([][]int, len(names)), make([][]int, len(names))
		agent := plain(func(r *flue.Render) {
			flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "provision", Description: "Provision."},
				func(ctx context.Context, step *flue.Step, in order) (string, error) {
					var result []string
					for i, name := range names {
						passed[i] = append(passed[i], life)
						if err := g.pass(ctx, name+" before"); err != nil {
							return "", err
						}
						made, err := flue.Do(ctx, step, name, func(ctx context.Context) (account, error) {
							ran[i] = append(ran[i], life)
							if err := g.pass(ctx, name+" in"); err != nil {
								return account{}, err
							}
							return account{in.Customer + "/" + name, life}, nil
						})
						if err != nil {
							return "", err
						}
						if err := g.pass(ctx, name+" after"); err != nil {
							return "", err
						}
						result = append(result, fmt.Sprintf("%s@%d", made.ID, made.Life))
					}
					return strings.Join(result, " "), nil
				}))
		})
		s = newStage(t, agent, callThenSay("provision", order{"ada"}))
		// What is to be seen is worked out from where the process dies.
		wantRan, wantPassed, recorded := make([][]int, len(names)), make([][]int, len(names)), make([]int, len(names))
		expect := func(last int, where string) {
			for i := 0; i <= last; i++ {
				wantPassed[i] = append(wantPassed[i], life)
				if recorded[i] != 0 || i == last && where == "before" {
					continue
				}
				wantRan[i] = append(wantRan[i], life)
				if i < last || where == "after" {
					recorded[i] = life
				}
			}
		}
		var sub string
		for i, k := range kills {
			g.shut(names[k.step] + " " + k.where)
			if i == 0 {
				sub = s.send(flue.User("go"))
			} else {
				s.open()
			}
			g.wait(t)
			s.kill()
			expect(k.step, k.where)
			life++
		}
		s.open()
		reply, err := s.read(sub)
		if err != nil {
			t.Fatal(err)
		}
		expect(len(names)-1, "after")
		if diff := cmp.Diff(wantRan, ran); diff != "" {
			t.Errorf("in which lives the steps ran (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(wantPassed, passed); diff != "" {
			t.Errorf("in which lives the code between ran (-want +got):\n%s", diff)
		}
		var want []string
		for i, name := range names {
			want = append(want, fmt.Sprintf("ada/%s@%d", name, recorded[i]))
			if got := stepRecords(s)[name]; len(got) != 1 || got[0] != fmt.Sprintf(`{"id":"ada/%s","life":%d}`, name, recorded[i]) {
				t.Errorf("step %s is recorded as %q", name, got)
			}
		}
		if got := "it said: " + strings.Join(want, " "); reply.Text != got {
			t.Errorf("reply %q, want %q", reply.Text, got)
		}
		if o := outcomesIn(s); len(o) != 1 || o[0].Failed {
			t.Errorf("outcomes %+v", o)
		}
	}
	for i, name := range names {
		for _, where := range []string{"before", "in", "after"} {
			t.Run(name+" "+where, func(t *testing.T) { run(t, kill{i, where}) })
		}
	}
	for _, kills := range [][]kill{
		{{0, "in"}, {0, "in"}},
		{{0, "after"}, {2, "in"}},
		{{1, "in"}, {1, "after"}},
		{{1, "after"}, {1, "before"}}, // dies while the steps are replayed
		{{2, "after"}, {0, "after"}},
		{{0, "in"}, {1, "in"}, {2, "in"}},
	} {
		t.Run(fmt.Sprint(kills), func(t *testing.T) { run(t, kills...) })
	}
}

// It is recorded that a step of DoOnce begins before its function is called. If
// the process dies then, the function is not called again, and the tool is told.
func TestDoOnce(t *testing.T) {
	tests := []struct {
		name  string
		at    string // where the process dies
		want  string
		calls int
	}{
		{"dies before", "before", "charged in life 2", 1},
		{"dies within", "in", "unknown: ask the bank", 1},
		{"dies after", "after", "charged in life 1", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s *stage
			var g gate
			life, begun := 1, ""
			s = newStage(t, plain(func(r *flue.Render) {
				flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "charge", Description: "Charge."}, func(ctx context.Context, step *flue.Step, _ struct{}) (string, error) {
					if err := g.pass(ctx, "before"); err != nil {
						return "", err
					}
					result, err := flue.DoOnce(ctx, step, "charge", func(ctx context.Context) (string, error) {
						s.note("charged")
						begun = fmt.Sprint(stepRecords(s)["charge"])
						if err := g.pass(ctx, "in"); err != nil {
							return "", err
						}
						return fmt.Sprintf("charged in life %d", life), nil
					})
					var se *flue.StepError
					switch {
					case errors.Is(err, flue.ErrOutcomeUnknown):
						if !errors.As(err, &se) || se.Step != "charge" {
							s.note("the error is %v", err)
						}
						return "unknown: ask the bank", nil
					case err != nil:
						return "", err
					}
					if err := g.pass(ctx, "after"); err != nil {
						return "", err
					}
					return result, nil
				}))
			}), callThenSay("charge", nil))
			g.shut(tt.at)
			sub := s.send(flue.User("go"))
			g.wait(t)
			s.kill()
			life++
			s.open()
			reply, err := s.read(sub)
			if err != nil {
				t.Fatal(err)
			}
			if reply.Text != "it said: "+tt.want {
				t.Errorf("reply %q, want %q", reply.Text, tt.want)
			}
			if got := s.noted(); !slices.Equal(got, slices.Repeat([]string{"charged"}, tt.calls)) {
				t.Errorf("notes %q, want %d charges", got, tt.calls)
			}
			if begun != "[begun]" {
				t.Errorf("when the function was called, the journal had %s of it", begun)
			}
			want := []string{"begun"}
			if !strings.HasPrefix(tt.want, "unknown") {
				want = append(want, string(asJSON(tt.want)))
			}
			if got := stepRecords(s)["charge"]; !slices.Equal(got, want) {
				t.Errorf("the step's records are %q, want %q", got, want)
			}
		})
	}
}

// An error of a step that was begun once is the tool's to handle while the
// process lives; nobody runs the step again in a later one.
func TestDoOnceThatFailed(t *testing.T) {
	var s *stage
	var g gate
	s = newStage(t, plain(func(r *flue.Render) {
		flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "charge", Description: "Charge."}, func(ctx context.Context, step *flue.Step, _ struct{}) (string, error) {
			_, err := flue.DoOnce(ctx, step, "charge", func(context.Context) (string, error) {
				s.note("ran")
				return "", errors.New("declined")
			})
			s.note("error: %v", err)
			return "handled", g.pass(ctx, "after")
		}))
	}), callThenSay("charge", nil))
	g.shut("after")
	sub := s.send(flue.User("go"))
	g.wait(t)
	s.restart()
	if reply, err := s.read(sub); err != nil || reply.Text != "it said: handled" {
		t.Errorf("reply %+v, %v", reply, err)
	}
	want := []string{"ran", "error: declined", `error: step "charge": ` + flue.ErrOutcomeUnknown.Error()}
	if diff := cmp.Diff(want, s.noted()); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// If the next process has withdrawn a durable tool, or made an ordinary one of
// it, an interrupted call is not run: the model is told that its outcome is
// unknown.
func TestDurableToolIsWithdrawn(t *testing.T) {
	for _, next := range []string{"gone", "ordinary"} {
		t.Run(next, func(t *testing.T) {
			var s *stage
			var g gate
			version := "durable"
			s = newStage(t, plain(func(r *flue.Render) {
				switch version {
				case "durable":
					flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "provision", Description: "Provision."}, func(ctx context.Context, step *flue.Step, _ struct{}) (string, error) {
						s.note("ran durable")
						if _, err := flue.Do(ctx, step, "account", func(context.Context) (string, error) { return "acc_1", nil }); err != nil {
							return "", err
						}
						return "", g.pass(ctx, "here")
					}))
				case "ordinary":
					flue.UseTool(r, flue.NewTool(flue.Tool{Name: "provision", Description: "Provision."}, func(context.Context, struct{}) (string, error) {
						s.note("ran ordinary")
						return "fine", nil
					}))
				}
			}), func(req *model.Request) script.Turn {
				if results := resultsIn(req); len(results) > 0 {
					return script.Say(fmt.Sprintf("%v %s", results[0].IsError, results[0].Text))
				}
				return script.Call("provision", nil)
			})
			g.shut("here")
			sub := s.send(flue.User("go"))
			g.wait(t)
			s.kill()
			version = next
			s.open()
			reply, err := s.read(sub)
			if err != nil {
				t.Fatal(err)
			}
			const unknown = `{"type":"interrupted","message":"Tool execution was interrupted before completion. The outcome is unknown."}`
			if reply.Text != "true "+unknown {
				t.Errorf("the model was told %s", reply.Text)
			}
			if p := toolParts(s.snapshot())[0]; p.State != wire.StateOutputError || *p.ErrorText != unknown {
				t.Errorf("clients see %s %v", p.State, p.ErrorText)
			}
			if got := s.noted(); !slices.Equal(got, []string{"ran durable"}) {
				t.Errorf("notes %q: the call was run again", got)
			}
			if got := s.say("and now"); got == "" {
				t.Error("the next message has no reply")
			}
		})
	}
}

// A name says which piece of work a step is: it is used once in a call, has a
// bound and is not blank. A function whose step is refused is not called.
func TestStepNames(t *testing.T) {
	var s *stage
	var lives atomic.Int32
	lives.Store(1)
	var both sync.WaitGroup // in the first life, so that none dies at its work
	both.Add(2)
	longest := strings.Repeat("n", 256)
	s = newStage(t, plain(func(r *flue.Render) {
		flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, step *flue.Step, _ struct{}) (string, error) {
			try := func(of *flue.Step, name string, once bool, want error) {
				do := flue.Do[int]
				if once {
					do = flue.DoOnce[int]
				}
				ran := false
				n, err := do(ctx, of, name, func(context.Context) (int, error) { ran = true; return 7, nil })
				var se *flue.StepError
				switch {
				case want == nil && (err != nil || n != 7):
					s.note("step %.20q: %d, %v", name, n, err)
				case want != nil && (!errors.As(err, &se) || se.Step != name || ran || n != 0 || want != errAny && !errors.Is(err, want)):
					s.note("step %.20q: %d, %v, ran %v; want %v", name, n, err, ran, want)
				}
			}
			try(step, "a", false, nil)
			try(step, "a", false, flue.ErrStepReused)
			try(step, "a", true, flue.ErrStepReused)
			try(step, "once", true, nil)
			try(step, "once", false, flue.ErrStepReused)
			try(step, longest, false, nil)
			try(step, "A", false, nil) // another name
			for _, bad := range []string{"", " \t", longest + "n"} {
				try(step, bad, false, errAny)
				try(step, bad, true, errAny)
			}
			try(nil, "none", false, errAny)
			try(new(flue.Step), "none", false, errAny)
			if lives.Load() == 1 {
				both.Done()
				both.Wait()
				<-ctx.Done()
				return "", ctx.Err()
			}
			return "ok", nil
		}))
	}), func(req *model.Request) script.Turn {
		if script.Step(req) > 0 {
			return script.Say(script.LastResults(req)[0].Text + script.LastResults(req)[1].Text)
		}
		return script.Call("work", nil).Call("work", nil)
	})
	// Two calls use the same names side by side, and again when one of them is
	// replayed.
	sub := s.send(flue.User("go"))
	both.Wait()
	s.kill()
	lives.Add(1)
	s.open()
	if reply, err := s.read(sub); err != nil || reply.Text != "okok" {
		t.Errorf("reply %+v, %v", reply, err)
	}
	for _, note := range s.noted() {
		t.Error(note)
	}
	for name, records := range stepRecords(s) {
		if want := map[bool]int{false: 2, true: 4}[name == "once"]; len(records) != want {
			t.Errorf("step %.20q has the records %q, want %d", name, records, want)
		}
	}
}

// errAny stands for any error of a step.
var errAny = errors.New("any")

// A tool that returns the error of a step has failed, and the model can read why.
func TestReusedStepFailsTheCall(t *testing.T) {
	s := newStage(t, plain(func(r *flue.Render) {
		flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, step *flue.Step, _ struct{}) (string, error) {
			for range 2 {
				if _, err := flue.Do(ctx, step, "charge", func(context.Context) (int, error) { return 1, nil }); err != nil {
					return "", err
				}
			}
			return "ok", nil
		}))
	}), callThenSay("work", nil))
	if got := s.say("go"); !strings.Contains(got, `step "charge"`) || !strings.Contains(got, "used before") {
		t.Errorf("reply %q", got)
	}
	if o := outcomesIn(s)[0]; !o.Failed {
		t.Errorf("the outcome is %+v", o)
	}
}

type stepMade struct {
	Name   string         `json:"name"`
	Tags   []string       `json:"tags"`
	More   map[string]int `json:"more,omitempty"`
	Hidden string         `json:"-"`
	At     time.Time      `json:"at"`
}

// What a step returns has gone through JSON, so that it is the same live and
// when it is replayed. What does not go through is an error, and not recorded.
func TestStepValues(t *testing.T) {
	var s *stage
	var g gate
	at := time.Date(2026, 3, 29, 12, 30, 0, 123456789, time.FixedZone("", 2*60*60))
	// Each case makes a step and returns what is to be seen of it.
	type value struct {
		name string
		do   func(ctx context.Context, step *flue.Step, name string) (string, error)
		want string // empty if it is an error
		bad  string // what the error says
	}
	values := []value{
		{"string", stepOf("a <b> ü \u2028"), `"a <b> ü \u2028"`, ""},
		{"number", stepOf(int64(math.MaxInt64)), "9223372036854775807", ""},
		{
			"struct", stepOf(stepMade{"x", []string{"a"}, map[string]int{"k": 1}, "lost on the way", at}),
			`flue_test.stepMade{Name:"x", Tags:[]string{"a"}, More:map[string]int{"k":1}, Hidden:"", At:time.Date(2026, time.March, 29, 12, 30, 0, 123456789, time.Location(""))}`, "",
		},
		{"nothing", stepOf[any](nil), "<nil>", ""},
		{"nil pointer", stepOf[*stepMade](nil), "(*flue_test.stepMade)(nil)", ""},
		{"empty", stepOf(struct{}{}), "struct {}{}", ""},
		{"channel", stepOf(make(chan int)), "", "channel: "},
		{"NaN", stepOf(math.NaN()), "", "NaN"},
		{"largest", stepOf(strings.Repeat("x", flue.MaxStepValue-2)), `"xxx`, ""},
		{"too large", stepOf(strings.Repeat("x", flue.MaxStepValue-1)), "", "1048576"},
	}
	type seen struct{ Value, Err string }
	var lives []map[string]seen
	s = newStage(t, plain(func(r *flue.Render) {
		flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, step *flue.Step, _ struct{}) (string, error) {
			got := make(map[string]seen)
			for _, v := range values {
				text, err := v.do(ctx, step, v.name)
				if err != nil {
					var se *flue.StepError
					if !errors.As(err, &se) || se.Step != v.name {
						s.note("%s: %T %v", v.name, err, err)
					}
					got[v.name] = seen{Err: err.Error()}
					continue
				}
				got[v.name] = seen{Value: text}
			}
			lives = append(lives, got)
			// A value of another type than the one that was recorded.
			other := "text"
			if len(lives) > 1 {
				ran := false
				n, err := flue.Do(ctx, step, "changed", func(context.Context) (int, error) { ran = true; return 1, nil })
				var se *flue.StepError
				if !errors.As(err, &se) || !strings.Contains(err.Error(), "does not fit int") || ran || n != 0 {
					s.note("a recorded string read as an int: %d, %v, ran %v", n, err, ran)
				}
			} else if _, err := flue.Do(ctx, step, "changed", func(context.Context) (string, error) { return other, nil }); err != nil {
				return "", err
			}
			return "ok", g.pass(ctx, "end")
		}))
	}), callThenSay("work", nil))
	g.shut("end")
	sub := s.send(flue.User("go"))
	g.wait(t)
	s.restart()
	if _, err := s.read(sub); err != nil {
		t.Fatal(err)
	}
	for _, note := range s.noted() {
		t.Error(note)
	}
	if len(lives) != 2 {
		t.Fatalf("the tool ran %d times", len(lives))
	}
	recorded := stepRecords(s)
	for _, v := range values {
		live, replayed := lives[0][v.name], lives[1][v.name]
		if live != replayed {
			t.Errorf("%s: live %.200v, replayed %.200v", v.name, live, replayed)
		}
		switch {
		case v.want == "" && (live.Err == "" || !strings.Contains(live.Err, strings.TrimSuffix(v.bad, ": ")) || recorded[v.name] != nil):
			t.Errorf("%s: error %q, recorded %q", v.name, live.Err, recorded[v.name])
		case v.want != "" && (!strings.HasPrefix(live.Value, v.want) || len(recorded[v.name]) != 1):
			t.Errorf("%s: %.300s, want %s; %d records", v.name, live.Value, v.want, len(recorded[v.name]))
		}
	}
}

// stepOf makes a step of the value and shows what it gives. The function counts
// as an error if it is called for a step that has been recorded.
func stepOf[T any](v T) func(ctx context.Context, step *flue.Step, name string) (string, error) {
	ran := 0
	return func(ctx context.Context, step *flue.Step, name string) (string, error) {
		got, err := flue.Do(ctx, step, name, func(context.Context) (T, error) { ran++; return v, nil })
		if err != nil {
			return "", err
		}
		if ran != 1 {
			return "", fmt.Errorf("it ran %d times", ran)
		}
		return fmt.Sprintf("%#v", got), nil
	}
}

// Steps are seen as they happen, by observers alone: the model and the
// conversation have the result of the call.
func TestStepProgress(t *testing.T) {
	var s *stage
	var g gate
	s = newStage(t, plain(func(r *flue.Render) {
		flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, step *flue.Step, _ struct{}) (string, error) {
			for _, name := range []string{"hidden-one", "hidden-two", "hidden-three"} {
				if _, err := flue.Do(ctx, step, name, func(context.Context) (string, error) { return "value-of-" + name, nil }); err != nil {
					return "", err
				}
				if n := len(s.observed(flue.EventLog)); n == 0 {
					s.note("a step was not told at once")
				}
				if err := g.pass(ctx, name); err != nil {
					return "", err
				}
			}
			return "result", nil
		}))
	}), callThenSay("work", nil))
	g.shut("hidden-two")
	sub := s.send(flue.User("go"))
	g.wait(t)
	s.restart()
	reply, err := s.read(sub)
	if err != nil {
		t.Fatal(err)
	}
	if reply.Text != "it said: result" {
		t.Errorf("reply %q", reply.Text)
	}
	part := toolParts(s.snapshot())[0]
	var lines []string
	for _, ev := range s.observed(flue.EventLog) {
		if ev.Call != part.ToolCallID || ev.Tool != "work" || ev.Submission != sub || len(ev.Log.Attrs) != 1 || ev.Log.Attrs[0].Key != "step" {
			t.Errorf("a line of call %q: %+v", ev.Call, ev.Log)
			continue
		}
		lines = append(lines, ev.Log.Message+" "+ev.Log.Attrs[0].Value.String())
	}
	want := []string{
		"step recorded hidden-one", "step recorded hidden-two",
		"step replayed hidden-one", "step replayed hidden-two", "step recorded hidden-three",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	for _, note := range s.noted() {
		t.Error(note)
	}
	for i, req := range s.asked() {
		if strings.Contains(fmt.Sprintf("%+v", *req), "hidden-") {
			t.Errorf("request %d shows the model a step", i)
		}
	}
	if strings.Contains(string(asJSON(s.snapshot())), "hidden-") {
		t.Error("the conversation shows a step")
	}
	if string(part.Output) != `"result"` {
		t.Errorf("clients see %s", part.Output)
	}
}

// An error is no interruption: the call has failed, once and for all, and not
// even a crash that follows runs it again.
func TestDurableToolError(t *testing.T) {
	boom := errors.New("the registrar said no")
	tests := []struct {
		name string
		fn   func(ctx context.Context, step *flue.Step) (string, error)
		want string
		ok   bool
	}{
		{"error between steps", func(ctx context.Context, step *flue.Step) (string, error) {
			_, err := flue.Do(ctx, step, "first", func(context.Context) (int, error) { return 1, nil })
			return "", errors.Join(err, boom)
		}, boom.Error(), false},
		{"error in a step", func(ctx context.Context, step *flue.Step) (string, error) {
			return flue.Do(ctx, step, "first", func(context.Context) (string, error) { return "", boom })
		}, boom.Error(), false},
		{"panic between steps", func(context.Context, *flue.Step) (string, error) { panic("private") }, `Tool "work" failed: internal error (panic).`, false},
		{"panic in a step", func(ctx context.Context, step *flue.Step) (string, error) {
			return flue.Do(ctx, step, "first", func(context.Context) (string, error) { panic("private") })
		}, `Tool "work" failed: internal error (panic).`, false},
		{"error of a step that the tool handles", func(ctx context.Context, step *flue.Step) (string, error) {
			_, err := flue.Do(ctx, step, "first", func(context.Context) (string, error) { return "", boom })
			if err != boom { //nolint:errorlint // it must be the very error
				return "", fmt.Errorf("the step returned %v", err)
			}
			return flue.Do(ctx, step, "second", func(context.Context) (string, error) { return "the other registrar", nil })
		}, "the other registrar", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *stage
				s = newStage(t, plain(func(r *flue.Render) {
					flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, step *flue.Step, _ struct{}) (string, error) {
						s.note("ran")
						return tt.fn(ctx, step)
					}))
				}), func(req *model.Request) script.Turn {
					if script.Step(req) == 0 {
						return script.Call("work", nil)
					}
					result := script.LastResults(req)[0]
					return script.Wait(10 * time.Second).Say(fmt.Sprintf("%v %s", !result.IsError, result.Text))
				})
				defer s.close()
				sub := s.send(flue.User("go"))
				synctest.Wait() // the call has its outcome, the model is at work
				if o := outcomesIn(s); len(o) != 1 || o[0].Failed == tt.ok || o[0].Content != tt.want {
					t.Fatalf("outcomes %+v", o)
				}
				s.restart()
				reply, err := s.read(sub)
				if err != nil {
					t.Fatal(err)
				}
				if want := fmt.Sprintf("%v %s", tt.ok, tt.want); reply.Text != want {
					t.Errorf("reply %q, want %q", reply.Text, want)
				}
				if got := s.noted(); !slices.Equal(got, []string{"ran"}) {
					t.Errorf("the tool ran %d times", len(got))
				}
				if got := stepRecords(s)["first"]; (tt.name == "error between steps") != (len(got) == 1) {
					t.Errorf("the first step is recorded as %q", got)
				}
				if o := outcomesIn(s); len(o) != 1 {
					t.Errorf("%d outcomes", len(o))
				}
			})
		})
	}
}

// Steps belong to one call. Whoever calls the tool again has all of them run,
// even if the arguments and the provider's id are the same.
func TestStepsAreOfOneCall(t *testing.T) {
	var s *stage
	s = newStage(t, plain(func(r *flue.Render) {
		flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, step *flue.Step, _ struct{}) (string, error) {
			for _, name := range []string{"one", "two"} {
				key, err := flue.Do(ctx, step, name, func(ctx context.Context) (string, error) {
					s.note("%s", name)
					return flue.CallKey(ctx), nil
				})
				if err != nil || key != flue.CallKey(ctx) {
					return "", fmt.Errorf("step %s is that of call %q: %w", name, key, err)
				}
			}
			return "ok", nil
		}))
	}), func(req *model.Request) script.Turn {
		switch script.Step(req) {
		case 0: // two calls in one batch
			return script.Call("work", nil).ID("a").Call("work", nil).ID("b")
		case 1: // and one in the next turn
			return script.Call("work", nil).ID("a")
		}
		return script.Say("done")
	})
	s.say("go")
	s.say("go on") // and three in another response, with the same ids
	for _, name := range []string{"one", "two"} {
		if n := countNotes(s, name); n != 6 {
			t.Errorf("step %s ran %d times for 6 calls", name, n)
		}
		if got := stepRecords(s)[name]; len(got) != 6 {
			t.Errorf("step %s has %d records", name, len(got))
		}
	}
	for _, o := range outcomesIn(s) {
		if o.Failed {
			t.Errorf("a call failed: %s", o.Content)
		}
	}
}

// Steps of different names may run side by side: live, when some of them are
// replayed, and when all are. Those that were recorded are not run again.
func TestStepsSideBySide(t *testing.T) {
	const steps = 40
	var s *stage
	var g gate
	var mu sync.Mutex
	ran := make(map[string]int)
	held := 0
	life := 1
	s = newStage(t, plain(func(r *flue.Render) {
		flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, step *flue.Step, _ struct{}) (string, error) {
			var wg sync.WaitGroup
			var short sync.WaitGroup
			short.Add(steps / 2)
			values := make([]string, steps)
			failures := make([]error, steps)
			for i := range steps {
				wg.Go(func() {
					name := fmt.Sprintf("step-%d", i)
					values[i], failures[i] = flue.Do(ctx, step, name, func(ctx context.Context) (string, error) {
						mu.Lock()
						ran[name]++
						n, wait := life, life == 1 && i%2 == 1
						if wait {
							held++
						}
						mu.Unlock()
						if wait { // in the first life, every second step is interrupted
							<-ctx.Done()
							return "", ctx.Err()
						}
						return fmt.Sprintf("%d@%d", i, n), nil
					})
					if i%2 == 0 {
						short.Done()
					}
				})
			}
			short.Wait()
			if err := g.pass(ctx, "half"); err != nil {
				wg.Wait()
				return "", err
			}
			wg.Wait()
			if err := g.pass(ctx, "all"); err != nil {
				return "", err
			}
			return strings.Join(values, " "), errors.Join(failures...)
		}))
	}), callThenSay("work", nil))
	g.shut("half")
	sub := s.send(flue.User("go"))
	g.wait(t)
	s.kill()
	mu.Lock()
	life++
	mu.Unlock()
	g.shut("all")
	s.open()
	g.wait(t)
	s.kill()
	mu.Lock()
	life++
	mu.Unlock()
	s.open()
	reply, err := s.read(sub)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range steps {
		want = append(want, fmt.Sprintf("%d@%d", i, 1+i%2))
		name := fmt.Sprintf("step-%d", i)
		if n := ran[name]; i%2 == 0 && n != 1 || i%2 == 1 && n > 2 {
			t.Errorf("%s ran %d times", name, n)
		}
		if got := stepRecords(s)[name]; len(got) != 1 {
			t.Errorf("%s has the records %q", name, got)
		}
	}
	if want := "it said: " + strings.Join(want, " "); reply.Text != want {
		t.Errorf("reply %q\nwant  %q", reply.Text, want)
	}
	if held == 0 {
		t.Error("no step was interrupted")
	}
}

// A durable call that is run again has the same id and key, its writes of the
// state count once, and the calls beside it keep their outcomes.
func TestDurableCallBesideOthers(t *testing.T) {
	var s *stage
	var g gate
	s = newStage(t, plain(func(r *flue.Render) {
		n := flue.UsePersistentState(r, "n", 0)
		flue.UseInstruction(r, fmt.Sprintf("n is %d", n.Value()))
		flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "provision", Description: "Provision."}, func(ctx context.Context, step *flue.Step, _ struct{}) (string, error) {
			s.note("%s %s", flue.CallID(ctx), flue.CallKey(ctx))
			if err := n.Update(ctx, func(n int) int { return n + 10 }); err != nil {
				return "", err
			}
			if _, err := flue.Do(ctx, step, "account", func(context.Context) (string, error) { return "acc_1", nil }); err != nil {
				return "", err
			}
			return "provisioned", g.pass(ctx, "end")
		}))
		for _, name := range []string{"quick", "stuck"} {
			flue.UseTool(r, flue.NewTool(flue.Tool{Name: name, Description: name + "."}, func(ctx context.Context, _ struct{}) (string, error) {
				s.note("%s", name)
				if name == "stuck" {
					<-ctx.Done()
				}
				return name + " ran", ctx.Err()
			}))
		}
	}), func(req *model.Request) script.Turn {
		if results := script.LastResults(req); len(results) > 0 {
			var said []string
			for _, b := range results {
				said = append(said, fmt.Sprintf("%v %s", !b.IsError, b.Text))
			}
			return script.Say(strings.Join(append(said, req.System), " | "))
		}
		return script.Call("provision", nil).Call("quick", nil).Call("stuck", nil)
	})
	g.shut("end")
	sub := s.send(flue.User("go"))
	g.wait(t)
	// quick must have its outcome before the process dies.
	for deadline := time.Now().Add(30 * time.Second); len(s.observed(flue.EventToolDone)) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the quick call has no outcome")
		}
	}
	s.restart()
	reply, err := s.read(sub)
	if err != nil {
		t.Fatal(err)
	}
	const unknown = `{"type":"interrupted","message":"Tool execution was interrupted before completion. The outcome is unknown."}`
	if want := "true provisioned | true quick ran | false " + unknown + " | Play your part.\n\nn is 10"; reply.Text != want {
		t.Errorf("reply %q\nwant  %q", reply.Text, want)
	}
	if countNotes(s, "quick") != 1 || countNotes(s, "stuck") != 1 {
		t.Errorf("an ordinary call was run again: %q", s.noted())
	}
	var calls []string
	for _, note := range s.noted() {
		if strings.HasPrefix(note, "call_") {
			calls = append(calls, note)
		}
	}
	if len(calls) != 2 || calls[0] != calls[1] {
		t.Errorf("the durable call ran as %q, want twice with the same id and key", calls)
	}
}

// The state that a durable tool stands on is that of its process: a hand-written
// schema, a timeout and a checked result hold for it as for any other tool.
func TestDurableToolIsATool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type in struct {
			Mode string `json:"mode" enum:"slow,bad,end"`
		}
		var s *stage
		s = newStage(t, plain(func(r *flue.Render) {
			flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "work", Description: "Work.", Timeout: 5 * time.Second, Output: flue.SchemaFor[string]()},
				func(ctx context.Context, step *flue.Step, in in) (any, error) {
					s.note("ran %s", in.Mode)
					switch in.Mode {
					case "slow":
						return flue.Do(ctx, step, "wait", func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
					case "bad":
						return 7, nil
					}
					return "bye", flue.EndTurn
				}))
		}), func(req *model.Request) script.Turn {
			args := []string{`{"mode":"loud"}`, `{"mode":"slow"}`, `{"mode":"bad"}`, `{"mode":"end"}`}
			return script.Call("work", json.RawMessage(args[script.Step(req)]))
		})
		defer s.close()
		if got := s.say("go"); got != "" {
			t.Errorf("reply %q", got)
		}
		if got := s.noted(); !slices.Equal(got, []string{"ran slow", "ran bad", "ran end"}) {
			t.Errorf("notes %q", got)
		}
		outcomes := outcomesIn(s)
		if len(outcomes) != 4 {
			t.Fatalf("%d outcomes", len(outcomes))
		}
		for i, want := range []string{"mode", "timed out after 5000ms", "could not be used", "bye"} {
			if o := outcomes[i]; !strings.Contains(o.Content, want) || o.Failed == (i == 3) || o.EndTurn != (i == 3) {
				t.Errorf("call %d has the outcome %+v, want %q in it", i, o, want)
			}
		}
	})
}
