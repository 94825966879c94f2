package flue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/wire"
)

// appendedTypes are the types of the signals that callbacks have appended.
func appendedTypes(s *stage) []string {
	var out []string
	for _, r := range s.records() {
		if e, ok := r.(*journal.Entry); ok && e.Purpose == journal.Appended {
			out = append(out, e.Message.Type)
		}
	}
	return out
}

// recordsOf are the records of one kind.
func recordsOf[R journal.Record](s *stage) []R {
	var out []R
	for _, r := range s.records() {
		if r, ok := r.(R); ok {
			out = append(out, r)
		}
	}
	return out
}

// lastText is the text of the last message that a request shows.
func lastText(req *model.Request) string {
	last := req.Messages[len(req.Messages)-1]
	return last.Blocks[len(last.Blocks)-1].Text
}

// answers counts the turns that a request shows.
func answers(req *model.Request) int {
	n := 0
	for _, m := range req.Messages {
		if m.Role == model.RoleAssistant {
			n++
		}
	}
	return n
}

func TestSeams(t *testing.T) {
	var s *stage
	send := func(body string) error {
		_, err := s.in.Dispatch(context.Background(), flue.User(body))
		return err
	}
	// Every callback takes its time: what waits for it comes after its remark.
	slow := func(format string, args ...any) {
		time.Sleep(time.Second)
		s.note(format, args...)
	}
	agent := plain(func(r *flue.Render) {
		continued := flue.UsePersistentState(r, "continued", false)
		body := flue.UseDelivery(r).Body
		flue.UseResponseStart(r, func(context.Context, *flue.ResponseStart) (flue.Metadata, error) {
			slow("response start")
			return nil, nil
		})
		flue.UseAgentStart(r, func(context.Context, *flue.AgentStart) error { slow("start: %s", body); return nil })
		flue.UseAgentFinish(r, func(ctx context.Context, f *flue.AgentFinish) error {
			slow("finish")
			if continued.Value() {
				return nil
			}
			return errors.Join(continued.Set(ctx, true), f.Append(flue.Signal("go-on", "look again", nil)))
		})
		flue.UseResponseFinish(r, func(context.Context, *flue.ResponseFinish) (flue.Metadata, error) {
			slow("response finish")
			return nil, nil
		})
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "work", Description: "Work."}, func(context.Context, struct{}) (string, error) {
			s.note("tool")
			return "worked", send("during the tool")
		}))
	})
	reply := func(req *model.Request) script.Turn {
		n := answers(req)
		s.note("model %d", n+1)
		switch n {
		case 0:
			return script.Call("work", nil)
		case 1: // a message comes while the last answer is being written
			return script.Say("nearly done").Do(func(context.Context) error { return send("during the end") })
		}
		return script.Say("done")
	}
	playing(t, agent, reply, func(t *testing.T, opened *stage) {
		s = opened
		sub := s.send(flue.User("first"))
		if _, err := s.read(sub); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"response start", "start: first", "model 1", "tool",
			"start: during the tool", "model 2",
			"start: during the end", "model 3",
			"finish", "model 4",
			"finish", "response finish",
		}
		time.Sleep(time.Hour)
		s.restart()
		time.Sleep(time.Hour)
		if diff := cmp.Diff(want, s.noted()); diff != "" {
			t.Errorf("what ran, in order (-want +got):\n%s", diff)
		}
		for _, e := range recordsOf[*journal.Settled](s) {
			if e.Outcome != journal.Completed || e.AnsweredBy != sub {
				t.Errorf("settled %s, answered by %s", e.Outcome, e.AnsweredBy)
			}
		}
		if n := len(recordsOf[*journal.Settled](s)); n != 3 {
			t.Errorf("%d submissions settled, want 3", n)
		}
	})
}

// useFailing declares a hook twice: the first callback leaves whatever it can,
// the second one fails.
func useFailing(r *flue.Render, hook string, s **stage, fail func() error) {
	counted := flue.UsePersistentState(r, "counted", 0)
	signal := flue.Signal("left-behind", "by the first callback", nil)
	first := func(ctx context.Context, add func(flue.Message) error) error {
		(*s).note("first")
		return errors.Join(counted.Set(ctx, 7), add(signal))
	}
	second := func() error {
		time.Sleep(time.Second) // after the first, also side by side
		(*s).note("second")
		return fail()
	}
	switch hook {
	case "UseAgentStart":
		shown := flue.UseDataWriter[int](r, "shown")
		flue.UseAgentStart(r, func(ctx context.Context, a *flue.AgentStart) error {
			return errors.Join(first(ctx, a.Append), shown.Write(ctx, 1))
		})
		flue.UseAgentStart(r, func(context.Context, *flue.AgentStart) error { return second() })
	case "UseAgentFinish":
		flue.UseDataWriter[int](r, "shown")
		flue.UseAgentFinish(r, func(ctx context.Context, a *flue.AgentFinish) error { return first(ctx, a.Append) })
		flue.UseAgentFinish(r, func(context.Context, *flue.AgentFinish) error { return second() })
	case "UseResponseStart":
		flue.UseDataWriter[int](r, "shown")
		flue.UseResponseStart(r, func(context.Context, *flue.ResponseStart) (flue.Metadata, error) {
			(*s).note("first")
			return flue.Metadata{"left": "behind"}, nil
		})
		flue.UseResponseStart(r, func(context.Context, *flue.ResponseStart) (flue.Metadata, error) {
			return flue.Metadata{"left": "behind"}, second()
		})
	case "UseResponseFinish":
		flue.UseDataWriter[int](r, "shown")
		flue.UseResponseFinish(r, func(context.Context, *flue.ResponseFinish) (flue.Metadata, error) {
			(*s).note("first")
			return flue.Metadata{"left": "behind"}, nil
		})
		flue.UseResponseFinish(r, func(context.Context, *flue.ResponseFinish) (flue.Metadata, error) {
			return flue.Metadata{"left": "behind"}, second()
		})
	}
}

func TestFailedCallback(t *testing.T) {
	for _, hook := range []string{"UseAgentStart", "UseAgentFinish", "UseResponseStart", "UseResponseFinish"} {
		for how, fail := range map[string]func() error{
			"error": func() error { return errors.New("out of order") },
			"panic": func() error { panic("out of order") },
		} {
			t.Run(hook+" "+how, func(t *testing.T) {
				var s *stage
				agent := plain(func(r *flue.Render) {
					if flue.UseDelivery(r).Body == "break it" {
						useFailing(r, hook, &s, fail)
					} else {
						flue.UseDataWriter[int](r, "shown")
					}
				})
				playing(t, agent, sayInBody, func(t *testing.T, opened *stage) {
					s = opened
					sub := s.send(flue.User("break it"))
					told, err := causeOf(t, s, sub)
					if err == nil || !strings.Contains(err.Error(), hook) || !strings.Contains(err.Error(), "out of order") {
						t.Errorf("it failed with %v, want the callback's error and the name %s", err, hook)
					}
					if strings.Contains(told.Error()+told.Details, "out of order") {
						t.Errorf("clients are told what went wrong inside: %v", told)
					}
					if diff := cmp.Diff([]string{"first", "second"}, s.noted()); diff != "" {
						t.Errorf("the callbacks that ran (-want +got):\n%s", diff)
					}
					if n := len(recordsOf[*journal.Settled](s)); n != 1 {
						t.Errorf("it settled %d times", n)
					}
					if got := appendedTypes(s); len(got) > 0 {
						t.Errorf("the conversation keeps the signals %q", got)
					}
					left := len(recordsOf[*journal.State](s)) + len(recordsOf[*journal.Data](s)) + len(recordsOf[*journal.Metadata](s))
					if left > 0 {
						t.Errorf("the seam has left %d records", left)
					}
					if strings.HasSuffix(hook, "Start") && len(s.asked()) > 0 {
						t.Error("the model was called although the start had failed")
					}
					if got := s.say("and now"); got != "re: and now" {
						t.Errorf("the next message is answered with %q", got)
					}
				})
			})
		}
	}
}

func TestEventHooksMayChange(t *testing.T) {
	var s *stage
	agent := plain(func(r *flue.Render) {
		second := flue.UsePersistentState(r, "second", false)
		start := func(name string) {
			flue.UseAgentStart(r, func(context.Context, *flue.AgentStart) error { s.note("start %s", name); return nil })
		}
		finish := func(name string) {
			flue.UseAgentFinish(r, func(context.Context, *flue.AgentFinish) error { s.note("finish %s", name); return nil })
		}
		end := func(name string) {
			flue.UseResponseFinish(r, func(context.Context, *flue.ResponseFinish) (flue.Metadata, error) {
				s.note("end %s", name)
				return nil, nil
			})
		}
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, _ struct{}) (string, error) {
			_, err := s.in.Dispatch(ctx, flue.User("join"))
			return "worked", errors.Join(err, second.Set(ctx, true))
		}))
		if !second.Value() {
			start("old")
			finish("a")
			finish("b")
			end("old")
			return
		}
		end("new 1")
		finish("b")
		finish("c")
		finish("a")
		start("new")
		end("new 2")
	})
	reply := func(req *model.Request) script.Turn {
		if answers(req) == 0 {
			return script.Call("work", nil)
		}
		return script.Say("done")
	}
	playing(t, agent, reply, func(t *testing.T, opened *stage) {
		s = opened
		s.say("go")
		want := []string{"start old", "start new", "finish b", "finish c", "finish a", "end new 1", "end new 2"}
		if diff := cmp.Diff(want, s.noted()); diff != "" {
			t.Errorf("the callbacks that ran (-want +got):\n%s", diff)
		}
	})
}

func TestCallbackContextEnds(t *testing.T) {
	for _, hook := range []string{"UseAgentStart", "UseAgentFinish"} {
		for _, abort := range []bool{false, true} {
			for _, deaf := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, abort=%v, deaf=%v", hook, abort, deaf), func(t *testing.T) {
					testCallbackContextEnds(t, hook, abort, deaf)
				})
			}
		}
	}
}

func testCallbackContextEnds(t *testing.T, hook string, abort, deaf bool) {
	synctest.Test(t, func(t *testing.T) {
		var s *stage
		release := make(chan struct{})
		ended := make(chan time.Time, 1)
		late := make(chan error, 3)
		agent := plain(func(r *flue.Render) {
			written := flue.UsePersistentState(r, "written", false)
			shown := flue.UseDataWriter[int](r, "shown")
			wait := func(ctx context.Context, add func(flue.Message) error) error {
				<-ctx.Done()
				ended <- time.Now()
				if !deaf {
					return ctx.Err()
				}
				<-release
				late <- add(flue.Signal("late", "too late", nil))
				late <- written.Set(ctx, true)
				late <- shown.Write(ctx, 1)
				return nil
			}
			body := flue.UseDelivery(r).Body
			switch {
			case body != "wait":
			case hook == "UseAgentStart":
				flue.UseAgentStart(r, func(ctx context.Context, a *flue.AgentStart) error { return wait(ctx, a.Append) })
			default:
				flue.UseAgentFinish(r, func(ctx context.Context, a *flue.AgentFinish) error { return wait(ctx, a.Append) })
			}
		})
		agent.Durability.Timeout = time.Minute
		s = newStage(t, agent, sayInBody)
		defer s.close()
		began := time.Now()
		sub := s.send(flue.User("wait"))
		end, outcome, code := time.Minute, flue.Failed, flue.CodeSubmissionTimeout
		if abort {
			end, outcome, code = 10*time.Second, flue.Aborted, flue.CodeSubmissionAborted
			time.Sleep(end)
			if ok, err := s.in.Abort(t.Context()); err != nil || !ok {
				t.Fatalf("aborting: %v, %v", ok, err)
			}
		}
		_, err := s.in.Read(context.WithoutCancel(t.Context()), sub)
		var failed *flue.SubmissionError
		if !errors.As(err, &failed) || failed.Outcome != outcome || failed.Code != code {
			t.Errorf("it ended with %v, want %s with the code %s", err, outcome, code)
		}
		select {
		case at := <-ended:
			if got := at.Sub(began); got != end {
				t.Errorf("the callback's context ended after %v, want %v", got, end)
			}
		default:
			t.Fatal("the callback's context has not ended")
		}
		settledAfter := end
		if deaf {
			settledAfter += 100 * time.Millisecond // the grace of the stage
		}
		if got := time.Since(began); got != settledAfter {
			t.Errorf("it settled after %v, want %v", got, settledAfter)
		}
		if deaf {
			close(release)
			for range 3 {
				if err := <-late; !errors.Is(err, flue.ErrCallOver) {
					t.Errorf("a late write of the callback that was left behind returned %v", err)
				}
			}
		}
		if got := s.say("and now"); got != "re: and now" {
			t.Errorf("the next message is answered with %q", got)
		}
		if got := appendedTypes(s); len(got) > 0 || len(recordsOf[*journal.State](s))+len(recordsOf[*journal.Data](s)) > 0 {
			t.Errorf("the callback that was cut has left something: signals %q", got)
		}
	})
}

func TestAppendRules(t *testing.T) {
	refused := map[string]flue.Message{
		"no type":                      flue.Signal("", "x", nil),
		"a user message":               flue.User("x"),
		"no kind":                      {Body: "x"},
		"a bad tag":                    {Kind: flue.KindSignal, Type: "t", TagName: "1<", Body: "x"},
		"a body that is no text":       flue.Signal("t", "\xff", nil),
		"an attribute that is no text": flue.Signal("t", "x", map[string]string{"a": "\xff"}),
		"an attachment":                {Kind: flue.KindSignal, Type: "t", Body: "x", Attachments: []flue.Attachment{{MediaType: "image/png", Data: []byte{1}}}},
	}
	for _, typ := range []string{
		"resources", "instructions", "environment", "stream_interrupted", "stream_continued", "submission_aborted",
		"submission_interrupted", "compaction", "memory", "approval_decision", "approval_result",
	} {
		refused["the type "+typ] = flue.Signal(typ, "x", nil)
	}
	good := flue.Message{Kind: flue.KindSignal, Type: `a "b"`, TagName: "note", Body: "</note> & more", Attributes: map[string]string{"who": "<x>\n"}}
	const escaped = "<note type=\"a &quot;b&quot;\" who=\"&lt;x&gt;&#10;\">\n&lt;/note&gt; &amp; more\n</note>"

	for _, hook := range []string{"UseAgentStart", "UseAgentFinish"} {
		t.Run(hook, func(t *testing.T) {
			var kept func(flue.Message) error
			var errs map[string]error
			agent := plain(func(r *flue.Render) {
				done := flue.UsePersistentState(r, "done", false)
				callback := func(ctx context.Context, add func(flue.Message) error) error {
					if done.Value() {
						return nil
					}
					kept, errs = add, make(map[string]error)
					for name, m := range refused {
						errs[name] = add(m)
					}
					return errors.Join(add(good), done.Set(ctx, true))
				}
				if hook == "UseAgentStart" {
					flue.UseAgentStart(r, func(ctx context.Context, a *flue.AgentStart) error { return callback(ctx, a.Append) })
				} else {
					flue.UseAgentFinish(r, func(ctx context.Context, a *flue.AgentFinish) error { return callback(ctx, a.Append) })
				}
			})
			playing(t, agent, sayOK, func(t *testing.T, s *stage) {
				s.say("go")
				for name := range refused {
					if err := errs[name]; !errors.Is(err, &flue.Error{Code: flue.CodeInvalidRequest}) {
						t.Errorf("appending %s returned %v, want an invalid request", name, err)
					}
				}
				if diff := cmp.Diff([]string{good.Type}, appendedTypes(s)); diff != "" {
					t.Errorf("the signals that were appended (-want +got):\n%s", diff)
				}
				asked := s.asked()
				if got := lastText(asked[len(asked)-1]); got != escaped {
					t.Errorf("the model reads %q, want %q", got, escaped)
				}
				if err := kept(good); !errors.Is(err, flue.ErrCallOver) {
					t.Errorf("appending when the callback was over returned %v", err)
				}
				s.say("again")
				if got := appendedTypes(s); len(got) != 1 {
					t.Errorf("the signals in the end are %q", got)
				}
			})
		})
	}
}

// joiner is an agent whose tool sends messages that join the response.
func joiner(s **stage, hooks func(r *flue.Render), bodies ...string) *flue.Agent {
	return plain(func(r *flue.Render) {
		hooks(r)
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, _ struct{}) (string, error) {
			for _, body := range bodies {
				if _, err := (*s).in.Dispatch(ctx, flue.User(body)); err != nil {
					return "", err
				}
			}
			return "worked", nil
		}))
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "wait", Description: "Wait."}, func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done() // until the process dies
			return "", ctx.Err()
		}))
	})
}

func TestAgentStartPerMessage(t *testing.T) {
	var s *stage
	agent := joiner(&s, func(r *flue.Render) {
		m := flue.UseDelivery(r)
		flue.UseAgentStart(r, func(context.Context, *flue.AgentStart) error { s.note("start %s", m.Body); return nil })
	}, "second", "third")
	reply := func(req *model.Request) script.Turn {
		var seen []string
		for _, m := range req.Messages {
			if m.Role == model.RoleUser {
				seen = append(seen, m.Blocks[0].Text)
			}
		}
		s.note("model %s", strings.Join(seen, ","))
		switch answers(req) {
		case 0:
			return script.Call("work", nil)
		case 1:
			return script.Call("wait", nil)
		}
		return script.Say("done")
	}
	playing(t, agent, reply, func(t *testing.T, opened *stage) {
		s = opened
		sub := s.send(flue.User("first"))
		synctest.Wait() // the tool waits, and all three messages are read
		want := []string{"start first", "model first", "start second", "start third", "model first,second,third"}
		if diff := cmp.Diff(want, s.noted()); diff != "" {
			t.Fatalf("what ran (-want +got):\n%s", diff)
		}
		s.restart()
		if _, err := s.read(sub); err != nil {
			t.Fatal(err)
		}
		want = append(want, "model first,second,third")
		if diff := cmp.Diff(want, s.noted()); diff != "" {
			t.Errorf("what ran after the restart (-want +got):\n%s", diff)
		}
	})
}

func TestAgentStartSideBySide(t *testing.T) {
	var s *stage
	agent := plain(func(r *flue.Render) {
		for i, d := range []time.Duration{3 * time.Second, time.Second} {
			flue.UseAgentStart(r, func(_ context.Context, a *flue.AgentStart) error {
				time.Sleep(d)
				s.note("ended %d", i+1)
				return a.Append(flue.Signal(fmt.Sprintf("from-%d", i+1), "x", nil))
			})
		}
	})
	playing(t, agent, func(*model.Request) script.Turn { s.note("model"); return script.Say("ok") }, func(t *testing.T, opened *stage) {
		s = opened
		began := time.Now()
		s.say("go")
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the callbacks took %v together, want 3s", took)
		}
		if diff := cmp.Diff([]string{"ended 2", "ended 1", "model"}, s.noted()); diff != "" {
			t.Errorf("what ran (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"from-1", "from-2"}, appendedTypes(s)); diff != "" {
			t.Errorf("the signals in the conversation (-want +got):\n%s", diff)
		}
		req := s.asked()[0]
		for i, want := range []string{"go", "from-1", "from-2"} {
			if len(req.Messages) != 3 || !strings.Contains(req.Messages[i].Blocks[0].Text, want) {
				t.Errorf("message %d of %d that the model reads is not %s", i, len(req.Messages), want)
			}
		}
	})
}

func TestAgentStartAppend(t *testing.T) {
	var s *stage
	agent := plain(func(r *flue.Render) {
		flue.UseAgentStart(r, func(_ context.Context, a *flue.AgentStart) error {
			s.note("start")
			return a.Append(flue.Signal("context", "the user is a guest", nil))
		})
	})
	playing(t, agent, sayOK, func(t *testing.T, opened *stage) {
		s = opened
		sub := s.send(flue.User("hello"))
		if _, err := s.read(sub); err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, m := range s.asked()[0].Messages {
			texts = append(texts, string(m.Role)+" "+m.Blocks[0].Text)
		}
		want := []string{"user hello", "user <signal type=\"context\">\nthe user is a guest\n</signal>"}
		if diff := cmp.Diff(want, texts); diff != "" {
			t.Errorf("what the model reads (-want +got):\n%s", diff)
		}
		if got := s.noted(); len(got) != 1 {
			t.Errorf("start callbacks ran %d times, want once", len(got))
		}
		if admitted, settled := recordsOf[*journal.Admitted](s), recordsOf[*journal.Settled](s); len(admitted) != 1 || len(settled) != 1 {
			t.Errorf("%d submissions were admitted and %d settled, want one", len(admitted), len(settled))
		}
		if got := s.snapshot().Messages; len(got) != 3 || got[1].Role != wire.RoleSystem || got[1].SubmissionID != sub {
			t.Errorf("clients see %d messages, and the signal as %+v", len(got), got[1])
		}
	})
}

func TestAgentStartWrites(t *testing.T) {
	agent := plain(func(r *flue.Render) {
		count := flue.UsePersistentState(r, "count", 0)
		same := flue.UsePersistentState(r, "same", "")
		flue.UseInstruction(r, fmt.Sprintf("count=%d same=%s", count.Value(), same.Value()))
		for range 2 {
			flue.UseAgentStart(r, func(ctx context.Context, _ *flue.AgentStart) error {
				return errors.Join(count.Update(ctx, func(n int) int { return n + 1 }), same.Set(ctx, "as before"))
			})
		}
	})
	playing(t, agent, sayOK, func(t *testing.T, s *stage) {
		stored := func(name string) (values []string) {
			for _, r := range recordsOf[*journal.State](s) {
				if r.Name == name {
					values = append(values, string(r.Value))
				}
			}
			return values
		}
		s.say("go")
		first := stored("same")
		s.say("go")
		s.restart()
		s.say("go")
		for i, req := range s.asked() {
			if want := fmt.Sprintf("count=%d same=as before", 2*i+2); !strings.Contains(req.System, want) {
				t.Errorf("the first render of response %d made %q, want %q in it", i, req.System, want)
			}
		}
		if counts := stored("count"); counts[len(counts)-1] != "6" {
			t.Errorf("the counts that are stored are %q", counts)
		}
		if got := stored("same"); len(first) == 0 || len(got) != len(first) {
			t.Errorf("to write the same value again has stored something: %q and then %q", first, got)
		}
	})
}

// continuing is an agent that is sent back to work n times.
func continuing(n int, s **stage) *flue.Agent {
	return plain(func(r *flue.Render) {
		times := flue.UsePersistentState(r, "times", 0)
		flue.UseAgentStart(r, func(context.Context, *flue.AgentStart) error { (*s).note("start"); return nil })
		flue.UseAgentFinish(r, func(ctx context.Context, f *flue.AgentFinish) error {
			(*s).note("finish")
			if times.Value() >= n {
				return nil
			}
			return errors.Join(times.Set(ctx, times.Value()+1), f.Append(flue.Signal("go-on", fmt.Sprintf("round %d", times.Value()+1), nil)))
		})
	})
}

func TestAgentFinishContinues(t *testing.T) {
	var s *stage
	reply := func(req *model.Request) script.Turn {
		s.note("model")
		return script.Say(fmt.Sprintf("answer %d", answers(req)+1))
	}
	playing(t, continuing(2, &s), reply, func(t *testing.T, opened *stage) {
		s = opened
		sub := s.send(flue.User("go"))
		reply, err := s.read(sub)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"start", "model", "finish", "model", "finish", "model", "finish"}
		if diff := cmp.Diff(want, s.noted()); diff != "" {
			t.Errorf("what ran (-want +got):\n%s", diff)
		}
		if reply.Text != "answer 1\n\nanswer 2\n\nanswer 3" {
			t.Errorf("the reply is %q", reply.Text)
		}
		messages := 0
		for _, m := range s.snapshot().Messages {
			if m.Role == wire.RoleAssistant {
				messages++
			}
		}
		if settled := recordsOf[*journal.Settled](s); messages != 1 || len(settled) != 1 || len(recordsOf[*journal.Admitted](s)) != 1 {
			t.Errorf("the response has %d messages and %d settlements, want one each", messages, len(settled))
		}
		if got := lastText(s.asked()[2]); !strings.Contains(got, "round 2") {
			t.Errorf("the last request ends with %q", got)
		}
	})
}

func TestAgentFinishOrder(t *testing.T) {
	var s *stage
	var running atomic.Int32
	agent := plain(func(r *flue.Render) {
		again := flue.UsePersistentState(r, "again", true)
		for i, d := range []time.Duration{3 * time.Second, 2 * time.Second, time.Second} {
			flue.UseAgentFinish(r, func(ctx context.Context, f *flue.AgentFinish) error {
				if running.Add(1) != 1 {
					s.note("not alone")
				}
				defer running.Add(-1)
				time.Sleep(d)
				s.note("finish %d", i+1)
				if i == 1 && again.Value() {
					return errors.Join(again.Set(ctx, false), f.Append(flue.Signal("go-on", "x", nil)))
				}
				return nil
			})
		}
	})
	reply := func(*model.Request) script.Turn { s.note("model"); return script.Say("ok") }
	playing(t, agent, reply, func(t *testing.T, opened *stage) {
		s = opened
		s.say("go")
		want := []string{"model", "finish 1", "finish 2", "finish 3", "model", "finish 1", "finish 2", "finish 3"}
		if diff := cmp.Diff(want, s.noted()); diff != "" {
			t.Errorf("what ran (-want +got):\n%s", diff)
		}
	})
}

func TestAgentFinishAfterJoins(t *testing.T) {
	var s *stage
	agent := plain(func(r *flue.Render) {
		m := flue.UseDelivery(r)
		flue.UseAgentStart(r, func(context.Context, *flue.AgentStart) error { s.note("start %s", m.Body); return nil })
		flue.UseAgentFinish(r, func(context.Context, *flue.AgentFinish) error { s.note("finish"); return nil })
	})
	reply := func(req *model.Request) script.Turn {
		s.note("model")
		if answers(req) > 0 {
			return script.Say("all answered")
		}
		return script.Say("the last turn").Do(func(ctx context.Context) error {
			for _, body := range []string{"b", "c", "d"} {
				if _, err := s.in.Dispatch(ctx, flue.User(body)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	playing(t, agent, reply, func(t *testing.T, opened *stage) {
		s = opened
		s.say("a")
		want := []string{"start a", "model", "start b", "start c", "start d", "model", "finish"}
		if diff := cmp.Diff(want, s.noted()); diff != "" {
			t.Errorf("what ran (-want +got):\n%s", diff)
		}
	})
	t.Run("one comes while finish runs", func(t *testing.T) {
		agent := plain(func(r *flue.Render) {
			m := flue.UseDelivery(r)
			flue.UseAgentStart(r, func(context.Context, *flue.AgentStart) error { s.note("start %s", m.Body); return nil })
			flue.UseAgentFinish(r, func(ctx context.Context, _ *flue.AgentFinish) error {
				s.note("finish %s", m.Body)
				if m.Body == "a" {
					_, err := s.in.Dispatch(ctx, flue.User("b"))
					return err
				}
				return nil
			})
		})
		playing(t, agent, sayOK, func(t *testing.T, opened *stage) {
			s = opened
			s.say("a")
			if diff := cmp.Diff([]string{"start a", "finish a", "start b", "finish b"}, s.noted()); diff != "" {
				t.Errorf("what ran (-want +got):\n%s", diff)
			}
		})
	})
}

func TestAgentFinishOnlyAtTheEnd(t *testing.T) {
	for _, how := range []string{"abort", "model failure", "failed render", "deadline", "failed start"} {
		t.Run(how, func(t *testing.T) {
			var s *stage
			agent := plain(func(r *flue.Render) {
				worked := flue.UsePersistentState(r, "worked", false)
				flue.UseAgentFinish(r, func(context.Context, *flue.AgentFinish) error { s.note("finish"); return nil })
				flue.UseResponseFinish(r, func(context.Context, *flue.ResponseFinish) (flue.Metadata, error) {
					s.note("response finish")
					return nil, nil
				})
				flue.UseTool(r, flue.NewTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, _ struct{}) (string, error) {
					return "worked", worked.Set(ctx, true)
				}))
				if how == "failed start" {
					flue.UseAgentStart(r, func(context.Context, *flue.AgentStart) error { return errors.New("no") })
				}
				if how == "failed render" && worked.Value() {
					panic("no")
				}
			})
			agent.Durability.Timeout = time.Minute
			reply := func(req *model.Request) script.Turn {
				switch {
				case answers(req) == 0:
					return script.Call("work", nil)
				case how == "model failure":
					return script.Fail(&model.Error{Class: model.Invalid, Message: "no"})
				case how == "failed render":
					return script.Say("not reached")
				}
				return script.Say("slow").Hang()
			}
			playing(t, agent, reply, func(t *testing.T, opened *stage) {
				s = opened
				sub := s.send(flue.User("go"))
				if how == "abort" {
					synctest.Wait()
					if ok, err := s.in.Abort(t.Context()); err != nil || !ok {
						t.Fatalf("aborting: %v, %v", ok, err)
					}
				}
				if reply, err := s.read(sub); err == nil {
					t.Errorf("it completed with %q", reply.Text)
				}
				time.Sleep(time.Hour)
				if got := s.noted(); len(got) > 0 {
					t.Errorf("callbacks of the end ran: %q", got)
				}
			})
		})
	}
}

func TestFinishCyclesAreBounded(t *testing.T) {
	const most = 32
	t.Run("appends", func(t *testing.T) {
		for _, crashes := range []int{0, 3} {
			t.Run(fmt.Sprintf("crashes=%d", crashes), func(t *testing.T) {
				var s *stage
				agent := plain(func(r *flue.Render) {
					flue.UseAgentFinish(r, func(_ context.Context, f *flue.AgentFinish) error {
						return f.Append(flue.Signal("go-on", "again", nil))
					})
				})
				reply := func(*model.Request) script.Turn { return script.Say("ok").Wait(time.Second) }
				playing(t, agent, reply, func(t *testing.T, opened *stage) {
					s = opened
					sub := s.send(flue.User("go"))
					for range crashes {
						time.Sleep(8*time.Second + 500*time.Millisecond) // in the middle of a turn
						s.restart()
					}
					_, err := s.read(sub)
					var failed *flue.SubmissionError
					if !errors.As(err, &failed) || failed.Outcome != flue.Failed || failed.Code != flue.CodeOperationFailed || !strings.Contains(failed.Message, "32") {
						t.Errorf("it ended with %v", err)
					}
					if got := len(appendedTypes(s)); got != most {
						t.Errorf("the response was continued %d times, want %d", got, most)
					}
				})
			})
		}
	})
	t.Run("dispatches are not counted", func(t *testing.T) {
		var s *stage
		agent := plain(func(r *flue.Render) {
			sent := flue.UsePersistentState(r, "sent", 0)
			dispatch := flue.UseDispatchMessage(r)
			flue.UseAgentFinish(r, func(ctx context.Context, _ *flue.AgentFinish) error {
				s.note("finish")
				if sent.Value() == most+8 {
					return nil
				}
				_, err := dispatch(ctx, flue.User(fmt.Sprint(sent.Value())))
				return errors.Join(err, sent.Set(ctx, sent.Value()+1))
			})
		})
		playing(t, agent, sayOK, func(t *testing.T, opened *stage) {
			s = opened
			sub := s.send(flue.User("go"))
			if _, err := s.read(sub); err != nil {
				t.Error(err)
			}
			if got := len(s.noted()); got != most+9 {
				t.Errorf("finish ran %d times, want %d", got, most+9)
			}
			for _, e := range recordsOf[*journal.Settled](s) {
				if e.Outcome != journal.Completed || e.AnsweredBy != sub {
					t.Errorf("%s settled %s, answered by %s", e.Submission, e.Outcome, e.AnsweredBy)
				}
			}
		})
	})
}

// A facts is what the callbacks of the end are handed.
type facts struct {
	Calls []flue.ResponseToolCall
	Usage flue.Usage
}

func TestResponseFacts(t *testing.T) {
	var s *stage
	var finishes []facts
	var end facts
	agent := plain(func(r *flue.Render) {
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "good", Description: "Works."}, func(context.Context, struct{}) (string, error) { return "fine", nil }))
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "bad", Description: "Fails."}, func(context.Context, struct{}) (string, error) { return "", errors.New("no") }))
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "slow", Description: "Waits."}, func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}))
		flue.UseAgentFinish(r, func(_ context.Context, f *flue.AgentFinish) error {
			finishes = append(finishes, facts{f.ToolCalls, f.Usage})
			if len(f.ToolCalls) > 3 {
				return nil
			}
			return f.Append(flue.Signal("go-on", "once more", nil))
		})
		flue.UseResponseFinish(r, func(_ context.Context, f *flue.ResponseFinish) (flue.Metadata, error) {
			end = facts{f.ToolCalls, f.Usage}
			return nil, nil
		})
	})
	failed := false
	reply := func(req *model.Request) script.Turn {
		used := model.Usage{Input: 100, Output: 10, CacheRead: 1}
		switch answers(req) {
		case 0:
			return script.Call("good", nil).Call("bad", nil).Usage(used)
		case 1:
			return script.Call("slow", nil).Usage(used)
		case 2:
			if !failed {
				failed = true
				return script.Fail(&model.Error{Class: model.Retryable, Message: "busy"})
			}
			return script.Say("so far").Usage(used)
		case 3:
			return script.Call("good", nil).Usage(used)
		}
		return script.Say("done").Usage(used)
	}
	playing(t, agent, reply, func(t *testing.T, opened *stage) {
		s = opened
		sub := s.send(flue.User("go"))
		synctest.Wait() // the slow tool is at work
		s.restart()
		if _, err := s.read(sub); err != nil {
			t.Fatal(err)
		}
		calls := []flue.ResponseToolCall{{Tool: "good"}, {Tool: "bad", Failed: true}, {Tool: "slow", Failed: true}, {Tool: "good"}}
		want := []facts{
			{calls[:3], flue.Usage{Input: 300, Output: 30, CacheRead: 3}},
			{calls, flue.Usage{Input: 500, Output: 50, CacheRead: 5}},
		}
		if diff := cmp.Diff(want, finishes); diff != "" {
			t.Errorf("what the finish callbacks were handed (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want[1], end); diff != "" {
			t.Errorf("what the callback of the end was handed (-want +got):\n%s", diff)
		}
		var recorded facts
		for _, r := range s.records() {
			switch r := r.(type) {
			case *journal.Outcome:
				recorded.Calls = append(recorded.Calls, flue.ResponseToolCall{Tool: r.Tool, Failed: r.Failed})
			case *journal.TurnDone:
				recorded.Usage.Input += r.Usage.Input
				recorded.Usage.Output += r.Usage.Output
				recorded.Usage.CacheRead += r.Usage.CacheRead
			}
		}
		byTool := cmpopts.SortSlices(func(a, b flue.ResponseToolCall) bool { return a.Tool < b.Tool }) // outcomes stand as they came
		if diff := cmp.Diff(recorded, end, byTool); diff != "" {
			t.Errorf("the journal and the callback differ (-journal +callback):\n%s", diff)
		}
	})
}
