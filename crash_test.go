package flue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store/storetest/faultstore"
	"github.com/flue-go/flue/wire"
)

// A whole is a conversation that uses everything an agent has: all hooks, state
// from calls side by side, a durable tool of ten steps, a tool that another one
// unlocks, a message to itself, a continued response and an approval. It is held
// while the process dies.
type whole struct {
	*stage

	mu      sync.Mutex
	effects map[string]int // what happened outside, by name
}

func (w *whole) effect(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := fmt.Sprintf(format, args...)
	w.effects[name]++
	w.stage.note("%s", name)
}

func (w *whole) happened(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.effects[name]
}

const stepsOfProvision = 10

func newWhole(t testing.TB) *whole {
	w := &whole{effects: make(map[string]int)}
	w.stage = newStage(t, w.agent(), w.model)
	return w
}

// agent is the agent of the conversation.
func (w *whole) agent() *flue.Agent {
	type none struct{}
	provision := flue.NewDurableTool(flue.Tool{Name: "provision", Description: "Provision."},
		func(ctx context.Context, step *flue.Step, _ none) (int, error) {
			sum := 0
			for i := range stepsOfProvision {
				n, err := flue.Do(ctx, step, fmt.Sprintf("seed %d", i), func(context.Context) (int, error) {
					w.effect("step %d", i)
					return i, nil
				})
				if err != nil {
					return 0, err
				}
				sum += n
			}
			return sum, nil
		})
	refund := flue.NewTool(flue.Tool{Name: "refund", Description: "Refund."},
		func(ctx context.Context, _ none) (string, error) {
			w.effect("refund %s", flue.CallKey(ctx))
			return "refunded", nil
		})
	return &flue.Agent{Name: "actor", Render: func(r *flue.Render) string {
		flue.UseModel(r, "fake/any", flue.ModelOptions{Thinking: flue.ThinkingLow})
		count := flue.UsePersistentState(r, "count", 0)
		unlocked := flue.UsePersistentState(r, "unlocked", false)
		continued := flue.UsePersistentState(r, "continued", false)
		told := flue.UsePersistentState(r, "told", false)
		started := flue.UsePersistentState(r, "started", []string(nil))
		finished := flue.UsePersistentState(r, "finished", 0)
		progress := flue.UseDataWriter[string](r, "progress")
		dispatch := flue.UseDispatchMessage(r)
		delivery := flue.UseDelivery(r)
		data := flue.UseInitialData[map[string]string](r)

		flue.UseResponseStart(r, func(context.Context, *flue.ResponseStart) (flue.Metadata, error) {
			return flue.Metadata{"began": true, "by": flue.Metadata{"start": 1}}, nil
		})
		for i := range 2 {
			flue.UseAgentStart(r, func(ctx context.Context, s *flue.AgentStart) error {
				pause(ctx, time.Duration(2-i)*time.Second) // the first is the last to end
				if err := started.Update(ctx, func(all []string) []string { return append(all, fmt.Sprint(i, " ", delivery.Body)) }); err != nil {
					return err
				}
				return s.Append(flue.Signal("briefing", fmt.Sprintf("briefing %d of %s", i, delivery.Body), nil))
			})
		}
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "add", Description: "Add."}, func(ctx context.Context, _ none) (string, error) {
			w.effect("add %s", flue.CallKey(ctx))
			pause(ctx, time.Second)
			return "added", count.Update(ctx, func(n int) int { return n + 1 })
		}))
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "unlock", Description: "Unlock."}, func(ctx context.Context, _ none) (string, error) {
			w.effect("unlock %s", flue.CallKey(ctx))
			for _, at := range []string{"half", "done"} {
				if err := progress.Write(ctx, at); err != nil {
					return "", err
				}
			}
			return "unlocked", unlocked.Set(ctx, true)
		}))
		if unlocked.Value() {
			flue.UseTool(r, provision)
			flue.UseInstruction(r, "You may provision.")
		}
		flue.UseApprovalGate(r, refund, flue.ApprovalPolicy{})
		flue.UseAgentFinish(r, func(ctx context.Context, f *flue.AgentFinish) error {
			w.effect("finish hook")
			switch {
			case len(f.ToolCalls) == 0:
				return nil
			case !continued.Value():
				return errors.Join(continued.Set(ctx, true), f.Append(flue.Signal("check", "check your work", nil)))
			case !told.Value():
				_, err := dispatch(ctx, flue.Signal("memo", "a memo", nil), flue.DispatchOptions{IdempotencyKey: "memo"})
				return errors.Join(told.Set(ctx, true), err)
			}
			return nil
		})
		flue.UseAgentFinish(r, func(ctx context.Context, _ *flue.AgentFinish) error {
			return finished.Update(ctx, func(n int) int { return n + 1 })
		})
		flue.UseResponseFinish(r, func(_ context.Context, f *flue.ResponseFinish) (flue.Metadata, error) {
			return flue.Metadata{"calls": len(f.ToolCalls), "by": flue.Metadata{"finish": 1}, "saw": f.Metadata["began"]}, nil
		})
		return "Play your part for " + data["who"] + "."
	}}
}

// model answers by the conversation alone.
func (w *whole) model(req *model.Request) script.Turn {
	if err := answered(req.Messages); err != nil {
		w.effect("malformed request: %v", err)
	}
	w.stage.note("model")
	// Go back to the latest message that is no answer to a call.
	done := map[string]bool{}
	for i := len(req.Messages) - 1; i >= 0; i-- {
		m := req.Messages[i]
		for _, b := range m.Blocks {
			switch {
			case m.Role == model.RoleTool && !b.IsError:
				done[b.Name] = true
			case m.Role == model.RoleUser && b.Text == "go":
				return w.next(req, done)
			case m.Role == model.RoleUser && strings.Contains(b.Text, ` type="check"`),
				m.Role == model.RoleUser && strings.Contains(b.Text, ` type="memo"`),
				m.Role == model.RoleUser && strings.Contains(b.Text, ` type="approval_result"`),
				m.Role == model.RoleUser && strings.HasPrefix(b.Text, "say "):
				return script.Say("noted: " + b.Text)
			}
		}
	}
	return script.Say("lost")
}

// next is what the model does after "go", given the tools that have succeeded.
func (w *whole) next(req *model.Request, done map[string]bool) script.Turn {
	offered := func(name string) bool {
		return slices.ContainsFunc(req.Tools, func(t model.Tool) bool { return t.Name == name })
	}
	switch {
	case !done["add"]:
		return script.Say("Adding.").Call("add", struct{}{}).Call("add", struct{}{}).Call("add", struct{}{})
	case !done["unlock"]:
		return script.Call("unlock", struct{}{})
	case !done["provision"] && offered("provision"):
		return script.Call("provision", struct{}{})
	case !done["refund"]:
		return script.Call("refund", struct{}{})
	}
	return script.Say("nothing is left to do")
}

// answered checks what every provider demands: each call is answered by the next
// message, once and in order.
func answered(messages []model.Message) error {
	var open []string
	for i, m := range messages {
		var results []string
		for _, b := range m.Blocks {
			if b.Kind == model.ToolResult {
				results = append(results, b.CallID)
			}
		}
		if !slices.Equal(open, results) {
			return fmt.Errorf("message %d answers %q, want %q", i, results, open)
		}
		open = nil
		for _, b := range m.Blocks {
			if b.Kind == model.ToolCall {
				open = append(open, b.CallID)
			}
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("%q have no answer", open)
	}
	return nil
}

// pause waits for a while, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// A death is a write at which the process dies, and what becomes of the write.
type death struct {
	write int
	mode  faultstore.Mode
}

// play holds the conversation with the deaths and returns how many writes each
// life made.
func (w *whole) play(deaths []death) (writes []int) {
	for life := 0; ; life++ {
		if life < len(deaths) {
			w.fault.Crash(deaths[life].write, deaths[life].mode)
		}
		ended := w.live()
		writes = append(writes, w.fault.Calls().Total())
		if ended {
			return writes
		}
		w.die()
		w.open()
	}
}

// die is the end of a process whose store has stopped working.
func (w *whole) die() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.rt.Close(ctx); err != nil {
		w.t.Fatal(err)
	}
	w.fault.Flush()
	w.store = w.store.Reopen()
	w.rt = nil
}

// live does what is left of the conversation. It reports false if the process
// died first.
func (w *whole) live() bool {
	if !w.complete("go", func(ctx context.Context) (flue.Receipt, error) {
		return w.in.Dispatch(ctx, flue.User("go"), flue.SendOptions{IdempotencyKey: "go", InitialData: map[string]string{"who": "the audience"}})
	}) {
		return false
	}
	var waiting string
	for _, a := range w.approvals() {
		waiting = a
	}
	if w.fault.Crashed() {
		return false
	}
	if waiting == "" {
		w.t.Fatalf("nothing was ever asked for approval:\n%s", strings.Join(w.noted(), "\n"))
	}
	return w.complete("the approval", func(ctx context.Context) (flue.Receipt, error) {
		return w.in.Decide(ctx, waiting, flue.Decision{Approve: true, By: "Dana"})
	})
}

// approvals returns the ids of all approvals, decided ones as well.
func (w *whole) approvals() []string {
	var ids []string
	for name := range w.fold().Vars {
		if id, ok := strings.CutPrefix(name, "flue:approval:"); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

func (w *whole) fold() *fold.State {
	w.t.Helper()
	st := &fold.State{Head: -1}
	for _, r := range w.records() {
		if err := st.Apply(r); err != nil {
			w.t.Fatalf("the journal does not fold: %v", err)
		}
	}
	return st
}

// complete sends a message until it is acknowledged and waits for its reply. It
// reports false if the process died first.
func (w *whole) complete(what string, send func(ctx context.Context) (flue.Receipt, error)) bool {
	for range 10_000 { // 100 ms each
		if w.fault.Crashed() {
			return false
		}
		receipt, err := send(w.t.Context())
		if err != nil {
			if errors.Is(err, faultstore.ErrInjected) {
				continue
			}
			w.t.Fatalf("sending %s: %v", what, err)
		}
		for range 10_000 {
			synctest.Wait()
			if w.fault.Crashed() {
				return false
			}
			ctx, cancel := context.WithTimeout(w.t.Context(), 100*time.Millisecond)
			_, err := w.in.Read(ctx, receipt.Submission)
			waited := ctx.Err() != nil
			cancel()
			switch {
			case err == nil:
				return !w.fault.Crashed()
			case !waited && !errors.Is(err, faultstore.ErrInjected):
				w.t.Fatalf("%s did not complete: %v\n%s", what, err, strings.Join(w.noted(), "\n"))
			}
		}
	}
	w.t.Fatalf("%s was not settled in time", what)
	return false
}

// checkFinished checks that no death has skipped the finish hooks: they have run
// after the last turn of the first response, before the approval that comes
// after it is carried out, and after the last turn of all.
func (w *whole) checkFinished() {
	notes := w.noted()
	refund := slices.IndexFunc(notes, func(s string) bool { return strings.HasPrefix(s, "refund ") })
	parts := [][]string{notes}
	if refund >= 0 { // it was begun and died, or it has run
		parts = append(parts, notes[:refund])
	}
	for _, part := range parts {
		if slices.Index(part, "model") < 0 || last(part, "finish hook") < last(part, "model") {
			w.t.Errorf("no finish hook has run after the model's last turn:\n%s", strings.Join(part, "\n"))
		}
	}
}

// last is the position of the last element of the list that is s, or -1.
func last(list []string, s string) int {
	for i, note := range slices.Backward(list) {
		if note == s {
			return i
		}
	}
	return -1
}

// check holds the journal, the world outside and the clients' view to what was
// promised.
func (w *whole) check(deaths int) {
	t := w.t
	st := w.fold()
	if st.Phase != fold.Idle || st.Unsettled() || len(st.Steps) > 0 {
		t.Errorf("the journal ends in phase %s with steps %v", st.Phase, st.Steps)
	}
	w.checkCalls(st, deaths)
	w.checkFinished()
	w.checkSeams(st)
	w.checkClients()

	// Whatever happened, a new process knows the same conversation and the next
	// message works.
	before := w.asked()[len(w.asked())-1]
	w.restart()
	if got := w.say("say hello"); got != "noted: say hello" {
		t.Errorf("the next message is answered %q", got)
	}
	after := w.asked()[len(w.asked())-1]
	if diff := cmp.Diff(before.Messages, after.Messages[:len(before.Messages)]); diff != "" {
		t.Errorf("a new process shows the model another conversation:\n%s", diff)
	}
}

// checkCalls checks what calls and steps did against what was recorded of them.
func (w *whole) checkCalls(st *fold.State, deaths int) {
	t := w.t
	adds, provisioned := 0, 0
	recorded := map[string]int{}
	for _, r := range w.records() {
		switch r := r.(type) {
		case *journal.Outcome:
			switch {
			case r.Failed && !strings.Contains(r.Content, "interrupted"):
				t.Errorf("call %s of %s failed: %s", r.Call, r.Tool, r.Content)
			case r.Failed:
			case r.Tool == "add":
				adds++
			case r.Tool == "provision":
				provisioned++
				if r.Content != "45" {
					t.Errorf("provision returned %s", r.Content)
				}
			}
		case *journal.Step:
			if len(r.Value) > 0 && strings.HasPrefix(r.Scope, "call:") {
				recorded[r.Scope+" "+r.Name]++
			}
		}
	}
	if got := string(st.Vars["count"]); got != fmt.Sprint(adds) {
		t.Errorf("%d calls added one and the count is %s", adds, got)
	}
	if provisioned != 1 {
		t.Errorf("provision succeeded %d times", provisioned)
	}
	for step, n := range recorded {
		if n != 1 {
			t.Errorf("step %s was recorded %d times", step, n)
		}
	}
	repeated := 0
	for i := range stepsOfProvision {
		switch n := w.happened(fmt.Sprintf("step %d", i)); {
		case n == 0:
			t.Errorf("step %d never ran", i)
		default:
			repeated += n - 1
		}
	}
	if repeated > deaths {
		t.Errorf("%d steps ran again in %d deaths: only one can be caught between its end and its record", repeated, deaths)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for effect, n := range w.effects {
		once := strings.HasPrefix(effect, "add ") || strings.HasPrefix(effect, "unlock ") || strings.HasPrefix(effect, "refund ")
		if once && n > 1 || strings.HasPrefix(effect, "malformed") {
			t.Errorf("%s happened %d times", effect, n)
		}
	}
}

// checkSeams checks that what hooks did is there once.
func (w *whole) checkSeams(st *fold.State) {
	t := w.t
	ends := map[string][]string{}
	inputs, cycles := 0, 0
	for _, r := range w.records() {
		switch r := r.(type) {
		case *journal.Settled:
			ends[r.Submission] = append(ends[r.Submission], r.Outcome)
		case *journal.Entry:
			if r.Purpose == journal.Input {
				inputs++
			}
		case *journal.Seam:
			if r.Name == journal.SeamCycle {
				cycles++
			}
		}
	}
	if inputs != 3 || len(ends) != 3 { // go, the memo, the approval
		t.Errorf("%d messages were taken up and %d settled, want 3", inputs, len(ends))
	}
	for id, outcomes := range ends {
		if len(outcomes) != 1 || outcomes[0] != journal.Completed {
			t.Errorf("submission %s settled %q", id, outcomes)
		}
	}
	if cycles != 1 || len(w.signals("check")) != 1 {
		t.Errorf("%d cycles and the checks %q, want one", cycles, w.signals("check"))
	}
	var briefings []string
	for _, r := range w.records() {
		if e, ok := r.(*journal.Entry); ok && e.Message.Type == "briefing" {
			briefings = append(briefings, e.Message.Body)
		}
	}
	if len(briefings) != 6 {
		t.Errorf("the briefings are %q", briefings)
	}
	for i := 0; i+1 < len(briefings); i += 2 {
		if !strings.HasPrefix(briefings[i], "briefing 0") || briefings[i+1] != strings.Replace(briefings[i], "0", "1", 1) {
			t.Errorf("the briefings stand in another order than the hooks: %q", briefings)
			break
		}
	}
	var started []string
	if err := json.Unmarshal(st.Vars["started"], &started); err != nil || len(started) != 6 {
		t.Errorf("the start hooks wrote %q: %v", started, err)
	}
	if results := w.signals("approval_result"); len(results) != 1 {
		t.Errorf("the results of the approval are %q", results)
	}
}

// checkClients checks what clients see.
func (w *whole) checkClients() {
	t := w.t
	snap := w.snapshot()
	var first *wire.Message
	for i := range snap.Messages {
		m := &snap.Messages[i]
		if m.Role != wire.RoleAssistant {
			continue
		}
		if first == nil {
			first = m
		}
		var meta struct {
			Began bool           `json:"began"`
			Saw   bool           `json:"saw"`
			By    map[string]int `json:"by"`
		}
		if err := json.Unmarshal(m.Metadata, &meta); err != nil || !meta.Began || !meta.Saw || meta.By["start"] != 1 || meta.By["finish"] != 1 {
			t.Errorf("the metadata of a response is %s", m.Metadata)
		}
		for _, p := range m.Parts {
			if p.State == wire.StateStreaming || p.State == wire.StateInputAvailable {
				t.Errorf("a part is still %s", p.State)
			}
		}
	}
	var progress []string
	for _, p := range first.Parts {
		if p.Type == "data-progress" {
			progress = append(progress, string(p.Data))
		}
	}
	if len(progress) != 1 || progress[0] != `"done"` {
		t.Errorf("the progress is %q", progress)
	}
}

// TestCrashAnywhereInTheWhole kills the process at every write of a conversation
// that uses everything, in every way in which a write can fail, then at samples
// of two and three writes.
func TestCrashAnywhereInTheWhole(t *testing.T) {
	runs := 0
	play := func(t *testing.T, deaths ...death) (writes []int) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			w := newWhole(t)
			writes = w.play(deaths)
			w.check(len(deaths))
			w.close()
		})
		runs++
		if t.Failed() {
			t.Fatalf("after the deaths %v", deaths)
		}
		return writes
	}
	rng := rand.New(rand.NewPCG(3, 4))
	modes := []faultstore.Mode{faultstore.Before, faultstore.After, faultstore.Late}
	first := play(t)[0]
	pairs := 6
	if testing.Short() {
		pairs = 0
	}
	for n := 1; n <= first; n++ {
		for m, mode := range modes {
			if testing.Short() && n%len(modes) != m {
				continue
			}
			writes := play(t, death{n, mode})
			if len(writes) < 2 {
				continue // it died at its last write
			}
			for range pairs {
				second := death{1 + rng.IntN(writes[1]), modes[rng.IntN(3)]}
				writes := play(t, death{n, mode}, second)
				if len(writes) == 3 && !testing.Short() {
					play(t, death{n, mode}, second, death{1 + rng.IntN(writes[2]), modes[rng.IntN(3)]})
				}
			}
		}
	}
	t.Logf("%d writes, %d runs", first, runs)
}
