package workflow_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/examples/support/workflow"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// A track is a conversation with an agent that does nothing but use a machine.
type track struct {
	t      *testing.T
	in     *flue.Instance
	states []string // of the renders before each model call
	asked  []*model.Request
}

func newTrack(t *testing.T, st store.Store, m *workflow.Machine, turns ...script.Turn) *track {
	t.Helper()
	k := &track{t: t}
	p := script.New(turns...)
	p.OnRequest = func(req *model.Request) {
		k.states = append(k.states, req.System)
		k.asked = append(k.asked, req)
	}
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{{Name: "walker", Render: func(r *flue.Render) string {
			flue.UseModel(r, "demo/any")
			return workflow.UseWorkflow(r, m)
		}}},
		Providers: map[string]model.Provider{"demo": p}, Store: st,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(t.Context()) })
	k.in = rt.Instance("walker", "w")
	return k
}

func (k *track) walk() error {
	k.t.Helper()
	receipt, err := k.in.Dispatch(k.t.Context(), flue.User("go"))
	if err != nil {
		k.t.Fatal(err)
	}
	_, err = k.in.Read(k.t.Context(), receipt.Submission)
	return err
}

// results are what the model was told before its last call.
func (k *track) results() []model.Block { return script.LastResults(k.asked[len(k.asked)-1]) }

func TestMoves(t *testing.T) {
	refused := errors.New("the door is stuck")
	fails := workflow.NewMove(flue.Tool{Name: "pull", Description: "Pull."}, "b", func(context.Context, none) (string, error) { return "", refused })
	ends := workflow.NewMove(flue.Tool{Name: "leap", Description: "Leap."}, "b", func(context.Context, none) (string, error) { return "leapt", flue.EndTurn })
	look := flue.NewTool(flue.Tool{Name: "look", Description: "Look."}, func(context.Context, none) (string, error) { return "a door", nil })
	m := workflow.New("doors",
		workflow.State{Name: "a", Tools: []*flue.ToolDefinition{look}, Moves: []workflow.Move{move("push", "b", "through"), fails, ends}},
		workflow.State{Name: "b", Moves: []workflow.Move{move("back", "a", "back again")}},
	)
	tests := []struct {
		name   string
		turn   script.Turn
		states []string
	}{
		{"a tool stays", script.Call("look", none{}), []string{"a", "a"}},
		{"a move moves", script.Call("push", none{}), []string{"a", "b"}},
		{"a failure stays", script.Call("pull", none{}), []string{"a", "a"}},
		{"bad arguments stay", script.Call("push", `{"hard":true}`), []string{"a", "a"}},
		{"a move of another state is not there", script.Call("back", none{}), []string{"a", "a"}},
		{"one after a failure", script.Call("pull", none{}).Call("look", none{}), []string{"a", "a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := newTrack(t, memstore.New(), m, tt.turn, script.Say("done"))
			if err := k.walk(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.states, k.states); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("a move may end the turn", func(t *testing.T) {
		k := newTrack(t, memstore.New(), m, script.Call("leap", none{}), script.Say("done"))
		for range 2 {
			if err := k.walk(); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff([]string{"a", "b"}, k.states); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
	})
}

// Two moves that the model calls side by side are one move, and one refusal.
func TestMovesSideBySide(t *testing.T) {
	ran := make(chan string, 2)
	to := func(tool, state string) workflow.Move {
		return workflow.NewMove(flue.Tool{Name: tool, Description: "Go."}, state, func(context.Context, none) (string, error) {
			ran <- state
			return "went to " + state, nil
		})
	}
	m := workflow.New("fork",
		workflow.State{Name: "start", Moves: []workflow.Move{to("left", "l"), to("right", "r")}}, workflow.State{Name: "l"}, workflow.State{Name: "r"})
	k := newTrack(t, memstore.New(), m, script.Call("left", none{}).Call("right", none{}), script.Say("done"))
	if err := k.walk(); err != nil {
		t.Fatal(err)
	}
	went := <-ran
	if len(ran) != 0 || k.states[1] != went {
		t.Errorf("it went to %s and %d more, and is in %s", went, len(ran), k.states[1])
	}
	failed := 0
	for _, b := range k.results() {
		if b.IsError && strings.Contains(b.Text, "another call of this turn") {
			failed++
		}
	}
	if failed != 1 {
		t.Errorf("the model is told %+v, want one refusal", k.results())
	}
}

// The state is the conversation's: it outlives the process, and a release that
// has lost it fails the message in a way that says what to do.
func TestStateIsKept(t *testing.T) {
	states := []workflow.State{{Name: "a", Moves: []workflow.Move{move("push", "b", "through")}}, {Name: "b"}}
	st := memstore.New()
	if err := newTrack(t, st, workflow.New("doors", states...), script.Call("push", none{}), script.Say("done")).walk(); err != nil {
		t.Fatal(err)
	}
	st = st.Reopen()
	k := newTrack(t, st, workflow.New("doors", states...), script.Say("done"))
	if err := k.walk(); err != nil || k.states[0] != "b" {
		t.Errorf("after a restart it is in %q, %v", k.states, err)
	}
	st = st.Reopen()
	k = newTrack(t, st, workflow.New("doors", workflow.State{Name: "a"}), script.Say("done"))
	var failed *flue.SubmissionError
	if err := k.walk(); !errors.As(err, &failed) || len(k.states) != 0 {
		t.Errorf("in a state that is gone: %v, and %d model calls", err, len(k.states))
	}
}

func TestBadMachines(t *testing.T) {
	ok := workflow.State{Name: "a"}
	for name, make := range map[string]func(){
		"no name":            func() { workflow.New("", ok) },
		"no states":          func() { workflow.New("m") },
		"a state of no name": func() { workflow.New("m", workflow.State{}) },
		"a state twice":      func() { workflow.New("m", ok, ok) },
		"a move to nowhere":  func() { workflow.New("m", workflow.State{Name: "a", Moves: []workflow.Move{move("go", "z", "")}}) },
		"a tool of no name":  func() { move("", "a", "") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it is accepted")
				}
			}()
			make()
		})
	}
}
