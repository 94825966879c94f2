package flue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// An ordeal is a conversation during which the process dies at chosen writes.
type ordeal struct {
	agent func(s **stage) *flue.Agent
	reply func(req *model.Request) script.Turn

	// acts are what people do, one after another. Each is tried until it is done,
	// and once more if the process has died meanwhile.
	acts []func(s *stage) (done bool, err error)

	// check looks at what is left, in a process of its own.
	check func(t *testing.T, s *stage, crashes int)
}

// A lastWrite is a write at which a process dies, and what becomes of the write.
type lastWrite struct {
	n    int
	mode faultstore.Mode
}

// everywhere holds the conversation with a death at every write in every mode,
// and then at a sample of every two writes.
func (o ordeal) everywhere(t *testing.T) {
	t.Helper()
	runs := 0
	rng := rand.New(rand.NewPCG(1, 2))
	var attempt func(prefix []lastWrite)
	attempt = func(prefix []lastWrite) {
		writes := o.run(t, prefix)
		runs++
		if t.Failed() {
			t.Fatalf("after the deaths %v", prefix)
		}
		if len(prefix) == 2 || len(prefix) == 1 && testing.Short() || len(writes) <= len(prefix) {
			return
		}
		for n := 1; n <= writes[len(prefix)]; n++ {
			for m, mode := range []faultstore.Mode{faultstore.Before, faultstore.After, faultstore.Late} {
				if testing.Short() && n%3 != m {
					continue
				}
				if len(prefix) == 0 || rng.IntN(6) == 0 {
					attempt(append(prefix[:len(prefix):len(prefix)], lastWrite{n, mode}))
				}
			}
		}
	}
	attempt(nil)
	t.Logf("%d runs", runs)
}

// run holds the conversation once and returns how many writes each life made.
func (o ordeal) run(t *testing.T, deaths []lastWrite) (writes []int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var s *stage
		s = newStage(t, o.agent(&s), o.reply)
		defer s.close()
		arm := func() {
			if life := len(writes); life < len(deaths) {
				s.fault.Crash(deaths[life].n, deaths[life].mode)
			}
		}
		arm()
		for i := 0; i < len(o.acts); {
			done, err := o.acts[i](s)
			synctest.Wait()
			switch {
			case s.fault.Crashed():
				writes = append(writes, s.fault.Calls().Total())
				s.fault.Flush()
				s.restart()
				arm()
			case err != nil:
				t.Fatalf("act %d: %v", i, err)
			case done:
				i++
			case len(s.observed(flue.EventDamaged)) > 0 || time.Since(began(s)) > 24*time.Hour:
				t.Fatalf("act %d is not done in time", i)
			default:
				time.Sleep(500 * time.Millisecond)
			}
		}
		writes = append(writes, s.fault.Calls().Total())
		s.restart()
		o.check(t, s, len(deaths))
	})
	return writes
}

// began is when the conversation was begun.
func began(s *stage) time.Time {
	if admitted := s.observed(flue.EventAdmitted); len(admitted) > 0 {
		return admitted[0].Time
	}
	return time.Now()
}

// hasSettled reports whether the submission has completed. It fails if it has
// ended otherwise.
func hasSettled(s *stage, submission string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := s.in.Read(ctx, submission)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, faultstore.ErrInjected) {
		return false, nil
	}
	return err == nil, err
}

// sentAndSettled sends a message under a key and reports whether it is settled.
// It keeps the submission.
func sentAndSettled(s *stage, m flue.Message, key string, submission *string) (bool, error) {
	receipt, err := s.in.Dispatch(context.Background(), m, flue.SendOptions{IdempotencyKey: key})
	if err != nil {
		return false, err
	}
	*submission = receipt.Submission
	return hasSettled(s, receipt.Submission)
}

// approves is the act of somebody who approves what waits.
func approves(id *string) func(s *stage) (bool, error) {
	return func(s *stage) (bool, error) {
		waiting, err := s.in.Approvals(context.Background())
		if err != nil {
			return false, err
		}
		if len(waiting) > 0 {
			*id = waiting[0].ID
		}
		receipt, err := s.in.Decide(context.Background(), *id, flue.Decision{Approve: true, By: "Dana"})
		if err != nil {
			return false, err
		}
		return hasSettled(s, receipt.Submission)
	}
}

// asks is the act of a user who wants a release.
func asks(s *stage) (bool, error) {
	var submission string
	return sentAndSettled(s, flue.User("release flue@1.0.0"), "ask", &submission)
}

// asksForRelease is a model that asks for the release that a user message names,
// again if the call was interrupted, and otherwise repeats what it reads.
func asksForRelease(req *model.Request) script.Turn {
	if wanted, ok := releaseWanted(req); ok {
		return script.Call("publish", wanted)
	}
	return script.Say("I hear: " + lastText(req))
}

// releaseWanted is the release that the model is to ask for now, if it is to.
func releaseWanted(req *model.Request) (wanted release, ok bool) {
	for _, m := range req.Messages {
		text := m.Blocks[0].Text
		switch {
		case m.Role == model.RoleUser && strings.HasPrefix(text, "release "):
			wanted.Pkg, wanted.Version, ok = strings.Cut(strings.TrimPrefix(text, "release "), "@")
		case m.Role == model.RoleTool && strings.Contains(text, `"type":"interrupted"`):
			ok = true
		default:
			ok = false
		}
	}
	return wanted, ok
}

// statusOf is the status of the one approval_result in the journal.
func statusOf(t *testing.T, s *stage) string {
	t.Helper()
	var found []string
	for _, e := range recordsOf[*journal.Entry](s) {
		if e.Message.Type == journal.SignalApprovalResult {
			found = append(found, e.Message.Attributes["status"])
		}
	}
	if len(found) != 1 {
		t.Fatalf("the journal has the results %q, want exactly one", found)
	}
	return found[0]
}

// nothingIsLeft checks that no call waits and that the agent works.
func nothingIsLeft(t *testing.T, s *stage) {
	t.Helper()
	if waiting, err := s.in.Approvals(t.Context()); err != nil || len(waiting) > 0 {
		t.Errorf("in the end %v waits, %v", waiting, err)
	}
	if got := s.say("and now"); got != "I hear: and now" {
		t.Errorf("the next message is answered with %q", got)
	}
}

// An approved call of an ordinary tool never runs twice. If it was begun and cut
// the model is told that its outcome is unknown.
func TestApprovedCallCrash(t *testing.T) {
	var id string
	statuses := make(map[string]int)
	ordeal{
		agent: func(s **stage) *flue.Agent {
			publish := flue.NewTool(flue.Tool{Name: "publish", Description: "Publish."}, func(_ context.Context, in release) (string, error) {
				(*s).note("begun %s", in.Version)
				time.Sleep(time.Second)
				(*s).note("published %s", in.Version)
				return "published", nil
			})
			return plain(func(r *flue.Render) { flue.UseApprovalGate(r, publish, flue.ApprovalPolicy{}) })
		},
		reply: asksForRelease,
		acts:  []func(s *stage) (bool, error){asks, approves(&id)},
		check: func(t *testing.T, s *stage, crashes int) {
			status := statusOf(t, s)
			statuses[status]++
			ran := s.noted()
			switch {
			case status == "executed" && cmp.Equal(ran, []string{"begun 1.0.0", "published 1.0.0"}):
			case status == "unknown" && len(ran) <= 2 && crashes > 0:
			default:
				t.Errorf("with %d crashes the result is %q, and %q happened", crashes, status, ran)
			}
			told := s.signals(journal.SignalApprovalResult)[0]
			if status == "unknown" && (!strings.Contains(told, "unknown") || !strings.Contains(told, "not run again")) {
				t.Errorf("the model is told %q", told)
			}
			nothingIsLeft(t, s)
		},
	}.everywhere(t)
	if statuses["executed"] == 0 || statuses["unknown"] == 0 {
		t.Errorf("the results were %v, want both kinds", statuses)
	}
}

// An approved call of a durable tool is completed: each of its steps is recorded
// once, and what is recorded is not done again.
func TestApprovedDurableCallCrash(t *testing.T) {
	var id string
	steps := []string{"tag", "build", "upload"}
	ordeal{
		agent: func(s **stage) *flue.Agent {
			publish := flue.NewDurableTool(flue.Tool{Name: "publish", Description: "Publish."}, func(ctx context.Context, step *flue.Step, in release) (string, error) {
				var made []string
				for _, name := range steps {
					artifact, err := flue.Do(ctx, step, name, func(context.Context) (string, error) {
						for _, r := range recordsOf[*journal.Step](*s) {
							if strings.HasSuffix(r.Name, "/"+name) && len(r.Value) > 0 {
								(*s).note("again %s", name)
							}
						}
						time.Sleep(time.Second)
						(*s).note("%s", name)
						return name + " " + in.Version, nil
					})
					if err != nil {
						return "", err
					}
					made = append(made, artifact)
				}
				return strings.Join(made, ", "), nil
			})
			return plain(func(r *flue.Render) { flue.UseApprovalGate(r, publish, flue.ApprovalPolicy{}) })
		},
		reply: asksForRelease,
		acts:  []func(s *stage) (bool, error){asks, approves(&id)},
		check: func(t *testing.T, s *stage, crashes int) {
			if status := statusOf(t, s); status != "executed" {
				t.Errorf("the result is %q", status)
			}
			if told := s.signals(journal.SignalApprovalResult)[0]; !strings.Contains(told, "tag 1.0.0, build 1.0.0, upload 1.0.0") {
				t.Errorf("the model is told %q", told)
			}
			did := make(map[string]int)
			for _, n := range s.noted() {
				did[n]++
			}
			recorded := make(map[string]int)
			for _, r := range recordsOf[*journal.Step](s) {
				if _, name, ok := strings.Cut(r.Name, "/"); ok && len(r.Value) > 0 {
					recorded[name]++
				}
			}
			for _, name := range steps {
				if did[name] < 1 || did[name] > 1+crashes || did["again "+name] > 0 || recorded[name] != 1 {
					t.Errorf("with %d crashes step %s was done %d times (%d of them after its record) and recorded %d times",
						crashes, name, did[name], did["again "+name], recorded[name])
				}
			}
			nothingIsLeft(t, s)
		},
	}.everywhere(t)
}

// A call that failed when it ran has failed for good.
func TestApprovedFailingCallCrash(t *testing.T) {
	var id string
	ordeal{
		agent: func(s **stage) *flue.Agent {
			publish := flue.NewTool(flue.Tool{Name: "publish", Description: "Publish."}, func(context.Context, release) (string, error) {
				(*s).note("begun")
				return "", errors.New("the registry refused it")
			})
			return plain(func(r *flue.Render) { flue.UseApprovalGate(r, publish, flue.ApprovalPolicy{}) })
		},
		reply: asksForRelease,
		acts:  []func(s *stage) (bool, error){asks, approves(&id)},
		check: func(t *testing.T, s *stage, crashes int) {
			status, ran := statusOf(t, s), len(s.noted())
			if ok := status == "failed" && ran == 1 || status == "unknown" && ran <= 1 && crashes > 0; !ok {
				t.Errorf("with %d crashes the result is %q and it ran %d times", crashes, status, ran)
			}
			nothingIsLeft(t, s)
		},
	}.everywhere(t)
}

// A denial is a denial, whatever dies.
func TestDenialCrash(t *testing.T) {
	var id string
	ordeal{
		agent: func(s **stage) *flue.Agent {
			publish := flue.NewTool(flue.Tool{Name: "publish", Description: "Publish."}, func(context.Context, release) (string, error) {
				(*s).note("ran")
				return "", nil
			})
			return plain(func(r *flue.Render) { flue.UseApprovalGate(r, publish, flue.ApprovalPolicy{Expires: time.Hour}) })
		},
		reply: asksForRelease,
		acts: []func(s *stage) (bool, error){asks, func(s *stage) (bool, error) {
			if waiting, err := s.in.Approvals(context.Background()); err != nil {
				return false, err
			} else if len(waiting) > 0 {
				id = waiting[0].ID
			}
			receipt, err := s.in.Decide(context.Background(), id, flue.Decision{By: "Dana", Reason: "not today"})
			if err != nil {
				return false, err
			}
			return hasSettled(s, receipt.Submission)
		}},
		check: func(t *testing.T, s *stage, _ int) {
			if status := statusOf(t, s); status != "denied" || len(s.noted()) > 0 {
				t.Errorf("the result is %q, and %q happened", status, s.noted())
			}
			time.Sleep(2 * time.Hour) // nor does it expire after that
			if n := len(s.signals(journal.SignalApproval)); n != 1 {
				t.Errorf("there are %d decisions", n)
			}
			nothingIsLeft(t, s)
		},
	}.everywhere(t)
}

// A release of the program changes what the agent declares; a call that waits
// stays what it is.
func TestApprovalAfterARelease(t *testing.T) {
	build := func(s **stage) *flue.ToolDefinition {
		return flue.NewTool(flue.Tool{Name: "publish", Description: "Publish."}, func(_ context.Context, in release) (string, error) {
			(*s).note("published %s", in.Version)
			return "published", nil
		})
	}
	for _, tt := range []struct {
		name   string
		next   func(r *flue.Render, tool *flue.ToolDefinition)
		status string
		ran    int
		told   string
	}{
		{"without the tool", func(*flue.Render, *flue.ToolDefinition) {}, "withdrawn", 0, "no longer there"},
		{"with the tool and no gate", func(r *flue.Render, tool *flue.ToolDefinition) { flue.UseTool(r, tool) }, "executed", 1, "published"},
		{"with a policy that asks for nothing", func(r *flue.Render, tool *flue.ToolDefinition) {
			flue.UseApprovalGate(r, tool, flue.ApprovalPolicy{Needed: func(context.Context, json.RawMessage) (bool, error) { return false, nil }})
		}, "executed", 1, "published"},
		{"with another input", func(r *flue.Render, _ *flue.ToolDefinition) {
			type input struct {
				Tag string `json:"tag"`
			}
			flue.UseApprovalGate(r, flue.NewTool(flue.Tool{Name: "publish", Description: "Publish."},
				func(context.Context, input) (string, error) { return "published", nil }), flue.ApprovalPolicy{})
		}, "failed", 0, "tag"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *stage
				released := false
				tool := build(&s)
				s = newStage(t, plain(func(r *flue.Render) {
					if released {
						tt.next(r, tool)
						return
					}
					flue.UseApprovalGate(r, tool, flue.ApprovalPolicy{})
				}), asksForRelease)
				defer s.close()
				a := s.askFor("flue@1.0.0")
				s.kill()
				released = true
				s.open()
				s.say("hello") // the new program is at work
				time.Sleep(time.Hour)
				if waiting, err := s.in.Approvals(t.Context()); err != nil || len(waiting) != 1 || waiting[0].Hash != a.Hash || len(s.noted()) > 0 {
					t.Fatalf("before the decision %v waits, %v, and %q happened", waiting, err, s.noted())
				}
				s.decide(a.ID, flue.Decision{Approve: true, By: "Dana"})
				if status := statusOf(t, s); status != tt.status || len(s.noted()) != tt.ran {
					t.Errorf("the result is %q, and %q happened", status, s.noted())
				}
				if told := s.signals(journal.SignalApprovalResult)[0]; !strings.Contains(told, tt.told) {
					t.Errorf("the model is told %q", told)
				}
				nothingIsLeft(t, s)
			})
		})
	}
}

// Whatever goes wrong with a policy, the call waits.
func TestApprovalPolicyThatBreaks(t *testing.T) {
	for name, needed := range map[string]func(context.Context, json.RawMessage) (bool, error){
		"panic": func(context.Context, json.RawMessage) (bool, error) { panic("no policy") },
		"error": func(context.Context, json.RawMessage) (bool, error) { return false, errors.New("no policy") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := publisher(t, flue.ApprovalPolicy{Needed: needed})
				defer s.close()
				a := s.askFor("flue@1.0.0-next")
				if len(s.noted()) > 0 {
					t.Fatalf("%q happened", s.noted())
				}
				if got := s.decide(a.ID, flue.Decision{Approve: true, By: "Dana"}); !strings.Contains(got, "published 1.0.0-next") {
					t.Errorf("the model heard %q", got)
				}
			})
		})
	}
}

// Calls that nobody decides on in time are denied: by the runtime for those it
// has worked with, and by a scheduled job for others.
func TestApprovalExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := publisher(t, flue.ApprovalPolicy{Expires: time.Hour})
		defer s.close()
		first := s.askFor("flue@1.0.0")
		if want := first.RequestedAt.Add(time.Hour); !first.ExpiresAt.Equal(want) {
			t.Errorf("it expires at %v, want %v", first.ExpiresAt, want)
		}
		time.Sleep(30 * time.Minute)
		second := s.askFor("flue@2.0.0")
		time.Sleep(30*time.Minute - time.Millisecond)
		if got := s.signals(journal.SignalApproval); len(got) > 0 {
			t.Fatalf("before the time is up there are the decisions %q", got)
		}
		time.Sleep(time.Second)
		if got := s.signals(journal.SignalApprovalResult); len(got) != 1 || !strings.Contains(got[0], "The approval policy denied the call "+first.ID) {
			t.Fatalf("when the time of the first is up the results are %q", got)
		}
		var refused *flue.ApprovalError
		_, err := s.in.Decide(t.Context(), first.ID, flue.Decision{Approve: true, By: "Dana"})
		if !errors.As(err, &refused) && !errors.Is(err, &flue.Error{Code: flue.CodeSubmissionConflict}) {
			t.Errorf("an approval after that: %v", err)
		}
		time.Sleep(30 * time.Minute)
		if got := s.signals(journal.SignalApprovalResult); len(got) != 2 || !strings.Contains(got[1], second.ID) {
			t.Errorf("when the time of the second is up the results are %q", got)
		}
		if len(s.noted()) > 0 {
			t.Errorf("%q happened", s.noted())
		}
	})
	t.Run("while the process is down", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := publisher(t, flue.ApprovalPolicy{Expires: time.Hour})
			defer s.close()
			a := s.askFor("flue@1.0.0")
			s.kill()
			time.Sleep(2 * time.Hour)
			s.open()
			time.Sleep(time.Hour)
			var refused *flue.ApprovalError
			_, err := s.in.Decide(t.Context(), a.ID, flue.Decision{Approve: true, By: "Dana"})
			if !errors.As(err, &refused) || refused.Approval != a.ID || !errors.Is(err, flue.ErrApprovalExpired) {
				t.Errorf("an approval when the time is up: %v", err)
			}
			for round, want := range []int{1, 0} {
				if n, err := s.in.ExpireApprovals(t.Context()); n != want || err != nil {
					t.Errorf("round %d of the job denied %d calls, %v; want %d", round, n, err, want)
				}
				synctest.Wait()
			}
			if got := s.signals(journal.SignalApprovalResult); len(got) != 1 || len(s.noted()) > 0 {
				t.Errorf("the results are %q and %q happened", got, s.noted())
			}
		})
	})
}

// An instance has at most 256 calls that wait. Further ones fail, and the model
// is told why.
func TestApprovalsAreBounded(t *testing.T) {
	const most, asked = 256, 300
	synctest.Test(t, func(t *testing.T) {
		s := publisher(t, flue.ApprovalPolicy{})
		reply := s.reply
		s.reply = func(req *model.Request) script.Turn {
			if lastText(req) != "everything" {
				return reply(req)
			}
			turn := script.Call("publish", release{"flue", "0"})
			for i := 1; i < asked; i++ {
				turn = turn.Call("publish", release{"flue", fmt.Sprint(i)})
			}
			return turn
		}
		defer s.close()
		s.say("everything")
		waiting, err := s.in.Approvals(t.Context())
		if err != nil || len(waiting) != most {
			t.Fatalf("%d calls wait, %v", len(waiting), err)
		}
		refused := 0
		for _, o := range recordsOf[*journal.Outcome](s) {
			if o.Failed && strings.Contains(o.Content, "256") {
				refused++
			}
		}
		if refused != asked-most {
			t.Errorf("%d calls were refused, want %d", refused, asked-most)
		}
		s.decide(waiting[0].ID, flue.Decision{By: "Dana"})
		if s.say("release flue@1.0.0"); len(s.noted()) > 0 {
			t.Errorf("%q happened", s.noted())
		}
		if waiting, err = s.in.Approvals(t.Context()); err != nil || len(waiting) != most {
			t.Errorf("after one was decided and one asked for, %d calls wait, %v", len(waiting), err)
		}
	})
}

// Providers repeat the ids of calls; an approval's id is never another's.
func TestApprovalIDsAreDistinct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := publisher(t, flue.ApprovalPolicy{})
		reply := s.reply
		s.reply = func(req *model.Request) script.Turn {
			if strings.HasPrefix(lastText(req), "release ") {
				return reply(req).ID("call_0")
			}
			return reply(req)
		}
		defer s.close()
		var ids []string
		for i := range 3 {
			a := s.askFor(fmt.Sprintf("flue@%d", i))
			if a.Call != "call_0" || i == 0 && a.ID != "call_0" {
				t.Errorf("approval %d is %s of the call %s", i, a.ID, a.Call)
			}
			var told struct{ ApprovalID string }
			outcomes := recordsOf[*journal.Outcome](s)
			if err := json.Unmarshal(outcomes[len(outcomes)-1].Output, &told); err != nil || told.ApprovalID != a.ID {
				t.Errorf("the call's output names %q, %v; the approval is %s", told.ApprovalID, err, a.ID)
			}
			ids = append(ids, a.ID)
			time.Sleep(time.Second)
		}
		for _, i := range []int{1, 2, 0} {
			s.decide(ids[i], flue.Decision{Approve: true, By: "Dana"})
		}
		want := []string{"publish flue@1 as call_0", "publish flue@2 as call_0", "publish flue@0 as call_0"}
		if diff := cmp.Diff(want, s.noted()); diff != "" {
			t.Errorf("what happened (-want +got):\n%s", diff)
		}
		// The first is decided, and its id is still its own.
		if a := s.askFor("flue@3"); a.ID == "call_0" {
			t.Error("the id of a decided approval was given away again")
		}
	})
}

// Of decisions that come at the same time one counts, and the others are told.
func TestConcurrentDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := publisher(t, flue.ApprovalPolicy{})
		defer s.close()
		a := s.askFor("flue@1.0.0")
		const people = 20
		receipts, errs := make([]flue.Receipt, people), make([]error, people)
		var wg sync.WaitGroup
		for i := range people {
			wg.Go(func() {
				receipts[i], errs[i] = s.in.Decide(context.Background(), a.ID, flue.Decision{Approve: i%2 == 0, By: fmt.Sprintf("Person %d", i)})
			})
		}
		wg.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner < 0 && !receipts[i].Duplicate:
				winner = i
			case !errors.Is(err, &flue.Error{Code: flue.CodeSubmissionConflict}):
				t.Errorf("decision %d: %+v, %v", i, receipts[i], err)
			}
		}
		if winner < 0 {
			t.Fatal("no decision won")
		}
		if _, err := s.read(receipts[winner].Submission); err != nil {
			t.Fatal(err)
		}
		status, ran := statusOf(t, s), len(s.noted())
		if approved := winner%2 == 0; (status == "executed") != approved || (ran == 1) != approved || ran > 1 {
			t.Errorf("decision %d won, the result is %q and it ran %d times", winner, status, ran)
		}
		if told := s.signals(journal.SignalApprovalResult)[0]; !strings.HasPrefix(told, fmt.Sprintf("Person %d ", winner)) {
			t.Errorf("the model is told %q, and person %d decided", told, winner)
		}
	})
}

// What an approved call writes and shows is there exactly once if it was
// executed, and not at all if its outcome is unknown.
func TestApprovedCallWritesCrash(t *testing.T) {
	var id string
	ordeal{
		agent: func(s **stage) *flue.Agent {
			return plain(func(r *flue.Render) {
				published := flue.UsePersistentState(r, "published", 0)
				shown := flue.UseDataWriter[string](r, "release")
				flue.UseInstruction(r, fmt.Sprintf("published=%d", published.Value()))
				flue.UseApprovalGate(r, flue.NewTool(flue.Tool{Name: "publish", Description: "Publish."},
					func(ctx context.Context, in release) (string, error) {
						err := errors.Join(published.Update(ctx, func(n int) int { return n + 1 }), shown.Write(ctx, in.Version))
						time.Sleep(time.Second)
						return "published", err
					}), flue.ApprovalPolicy{})
			})
		},
		reply: asksForRelease,
		acts:  []func(s *stage) (bool, error){asks, approves(&id)},
		check: func(t *testing.T, s *stage, crashes int) {
			status := statusOf(t, s)
			nothingIsLeft(t, s)
			asked := s.asked()
			want := "published=1"
			if status == "unknown" && crashes > 0 {
				want = "published=0"
			}
			if got := asked[len(asked)-1].System; !strings.Contains(got, want) {
				t.Errorf("the call is %s and the next render makes %q, want %s", status, got, want)
			}
			var parts []string
			for _, m := range s.snapshot().Messages {
				for _, p := range m.Parts {
					if strings.HasPrefix(p.Type, "data-") {
						parts = append(parts, p.Type+" "+string(p.Data))
					}
				}
			}
			if status == "executed" && !cmp.Equal(parts, []string{`data-release "1.0.0"`}) {
				t.Errorf("the call is executed and clients see the parts %q", parts)
			}
		},
	}.everywhere(t)
}

// An approved call counts in the same state as start callbacks beside it, and no
// count is lost.
func TestApprovedCallWritesBesideCallbacks(t *testing.T) {
	for name, d := range map[string][2]time.Duration{ // when the callback counts, and when the call does
		"the callback first":            {0, time.Second},
		"the call first":                {time.Second, 0},
		"the call begins, ends between": {1500 * time.Millisecond, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			agent := plain(func(r *flue.Render) {
				count := flue.UsePersistentState(r, "count", 0)
				flue.UseInstruction(r, fmt.Sprintf("count=%d.", count.Value()))
				add := func(ctx context.Context, after time.Duration) error {
					time.Sleep(after)
					return count.Update(ctx, func(n int) int { return n + 1 })
				}
				if flue.UseDelivery(r).Type == journal.SignalApproval {
					for range 2 {
						flue.UseAgentStart(r, func(ctx context.Context, _ *flue.AgentStart) error { return add(ctx, d[0]) })
					}
				}
				flue.UseApprovalGate(r, flue.NewTool(flue.Tool{Name: "publish", Description: "Publish."},
					func(ctx context.Context, _ release) (string, error) {
						err := add(ctx, d[1])
						time.Sleep(2 * time.Second)
						return "published", err
					}), flue.ApprovalPolicy{})
			})
			playing(t, agent, asksForRelease, func(t *testing.T, s *stage) {
				a := s.askFor("flue@1.0.0")
				s.decide(a.ID, flue.Decision{Approve: true, By: "Dana"})
				s.say("and now")
				asked := s.asked()
				if got := asked[len(asked)-1].System; !strings.Contains(got, "count=3.") {
					t.Errorf("two callbacks and the call have counted, and the next render makes %q", got)
				}
			})
		})
	}
}
