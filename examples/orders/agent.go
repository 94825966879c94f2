package main

import (
	"context"
	"time"

	"github.com/flue-go/flue"
)

// assistant returns the agent: a function with a durable name. What it calls
// declares what the model gets, and what it returns is the instruction.
func assistant(shop *Shop) *flue.Agent {
	lookup, refund := lookupOrder(shop), refundOrder(shop)
	return &flue.Agent{
		Name: "order-assistant",
		Render: func(r *flue.Render) string {
			flue.UseModel(r, "anthropic/claude-haiku-4-5")
			flue.UseTool(r, lookup)
			flue.UseTool(r, refund)
			return `You help the customers of a shop for coffee and tea ware with their orders.
Look an order up before you say anything about it. Refund an order only when the customer asks for it.
If a tool refuses, tell the customer why. Answer in a sentence or two.`
		},
	}
}

// LookupInput is what the model passes to lookup_order.
type LookupInput struct {
	OrderID string `json:"orderId" jsonschema:"order number, such as ORD-2024-0042" pattern:"^ORD-[0-9]{4}-[0-9]{4}$"`
}

func lookupOrder(shop *Shop) *flue.ToolDefinition {
	return flue.NewTool(flue.Tool{
		Name: "lookup_order",
		Description: "Look up one order by its number. Use it when the customer asks where an order is, when it arrives, or what is in it. " +
			"Returns its item, amount, status and dates, and its refund if there was one.",
		Timeout: 15 * time.Second,
	}, func(ctx context.Context, in LookupInput) (*Order, error) {
		return shop.Order(ctx, in.OrderID)
	})
}

// RefundInput is what the model passes to refund_order.
type RefundInput struct {
	OrderID string `json:"orderId" jsonschema:"order number, such as ORD-2024-0042" pattern:"^ORD-[0-9]{4}-[0-9]{4}$"`
	Reason  Reason `json:"reason" jsonschema:"why the customer wants the money back" enum:"damaged,not_received,changed_mind"`
}

func refundOrder(shop *Shop) *flue.ToolDefinition {
	return flue.NewTool(flue.Tool{
		Name: "refund_order",
		Description: "Refund the whole amount of one order. Use it only when the customer clearly asks for a refund and the order's status is delivered. " +
			"Returns the refund's number and amount, or says why the order cannot be refunded.",
		Timeout: 15 * time.Second,
	}, func(ctx context.Context, in RefundInput) (*Refund, error) {
		flue.Log(ctx).Info("refunding", "order", in.OrderID, "reason", string(in.Reason))
		return shop.Refund(ctx, in.OrderID, in.Reason, flue.CallKey(ctx))
	})
}
