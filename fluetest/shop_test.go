package fluetest_test

import (
	"context"
	"testing"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/fluetest"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// Payments is the card network, as the shop needs it.
type Payments interface {
	Charge(ctx context.Context, order, key string) error
}

type ChargeInput struct {
	Order string `json:"order"`
}

// Shop is an agent that charges cards.
func Shop(payments Payments) *flue.Agent {
	charge := flue.NewDurableTool(flue.Tool{Name: "charge", Description: "Charge the card for one order."},
		func(ctx context.Context, step *flue.Step, in ChargeInput) (string, error) {
			return flue.Do(ctx, step, "charge", func(ctx context.Context) (string, error) {
				return "charged", payments.Charge(ctx, in.Order, flue.CallKey(ctx))
			})
		})
	return &flue.Agent{Name: "shop", Render: func(r *flue.Render) string {
		flue.UseModel(r, "anthropic/claude-haiku-4-5")
		flue.UseTool(r, charge)
		return "Help people to pay for their orders."
	}}
}

// clerk charges the order once and says so. It looks at nothing but the request.
func clerk(req *model.Request) script.Turn {
	if script.Step(req) == 0 {
		return script.Call("charge", ChargeInput{Order: "ORD-1"})
	}
	return script.Say("Your order is paid: " + script.LastResults(req)[0].Text)
}

// bank is a card network that knows idempotency keys.
type bank struct{ world *fluetest.World }

func (b bank) Charge(ctx context.Context, order, key string) error {
	return b.world.EffectWithKey(ctx, "charge "+order, key)
}

func TestShopSurvivesCrashes(t *testing.T) {
	fluetest.Crash(t, fluetest.Scenario{
		Agent:    func(w *fluetest.World) *flue.Agent { return Shop(bank{w}) },
		Model:    clerk,
		Messages: []flue.Message{flue.User("Please charge order ORD-1.")},
	})
}

type noBank struct{}

func (noBank) Charge(context.Context, string, string) error { return nil }

func TestShopAnswers(t *testing.T) {
	ctx := t.Context()
	rt, err := flue.Open(ctx, flue.Config{
		Agents:    []*flue.Agent{Shop(noBank{})},
		Providers: map[string]model.Provider{"anthropic": script.New(script.Func(clerk))},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(ctx)
	in := rt.Instance("shop", "customer-1")
	receipt, err := in.Dispatch(ctx, flue.User("Please charge order ORD-1."))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := in.Read(ctx, receipt.Submission)
	if err != nil {
		t.Fatal(err)
	}
	if reply.Text != "Your order is paid: charged" {
		t.Errorf("the reply is %q", reply.Text)
	}
}

// oldBank is a card network that knows no idempotency keys.
type oldBank struct{ world *fluetest.World }

func (b oldBank) Charge(ctx context.Context, order, _ string) error {
	return b.world.Effect(ctx, "charge "+order)
}

// oldShop is a scenario of a mistake: the card is charged outside of a step.
func oldShop() fluetest.Scenario {
	return fluetest.Scenario{
		Agent: func(w *fluetest.World) *flue.Agent {
			return agent(func(r *flue.Render) {
				flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "charge", Description: "Charge the card for one order."},
					func(ctx context.Context, step *flue.Step, in ChargeInput) (string, error) {
						if err := (oldBank{w}).Charge(ctx, in.Order, ""); err != nil {
							return "", err
						}
						return flue.Do(ctx, step, "receipt", func(ctx context.Context) (string, error) {
							return "charged", w.Effect(ctx, "mail receipt")
						})
					}))
			})
		},
		Model:      clerk,
		Messages:   []flue.Message{flue.User("Please charge order ORD-1.")},
		ReportOnly: true,
	}
}
