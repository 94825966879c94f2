package model_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// awkward is JSON that another library would write in another way: members out
// of order and one of them twice, numbers that are no float64, escapes of what
// needs none, and characters that some escape.
const awkward = `{"z":1.50,"a":12345678901234567890.10,"e":1E2,"s":"\u00e9\/\ud83d\ude00 <&> \u2028 é","a":-0,"n":null}`

// What a service has sent beside the text goes through the journal, and through a
// restart, back to the model that it came from, byte for byte, and to no other.
func TestProviderPartsAreReplayed(t *testing.T) {
	for name, tt := range map[string]struct {
		stream string   // an answer that calls now
		parts  []string // of the next request, each with "OPAQUE" in it
	}{
		"anthropic": {
			stream: `data: {"type":"message_start","message":{"model":"m","usage":{}}}

data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":"","x":` + awkward + `}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":" a <b> \u2028 \n"}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"OPAQUE+/=\/"}}

data: {"type":"content_block_stop","index":0}

data: {"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"OPAQUE2=","x":` + awkward + `}}

data: {"type":"content_block_stop","index":1}

data: {"type":"content_block_start","index":2,"content_block":{"type":"text","text":"Let me see."}}

data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_1","name":"now","input":{}}}

data: {"type":"message_delta","delta":{"stop_reason":"tool_use"}}

data: {"type":"message_stop"}

`,
			parts: []string{
				`{"signature":"OPAQUE+/=/","thinking":" a <b> \u2028 \n","type":"thinking","x":` + awkward + `}`,
				`{"type":"redacted_thinking","data":"OPAQUE2=","x":` + awkward + `}`,
			},
		},
		"chat": {
			stream: `data: {"model":"m","choices":[{"index":0,"delta":{"reasoning":"hm","reasoning_details":[{"type":"reasoning.encrypted","data":"OPAQUE+/=\/","x":` + awkward + `}]}}]}

data: {"choices":[{"index":0,"delta":{"content":"Let me see."}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","function":{"name":"now","arguments":"{}"},"extra_content":{"google":{"thought_signature":"OPAQUE2\u003d"},"x":` + awkward + `}}]}}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: [DONE]

`,
			parts: []string{
				`"reasoning_details":[{"type":"reasoning.encrypted","data":"OPAQUE+/=\/","x":` + awkward + `}]`,
				`"extra_content":{"google":{"thought_signature":"OPAQUE2\u003d"},"x":` + awkward + `}`,
			},
		},
		"responses": {
			stream: `data: {"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"\u0068m"}],"encrypted_content":"OPAQUE+/=\/","x":` + awkward + `}}

data: {"type":"response.output_item.done","output_index":1,"item":{"id":"msg_OPAQUE","type":"message","content":[{"type":"output_text","text":"Let me see."}]}}

data: {"type":"response.output_item.done","output_index":2,"item":{"id":"fc_OPAQUE","type":"function_call","call_id":"call_1","name":"now","arguments":"{}"}}

data: {"type":"response.completed","response":{"model":"m","status":"completed","usage":{}}}

`,
			parts: []string{
				`{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"\u0068m"}],"encrypted_content":"OPAQUE+/=\/","x":` + awkward + `}`,
				`"id":"msg_OPAQUE"`, `"id":"fc_OPAQUE"`,
			},
		},
		"gemini": {
			stream: `data: {"candidates":[{"content":{"role":"model","parts":[{"text":"Let me see.","thoughtSignature":"OPAQUE+\/=="}]}}],"modelVersion":"m"}

data: {"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"now","args":{}},"thoughtSignature":"OPAQUE2\u003d"}]},"finishReason":"STOP"}]}

`,
			parts: []string{`"text":"Let me see.","thoughtSignature":"OPAQUE+/=="`, `"thoughtSignature":"OPAQUE2="`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, st := apis[name], memstore.New()
				done := a.say(says{blocks: []model.Block{text("It is noon.")}, stop: model.StopEnd})
				s := &recorder{answers: []string{tt.stream, done, done, done}}
				ask(t, a, st, s, "service/m", "What time is it?")
				ask(t, a, st, s, "service/m", "And now?")
				ask(t, a, st, s, "service/other", "And there?")
				if len(s.bodies) != 4 {
					t.Fatalf("%d requests, want 4", len(s.bodies))
				}
				for i, body := range s.bodies[1:] {
					for _, problem := range a.refuses(body) {
						if !strings.HasSuffix(problem, "occurs twice") { // which came so
							t.Errorf("request %d would be refused: %s", i+1, problem)
						}
					}
					if !bytes.Contains(body, []byte("Let me see.")) || !bytes.Contains(body, []byte("12:00")) {
						t.Errorf("request %d lacks what was said: %s", i+1, body)
					}
				}
				for _, part := range tt.parts {
					for i, body := range s.bodies[1:3] {
						if !bytes.Contains(body, []byte(part)) {
							t.Errorf("request %d lacks\n%s\n%s", i+1, part, body)
						}
					}
				}
				if bytes.Contains(s.bodies[3], []byte("OPAQUE")) {
					t.Errorf("another model is sent what it did not write: %s", s.bodies[3])
				}
			})
		})
	}
}

// ask starts a program, sends one message and ends the program.
func ask(t *testing.T, a api, st store.Store, s http.RoundTripper, specifier, message string) {
	t.Helper()
	now := flue.NewTool(flue.Tool{Name: "now", Description: "The time."}, func(context.Context, struct{}) (string, error) { return "12:00", nil })
	agent := &flue.Agent{Name: "clock", Render: func(r *flue.Render) string {
		flue.UseModel(r, specifier)
		flue.UseTool(r, now)
		return "Tell the time."
	}}
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{agent}, Store: st, Log: slog.New(slog.DiscardHandler),
		Providers: map[string]model.Provider{"service": a.codec(&http.Client{Transport: s})},
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := rt.Dispatch(t.Context(), agent.Name, "one", flue.User(message))
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := rt.Instance(agent.Name, "one").Read(t.Context(), r.Submission); err != nil || !strings.HasSuffix(reply.Text, "It is noon.") {
		t.Errorf("reply %v, %v", reply, err)
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A recorder is a transport that plays answers and keeps the requests.
type recorder struct {
	answers []string
	bodies  [][]byte
}

func (s *recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.bodies = append(s.bodies, body)
	answer := s.answers[0]
	s.answers = s.answers[1:]
	return &http.Response{
		StatusCode: 200, Request: r, Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body: io.NopCloser(strings.NewReader(answer)),
	}, nil
}
