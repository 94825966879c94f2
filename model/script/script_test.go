package script_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/script"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func play(t *testing.T, ctx context.Context, p *script.Provider, req *model.Request) (modeltest.Answer, error) {
	t.Helper()
	return modeltest.Collect(t, p.Stream(ctx, req))
}

func TestTurn(t *testing.T) {
	turn := script.Think("Hm, two.").Say("Let me look.").
		Call("a", map[string]int{"n": 1}).Call("b", `{"cut`).ID("mine").
		Call("c", json.RawMessage(`[1]`)).Call("d", nil)
	got, err := play(t, t.Context(), script.New(turn), modeltest.Hello())
	if err != nil {
		t.Fatal(err)
	}
	want := []model.Block{
		{Kind: model.Reasoning, Text: "Hm, two."},
		{Kind: model.Text, Text: "Let me look."},
		{Kind: model.ToolCall, Name: "a", Arguments: `{"n":1}`},
		{Kind: model.ToolCall, Name: "b", Arguments: `{"cut`},
		{Kind: model.ToolCall, Name: "c", Arguments: `[1]`},
		{Kind: model.ToolCall, Name: "d", Arguments: `{}`},
	}
	if diff := cmp.Diff(want, got.Blocks, cmpopts.IgnoreFields(model.Block{}, "CallID")); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	if got.Blocks[3].CallID != "mine" {
		t.Errorf("id = %q, want the one that was set", got.Blocks[3].CallID)
	}
	if d := got.Done; d.Stop != model.StopToolUse || d.Model != script.Model || d.Usage.Total() == 0 || d.Usage.Reasoning != 2 {
		t.Errorf("done = %+v", d)
	}
	deltas := 0
	for _, e := range got.Events {
		if d, ok := e.(model.Delta); ok && d.Kind != model.ToolCall {
			deltas++
		}
	}
	if deltas != 5 {
		t.Errorf("%d deltas of text, want one a word", deltas)
	}
}

func TestTurnsAreValues(t *testing.T) {
	base := script.Say("a")
	one, two := base.Say("b"), base.Say("c")
	for _, tt := range []struct {
		turn script.Turn
		want string
	}{{base, "a"}, {one, "ab"}, {two, "ac"}, {base.Call("t", nil).ID("x"), "a"}} {
		got, err := play(t, t.Context(), script.New(tt.turn), modeltest.Hello())
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, b := range got.Blocks {
			text += b.Text
		}
		if text != tt.want {
			t.Errorf("text = %q, want %q", text, tt.want)
		}
	}
}

func TestSettings(t *testing.T) {
	usage := model.Usage{Input: 7, CacheRead: 2}
	got, err := play(t, t.Context(), script.New(script.Say("añb").Chunk(1).Stop(model.StopLength).Usage(usage)), modeltest.Hello())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Events) != 5 || got.Done.Stop != model.StopLength || got.Done.Usage != usage {
		t.Errorf("events = %v", got.Events)
	}
}

func TestOrderAndEnd(t *testing.T) {
	p := script.New(script.Say("one"), script.Fail(&model.Error{Class: model.Overflow, Message: "full"}), script.Turn{})
	var seen []*model.Request
	p.OnRequest = func(r *model.Request) { seen = append(seen, r) }
	if got, err := play(t, t.Context(), p, modeltest.Hello()); err != nil || got.Blocks[0].Text != "one" {
		t.Errorf("first call: %v, %v", got.Blocks, err)
	}
	_, err := play(t, t.Context(), p, modeltest.Hello())
	var e *model.Error
	if !errors.As(err, &e) || e.Class != model.Overflow || e.Provider != script.Name {
		t.Errorf("second call: %v", err)
	}
	if got, err := play(t, t.Context(), p, modeltest.Hello()); err != nil || len(got.Blocks) != 0 || got.Done.Stop != model.StopEnd {
		t.Errorf("third call: %v, %v", got, err)
	}
	_, err = play(t, t.Context(), p, modeltest.Hello())
	if !errors.As(err, &e) || e.Class != model.Invalid || !strings.Contains(e.Message, "3 turns and this is call 4") {
		t.Errorf("fourth call: %v", err)
	}
	if len(seen) != 4 || p.Calls() != 4 {
		t.Errorf("saw %d requests and %d calls, want 4", len(seen), p.Calls())
	}
}

// Failures leave the text before them unfinished, as a real stream would.
func TestUnfinished(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name string
		turn script.Turn
		ok   func(error) bool
	}{
		{"fail", script.Say("half an ").Fail(broken), func(err error) bool { return errors.Is(err, broken) }},
		{"cut", script.Say("half an ").Cut(), func(err error) bool {
			var e *model.Error
			return errors.As(err, &e) && e.Class == model.Retryable
		}},
	} {
		got, err := play(t, t.Context(), script.New(tt.turn), modeltest.Hello())
		if !tt.ok(err) || got.Done != nil || len(got.Blocks) != 0 || len(got.Events) == 0 {
			t.Errorf("%s: %v, error %v; want deltas, no block and the error", tt.name, got, err)
		}
	}
}

func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("aborted")
		for name, turn := range map[string]script.Turn{
			"hang":      script.Hang(),
			"text hang": script.Say("a ").Hang(),
			"wait":      script.Wait(time.Hour).Say("late"),
			"pace":      script.Say("a b c").Pace(time.Hour),
			"deaf do":   script.Do(func(context.Context) error { time.Sleep(time.Hour); return nil }).Say("late"),
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Minute, func() { cancel(cause) })
			if _, err := play(t, ctx, script.New(turn), modeltest.Hello()); err != cause {
				t.Errorf("%s: error = %v, want the context's cause", name, err)
			}
		}
		start := time.Now()
		turn := script.Wait(time.Second).Say("a b").Pace(time.Second).Wait(time.Second)
		if _, err := play(t, t.Context(), script.New(turn), modeltest.Hello()); err != nil || time.Since(start) != 4*time.Second {
			t.Errorf("error %v after %v, want 4s", err, time.Since(start))
		}
	})
}

func TestConsumerLeaves(t *testing.T) {
	after := false
	p := script.New(script.Say("a b").Do(func(context.Context) error { after = true; return nil }))
	for range p.Stream(t.Context(), modeltest.Hello()) {
		break
	}
	if after {
		t.Error("the script went on after its consumer had left")
	}
}

// agent is a script that is a function of the conversation alone.
var agent = script.Func(func(req *model.Request) script.Turn {
	switch {
	case script.LastUser(req) == "bye":
		return script.Say("Bye.")
	case script.Step(req) == 0:
		return script.Call("now", nil)
	}
	return script.Say("It is " + script.LastResults(req)[0].Text + ".")
})

func TestFunc(t *testing.T) {
	req := modeltest.Hello()
	first, err := play(t, t.Context(), script.New(agent), req)
	if err != nil {
		t.Fatal(err)
	}
	again, err := play(t, t.Context(), script.New(agent), req) // after a restart
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.Blocks, again.Blocks); diff != "" {
		t.Errorf("the same conversation got another answer:\n%s", diff)
	}
	id := first.Blocks[0].CallID
	req.Messages = append(req.Messages,
		model.Message{Role: model.RoleAssistant, Blocks: first.Blocks},
		model.Message{Role: model.RoleTool, Blocks: []model.Block{{Kind: model.ToolResult, CallID: id, Text: "noon"}}})
	p := script.New(agent)
	second, err := play(t, t.Context(), p, req)
	if err != nil || second.Blocks[0].Text != "It is noon." {
		t.Errorf("second step: %v, %v", second.Blocks, err)
	}
	req.Messages = append(req.Messages, model.Message{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: "and now?"}}})
	third, err := play(t, t.Context(), p, req) // the last Func goes on
	if err != nil || third.Blocks[0].CallID == id {
		t.Errorf("another call in the conversation: %v, %v; want another id than %s", third.Blocks, err, id)
	}
	var endless script.Turn
	endless = script.Func(func(*model.Request) script.Turn { return endless })
	if _, err := play(t, t.Context(), script.New(endless), req); err == nil {
		t.Error("an endless Func has no error")
	}
}

func TestConcurrentCalls(t *testing.T) {
	p := script.New(agent)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := play(t, t.Context(), p, modeltest.Hello()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if p.Calls() != 8 {
		t.Errorf("Calls() = %d", p.Calls())
	}
}

func TestMistakesPanic(t *testing.T) {
	for name, f := range map[string]func(){
		"arguments without JSON": func() { script.Call("t", func() {}) },
		"ID without a call":      func() { script.Say("a").ID("x") },
		"ID of nothing":          func() { script.Turn{}.ID("x") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// After a crash in the middle of an answer the conversation ends with what was
// said and the runtime's notices. A script must take it for the same message.
func TestResumedConversation(t *testing.T) {
	user := func(text string) model.Message {
		return model.Message{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: text}}}
	}
	assistant := func(b model.Block) model.Message {
		return model.Message{Role: model.RoleAssistant, Blocks: []model.Block{b}}
	}
	req := &model.Request{Messages: []model.Message{
		user("where is it?"),
		assistant(model.Block{Kind: model.ToolCall, CallID: "c", Name: "look", Arguments: "{}"}),
		{Role: model.RoleTool, Blocks: []model.Block{{Kind: model.ToolResult, CallID: "c", Text: "here"}}},
		assistant(model.Block{Kind: model.Text, Text: "It is"}),
		user("<signal type=\"stream_interrupted\">\nThe previous assistant stream was interrupted.\n</signal>"),
		user("<signal type=\"stream_continued\">\nContinue from the durable partial assistant response.\n</signal>"),
	}}
	if got := script.LastUser(req); got != "where is it?" {
		t.Errorf("LastUser = %q", got)
	}
	if got := script.Step(req); got != 1 {
		t.Errorf("Step = %d, want 1", got)
	}
}
