// Package workflow takes an agent through the states of a machine. In each state
// the model has the tools of that state and no others, and the machine moves when
// the model calls a tool that leads on.
//
//	var returns = workflow.New("returns",
//		workflow.State{Name: "identify", Moves: []workflow.Move{findOrder}},
//		workflow.State{Name: "decide", Moves: []workflow.Move{startReturn}},
//		workflow.State{Name: "done"},
//	)
//
//	func Support(r *flue.Render) string {
//		flue.UseModel(r, "anthropic/claude-haiku-4-5")
//		workflow.UseWorkflow(r, returns)
//		return "Help customers with returns."
//	}
package workflow

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/flue-go/flue"
)

// A Machine is a set of states. Each conversation is in one of them. Make it with
// [New]; it is immutable and may be shared by agents.
type Machine struct {
	name   string
	start  string
	states map[string]State
}

// A State says what the model has while a conversation is in it.
type State struct {
	// Name is the state's durable identity: conversations are stored under it,
	// so it must stay the same across releases.
	Name string

	// Instruction, if set, tells the model what to do in this state.
	Instruction string

	// Tools are what the model may call without leaving the state.
	Tools []*flue.ToolDefinition

	// Moves are what it may call to get to another one.
	Moves []Move
}

// A Move is a tool that leads to another state. Make it with [NewMove].
type Move struct {
	name string
	to   string
	tool func(at *position) *flue.ToolDefinition
}

// position is where a conversation is, as one render sees it.
type position struct {
	state *flue.State[string]
	moved atomic.Bool // a call of the turn has moved it, or is about to
}

var errMoving = errors.New("another call of this turn moves the workflow; see where it leads, and call this tool again if it is still there")

// NewMove makes a move of a Go function: a tool as [flue.NewTool] makes it that,
// when fn succeeds, takes the conversation to the state of the name. If fn returns
// an error, or is interrupted, the conversation stays where it is. It panics if
// the definition is bad.
//
// Of the moves that the model calls in one turn only one is made.
func NewMove[In, Out any](t flue.Tool, to string, fn func(ctx context.Context, in In) (Out, error)) Move {
	flue.NewTool(t, fn) // a bad definition fails now, not in a conversation
	if t.Input == nil {
		t.Input = flue.SchemaFor[In]()
	}
	return Move{name: t.Name, to: to, tool: func(at *position) *flue.ToolDefinition {
		return flue.NewTool(t, func(ctx context.Context, in In) (Out, error) {
			var none Out
			if !at.moved.CompareAndSwap(false, true) {
				return none, errMoving
			}
			out, err := fn(ctx, in)
			if err != nil && !errors.Is(err, flue.EndTurn) {
				at.moved.Store(false)
				return none, err
			}
			if err := at.state.Set(ctx, to); err != nil {
				return none, err
			}
			return out, err
		})
	}}
}

// New makes a machine. A conversation begins in the first state. New panics if
// two states have one name or a move leads nowhere, so that a bad machine fails
// when the program starts.
func New(name string, states ...State) *Machine {
	if name == "" || len(states) == 0 {
		panic("workflow: a machine has a name and at least one state")
	}
	m := &Machine{name: name, start: states[0].Name, states: make(map[string]State)}
	for _, s := range states {
		if _, twice := m.states[s.Name]; twice || s.Name == "" {
			panic(fmt.Sprintf("workflow %s: the state name %q is empty or used twice", name, s.Name))
		}
		m.states[s.Name] = s
	}
	for _, s := range states {
		for _, move := range s.Moves {
			if _, ok := m.states[move.to]; !ok {
				panic(fmt.Sprintf("workflow %s: in state %s, %s leads to %q, which is no state", name, s.Name, move.name, move.to))
			}
		}
	}
	return m
}

// UseWorkflow takes the conversation through the machine's states: it offers the
// tools and moves of the state that the conversation is in, with that state's
// instruction, and returns the state's name. Where a conversation is, is kept in
// its persistent state. An agent may use several machines of different names.
//
// Durability: a move is stored together with the result of the call that made it.
// After a crash the conversation is before the move or behind it, never between.
func UseWorkflow(r *flue.Render, m *Machine) (state string) {
	at := &position{state: flue.UsePersistentState(r, "workflow:"+m.name, m.start)}
	s, ok := m.states[at.state.Value()]
	if !ok {
		panic(&flue.HookError{
			Hook: "UseWorkflow", Reason: fmt.Sprintf("a conversation is in the state %q, which the workflow %s does not have", at.state.Value(), m.name),
			Fix: "Keep a state for as long as a conversation may be in it.",
		})
	}
	for _, tool := range s.Tools {
		flue.UseTool(r, tool)
	}
	for _, move := range s.Moves {
		flue.UseTool(r, move.tool(at))
	}
	if s.Instruction != "" {
		flue.UseInstruction(r, s.Instruction)
	}
	return s.Name
}
