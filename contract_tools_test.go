package flue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	"github.com/flue-go/flue/wire"
)

// A definition is a tool on its way to being made, in each of the ways there are.
type definition struct {
	make, makeDurable func() (*flue.ToolDefinition, error)
	new, newDurable   func() *flue.ToolDefinition
}

func define[In, Out any](tool flue.Tool, fn func(context.Context, In) (Out, error)) definition {
	var durable func(context.Context, *flue.Step, In) (Out, error)
	if fn != nil {
		durable = func(ctx context.Context, _ *flue.Step, in In) (Out, error) { return fn(ctx, in) }
	}
	return definition{
		make:        func() (*flue.ToolDefinition, error) { return flue.MakeTool(tool, fn) },
		makeDurable: func() (*flue.ToolDefinition, error) { return flue.MakeDurableTool(tool, durable) },
		new:         func() *flue.ToolDefinition { return flue.NewTool(tool, fn) },
		newDurable:  func() *flue.ToolDefinition { return flue.NewDurableTool(tool, durable) },
	}
}

// A bad definition is the same error in all the ways to make a tool: returned,
// or panicked with, and then the end of the submission whose render it was in.
func TestNewToolPanics(t *testing.T) {
	quiet := func(context.Context, struct{}) (string, error) { return "", nil }
	for name, d := range map[string]definition{
		"no name":                      define(flue.Tool{Description: "d"}, quiet),
		"bad name":                     define(flue.Tool{Name: "a b", Description: "d"}, quiet),
		"long name":                    define(flue.Tool{Name: strings.Repeat("a", 65), Description: "d"}, quiet),
		"kept name":                    define(flue.Tool{Name: "task", Description: "d"}, quiet),
		"no description":               define(flue.Tool{Name: "a"}, quiet),
		"blank description":            define(flue.Tool{Name: "a", Description: " \n"}, quiet),
		"negative timeout":             define(flue.Tool{Name: "a", Description: "d", Timeout: -1}, quiet),
		"no function":                  define[struct{}, string](flue.Tool{Name: "a", Description: "d"}, nil),
		"input that is not an object":  define(flue.Tool{Name: "a", Description: "d"}, func(context.Context, []int) (string, error) { return "", nil }),
		"schema that is not an object": define(flue.Tool{Name: "a", Description: "d", Input: flue.SchemaFor[int]()}, quiet),
		"input without a JSON form": define(flue.Tool{Name: "a", Description: "d"}, func(context.Context, struct{ C chan int }) (string, error) {
			return "", nil
		}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.make()
			if err == nil {
				t.Fatal("MakeTool accepts it")
			}
			if def, also := d.makeDurable(); def != nil || also == nil || also.Error() != err.Error() {
				t.Errorf("MakeDurableTool: %v, %v; MakeTool says %v", def, also, err)
			}
			for _, make := range []func() *flue.ToolDefinition{d.new, d.newDurable} {
				if got := panicOf(func() { make() }); got != err.Error() {
					t.Errorf("the constructor panics with %v, want %q", got, err)
				}
			}
			s := newStage(t, plain(func(r *flue.Render) { flue.UseTool(r, d.new()) }), sayOK)
			_, failed := s.read(s.send(flue.User("go")))
			var end *flue.SubmissionError
			if !errors.As(failed, &end) || end.Outcome != flue.Failed || len(s.asked()) != 0 {
				t.Fatalf("with the definition in a render: %v after %d model calls", failed, len(s.asked()))
			}
			s.close() // by when the observer has been told
			if cause := s.observed(flue.EventSettled)[0].Error; !strings.Contains(cause.Error(), err.Error()) {
				t.Errorf("operators are told %v, want %q in it", cause, err)
			}
		})
	}
}

func panicOf(fn func()) (p any) {
	defer func() { p = recover() }()
	fn()
	return nil
}

func TestReservedToolNames(t *testing.T) {
	quiet := func(context.Context, struct{}) (string, error) { return "", nil }
	for _, name := range []string{"task", "activate_skill", "read_skill_resource", "finish", "give_up"} {
		d := define(flue.Tool{Name: name, Description: "d"}, quiet)
		for _, make := range []func() (*flue.ToolDefinition, error){d.make, d.makeDurable} {
			if def, err := make(); def != nil || err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "belongs to the framework") {
				t.Errorf("%s: %v, %v", name, def, err)
			}
		}
	}
	for _, name := range []string{"tasks", "finish_order", "read", "bash"} {
		if def, err := define(flue.Tool{Name: name, Description: "d"}, quiet).make(); err != nil || def.Name() != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestToolAsTheModelSeesIt(t *testing.T) {
	type query struct {
		OrderID string `json:"orderId" jsonschema:"order number"`
		Detail  string `json:"detail,omitempty" enum:"short,long"`
	}
	given, err := flue.ParseSchema([]byte(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`))
	if err != nil {
		t.Fatal(err)
	}
	tools := []*flue.ToolDefinition{
		flue.NewTool(flue.Tool{Name: "ping", Description: "Say whether the shop is open.", Timeout: time.Minute}, func(context.Context, struct{}) (string, error) { return "", nil }),
		flue.NewTool(flue.Tool{Name: "lookup_order", Description: "Look up one order.\nUse its number."}, func(context.Context, query) (string, error) { return "", nil }),
		flue.NewDurableTool(flue.Tool{Name: "add", Description: "Add.", Input: given}, func(context.Context, *flue.Step, map[string]any) (string, error) { return "", nil }),
	}
	s := newStage(t, plain(func(r *flue.Render) {
		if flue.UseDelivery(r).Body == "bare" {
			return
		}
		for _, tool := range tools {
			flue.UseTool(r, tool)
		}
	}), sayOK)
	s.say("hello")
	want := []struct{ Name, Description, Schema string }{
		{"ping", "Say whether the shop is open.", `{"type":"object","properties":{},"additionalProperties":false}`},
		{"lookup_order", "Look up one order.\nUse its number.", `{"type":"object","properties":{"orderId":{"type":"string","description":"order number"},"detail":{"type":"string","enum":["short","long"]}},"required":["orderId"],"additionalProperties":false}`},
		{"add", "Add.", `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`},
	}
	got := s.asked()[0].Tools
	if len(got) != len(want) {
		t.Fatalf("the model is shown %d tools, want %d", len(got), len(want))
	}
	for i, w := range want {
		if got[i].Name != w.Name || got[i].Description != w.Description || got[i].After != "" {
			t.Errorf("tool %d: %q, %q, after %q", i, got[i].Name, got[i].Description, got[i].After)
		}
		if diff := cmp.Diff(decoded(t, []byte(w.Schema)), decoded(t, got[i].Schema)); diff != "" {
			t.Errorf("schema of %s (-want +got):\n%s", w.Name, diff)
		}
		if string(got[i].Schema) != string(tools[i].InputSchema()) {
			t.Errorf("%s: InputSchema is %s, the model is shown %s", w.Name, tools[i].InputSchema(), got[i].Schema)
		}
	}
	s.say("bare")
	if tools := s.asked()[1].Tools; len(tools) != 0 {
		t.Errorf("an agent without tools shows the model %v", tools)
	}
}

func decoded(t *testing.T, raw []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return v
}

// One definition serves two agents and many conversations at once.
func TestToolIsShared(t *testing.T) {
	shared := flue.NewTool(flue.Tool{Name: "echo", Description: "Repeat a word."}, func(ctx context.Context, in echoInput) (map[string]string, error) {
		return map[string]string{"word": in.Word, "call": flue.CallID(ctx)}, nil
	})
	f := &fake{answer: func(req *model.Request) []model.Block {
		if m := req.Messages[len(req.Messages)-1]; m.Role == model.RoleTool {
			return text(m.Blocks[0].Text)
		}
		word := req.Messages[0].Blocks[0].Text
		return []model.Block{{Kind: model.ToolCall, CallID: "call-" + word, Name: "echo", Arguments: `{"word":"` + word + `"}`}}
	}}
	var agents []*flue.Agent
	for _, name := range []string{"first", "second"} {
		agents = append(agents, &flue.Agent{Name: name, Render: func(r *flue.Render) string {
			flue.UseModel(r, "fake/m")
			flue.UseTool(r, shared)
			return "Echo."
		}})
	}
	rt := open(t, f, agents...)
	var wg sync.WaitGroup
	for _, a := range agents {
		for i := range 16 {
			wg.Go(func() {
				word := fmt.Sprintf("%s-%d", a.Name, i)
				in := rt.Instance(a.Name, word)
				receipt, err := in.Dispatch(t.Context(), flue.User(word))
				if err != nil {
					t.Error(err)
					return
				}
				reply, err := in.Read(t.Context(), receipt.Submission)
				if err != nil {
					t.Error(err)
					return
				}
				if want := fmt.Sprintf(`{"call":"call-%s","word":"%s"}`, word, word); reply.Text != want {
					t.Errorf("%s was told %s", word, reply.Text)
				}
			})
		}
	}
	wg.Wait()
}

// A call for a tool that the render before had, and this one has not, is not run.
func TestUnmountedTool(t *testing.T) {
	var s *stage
	s = newStage(t, plain(func(r *flue.Render) {
		spent := flue.UsePersistentState(r, "spent", false)
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "spend", Description: "Spend."}, func(ctx context.Context, _ struct{}) (string, error) {
			return "spent", spent.Set(ctx, true)
		}))
		if !spent.Value() {
			flue.UseTool(r, flue.NewTool(flue.Tool{Name: "refund", Description: "Refund."}, func(context.Context, struct{}) (string, error) {
				s.note("refunded")
				return "refunded", nil
			}))
		}
	}), func(req *model.Request) script.Turn {
		switch results := resultsIn(req); len(results) {
		case 0:
			return script.Call("spend", nil)
		case 1:
			return script.Call("refund", nil)
		default:
			return script.Say(fmt.Sprintf("%s %v", results[1].Text, results[1].IsError))
		}
	})
	if got, want := s.say("go"), "Tool refund not found true"; got != want {
		t.Errorf("the model was told %q, want %q", got, want)
	}
	if names := toolNamesOf(s.asked()[0]); !slices.Equal(names, []string{"spend", "refund"}) {
		t.Errorf("the first render had %v", names)
	}
	if names := toolNamesOf(s.asked()[1]); !slices.Equal(names, []string{"spend"}) {
		t.Errorf("the second render had %v", names)
	}
	if len(s.noted()) != 0 {
		t.Error("the tool was run")
	}
	if p := toolParts(s.snapshot())[1]; p.State != wire.StateOutputError || *p.ErrorText != "Tool refund not found" {
		t.Errorf("clients see %s, %v", p.State, p.ErrorText)
	}
}

// resultsIn returns all tool results of a request. Unlike [script.Step] it is not
// misled by what the runtime tells the model between two turns.
func resultsIn(req *model.Request) []model.Block {
	var results []model.Block
	for _, m := range req.Messages {
		for _, b := range m.Blocks {
			if b.Kind == model.ToolResult {
				results = append(results, b)
			}
		}
	}
	return results
}

func toolNamesOf(req *model.Request) []string {
	var names []string
	for _, tool := range req.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// toolParts are the calls of a conversation as clients see them.
func toolParts(snap *wire.Snapshot) []wire.Part {
	var parts []wire.Part
	for _, m := range snap.Messages {
		for _, p := range m.Parts {
			if p.Type == wire.PartTool {
				parts = append(parts, p)
			}
		}
	}
	return parts
}

func TestOutputSchema(t *testing.T) {
	type report struct {
		Status string `json:"status" enum:"open,closed"`
		Score  int    `json:"score" min:"0" max:"10"`
	}
	tests := []struct {
		name  string
		value any
		bad   string // what the error names; empty if the value fits
	}{
		{"fits", map[string]any{"status": "open", "score": 10}, ""},
		{"enum", map[string]any{"status": "ajar", "score": 1}, "status"},
		{"range", map[string]any{"status": "open", "score": 11}, "score"},
		{"missing", map[string]any{"status": "open"}, "score"},
		{"other kind", []string{"open"}, "object"},
		{"nothing", nil, "null"},
		{"nil pointer", (*report)(nil), "null"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tool := flue.NewTool(flue.Tool{Name: "report", Description: "Report.", Output: flue.SchemaFor[report]()},
				func(context.Context, struct{}) (any, error) { return tt.value, nil })
			s := newStage(t, plain(func(r *flue.Render) { flue.UseTool(r, tool) }), callThenSay("report", nil))
			s.say("go")
			if n := len(s.asked()); n != 2 {
				t.Fatalf("%d model calls, want 2", n)
			}
			read := script.LastResults(s.asked()[1])[0]
			part := toolParts(s.snapshot())[0]
			if tt.bad == "" {
				if read.IsError || part.State != wire.StateOutputAvailable || string(part.Output) != string(asJSON(tt.value)) {
					t.Errorf("the model reads %+v, clients see %s %s", read, part.State, part.Output)
				}
				return
			}
			if !read.IsError || !strings.Contains(read.Text, `Tool "report" ran`) || !strings.Contains(read.Text, tt.bad) {
				t.Errorf("the model reads %q (an error: %v), want an error that names %s", read.Text, read.IsError, tt.bad)
			}
			if part.State != wire.StateOutputError || *part.ErrorText != read.Text || len(part.Output) != 0 {
				t.Errorf("clients see %s %v", part.State, part.ErrorText)
			}
			var out *flue.ToolOutputError
			if err := s.observed(flue.EventToolDone)[0].Error; !errors.As(err, &out) || out.Tool != "report" {
				t.Errorf("observers are told %v", err)
			}
		})
	}
	t.Run("nothing, without a schema", func(t *testing.T) {
		tool := flue.NewTool(flue.Tool{Name: "report", Description: "Report."}, func(context.Context, struct{}) (any, error) { return nil, nil })
		s := newStage(t, plain(func(r *flue.Render) { flue.UseTool(r, tool) }), callThenSay("report", nil))
		if got := s.say("go"); got != "it said: null" || script.LastResults(s.asked()[1])[0].IsError {
			t.Errorf("reply %q", got)
		}
	})
}

// A response ends only if every call of the batch asks for it and none failed;
// what the calls returned is recorded either way.
func TestMixedEndTurn(t *testing.T) {
	tools := []*flue.ToolDefinition{
		flue.NewTool(flue.Tool{Name: "end", Description: "E."}, func(context.Context, struct{}) (string, error) { return "ended", flue.EndTurn }),
		flue.NewTool(flue.Tool{Name: "wrapped", Description: "W."}, func(context.Context, struct{}) (map[string]int, error) {
			return map[string]int{"n": 1}, fmt.Errorf("all is done: %w", flue.EndTurn)
		}),
		flue.NewTool(flue.Tool{Name: "go_on", Description: "G."}, func(context.Context, struct{}) (string, error) { return "going", nil }),
		flue.NewTool(flue.Tool{Name: "fail", Description: "F."}, func(context.Context, struct{}) (string, error) { return "", errors.New("no luck") }),
		flue.NewTool(flue.Tool{Name: "misfit", Description: "M.", Output: flue.SchemaFor[struct{}]()}, func(context.Context, struct{}) (int, error) { return 1, flue.EndTurn }),
	}
	tests := []struct {
		batch []string
		calls int
		want  []string
	}{
		{[]string{"end"}, 1, []string{`"ended"`}},
		{[]string{"end", "wrapped", "end"}, 1, []string{`"ended"`, `{"n":1}`, `"ended"`}},
		{[]string{"wrapped"}, 1, []string{`{"n":1}`}},
		{[]string{"end", "go_on"}, 2, []string{`"ended"`, `"going"`}},
		{[]string{"fail", "end"}, 2, []string{"error: no luck", `"ended"`}},
		{[]string{"end", "missing"}, 2, []string{`"ended"`, "error: Tool missing not found"}},
		{[]string{"misfit"}, 2, []string{`error: Tool "misfit" ran`}},
		{[]string{"misfit", "end"}, 2, []string{`error: Tool "misfit" ran`, `"ended"`}},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.batch, " "), func(t *testing.T) {
			s := newStage(t, plain(func(r *flue.Render) {
				for _, tool := range tools {
					flue.UseTool(r, tool)
				}
			}), func(req *model.Request) script.Turn {
				if script.Step(req) > 0 {
					return script.Say("on I go")
				}
				var turn script.Turn
				for _, name := range tt.batch {
					turn = turn.Call(name, nil)
				}
				return turn
			})
			reply := s.say("go")
			if n := len(s.asked()); n != tt.calls {
				t.Errorf("%d model calls, want %d", n, tt.calls)
			}
			if want := map[int]string{1: "", 2: "on I go"}[tt.calls]; reply != want {
				t.Errorf("reply %q, want %q", reply, want)
			}
			parts := toolParts(s.snapshot())
			if len(parts) != len(tt.want) {
				t.Fatalf("%d calls are recorded, want %d", len(parts), len(tt.want))
			}
			for i, p := range parts {
				got := string(p.Output)
				if p.ErrorText != nil {
					got = "error: " + *p.ErrorText
				}
				if got != tt.want[i] && (!strings.HasPrefix(tt.want[i], "error: ") || !strings.HasPrefix(got, tt.want[i])) {
					t.Errorf("call %d of %s has the outcome %s, want %s", i, p.ToolName, got, tt.want[i])
				}
			}
			// The next message works, whether or not the model had the last word.
			if next := s.say("and now"); tt.calls == 1 && next != "" || tt.calls == 2 && next == "" {
				t.Errorf("the next message has the reply %q", next)
			}
		})
	}
}

// What is a failure is what the function returns as an error, and not what a
// result says.
func TestFailureIsMarked(t *testing.T) {
	s := newStage(t, plain(func(r *flue.Render) {
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "lookup", Description: "Look up."}, func(_ context.Context, in struct {
			Fail bool `json:"fail"`
		},
		) (map[string]string, error) {
			if in.Fail {
				return map[string]string{"status": "fine"}, errors.New("no such order: ask for the number again")
			}
			return map[string]string{"error": "no such order"}, nil
		}))
	}), func(req *model.Request) script.Turn {
		if script.Step(req) > 0 {
			return script.Say("ok")
		}
		return script.Call("lookup", `{"fail":true}`).Call("lookup", `{"fail":false}`)
	})
	s.say("go")
	want := []struct {
		text, state string
		failed      bool
	}{
		{"no such order: ask for the number again", wire.StateOutputError, true},
		{`{"error":"no such order"}`, wire.StateOutputAvailable, false},
	}
	results, parts := script.LastResults(s.asked()[1]), toolParts(s.snapshot())
	for i, w := range want {
		if results[i].Text != w.text || results[i].IsError != w.failed {
			t.Errorf("call %d: the model reads %q, an error: %v", i, results[i].Text, results[i].IsError)
		}
		if parts[i].State != w.state || (parts[i].ErrorText != nil) != w.failed || (len(parts[i].Output) > 0) == w.failed {
			t.Errorf("call %d: clients see %s, output %s", i, parts[i].State, parts[i].Output)
		}
	}
}

// A call that waits for its context is ended at once by an abort, by the
// submission's deadline and by a shutdown that has lost its patience; after each
// the conversation works.
func TestToolContextEnds(t *testing.T) {
	tests := []struct {
		name  string
		stop  func(t *testing.T, s *stage)
		after time.Duration // when the context ends, since the stop
		end   flue.Outcome
	}{
		{"abort", func(t *testing.T, s *stage) {
			if ok, err := s.in.Abort(t.Context()); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}, 0, flue.Aborted},
		{"deadline", func(*testing.T, *stage) {}, 50 * time.Second, flue.Failed},
		{"close", func(t *testing.T, s *stage) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			if err := s.rt.Close(ctx); err != nil {
				t.Fatal(err)
			}
			s.rt = nil
			s.open()
		}, 3 * time.Second, flue.Completed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *stage
				var ended time.Time
				a := plain(func(r *flue.Render) {
					flue.UseTool(r, flue.NewTool(flue.Tool{Name: "wait", Description: "Wait."}, func(ctx context.Context, _ struct{}) (string, error) {
						<-ctx.Done()
						ended = time.Now()
						s.note("cause: %v", context.Cause(ctx) != nil)
						return "", ctx.Err()
					}))
				})
				a.Durability.Timeout = time.Minute
				s = newStage(t, a, func(req *model.Request) script.Turn {
					if script.LastUser(req) == "wait" && script.Step(req) == 0 {
						return script.Call("wait", nil)
					}
					return script.Say("fine")
				})
				defer s.close()
				sub := s.send(flue.User("wait"))
				time.Sleep(10 * time.Second) // simulated: the tool is at work
				stopped := time.Now()
				tt.stop(t, s)
				_, err := s.read(sub)
				if got := ended.Sub(stopped); got != tt.after {
					t.Errorf("the context ended after %v, want %v", got, tt.after)
				}
				var end *flue.SubmissionError
				switch {
				case tt.end == flue.Completed && err != nil:
					t.Errorf("the submission: %v", err)
				case tt.end != flue.Completed && (!errors.As(err, &end) || end.Outcome != tt.end):
					t.Errorf("the submission: %v, want %s", err, tt.end)
				}
				if got := s.noted(); !slices.Equal(got, []string{"cause: true"}) {
					t.Errorf("the tool noted %q", got)
				}
				if p := toolParts(s.snapshot())[0]; p.State != wire.StateOutputError || !strings.Contains(*p.ErrorText, `"type":"interrupted"`) {
					t.Errorf("clients see %s %v", p.State, p.ErrorText)
				}
				if got := s.say("and now"); got != "fine" {
					t.Errorf("the next message has the reply %q", got)
				}
			})
		})
	}
}

// A function that is deaf to its context is left behind: what it returns and
// writes later changes nothing.
func TestLateReturnChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *stage
		var late, lateUpdate error
		release := make(chan struct{})
		s = newStage(t, plain(func(r *flue.Render) {
			n := flue.UsePersistentState(r, "n", 1)
			flue.UseTool(r, flue.NewTool(flue.Tool{Name: "deaf", Description: "Deaf."}, func(ctx context.Context, _ struct{}) (string, error) {
				<-release
				late = n.Set(ctx, 2)
				lateUpdate = n.Update(ctx, func(int) int { return 3 })
				return "late", nil
			}))
			flue.UseInstruction(r, fmt.Sprintf("n is %d", n.Value()))
		}), func(req *model.Request) script.Turn {
			if script.LastUser(req) == "go" && script.Step(req) == 0 {
				return script.Call("deaf", nil)
			}
			return script.Say(req.System)
		})
		defer s.close()
		sub := s.send(flue.User("go"))
		synctest.Wait()
		if _, err := s.in.Abort(t.Context()); err != nil {
			t.Fatal(err)
		}
		var end *flue.SubmissionError
		if _, err := s.read(sub); !errors.As(err, &end) || end.Outcome != flue.Aborted {
			t.Fatalf("the submission: %v", err)
		}
		before := s.snapshot()
		close(release)
		synctest.Wait()
		if !errors.Is(late, flue.ErrCallOver) || !errors.Is(lateUpdate, flue.ErrCallOver) {
			t.Errorf("the late writes: %v, %v; want ErrCallOver", late, lateUpdate)
		}
		if diff := cmp.Diff(before, s.snapshot()); diff != "" {
			t.Errorf("the late return changed the conversation:\n%s", diff)
		}
		if got := s.say("and now"); !strings.Contains(got, "n is 1") {
			t.Errorf("the state afterwards: %q", got)
		}
		for _, r := range s.records() {
			if o, ok := r.(*journal.Outcome); ok && (!o.Failed || len(o.Writes) > 0 || !strings.Contains(o.Content, "may still be running")) {
				t.Errorf("the outcome is %+v", o)
			}
		}
	})
}

// The id of a call is the one that the conversation and the events have; its
// key is its own even where a provider repeats ids.
func TestCallIDIsTheConversations(t *testing.T) {
	type ids struct{ ID, Key string }
	s := newStage(t, plain(func(r *flue.Render) {
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "who", Description: "Who."}, func(ctx context.Context, _ struct{}) (ids, error) {
			return ids{flue.CallID(ctx), flue.CallKey(ctx)}, nil
		}))
	}), func(req *model.Request) script.Turn {
		if script.Step(req) > 0 {
			return script.Say("ok")
		}
		turn := script.Call("who", nil).ID("same")
		if script.LastUser(req) == "two" {
			turn = turn.Call("who", nil).ID("other")
		}
		return turn
	})
	s.say("two")
	s.say("one")
	var fromEvents []string
	for _, ev := range s.observed(flue.EventToolStarted) {
		fromEvents = append(fromEvents, ev.Call)
	}
	var done []string
	for _, ev := range s.observed(flue.EventToolDone) {
		done = append(done, ev.Call)
	}
	var fromParts, keys []string
	for _, p := range toolParts(s.snapshot()) {
		var got ids
		if err := json.Unmarshal(p.Output, &got); err != nil {
			t.Fatal(err)
		}
		if got.ID != p.ToolCallID {
			t.Errorf("CallID is %q, the part has %q", got.ID, p.ToolCallID)
		}
		fromParts, keys = append(fromParts, p.ToolCallID), append(keys, got.Key)
	}
	if want := []string{"same", "other", "same"}; !slices.Equal(fromParts, want) || !slices.Equal(fromEvents, want) {
		t.Errorf("ids in the conversation %q, in the events %q, want %q", fromParts, fromEvents, want)
	}
	slices.Sort(done)
	if want := []string{"other", "same", "same"}; !slices.Equal(done, want) {
		t.Errorf("ids of the finished calls %q", done)
	}
	slices.Sort(keys)
	if n := len(slices.Compact(keys)); n != 3 || slices.Contains(keys, "") {
		t.Errorf("the keys of three calls are %q", keys)
	}
}

// Log lines are events while the code runs, and nothing but events.
func TestLogLines(t *testing.T) {
	const secret = "progress-line"
	var s *stage
	log := func(ctx context.Context, where string) {
		l := flue.Log(ctx)
		for _, say := range []func(string, ...any){l.Info, l.Warn, l.Error} {
			before := len(s.observed(flue.EventLog))
			say(secret+" "+where, "of", 3)
			if len(s.observed(flue.EventLog)) != before+1 {
				s.note("a line of %s was not told at once", where)
			}
		}
	}
	s = newStage(t, plain(func(r *flue.Render) {
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, _ struct{}) (string, error) {
			log(ctx, "tool")
			return "worked", nil
		}))
		flue.UseResponseStart(r, func(ctx context.Context, _ *flue.ResponseStart) (flue.Metadata, error) {
			log(ctx, "response start")
			return nil, nil
		})
		flue.UseAgentStart(r, func(ctx context.Context, _ *flue.AgentStart) error {
			log(ctx, "start")
			return nil
		})
		flue.UseAgentFinish(r, func(ctx context.Context, _ *flue.AgentFinish) error {
			log(ctx, "finish")
			return nil
		})
		flue.UseResponseFinish(r, func(ctx context.Context, _ *flue.ResponseFinish) (flue.Metadata, error) {
			log(ctx, "response finish")
			return nil, nil
		})
	}), callThenSay("work", nil))
	sub := s.send(flue.User("go"))
	if _, err := s.read(sub); err != nil {
		t.Fatal(err)
	}
	s.say("and again")
	var got, want []string
	for _, ev := range s.observed(flue.EventLog) {
		if ev.Submission == sub {
			got = append(got, fmt.Sprint(ev.Log.Level, " ", ev.Log.Message, " ", ev.Log.Attrs, " ", ev.Tool, ev.Hook, " ", ev.Call != ""))
		}
	}
	for _, w := range [][3]string{
		{"response start", "UseResponseStart", "false"},
		{"start", "UseAgentStart", "false"},
		{"tool", "work", "true"},
		{"finish", "UseAgentFinish", "false"},
		{"response finish", "UseResponseFinish", "false"},
	} {
		for _, level := range []string{"INFO", "WARN", "ERROR"} {
			want = append(want, fmt.Sprintf("%s %s %s [of=3] %s %s", level, secret, w[0], w[1], w[2]))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if notes := s.noted(); len(notes) != 0 {
		t.Error(notes)
	}
	for i, req := range s.asked() {
		if strings.Contains(fmt.Sprintf("%+v", *req), secret) {
			t.Errorf("request %d has a log line", i)
		}
	}
	if strings.Contains(string(asJSON(s.snapshot())), secret) || strings.Contains(string(asJSON(s.records())), secret) {
		t.Error("a log line is in the conversation")
	}
}

// A tool's own timeout ends its context with a cause of its own, and is told
// apart from whatever the tool returns.
func TestToolTimeoutEndsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *stage
		s = newStage(t, plain(func(r *flue.Render) {
			flue.UseTool(r, flue.NewTool(flue.Tool{Name: "slow", Description: "Slow.", Timeout: 5 * time.Second}, func(ctx context.Context, in struct {
				Early bool `json:"early"`
			},
			) (string, error) {
				if in.Early {
					return "", fmt.Errorf("upstream: %w", context.DeadlineExceeded)
				}
				<-ctx.Done()
				var timeout *flue.ToolTimeoutError
				is := errors.As(context.Cause(ctx), &timeout)
				s.note("ended by its timeout: %v, tool %s after %v", is, timeout.Tool, timeout.After)
				time.Sleep(time.Second) // simulated: it takes a while to clean up
				s.note("cleaned up")
				return "too late", nil
			}))
		}), func(req *model.Request) script.Turn {
			switch script.Step(req) {
			case 0:
				return script.Call("slow", `{"early":false}`)
			case 1:
				return script.Call("slow", `{"early":true}`)
			}
			return script.Say("ok")
		})
		defer s.close()
		began := time.Now()
		if got := s.say("go"); got != "ok" {
			t.Errorf("reply %q", got)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("the response took %v: it must not wait for the cleaning up", took)
		}
		time.Sleep(2 * time.Second) // simulated
		if diff := cmp.Diff([]string{"ended by its timeout: true, tool slow after 5s", "cleaned up"}, s.noted()); diff != "" {
			t.Errorf("notes (-want +got):\n%s", diff)
		}
		done := s.observed(flue.EventToolDone)
		if len(done) != 2 {
			t.Fatalf("%d finished calls", len(done))
		}
		var timeout *flue.ToolTimeoutError
		if !errors.As(done[0].Error, &timeout) || done[0].Text != `Tool "slow" timed out after 5000ms` {
			t.Errorf("the timeout is told as %v, %q", done[0].Error, done[0].Text)
		}
		if errors.As(done[1].Error, &timeout) || !errors.Is(done[1].Error, context.DeadlineExceeded) || done[1].Text != "upstream: context deadline exceeded" {
			t.Errorf("the tool's own error is told as %v, %q", done[1].Error, done[1].Text)
		}
	})
}
