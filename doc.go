// Package flue runs durable agents: a Go function declares what an agent is,
// and its conversations survive any crash.
//
// An agent is a function that is rendered before every model call. What it
// calls, its hooks, declares what the model gets: a model, tools, instructions,
// state. What it returns is the instruction.
//
//	type LookupInput struct {
//		OrderID string `json:"orderId" jsonschema:"order number, such as ORD-2024-0042"`
//	}
//
//	var LookupOrder = flue.NewTool(flue.Tool{
//		Name:        "lookup_order",
//		Description: "Look up one order by id. Use it when the customer asks about an order.",
//	}, func(ctx context.Context, in LookupInput) (Order, error) {
//		return orders.Get(ctx, in.OrderID)
//	})
//
//	func OrderAssistant(r *flue.Render) string {
//		flue.UseModel(r, "anthropic/claude-haiku-4-5")
//		flue.UseTool(r, LookupOrder)
//		return "Help customers check the status of their orders."
//	}
//
// Hooks that take a function run it at fixed points of a response: [UseAgentStart]
// before the model reads a message, [UseAgentFinish] when it is done. A tool whose
// work must be completed whatever dies is made with [NewDurableTool]; a call that
// needs a person's word is gated with [UseApprovalGate]. A function that calls hooks
// is a hook, too.
//
// A [Runtime] runs agents. A message that it has accepted is answered exactly
// once, by this process or by another that opens the same store later. What is
// an error for the model's eyes, such as a tool that fails, never ends a
// conversation, and after any ending the next message works.
//
// Package cli makes a program of an agent, with commands to talk to it and to
// serve it over HTTP.
package flue
