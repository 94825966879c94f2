package fluetest_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/fluetest"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// asTest runs a test for an example, which has none. It prints nothing itself.
func asTest(test func(t *testing.T)) {
	v := flag.Lookup("test.v")
	before := v.Value.String()
	if err := v.Value.Set("false"); err != nil {
		panic(err)
	}
	defer func() {
		if err := v.Value.Set(before); err != nil {
			panic(err)
		}
	}()
	var once sync.Once
	all := func(string, string) (bool, error) { return true, nil }
	testing.RunTests(all, []testing.InternalTest{{Name: "TestExample", F: func(t *testing.T) {
		once.Do(func() { test(t) })
	}}})
}

// The mail is sent in a step, which is right, and by a system that knows no keys.
// Nothing can rule out that it is sent twice, and the report says when.
func ExampleCrash() {
	asTest(func(t *testing.T) {
		report := fluetest.Crash(t, fluetest.Scenario{
			Agent: func(w *fluetest.World) *flue.Agent {
				notify := flue.NewDurableTool(flue.Tool{Name: "notify", Description: "Tell the customer."},
					func(ctx context.Context, step *flue.Step, _ struct{}) (bool, error) {
						return flue.Do(ctx, step, "mail", func(ctx context.Context) (bool, error) {
							return true, w.Effect(ctx, "send mail")
						})
					})
				return &flue.Agent{Name: "support", Render: func(r *flue.Render) string {
					flue.UseModel(r, "anthropic/claude-haiku-4-5")
					flue.UseTool(r, notify)
					return "Help the customer."
				}}
			},
			Model: func(req *model.Request) script.Turn {
				if script.Step(req) == 0 {
					return script.Call("notify", nil)
				}
				return script.Say("You have mail.")
			},
			Messages: []flue.Message{flue.User("Tell me when it is done.")},
		})
		fmt.Println(len(report.Failures), "failures")
		for _, f := range report.Repeated {
			fmt.Println("can happen twice:", f.What)
			fmt.Println("at", f.Deaths[0], f.At)
		}
	})
	// Output:
	// 0 failures
	// can happen twice: "send mail" in a step of notify
	// at 4:before while step "mail" of notify was written: it is not written
}

// The story of one run shows what happened in which process.
func ExampleReplay() {
	asTest(func(t *testing.T) {
		report := fluetest.Replay(t, oldShop(), "4:before")
		for _, line := range report.Runs[1].Story {
			fmt.Println(line)
		}
	})
	// Output:
	// process 1
	//   "Please charge order ORD-1."
	//     the model calls charge {"order":"ORD-1"}
	//     charge begins
	//     "charge ORD-1" in charge, outside of a step
	//     "mail receipt" in a step of charge
	//   DEATH at write 4, step "receipt" of charge: it is not written
	// process 2
	//     what was interrupted is taken up: recovered in phase tools
	//     charge begins
	//     "charge ORD-1" in charge, outside of a step
	//     "mail receipt" in a step of charge
	//     charge ends: charged
	//     the model says "Your order is paid: charged"
	//   "Please charge order ORD-1." again
	//     it is answered "Your order is paid: charged"
	// one more process, to which one more message is sent
}

// A fake of a system that keeps something outlives the process. It can be asked,
// by the agent and in the end.
func ExampleOutside() {
	type inbox struct{ mails []string }
	inboxOf := func(w *fluetest.World) *inbox {
		return fluetest.Outside(w, "inbox", func() *inbox { return new(inbox) })
	}
	asTest(func(t *testing.T) {
		fluetest.Crash(t, fluetest.Scenario{
			Agent: func(w *fluetest.World) *flue.Agent {
				box := inboxOf(w)
				return &flue.Agent{Name: "writer", Render: func(r *flue.Render) string {
					flue.UseModel(r, "anthropic/claude-haiku-4-5")
					flue.UseAgentStart(r, func(context.Context, *flue.AgentStart) error {
						if len(box.mails) == 0 { // look before you act
							box.mails = append(box.mails, "welcome")
						}
						return nil
					})
					return "Write."
				}}
			},
			Messages: []flue.Message{flue.User("hello")},
			Check: func(o *fluetest.Outcome) error {
				if n := len(inboxOf(o.World).mails); n != 1 {
					return fmt.Errorf("%d mails", n)
				}
				return nil
			},
		})
		fmt.Println("failed:", t.Failed())
	})
	// Output: failed: false
}
