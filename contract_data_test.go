package flue_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
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

// playing holds a play on a stage of its own, in simulated time.
func playing(t *testing.T, agent *flue.Agent, reply func(req *model.Request) script.Turn, play func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, agent, reply)
		defer s.close()
		play(t, s)
	})
}

// causeOf waits for a submission that must fail and returns what clients are
// told and why it failed, as observers see it. It needs a bubble.
func causeOf(t *testing.T, s *stage, submission string) (*flue.SubmissionError, error) {
	t.Helper()
	_, err := s.read(submission)
	var failed *flue.SubmissionError
	if !errors.As(err, &failed) || failed.Outcome != flue.Failed {
		t.Fatalf("the submission ended with %v, want a failure", err)
	}
	synctest.Wait()
	for _, ev := range s.observed(flue.EventSettled) {
		if ev.Submission == submission {
			return failed, ev.Error
		}
	}
	t.Fatal("nobody was told that the submission failed")
	return nil, nil
}

// replyParts are the parts of the message that answers a submission, each as its
// type and what is in it.
func replyParts(s *stage, submission string) []string {
	var out []string
	for _, m := range s.snapshot().Messages {
		if m.Role != wire.RoleAssistant || m.SubmissionID != submission {
			continue
		}
		for _, p := range m.Parts {
			switch {
			case p.Text != nil:
				out = append(out, p.Type+" "+*p.Text)
			case p.Type == wire.PartTool:
				out = append(out, p.Type+" "+p.ToolName)
			default:
				out = append(out, p.Type+" "+string(p.Data))
			}
		}
	}
	return out
}

// sayInBody answers every request with the text of the last user message.
func sayInBody(req *model.Request) script.Turn { return script.Say("re: " + script.LastUser(req)) }

type shownAt struct {
	At string `json:"at"`
}

func TestDataWriter(t *testing.T) {
	agent := plain(func(r *flue.Render) {
		early := flue.UseDataWriter[shownAt](r, "early")
		work := flue.UseDataWriter[shownAt](r, "work")
		late := flue.UseDataWriter[shownAt](r, "late")
		flue.UseDataWriter[shownAt](r, "never")
		flue.UseAgentStart(r, func(ctx context.Context, _ *flue.AgentStart) error { return early.Write(ctx, shownAt{"start"}) })
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, _ struct{}) (string, error) {
			return "worked", errors.Join(work.Write(ctx, shownAt{"half"}), early.Write(ctx, shownAt{"tool"}), work.Write(ctx, shownAt{"done"}))
		}))
		flue.UseAgentFinish(r, func(ctx context.Context, _ *flue.AgentFinish) error {
			return errors.Join(late.Write(ctx, shownAt{"finish"}), early.Write(ctx, shownAt{"end"}))
		})
	})
	playing(t, agent, callThenSay("work", nil), func(t *testing.T, s *stage) {
		sub := s.send(flue.User("go"))
		reply, err := s.read(sub)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			`data-early {"at":"end"}`, "dynamic-tool work", `data-work {"at":"done"}`, "text it said: worked", `data-late {"at":"finish"}`,
		}
		if diff := cmp.Diff(want, replyParts(s, sub)); diff != "" {
			t.Errorf("the parts of the message (-want +got):\n%s", diff)
		}
		data := map[string][]json.RawMessage{
			"early": {json.RawMessage(`{"at":"start"}`), json.RawMessage(`{"at":"tool"}`), json.RawMessage(`{"at":"end"}`)},
			"work":  {json.RawMessage(`{"at":"half"}`), json.RawMessage(`{"at":"done"}`)},
			"late":  {json.RawMessage(`{"at":"finish"}`)},
		}
		if diff := cmp.Diff(data, reply.Data); diff != "" {
			t.Errorf("Reply.Data (-want +got):\n%s", diff)
		}
		s.restart()
		if diff := cmp.Diff(want, replyParts(s, sub)); diff != "" {
			t.Errorf("the parts after a restart (-want +got):\n%s", diff)
		}
		if reply, err = s.read(sub); err != nil || !cmp.Equal(reply.Data, data) {
			t.Errorf("Reply.Data after a restart is %v, %v", reply, err)
		}
	})

	t.Run("declared only", func(t *testing.T) {
		playing(t, plain(func(r *flue.Render) { flue.UseDataWriter[int](r, "never") }), sayOK, func(t *testing.T, s *stage) {
			sub := s.send(flue.User("go"))
			reply, err := s.read(sub)
			if err != nil || reply.Data != nil {
				t.Errorf("a part that is only declared gives the reply %+v, %v", reply, err)
			}
			if diff := cmp.Diff([]string{"text ok"}, replyParts(s, sub)); diff != "" {
				t.Errorf("the parts of the message (-want +got):\n%s", diff)
			}
		})
	})
}

// follow reads the changes of the stage's conversation over HTTP as they come,
// until one is found, and returns it. It fails the test if none comes.
func follow(t *testing.T, s *stage, found func(c wire.Chunk) bool) wire.Chunk {
	t.Helper()
	srv := httptest.NewServer(s.rt.Handler(s.agent.Name))
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for offset := "-1"; ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/one?view=updates&live=long-poll&offset="+offset, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatalf("following the conversation: %v", err)
		}
		var chunks []wire.Chunk
		if resp.StatusCode == http.StatusOK {
			err = json.NewDecoder(resp.Body).Decode(&chunks)
		}
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatalf("following the conversation: %v", err)
		}
		for _, c := range chunks {
			if found(c) {
				return c
			}
		}
		offset = resp.Header.Get("Stream-Next-Offset")
	}
}

func TestDataWriterStreams(t *testing.T) {
	t.Run("while the tool runs", func(t *testing.T) {
		var s *stage
		written := make(chan struct{}, 2)
		s = newStage(t, plain(func(r *flue.Render) {
			progress := flue.UseDataWriter[int](r, "progress")
			flue.UseTool(r, flue.NewTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, _ struct{}) (string, error) {
				if err := progress.Write(ctx, 50); err != nil {
					return "", err
				}
				s.note("written")
				written <- struct{}{}
				<-ctx.Done() // until the process dies
				return "", ctx.Err()
			}))
		}), callThenSay("work", nil))
		sub := s.send(flue.User("go"))
		c := follow(t, s, func(c wire.Chunk) bool { return c.Type == wire.ChunkDataPart })
		if c.Name != "progress" || string(c.Data) != "50" {
			t.Errorf("a follower received the part %q with %s", c.Name, c.Data)
		}
		<-written // the follower may be told before the tool is
		if done := s.observed(flue.EventToolDone); len(done) > 0 {
			t.Fatalf("the tool was to block, and has ended: %+v", done)
		}
		s.restart()
		if _, err := s.read(sub); err != nil {
			t.Fatal(err)
		}
		if parts := replyParts(s, sub); len(parts) < 2 || parts[1] != "data-progress 50" {
			t.Errorf("after the crash the message has the parts %q", parts)
		}
		if got := s.noted(); len(got) != 1 {
			t.Errorf("the tool wrote %d times, want once", len(got))
		}
	})

	t.Run("before the callbacks of the end", func(t *testing.T) {
		var s *stage
		playing(t, plain(func(r *flue.Render) {
			shown := flue.UseDataWriter[string](r, "shown")
			flue.UseAgentFinish(r, func(ctx context.Context, _ *flue.AgentFinish) error { return shown.Write(ctx, "from the finish") })
			flue.UseResponseFinish(r, func(context.Context, *flue.ResponseFinish) (flue.Metadata, error) {
				for _, rec := range s.records() {
					if d, ok := rec.(*journal.Data); ok {
						s.note("%s", d.Value)
					}
				}
				return flue.Metadata{"closed": true}, nil
			})
		}), sayOK, func(t *testing.T, opened *stage) {
			s = opened
			s.say("go")
			if diff := cmp.Diff([]string{`"from the finish"`}, s.noted()); diff != "" {
				t.Errorf("what is durable when the response ends (-want +got):\n%s", diff)
			}
			data := slices.IndexFunc(s.records(), func(r journal.Record) bool { _, ok := r.(*journal.Data); return ok })
			metadata := slices.IndexFunc(s.records(), func(r journal.Record) bool { _, ok := r.(*journal.Metadata); return ok })
			if data < 0 || metadata < data {
				t.Errorf("the part is record %d and the metadata of the end record %d", data, metadata)
			}
		})
	})
}

func TestDataWriterIsSilent(t *testing.T) {
	const marked = "for clients only"
	renders := func(t *testing.T, write bool) int {
		var n int
		var s *stage
		playing(t, plain(func(r *flue.Render) {
			s.note("render")
			shown := flue.UseDataWriter[string](r, "shown")
			say := func(ctx context.Context) error {
				if write {
					return shown.Write(ctx, marked)
				}
				return nil
			}
			flue.UseAgentStart(r, func(ctx context.Context, _ *flue.AgentStart) error { return say(ctx) })
			flue.UseTool(r, flue.NewTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, _ struct{}) (string, error) {
				return "worked", say(ctx)
			}))
			flue.UseAgentFinish(r, func(ctx context.Context, _ *flue.AgentFinish) error { return say(ctx) })
		}), callThenSay("work", nil), func(t *testing.T, opened *stage) {
			s = opened
			s.say("go")
			s.say("again") // what was written before is in the past of this one
			n = len(s.noted())
			if got := bytes.Contains(asJSON(s.snapshot()), []byte(marked)); got != write {
				t.Errorf("clients see what was written: %v, want %v", got, write)
			}
			for i, req := range s.asked() {
				if bytes.Contains(asJSON(req.Messages), []byte(marked)) || strings.Contains(req.System, marked) {
					t.Errorf("request %d shows the model what only clients should see", i)
				}
			}
		})
		return n
	}
	if silent, loud := renders(t, false), renders(t, true); silent != loud || silent == 0 {
		t.Errorf("with writes there were %d renders, without %d", loud, silent)
	}
}

func TestDataWriterValues(t *testing.T) {
	type level struct {
		Level string `json:"level" enum:"low,high"`
	}
	tests := []struct {
		name  string
		write func(ctx context.Context, fit *flue.DataWriter[level], loose *flue.DataWriter[any]) error
		want  string // the value that clients see; empty if it is an error
	}{
		{"fits", func(ctx context.Context, fit *flue.DataWriter[level], _ *flue.DataWriter[any]) error {
			return fit.Write(ctx, level{"high"})
		}, `data-fit {"level":"high"}`},
		{"not in the enum", func(ctx context.Context, fit *flue.DataWriter[level], _ *flue.DataWriter[any]) error {
			return fit.Write(ctx, level{"middle"})
		}, ""},
		{"nil", func(ctx context.Context, _ *flue.DataWriter[level], loose *flue.DataWriter[any]) error {
			return loose.Write(ctx, nil)
		}, "data-loose null"},
		{"a channel", func(ctx context.Context, _ *flue.DataWriter[level], loose *flue.DataWriter[any]) error {
			return loose.Write(ctx, map[string]any{"c": make(chan int)})
		}, ""},
		{"as large as may be", func(ctx context.Context, _ *flue.DataWriter[level], loose *flue.DataWriter[any]) error {
			return loose.Write(ctx, strings.Repeat("x", flue.MaxData-2))
		}, `data-loose "` + strings.Repeat("x", flue.MaxData-2) + `"`},
		{"too large", func(ctx context.Context, _ *flue.DataWriter[level], loose *flue.DataWriter[any]) error {
			return loose.Write(ctx, strings.Repeat("x", flue.MaxData-1))
		}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var failed error
			playing(t, plain(func(r *flue.Render) {
				fit, loose := flue.UseDataWriter[level](r, "fit"), flue.UseDataWriter[any](r, "loose")
				flue.UseTool(r, flue.NewTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, _ struct{}) (string, error) {
					failed = tt.write(ctx, fit, loose)
					return "worked", nil
				}))
			}), callThenSay("work", nil), func(t *testing.T, s *stage) {
				sub := s.send(flue.User("go"))
				if _, err := s.read(sub); err != nil {
					t.Fatal(err)
				}
				if (failed != nil) != (tt.want == "") {
					t.Errorf("the write returned %v", failed)
				}
				if failed != nil && !strings.Contains(failed.Error(), "data part") {
					t.Errorf("the error %q does not say what was being written", failed)
				}
				got := slices.DeleteFunc(replyParts(s, sub), func(p string) bool { return !strings.HasPrefix(p, "data-") })
				if tt.want == "" && len(got) > 0 || tt.want != "" && !slices.Equal(got, []string{tt.want}) {
					t.Errorf("clients see %.100q, want %.100q", got, tt.want)
				}
			})
		})
	}
}

func TestDataWriterMisuse(t *testing.T) {
	tests := []struct {
		name    string
		declare func(r *flue.Render)
		want    string
	}{
		{"blank", func(r *flue.Render) { flue.UseDataWriter[int](r, " ") }, `" "`},
		{"too long", func(r *flue.Render) { flue.UseDataWriter[int](r, strings.Repeat("n", 257)) }, "nnnnnnnn"},
		{"twice", func(r *flue.Render) {
			flue.UseDataWriter[int](r, "progress")
			flue.UseDataWriter[string](r, "progress")
		}, `"progress" twice`},
		{"twice through a custom hook", func(r *flue.Render) {
			useProgress := func(r *flue.Render) { flue.UseDataWriter[int](r, "progress") }
			useProgress(r)
			useProgress(r)
		}, `"progress" twice`},
		{"a type without a JSON form", func(r *flue.Render) { flue.UseDataWriter[chan int](r, "progress") }, "JSON"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			playing(t, plain(func(r *flue.Render) {
				if flue.UseDelivery(r).Body == "break it" {
					tt.declare(r)
				}
			}), sayInBody, func(t *testing.T, s *stage) {
				told, err := causeOf(t, s, s.send(flue.User("break it")))
				var misuse *flue.HookError
				if !errors.As(err, &misuse) || misuse.Hook != "UseDataWriter" || !strings.Contains(misuse.Error(), tt.want) {
					t.Errorf("it failed with %v, want a misuse of UseDataWriter with %s", err, tt.want)
				}
				if strings.Contains(told.Error(), "UseDataWriter") {
					t.Errorf("clients are told %q", told)
				}
				if len(s.asked()) != 0 {
					t.Error("the model was called after a render that failed")
				}
				if got := s.say("and now"); got != "re: and now" {
					t.Errorf("the next message is answered with %q", got)
				}
			})
		})
	}
}

func TestDataWriterNamesAreFixed(t *testing.T) {
	useParts := func(r *flue.Render, names ...string) {
		for _, name := range names {
			flue.UseDataWriter[int](r, name)
		}
	}
	tests := []struct {
		name          string
		first, second []string
		fails         bool
	}{
		{"the same", []string{"a", "b"}, []string{"a", "b"}, false},
		{"another order", []string{"a", "b"}, []string{"b", "a"}, false},
		{"one more", []string{"a"}, []string{"a", "extra"}, true},
		{"one fewer", []string{"a", "extra"}, []string{"a"}, true},
		{"another one", []string{"a", "old"}, []string{"a", "fresh"}, true},
		{"the first", nil, []string{"extra"}, true},
		{"none left", []string{"extra"}, nil, true},
	}
	for _, custom := range []bool{false, true} {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s, custom=%v", tt.name, custom), func(t *testing.T) {
				playing(t, plain(func(r *flue.Render) {
					worked := flue.UsePersistentState(r, "worked", false)
					flue.UseTool(r, flue.NewTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, _ struct{}) (string, error) {
						return "worked", worked.Set(ctx, true)
					}))
					names := tt.first
					if worked.Value() {
						names = tt.second
					}
					if custom {
						useParts(r, names...)
						return
					}
					for _, name := range names {
						flue.UseDataWriter[int](r, name)
					}
				}), callThenSay("work", nil), func(t *testing.T, s *stage) {
					sub := s.send(flue.User("go"))
					if !tt.fails {
						if _, err := s.read(sub); err != nil {
							t.Error(err)
						}
						return
					}
					_, err := causeOf(t, s, sub)
					for _, name := range append(tt.first, tt.second...) {
						if err == nil || !strings.Contains(err.Error(), name) {
							t.Errorf("the error does not name the part %s: %v", name, err)
						}
					}
					if len(s.asked()) != 1 {
						t.Errorf("the model was called %d times, want once", len(s.asked()))
					}
				})
			})
		}
	}
}
