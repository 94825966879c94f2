package fluetest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/fluetest"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

type none struct{}

// agent is an agent of the hooks on any model.
func agent(hooks func(r *flue.Render)) *flue.Agent {
	return &flue.Agent{Name: "clerk", Render: func(r *flue.Render) string {
		flue.UseModel(r, "anthropic/claude-haiku-4-5")
		hooks(r)
		return "Play your part."
	}}
}

// tool is an ordinary tool.
func tool(name string, fn func(ctx context.Context) error) *flue.ToolDefinition {
	return flue.NewTool(flue.Tool{Name: name, Description: name + "."}, func(ctx context.Context, _ none) (string, error) { return "done", fn(ctx) })
}

// durable is a durable tool.
func durable(name string, fn func(ctx context.Context, step *flue.Step) error) *flue.ToolDefinition {
	return flue.NewDurableTool(flue.Tool{Name: name, Description: name + "."},
		func(ctx context.Context, step *flue.Step, _ none) (string, error) { return "done", fn(ctx, step) })
}

// step does something in a step of its name.
func step(ctx context.Context, s *flue.Step, name string, fn func(ctx context.Context) error) error {
	_, err := flue.Do(ctx, s, name, func(ctx context.Context) (bool, error) { return true, fn(ctx) })
	return err
}

// inTurn calls the tools one after another, and then says what there is to say. A
// call that was interrupted is not made again.
func inTurn(tools ...string) func(req *model.Request) script.Turn {
	return func(req *model.Request) script.Turn {
		if n := script.Step(req); n < len(tools) && !strings.HasPrefix(script.LastUser(req), "just say") {
			return script.Call(tools[n], nil)
		}
		return script.Say("I am done with: " + script.LastUser(req))
	}
}

// one is the scenario of an agent of one tool that is called once.
func one(tools func(w *fluetest.World, r *flue.Render), calls ...string) fluetest.Scenario {
	return fluetest.Scenario{
		Agent:      func(w *fluetest.World) *flue.Agent { return agent(func(r *flue.Render) { tools(w, r) }) },
		Model:      inTurn(calls...),
		Messages:   []flue.Message{flue.User("go")},
		ReportOnly: true,
	}
}

// failure returns the one failure that there must be.
func failure(t *testing.T, rep *fluetest.Report, kind fluetest.Kind) fluetest.Failure {
	t.Helper()
	if len(rep.Failures) != 1 || rep.Failures[0].Kind != kind {
		t.Fatalf("want one failure, %q:\n%v", kind, rep)
	}
	return rep.Failures[0]
}

func whats(list []fluetest.Finding) []string {
	var out []string
	for _, f := range list {
		out = append(out, f.What)
	}
	slices.Sort(out)
	return out
}

// whole is an agent that uses everything and makes no mistake.
func whole(w *fluetest.World) *flue.Agent {
	return agent(func(r *flue.Render) {
		told := flue.UsePersistentState(r, "told", false)
		dispatch := flue.UseDispatchMessage(r)
		delivery := flue.UseDelivery(r)
		flue.UseAgentStart(r, func(ctx context.Context, s *flue.AgentStart) error {
			return step(ctx, s.Step, "log", func(ctx context.Context) error {
				return w.EffectWithKey(ctx, "log the message", delivery.Body)
			})
		})
		flue.UseTool(r, tool("look", func(ctx context.Context) error { return w.Effect(ctx, "look up") }))
		flue.UseTool(r, durable("provision", func(ctx context.Context, s *flue.Step) error {
			for i := range 3 {
				name := fmt.Sprint("seed ", i)
				err := step(ctx, s, name, func(ctx context.Context) error {
					return w.EffectWithKey(ctx, name, flue.CallKey(ctx)+name)
				})
				if err != nil {
					return err
				}
			}
			return nil
		}))
		flue.UseApprovalGate(r, tool("refund", func(ctx context.Context) error {
			return w.EffectWithKey(ctx, "refund", flue.CallKey(ctx))
		}), flue.ApprovalPolicy{})
		flue.UseAgentFinish(r, func(ctx context.Context, f *flue.AgentFinish) error {
			if told.Value() || len(f.ToolCalls) == 0 {
				return nil
			}
			_, err := dispatch(ctx, flue.Signal("memo", "just say a memo", nil), flue.DispatchOptions{IdempotencyKey: "memo"})
			return errors.Join(told.Set(ctx, true), err)
		})
		flue.UseResponseFinish(r, func(context.Context, *flue.ResponseFinish) (flue.Metadata, error) {
			return flue.Metadata{"done": true}, nil
		})
	})
}

func TestCorrectAgentPasses(t *testing.T) {
	// The model goes through the tools whatever it is told, so that all of them
	// are called, and asks for the refund again when that was interrupted.
	mind := func(req *model.Request) script.Turn {
		done := map[string]bool{}
		for _, m := range slices.Backward(req.Messages) {
			for _, b := range m.Blocks {
				switch {
				case b.Kind == model.ToolResult && (!b.IsError || b.Name != "refund"):
					done[b.Name] = true
				case m.Role == model.RoleUser && b.Text == "go":
					for _, name := range []string{"look", "provision", "refund"} {
						if !done[name] {
							return script.Call(name, nil)
						}
					}
					return script.Say("all done")
				case m.Role == model.RoleUser && !strings.Contains(b.Text, "stream_"):
					return script.Say("noted: " + b.Text)
				}
			}
		}
		return script.Say("what?")
	}
	rep := fluetest.Crash(t, fluetest.Scenario{
		Agent: whole, Model: mind,
		Messages: []flue.Message{flue.User("go"), flue.User("just say hello")},
		Steps:    []fluetest.Step{fluetest.Approve("refund"), fluetest.Say("just say goodbye")},
		Pairs:    30,
		Check: func(o *fluetest.Outcome) error {
			if n := o.Effects["refund"]; n > 1 {
				return fmt.Errorf("%d refunds", n)
			}
			if last := o.Replies[len(o.Replies)-1]; last == nil || !strings.Contains(last.Text, "goodbye") {
				return fmt.Errorf("the last reply is %+v", last)
			}
			if o.Conversation == nil || len(o.Conversation.Messages) == 0 {
				return errors.New("there is no conversation")
			}
			return nil
		},
	})
	if rep.Agent != "clerk" {
		t.Errorf("the agent is called %q", rep.Agent)
	}
	if n := len(rep.Runs); n < 60 {
		t.Errorf("only %d runs", n)
	}
	if rep.Runs[0].Deaths != "" || len(rep.Runs[0].Writes) != 1 {
		t.Errorf("the first run is not undisturbed: %+v", rep.Runs[0])
	}
	if len(rep.Repeated) > 0 {
		t.Errorf("everything has a key, and this can happen twice: %q", whats(rep.Repeated))
	}
	// An ordinary call that is interrupted is not run again.
	if got := whats(rep.Lost); !slices.Contains(got, `"look up" in look`) {
		t.Errorf("what may not happen is %q", got)
	}
	if tools := rep.Tools["provision"]; tools.Again == 0 || tools.Unknown > 0 || tools.NotRun > 0 {
		t.Errorf("the durable tool: %+v", tools)
	}
	if tools := rep.Tools["look"]; tools.Again > 0 || tools.Unknown == 0 {
		t.Errorf("the ordinary tool: %+v", tools)
	}
}

func TestEffectInStepIsReportedOnly(t *testing.T) {
	rep := fluetest.Crash(t, one(func(w *fluetest.World, r *flue.Render) {
		flue.UseTool(r, durable("ship", func(ctx context.Context, s *flue.Step) error {
			return step(ctx, s, "parcel", func(ctx context.Context) error { return w.Effect(ctx, "ship parcel") })
		}))
	}, "ship"))
	if len(rep.Failures) > 0 || len(rep.Repeated) != 1 {
		t.Fatalf("want one effect that can happen twice:\n%v", rep)
	}
	f := rep.Repeated[0]
	if f.What != `"ship parcel" in a step of ship` || !strings.Contains(f.Advice, "DoOnce") {
		t.Errorf("it is reported as %q, %q", f.What, f.Advice)
	}
	if !strings.Contains(f.At, `step "parcel" of ship`) {
		t.Errorf("the death is %q", f.At)
	}
}

func TestDoOnceMayBeLost(t *testing.T) {
	rep := fluetest.Crash(t, one(func(w *fluetest.World, r *flue.Render) {
		flue.UseTool(r, durable("post", func(ctx context.Context, s *flue.Step) error {
			_, err := flue.DoOnce(ctx, s, "letter", func(ctx context.Context) (bool, error) { return true, w.Effect(ctx, "post letter") })
			if errors.Is(err, flue.ErrOutcomeUnknown) {
				return nil
			}
			return err
		}))
	}, "post"))
	if len(rep.Failures) > 0 || len(rep.Repeated) > 0 {
		t.Fatalf("want no failure and nothing that can happen twice:\n%v", rep)
	}
	if got := whats(rep.Lost); !slices.Equal(got, []string{`"post letter" in a DoOnce step of post`}) {
		t.Errorf("what may not happen is %q", got)
	}
}

func TestKeyedAndAskedEffects(t *testing.T) {
	rep := fluetest.Crash(t, one(func(w *fluetest.World, r *flue.Render) {
		flue.UseTool(r, durable("charge", func(ctx context.Context, _ *flue.Step) error {
			return w.EffectWithKey(ctx, "charge card", flue.CallKey(ctx))
		}))
		flue.UseTool(r, durable("order", func(ctx context.Context, _ *flue.Step) error {
			if w.Happened("order flowers") > 0 {
				return nil
			}
			return w.Effect(ctx, "order flowers")
		}))
	}, "charge", "order"))
	if len(rep.Failures)+len(rep.Repeated)+len(rep.Lost) > 0 {
		t.Errorf("a key, and asking before, make an effect safe:\n%v", rep)
	}
}

// Each planted mistake is found, and nothing else.
func TestMistakes(t *testing.T) {
	var key int
	tests := []struct {
		name     string
		scenario fluetest.Scenario
		kind     fluetest.Kind
		what     string
		advice   string
	}{
		{
			"effect outside of a step",
			one(func(w *fluetest.World, r *flue.Render) {
				flue.UseTool(r, durable("book", func(ctx context.Context, s *flue.Step) error {
					if err := w.Effect(ctx, "book table"); err != nil {
						return err
					}
					return step(ctx, s, "note", func(context.Context) error { return nil })
				}))
			}, "book"),
			fluetest.Twice, `"book table" in book, outside of a step`, "flue.Do",
		},
		{
			"start hook",
			one(func(w *fluetest.World, r *flue.Render) {
				flue.UseAgentStart(r, func(ctx context.Context, _ *flue.AgentStart) error { return w.Effect(ctx, "send mail") })
			}),
			fluetest.Twice, `"send mail" in a hook of UseAgentStart`, "AgentStart.Step",
		},
		{
			"finish hook",
			one(func(w *fluetest.World, r *flue.Render) {
				flue.UseAgentFinish(r, func(ctx context.Context, _ *flue.AgentFinish) error { return w.Effect(ctx, "send receipt") })
			}),
			fluetest.Twice, `"send receipt" in a hook of UseAgentFinish`, "idempotency key",
		},
		{
			"key by chance",
			one(func(w *fluetest.World, r *flue.Render) {
				flue.UseTool(r, durable("pay", func(ctx context.Context, s *flue.Step) error {
					return step(ctx, s, "pay", func(ctx context.Context) error {
						key++
						return w.EffectWithKey(ctx, "pay", fmt.Sprint(key))
					})
				}))
			}, "pay"),
			fluetest.Twice, `"pay" in a step of pay`, "derive it from flue.CallKey",
		},
		{
			"tool outlives its context",
			one(func(w *fluetest.World, r *flue.Render) {
				flue.UseTool(r, tool("dig", func(ctx context.Context) error {
					time.Sleep(10 * time.Minute)
					return w.Effect(ctx, "dig")
				}))
				flue.UseTool(r, tool("look", func(ctx context.Context) error { return w.Effect(ctx, "look") }))
			}, "dig"),
			fluetest.Outlived, `the code at crash_test.go:`, "pass the context on",
		},
		{
			"hook fails when it runs again",
			one(func(w *fluetest.World, r *flue.Render) {
				marked := fluetest.Outside(w, "mark", func() *bool { return new(bool) })
				flue.UseAgentStart(r, func(context.Context, *flue.AgentStart) error {
					if *marked {
						return errors.New("it is marked already")
					}
					*marked = true
					return nil
				})
			}),
			fluetest.Unfinished, `it is marked already`, "replay",
		},
		{
			"render acts",
			one(func(w *fluetest.World, _ *flue.Render) { _ = w.Effect(context.Background(), "count a render") }),
			fluetest.Impure, `"count a render" in the agent function`, "tools and hooks",
		},
		{
			"memory",
			one(func(w *fluetest.World, r *flue.Render) {
				begun := fluetest.Outside(w, "the note", func() *bool { return new(bool) })
				flue.UseTool(r, durable("mail", func(ctx context.Context, s *flue.Step) error {
					return step(ctx, s, "mail", func(ctx context.Context) error {
						if *begun { // noted before it was done
							return nil
						}
						*begun = true
						if err := step(ctx, s, "address", func(context.Context) error { return nil }); err != nil {
							return err
						}
						return w.Effect(ctx, "mail")
					})
				}))
			}, "mail"),
			fluetest.LostSilently, `"mail" in a step of mail`, "nobody was told",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "tool outlives its context" {
				// Something else must be written while it digs.
				tt.scenario.Model = func(req *model.Request) script.Turn {
					if script.Step(req) == 0 {
						return script.Call("dig", nil).Call("look", nil)
					}
					return script.Say("done")
				}
			}
			rep := fluetest.Crash(t, tt.scenario)
			f := failure(t, rep, tt.kind)
			if !strings.Contains(f.What, tt.what) || !strings.Contains(f.Advice, tt.advice) {
				t.Errorf("found %q, advice %q; want %q, %q", f.What, f.Advice, tt.what, tt.advice)
			}
			if tt.kind == fluetest.Impure {
				return
			}
			// The death that is named shows the failure again, alone.
			again := fluetest.Replay(t, tt.scenario, f.Deaths[0])
			if g := failure(t, again, tt.kind); g.What != f.What || !slices.Equal(g.Deaths, f.Deaths[:1]) {
				t.Errorf("the replay finds %q at %q", g.What, g.Deaths)
			}
		})
	}
}

// A script that counts its calls tells the kit nothing of what was lost.
func TestScriptThatCounts(t *testing.T) {
	n := 0
	rep := fluetest.Crash(t, fluetest.Scenario{
		Agent: func(w *fluetest.World) *flue.Agent {
			return agent(func(r *flue.Render) {
				flue.UseTool(r, tool("charge", func(ctx context.Context) error { return w.Effect(ctx, "charge") }))
			})
		},
		Model: func(*model.Request) script.Turn {
			if n++; n == 1 {
				return script.Call("charge", nil)
			}
			return script.Say("done")
		},
		Messages:   []flue.Message{flue.User("go")},
		ReportOnly: true,
	})
	f := failure(t, rep, fluetest.Nondeterministic)
	if !strings.Contains(f.What, `ends with "go" it calls charge`) || !strings.Contains(f.What, `then it says "done"`) {
		t.Errorf("it is reported as %q", f.What)
	}
	if !strings.Contains(rep.String(), "put aside") {
		t.Errorf("the losses are not put aside:\n%v", rep)
	}
}

// A model that asks again after an unknown outcome makes the effect happen in two
// calls, which no call is to blame for.
func TestModelCallsAgain(t *testing.T) {
	sc := one(func(w *fluetest.World, r *flue.Render) {
		flue.UseTool(r, tool("charge", func(ctx context.Context) error { return w.Effect(ctx, "charge card") }))
	})
	sc.Model = func(req *model.Request) script.Turn {
		if last := script.LastResults(req); len(last) == 1 && !last[0].IsError {
			return script.Say("charged")
		}
		return script.Call("charge", nil)
	}
	rep := fluetest.Crash(t, sc)
	if len(rep.Failures) > 0 || len(rep.Repeated) != 1 {
		t.Fatalf("want one effect that can happen twice:\n%v", rep)
	}
	if f := rep.Repeated[0]; !strings.Contains(f.What, `"charge card" in charge, by one call more`) || !strings.Contains(f.Advice, "called again") {
		t.Errorf("it is reported as %q, %q", f.What, f.Advice)
	}
	if len(rep.Told) == 0 || !strings.Contains(rep.Told[0].What, "charge: ") || !strings.Contains(rep.Told[0].What, "unknown") {
		t.Errorf("the model was told %+v", rep.Told)
	}
}

// Messages that are sent while the agent works join its response.
func TestPost(t *testing.T) {
	rep := fluetest.Crash(t, fluetest.Scenario{
		Agent: func(*fluetest.World) *flue.Agent { return agent(func(*flue.Render) {}) },
		Model: func(req *model.Request) script.Turn {
			return script.Wait(time.Second).Say("about " + script.LastUser(req))
		},
		Steps: []fluetest.Step{fluetest.Post(flue.User("one")), fluetest.Say("two")},
		Check: func(o *fluetest.Outcome) error {
			if r := o.Replies[1]; r == nil || r.AnsweredBy == r.Submission && len(o.Deaths) == 0 || !strings.HasSuffix(r.Text, "about two") {
				return fmt.Errorf("the second message is answered by %+v", r)
			}
			return nil
		},
	})
	if rep.Runs[0].Writes[0] < 4 {
		t.Errorf("writes: %d", rep.Runs[0].Writes)
	}
}

// A message that is answered with nothing at a death is lost to its sender.
func TestUnanswered(t *testing.T) {
	sc := one(func(w *fluetest.World, r *flue.Render) {
		flue.UseTool(r, tool("charge", func(ctx context.Context) error { return w.Effect(ctx, "charge card") }))
	})
	sc.Model = func(req *model.Request) script.Turn {
		last := script.LastResults(req)
		switch {
		case len(last) == 0:
			return script.Call("charge", nil)
		case last[0].IsError:
			return script.Say("")
		}
		return script.Say("charged")
	}
	rep := fluetest.Crash(t, sc)
	if len(rep.Failures) == 0 || !strings.Contains(rep.Failures[0].What, `"go"`) {
		t.Errorf("want a message without an answer:\n%v", rep)
	}
}

// An agent that keeps in memory what it answers by gives another answer after a death,
// of which the model knows nothing.
func TestMisanswered(t *testing.T) {
	sc := fluetest.Scenario{
		Agent: func(w *fluetest.World) *flue.Agent {
			name := "nobody"
			return &flue.Agent{Name: "clerk", Render: func(r *flue.Render) string {
				flue.UseModel(r, "anthropic/claude-haiku-4-5")
				flue.UseTool(r, tool("remember", func(context.Context) error { name = "Ada"; return nil }))
				return "You speak with " + name
			}}
		},
		Model: func(req *model.Request) script.Turn {
			if script.LastUser(req) == "I am Ada" && script.Step(req) == 0 {
				return script.Call("remember", nil)
			}
			return script.Say(req.System)
		},
		Messages: []flue.Message{flue.User("I am Ada"), flue.User("who am I?")}, ReportOnly: true,
	}
	rep := fluetest.Crash(t, sc)
	if len(rep.Failures) == 0 {
		t.Fatalf("want an answer that is wrong:\n%v", rep)
	}
	for _, f := range rep.Failures {
		if f.Kind != fluetest.Misanswered {
			t.Errorf("%s: %s", f.Kind, f.What)
		}
	}
}

// A tool may say what the runtime says of a call that was interrupted. That excuses
// nothing that is lost.
func TestToolThatSpeaksLikeTheRuntime(t *testing.T) {
	rep := fluetest.Crash(t, one(func(w *fluetest.World, r *flue.Render) {
		flue.UseTool(r, durable("mail", func(ctx context.Context, s *flue.Step) error {
			noted := true
			if err := step(ctx, s, "note", func(context.Context) error { noted = false; return nil }); err != nil {
				return err
			}
			if noted { // before it was done
				return errors.New(`{"type":"interrupted","message":"it has been mailed, I think"}`)
			}
			return w.Effect(ctx, "mail")
		}))
	}, "mail"))
	failure(t, rep, fluetest.LostSilently)
	if len(rep.Told) != 0 {
		t.Errorf("the tool's own words are taken for the runtime's:\n%v", rep)
	}
}

// What never ends does not keep the kit from reporting.
func TestToolThatNeverReturns(t *testing.T) {
	sc := one(func(w *fluetest.World, r *flue.Render) {
		flue.UseTool(r, tool("hang", func(context.Context) error { select {} }))
	}, "hang")
	rep := fluetest.Crash(t, sc)
	i := slices.IndexFunc(rep.Failures, func(f fluetest.Failure) bool { return f.Kind == fluetest.Outlived })
	if i < 0 || !strings.HasPrefix(rep.Failures[i].What, "the code at crash_test.go:") || len(rep.Runs) != 1 {
		t.Errorf("want one run, in which it ignores its context:\n%v", rep)
	}
}

func TestGoroutineThatNeverEnds(t *testing.T) {
	sc := one(func(w *fluetest.World, r *flue.Render) {
		flue.UseTool(r, tool("watch", func(context.Context) error {
			go func() { select {} }()
			return nil
		}))
	}, "watch")
	if f := failure(t, fluetest.Crash(t, sc), fluetest.Outlived); !strings.Contains(f.What, "a goroutine that the agent has begun never ends") {
		t.Errorf("found %q", f.What)
	}
}

func TestScenarioThatDoesNotWork(t *testing.T) {
	sc := one(func(*fluetest.World, *flue.Render) { panic("no such thing") })
	rep := fluetest.Crash(t, sc)
	if len(rep.Runs) != 1 || len(rep.Failures) == 0 {
		t.Fatalf("want one run that failed:\n%v", rep)
	}
	if f := rep.Failures[0]; !slices.Equal(f.Deaths, []string{""}) || !strings.Contains(rep.String(), "without any death") {
		t.Errorf("it is reported as\n%v", rep)
	}
}

func TestAgentThatDoesNotOpen(t *testing.T) {
	sc := one(nil)
	sc.Agent = func(*fluetest.World) *flue.Agent {
		return &flue.Agent{Name: "no name", Render: func(*flue.Render) string { return "" }}
	}
	if f := failure(t, fluetest.Crash(t, sc), fluetest.Unplayable); !strings.Contains(f.What, `"no name"`) {
		t.Errorf("found %q", f.What)
	}
}

func TestCheck(t *testing.T) {
	sc := one(func(w *fluetest.World, r *flue.Render) {
		flue.UseTool(r, tool("charge", func(ctx context.Context) error { return w.Effect(ctx, "charge card") }))
	}, "charge")
	sc.Check = func(o *fluetest.Outcome) error {
		if o.Effects["charge card"] != 1 {
			return errors.New("the card must be charged")
		}
		return nil
	}
	if f := failure(t, fluetest.Crash(t, sc), fluetest.Unchecked); f.What != "the card must be charged" {
		t.Errorf("found %q", f.What)
	}
}

// mustFail makes this test binary run a scenario that fails.
const mustFail = "FLUETEST_MUST_FAIL"

func TestCrashFailsTheTest(t *testing.T) {
	if os.Getenv(mustFail) != "" {
		sc := oldShop()
		sc.ReportOnly = false
		fluetest.Crash(t, sc)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestCrashFailsTheTest$")
	cmd.Env = append(os.Environ(), mustFail+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--- FAIL: TestCrashFailsTheTest") || !strings.Contains(string(out), `look  fluetest.Replay(t, scenario, "4:before")`) {
		t.Errorf("the test ended with %v:\n%s", err, out)
	}
}

func TestModesAndPairs(t *testing.T) {
	sc := one(func(*fluetest.World, *flue.Render) {})
	sc.Modes, sc.Pairs = []faultstore.Mode{faultstore.After}, -1
	rep := fluetest.Crash(t, sc)
	writes := rep.Runs[0].Writes[0]
	died := 0
	for _, r := range rep.Runs {
		if strings.Contains(r.Deaths, ",") || strings.Contains(r.Deaths, "before") {
			t.Errorf("a run with the deaths %q", r.Deaths)
		}
		if r.Deaths != "" {
			died++
		}
	}
	if died != writes || writes < 3 {
		t.Errorf("%d deaths for %d writes", died, writes)
	}
}

func TestDefaults(t *testing.T) {
	rep := fluetest.Crash(t, fluetest.Scenario{
		Agent: func(*fluetest.World) *flue.Agent {
			return &flue.Agent{Render: func(r *flue.Render) string {
				data := flue.UseInitialData[map[string]string](r)
				flue.UseModel(r, data["provider"]+"/any")
				return ""
			}}
		},
		InitialData: map[string]string{"provider": "home-made"},
		Steps: []fluetest.Step{
			fluetest.Say("hello"), fluetest.Wait(time.Hour), fluetest.Send(flue.Signal("ping", "", nil)),
			fluetest.Func("a message of its own", func(ctx context.Context, in *flue.Instance) (flue.Receipt, error) {
				return in.Dispatch(ctx, flue.User("hi"), flue.SendOptions{IdempotencyKey: "mine"})
			}),
		},
	})
	if rep.Agent != "agent" {
		t.Errorf("the agent is called %q", rep.Agent)
	}
}

func TestReplayTellsTheStory(t *testing.T) {
	sc := one(func(w *fluetest.World, r *flue.Render) {
		flue.UseTool(r, tool("charge", func(ctx context.Context) error { return w.Effect(ctx, "charge card") }))
	}, "charge")
	all := fluetest.Crash(t, sc)
	i := slices.IndexFunc(all.Runs, func(r fluetest.Run) bool {
		return len(r.At) == 1 && strings.Contains(r.At[0], "the outcome of charge") && strings.HasSuffix(r.Deaths, ":before")
	})
	if i < 0 {
		t.Fatalf("no death at the outcome of the call:\n%v", all)
	}
	rep := fluetest.Replay(t, sc, all.Runs[i].Deaths)
	story := strings.Join(rep.Runs[1].Story, "\n")
	for _, want := range []string{"process 1", `"charge card" in charge`, "DEATH at write", "the outcome of charge", "process 2", "the model is told", "it is answered"} {
		_, rest, found := strings.Cut(story, want)
		if !found {
			t.Fatalf("the story does not go on with %q:\n%s", want, strings.Join(rep.Runs[1].Story, "\n"))
		}
		story = rest
	}
	if len(rep.Runs) != 2 {
		t.Errorf("%d runs", len(rep.Runs))
	}
}
