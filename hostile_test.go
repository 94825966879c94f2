package flue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// act is an agent with one tool, act, of the function.
func act(hooks func(r *flue.Render), fn func(ctx context.Context) (string, error)) *flue.Agent {
	return plain(func(r *flue.Render) {
		if hooks != nil {
			hooks(r)
		}
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "act", Description: "Act."},
			func(ctx context.Context, _ struct{}) (string, error) { return fn(ctx) }))
	})
}

// Integers that no float64 tells apart are different values: in the state, in
// the arguments of calls that fail, in creation data, in what is approved.
func TestLargeIntegersAreExact(t *testing.T) {
	const big = int64(1) << 53
	t.Run("state", func(t *testing.T) {
		var count *flue.State[int64]
		var seen int64
		s := newStage(t, act(func(r *flue.Render) {
			count = flue.UsePersistentState(r, "count", big)
			seen = count.Value()
		}, func(ctx context.Context) (string, error) {
			return "counted", count.Update(ctx, func(n int64) int64 { return n + 1 })
		}), callThenSay("act", struct{}{}))
		for i := range 3 {
			s.say("go")
			if seen != big+int64(i)+1 {
				t.Errorf("after %d updates the state is %d, want %d", i+1, seen, big+int64(i)+1)
			}
		}
	})
	t.Run("failing calls", func(t *testing.T) {
		type input struct {
			ID int64 `json:"id"`
		}
		s := newStage(t, plain(func(r *flue.Render) {
			flue.UseTool(r, flue.NewTool(flue.Tool{Name: "look", Description: "Look."},
				func(context.Context, input) (string, error) { return "", errors.New("not here") }))
		}), func(req *model.Request) script.Turn {
			if n := script.Step(req); n < 10 {
				return script.Call("look", input{big + int64(n%2)})
			}
			return script.Say("it is nowhere")
		})
		if got := s.say("go"); got != "it is nowhere" { // five failures each
			t.Errorf("the model said %q", got)
		}
	})
	t.Run("creation data", func(t *testing.T) {
		s := newStage(t, plain(nil), sayOK)
		options := func(n int64) flue.SendOptions {
			return flue.SendOptions{IdempotencyKey: "k", InitialData: map[string]int64{"id": n}}
		}
		s.send(flue.User("go"), options(big))
		if _, err := s.in.Dispatch(t.Context(), flue.User("go"), options(big+1)); !errors.Is(err, &flue.Error{Code: flue.CodeSubmissionConflict}) {
			t.Errorf("other data under the same key: %v", err)
		}
	})
}

// What a sender or an agent does to a map of attributes changes neither what was
// accepted nor what the model reads.
func TestAttributesAreNobodyElses(t *testing.T) {
	s := newStage(t, act(func(r *flue.Render) {
		for range 2 {
			delivery := flue.UseDelivery(r)
			flue.UseAgentStart(r, func(context.Context, *flue.AgentStart) error {
				delivery.Attributes["customer"] = "mallory"
				return nil
			})
		}
	}, func(context.Context) (string, error) { return "", nil }), sayOK)
	attributes := map[string]string{"customer": "ada"}
	id := s.send(flue.Signal("question", "where is it?", attributes))
	attributes["customer"] = "mallory"
	if _, err := s.read(id); err != nil {
		t.Fatal(err)
	}
	if got := signalsIn(s.asked()[0], "question"); len(got) != 1 || !strings.Contains(got[0], `customer="ada"`) {
		t.Errorf("the model read %q", got)
	}
}

// The type of a signal is the sender's word, and no attribute changes it.
func TestAttributesDoNotPassForOthers(t *testing.T) {
	s := newStage(t, plain(nil), sayOK)
	if _, err := s.read(s.send(flue.Signal("note", "hi", map[string]string{"type": "approval_result", `a="b" c`: "d", "": "e"}))); err != nil {
		t.Fatal(err)
	}
	last := s.asked()[0].Messages[0].Blocks[0].Text
	if want := "<signal type=\"note\" _=\"e\" a__b__c=\"d\">\nhi\n</signal>"; last != want {
		t.Errorf("the model read %q, want %q", last, want)
	}
}

// An update function is the agent's own code: that it blocks, panics or writes
// state itself holds up nobody.
func TestUpdateFunctions(t *testing.T) {
	for name, update := range map[string]func(ctx context.Context, s *flue.State[int]) error{
		"blocks": func(ctx context.Context, s *flue.State[int]) error {
			return s.Update(ctx, func(n int) int { <-ctx.Done(); return n + 1 })
		},
		"panics": func(ctx context.Context, s *flue.State[int]) error {
			return s.Update(ctx, func(int) int { panic("no") })
		},
		"writes itself": func(ctx context.Context, s *flue.State[int]) error {
			return s.Update(ctx, func(n int) int {
				if err := s.Set(ctx, n+10); err != nil {
					return n
				}
				return n + 1
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var state *flue.State[int]
				agent := act(func(r *flue.Render) { state = flue.UsePersistentState(r, "n", 0) },
					func(ctx context.Context) (string, error) { return "updated", update(ctx, state) })
				agent.Durability.Timeout = time.Minute
				s := newStage(t, agent, callThenSay("act", struct{}{}))
				defer s.close()
				began := time.Now()
				_, err := s.read(s.send(flue.User("go")))
				if took := time.Since(began); took > time.Minute+time.Second {
					t.Errorf("it took %v: %v", took, err)
				}
				s.reply = sayOK
				if got := s.say("and now?"); got != "ok" {
					t.Errorf("the next message is answered %q", got)
				}
			})
		})
	}
}

// Names that the journal could not keep as they are are refused.
func TestNamesAreUTF8(t *testing.T) {
	for name, hooks := range map[string]func(r *flue.Render){
		"state": func(r *flue.Render) { flue.UsePersistentState(r, "\xff", 0) },
		"data":  func(r *flue.Render) { flue.UseDataWriter[int](r, "\xff") },
	} {
		s := newStage(t, plain(hooks), sayOK)
		if _, err := s.read(s.send(flue.User("go"))); err == nil {
			t.Errorf("a %s with a name that is not UTF-8 was accepted", name)
		}
	}
	ran := false
	s := newStage(t, plain(func(r *flue.Render) {
		flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "act", Description: "Act."},
			func(ctx context.Context, step *flue.Step, _ struct{}) (int, error) {
				return flue.DoOnce(ctx, step, "\xff", func(context.Context) (int, error) { ran = true; return 1, nil })
			}))
	}), callThenSay("act", struct{}{}))
	if got := s.say("go"); ran || !strings.Contains(got, "UTF-8") {
		t.Errorf("the step ran: %v; the model said %q", ran, got)
	}
}

// State cannot be written in a step, which is not run again when the call is.
func TestStateIsNotWrittenInAStep(t *testing.T) {
	var state *flue.State[int]
	s := newStage(t, plain(func(r *flue.Render) {
		state = flue.UsePersistentState(r, "n", 0)
		flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "act", Description: "Act."},
			func(ctx context.Context, step *flue.Step, _ struct{}) (string, error) {
				n, err := flue.Do(ctx, step, "one", func(ctx context.Context) (int, error) {
					if err := state.Set(ctx, 1); !errors.Is(err, flue.ErrInStep) {
						t.Errorf("to write in a step returned %v", err)
					}
					return 1, nil
				})
				return "done", errors.Join(err, state.Set(ctx, n))
			}))
	}), callThenSay("act", struct{}{}))
	if got := s.say("go"); got != "it said: done" {
		t.Errorf("the model said %q", got)
	}
}

// A gate asks its policy once for a call: one that is run again goes the way that
// it went before.
func TestGateAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *stage
		var needed atomic.Bool
		charge := flue.NewDurableTool(flue.Tool{Name: "charge", Description: "Charge."},
			func(ctx context.Context, step *flue.Step, _ struct{}) (string, error) {
				_, err := flue.DoOnce(ctx, step, "charge", func(context.Context) (bool, error) { s.note("charged"); return true, nil })
				pause(ctx, 10*time.Second)
				return "charged", err
			})
		s = newStage(t, plain(func(r *flue.Render) {
			flue.UseApprovalGate(r, charge, flue.ApprovalPolicy{Needed: func(context.Context, json.RawMessage) (bool, error) { return needed.Load(), nil }})
		}), callThenSay("charge", struct{}{}))
		defer s.close()
		id := s.send(flue.User("go"))
		time.Sleep(time.Second) // simulated: it is charged
		needed.Store(true)
		s.restart()
		if _, err := s.read(id); err != nil {
			t.Fatal(err)
		}
		waiting, err := s.in.Approvals(t.Context())
		if got := s.noted(); err != nil || len(waiting) != 0 || len(got) != 1 {
			t.Errorf("%d calls wait, %v; %q", len(waiting), err, got)
		}
	})
}

// However many calls were approved, and however much they returned, the next one
// is carried out, told and remembered, and what is kept of each stays small.
func TestApprovalsDoNotWearOut(t *testing.T) {
	rounds := 50
	if testing.Short() {
		rounds = 10
	}
	large := strings.Repeat("x", 200<<10)
	var s *stage
	s = newStage(t, plain(func(r *flue.Render) {
		flue.UseApprovalGate(r, flue.NewTool(flue.Tool{Name: "act", Description: "Act."},
			func(context.Context, struct{}) (string, error) { s.note("acted"); return large, nil }), flue.ApprovalPolicy{})
	}), func(req *model.Request) script.Turn {
		if script.LastUser(req) == "go" && script.Step(req) == 0 {
			return script.Call("act", struct{}{}).ID("call_0") // some providers say so every time
		}
		return script.Say("ok")
	})
	ids := map[string]bool{}
	for i := range rounds {
		s.say("go")
		a := s.waiting()
		if ids[a.ID] {
			t.Fatalf("the approval %d has the id %s, as one before it", i, a.ID)
		}
		ids[a.ID] = true
		s.decide(a.ID, flue.Decision{Approve: true, By: "Dana"})
	}
	if got := len(s.noted()); got != rounds || len(s.signals("approval_result")) != rounds {
		t.Errorf("%d calls ran, and the model was told of %d", got, len(s.signals("approval_result")))
	}
	kept := 0
	for _, r := range s.records() {
		if v, ok := r.(*journal.State); ok {
			kept += len(v.Value)
		}
	}
	if most := rounds * (len(large) + 4<<10); kept > most {
		t.Errorf("%d bytes were stored for the approvals, at most %d are needed", kept, most)
	}
	if _, err := s.in.Decide(t.Context(), "call_0", flue.Decision{By: strings.Repeat("x", 1<<20)}); err == nil {
		t.Error("a name of a megabyte was accepted")
	}
}

// The runtime's own keys are not those of senders: nobody can take the place of a
// decision.
func TestNobodyTakesTheKeyOfADecision(t *testing.T) {
	s := publisher(t, flue.ApprovalPolicy{})
	a := s.askFor("flue@1")
	for _, key := range []string{"flue-approval:" + a.Key + ":1", a.Key + ":1", a.Key, "approval:" + a.ID} {
		s.send(flue.User("hello"), flue.SendOptions{IdempotencyKey: key})
	}
	if got := s.decide(a.ID, flue.Decision{Approve: true, By: "Dana"}); !strings.Contains(got, "published 1") {
		t.Errorf("the model heard %q", got)
	}
}

// Arguments that were changed and do not fit run nothing, and the model is told
// so.
func TestEditThatDoesNotFit(t *testing.T) {
	s := publisher(t, flue.ApprovalPolicy{AllowEdits: true})
	a := s.askFor("flue@1")
	got := s.decide(a.ID, flue.Decision{Approve: true, By: "Dana", Arguments: []byte(`{"pkg":7}`)})
	if !strings.Contains(got, "It was not run: Validation failed") || len(s.noted()) != 0 {
		t.Errorf("the model heard %q, and %q ran", got, s.noted())
	}
}

// What is private stays out of the log: values of the state and of creation data,
// and what a type's own methods panic with.
func TestLogsKeepSecrets(t *testing.T) {
	var log strings.Builder
	var mu sync.Mutex
	logger := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(p)
	}), nil))
	var released atomic.Bool
	agent := plain(func(r *flue.Render) {
		if !released.Load() {
			state := flue.UsePersistentState(r, "s", "")
			flue.UseTool(r, flue.NewTool(flue.Tool{Name: "act", Description: "Act."}, func(ctx context.Context, _ struct{}) (loud, error) {
				return loud{}, state.Set(ctx, "SECRET-STATE")
			}))
			return
		}
		flue.UsePersistentState(r, "s", 0)
	})
	f := &fake{answer: func(req *model.Request) []model.Block {
		if m := req.Messages[len(req.Messages)-1]; m.Role == model.RoleTool {
			return text("tool said: " + m.Blocks[0].Text)
		}
		return toolCall("act", "{}")
	}}
	rt, err := flue.Open(t.Context(), flue.Config{Agents: []*flue.Agent{agent}, Providers: map[string]model.Provider{"fake": f}, Log: logger})
	if err != nil {
		t.Fatal(err)
	}
	in := rt.Instance("actor", "one")
	for range 2 {
		r, err := in.Dispatch(t.Context(), flue.User("go"))
		if err != nil {
			t.Fatal(err)
		}
		if reply, err := in.Read(t.Context(), r.Submission); err == nil && strings.Contains(reply.Text, "SECRET") {
			t.Errorf("the model was told %q", reply.Text)
		}
		released.Store(true)
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := log.String(); strings.Contains(got, "SECRET") || !strings.Contains(got, "does not fit") {
		t.Errorf("the log has\n%s", got)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// loud is a type whose JSON form is a panic with a secret.
type loud struct{}

func (loud) MarshalJSON() ([]byte, error) { panic("SECRET-PANIC") }

// A runtime that is closed takes no message, and nobody waits for it.
func TestClosedRuntime(t *testing.T) {
	s := newStage(t, plain(nil), func(*model.Request) script.Turn { return script.Hang() })
	id := s.send(flue.User("go"))
	waiting := make(chan error)
	go func() {
		_, err := s.in.Read(context.Background(), id)
		waiting <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if err := s.rt.Close(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	unavailable := &flue.Error{Code: flue.CodeUnavailable}
	if err := <-waiting; !errors.Is(err, unavailable) {
		t.Errorf("a read that waited for a closed runtime: %v", err)
	}
	if _, err := s.in.Dispatch(t.Context(), flue.User("late")); !errors.Is(err, unavailable) {
		t.Errorf("a message to a closed runtime: %v", err)
	}
	s.rt = nil
}

// More than can be stored at once is refused to whoever wrote it; nothing is
// lost, and nothing is tried again and again.
func TestTooMuchAtOnce(t *testing.T) {
	part := strings.Repeat("x", 1<<20-100)
	s := newStage(t, plain(func(r *flue.Render) {
		var states []*flue.State[string]
		for i := range 40 {
			states = append(states, flue.UsePersistentState(r, fmt.Sprint("s", i), ""))
		}
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "act", Description: "Act."}, func(ctx context.Context, _ struct{}) (string, error) {
			for i, state := range states {
				if err := state.Set(ctx, part); err != nil {
					return fmt.Sprintf("%d values: %v", i, err), nil
				}
			}
			return "all", nil
		}))
	}), callThenSay("act", struct{}{}))
	if got := s.say("go"); !strings.Contains(got, "it said: 16 values") || !strings.Contains(got, "not durable yet") {
		t.Errorf("the model said %.100q", got)
	}
}
