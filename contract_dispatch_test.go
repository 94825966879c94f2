package flue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// settlements are the settled submissions of the journal in order, as "id outcome
// by host".
func (s *stage) settlements() []string {
	s.t.Helper()
	var out []string
	for _, r := range s.records() {
		if e, ok := r.(*journal.Settled); ok {
			out = append(out, fmt.Sprintf("%s %s by %s", e.Submission, e.Outcome, e.AnsweredBy))
		}
	}
	return out
}

// admissions are the bodies of the admitted messages in order.
func (s *stage) admissions() []string {
	s.t.Helper()
	var out []string
	for _, r := range s.records() {
		if a, ok := r.(*journal.Admitted); ok {
			out = append(out, a.Message.Body)
		}
	}
	return out
}

// seamsNamed counts the seams of a name in the journal.
func (s *stage) seamsNamed(name journal.SeamName) int {
	s.t.Helper()
	n := 0
	for _, r := range s.records() {
		if e, ok := r.(*journal.Seam); ok && e.Name == name {
			n++
		}
	}
	return n
}

// What an agent sends to itself has all that a message from outside has: a
// receipt, its place behind what came before, start callbacks of its own and a
// settlement. It joins the live response without cutting anything.
func TestUseDispatchMessage(t *testing.T) {
	var mu sync.Mutex
	var receipts []flue.Receipt
	var prompt string
	kept := make(chan func(ctx context.Context, m flue.Message, o ...flue.DispatchOptions) (flue.Receipt, error), 8)
	var s *stage
	s = newStage(t, plain(func(r *flue.Render) {
		d := flue.UseDelivery(r)
		dispatch := flue.UseDispatchMessage(r)
		flue.UseAgentStart(r, func(context.Context, *flue.AgentStart) error { s.note("start of %s", d.Body); return nil })
		flue.UseTool(r, acting("work", func(ctx context.Context) error {
			prompt = s.post(s.overHTTP(), `{"kind":"user","body":"prompt"}`)
			for _, m := range []flue.Message{flue.User("self"), flue.Signal("tick", "signal", map[string]string{"n": "1"}), flue.User("self")} {
				r, err := dispatch(ctx, m)
				if err != nil {
					return err
				}
				receipts = append(receipts, r)
			}
			for _, want := range []bool{false, true} { // one delivery, told twice
				r, err := dispatch(ctx, flue.User("keyed"), flue.DispatchOptions{IdempotencyKey: flue.CallKey(ctx)})
				if err != nil || r.Duplicate != want {
					t.Errorf("under a key: %+v, %v, want a duplicate: %v", r, err, want)
				}
				if !want {
					receipts = append(receipts, r)
				}
			}
			var misuse *flue.HookError
			if _, err := dispatch(ctx, flue.User("x"), flue.DispatchOptions{}, flue.DispatchOptions{}); !errors.As(err, &misuse) {
				t.Errorf("with two options: %v", err)
			}
			for _, bad := range []flue.Message{flue.Signal("resources", "x", nil), flue.Signal("", "x", nil), {Kind: "other", Body: "x"}} {
				if _, err := dispatch(ctx, bad); !errors.Is(err, &flue.Error{Code: flue.CodeInvalidRequest}) {
					t.Errorf("%+v: %v", bad, err)
				}
			}
			s.note("the tool goes on, its context is %v", ctx.Err())
			kept <- dispatch
			return nil
		}))
	}), func(req *model.Request) script.Turn {
		mu.Lock()
		defer mu.Unlock()
		text, _ := heard(req)
		s.note("call, reading %q", text)
		if text == "go" {
			return script.Call("work", struct{}{})
		}
		return script.Say("answer to " + text)
	})
	host := s.send(flue.User("go"))
	if _, err := s.read(host); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"start of go", `call, reading "go"`, "the tool goes on, its context is <nil>",
		"start of prompt", "start of self", "start of signal", "start of self", "start of keyed", `call, reading "keyed"`,
	}
	if diff := cmp.Diff(want, s.noted()); diff != "" {
		t.Errorf("what happened (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"go", "prompt", "self", "signal", "self", "keyed"}, s.admissions()); diff != "" {
		t.Errorf("admitted (-want +got):\n%s", diff)
	}
	// The model reads them in their order, after the result of the call.
	requests := s.asked()
	var read []string
	last := requests[len(requests)-1].Messages
	for _, m := range last[len(last)-6:] {
		read = append(read, string(m.Role)+" "+m.Blocks[0].Text)
	}
	if diff := cmp.Diff([]string{"tool done", "user prompt", "user self", "user <signal type=\"tick\" n=\"1\">\nsignal\n</signal>", "user self", "user keyed"}, read); diff != "" {
		t.Errorf("the model reads (-want +got):\n%s", diff)
	}
	// Each has a receipt and a settlement of its own, and the host answers.
	ids := []string{prompt}
	for _, r := range receipts {
		if r.Submission == "" || r.UID == "" || r.AcceptedAt.IsZero() || slices.Contains(ids, r.Submission) {
			t.Errorf("the receipt %+v", r)
		}
		ids = append(ids, r.Submission)
	}
	var settled []string
	for _, id := range append(ids, host) {
		settled = append(settled, id+" completed by "+host)
	}
	if diff := cmp.Diff(settled, s.settlements()); diff != "" {
		t.Errorf("settlements (-want +got):\n%s", diff)
	}
	for _, id := range ids {
		reply, err := s.read(id)
		if err != nil || reply.AnsweredBy != host || reply.Text != "answer to keyed" {
			t.Errorf("the reply to %s: %+v, %v", id, reply, err)
		}
	}
	// To an idle instance it is a message that wakes it.
	dispatch := <-kept
	r, err := dispatch(t.Context(), flue.User("later"))
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := s.read(r.Submission); err != nil || reply.AnsweredBy != r.Submission || reply.Text != "answer to later" {
		t.Errorf("to the idle instance: %+v, %v", reply, err)
	}
}

// Code that runs again sends again, each time with a receipt of its own. What is
// in a step is sent once, and so is what has a key.
func TestDispatchRunsAgain(t *testing.T) {
	for _, place := range []string{"a durable tool", "a start callback"} {
		t.Run(place, func(t *testing.T) {
			blocked := make(chan struct{}, 1)
			var lives atomic.Int32
			var mu sync.Mutex
			var receipts []string
			act := func(ctx context.Context, r *flue.Render, step *flue.Step, dispatch func(context.Context, flue.Message, ...flue.DispatchOptions) (flue.Receipt, error)) error {
				plain, err := dispatch(ctx, flue.User("plain"))
				if err != nil {
					return err
				}
				stepped, err := flue.Do(ctx, step, "send", func(ctx context.Context) (string, error) {
					r, err := dispatch(ctx, flue.User("stepped"))
					return r.Submission, err
				})
				if err != nil {
					return err
				}
				keyed, err := dispatch(ctx, flue.User("keyed"), flue.DispatchOptions{IdempotencyKey: "key of the work"})
				if err != nil {
					return err
				}
				mu.Lock()
				receipts = append(receipts, plain.Submission, stepped, keyed.Submission, fmt.Sprint(keyed.Duplicate))
				mu.Unlock()
				if lives.Add(1) == 1 {
					blocked <- struct{}{}
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}
			s := newStage(t, plain(func(r *flue.Render) {
				dispatch := flue.UseDispatchMessage(r)
				body := flue.UseDelivery(r).Body
				if place == "a durable tool" {
					flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, step *flue.Step, _ struct{}) (string, error) {
						return "done", act(ctx, r, step, dispatch)
					}))
					return
				}
				flue.UseAgentStart(r, func(ctx context.Context, a *flue.AgentStart) error {
					if body != "go" {
						return nil
					}
					return act(ctx, r, a.Step, dispatch)
				})
			}), func(req *model.Request) script.Turn {
				if text, rounds := heard(req); text == "go" && rounds == 0 && len(req.Tools) > 0 {
					return script.Call("work", struct{}{})
				}
				return script.Say("ok")
			})
			sub := s.send(flue.User("go"))
			<-blocked
			s.restart()
			if _, err := s.read(sub); err != nil {
				t.Fatal(err)
			}
			got := s.admissions()
			slices.Sort(got)
			if diff := cmp.Diff([]string{"go", "keyed", "plain", "plain", "stepped"}, got); diff != "" {
				t.Errorf("admitted (-want +got):\n%s", diff)
			}
			if len(receipts) != 8 {
				t.Fatalf("receipts %q", receipts)
			}
			if receipts[0] == receipts[4] || receipts[1] != receipts[5] || receipts[2] != receipts[6] || receipts[3] != "false" || receipts[7] != "true" {
				t.Errorf("the receipts of the first run are %q, of the second %q", receipts[:4], receipts[4:])
			}
			for _, id := range []string{receipts[0], receipts[4], receipts[1], receipts[2]} {
				if _, err := s.read(id); err != nil {
					t.Errorf("the message %s: %v", id, err)
				}
			}
			if n := len(s.settlements()); n != 5 {
				t.Errorf("%d settlements, want one for each message: %q", n, s.settlements())
			}
		})
	}
}

// A callback may dispatch. The message joins the response that is under way, has
// its own start callbacks, brings the finish callbacks back, and counts as no
// continuation, however many there are.
func TestDispatchFromCallbacks(t *testing.T) {
	const many = 40 // more than a response may be continued
	var s *stage
	s = newStage(t, plain(func(r *flue.Render) {
		d := flue.UseDelivery(r)
		dispatch := flue.UseDispatchMessage(r)
		announced := flue.UsePersistentState(r, "announced", false)
		sent := flue.UsePersistentState(r, "sent", 0)
		flue.UseAgentStart(r, func(ctx context.Context, _ *flue.AgentStart) error {
			s.note("start of %s", d.Body)
			if announced.Value() {
				return nil
			}
			if _, err := dispatch(ctx, flue.Signal("note", "announcement", nil)); err != nil {
				return err
			}
			return announced.Set(ctx, true)
		})
		flue.UseAgentFinish(r, func(ctx context.Context, f *flue.AgentFinish) error {
			s.note("finish of %s", d.Body)
			if sent.Value() == many {
				return nil
			}
			if _, err := dispatch(ctx, flue.User(fmt.Sprint("more ", sent.Value()+1))); err != nil {
				return err
			}
			return sent.Set(ctx, sent.Value()+1)
		})
	}), sayOK)
	host := s.send(flue.User("go"))
	if _, err := s.read(host); err != nil {
		t.Fatal(err)
	}
	want := []string{"start of go", "start of announcement", "finish of announcement"}
	for i := range many {
		want = append(want, fmt.Sprint("start of more ", i+1), fmt.Sprint("finish of more ", i+1))
	}
	if diff := cmp.Diff(want, s.noted()); diff != "" {
		t.Errorf("callbacks (-want +got):\n%s", diff)
	}
	settled := s.settlements()
	if len(settled) != many+2 || !strings.HasPrefix(settled[len(settled)-1], host) {
		t.Errorf("%d settlements, want %d, the host's last", len(settled), many+2)
	}
	for _, line := range settled {
		if !strings.HasSuffix(line, " completed by "+host) {
			t.Errorf("settled: %s", line)
		}
	}
	if cycles, finishes := s.seamsNamed(journal.SeamCycle), s.seamsNamed(journal.SeamFinish); cycles != 0 || finishes != many {
		t.Errorf("%d continuations and %d ends that gave way to a message, want none and %d", cycles, finishes, many)
	}
	if n := len(s.asked()); n != many+1 {
		t.Errorf("%d model calls, want %d", n, many+1)
	}
	assistants := 0
	for _, m := range s.snapshot().Messages {
		if m.Role == "assistant" {
			assistants++
		}
	}
	if assistants != 1 {
		t.Errorf("%d responses, want one", assistants)
	}
}
