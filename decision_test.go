package flue_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// gated is a stage whose agent has one gated tool, which takes as long as it is
// told to, and a hook that fails upon a decision while failing is set. The model
// calls the tool upon "call", thinks for ever when told to, and repeats every result that it
// hears of.
func gated(t *testing.T, failing *atomic.Bool, took time.Duration) *stage {
	var s *stage
	type input struct {
		What string `json:"what"`
	}
	tool := flue.NewTool(flue.Tool{Name: "act", Description: "Act."}, func(ctx context.Context, in input) (string, error) {
		s.note("acts on %s", in.What)
		pause(ctx, took)
		return "acted", ctx.Err()
	})
	s = newStage(t, plain(func(r *flue.Render) {
		delivery := flue.UseDelivery(r)
		flue.UseAgentStart(r, func(ctx context.Context, _ *flue.AgentStart) error {
			if delivery.Type == "approval_decision" && failing != nil && failing.Load() {
				pause(ctx, 10*time.Second) // longer than the call
				return errors.New("the hook beside it fails")
			}
			return nil
		})
		flue.UseApprovalGate(r, tool, flue.ApprovalPolicy{})
	}), func(req *model.Request) script.Turn {
		last := req.Messages[len(req.Messages)-1]
		switch last.Blocks[len(last.Blocks)-1].Text {
		case "call":
			return script.Call("act", input{"it"})
		case "think for ever":
			return script.Hang()
		}
		var heard []string
		for _, m := range req.Messages {
			for _, b := range m.Blocks {
				if strings.Contains(b.Text, ` type="approval_result"`) {
					heard = append(heard, b.Text)
				}
			}
		}
		return script.Say("heard: " + strings.Join(heard, "; "))
	})
	return s
}

// waiting returns the one call that waits.
func (s *stage) waiting() flue.Approval {
	s.t.Helper()
	all, err := s.in.Approvals(context.Background())
	if err != nil || len(all) != 1 {
		s.t.Fatalf("%d calls wait for approval: %v", len(all), err)
	}
	return all[0]
}

// nothingWaits checks that every call was decided.
func (s *stage) nothingWaits() {
	s.t.Helper()
	if all, err := s.in.Approvals(context.Background()); err != nil || len(all) != 0 {
		s.t.Errorf("%v still wait: %v", all, err)
	}
}

// What was carried out is not forgotten when the response to the decision fails
// because of something else: the next response tells the model.
func TestDecisionOutlivesItsResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Bool
		failing.Store(true)
		s := gated(t, &failing, time.Second)
		defer s.close()
		s.say("call")
		r, err := s.in.Decide(t.Context(), s.waiting().ID, flue.Decision{Approve: true, By: "Dana"})
		if err != nil {
			t.Fatal(err)
		}
		var failed *flue.SubmissionError
		if _, err := s.read(r.Submission); !errors.As(err, &failed) {
			t.Fatalf("the response to the decision: %v, want that it failed", err)
		}
		s.nothingWaits()
		failing.Store(false)
		s.restart()
		if got := s.say("and?"); !strings.Contains(got, "Dana approved") || !strings.Contains(got, "It was run. Result: acted") {
			t.Errorf("the model %s", got)
		}
		s.say("again")
		if got := len(s.signals("approval_result")); got != 1 || len(s.noted()) != 1 {
			t.Errorf("it was told %d times, and %q ran", got, s.noted())
		}
	})
}

// A call that is aborted while it runs is not forgotten either: its outcome is
// unknown.
func TestAbortOfAnApprovedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := gated(t, nil, time.Minute)
		defer s.close()
		s.say("call")
		r, err := s.in.Decide(t.Context(), s.waiting().ID, flue.Decision{Approve: true, By: "Dana"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // simulated: it runs
		if _, err := s.in.Abort(t.Context()); err != nil {
			t.Fatal(err)
		}
		var aborted *flue.SubmissionError
		if _, err := s.read(r.Submission); !errors.As(err, &aborted) || aborted.Outcome != flue.Aborted {
			t.Fatalf("the aborted response: %v", err)
		}
		s.nothingWaits()
		if got := s.say("and?"); !strings.Contains(got, "unknown") {
			t.Errorf("the model %s", got)
		}
		if len(s.noted()) != 1 {
			t.Errorf("%q ran", s.noted())
		}
	})
}

// A decision whose response ended before it came to the decision has decided
// nothing: the call waits, and can be decided again.
func TestDecisionThatWasNeverTakenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := gated(t, nil, 0)
		defer s.close()
		s.say("call")
		a := s.waiting()
		// The decision waits behind a response that does not end.
		s.send(flue.User("think for ever"))
		time.Sleep(time.Second)
		r, err := s.in.Decide(t.Context(), a.ID, flue.Decision{Approve: true, By: "Dana"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.in.Abort(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.read(r.Submission); err == nil {
			t.Fatal("the decision was not aborted")
		}
		if got := s.waiting(); got.ID != a.ID || len(s.noted()) != 0 {
			t.Fatalf("%q waits, and %q ran", got.ID, s.noted())
		}
		again, err := s.in.Decide(t.Context(), a.ID, flue.Decision{By: "Erin"})
		if err != nil || again.Duplicate {
			t.Fatalf("another decision: %+v, %v", again, err)
		}
		if reply, err := s.read(again.Submission); err != nil || !strings.Contains(reply.Text, "Erin denied") {
			t.Errorf("the reply is %+v: %v", reply, err)
		}
		if _, err := s.in.Decide(t.Context(), a.ID, flue.Decision{Approve: true, By: "Erin"}); !errors.Is(err, &flue.Error{Code: flue.CodeSubmissionConflict}) {
			t.Errorf("a decision after that: %v", err)
		}
		s.nothingWaits()
		if len(s.noted()) != 0 {
			t.Errorf("%q ran", s.noted())
		}
	})
}

// An approved call runs as it would have run when it was made: a tool that is
// bound to the customer of that message is bound to the same one.
func TestApprovedCallKeepsItsCustomer(t *testing.T) {
	var s *stage
	s = newStage(t, plain(func(r *flue.Render) {
		customer := flue.UseDelivery(r).Attributes["customer"]
		flue.UseApprovalGate(r, flue.NewTool(flue.Tool{Name: "refund", Description: "Refund the order."},
			func(context.Context, struct{}) (string, error) {
				s.note("refund to %s", customer)
				return "refunded", nil
			}), flue.ApprovalPolicy{})
	}), func(req *model.Request) script.Turn {
		if script.Step(req) == 0 && len(signalsIn(req, "approval_result")) == 0 {
			return script.Call("refund", struct{}{})
		}
		return script.Say("done")
	})
	if _, err := s.read(s.send(flue.Signal("complaint", "it broke", map[string]string{"customer": "cus_7"}))); err != nil {
		t.Fatal(err)
	}
	s.decide(s.waiting().ID, flue.Decision{Approve: true, By: "Dana"})
	if got := s.noted(); len(got) != 1 || got[0] != "refund to cus_7" {
		t.Errorf("what ran is %q", got)
	}
}

// What an approved call returns is shown to the model as that of any other call:
// of a long result the head and the tail, and it can read on.
func TestLongResultOfAnApprovedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("nothing to report\n", 100_000)
		tool := flue.NewTool(flue.Tool{Name: "act", Description: "Act."}, func(context.Context, struct{}) (string, error) { return long, nil })
		s := newStage(t, plain(func(r *flue.Render) { flue.UseApprovalGate(r, tool, flue.ApprovalPolicy{}) }), func(req *model.Request) script.Turn {
			last := req.Messages[len(req.Messages)-1]
			text := last.Blocks[len(last.Blocks)-1].Text
			if arguments, ok := strings.CutPrefix(text, "read "); ok {
				return script.Call("read_output", arguments)
			}
			if text == "call" {
				return script.Call("act", struct{}{})
			}
			return script.Say("done")
		})
		s.say("call")
		if _, err := s.in.Decide(t.Context(), s.waiting().ID, flue.Decision{Approve: true, By: "ann"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.say("and?")
		asked := s.asked()
		told := ""
		for _, m := range asked[len(asked)-1].Messages {
			for _, b := range m.Blocks {
				if strings.Contains(b.Text, ` type="approval_result"`) {
					told = b.Text
				}
			}
		}
		id := keptID.FindString(told)
		if len(told) > 34<<10 || id == "" || !s.offers("read_output") {
			t.Fatalf("the model is told %d bytes, with %q; it can read on: %v", len(told), id, s.offers("read_output"))
		}
		s.restart()
		s.say(`read {"id":"` + id + `","from":99999}`)
		if got := s.lastResult(); got != "[Lines 99999 to 100000 of 100000.]\nnothing to report\nnothing to report\n" {
			t.Errorf("it reads %.200q", got)
		}
	})
}
