package flue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/wire"
)

// searching calls the tool search as long as it may, and then says what it knows.
func searching(req *model.Request) script.Turn {
	if req.ToolsOff {
		return script.Say("This is what I have found.")
	}
	return script.Call("search", nil)
}

func search(s **stage) *flue.ToolDefinition {
	return flue.NewTool(flue.Tool{Name: "search", Description: "Search."}, func(context.Context, struct{}) (string, error) {
		(*s).note("search")
		return "something", nil
	})
}

// A response that comes to a limit ends with an answer, and its settlement names
// the limit, to the caller, to hooks and to clients.
func TestUseBudget(t *testing.T) {
	var s *stage
	var finish, end *flue.ExhaustedBudget
	s = newStage(t, plain(func(r *flue.Render) {
		flue.UseBudget(r, flue.Budget{ToolCalls: 2, Turns: 50})
		flue.UseBudget(r, flue.Budget{Scope: flue.PerInstance, Turns: 100})
		flue.UseTool(r, search(&s))
		flue.UseAgentFinish(r, func(_ context.Context, f *flue.AgentFinish) error { finish = f.Budget; return nil })
		flue.UseResponseFinish(r, func(_ context.Context, f *flue.ResponseFinish) (flue.Metadata, error) {
			end = f.Budget
			return nil, nil
		})
	}), searching)
	submission := s.send(flue.User("search everything"))
	reply, err := s.read(submission)
	if err != nil {
		t.Fatal(err)
	}
	want := &flue.ExhaustedBudget{Scope: journal.ScopeSubmission, Limit: journal.LimitToolCalls}
	for name, got := range map[string]*flue.ExhaustedBudget{"reply": reply.Budget, "finish hook": finish, "response hook": end} {
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	if reply.Text != "This is what I have found." || len(s.noted()) != 2 {
		t.Errorf("the reply is %q after %d searches", reply.Text, len(s.noted()))
	}
	if got := s.snapshot().Settlements[0]; got.Outcome != "completed" || got.Budget == nil || *got.Budget != (wire.Budget{Scope: "submission", Limit: "tool_calls"}) {
		t.Errorf("clients see the settlement %+v", got)
	}
	last := s.asked()[2]
	if !last.ToolsOff || len(signalsIn(last, "budget")) != 1 {
		t.Errorf("the last request: tools off %v, %q", last.ToolsOff, signalsIn(last, "budget"))
	}
}

// What an instance has used counts for good. A message beyond that is refused, and
// answered again when the budget is raised.
func TestUseBudgetOfTheInstance(t *testing.T) {
	var s *stage
	most := 3
	s = newStage(t, plain(func(r *flue.Render) {
		flue.UseBudget(r, flue.Budget{Scope: flue.PerInstance, Tokens: most})
	}), func(*model.Request) script.Turn { return script.Say("ok").Usage(model.Usage{Input: 1, Output: 1}) })
	for range 2 { // the second response is begun with one token left
		s.say("hello")
	}
	s.restart()
	_, err := s.read(s.send(flue.User("hello")))
	var failed *flue.SubmissionError
	if !errors.As(err, &failed) || failed.Code != flue.CodeBudgetExceeded || !strings.Contains(failed.Message, "tokens") {
		t.Errorf("a message beyond the budget: %v", err)
	}
	if n := len(s.asked()); n != 2 {
		t.Errorf("the model was asked %d times", n)
	}
	most = 100
	if got := s.say("hello"); got != "ok" {
		t.Errorf("with a higher budget: %q", got)
	}
}

// A response keeps the budget with which it began.
func TestBudgetHoldsForTheResponse(t *testing.T) {
	var s *stage
	most := 1
	s = newStage(t, plain(func(r *flue.Render) {
		flue.UseBudget(r, flue.Budget{Turns: most})
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "search", Description: "Search."}, func(context.Context, struct{}) (string, error) {
			most = 10 // for the next one
			return "something", nil
		}))
	}), searching)
	s.say("search")
	if n := len(s.asked()); n != 2 {
		t.Errorf("the model was asked %d times", n)
	}
}

// A decision on a call that waits is carried out, even if the instance has no
// budget left to tell the model of it. Time in which it waits does not count.
func TestBudgetAndApprovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := flue.Budget{Scope: flue.PerInstance, WallTime: time.Hour}
		ran := 0
		publish := flue.NewTool(flue.Tool{Name: "publish", Description: "Publish a release."}, func(context.Context, release) (string, error) {
			ran++
			return "published", nil
		})
		s := newStage(t, plain(func(r *flue.Render) {
			flue.UseBudget(r, budget)
			flue.UseApprovalGate(r, publish, flue.ApprovalPolicy{})
		}), func(req *model.Request) script.Turn {
			if strings.HasPrefix(lastText(req), "release") {
				return script.Call("publish", release{"flue", "1.0.0"})
			}
			return script.Say(fmt.Sprint("heard of ", len(signalsIn(req, "approval_result"))))
		})
		defer s.close()
		waiting := s.askFor("flue@1.0.0")
		time.Sleep(24 * time.Hour)
		if got := s.decide(waiting.ID, flue.Decision{Approve: true, By: "ada"}); got != "heard of 1" || ran != 1 {
			t.Errorf("after a day: %q, %d runs", got, ran)
		}

		waiting = s.askFor("flue@1.0.0")
		budget = flue.Budget{Scope: flue.PerInstance, Turns: 1}
		receipt, err := s.in.Decide(context.Background(), waiting.ID, flue.Decision{Approve: true, By: "ada"})
		if err != nil {
			t.Fatal(err)
		}
		var failed *flue.SubmissionError
		if _, err := s.read(receipt.Submission); !errors.As(err, &failed) || failed.Code != flue.CodeBudgetExceeded {
			t.Errorf("the decision settles as %v", err)
		}
		if ran != 2 {
			t.Errorf("the approved calls were run %d times", ran)
		}
		budget = flue.Budget{}
		if got := s.say("and?"); got != "heard of 2" {
			t.Errorf("with a higher budget the model says %q", got)
		}
	})
}

func ExampleUseBudget() {
	search := flue.NewTool(flue.Tool{Name: "search", Description: "Search the archive."}, func(context.Context, struct{}) (string, error) {
		return "a letter of 1912", nil
	})
	rt, err := flue.Open(context.Background(), flue.Config{
		Agents: []*flue.Agent{{Name: "archivist", Render: func(r *flue.Render) string {
			flue.UseModel(r, "demo/m")
			flue.UseBudget(r, flue.Budget{Turns: 20, ToolCalls: 2, WallTime: 5 * time.Minute})
			flue.UseBudget(r, flue.Budget{Scope: flue.PerInstance, Tokens: 2_000_000})
			flue.UseTool(r, search)
			return "Find what is asked for."
		}}},
		Providers: map[string]model.Provider{"demo": script.New(script.Func(func(req *model.Request) script.Turn {
			if req.ToolsOff { // it has been told that this is its last turn
				return script.Say("So far: two letters of 1912.")
			}
			return script.Call("search", nil)
		}))},
		Store: memstore.New(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer rt.Close(ctx)
	receipt, err := rt.Dispatch(ctx, "archivist", "one", flue.User("Find all letters."))
	if err != nil {
		fmt.Println(err)
		return
	}
	reply, err := rt.Instance("archivist", "one").Read(ctx, receipt.Submission)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(reply.Text)
	fmt.Println("ended by:", reply.Budget)
	// Output:
	// So far: two letters of 1912.
	// ended by: tool_calls of the submission
}
