package flue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/wire"
)

// acting is a tool without input that runs fn and says "done".
func acting(name string, fn func(ctx context.Context) error) *flue.ToolDefinition {
	return flue.NewTool(flue.Tool{Name: name, Description: "Tool " + name + "."}, func(ctx context.Context, _ struct{}) (string, error) {
		if fn != nil {
			if err := fn(ctx); err != nil {
				return "", err
			}
		}
		return "done", nil
	})
}

// isNarration reports whether the message is the runtime's word on what the
// agent declares.
func isNarration(m model.Message) bool {
	return m.Role == model.RoleUser &&
		(strings.HasPrefix(m.Blocks[0].Text, `<signal type="resources"`) || strings.HasPrefix(m.Blocks[0].Text, `<signal type="instructions"`))
}

// heard is the last message that somebody sent, and rounds is how many batches of
// calls have come since.
func heard(req *model.Request) (text string, rounds int) {
	for _, m := range slices.Backward(req.Messages) {
		switch {
		case m.Role == model.RoleTool:
			rounds++
		case m.Role == model.RoleUser && !isNarration(m):
			return m.Blocks[0].Text, rounds
		}
	}
	return "", rounds
}

// callsFirst calls the tools, one a turn, then says ok.
func callsFirst(tools ...string) func(req *model.Request) script.Turn {
	return func(req *model.Request) script.Turn {
		if _, rounds := heard(req); rounds < len(tools) {
			return script.Call(tools[rounds], struct{}{})
		}
		return script.Say("ok")
	}
}

// offered are the names of the tools of a request.
func offered(req *model.Request) string {
	names := make([]string, len(req.Tools))
	for i, tool := range req.Tools {
		names[i] = tool.Name
	}
	return strings.Join(names, " ")
}

// failure sends a message that must fail and returns why it did.
func (s *stage) failure(m flue.Message) error {
	s.t.Helper()
	id := s.send(m)
	_, err := s.read(id)
	var failed *flue.SubmissionError
	if !errors.As(err, &failed) || failed.Outcome != flue.Failed {
		s.t.Fatalf("%q: %v, want a failed submission", m.Body, err)
	}
	// Observers are told after the fact is durable, so perhaps after the reader.
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, ev := range s.observed(flue.EventSettled) {
			if ev.Submission == id {
				return ev.Error
			}
		}
	}
	s.t.Fatalf("%q: the observer is never told how it ended", m.Body)
	return nil
}

// There is one render before each model call, also when a message joins. Each
// begins from nothing and records its hooks in the order of their calls.
func TestRenders(t *testing.T) {
	var s *stage
	s = newStage(t, &flue.Agent{Render: func(r *flue.Render) string {
		delivery := flue.UseDelivery(r).Body
		s.note("render for %s", delivery)
		dispatch := flue.UseDispatchMessage(r)
		flue.UseInstruction(r, "first")
		if delivery == "go" {
			flue.UseTool(r, acting("once", nil))
		}
		flue.UseModel(r, "fake/any")
		flue.UseTool(r, acting("work", func(ctx context.Context) error {
			if delivery != "go" {
				return nil
			}
			_, err := dispatch(ctx, flue.User("more"))
			return err
		}))
		flue.UseInstruction(r, "second")
		return "For " + delivery + "."
	}}, func(req *model.Request) script.Turn {
		text, _ := heard(req)
		s.note("call for %s", text)
		return callsFirst("work")(req)
	})
	s.say("go")
	want := []string{"render for go", "call for go", "render for more", "call for more", "render for more", "call for more"}
	if diff := cmp.Diff(want, s.noted()); diff != "" {
		t.Errorf("renders and model calls (-want +got):\n%s", diff)
	}
	requests := s.asked()
	for i, want := range []struct{ tools, system string }{
		{"once work", "For go.\n\nfirst\n\nsecond"},
		{"work", "For more.\n\nfirst\n\nsecond"},
		{"work", "For more.\n\nfirst\n\nsecond"},
	} {
		if got := offered(requests[i]); got != want.tools || requests[i].System != want.system {
			t.Errorf("request %d has the tools %q and the instruction %q, want %+v", i, got, requests[i].System, want)
		}
	}
}

// everyHook calls each hook of the package in a way that is right in a render.
func everyHook() map[string]func(r *flue.Render) {
	return map[string]func(r *flue.Render){
		"UseModel":           func(r *flue.Render) { flue.UseModel(r, "fake/any") },
		"UseInstruction":     func(r *flue.Render) { flue.UseInstruction(r, "text") },
		"UseTool":            func(r *flue.Render) { flue.UseTool(r, acting("late", nil)) },
		"UseApprovalGate":    func(r *flue.Render) { flue.UseApprovalGate(r, acting("late", nil), flue.ApprovalPolicy{}) },
		"UsePersistentState": func(r *flue.Render) { flue.UsePersistentState(r, "late", 0) },
		"UseInitialData":     func(r *flue.Render) { flue.UseInitialData[int](r) },
		"UseDelivery":        func(r *flue.Render) { flue.UseDelivery(r) },
		"UseDispatchMessage": func(r *flue.Render) { flue.UseDispatchMessage(r) },
		"UseDataWriter":      func(r *flue.Render) { flue.UseDataWriter[int](r, "late") },
		"UseAgentStart": func(r *flue.Render) {
			flue.UseAgentStart(r, func(context.Context, *flue.AgentStart) error { return nil })
		},
		"UseAgentFinish": func(r *flue.Render) {
			flue.UseAgentFinish(r, func(context.Context, *flue.AgentFinish) error { return nil })
		},
		"UseResponseStart": func(r *flue.Render) {
			flue.UseResponseStart(r, func(context.Context, *flue.ResponseStart) (flue.Metadata, error) { return nil, nil })
		},
		"UseResponseFinish": func(r *flue.Render) {
			flue.UseResponseFinish(r, func(context.Context, *flue.ResponseFinish) (flue.Metadata, error) { return nil, nil })
		},
	}
}

// misused is the HookError that fn panics with.
func misused(t *testing.T, fn func()) (misuse *flue.HookError) {
	t.Helper()
	defer func() {
		t.Helper()
		p := recover()
		var ok bool
		if misuse, ok = p.(*flue.HookError); !ok {
			t.Errorf("it panicked with %v, want a HookError", p)
			misuse = &flue.HookError{}
		}
	}()
	fn()
	return nil
}

// A hook that is called out of its render fails and says which it is, wherever
// it is called. The process goes on.
func TestHooksOutsideTheirRender(t *testing.T) {
	hooks := everyHook()
	hooks["a custom hook"] = func(r *flue.Render) {
		inner := everyHook()
		inner["UseInitialData"](r) // the first one fails
		inner["UseDelivery"](r)
	}
	named := func(name string) string {
		if name == "a custom hook" {
			return "UseInitialData"
		}
		return name
	}
	var kept *flue.Render
	s := newStage(t, plain(func(r *flue.Render) {
		kept = r
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "misuse", Description: "Misuse a hook."}, func(_ context.Context, in struct {
			Hook string `json:"hook"`
		},
		) (string, error) {
			hooks[in.Hook](r)
			return "nothing happened", nil
		}))
		name, within := strings.CutPrefix(flue.UseDelivery(r).Body, "in a callback: ")
		flue.UseAgentStart(r, func(context.Context, *flue.AgentStart) error {
			if within {
				hooks[name](r)
			}
			return nil
		})
	}), func(req *model.Request) script.Turn {
		text, rounds := heard(req)
		if name, ok := strings.CutPrefix(text, "in a tool: "); ok && rounds == 0 {
			return script.Call("misuse", map[string]string{"hook": name})
		}
		if rounds > 0 {
			return script.Say(script.LastResults(req)[0].Text)
		}
		return script.Say("ok")
	})
	s.say("hello")
	for _, name := range slices.Sorted(maps.Keys(hooks)) {
		t.Run(name, func(t *testing.T) {
			hook := named(name)
			if m := misused(t, func() { hooks[name](kept) }); m.Hook != hook || m.Agent != "actor" || !strings.Contains(m.Error(), "outside its render") {
				t.Errorf("with a kept render: %v", m)
			}
			if m := misused(t, func() { hooks[name](nil) }); m.Hook != hook || !strings.Contains(m.Error(), "without a render") {
				t.Errorf("without a render: %v", m)
			}
			// In a tool it is the tool's error. The model is not told of a panic.
			if got := s.say("in a tool: " + name); !strings.Contains(got, "internal error") || strings.Contains(got, hook) {
				t.Errorf("in a tool the model reads %q", got)
			}
			events := s.observed(flue.EventToolDone)
			if last := events[len(events)-1]; last.OK || last.Error == nil || !strings.Contains(last.Error.Error(), "flue: "+hook+" in agent actor: was called outside its render") {
				t.Errorf("in a tool the observer is told %v", last.Error)
			}
			// In a callback it fails the submission.
			if err := s.failure(flue.User("in a callback: " + name)); !strings.Contains(err.Error(), "flue: "+hook+" in agent actor: was called outside its render") {
				t.Errorf("in a callback: %v", err)
			}
			if got := s.say("hello"); got != "ok" {
				t.Errorf("afterwards the agent says %q", got)
			}
		})
	}
}

// pens are the functions with which an agent writes, as one render had them.
type pens struct {
	set, update, write, dispatch func(ctx context.Context) error
}

func usePens(r *flue.Render) *pens {
	n := flue.UsePersistentState(r, "n", 0)
	w := flue.UseDataWriter[int](r, "n")
	send := flue.UseDispatchMessage(r)
	return &pens{
		set:      func(ctx context.Context) error { return n.Set(ctx, 1) },
		update:   func(ctx context.Context) error { return n.Update(ctx, func(n int) int { return n + 1 }) },
		write:    func(ctx context.Context) error { return w.Write(ctx, 1) },
		dispatch: func(ctx context.Context) error { _, err := send(ctx, flue.User("smuggled")); return err },
	}
}

// refused holds the errors of all writes to what is wanted; a dispatch is refused
// by its hook.
func (p *pens) refused(t *testing.T, place string, ctx context.Context, want error) {
	t.Helper()
	for name, write := range map[string]func(ctx context.Context) error{"Set": p.set, "Update": p.update, "Write": p.write} {
		if err := write(ctx); !errors.Is(err, want) {
			t.Errorf("%s, %s: %v, want %v", place, name, err, want)
		}
	}
	var misuse *flue.HookError
	if err := p.dispatch(ctx); !errors.As(err, &misuse) || misuse.Hook != "UseDispatchMessage" || misuse.Agent != "actor" {
		t.Errorf("%s, dispatch: %v, want a HookError", place, err)
	}
}

// What writes does so for running code only: not while a render reads, not for
// one that observes a response, and not after the code has ended.
func TestWritersDuringARender(t *testing.T) {
	var call context.Context // of the tool call, kept beyond its end
	var begun *flue.AgentStart
	var finished *flue.AgentFinish
	appends := func(place string) {
		if begun == nil {
			return
		}
		if err := begun.Append(flue.Signal("late", "x", nil)); !errors.Is(err, flue.ErrCallOver) {
			t.Errorf("%s, append of a start callback: %v", place, err)
		}
		if finished == nil {
			return
		}
		if err := finished.Append(flue.Signal("late", "x", nil)); !errors.Is(err, flue.ErrCallOver) {
			t.Errorf("%s, append of a finish callback: %v", place, err)
		}
	}
	s := newStage(t, plain(func(r *flue.Render) {
		p := usePens(r)
		p.refused(t, "in a render", context.Background(), flue.ErrNoCall)
		if call != nil {
			p.refused(t, "in a render, with the context of a finished call", call, flue.ErrCallOver)
		}
		appends("in a render")
		flue.UseTool(r, acting("work", func(ctx context.Context) error {
			call = ctx
			for name, write := range map[string]func(ctx context.Context) error{"Set": p.set, "Update": p.update, "Write": p.write} {
				if err := write(context.Background()); !errors.Is(err, flue.ErrNoCall) {
					t.Errorf("in a tool, with a context of no call, %s: %v", name, err)
				}
			}
			appends("in a tool")
			return nil
		}))
		flue.UseAgentStart(r, func(_ context.Context, a *flue.AgentStart) error { begun = a; return nil })
		flue.UseAgentFinish(r, func(_ context.Context, a *flue.AgentFinish) error { finished = a; return nil })
		flue.UseResponseStart(r, func(ctx context.Context, _ *flue.ResponseStart) (flue.Metadata, error) {
			p.refused(t, "in a response's start", ctx, flue.ErrNoCall)
			return nil, nil
		})
		flue.UseResponseFinish(r, func(ctx context.Context, _ *flue.ResponseFinish) (flue.Metadata, error) {
			p.refused(t, "in a response's finish", ctx, flue.ErrNoCall)
			appends("in a response's finish")
			return nil, nil
		})
	}), callsFirst("work"))
	s.say("one")
	s.say("two")
	if call == nil || begun == nil || finished == nil {
		t.Fatal("the callbacks have not run")
	}
	appends("outside")
	for _, r := range s.records() {
		switch r := r.(type) {
		case *journal.State, *journal.Data, *journal.Metadata:
			t.Errorf("the journal has %+v", r)
		case *journal.Outcome:
			if len(r.Writes) > 0 {
				t.Errorf("the outcome has the writes %+v", r.Writes)
			}
		case *journal.Entry:
			if r.Purpose == journal.Appended {
				t.Errorf("the journal has %+v", r)
			}
		case *journal.Admitted:
			if r.Message.Body != "one" && r.Message.Body != "two" {
				t.Errorf("%q was admitted", r.Message.Body)
			}
		}
	}
}

// Once a call has ended its context is good for nothing, whoever kept it.
func TestContextOfAFinishedCall(t *testing.T) {
	var p *pens
	var call, callback context.Context
	s := newStage(t, plain(func(r *flue.Render) {
		mine := usePens(r)
		flue.UseTool(r, acting("work", func(ctx context.Context) error { p, call = mine, ctx; return nil }))
		flue.UseAgentStart(r, func(ctx context.Context, _ *flue.AgentStart) error { callback = ctx; return nil })
	}), callsFirst("work"))
	s.say("go")
	before := len(s.records())
	for place, ctx := range map[string]context.Context{"after the call": call, "after the callback": callback} {
		for name, write := range map[string]func(ctx context.Context) error{"Set": p.set, "Update": p.update, "Write": p.write} {
			if err := write(ctx); !errors.Is(err, flue.ErrCallOver) {
				t.Errorf("%s, %s: %v", place, name, err)
			}
		}
	}
	if after := len(s.records()); after != before {
		t.Errorf("%d records were written", after-before)
	}
}

// Tools, states and event hooks may appear, vanish and change their order from
// one render of a response to the next: each render gets what it declared.
func TestDeclarationsMayChange(t *testing.T) {
	var s *stage
	s = newStage(t, plain(func(r *flue.Render) {
		turn := flue.UsePersistentState(r, "turn", 0)
		a := func() { flue.UseTool(r, acting("a", nil)) }
		b := func() { flue.UseTool(r, acting("b", nil)) }
		x := func() { s.note("turn %d: x is %q", turn.Value(), flue.UsePersistentState(r, "x", "unset").Value()) }
		y := func() { s.note("turn %d: y is %d", turn.Value(), flue.UsePersistentState(r, "y", 7).Value()) }
		finish := func(name string) {
			flue.UseAgentFinish(r, func(context.Context, *flue.AgentFinish) error { s.note("turn %d: %s", turn.Value(), name); return nil })
		}
		step := func(tell func(ctx context.Context) error) {
			flue.UseTool(r, acting("step", func(ctx context.Context) error {
				if tell != nil {
					if err := tell(ctx); err != nil {
						return err
					}
				}
				return turn.Set(ctx, turn.Value()+1)
			}))
		}
		switch turn.Value() {
		case 0:
			finish("never reached")
			x()
			y()
			step(nil)
			a()
		case 1:
			b()
			a()
			y()
			x()
			step(nil)
		case 2:
			z := flue.UsePersistentState(r, "z", "")
			step(func(ctx context.Context) error { return z.Set(ctx, "set") })
			b()
		default:
			s.note("z is %q", flue.UsePersistentState(r, "z", "").Value())
			x()
			finish("one")
			finish("two")
		}
	}), callsFirst("step", "step", "step"))
	s.say("go")
	var tools []string
	for _, req := range s.asked() {
		tools = append(tools, offered(req))
	}
	if diff := cmp.Diff([]string{"step a", "b a step", "step b", ""}, tools); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	want := []string{
		`turn 0: x is "unset"`, "turn 0: y is 7",
		"turn 1: y is 7", `turn 1: x is "unset"`,
		`z is "set"`, `turn 3: x is "unset"`, "turn 3: one", "turn 3: two",
	}
	if diff := cmp.Diff(want, s.noted()); diff != "" {
		t.Errorf("states and hooks (-want +got):\n%s", diff)
	}
}

// A later render that has lost its UseModel fails the submission and says what to
// do, and only that submission.
func TestLaterRenderWithoutAModel(t *testing.T) {
	s := newStage(t, &flue.Agent{Render: func(r *flue.Render) string {
		turn := flue.UsePersistentState(r, "turn", 0)
		if turn.Value() != 1 {
			flue.UseModel(r, "fake/any")
		}
		flue.UseTool(r, acting("step", func(ctx context.Context) error { return turn.Set(ctx, 1) }))
		flue.UseTool(r, acting("reset", func(ctx context.Context) error { return turn.Set(ctx, 2) }))
		return "Play your part."
	}}, callsFirst("step"))
	err := s.failure(flue.User("go"))
	for _, want := range []string{"flue: UseModel in agent actor", "requires a model", `flue.UseModel(r, "provider/model")`, "every render"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error %v does not have %q", err, want)
		}
	}
	if n := len(s.asked()); n != 1 {
		t.Errorf("the model was called %d times, want once", n)
	}
	// Clients are told no detail.
	for _, settlement := range s.snapshot().Settlements {
		if strings.Contains(string(settlement.Error), "UseModel") {
			t.Errorf("a client is told %s", settlement.Error)
		}
	}
	s.agent.Render = plain(nil).Render // a release that is mended
	s.restart()
	if got := s.say("again"); got == "" {
		t.Error("the next message has no answer")
	}
}

// A response runs on the model and the thinking level of the render with which
// it started, whatever later renders say, also when a message joins and when
// another process goes on. The next submission has the new ones.
func TestModelIsReadOncePerSubmission(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash=%v", crash), func(t *testing.T) {
			waiting := make(chan struct{}, 1)
			var blocks atomic.Bool
			blocks.Store(crash)
			s := newStage(t, &flue.Agent{Render: func(r *flue.Render) string {
				big := flue.UsePersistentState(r, "big", false)
				if big.Value() {
					flue.UseModel(r, "fake/big", flue.ModelOptions{Thinking: flue.ThinkingHigh})
				} else {
					flue.UseModel(r, "fake/small", flue.ModelOptions{Thinking: flue.ThinkingLow})
				}
				dispatch := flue.UseDispatchMessage(r)
				flue.UseTool(r, acting("grow", func(ctx context.Context) error {
					if _, err := dispatch(ctx, flue.User("more"), flue.DispatchOptions{IdempotencyKey: flue.CallKey(ctx)}); err != nil {
						return err
					}
					return big.Set(ctx, true)
				}))
				flue.UseTool(r, acting("wait", func(ctx context.Context) error {
					if blocks.Load() {
						waiting <- struct{}{}
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}))
				return "Play your part."
			}}, func(req *model.Request) script.Turn {
				switch text, rounds := heard(req); {
				case text == "go" && rounds == 0:
					return script.Call("grow", struct{}{})
				case text == "more" && rounds == 0:
					return script.Call("wait", struct{}{})
				default:
					return script.Say("ok")
				}
			})
			first := s.send(flue.User("go"))
			if crash {
				<-waiting
				blocks.Store(false)
				s.restart()
			}
			if _, err := s.read(first); err != nil {
				t.Fatal(err)
			}
			s.say("next")
			var got []string
			for _, req := range s.asked() {
				got = append(got, req.Model+" "+string(req.Thinking))
			}
			// before, after the write and with the joined message, after its call; then the next submission
			want := []string{"small low", "small low", "small low", "big high"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("models (-want +got):\n%s", diff)
			}
		})
	}
}

// A model that the next release of the program no longer has is replaced by that
// of the latest render, in a response that was under way.
func TestModelThatIsGone(t *testing.T) {
	waiting := make(chan struct{}, 1)
	s := newStage(t, plain(func(r *flue.Render) {
		flue.UseTool(r, acting("wait", func(ctx context.Context) error {
			waiting <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}))
	}), callsFirst("wait"))
	sub := s.send(flue.User("go"))
	<-waiting
	s.kill()
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{{Name: "actor", Render: func(r *flue.Render) string {
			flue.UseModel(r, "new/model")
			return ""
		}}},
		Providers: map[string]model.Provider{"new": s}, Store: s.store, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	if _, err := rt.Instance("actor", "one").Read(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	if requests := s.asked(); requests[0].Model != "any" || requests[len(requests)-1].Model != "model" {
		t.Errorf("the models are %q and then %q", requests[0].Model, requests[len(requests)-1].Model)
	}
}

// The level of ModelOptions reaches the model. Without one it is medium for a
// model that is known to reason, and left to the provider for any other.
func TestThinkingLevel(t *testing.T) {
	var mu atomic.Pointer[[]flue.ModelOptions]
	a := &flue.Agent{Name: "actor", Render: func(r *flue.Render) string {
		flue.UseModel(r, "fake/"+flue.UseDelivery(r).Body, *mu.Load()...)
		return ""
	}}
	s := &stage{t: t, reply: sayOK}
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{a}, Providers: map[string]model.Provider{"fake": s}, Log: slog.New(slog.DiscardHandler), RetryBase: time.Millisecond,
		Catalog: func(provider, id string) (model.Info, bool) {
			return model.Info{ContextWindow: 1000, Reasoning: id == "reasoner"}, provider == "fake" && id != "stranger"
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	none := []flue.ModelOptions{}
	type row struct {
		model   string
		options []flue.ModelOptions
		want    flue.Thinking
	}
	rows := []row{
		{"reasoner", none, flue.ThinkingMedium},
		{"reasoner", []flue.ModelOptions{{}}, flue.ThinkingMedium},
		{"talker", none, ""},
		{"stranger", none, ""},
	}
	for _, level := range []flue.Thinking{
		flue.ThinkingOff, flue.ThinkingMinimal, flue.ThinkingLow, flue.ThinkingMedium, flue.ThinkingHigh, flue.ThinkingXHigh, flue.ThinkingMax,
	} {
		for _, m := range []string{"reasoner", "talker", "stranger"} {
			rows = append(rows, row{m, []flue.ModelOptions{{Thinking: level}}, level})
		}
	}
	in := rt.Instance("actor", "one")
	for _, tt := range rows {
		mu.Store(&tt.options)
		r, err := in.Dispatch(t.Context(), flue.User(tt.model))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Read(t.Context(), r.Submission); err != nil {
			t.Fatal(err)
		}
		requests := s.asked()
		if last := requests[len(requests)-1]; last.Model != tt.model || last.Thinking != tt.want {
			t.Errorf("%s with %+v: the model %q is asked to think %q, want %q", tt.model, tt.options, last.Model, last.Thinking, tt.want)
		}
	}
}

// The texts of UseInstruction come after the one that the agent function returns,
// in the order of their calls, with a blank line between, and are not touched.
func TestInstructions(t *testing.T) {
	useHouseRules := func(r *flue.Render) {
		flue.UseInstruction(r, "House rule one.")
		func(r *flue.Render) { flue.UseInstruction(r, "House rule two.") }(r)
	}
	for _, tt := range []struct {
		name  string
		hooks func(r *flue.Render)
		text  string
		want  string
	}{
		{"nothing", func(*flue.Render) {}, "", ""},
		{"what is returned", func(*flue.Render) {}, "Be brief.", "Be brief."},
		{"one text", func(r *flue.Render) { flue.UseInstruction(r, "Add this.") }, "Be brief.", "Be brief.\n\nAdd this."},
		{"several texts", func(r *flue.Render) {
			flue.UseInstruction(r, "One.")
			flue.UseInstruction(r, "Two.")
			flue.UseInstruction(r, "One.")
		}, "Be brief.", "Be brief.\n\nOne.\n\nTwo.\n\nOne."},
		{"of custom hooks, in the order of the calls", func(r *flue.Render) {
			flue.UseInstruction(r, "One.")
			useHouseRules(r)
			flue.UseInstruction(r, "Two.")
		}, "Be brief.", "Be brief.\n\nOne.\n\nHouse rule one.\n\nHouse rule two.\n\nTwo."},
		{"nothing is returned", func(r *flue.Render) { flue.UseInstruction(r, "Alone.") }, "", "Alone."},
		{"blanks are returned", func(r *flue.Render) { flue.UseInstruction(r, "Alone.") }, " \n\t", "Alone."},
		{"a text of several lines", func(r *flue.Render) {
			flue.UseInstruction(r, "# Rules\n\n- one\n  - two\n\n\n```\ncode\n```")
		}, "Be brief.\n  Really.", "Be brief.\n  Really.\n\n# Rules\n\n- one\n  - two\n\n\n```\ncode\n```"},
		{"white space around a text", func(r *flue.Render) {
			flue.UseInstruction(r, "    indented\n")
			flue.UseInstruction(r, "\tlast\n\n")
		}, "Be brief.", "Be brief.\n\n    indented\n\n\n\tlast\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, &flue.Agent{Render: func(r *flue.Render) string {
				flue.UseModel(r, "fake/any")
				tt.hooks(r)
				return tt.text
			}}, sayOK)
			s.say("go")
			if got := s.asked()[0].System; got != tt.want {
				t.Errorf("the instruction is %q, want %q", got, tt.want)
			}
		})
	}
}

// useGate is a custom hook that nests another. It mounts tools, states, texts and
// event hooks, takes an argument and returns a value.
func useGate(r *flue.Render, s *stage, code string) (open bool) {
	approved := flue.UsePersistentState(r, "approved", false)
	flue.UseInstruction(r, "Ask for the code.")
	flue.UseTool(r, acting("approve_"+code, func(ctx context.Context) error { return approved.Set(ctx, true) }))
	useTrace(r, s, "gate")
	if approved.Value() {
		flue.UseTool(r, acting("publish", nil))
	}
	return approved.Value()
}

func useTrace(r *flue.Render, s *stage, name string) {
	opened := flue.UseDataWriter[string](r, "trace")
	flue.UseAgentStart(r, func(ctx context.Context, a *flue.AgentStart) error {
		s.note("start of %s", name)
		return a.Append(flue.Signal("trace", name, nil))
	})
	flue.UseAgentFinish(r, func(ctx context.Context, _ *flue.AgentFinish) error {
		s.note("finish of %s", name)
		return opened.Write(ctx, name)
	})
	flue.UseInstruction(r, "You are traced.")
}

// A custom hook is a plain function: what it calls has the same effect as if it
// were written in its place.
func TestCustomHook(t *testing.T) {
	play := func(hooks func(r *flue.Render, s *stage) bool) (*stage, []string) {
		var s *stage
		s = newStage(t, &flue.Agent{Render: func(r *flue.Render) string {
			flue.UseInstruction(r, "Before.")
			flue.UseModel(r, "fake/any")
			flue.UseTool(r, acting("first", nil))
			open := hooks(r, s)
			flue.UseInstruction(r, "After.")
			flue.UseTool(r, acting("last", nil))
			return fmt.Sprintf("Open: %v.", open)
		}}, callsFirst("approve_42", "publish"))
		reply, err := s.read(s.send(flue.User("go")))
		if err != nil {
			t.Fatal(err)
		}
		trace := append(s.noted(), fmt.Sprintf("data %s", reply.Data["trace"]))
		for _, req := range s.asked() {
			trace = append(trace, offered(req)+" | "+req.System)
		}
		return s, append(trace, s.signals("trace")...)
	}
	_, custom := play(func(r *flue.Render, s *stage) bool { return useGate(r, s, "42") })
	_, inline := play(func(r *flue.Render, s *stage) bool {
		approved := flue.UsePersistentState(r, "approved", false)
		flue.UseInstruction(r, "Ask for the code.")
		flue.UseTool(r, acting("approve_42", func(ctx context.Context) error { return approved.Set(ctx, true) }))
		opened := flue.UseDataWriter[string](r, "trace")
		flue.UseAgentStart(r, func(_ context.Context, a *flue.AgentStart) error {
			s.note("start of gate")
			return a.Append(flue.Signal("trace", "gate", nil))
		})
		flue.UseAgentFinish(r, func(ctx context.Context, _ *flue.AgentFinish) error {
			s.note("finish of gate")
			return opened.Write(ctx, "gate")
		})
		flue.UseInstruction(r, "You are traced.")
		if approved.Value() {
			flue.UseTool(r, acting("publish", nil))
		}
		return approved.Value()
	})
	if diff := cmp.Diff(inline, custom); diff != "" {
		t.Errorf("inline and custom differ (-inline +custom):\n%s", diff)
	}
	want := []string{
		"start of gate", "finish of gate", `data ["gate"]`,
		"first approve_42 last | Open: false.\n\nBefore.\n\nAsk for the code.\n\nYou are traced.\n\nAfter.",
		"first approve_42 publish last | Open: true.\n\nBefore.\n\nAsk for the code.\n\nYou are traced.\n\nAfter.",
		"first approve_42 publish last | Open: true.\n\nBefore.\n\nAsk for the code.\n\nYou are traced.\n\nAfter.",
		"gate",
	}
	if diff := cmp.Diff(want, custom); diff != "" {
		t.Errorf("what the custom hook does (-want +got):\n%s", diff)
	}

	// What is unique in a render is so through any depth of custom hooks.
	for _, tt := range []struct {
		name  string
		again func(r *flue.Render)
		want  string
	}{
		{"model", func(r *flue.Render) { flue.UseModel(r, "fake/any") }, "flue: UseModel in agent actor: was called twice"},
		{"tool", func(r *flue.Render) { flue.UseTool(r, acting("approve_42", nil)) }, `named "approve_42"`},
		{"state", func(r *flue.Render) { flue.UsePersistentState(r, "approved", 1) }, `flue: UsePersistentState in agent actor: got the name "approved" twice`},
		{"data part", func(r *flue.Render) { flue.UseDataWriter[int](r, "trace") }, `flue: UseDataWriter in agent actor: got the name "trace" twice`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			useOuter := func(r *flue.Render) { func(r *flue.Render) { tt.again(r) }(r) }
			var s *stage
			s = newStage(t, plain(func(r *flue.Render) {
				useGate(r, s, "42")
				useOuter(r)
			}), sayOK)
			if err := s.failure(flue.User("go")); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %q", err, tt.want)
			}
			if n := len(s.asked()); n != 0 {
				t.Errorf("the model was called %d times", n)
			}
		})
	}
}

// declared is one set of tools of TestResourcesSignal and what the model is told
// when it comes after the one before it.
type declared struct {
	tools []*flue.ToolDefinition
	want  string // nothing if there is no signal
}

// When the tools differ from those that the model was told last, it is told so
// before it is called: once, in words that end with all there are. Their order is
// no difference, and the first ones are nothing to tell.
func TestResourcesSignal(t *testing.T) {
	type byName struct {
		Name string `json:"name"`
	}
	a, b, c, d := acting("a", nil), acting("b", nil), acting("c", nil), acting("d", nil)
	described := flue.NewTool(flue.Tool{Name: "b", Description: "Other words."}, func(context.Context, struct{}) (string, error) { return "", nil })
	reshaped := flue.NewTool(flue.Tool{Name: "b", Description: "Other words."}, func(context.Context, byName) (string, error) { return "", nil })
	sets := []declared{
		{nil, ""}, // next alone: the baseline
		{[]*flue.ToolDefinition{a}, "New tool available:\n- **a** — Tool a.\nAll available tools: next, a"},
		{[]*flue.ToolDefinition{a}, ""},
		{[]*flue.ToolDefinition{a, b, c}, "New tools available:\n- **b** — Tool b.\n- **c** — Tool c.\nAll available tools: next, a, b, c"},
		{[]*flue.ToolDefinition{c, a, b}, ""},
		{[]*flue.ToolDefinition{b, d}, "New tool available:\n- **d** — Tool d.\nThe tool \"a\" is no longer available.\nThe tool \"c\" is no longer available.\nAll available tools: next, b, d"},
		{[]*flue.ToolDefinition{described, d}, "The tool \"b\" was updated.\nAll available tools: next, b, d"},
		{[]*flue.ToolDefinition{reshaped, d}, "The tool \"b\" was updated.\nAll available tools: next, b, d"},
		{[]*flue.ToolDefinition{b, d}, "The tool \"b\" was updated.\nAll available tools: next, b, d"},
		{[]*flue.ToolDefinition{b}, "The tool \"d\" is no longer available.\nAll available tools: next, b"},
		{[]*flue.ToolDefinition{b, d}, "New tool available:\n- **d** — Tool d.\nAll available tools: next, b, d"},
		{nil, "The tool \"b\" is no longer available.\nThe tool \"d\" is no longer available.\nAll available tools: next"},
	}
	var bare atomic.Bool
	agent := func(perMessage bool) *flue.Agent {
		return plain(func(r *flue.Render) {
			if bare.Load() {
				return
			}
			at := flue.UsePersistentState(r, "at", 0)
			move := func(ctx context.Context) error { return at.Update(ctx, func(n int) int { return n + 1 }) }
			flue.UseTool(r, flue.NewTool(flue.Tool{Name: "next", Description: "Go on."}, func(ctx context.Context, _ struct{}) (string, error) {
				if perMessage {
					return "moved", errors.Join(move(ctx), flue.EndTurn)
				}
				return "moved", move(ctx)
			}))
			for _, tool := range sets[min(at.Value(), len(sets)-1)].tools {
				flue.UseTool(r, tool)
			}
		})
	}
	check := func(t *testing.T, s *stage) {
		t.Helper()
		var told []string
		requests := s.asked()
		for i, set := range sets {
			req := requests[i]
			if set.want != "" {
				told = append(told, set.want)
				if last := req.Messages[len(req.Messages)-1]; !isNarration(last) {
					t.Errorf("set %d: the request ends with %+v, want the signal", i, last)
				}
			}
			names := []string{"next"}
			for _, tool := range set.tools {
				names = append(names, tool.Name())
			}
			if got := offered(req); got != strings.Join(names, " ") {
				t.Errorf("set %d: the model is offered %q, want %q", i, got, names)
			}
			in := signalsIn(req, "resources")
			if len(in) != len(told) {
				t.Fatalf("set %d: the request has %d signals, want %d: %q", i, len(in), len(told), in)
			}
			for j, text := range told {
				if want := "<signal type=\"resources\" resource=\"tool\">\n" + text + "\n</signal>"; in[j] != want {
					t.Errorf("set %d: signal %d is %q, want %q", i, j, in[j], want)
				}
			}
		}
		if diff := cmp.Diff(told, s.signals("resources")); diff != "" {
			t.Errorf("the journal's signals (-want +got):\n%s", diff)
		}
		var shown []string
		for _, m := range s.snapshot().Messages {
			if m.Signal == nil {
				continue
			}
			if m.Role != wire.RoleSystem || m.Purpose != "advisory" || m.Display != "diagnostic" || m.Signal.Attributes["resource"] != "tool" {
				t.Errorf("a client sees %+v", m)
			}
			shown = append(shown, *m.Parts[0].Text)
		}
		if diff := cmp.Diff(told, shown); diff != "" {
			t.Errorf("what clients see (-want +got):\n%s", diff)
		}
	}
	t.Run("within a response", func(t *testing.T) {
		s := newStage(t, agent(false), func(req *model.Request) script.Turn {
			if text, rounds := heard(req); text == "go" && rounds < len(sets)-1 {
				return script.Call("next", struct{}{})
			}
			return script.Say("ok")
		})
		s.say("go")
		check(t, s)
		s.restart()
		s.say("again")
		if n := len(signalsIn(s.asked()[len(sets)], "resources")); n != len(s.signals("resources")) || n != 9 {
			t.Errorf("after a restart the model is shown %d signals, want the 9 from before", n)
		}
		bare.Store(true)
		defer bare.Store(false)
		s.say("and now")
		all := s.signals("resources")
		if got, want := all[len(all)-1], "The tool \"next\" is no longer available.\nAll available tools: none"; got != want {
			t.Errorf("without any tool the model is told %q, want %q", got, want)
		}
	})
	t.Run("between responses and processes", func(t *testing.T) {
		s := newStage(t, agent(true), func(*model.Request) script.Turn { return script.Call("next", struct{}{}) })
		for i := range sets {
			s.say(fmt.Sprint("message ", i))
			if i%3 == 0 {
				s.restart()
			}
		}
		check(t, s)
	})
}

// A change of the composed instruction is told once, before the next model call;
// the same instruction, however it is composed, is not told again.
func TestInstructionsSignal(t *testing.T) {
	var extra atomic.Pointer[string]
	tell := func(text string) { extra.Store(&text) }
	s := newStage(t, plain(func(r *flue.Render) {
		loud := flue.UsePersistentState(r, "loud", false)
		if text := *extra.Load(); text != "" {
			flue.UseInstruction(r, text)
		}
		if loud.Value() {
			flue.UseInstruction(r, "Shout.")
		}
		flue.UseTool(r, acting("louder", func(ctx context.Context) error { return loud.Set(ctx, true) }))
	}), func(req *model.Request) script.Turn {
		if text, rounds := heard(req); text == "louder" && rounds == 0 {
			return script.Call("louder", struct{}{})
		}
		return script.Say("ok")
	})
	const words = "System instructions updated."
	expect := func(step string, n int, system string) {
		t.Helper()
		requests := s.asked()
		last := requests[len(requests)-1]
		if last.System != system {
			t.Errorf("%s: the instruction is %q, want %q", step, last.System, system)
		}
		if got := s.signals("instructions"); len(got) != n || n > 0 && got[n-1] != words {
			t.Errorf("%s: the signals are %q, want %d", step, got, n)
		}
		in := signalsIn(last, "instructions")
		if len(in) != n || n > 0 && in[n-1] != "<signal type=\"instructions\">\n"+words+"\n</signal>" {
			t.Errorf("%s: the request has %q, want %d signals", step, in, n)
		}
	}
	tell("")
	s.say("one")
	expect("the first render", 0, "Play your part.")
	s.say("two")
	expect("no change", 0, "Play your part.")
	tell("Be kind.")
	s.say("three")
	expect("a change between responses", 1, "Play your part.\n\nBe kind.")
	s.say("louder")
	expect("a change between turns", 2, "Play your part.\n\nBe kind.\n\nShout.")
	s.restart()
	s.say("four")
	expect("after a restart with the same program", 2, "Play your part.\n\nBe kind.\n\nShout.")
	tell("Be brief.")
	s.restart()
	s.say("five")
	expect("after a restart with another program", 3, "Play your part.\n\nBe brief.\n\nShout.")
	tell("Be kind.")
	s.say("six")
	expect("back again", 4, "Play your part.\n\nBe kind.\n\nShout.")
	if got := s.signals("resources"); len(got) != 0 {
		t.Errorf("resources are told of, too: %q", got)
	}
	for _, m := range s.snapshot().Messages {
		if m.Signal != nil && (m.Role != wire.RoleSystem || m.Display != "diagnostic" || *m.Parts[0].Text != words) {
			t.Errorf("a client sees %+v", m)
		}
	}
}
