package escalation_test

import (
	"context"
	"fmt"
	"log"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/examples/support/escalation"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// A printer is a desk that prints what it gets.
type printer struct{}

func (printer) Open(_ context.Context, c escalation.Case) (string, error) {
	fmt.Printf("desk: a case of %s, %s: %s\n", c.Conversation, c.Reason, c.Summary)
	return "T-1", nil
}

func (printer) Note(_ context.Context, ticket, _, text string) error {
	fmt.Printf("desk: %s: %s\n", ticket, text)
	return nil
}

// One call makes an agent one that can hand over. The model is a script.
func ExampleUseEscalation() {
	helper := &flue.Agent{Name: "helper", Render: func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		escalation.UseEscalation(r, printer{})
		return "Help people."
	}}
	demo := script.New(
		script.Call("escalate", escalation.Input{Reason: escalation.Asked, Summary: "Wants to talk to somebody."}),
		script.Say("Somebody will call you, under the ticket T-1."),
		script.Call("add_to_case", escalation.Note{Text: "It is about a drill."}),
		script.Say("I have told them."),
	)

	ctx := context.Background()
	rt, err := flue.Open(ctx, flue.Config{Agents: []*flue.Agent{helper}, Providers: map[string]model.Provider{"demo": demo}})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)
	in := rt.Instance("helper", "customer-7")
	for _, text := range []string{"I want to talk to somebody!", "It is about a drill."} {
		receipt, err := in.Dispatch(ctx, flue.User(text))
		if err != nil {
			log.Fatal(err)
		}
		reply, err := in.Read(ctx, receipt.Submission)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("agent:", reply.Text)
	}
	// Output:
	// desk: a case of customer-7, asked_for_person: Wants to talk to somebody.
	// agent: Somebody will call you, under the ticket T-1.
	// desk: T-1: It is about a drill.
	// agent: I have told them.
}
