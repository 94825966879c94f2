package main

import (
	"context"

	"github.com/flue-go/flue"
)

// customerMessage is the type of signal that carries what a customer wrote. Its
// attribute customerId says who that is, as the code has found out that sends it.
const customerMessage = "customer_message"

// customerOrders returns the agent. A message from the terminal comes from the
// customer of that name, whoever runs the program being trusted to know.
func customerOrders(terminal string) *flue.Agent {
	return &flue.Agent{
		Name: "customer-orders",
		Render: func(r *flue.Render) string {
			flue.UseModel(r, "anthropic/claude-haiku-4-5")
			flue.UseTool(r, lookupCustomerOrder(sender(flue.UseDelivery(r), terminal)))
			return "Help this customer check the status of their orders. Look an order up before you say anything about it."
		},
	}
}

// sender is the customer that the message in front of the model comes from.
func sender(m flue.Message, terminal string) string {
	switch {
	case m.Kind == flue.KindUser:
		return terminal
	case m.Type == customerMessage:
		return m.Attributes["customerId"]
	}
	return ""
}

// LookupInput is what the model passes to lookup_customer_order: an order, and
// not whose it is.
type LookupInput struct {
	OrderID string `json:"orderId" jsonschema:"order number, such as A-1" pattern:"^[A-Z]-[0-9]+$"`
}

// lookupCustomerOrder looks up orders of one customer.
func lookupCustomerOrder(customer string) *flue.ToolDefinition {
	return flue.NewTool(flue.Tool{
		Name:        "lookup_customer_order",
		Description: "Look up one order belonging to this customer. Returns its status, or that this customer has no such order.",
	}, func(_ context.Context, in LookupInput) (string, error) {
		if status, ok := orders[customer][in.OrderID]; ok {
			return status, nil
		}
		// The same for an order of somebody else as for one that nobody has.
		return "No accessible order was found.", nil
	})
}

// orders are the orders of each customer. They stand for a table.
var orders = map[string]map[string]string{
	"ada": {"A-1": "Order A-1 has been shipped.", "A-2": "Order A-2 is being packed."},
	"bob": {"B-7": "Order B-7 was delivered."},
}
