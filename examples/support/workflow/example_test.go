package workflow_test

import (
	"context"
	"fmt"
	"log"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/examples/support/workflow"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

type none struct{}

// move is a move that answers with a text.
func move(tool, to, answer string) workflow.Move {
	return workflow.NewMove(flue.Tool{Name: tool, Description: "Go on."}, to,
		func(context.Context, none) (string, error) { return answer, nil })
}

// A turnstile: each call leads to a state that has other tools. The model is a
// script.
func ExampleUseWorkflow() {
	turnstile := workflow.New("turnstile",
		workflow.State{Name: "locked", Moves: []workflow.Move{move("insert_coin", "open", "It is open.")}},
		workflow.State{Name: "open", Moves: []workflow.Move{move("push", "locked", "You are in.")}},
	)
	gate := &flue.Agent{Name: "gate", Render: func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		return "The turnstile is " + workflow.UseWorkflow(r, turnstile) + "."
	}}
	demo := script.New(script.Call("insert_coin", none{}), script.Call("push", none{}), script.Say("You are in."))
	demo.OnRequest = func(req *model.Request) { fmt.Println(req.System, "Tool:", req.Tools[0].Name) }

	ctx := context.Background()
	rt, err := flue.Open(ctx, flue.Config{Agents: []*flue.Agent{gate}, Providers: map[string]model.Provider{"demo": demo}})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)
	receipt, err := rt.Dispatch(ctx, "gate", "north", flue.User("Let me in."))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := rt.Instance("gate", "north").Read(ctx, receipt.Submission); err != nil {
		log.Fatal(err)
	}
	// Output:
	// The turnstile is locked. Tool: insert_coin
	// The turnstile is open. Tool: push
	// The turnstile is locked. Tool: insert_coin
}
