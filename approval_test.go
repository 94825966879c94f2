package flue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

type release struct {
	Pkg     string `json:"pkg"`
	Version string `json:"version"`
}

// publisher is a stage whose agent publishes releases; stable ones need
// approval.
func publisher(t *testing.T, policy flue.ApprovalPolicy) *stage {
	var s *stage
	publish := flue.NewTool(flue.Tool{Name: "publish", Description: "Publish a release."},
		func(ctx context.Context, in release) (string, error) {
			s.note("publish %s@%s as %s", in.Pkg, in.Version, flue.CallID(ctx))
			if in.Pkg == "broken" {
				return "", errors.New("the registry refused it")
			}
			return "published " + in.Version, nil
		})
	if policy.Needed == nil {
		policy.Needed = flue.ApproveIf(func(in release) bool { return !strings.Contains(in.Version, "-next") })
	}
	s = newStage(t, plain(func(r *flue.Render) { flue.UseApprovalGate(r, publish, policy) }), func(req *model.Request) script.Turn {
		last := req.Messages[len(req.Messages)-1]
		switch text := last.Blocks[len(last.Blocks)-1].Text; {
		case last.Role == model.RoleTool:
			return script.Say("tool: " + text)
		case strings.Contains(text, "approval_result"):
			return script.Say("heard: " + text)
		case strings.HasPrefix(text, "release "):
			pkg, version, _ := strings.Cut(strings.TrimPrefix(text, "release "), "@")
			return script.Call("publish", release{pkg, version})
		default:
			return script.Say("ok")
		}
	})
	return s
}

// ask has the agent call publish and returns the approval that then waits.
func (s *stage) askFor(pkgVersion string) flue.Approval {
	s.t.Helper()
	if got := s.say("release " + pkgVersion); got != "" {
		s.t.Fatalf("the turn did not end with the call: the model said %q", got)
	}
	waiting, err := s.in.Approvals(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	if len(waiting) == 0 {
		s.t.Fatal("nothing waits for approval")
	}
	return waiting[len(waiting)-1]
}

// decide brings a decision and returns what the model said about it.
func (s *stage) decide(id string, d flue.Decision) string {
	s.t.Helper()
	receipt, err := s.in.Decide(context.Background(), id, d)
	if err != nil {
		s.t.Fatal(err)
	}
	reply, err := s.read(receipt.Submission)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply.Text
}

func TestApprovalGate(t *testing.T) {
	t.Run("a call that needs none runs at once", func(t *testing.T) {
		s := publisher(t, flue.ApprovalPolicy{})
		if got := s.say("release flue@1.0.0-next"); got != "tool: published 1.0.0-next" {
			t.Errorf("the model said %q", got)
		}
	})
	t.Run("approved", func(t *testing.T) {
		s := publisher(t, flue.ApprovalPolicy{})
		a := s.askFor("flue@1.0.0")
		if len(s.noted()) != 0 {
			t.Fatalf("it ran before anybody approved: %q", s.noted())
		}
		s.restart()
		if got := s.say("how is it going?"); got != "ok" {
			t.Errorf("while a call waits, the model said %q", got)
		}
		got := s.decide(a.ID, flue.Decision{Approve: true, By: "Dana"})
		if want := "Dana approved the call " + a.ID + " of publish. It was run. Result: published 1.0.0"; !strings.Contains(got, want) {
			t.Errorf("the model heard %q, want %q", got, want)
		}
		if got := s.noted(); len(got) != 1 || got[0] != "publish flue@1.0.0 as "+a.Call {
			t.Errorf("what ran is %q", got)
		}
		if waiting, err := s.in.Approvals(t.Context()); err != nil || len(waiting) != 0 {
			t.Errorf("after the decision %v waits: %v", waiting, err)
		}
	})
	t.Run("denied", func(t *testing.T) {
		s := publisher(t, flue.ApprovalPolicy{})
		a := s.askFor("flue@1.0.0")
		got := s.decide(a.ID, flue.Decision{By: "Dana", Reason: "not on a Friday"})
		if !strings.Contains(got, "Dana denied") || !strings.Contains(got, "not on a Friday") || len(s.noted()) != 0 {
			t.Errorf("the model heard %q and %q ran", got, s.noted())
		}
	})
	t.Run("the first decision counts", func(t *testing.T) {
		s := publisher(t, flue.ApprovalPolicy{})
		a := s.askFor("flue@1.0.0")
		s.decide(a.ID, flue.Decision{Approve: true, By: "Dana"})
		again, err := s.in.Decide(t.Context(), a.ID, flue.Decision{Approve: true, By: "Dana"})
		if err != nil || !again.Duplicate {
			t.Errorf("the same decision again: %+v, %v", again, err)
		}
		if _, err := s.in.Decide(t.Context(), a.ID, flue.Decision{By: "Dana"}); !errors.Is(err, &flue.Error{Code: flue.CodeSubmissionConflict}) {
			t.Errorf("another decision: %v", err)
		}
		if len(s.noted()) != 1 {
			t.Errorf("what ran is %q", s.noted())
		}
	})
	t.Run("several in any order", func(t *testing.T) {
		s := publisher(t, flue.ApprovalPolicy{})
		first, second := s.askFor("a@1"), s.askFor("b@2")
		s.decide(second.ID, flue.Decision{Approve: true, By: "Dana"})
		s.decide(first.ID, flue.Decision{Approve: true, By: "Dana"})
		if got := strings.Join(s.noted(), "; "); got != "publish b@2 as "+second.Call+"; publish a@1 as "+first.Call {
			t.Errorf("what ran is %q", got)
		}
	})
	t.Run("edited", func(t *testing.T) {
		s := publisher(t, flue.ApprovalPolicy{AllowEdits: true})
		a := s.askFor("flue@1.0.0")
		got := s.decide(a.ID, flue.Decision{Approve: true, By: "Dana", Arguments: asJSON(release{"flue", "1.0.1"})})
		if !strings.Contains(got, "published 1.0.1") || !strings.Contains(s.noted()[0], "flue@1.0.1") {
			t.Errorf("the model heard %q and %q ran", got, s.noted())
		}
		strict := publisher(t, flue.ApprovalPolicy{})
		a = strict.askFor("flue@1.0.0")
		_, err := strict.in.Decide(t.Context(), a.ID, flue.Decision{Approve: true, By: "Dana", Arguments: asJSON(release{"flue", "9"})})
		var refused *flue.ApprovalError
		if !errors.As(err, &refused) {
			t.Errorf("an edit that the policy does not allow: %v", err)
		}
	})
	t.Run("fails", func(t *testing.T) {
		s := publisher(t, flue.ApprovalPolicy{})
		a := s.askFor("broken@1")
		if got := s.decide(a.ID, flue.Decision{Approve: true, By: "Dana"}); !strings.Contains(got, "failed: the registry refused it") {
			t.Errorf("the model heard %q", got)
		}
	})
	t.Run("expires", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := publisher(t, flue.ApprovalPolicy{Expires: time.Hour})
			defer s.close()
			a := s.askFor("flue@1.0.0")
			time.Sleep(time.Hour + time.Second)
			if got := s.signals("approval_result"); len(got) != 1 || !strings.Contains(got[0], a.ID) {
				t.Errorf("when its time is up the results are %q", got)
			}
			if _, err := s.in.Decide(t.Context(), a.ID, flue.Decision{Approve: true, By: "Dana"}); err == nil || len(s.noted()) != 0 {
				t.Errorf("an approval after the expiry: %v; %q ran", err, s.noted())
			}
		})
	})
}
