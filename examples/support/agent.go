package main

import (
	"context"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/examples/support/escalation"
	"github.com/flue-go/flue/examples/support/workflow"
)

// support returns the agent. The hooks of the two packages are called like those
// of the framework, under a condition too: once people have taken over, the agent
// registers no more returns.
func support(shop *Shop, desk escalation.Desk) *flue.Agent {
	returns := returnOf(shop)
	return &flue.Agent{
		Name: "support",
		Render: func(r *flue.Render) string {
			flue.UseModel(r, "anthropic/claude-haiku-4-5")
			if ticket := escalation.UseEscalation(r, desk); ticket == "" {
				workflow.UseWorkflow(r, returns)
			}
			return "You help the customers of a shop to return what they do not want to keep. Answer in a sentence or two."
		},
	}
}

// returnOf is the workflow of a return: there is no tool to register one before
// an order was found that may be returned, and none to do so twice.
func returnOf(shop *Shop) *workflow.Machine {
	findOrder := workflow.NewMove(flue.Tool{
		Name:        "find_order",
		Description: "Find an order that can be returned. Use it when the customer names one. Returns what was ordered, or says why it cannot be returned.",
	}, "decide", func(_ context.Context, in OrderInput) (string, error) { return shop.Find(in.OrderID) })

	registerReturn := workflow.NewMove(flue.Tool{
		Name:        "register_return",
		Description: "Register the return of an order that was found. Use it when the customer has said why. Returns the number to write on the parcel.",
	}, "registered", func(ctx context.Context, in ReturnInput) (string, error) {
		return shop.Return(in.OrderID, in.Reason, flue.CallKey(ctx))
	})

	return workflow.New("return",
		workflow.State{Name: "identify", Moves: []workflow.Move{findOrder}, Instruction: "Find out which order it is about."},
		workflow.State{Name: "decide", Moves: []workflow.Move{registerReturn, findOrder}, Instruction: "Register the return if the customer wants it and has said why."},
		workflow.State{Name: "registered", Instruction: "The return is registered. There is nothing more to do about it here."},
	)
}

// OrderInput is what the model passes to find_order.
type OrderInput struct {
	OrderID string `json:"orderId" jsonschema:"order number, such as R-1" pattern:"^R-[0-9]+$"`
}

// ReturnInput is what the model passes to register_return.
type ReturnInput struct {
	OrderID string `json:"orderId" jsonschema:"number of the order that was found" pattern:"^R-[0-9]+$"`
	Reason  string `json:"reason" jsonschema:"why the customer returns it" enum:"broken,wrong,unwanted"`
}
