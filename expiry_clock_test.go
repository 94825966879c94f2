package flue_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store/memstore"
)

// A call waits for as long as its policy says, however wrong the clocks of the process
// that asks for approval and of the one that is told of it are.
func TestExpiryByAnotherClock(t *testing.T) {
	for _, skew := range []time.Duration{-2 * time.Hour, 2 * time.Hour} {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := memstore.New()
				open := func(by time.Duration) *flue.Runtime {
					clock := func() time.Time { return time.Now().Add(by) }
					rt, err := flue.Open(engine.WithClock(context.Background(), clock), flue.Config{
						Agents: []*flue.Agent{{Name: "publisher", Render: gatedForAnHour}}, Store: shared,
						Providers: map[string]model.Provider{"test": script.New(script.Func(askThenSay))},
					})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = rt.Close(context.Background()) })
					return rt
				}
				one, two := open(skew), open(-skew)
				for name, wait := range map[string]time.Duration{"early": 59 * time.Minute, "late": time.Hour + time.Second} {
					asked := time.Now()
					receipt, err := one.Dispatch(t.Context(), "publisher", name, flue.User("publish"))
					if err != nil {
						t.Fatal(err)
					}
					if _, err := one.Instance("publisher", name).Read(t.Context(), receipt.Submission); err != nil {
						t.Fatal(err)
					}
					in := two.Instance("publisher", name)
					waiting, err := in.Approvals(t.Context())
					if err != nil || len(waiting) != 1 {
						t.Fatalf("%v waits, %v", waiting, err)
					}
					if until := waiting[0].ExpiresAt.Sub(asked.Add(time.Hour)).Abs(); until > time.Minute {
						t.Errorf("%s: the time to approve it is said to be up at %v, and it was asked for at %v", name, waiting[0].ExpiresAt, asked)
					}
					time.Sleep(wait) // simulated
					_, err = in.Decide(t.Context(), waiting[0].ID, flue.Decision{Approve: true, By: "Dana"})
					if (err == nil) != (name == "early") {
						t.Errorf("%s: a decision: %v", name, err)
					}
				}
			})
		})
	}
}

func gatedForAnHour(r *flue.Render) string {
	flue.UseModel(r, "test/m")
	flue.UseApprovalGate(r, flue.NewTool(flue.Tool{Name: "publish", Description: "Publish."}, func(context.Context, struct{}) (string, error) {
		return "published", nil
	}), flue.ApprovalPolicy{Expires: time.Hour})
	return "publish"
}

// askThenSay calls publish once.
func askThenSay(req *model.Request) script.Turn {
	if script.LastUser(req) == "publish" && script.Step(req) == 0 {
		return script.Call("publish", struct{}{})
	}
	return script.Say("ok")
}
