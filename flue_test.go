package flue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
)

// A fake is a model whose answers are a function of the conversation. It keeps
// the requests that it was sent.
type fake struct {
	answer func(req *model.Request) []model.Block

	mu       sync.Mutex
	requests []*model.Request
}

func (f *fake) Stream(_ context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	f.mu.Lock()
	f.requests = append(f.requests, req)
	f.mu.Unlock()
	return func(yield func(model.Event, error) bool) {
		stop := model.StopEnd
		for i, b := range f.answer(req) {
			if b.Kind == model.ToolCall {
				stop = model.StopToolUse
			}
			if b.Text != "" && !yield(model.Delta{Index: i, Kind: b.Kind, Text: b.Text}, nil) || !yield(model.BlockDone{Index: i, Block: b}, nil) {
				return
			}
		}
		yield(model.Done{Stop: stop}, nil)
	}
}

func text(s string) []model.Block { return []model.Block{{Kind: model.Text, Text: s}} }

func toolCall(name, args string) []model.Block {
	return []model.Block{{Kind: model.ToolCall, CallID: "c_" + name, Name: name, Arguments: args}}
}

// once calls a tool with the arguments, then repeats what the tool said.
func once(name, args string) func(*model.Request) []model.Block {
	return func(req *model.Request) []model.Block {
		if m := req.Messages[len(req.Messages)-1]; m.Role == model.RoleTool {
			return text("tool said: " + m.Blocks[0].Text)
		}
		return toolCall(name, args)
	}
}

// run opens a runtime with one agent, sends it the message, and returns the
// reply.
func run(t *testing.T, f *fake, a *flue.Agent, m flue.Message, options ...flue.SendOptions) (*flue.Reply, error) {
	t.Helper()
	rt := open(t, f, a)
	in := rt.Instance(a.Name, "c1")
	r, err := in.Dispatch(t.Context(), m, options...)
	if err != nil {
		return nil, err
	}
	return in.Read(t.Context(), r.Submission)
}

func open(t *testing.T, f *fake, agents ...*flue.Agent) *flue.Runtime {
	t.Helper()
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: agents, Providers: map[string]model.Provider{"fake": f}, RetryBase: time.Millisecond, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := rt.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return rt
}

func agent(render func(r *flue.Render) string) *flue.Agent {
	return &flue.Agent{Name: "helper", Render: render}
}

type echoInput struct {
	Word  string `json:"word"`
	Times int    `json:"times,omitempty"`
}

func TestToolResults(t *testing.T) {
	type point struct{ X, Y int }
	echo := func(fn func(ctx context.Context, in echoInput) (any, error)) *flue.ToolDefinition {
		return flue.NewTool(flue.Tool{Name: "echo", Description: "Repeat a word."}, fn)
	}
	tests := []struct {
		name string
		args string
		fn   func(ctx context.Context, in echoInput) (any, error)
		want string // what the model reads, or a part of it
	}{
		{"a string is itself", `{"word":"a"}`, func(_ context.Context, in echoInput) (any, error) { return in.Word + " <&>", nil }, "a <&>"},
		{"a value is JSON", `{"word":"a","times":2}`, func(_ context.Context, in echoInput) (any, error) { return point{in.Times, 3}, nil }, `{"X":2,"Y":3}`},
		{"nothing is null", `{"word":"a"}`, func(context.Context, echoInput) (any, error) { return nil, nil }, "null"},
		{"an error is its text", `{"word":"a"}`, func(context.Context, echoInput) (any, error) { return nil, errors.New("no such word") }, "no such word"},
		{"a missing argument", `{}`, nil, "word"},
		{"an argument of the wrong type", `{"word":["a"]}`, nil, "word"},
		{"arguments that are not JSON", `{"word": "a`, nil, "echo"},
		{"a result that is not JSON", `{"word":"a"}`, func(context.Context, echoInput) (any, error) { return make(chan int), nil }, "could not be used"},
		{"a result nested too deep", `{"word":"a"}`, func(context.Context, echoInput) (any, error) {
			return json.RawMessage(strings.Repeat("[", 9000) + strings.Repeat("]", 9000)), nil
		}, "nested"},
		{"a panic", `{"word":"a"}`, func(context.Context, echoInput) (any, error) { panic("private") }, "internal error (panic)"},
		{"the call's id", `{"word":"a"}`, func(ctx context.Context, _ echoInput) (any, error) { return flue.CallID(ctx), nil }, "c_echo"},
		{"the call's key", `{"word":"a"}`, func(ctx context.Context, _ echoInput) (any, error) { return flue.CallKey(ctx), nil }, "call_"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ran := false
			tool := echo(func(ctx context.Context, in echoInput) (any, error) {
				ran = true
				if tt.fn == nil {
					return nil, errors.New("ran")
				}
				return tt.fn(ctx, in)
			})
			f := &fake{answer: once("echo", tt.args)}
			reply, err := run(t, f, agent(func(r *flue.Render) string {
				flue.UseModel(r, "fake/m")
				flue.UseTool(r, tool)
				return "Echo."
			}), flue.User("go"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(reply.Text, tt.want) || strings.Contains(reply.Text, "private") {
				t.Errorf("reply %q, want it to have %q", reply.Text, tt.want)
			}
			if ran != (tt.fn != nil) {
				t.Errorf("the function ran: %v", ran)
			}
		})
	}
}

func TestEndTurn(t *testing.T) {
	tool := flue.NewTool(flue.Tool{Name: "submit", Description: "Submit."}, func(context.Context, struct{}) (string, error) {
		return "submitted", flue.EndTurn
	})
	f := &fake{answer: func(*model.Request) []model.Block { return toolCall("submit", "") }}
	a := agent(func(r *flue.Render) string {
		flue.UseModel(r, "fake/m")
		flue.UseTool(r, tool)
		return "Submit."
	})
	if _, err := run(t, f, a, flue.User("go")); err != nil {
		t.Fatal(err)
	}
	if n := len(f.requests); n != 1 {
		t.Errorf("%d model calls, want 1", n)
	}
}

// The approval of the guide: a tool that a state unlocks.
func TestStateUnlocksTool(t *testing.T) {
	type approval struct {
		Code string `json:"code"`
	}
	publish := flue.NewTool(flue.Tool{Name: "publish", Description: "Publish."}, func(context.Context, struct{}) (string, error) { return "published", nil })
	a := agent(func(r *flue.Render) string {
		flue.UseModel(r, "fake/m")
		approved := flue.UsePersistentState(r, "approved", false)
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "approve", Description: "Approve."}, func(ctx context.Context, in approval) (string, error) {
			if in.Code != "42" {
				return "Invalid approval code.", nil
			}
			return "Approved.", approved.Set(ctx, true)
		}))
		if approved.Value() {
			flue.UseTool(r, publish)
			flue.UseInstruction(r, "You may publish.")
		}
		return "Prepare the release."
	})
	f := &fake{}
	f.answer = func(req *model.Request) []model.Block {
		switch m := req.Messages[len(req.Messages)-1]; {
		case m.Role == model.RoleTool && len(req.Tools) > 1:
			return text(fmt.Sprintf("%d tools, %q", len(req.Tools), req.System))
		case m.Role == model.RoleTool:
			return text(m.Blocks[0].Text)
		default:
			return toolCall("approve", `{"code":"`+m.Blocks[0].Text+`"}`)
		}
	}
	rt := open(t, f, a)
	in := rt.Instance("helper", "c1")
	for _, tt := range []struct{ code, want string }{
		{"41", "Invalid approval code."},
		{"42", `2 tools, "Prepare the release.\n\nYou may publish."`},
	} {
		r, err := in.Dispatch(t.Context(), flue.User(tt.code))
		if err != nil {
			t.Fatal(err)
		}
		reply, err := in.Read(t.Context(), r.Submission)
		if err != nil {
			t.Fatal(err)
		}
		if reply.Text != tt.want {
			t.Errorf("code %s: reply %q, want %q", tt.code, reply.Text, tt.want)
		}
	}
}

// Misuse of a hook fails the submission with an error for operators that names
// the agent, the hook and the fix. The process goes on.
func TestHookMisuse(t *testing.T) {
	tool := flue.NewTool(flue.Tool{Name: "t", Description: "T."}, func(context.Context, struct{}) (string, error) { return "", nil })
	var kept *flue.Render
	tests := []struct {
		name   string
		render func(r *flue.Render) string
		want   []string
	}{
		{"no model", func(*flue.Render) string { return "x" }, []string{"helper", "UseModel", "was not called"}},
		{"two models", func(r *flue.Render) string { flue.UseModel(r, "fake/a"); flue.UseModel(r, "fake/b"); return "" }, []string{"helper", "UseModel", "twice"}},
		{"bad specifier", func(r *flue.Render) string { flue.UseModel(r, "claude"); return "" }, []string{"UseModel", `"claude"`, "provider/model"}},
		{"bad thinking", func(r *flue.Render) string {
			flue.UseModel(r, "fake/a", flue.ModelOptions{Thinking: "loud"})
			return ""
		}, []string{"UseModel", "loud"}},
		{"bad fallback", func(r *flue.Render) string {
			flue.UseModel(r, "fake/a", flue.ModelOptions{Fallbacks: []string{"gpt"}})
			return ""
		}, []string{"UseModel", `"gpt"`, "provider/model"}},
		{"fallback to itself", func(r *flue.Render) string {
			flue.UseModel(r, "fake/a", flue.ModelOptions{Fallbacks: []string{"fake/b", "fake/a"}})
			return ""
		}, []string{"UseModel", `"fake/a"`, "twice"}},
		{"too many fallbacks", func(r *flue.Render) string {
			flue.UseModel(r, "fake/a", flue.ModelOptions{Fallbacks: make([]string, 9)})
			return ""
		}, []string{"UseModel", "9 fallbacks", "at most 8"}},
		{"two tools of a name", func(r *flue.Render) string {
			flue.UseModel(r, "fake/a")
			flue.UseTool(r, tool)
			flue.UseTool(r, tool)
			return ""
		}, []string{"helper", `"t"`, "rename"}},
		{"two states of a name", func(r *flue.Render) string {
			flue.UseModel(r, "fake/a")
			flue.UsePersistentState(r, "s", 1)
			flue.UsePersistentState(r, "s", 1)
			return ""
		}, []string{"UsePersistentState", `"s"`}},
		{"two budgets of a scope", func(r *flue.Render) string {
			flue.UseModel(r, "fake/a")
			flue.UseBudget(r, flue.Budget{Scope: flue.PerInstance, Turns: 1})
			flue.UseBudget(r, flue.Budget{Turns: 1})
			flue.UseBudget(r, flue.Budget{Tokens: 1})
			return ""
		}, []string{"UseBudget", "twice for one scope"}},
		{"negative budget", func(r *flue.Render) string {
			flue.UseModel(r, "fake/a")
			flue.UseBudget(r, flue.Budget{ToolCalls: -1})
			return ""
		}, []string{"UseBudget", "negative"}},
		{"budget of no number", func(r *flue.Render) string {
			flue.UseModel(r, "fake/a")
			flue.UseBudget(r, flue.Budget{Dollars: math.NaN()})
			return ""
		}, []string{"UseBudget", "no number"}},
		{"budget of no scope", func(r *flue.Render) string {
			flue.UseModel(r, "fake/a")
			flue.UseBudget(r, flue.Budget{Scope: 7})
			return ""
		}, []string{"UseBudget", "scope 7"}},
		{"blank instruction", func(r *flue.Render) string { flue.UseModel(r, "fake/a"); flue.UseInstruction(r, " "); return "" }, []string{"UseInstruction"}},
		{"kept render", func(r *flue.Render) string {
			if kept != nil {
				flue.UseModel(kept, "fake/a")
			}
			kept = r
			flue.UseModel(r, "fake/nope/nope")
			return ""
		}, nil},
		{"unknown provider", func(r *flue.Render) string { flue.UseModel(r, "other/a"); return "" }, []string{"other/a", "fake"}},
		{"plain panic", func(*flue.Render) string { panic("boom") }, []string{"boom"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{answer: func(*model.Request) []model.Block { return text("ok") }}
			told := make(chan error, 1)
			rt, err := flue.Open(t.Context(), flue.Config{
				Agents: []*flue.Agent{agent(tt.render)}, Providers: map[string]model.Provider{"fake": f},
				Observe: func(ev flue.Event) {
					if ev.Type == flue.EventSettled {
						told <- ev.Error
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close(t.Context())
			in := rt.Instance("helper", "c1")
			r, err := in.Dispatch(t.Context(), flue.User("go"))
			if err != nil {
				t.Fatal(err)
			}
			_, err = in.Read(t.Context(), r.Submission)
			if tt.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				func() {
					defer func() {
						if p, ok := recover().(*flue.HookError); !ok || !strings.Contains(p.Error(), "outside its render") {
							t.Errorf("a hook after its render: %v", p)
						}
					}()
					flue.UseInstruction(kept, "late")
				}()
				return
			}
			var failed *flue.SubmissionError
			if !errors.As(err, &failed) || failed.Outcome != flue.Failed {
				t.Fatalf("read: %v, want a failed submission", err)
			}
			cause := <-told
			for _, want := range tt.want {
				if cause == nil || !strings.Contains(cause.Error(), want) {
					t.Errorf("the error %v does not have %q", cause, want)
				}
			}
		})
	}
}

func TestBadDefinitions(t *testing.T) {
	fn := func(context.Context, struct{}) (string, error) { return "", nil }
	for _, tt := range []struct {
		name string
		tool flue.Tool
		want string
	}{
		{"no name", flue.Tool{Description: "d"}, "tool name"},
		{"bad name", flue.Tool{Name: "a b", Description: "d"}, `"a b"`},
		{"long name", flue.Tool{Name: strings.Repeat("a", 65), Description: "d"}, "64"},
		{"reserved name", flue.Tool{Name: "task", Description: "d"}, "framework"},
		{"no description", flue.Tool{Name: "a"}, "description"},
		{"negative timeout", flue.Tool{Name: "a", Description: "d", Timeout: -1}, "timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := flue.MakeTool(tt.tool, fn); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want it to have %q", err, tt.want)
			}
		})
	}
	t.Run("input that is not an object", func(t *testing.T) {
		_, err := flue.MakeTool(flue.Tool{Name: "a", Description: "d"}, func(context.Context, string) (string, error) { return "", nil })
		if err == nil || !strings.Contains(err.Error(), "object") {
			t.Errorf("error %v", err)
		}
	})
	render := func(*flue.Render) string { return "" }
	for _, agents := range [][]*flue.Agent{
		{nil},
		{{Name: "a"}},
		{{Name: "", Render: render}},
		{{Name: "a/b", Render: render}},
		{{Name: "a", Render: render}, {Name: "a", Render: render}},
		{{Name: "a", Render: render, Durability: flue.Durability{MaxAttempts: -1}}},
	} {
		if rt, err := flue.Open(t.Context(), flue.Config{Agents: agents}); err == nil {
			rt.Close(t.Context())
			t.Errorf("agents %+v were accepted", agents)
		}
	}
}

func TestInitialDataAndDelivery(t *testing.T) {
	type ticket struct {
		Issue int `json:"issue"`
	}
	a := &flue.Agent{Name: "helper", InitialData: flue.SchemaFor[ticket](), Render: func(r *flue.Render) string {
		flue.UseModel(r, "fake/m")
		d := flue.UseDelivery(r)
		return fmt.Sprintf("issue %d, %s %s %q %v", flue.UseInitialData[ticket](r).Issue, d.Kind, d.Type, d.Body, d.Attributes)
	}}
	f := &fake{answer: func(req *model.Request) []model.Block { return text(req.System + "|" + req.Messages[0].Blocks[0].Text) }}

	for _, bad := range []any{nil, map[string]any{"issue": "seven"}, map[string]any{}} {
		if _, err := run(t, f, a, flue.User("x"), flue.SendOptions{InitialData: bad}); !errors.Is(err, &flue.Error{Code: flue.CodeInvalidRequest}) {
			t.Errorf("initial data %v: %v, want invalid_request", bad, err)
		}
	}
	reply, err := run(t, f, a, flue.Signal("ci.failed", `a <b> & "c"`, map[string]string{"job": "7"}), flue.SendOptions{InitialData: ticket{7}})
	if err != nil {
		t.Fatal(err)
	}
	want := `issue 7, signal ci.failed "a <b> & \"c\"" map[job:7]|` + "<signal type=\"ci.failed\" job=\"7\">\na &lt;b&gt; &amp; \"c\"\n</signal>"
	if diff := cmp.Diff(want, reply.Text); diff != "" {
		t.Errorf("reply (-want +got):\n%s", diff)
	}
}

func TestSendConditionsAndKeys(t *testing.T) {
	f := &fake{answer: func(*model.Request) []model.Block { return text("ok") }}
	rt := open(t, f, agent(func(r *flue.Render) string { flue.UseModel(r, "fake/m"); return "" }))
	in := rt.Instance("helper", "c1")
	send := func(body string, o flue.SendOptions) (flue.Receipt, error) {
		return in.Dispatch(t.Context(), flue.User(body), o)
	}
	want := func(err error, code flue.Code) {
		t.Helper()
		if !errors.Is(err, &flue.Error{Code: code}) {
			t.Errorf("error %v, want %s", err, code)
		}
	}
	_, err := send("x", flue.SendOptions{UID: "inst_none"})
	want(err, flue.CodeInstanceNotFound)
	if _, err := in.Conversation(t.Context()); !errors.Is(err, &flue.Error{Code: flue.CodeConversationMissing}) {
		t.Errorf("a refused send left a conversation: %v", err)
	}
	first, err := send("one", flue.SendOptions{CreateOnly: true, IdempotencyKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = send("x", flue.SendOptions{CreateOnly: true})
	want(err, flue.CodeInstanceExists)
	_, err = send("x", flue.SendOptions{UID: "inst_other"})
	want(err, flue.CodeInstanceNotFound)
	if _, err := send("two", flue.SendOptions{UID: first.UID}); err != nil {
		t.Error(err)
	}
	again, err := send("one", flue.SendOptions{CreateOnly: true, IdempotencyKey: "k"})
	if err != nil || !again.Duplicate || again.Submission != first.Submission || again.UID != first.UID {
		t.Errorf("the same again: %+v, %v; the first was %+v", again, err, first)
	}
	_, err = send("another", flue.SendOptions{IdempotencyKey: "k"})
	want(err, flue.CodeSubmissionConflict)
	_, err = in.Dispatch(t.Context(), flue.Signal("resources", "x", nil))
	want(err, flue.CodeInvalidRequest)
	_, err = rt.Instance("helper", " ").Dispatch(t.Context(), flue.User("x"))
	want(err, flue.CodeInvalidRequest)
	_, err = in.Read(t.Context(), "sub_none")
	want(err, flue.CodeInvalidRequest)
	if _, err := rt.Instance("nobody", "c").Dispatch(t.Context(), flue.User("x")); err == nil || !strings.Contains(err.Error(), "helper") {
		t.Errorf("an unknown agent: %v", err)
	}
}

func TestAttachmentsReachTheModel(t *testing.T) {
	png := []byte("\x89PNG\r\n\x1a\n rest of it")
	f := &fake{answer: func(req *model.Request) []model.Block {
		b := req.Messages[0].Blocks[1]
		return text(fmt.Sprintf("%s %d bytes", b.MediaType, len(b.Data)))
	}}
	reply, err := run(t, f, agent(func(r *flue.Render) string {
		flue.UseModel(r, "fake/m")
		if a := flue.UseDelivery(r).Attachments; len(a) != 1 || a[0].Data != nil || a[0].ID == "" || a[0].Size != len(png) {
			panic(fmt.Sprintf("attachments %+v", a))
		}
		return ""
	}), flue.User("look", flue.Attachment{MediaType: "image/png", Filename: "a.png", Data: png}))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("image/png %d bytes", len(png)); reply.Text != want {
		t.Errorf("reply %q, want %q", reply.Text, want)
	}
}

func TestLogLinesAreEvents(t *testing.T) {
	tool := flue.NewTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, _ struct{}) (string, error) {
		flue.Log(ctx).With("step", 1).WithGroup("g").Info("halfway", "n", 2)
		return "ok", nil
	})
	lines := make(chan flue.Event, 8)
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents:    []*flue.Agent{agent(func(r *flue.Render) string { flue.UseModel(r, "fake/m"); flue.UseTool(r, tool); return "" })},
		Providers: map[string]model.Provider{"fake": &fake{answer: once("work", "")}},
		Observe: func(ev flue.Event) {
			if ev.Type == flue.EventLog {
				lines <- ev
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(t.Context())
	in := rt.Instance("helper", "c1")
	r, err := in.Dispatch(t.Context(), flue.User("go"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Read(t.Context(), r.Submission); err != nil {
		t.Fatal(err)
	}
	ev := <-lines
	if got := fmt.Sprint(ev.Call, ev.Log.Message, ev.Log.Attrs); got != "c_workhalfway[step=1 g.n=2]" {
		t.Errorf("log event %q", got)
	}
	flue.Log(t.Context()).Info("nowhere") // must not panic
	if id := flue.CallID(t.Context()); id != "" {
		t.Errorf("call id %q outside a call", id)
	}
}

func TestStateOutsideACall(t *testing.T) {
	var got error
	_, err := run(t, &fake{answer: func(*model.Request) []model.Block { return text("ok") }}, agent(func(r *flue.Render) string {
		flue.UseModel(r, "fake/m")
		got = flue.UsePersistentState(r, "n", 0).Set(context.Background(), 1)
		return ""
	}), flue.User("go"))
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(got, flue.ErrNoCall) {
		t.Errorf("a write during a render: %v, want ErrNoCall", got)
	}
}

func TestKeyedIDsNeverChange(t *testing.T) {
	f := &fake{answer: func(*model.Request) []model.Block { return text("ok") }}
	rt := open(t, f, agent(func(r *flue.Render) string { flue.UseModel(r, "fake/m"); return "" }))
	r, err := rt.Instance("helper", "c1").Dispatch(t.Context(), flue.User("x"), flue.SendOptions{IdempotencyKey: "key-1"})
	if err != nil {
		t.Fatal(err)
	}
	if want := "sub_ik_9b8c0f43cd8901c516942f76e0b7753a"; r.Submission != want {
		t.Errorf("the id of a key is %s; it was %s in the first release", r.Submission, want)
	}
}

var _ json.Marshaler = (*flue.Schema)(nil)

// What an update does to the fallback value must not reach other instances.
func TestFallbackIsNotShared(t *testing.T) {
	fallback := map[string]int{}
	tool := func(r *flue.Render) *flue.ToolDefinition {
		counts := flue.UsePersistentState(r, "counts", fallback)
		return flue.NewTool(flue.Tool{Name: "count", Description: "Count."}, func(ctx context.Context, _ struct{}) (int, error) {
			n := 0
			err := counts.Update(ctx, func(m map[string]int) map[string]int { m["k"]++; n = m["k"]; return m })
			return n, err
		})
	}
	for range 2 {
		reply, err := run(t, &fake{answer: once("count", "")}, agent(func(r *flue.Render) string {
			flue.UseModel(r, "fake/m")
			flue.UseTool(r, tool(r))
			return ""
		}), flue.User("go"))
		if err != nil {
			t.Fatal(err)
		}
		if reply.Text != "tool said: 1" {
			t.Errorf("reply %q", reply.Text)
		}
	}
	if len(fallback) != 0 {
		t.Errorf("the fallback became %v", fallback)
	}
}
