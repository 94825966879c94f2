package flue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// charging is an agent with an ordinary tool and a gated one. The counts are what
// the tools have done, by the keys of their calls.
func charging(s **stage) *flue.Agent {
	effect := func(name string) *flue.ToolDefinition {
		return flue.NewTool(flue.Tool{Name: name, Description: name + "."}, func(ctx context.Context, _ struct{}) (string, error) {
			(*s).note("%s %s", name, flue.CallKey(ctx))
			pause(ctx, time.Second)
			return name + " done", ctx.Err()
		})
	}
	return plain(func(r *flue.Render) {
		flue.UseTool(r, effect("charge"))
		flue.UseApprovalGate(r, effect("publish"), flue.ApprovalPolicy{})
	})
}

// doneTwice returns what was done twice.
func doneTwice(notes []string) []string {
	var twice []string
	seen := make(map[string]bool)
	for _, note := range notes {
		if seen[note] {
			twice = append(twice, note)
		}
		seen[note] = true
	}
	return twice
}

// A batch has a call that runs and one that waits for approval. Many messages
// later the one that waits is denied. Wherever the process dies, its sibling is
// not run again, and what was denied is never run.
func TestDeniedCallBesideAnother(t *testing.T) {
	var id string
	say := func(i int) func(s *stage) (bool, error) {
		return func(s *stage) (bool, error) {
			var submission string
			return sentAndSettled(s, flue.User(fmt.Sprint("hello ", i)), fmt.Sprint("hello ", i), &submission)
		}
	}
	o := ordeal{
		agent: charging,
		reply: func(req *model.Request) script.Turn {
			last := req.Messages[len(req.Messages)-1]
			switch text := lastText(req); {
			case last.Role == model.RoleUser && text == "both":
				return script.Call("charge", struct{}{}).Call("publish", struct{}{})
			case last.Role == model.RoleTool && last.Blocks[len(last.Blocks)-1].Name == "publish" && strings.Contains(last.Blocks[len(last.Blocks)-1].Text, "interrupted"):
				return script.Call("publish", struct{}{})
			}
			return script.Say("I hear: " + lastText(req))
		},
		acts: []func(s *stage) (bool, error){
			func(s *stage) (bool, error) {
				var submission string
				return sentAndSettled(s, flue.User("both"), "both", &submission)
			},
			say(1), say(2), say(3), say(4),
			func(s *stage) (bool, error) {
				waiting, err := s.in.Approvals(context.Background())
				if err != nil {
					return false, err
				}
				if len(waiting) > 0 {
					id = waiting[0].ID
				}
				receipt, err := s.in.Decide(context.Background(), id, flue.Decision{By: "Dana"})
				if err != nil {
					return false, err
				}
				return hasSettled(s, receipt.Submission)
			},
		},
		check: func(t *testing.T, s *stage, _ int) {
			if twice := doneTwice(s.noted()); len(twice) > 0 {
				t.Errorf("done twice: %q", twice)
			}
			if got := strings.Join(s.noted(), "; "); strings.Contains(got, "publish") {
				t.Errorf("a call that was denied has run: %s", got)
			}
			if got := statusOf(t, s); got != "denied" {
				t.Errorf("the model was told %q", got)
			}
		},
	}
	o.everywhere(t)
}

// A decision comes while the agent is busy with another call, and joins its
// response. Wherever the process dies, the approved call runs once at most, and
// the model is told of it once.
func TestDecisionJoinsALiveResponse(t *testing.T) {
	var id string
	var busy string
	approve := approves(&id)
	o := ordeal{
		agent: charging,
		reply: func(req *model.Request) script.Turn {
			switch lastText(req) {
			case "publish":
				return script.Call("publish", struct{}{})
			case "charge":
				return script.Call("charge", struct{}{})
			}
			if last := req.Messages[len(req.Messages)-1]; last.Role == model.RoleTool && last.Blocks[0].Name == "publish" && strings.Contains(last.Blocks[0].Text, "interrupted") {
				return script.Call("publish", struct{}{})
			}
			return script.Say("I hear: " + lastText(req))
		},
		acts: []func(s *stage) (bool, error){
			func(s *stage) (bool, error) {
				var submission string
				return sentAndSettled(s, flue.User("publish"), "publish", &submission)
			},
			func(s *stage) (bool, error) { // and at once, while it works
				if _, err := sentAndSettled(s, flue.User("charge"), "charge", &busy); err != nil {
					return false, err
				}
				return approve(s)
			},
			func(s *stage) (bool, error) { return hasSettled(s, busy) },
		},
		check: func(t *testing.T, s *stage, crashes int) {
			if twice := doneTwice(s.noted()); len(twice) > 0 {
				t.Errorf("done twice: %q", twice)
			}
			if got := statusOf(t, s); got != "executed" && (got != "unknown" || crashes == 0) {
				t.Errorf("the model was told %q after %d deaths", got, crashes)
			}
			joined := 0
			for _, r := range recordsOf[*journal.Settled](s) {
				if r.AnsweredBy != r.Submission {
					joined++
				}
			}
			if crashes == 0 && joined != 1 {
				t.Errorf("%d messages joined a response, want the decision", joined)
			}
		},
	}
	o.everywhere(t)
}
