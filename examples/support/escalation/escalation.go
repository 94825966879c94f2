// Package escalation lets an agent hand a conversation over to people. It is a
// custom hook: a function that calls the framework's own hooks, so that an agent
// gets a whole behaviour with one call.
//
//	func Support(r *flue.Render) string {
//		flue.UseModel(r, "anthropic/claude-haiku-4-5")
//		escalation.UseEscalation(r, desk)
//		return "Help customers with their orders."
//	}
package escalation

import (
	"context"

	"github.com/flue-go/flue"
)

// A Desk is where people take over. It must be safe for concurrent use.
type Desk interface {
	// Open opens a case and returns its ticket. A conversation has one open
	// case: for the second call it returns the ticket of the first.
	Open(ctx context.Context, c Case) (ticket string, err error)

	// Note adds a text to a case, once for each key.
	Note(ctx context.Context, ticket, key, text string) error
}

// A Case is what people get to know when they take over.
type Case struct {
	Conversation string // the id of the agent's instance
	Reason       Reason
	Summary      string
}

// A Reason is why people should take over.
type Reason string

// The reasons.
const (
	Asked  Reason = "asked_for_person"
	Stuck  Reason = "cannot_help"
	Urgent Reason = "urgent"
)

// UseEscalation lets the agent hand the conversation over to the people at a
// desk. It offers the tool escalate and says when to use it. Once a case is open,
// which is kept in the persistent state, that tool gives way to add_to_case, and
// the agent is told to leave decisions to people.
//
// It returns the ticket of the open case, or "" if there is none, so that the
// agent can withhold what people are to decide from then on:
//
//	if ticket := escalation.UseEscalation(r, desk); ticket == "" {
//		flue.UseTool(r, refundOrder)
//	}
func UseEscalation(r *flue.Render, desk Desk) (ticket string) {
	open := flue.UsePersistentState(r, "escalation:ticket", "")
	if ticket = open.Value(); ticket != "" {
		flue.UseTool(r, addToCase(desk, ticket))
		flue.UseInstruction(r, "People have taken over this conversation, under the ticket "+ticket+". "+
			"Add what the user tells you to the case, and say that they will answer. Promise nothing and decide nothing.")
		return ticket
	}
	flue.UseTool(r, escalate(desk, r.InstanceID(), open))
	flue.UseInstruction(r, "Hand the conversation over with escalate when the user asks for a person, when something is urgent, or when you cannot help.")
	return ""
}

// Input is what the model passes to escalate.
type Input struct {
	Reason  Reason `json:"reason" enum:"asked_for_person,cannot_help,urgent" jsonschema:"why people should take over"`
	Summary string `json:"summary" jsonschema:"what they need to know, in two sentences" minLength:"1" maxLength:"2000"`
}

func escalate(desk Desk, conversation string, open *flue.State[string]) *flue.ToolDefinition {
	return flue.NewTool(flue.Tool{
		Name:        "escalate",
		Description: "Hand this conversation over to people. Returns the ticket of their case, which the user should be told.",
	}, func(ctx context.Context, in Input) (string, error) {
		// If the process dies here the ticket is not kept, and the model may
		// call again: the desk then answers with the same ticket.
		ticket, err := desk.Open(ctx, Case{Conversation: conversation, Reason: in.Reason, Summary: in.Summary})
		if err != nil {
			return "", err
		}
		return "People take over, under the ticket " + ticket + ".", open.Set(ctx, ticket)
	})
}

// Note is what the model passes to add_to_case.
type Note struct {
	Text string `json:"text" jsonschema:"what the user said, in the user's words" minLength:"1" maxLength:"2000"`
}

func addToCase(desk Desk, ticket string) *flue.ToolDefinition {
	return flue.NewTool(flue.Tool{
		Name:        "add_to_case",
		Description: "Add what the user says to the open case " + ticket + ". Use it for everything that the people who work on it should know.",
	}, func(ctx context.Context, in Note) (string, error) {
		return "Added to " + ticket + ".", desk.Note(ctx, ticket, flue.CallKey(ctx), in.Text)
	})
}
