package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// The cost of a message is part of the design: a commit is what it waits for.
func TestCommitsPerMessage(t *testing.T) {
	tests := []struct {
		name  string
		tools int
		hooks bool
		want  int
	}{
		{"text", 0, false, 3},
		{"two tools", 2, false, 6},
		{"text with hooks", 0, true, 5},
		{"two tools with hooks", 2, true, 8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.tools = []engine.Tool{w.tool("work", func(ctx context.Context, c *engine.Work) engine.Result {
					if c.ID == "b" { // so that the two do not end at the same instant
						pause(ctx, time.Millisecond)
					}
					return engine.Result{Content: "ok"}
				})}
				if tt.hooks {
					ran := []engine.Hook{{Name: "hook", Run: func(context.Context, *engine.Work) error { return nil }}}
					w.render = func(engine.View) (*engine.Plan, error) {
						return &engine.Plan{
							Settings: journal.Settings{Model: "test/m"}, Tools: w.tools,
							Start: ran, Finish: ran, ResponseStart: ran, ResponseFinish: ran,
						}, nil
					}
				}
				w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
					if _, results := asked(req); tt.tools > 0 && results == 0 {
						call(yield, "work a", "work b")
						return
					}
					say(yield, "done")
				}
				fs := faultstore.New(memstore.New())
				e := w.start(t, fs)
				defer stop(t, e)
				for range 2 {
					before := fs.Written().Total()
					if got := settled(t, e, chat, send(t, e, chat, "hi")); got != "completed" {
						t.Fatalf("settled %s", got)
					}
					if got := fs.Written().Total() - before; got != tt.want {
						t.Errorf("%d commits, want %d", got, tt.want)
					}
				}
			})
		})
	}
}

func TestConversation(t *testing.T) {
	tests := []struct {
		name  string
		setup func(w *world)
		sends []string
		want  []string
	}{
		{
			name:  "text",
			sends: []string{"one", "two"},
			want: []string{
				`user text "one" done`, `assistant text "you said one" done`,
				`user text "two" done`, `assistant text "you said two" done`,
				"settled completed", "settled completed",
			},
		},
		{
			name: "tool that fails, tool that is unknown",
			setup: func(w *world) {
				w.tools = []engine.Tool{w.tool("bad", func(context.Context, *engine.Work) engine.Result {
					return engine.Result{Failed: true, Content: "no such order"}
				})}
				w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
					if _, results := asked(req); results == 0 {
						call(yield, `bad c1 {"x":1}`, "nope c2 {}")
						return
					}
					say(yield, "sorry")
				}
			},
			sends: []string{"go"},
			want: []string{
				`user text "go" done`,
				`assistant bad({"x":1}) output-error: no such order`, `assistant nope({}) output-error: Tool nope not found`,
				`assistant text "sorry" done`, "settled completed",
			},
		},
		{
			name: "tool that panics",
			setup: func(w *world) {
				w.tools = []engine.Tool{w.tool("boom", func(context.Context, *engine.Work) engine.Result { panic("secret") })}
				w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
					if _, results := asked(req); results == 0 {
						call(yield, "boom c1 {}")
						return
					}
					say(yield, "sorry")
				}
			},
			sends: []string{"go"},
			want: []string{
				`user text "go" done`, `assistant boom({}) output-error: Tool "boom" failed: internal error (panic).`,
				`assistant text "sorry" done`, "settled completed",
			},
		},
		{
			name: "calls of a truncated answer are not run",
			setup: func(w *world) {
				w.tools = []engine.Tool{w.tool("write", nil)}
				w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
					if _, results := asked(req); results == 0 {
						yield(model.BlockDone{Block: model.Block{Kind: model.ToolCall, CallID: "c1", Name: "write", Arguments: `{"path":"a.txt","content":"hel`}}, nil)
						yield(model.Done{Stop: model.StopLength}, nil)
						return
					}
					say(yield, "shorter")
				}
			},
			sends: []string{"go"},
			want: []string{
				`user text "go" done`,
				`assistant write("{\"path\":\"a.txt\",\"content\":\"hel") output-error: {"type":"truncated","message":"The call was not run: the model reached its output limit while writing it, so its arguments may be incomplete. Call the tool again with shorter arguments."}`,
				`assistant text "shorter" done`, "settled completed",
			},
		},
		{
			name: "calls without ids, or with the same one",
			setup: func(w *world) {
				w.tools = []engine.Tool{w.tool("work", func(_ context.Context, c *engine.Work) engine.Result {
					return engine.Result{Content: "ok"}
				})}
				w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
					if _, results := asked(req); results < 2 {
						call(yield, "work x {}", "work x {}", "work  {}")
						return
					}
					say(yield, "done")
				}
			},
			sends: []string{"go"},
			want: append(append([]string{`user text "go" done`},
				slices.Repeat([]string{`assistant work({}) output-available: "ok"`}, 6)...),
				`assistant text "done" done`, "settled completed"),
		},
		{
			name: "ends when every call says so, without another model call",
			setup: func(w *world) {
				w.tools = []engine.Tool{w.tool("finish", func(context.Context, *engine.Work) engine.Result {
					return engine.Result{Content: "ok", EndTurn: true}
				})}
				w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
					if _, results := asked(req); results > 0 {
						panic("the model was called again")
					}
					call(yield, "finish a {}", "finish b {}")
				}
			},
			sends: []string{"go"},
			want: []string{
				`user text "go" done`, `assistant finish({}) output-available: "ok"`, `assistant finish({}) output-available: "ok"`, "settled completed",
			},
		},
		{
			name: "render that fails says nothing of why, and the next message works",
			setup: func(w *world) {
				w.render = func(v engine.View) (*engine.Plan, error) {
					if v.Delivery.Body == "bad" {
						panic("secret")
					}
					return &engine.Plan{Settings: journal.Settings{Model: "test/m"}}, nil
				}
			},
			sends: []string{"bad", "good"},
			want: []string{
				`user text "bad" done`, `user text "good" done`, `assistant text "you said good" done`, "settled failed", "settled completed",
			},
		},
		{
			name: "model failure that passes",
			setup: func(w *world) {
				w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
					if w.asked() < 3 {
						yield(model.Delta{Kind: model.Text, Text: "half"}, nil)
						yield(nil, &model.Error{Provider: "test", Class: model.Retryable, Status: 503, Message: "overloaded"})
						return
					}
					say(yield, "whole")
				}
			},
			sends: []string{"go"},
			want: []string{
				`user text "go" done`, `assistant text "whole" done`, "settled completed",
			},
		},
		{
			name: "answer that cannot be stored",
			setup: func(w *world) {
				w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
					if text, _ := asked(req); text == "opaque" {
						yield(model.BlockDone{Block: model.Block{Kind: model.Reasoning, Opaque: []byte("not JSON")}}, nil)
						return
					}
					say(yield, "fine")
				}
			},
			sends: []string{"opaque", "good"},
			want:  []string{`user text "opaque" done`, `user text "good" done`, `assistant text "fine" done`, "settled failed", "settled completed"},
		},
		{
			name: "model failure that does not",
			setup: func(w *world) {
				w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
					if text, _ := asked(req); text == "bad" {
						yield(nil, &model.Error{Provider: "test", Class: model.Invalid, Status: 400, Message: "no"})
						return
					}
					say(yield, "fine")
				}
			},
			sends: []string{"bad", "good"},
			want: []string{
				`user text "bad" done`, `user text "good" done`, `assistant text "fine" done`, "settled failed", "settled completed",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.reply = echo
				if tt.setup != nil {
					tt.setup(w)
				}
				s := memstore.New()
				e := w.start(t, s)
				for _, body := range tt.sends {
					settled(t, e, chat, send(t, e, chat, body))
				}
				got := transcript(t, e, chat)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("conversation (-want +got):\n%s", diff)
				}
				for _, line := range got {
					if strings.Contains(line, "secret") {
						t.Errorf("a panic's text was shown: %s", line)
					}
				}
				stop(t, e)

				// What a later process reads is the same.
				e = w.start(t, s)
				defer stop(t, e)
				if diff := cmp.Diff(got, transcript(t, e, chat)); diff != "" {
					t.Errorf("after reopening (-before +after):\n%s", diff)
				}
			})
		})
	}
}

func TestStateIsCommittedWithTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		add := func(raw json.RawMessage) (json.RawMessage, error) {
			n := 0
			if raw != nil {
				if err := json.Unmarshal(raw, &n); err != nil {
					return nil, err
				}
			}
			return mustJSON(n + 1), nil
		}
		var late *engine.Work
		w.tools = []engine.Tool{w.tool("add", func(_ context.Context, c *engine.Work) engine.Result {
			if c.ID == "c" {
				late = c
			}
			if err := c.Update("n", add); err != nil {
				return engine.Result{Failed: true, Content: err.Error()}
			}
			return engine.Result{Content: "ok"}
		})}
		var seen []string
		w.render = func(v engine.View) (*engine.Plan, error) {
			seen = append(seen, string(v.Vars["n"]))
			return &engine.Plan{Settings: journal.Settings{Model: "test/m"}, Tools: w.tools}, nil
		}
		w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if _, results := asked(req); results == 0 {
				call(yield, "add a", "add b", "add c")
				return
			}
			say(yield, "done")
		}
		e := w.start(t, memstore.New())
		defer stop(t, e)
		settled(t, e, chat, send(t, e, chat, "go"))
		if diff := cmp.Diff([]string{"", "3"}, seen); diff != "" {
			t.Errorf("values at each render (-want +got):\n%s", diff)
		}
		if err := late.Update("n", add); !errors.Is(err, engine.ErrOver) {
			t.Errorf("a write after the call: %v, want ErrOver", err)
		}
	})
}

func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			text, _ := asked(req)
			pause(ctx, time.Second)
			say(yield, "re: "+text)
		}
		s := memstore.New()
		e := w.start(t, s)
		defer stop(t, e)
		first := send(t, e, chat, "first")
		time.Sleep(500 * time.Millisecond)
		second, third := send(t, e, chat, "second"), send(t, e, chat, "third")
		for _, id := range []string{first, second, third} {
			if got := settled(t, e, chat, id); got != "completed" {
				t.Errorf("%s settled %s", id, got)
			}
		}
		snap, err := e.Snapshot(t.Context(), chat)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			`user text "first" done`, `assistant text "re: first" done`, `assistant text "re: third" done`,
			`user text "second" done`, `user text "third" done`, "settled completed", "settled completed", "settled completed",
		}
		if diff := cmp.Diff(want, lines(snap)); diff != "" {
			t.Errorf("conversation (-want +got):\n%s", diff)
		}
		for _, st := range snap.Settlements {
			if st.AnsweredBy != first {
				t.Errorf("%s answered by %s, want the first", st.SubmissionID, st.AnsweredBy)
			}
		}
		if w.calls != 2 {
			t.Errorf("%d model calls, want 2", w.calls)
		}
	})
}

func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		deaf := make(chan struct{})
		w.tools = []engine.Tool{w.tool("deaf", func(context.Context, *engine.Work) engine.Result { <-deaf; return engine.Result{Content: "late"} })}
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			switch text, _ := asked(req); text {
			case "talk":
				yield(model.Delta{Kind: model.Text, Text: "well "}, nil)
				pause(ctx, time.Hour)
			case "work":
				call(yield, "deaf d1")
			default:
				say(yield, "hello")
			}
		}
		s := memstore.New()
		e := w.start(t, s)
		if ok, err := e.Abort(t.Context(), chat); ok || err != nil {
			t.Errorf("abort of nothing: %v, %v", ok, err)
		}
		for _, body := range []string{"talk", "work"} {
			running := send(t, e, chat, body)
			time.Sleep(1500 * time.Millisecond)
			queued := send(t, e, chat, "queued behind "+body)
			if ok, err := e.Abort(t.Context(), chat); !ok || err != nil {
				t.Fatalf("abort: %v, %v", ok, err)
			}
			began := time.Now()
			for _, id := range []string{running, queued} {
				if got := settled(t, e, chat, id); got != "aborted" {
					t.Errorf("%s settled %s, want aborted", body, got)
				}
			}
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("aborting %s took %v", body, took)
			}
		}
		if got := settled(t, e, chat, send(t, e, chat, "hi")); got != "completed" {
			t.Errorf("the next message settled %s", got)
		}
		if ok, err := e.Abort(t.Context(), chat); ok || err != nil {
			t.Errorf("abort while idle: %v, %v", ok, err)
		}
		want := []string{
			`user text "talk" done`, `assistant text "well " done`, `system text "Submission was aborted." done`, `system text "Submission was aborted." done`,
			`user text "work" done`,
			`assistant deaf({}) output-error: {"type":"interrupted","message":"The tool did not stop when its response was ended. It may still be running; the outcome is unknown."}`,
			`system text "Submission was aborted." done`, `system text "Submission was aborted." done`,
			`user text "hi" done`, `assistant text "hello" done`,
			"settled aborted", "settled aborted", "settled aborted", "settled aborted", "settled completed",
		}
		if diff := cmp.Diff(want, transcript(t, e, chat)); diff != "" {
			t.Errorf("conversation (-want +got):\n%s", diff)
		}
		close(deaf)
		stop(t, e)
	})
}

// A hung model stream, tool or render delays the settlement to the deadline
// and a grace, and the next message works.
func TestDeadline(t *testing.T) {
	for _, hang := range []string{"stream", "deaf stream", "tool", "deaf tool", "render"} {
		t.Run(hang, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.budget.Timeout = 10 * time.Second
				deaf := make(chan struct{})
				w.tools = []engine.Tool{w.tool("t", func(ctx context.Context, _ *engine.Work) engine.Result {
					if hang == "tool" {
						<-ctx.Done()
						return engine.Result{Failed: true, Content: ctx.Err().Error()}
					}
					<-deaf
					return engine.Result{Content: "late"}
				})}
				w.render = func(v engine.View) (*engine.Plan, error) {
					if hang == "render" && v.Delivery.Body == "hang" {
						<-deaf
					}
					return &engine.Plan{Settings: journal.Settings{Model: "test/m"}, Tools: w.tools}, nil
				}
				w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
					text, _ := asked(req)
					switch {
					case text != "hang":
						say(yield, "fine")
					case hang == "stream":
						pause(ctx, time.Hour)
					case hang == "deaf stream":
						<-deaf
					default:
						call(yield, "t c1")
					}
				}
				e := w.start(t, memstore.New())
				began := time.Now()
				if got := settled(t, e, chat, send(t, e, chat, "hang")); got != "failed" {
					t.Errorf("settled %s, want failed", got)
				}
				if took := time.Since(began); took < 10*time.Second || took > 13*time.Second {
					t.Errorf("settled after %v, want 10 s and at most a grace of 2 s", took)
				}
				if got := settled(t, e, chat, send(t, e, chat, "next")); got != "completed" {
					t.Errorf("the next message settled %s", got)
				}
				close(deaf)
				stop(t, e)
			})
		})
	}
}

func TestToolTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		release := make(chan struct{})
		var write error
		slow := w.tool("slow", func(ctx context.Context, c *engine.Work) engine.Result {
			<-release
			write = c.Update("x", func(json.RawMessage) (json.RawMessage, error) { return mustJSON(1), nil })
			return engine.Result{Content: "late"}
		})
		slow.Timeout = 1500 * time.Millisecond
		w.tools = []engine.Tool{slow}
		w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if _, results := asked(req); results == 0 {
				call(yield, "slow c1")
				return
			}
			say(yield, "gave up")
		}
		e := w.start(t, memstore.New())
		settled(t, e, chat, send(t, e, chat, "go"))
		close(release)
		synctest.Wait()
		if !errors.Is(write, engine.ErrOver) {
			t.Errorf("a write after the timeout: %v, want ErrOver", write)
		}
		want := []string{
			`user text "go" done`, `assistant slow({}) output-error: Tool "slow" timed out after 1500ms`, `assistant text "gave up" done`, "settled completed",
		}
		if diff := cmp.Diff(want, transcript(t, e, chat)); diff != "" {
			t.Errorf("conversation (-want +got):\n%s", diff)
		}
		stop(t, e)
	})
}

// A graceful stop neither loses work nor counts as an attempt.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.budget.MaxAttempts = 1
		w.tools = []engine.Tool{w.tool("work", nil)}
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if _, results := asked(req); results < 4 {
				if pause(ctx, time.Second) {
					call(yield, "work c"+string(rune('0'+results)))
				}
				return
			}
			say(yield, "done")
		}
		s := memstore.New()
		e := w.start(t, s)
		id := send(t, e, chat, "go")
		for i := range 3 {
			time.Sleep(1500 * time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*400*time.Millisecond)
			if err := e.Close(ctx); err != nil {
				t.Fatal(err)
			}
			cancel()
			e = w.start(t, s)
		}
		if got := settled(t, e, chat, id); got != "completed" {
			t.Errorf("settled %s after graceful stops, want completed", got)
		}
		for _, c := range []string{"c0", "c1", "c2", "c3"} {
			if n := w.count("tool:" + c); n != 1 {
				t.Errorf("call %s ran %d times", c, n)
			}
		}
		stop(t, e)
	})
}

func TestManyInstancesDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			pause(ctx, time.Second)
			echo(ctx, req, yield)
		}
		e := w.start(t, memstore.New())
		defer stop(t, e)
		began := time.Now()
		ids := make(map[string]string)
		for i := range 500 {
			addr := chat
			addr.ID = "n" + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
			ids[addr.ID] = send(t, e, addr, "hi")
		}
		for id, sub := range ids {
			addr := chat
			addr.ID = id
			if got := settled(t, e, addr, sub); got != "completed" {
				t.Errorf("%s settled %s", id, got)
			}
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("500 conversations of one second took %v", took)
		}
	})
}

// A journal that cannot be continued is set aside with a clear error. It
// blocks nobody else, and what was accepted is not lost.
func TestDamagedInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply = echo
		s := memstore.New()
		e := w.start(t, s)
		settled(t, e, chat, send(t, e, chat, "one"))
		stop(t, e)
		s = s.Reopen()
		if err := s.Renew(t.Context(), "vandal", time.Minute); err != nil {
			t.Fatal(err)
		}
		lease, err := s.Take(t.Context(), "vandal", chat)
		if err != nil {
			t.Fatal(err)
		}
		newer := []byte(`{"v":1,"at":0,"r":[{"k":"from_the_future","d":{}}]}`)
		if _, err := s.Append(t.Context(), lease, store.Write{Payload: newer}); err != nil {
			t.Fatal(err)
		}
		s = s.Reopen()
		e = w.start(t, struct{ store.Store }{s}) // no other process has it open, which could go on
		defer stop(t, e)
		id := send(t, e, chat, "two")
		for {
			inst, err := e.Instance(t.Context(), chat)
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Wait(t.Context(), chat, inst.Head); err != nil {
				if !errors.Is(err, engine.ErrDamaged) || !strings.Contains(err.Error(), "newer version") {
					t.Errorf("waiting: %v, want ErrDamaged that says why", err)
				}
				break
			}
		}
		if sub, err := e.Submission(t.Context(), chat, id); err != nil || sub.Outcome != "" {
			t.Errorf("the accepted message: %+v, %v; want it unsettled and kept", sub, err)
		}
		other := store.Address{Agent: "chat", ID: "c2"}
		if got := settled(t, e, other, send(t, e, other, "hello")); got != "completed" {
			t.Errorf("another instance settled %s", got)
		}
	})
}

// A character whose bytes come in different deltas reaches readers whole.
func TestSplitCharacter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		const text = "a\U0001F600b"
		w.reply = func(ctx context.Context, _ *model.Request, yield func(model.Event, error) bool) {
			for i := range len(text) {
				if !yield(model.Delta{Kind: model.Text, Text: text[i : i+1]}, nil) || !pause(ctx, 2*time.Second) {
					return
				}
			}
			yield(model.BlockDone{Block: model.Block{Kind: model.Text, Text: text}}, nil)
			yield(model.Done{Stop: model.StopEnd}, nil)
		}
		e := w.start(t, memstore.New())
		defer stop(t, e)
		settled(t, e, chat, send(t, e, chat, "go"))
		want := []string{`user text "go" done`, fmt.Sprintf("assistant text %q done", text), "settled completed"}
		if diff := cmp.Diff(want, transcript(t, e, chat)); diff != "" {
			t.Errorf("conversation (-want +got):\n%s", diff)
		}
	})
}
