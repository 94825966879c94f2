package flue_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/wire"
)

// metadataOf is the metadata of the message that answers a submission.
func metadataOf(t *testing.T, messages []wire.Message, submission string) flue.Metadata {
	t.Helper()
	for _, m := range messages {
		if m.Role == wire.RoleAssistant && m.SubmissionID == submission {
			return asMetadata(t, m.Metadata)
		}
	}
	t.Fatal("nothing answers the submission")
	return nil
}

// asMetadata decodes metadata; what there is none of is nil.
func asMetadata(t *testing.T, raw []byte) flue.Metadata {
	t.Helper()
	if len(raw) == 0 {
		return nil
	}
	var m flue.Metadata
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// streamed is the conversation as a client has it that has read all changes from
// the beginning. What was settled a moment ago may be on its way to followers
// still: it reads on until all that was accepted is settled.
func streamed(t *testing.T, s *stage) []wire.Message {
	t.Helper()
	accepted, settled := 0, -1
	for _, r := range s.records() {
		if _, ok := r.(*journal.Admitted); ok {
			accepted++
		}
	}
	var chunks []wire.Chunk
	for settled < accepted {
		w := httptest.NewRecorder()
		s.rt.Handler(s.agent.Name).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/one?view=updates&offset=-1", nil).WithContext(t.Context()))
		chunks = nil
		if err := json.Unmarshal(w.Body.Bytes(), &chunks); w.Code != http.StatusOK || err != nil {
			t.Fatalf("reading the changes: %d, %v", w.Code, err)
		}
		settled = 0
		for _, c := range chunks {
			if c.Type == wire.ChunkSettled {
				settled++
			}
		}
	}
	var c wire.Conversation
	for i := range chunks {
		if err := c.Apply(&chunks[i]); err != nil {
			t.Fatal(err)
		}
	}
	return c.Messages
}

// attaching is an agent whose hooks at the start and at the end of a response
// return the given metadata, one hook for each, and keep what they were handed.
func attaching(start, finish []flue.Metadata, handed *[]string) *flue.Agent {
	return plain(func(r *flue.Render) {
		for _, m := range start {
			flue.UseResponseStart(r, func(_ context.Context, s *flue.ResponseStart) (flue.Metadata, error) {
				*handed = append(*handed, "start "+string(asJSON(s.Metadata)))
				return m, nil
			})
		}
		for _, m := range finish {
			flue.UseResponseFinish(r, func(_ context.Context, f *flue.ResponseFinish) (flue.Metadata, error) {
				*handed = append(*handed, "finish "+string(asJSON(f.Metadata)))
				return m, nil
			})
		}
	})
}

func TestResponseMetadata(t *testing.T) {
	type m = flue.Metadata
	tests := []struct {
		name          string
		start, finish []m
		handed        []string
		want          m
	}{
		{name: "no hooks"},
		{
			name: "nothing attached", start: []m{nil, {}}, finish: []m{nil},
			handed: []string{"start {}", "start {}", "finish {}"},
		},
		{
			name: "at the start", start: []m{{"a": 1}}, handed: []string{"start {}"}, want: m{"a": 1.0},
		},
		{
			name: "at the end", finish: []m{{"a": 1}}, handed: []string{"finish {}"}, want: m{"a": 1.0},
		},
		{
			name: "merged deeply, the later key wins",
			start: []m{
				{"a": 1, "deep": m{"x": 1, "list": []any{1, 2}, "o": m{"p": 1}}},
				{"a": "later", "deep": m{"list": []any{3}, "n": nil}},
			},
			finish: []m{{"deep": m{"x": m{"now": "an object"}, "o": 5}}, nil, {"z": true}},
			handed: []string{
				`start {}`,
				`start {"a":1,"deep":{"list":[1,2],"o":{"p":1},"x":1}}`,
				`finish {"a":"later","deep":{"list":[3],"n":null,"o":{"p":1},"x":1}}`,
				`finish {"a":"later","deep":{"list":[3],"n":null,"o":5,"x":{"now":"an object"}}}`,
				`finish {"a":"later","deep":{"list":[3],"n":null,"o":5,"x":{"now":"an object"}}}`,
			},
			want: m{"a": "later", "deep": m{"x": m{"now": "an object"}, "list": []any{3.0}, "o": 5.0, "n": nil}, "z": true},
		},
		{
			name:   "dangerous keys",
			start:  []m{{"__proto__": m{"polluted": true}, "in": m{"constructor": 1, "ok": true}, "list": []any{m{"prototype": 1, "fine": 2}}}},
			finish: []m{{"prototype": 1}},
			handed: []string{`start {}`, `finish {"in":{"ok":true},"list":[{"fine":2}]}`},
			want:   m{"in": m{"ok": true}, "list": []any{m{"fine": 2.0}}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var handed []string
			playing(t, attaching(tt.start, tt.finish, &handed), sayOK, func(t *testing.T, s *stage) {
				sub := s.send(flue.User("go"))
				reply, err := s.read(sub)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.handed, handed); diff != "" {
					t.Errorf("what the hooks were handed (-want +got):\n%s", diff)
				}
				for where, got := range map[string]flue.Metadata{
					"Reply.Metadata": reply.Metadata,
					"the snapshot":   metadataOf(t, s.snapshot().Messages, sub),
					"the stream":     metadataOf(t, streamed(t, s), sub),
				} {
					if len(got)+len(tt.want) > 0 && !cmp.Equal(got, tt.want) {
						t.Errorf("%s has %v, want %v", where, got, tt.want)
					}
				}
				s.restart()
				if reply, err = s.read(sub); err != nil || len(reply.Metadata)+len(tt.want) > 0 && !cmp.Equal(reply.Metadata, tt.want) {
					t.Errorf("after a restart it is %v, %v", reply, err)
				}
			})
		})
	}
}

func TestResponseMetadataIsSilent(t *testing.T) {
	const marked = "for clients only"
	renders := func(m flue.Metadata) (n int) {
		var s *stage
		agent := plain(func(r *flue.Render) {
			s.note("render")
			flue.UseResponseStart(r, func(context.Context, *flue.ResponseStart) (flue.Metadata, error) { return m, nil })
			flue.UseResponseFinish(r, func(context.Context, *flue.ResponseFinish) (flue.Metadata, error) { return m, nil })
		})
		playing(t, agent, sayOK, func(t *testing.T, opened *stage) {
			s = opened
			s.say("go")
			s.say("again")
			n = len(s.noted())
			for i, req := range s.asked() {
				if bytes.Contains(asJSON(req.Messages), []byte(marked)) || strings.Contains(req.System, marked) {
					t.Errorf("request %d shows the model what only clients should see", i)
				}
			}
		})
		return n
	}
	if without, with := renders(nil), renders(flue.Metadata{"m": marked}); without != with || with == 0 {
		t.Errorf("with metadata there were %d renders, without %d", with, without)
	}
}

func TestResponseMetadataThatCannotBe(t *testing.T) {
	deep := any("x")
	for range 200 {
		deep = []any{deep}
	}
	for name, m := range map[string]flue.Metadata{
		"no JSON":   {"c": make(chan int)},
		"too large": {"text": strings.Repeat("x", flue.MaxMetadata)},
		"too deep":  {"deep": deep},
	} {
		for _, hook := range []string{"UseResponseStart", "UseResponseFinish"} {
			t.Run(hook+" "+name, func(t *testing.T) {
				agent := plain(func(r *flue.Render) {
					if flue.UseDelivery(r).Body != "break it" {
						return
					}
					if hook == "UseResponseStart" {
						flue.UseResponseStart(r, func(context.Context, *flue.ResponseStart) (flue.Metadata, error) { return m, nil })
					} else {
						flue.UseResponseFinish(r, func(context.Context, *flue.ResponseFinish) (flue.Metadata, error) { return m, nil })
					}
				})
				playing(t, agent, sayInBody, func(t *testing.T, s *stage) {
					if _, err := causeOf(t, s, s.send(flue.User("break it"))); err == nil || !strings.Contains(err.Error(), hook) || !strings.Contains(err.Error(), "metadata") {
						t.Errorf("it failed with %v", err)
					}
					if n := len(recordsOf[*journal.Metadata](s)); n > 0 {
						t.Errorf("%d records of metadata were written", n)
					}
					if got := s.say("and now"); got != "re: and now" {
						t.Errorf("the next message is answered with %q", got)
					}
				})
			})
		}
	}
}

func TestResponseMetadataAfterACrash(t *testing.T) {
	var s *stage
	var handed flue.Metadata
	agent := plain(func(r *flue.Render) {
		for _, m := range []flue.Metadata{{"one": 1, "both": 1}, {"two": 2, "both": 2}} {
			flue.UseResponseStart(r, func(context.Context, *flue.ResponseStart) (flue.Metadata, error) {
				s.note("response start")
				return m, nil
			})
		}
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "wait", Description: "Wait."}, func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done() // until the process dies
			return "", ctx.Err()
		}))
		flue.UseResponseFinish(r, func(context.Context, *flue.ResponseFinish) (flue.Metadata, error) {
			return flue.Metadata{"three": 3}, nil
		})
		flue.UseResponseFinish(r, func(_ context.Context, f *flue.ResponseFinish) (flue.Metadata, error) {
			handed = f.Metadata
			return nil, nil
		})
	})
	playing(t, agent, func(req *model.Request) script.Turn {
		if answers(req) == 0 {
			return script.Call("wait", nil)
		}
		return script.Say("done")
	}, func(t *testing.T, opened *stage) {
		s = opened
		sub := s.send(flue.User("go"))
		synctest.Wait()
		s.restart()
		reply, err := s.read(sub)
		if err != nil {
			t.Fatal(err)
		}
		want := flue.Metadata{"one": 1.0, "two": 2.0, "both": 2.0, "three": 3.0}
		if diff := cmp.Diff(want, handed); diff != "" {
			t.Errorf("what the hook of the end was handed (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, reply.Metadata); diff != "" {
			t.Errorf("Reply.Metadata (-want +got):\n%s", diff)
		}
		if got := s.noted(); len(got) != 2 {
			t.Errorf("the hooks of the start ran %d times, want once each", len(got))
		}
	})
}
