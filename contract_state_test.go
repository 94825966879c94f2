package flue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// storedState is all that the journal says of the persistent state, in order.
func (s *stage) storedState() []string {
	s.t.Helper()
	var out []string
	for _, r := range s.records() {
		switch r := r.(type) {
		case *journal.Outcome:
			for _, w := range r.Writes {
				out = append(out, w.Name+"="+string(w.Value))
			}
		case *journal.State:
			out = append(out, r.Name+"="+string(r.Value))
		}
	}
	return out
}

// wrote is a stage whose tool does what the body of a message is mapped to, with
// the state v.
func wrote[T any](t *testing.T, fallback T, acts map[string]func(ctx context.Context, v *flue.State[T]) error) *stage {
	var s *stage
	s = newStage(t, plain(func(r *flue.Render) {
		v := flue.UsePersistentState(r, "v", fallback)
		s.note("%#v", v.Value())
		act := acts[flue.UseDelivery(r).Body]
		flue.UseTool(r, acting("write", func(ctx context.Context) error { return act(ctx, v) }))
	}), func(req *model.Request) script.Turn {
		if _, rounds := heard(req); rounds == 0 {
			return script.Call("write", struct{}{})
		}
		return script.Say(script.LastResults(req)[0].Text)
	})
	return s
}

// setting is an act that sets the value.
func setting[T any](value T) func(ctx context.Context, v *flue.State[T]) error {
	return func(ctx context.Context, v *flue.State[T]) error { return v.Set(ctx, value) }
}

// nested is a list in a list in a list.
func nested(depth int) json.RawMessage {
	return json.RawMessage(strings.Repeat("[", depth) + strings.Repeat("]", depth))
}

type profile struct {
	Name  string            `json:"name"`
	Tags  []string          `json:"tags"`
	Marks map[string]int    `json:"marks"`
	Next  *profile          `json:"next,omitempty"`
	More  map[string]any    `json:"more"`
	Of    map[string]string `json:"of"`
}

// State is JSON: what has no JSON form is refused, and nothing is written; what
// is equal to the current value is not written again; the fallback is never
// stored; null is a value.
func TestStateValues(t *testing.T) {
	t.Run("what cannot be kept", func(t *testing.T) {
		cycle := map[string]any{}
		cycle["self"] = cycle
		for name, tt := range map[string]struct {
			value any
			want  string
		}{
			"a channel":         {make(chan int), "cannot be kept as JSON"},
			"a function":        {func() {}, "cannot be kept as JSON"},
			"NaN":               {math.NaN(), "cannot be kept as JSON"},
			"infinity":          {math.Inf(1), "cannot be kept as JSON"},
			"a cycle":           {cycle, "cannot be kept as JSON"},
			"raw JSON that not": {json.RawMessage("{"), "cannot be kept as JSON"},
			"too large":         {strings.Repeat("x", flue.MaxStateValue), "at most 1048576 are allowed"},
			"too deep":          {nested(9000), "nested"},
		} {
			t.Run(name, func(t *testing.T) {
				s := wrote(t, any("fallback"), map[string]func(ctx context.Context, v *flue.State[any]) error{
					"set": setting(tt.value),
					"update": func(ctx context.Context, v *flue.State[any]) error {
						return v.Update(ctx, func(any) any { return tt.value })
					},
				})
				for _, how := range []string{"set", "update"} {
					if got := s.say(how); !strings.Contains(got, `writing state "v"`) || !strings.Contains(got, tt.want) {
						t.Errorf("%s: the tool's error is %q, want %q in it", how, got, tt.want)
					}
				}
				if got := s.storedState(); len(got) != 0 {
					t.Errorf("the journal has %.200q", got)
				}
				for _, seen := range s.noted() {
					if seen != `"fallback"` {
						t.Errorf("a render sees %.200s", seen)
					}
				}
			})
		}
	})
	t.Run("just small enough", func(t *testing.T) {
		s := wrote(t, "", map[string]func(ctx context.Context, v *flue.State[string]) error{"set": setting(strings.Repeat("x", flue.MaxStateValue-2))})
		if got := s.say("set"); got != "done" || len(s.storedState()) != 1 {
			t.Errorf("the tool says %q and %d values are stored", got, len(s.storedState()))
		}
	})
	t.Run("the same again", func(t *testing.T) {
		a := profile{Name: "a", Tags: []string{"x"}, Marks: map[string]int{"m": 1, "n": 2}, Next: &profile{Name: "b"}, More: map[string]any{"k": 1.0}}
		same := profile{Name: "a", Tags: []string{"x"}, Marks: map[string]int{"n": 2, "m": 1}, Next: &profile{Name: "b"}, More: map[string]any{"k": 1}}
		other := a
		other.Name = "c"
		s := wrote(t, profile{}, map[string]func(ctx context.Context, v *flue.State[profile]) error{
			"a":     setting(a),
			"again": setting(same),
			"update": func(ctx context.Context, v *flue.State[profile]) error {
				return v.Update(ctx, func(p profile) profile { return p })
			},
			"there and back": func(ctx context.Context, v *flue.State[profile]) error {
				return errors.Join(v.Set(ctx, other), v.Set(ctx, a))
			},
			"other": setting(other),
		})
		for _, tt := range []struct {
			act    string
			stored int
		}{{"a", 1}, {"again", 1}, {"update", 1}, {"other", 2}, {"again", 3}} {
			s.say(tt.act)
			if got := s.storedState(); len(got) != tt.stored {
				t.Fatalf("after %q %d values are stored, want %d: %q", tt.act, len(got), tt.stored, got)
			}
		}
		// A call that comes back to the value ends with that value, stored or not.
		s.say("there and back")
		s.say("update")
		if notes := s.noted(); !strings.Contains(notes[len(notes)-1], `Name:"a"`) {
			t.Errorf("the value is %s", notes[len(notes)-1])
		}
		if got := s.storedState(); len(got) > 4 {
			t.Errorf("%d values are stored: %q", len(got), got)
		}
	})
	t.Run("the same in other letters", func(t *testing.T) {
		s := wrote(t, json.RawMessage(nil), map[string]func(ctx context.Context, v *flue.State[json.RawMessage]) error{
			"one":   setting(json.RawMessage(`{"a":1,"b":[1,{"x":null,"y":"\u00e9"}]}`)),
			"same":  setting(json.RawMessage(` { "b" : [1.0, {"y":"é", "x":null}], "a": 1e0 } `)),
			"other": setting(json.RawMessage(`{"a":1,"b":[{"x":null,"y":"\u00e9"},1]}`)),
		})
		s.say("one")
		s.say("same")
		if got := s.storedState(); len(got) != 1 {
			t.Errorf("stored %q", got)
		}
		s.say("other") // the order of a list counts
		if got := s.storedState(); len(got) != 2 {
			t.Errorf("stored %q", got)
		}
	})
	t.Run("the fallback is never stored", func(t *testing.T) {
		s := wrote(t, "secret fallback", map[string]func(ctx context.Context, v *flue.State[string]) error{
			"nothing": func(context.Context, *flue.State[string]) error { return nil },
			"set":     setting("value"),
			"append": func(ctx context.Context, v *flue.State[string]) error {
				return v.Update(ctx, func(s string) string { return s + "!" })
			},
		})
		s.say("nothing")
		for _, r := range s.records() {
			if raw := string(asJSON(r)); strings.Contains(raw, "secret fallback") {
				t.Errorf("it is in a %s record: %s", r.Kind(), raw)
			}
		}
		s.say("append")
		s.say("set")
		if diff := cmp.Diff([]string{`v="secret fallback!"`, `v="value"`}, s.storedState()); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
		want := []string{`"secret fallback"`, `"secret fallback"`, `"secret fallback"`, `"secret fallback!"`, `"secret fallback!"`, `"value"`}
		if diff := cmp.Diff(want, s.noted()); diff != "" {
			t.Errorf("renders see (-want +got):\n%s", diff)
		}
	})
	t.Run("an equal value in place of the fallback is stored", func(t *testing.T) {
		s := wrote(t, 7, map[string]func(ctx context.Context, v *flue.State[int]) error{"set": setting(7)})
		s.say("set")
		if diff := cmp.Diff([]string{"v=7"}, s.storedState()); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
	})
	t.Run("nothing is null, and a value", func(t *testing.T) {
		s := wrote(t, &profile{Name: "fallback"}, map[string]func(ctx context.Context, v *flue.State[*profile]) error{
			"set": setting[*profile](nil),
			"see": func(_ context.Context, v *flue.State[*profile]) error {
				if v.Value() != nil {
					return fmt.Errorf("the value is %+v", v.Value())
				}
				return nil
			},
		})
		s.say("set")
		s.restart()
		if got := s.say("see"); got != "done" {
			t.Errorf("after a restart %s", got)
		}
		if diff := cmp.Diff([]string{"v=null"}, s.storedState()); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
		lists := wrote(t, map[string]int{"fallback": 1}, map[string]func(ctx context.Context, v *flue.State[map[string]int]) error{
			"set": setting(map[string]int(nil)),
			"see": func(_ context.Context, v *flue.State[map[string]int]) error {
				if len(v.Value()) != 0 {
					return fmt.Errorf("the value is %v", v.Value())
				}
				return nil
			},
		})
		lists.say("set")
		if got := lists.say("see"); got != "done" {
			t.Errorf("a nil map: %s", got)
		}
	})
	t.Run("there and back through JSON", func(t *testing.T) {
		value := profile{
			Name: "a\u2028 \"<&>", Tags: []string{"x", ""}, Marks: map[string]int{"m": -1, "big": 1 << 53},
			Next: &profile{Name: "b", Tags: []string{}, Marks: map[string]int{}, More: map[string]any{}, Of: map[string]string{}},
			More: map[string]any{"f": 1.5, "s": []any{"a", nil, true}, "o": map[string]any{"k": "v"}}, Of: map[string]string{},
		}
		got := make(chan profile, 1)
		s := wrote(t, profile{}, map[string]func(ctx context.Context, v *flue.State[profile]) error{
			"set": setting(value),
			"see": func(_ context.Context, v *flue.State[profile]) error { got <- v.Value(); return nil },
		})
		s.say("set")
		s.restart()
		s.say("see")
		if diff := cmp.Diff(value, <-got); diff != "" {
			t.Errorf("the value (-set +seen):\n%s", diff)
		}
	})
}

// A write is silent: the value of the render stays, nothing is rendered, sent or
// admitted for its sake, and the next render has it.
func TestStateIsSilent(t *testing.T) {
	var s *stage
	s = newStage(t, plain(func(r *flue.Render) {
		n := flue.UsePersistentState(r, "n", 1)
		s.note("render with %d", n.Value())
		flue.UseTool(r, acting("write", func(ctx context.Context) error {
			err := errors.Join(n.Set(ctx, 2), n.Update(ctx, func(n int) int { return n * 10 }))
			s.note("wrote, and the value is %d", n.Value())
			return err
		}))
		flue.UseTool(r, acting("idle", nil))
	}), callsFirst("write", "idle"))
	s.say("go")
	want := []string{"render with 1", "wrote, and the value is 1", "render with 20", "render with 20"}
	if diff := cmp.Diff(want, s.noted()); diff != "" {
		t.Errorf("renders (-want +got):\n%s", diff)
	}
	if n := len(s.asked()); n != 3 {
		t.Errorf("%d model calls, want 3", n)
	}
	admitted, entries := 0, 0
	for _, r := range s.records() {
		switch r.(type) {
		case *journal.Admitted:
			admitted++
		case *journal.Entry:
			entries++
		}
	}
	if admitted != 1 || entries != 1 {
		t.Errorf("%d submissions and %d entries, want the message alone", admitted, entries)
	}
}

// A state belongs to the instance by its name: it need not be declared in every
// render, is not shared, and outlives the process.
func TestStateDeclaredNowAndThen(t *testing.T) {
	var s *stage
	s = newStage(t, plain(func(r *flue.Render) {
		turn := flue.UsePersistentState(r, "turn", 0)
		step := func(ctx context.Context) error { return turn.Set(ctx, turn.Value()+1) }
		if turn.Value() != 1 {
			n := flue.UsePersistentState(r, "n", "unset")
			s.note("turn %d: %s", turn.Value(), n.Value())
			inner := step
			step = func(ctx context.Context) error {
				return errors.Join(inner(ctx), n.Set(ctx, fmt.Sprintf("of %s turn %d", r.InstanceID(), turn.Value())))
			}
		}
		flue.UseTool(r, acting("step", step))
	}), func(req *model.Request) script.Turn {
		if text, rounds := heard(req); text == "go" && rounds < 2 {
			return script.Call("step", struct{}{})
		}
		return script.Say("ok")
	})
	s.say("go")
	want := []string{"turn 0: unset", "turn 2: of one turn 0"}
	if diff := cmp.Diff(want, s.noted()); diff != "" {
		t.Errorf("declared in the renders 1 and 3 (-want +got):\n%s", diff)
	}
	two := s.rt.Instance("actor", "two")
	r, err := two.Dispatch(t.Context(), flue.User("look"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.Read(t.Context(), r.Submission); err != nil {
		t.Fatal(err)
	}
	if got := s.noted()[len(want)]; got != "turn 0: unset" {
		t.Errorf("another instance sees %q", got)
	}
	s.restart()
	s.say("look")
	if got := s.noted()[len(want)+1]; got != "turn 2: of one turn 0" {
		t.Errorf("after a restart the instance sees %q", got)
	}
}

// Two agents whose instances have one id do not share a state.
func TestStateIsOfOneAgent(t *testing.T) {
	counter := func(name string) *flue.Agent {
		return &flue.Agent{Name: name, Render: func(r *flue.Render) string {
			flue.UseModel(r, "fake/m")
			n := flue.UsePersistentState(r, "n", 0)
			flue.UseTool(r, flue.NewTool(flue.Tool{Name: "count", Description: "Count."}, func(ctx context.Context, _ struct{}) (int, error) {
				return n.Value() + 1, n.Set(ctx, n.Value()+1)
			}))
			return ""
		}}
	}
	rt := open(t, &fake{answer: func(req *model.Request) []model.Block {
		if m := req.Messages[len(req.Messages)-1]; m.Role == model.RoleTool {
			return text(m.Blocks[0].Text)
		}
		return toolCall("count", "")
	}}, counter("a"), counter("b"))
	for i, name := range []string{"a", "a", "b", "a", "b"} {
		in := rt.Instance(name, "same")
		r, err := in.Dispatch(t.Context(), flue.User("count"))
		if err != nil {
			t.Fatal(err)
		}
		reply, err := in.Read(t.Context(), r.Submission)
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"1", "2", "1", "3", "2"}[i]; reply.Text != want {
			t.Errorf("message %d: agent %s counts %s, want %s", i, name, reply.Text, want)
		}
	}
}

// A stored value that does not fit the type that now reads it fails the
// submission with an error that names the state and the type, and only that.
func TestStateThatDoesNotFit(t *testing.T) {
	var asInt atomic.Bool
	s := newStage(t, plain(func(r *flue.Render) {
		if asInt.Load() {
			flue.UsePersistentState(r, "level", 0)
			return
		}
		level := flue.UsePersistentState(r, "level", "")
		flue.UseTool(r, acting("write", func(ctx context.Context) error { return level.Set(ctx, "high") }))
	}), func(req *model.Request) script.Turn {
		if text, rounds := heard(req); text == "write" && rounds == 0 {
			return script.Call("write", struct{}{})
		}
		return script.Say("ok")
	})
	s.say("write")
	asInt.Store(true)
	s.restart()
	err := s.failure(flue.User("read"))
	var misuse *flue.HookError
	if !errors.As(err, &misuse) || misuse.Hook != "UsePersistentState" || misuse.Agent != "actor" {
		t.Fatalf("the error is %v, want a HookError of UsePersistentState", err)
	}
	for _, want := range []string{`"level"`, "int", "another name"} {
		if !strings.Contains(misuse.Error(), want) {
			t.Errorf("the error %q does not have %q", misuse, want)
		}
	}
	if n := len(s.asked()); n != 2 {
		t.Errorf("%d model calls, want those of the first message alone", n)
	}
	asInt.Store(false)
	if got := s.say("go on"); got != "ok" {
		t.Errorf("the next message is answered with %q", got)
	}
	if diff := cmp.Diff([]string{`level="high"`}, s.storedState()); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}
