package crashtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// A world is what survives the kills: the model services, which check every
// request that they get, and a ledger of what tools did.
type world struct {
	*httptest.Server

	mu    sync.Mutex
	begun map[string]int // by call
	ended map[string]int
	wrong []string // requests that a real service would refuse
}

func newWorld(t *testing.T) *world {
	w := &world{begun: map[string]int{}, ended: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /ledger", w.ledger)
	mux.HandleFunc("POST /openai/v1/chat/completions", w.openai)
	mux.HandleFunc("POST /anthropic/v1/messages", w.anthropic)
	w.Server = httptest.NewServer(mux)
	t.Cleanup(w.Close)
	return w
}

func (w *world) ledger(_ http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.begun
	if r.FormValue("phase") == "end" {
		m = w.ended
	}
	m[r.FormValue("call")]++
}

func (w *world) complain(body any, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text, _ := json.Marshal(body)
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...)+": "+string(text))
}

// A turn is what the scripted model sees of a conversation, in either dialect.
type turn struct {
	token   string // of the last message of a person
	results int    // tool results since
}

// tokens are how messages and answers are told apart.
var tokens = regexp.MustCompile(`\bT[0-9]+x[0-9]+\b`)

// user takes a user message, or several in one, as a codec may send them. The
// runtime's own signals have no tokens.
func (t *turn) user(text string) {
	if all := tokens.FindAllString(text, -1); len(all) > 0 {
		*t = turn{token: all[len(all)-1]}
	}
}

// calls reports whether the model asks for its two tools now. Every
// fifth message makes it do so.
func (t *turn) calls() bool {
	return t.results == 0 && (strings.HasSuffix(t.token, "0") || strings.HasSuffix(t.token, "5"))
}

func (t *turn) callID(name string) string { return "call_" + t.token + "_" + name }

// answer is the text that ends a response, in pieces.
func (t *turn) answer() []string {
	return strings.SplitAfter("Here is the answer to "+t.token+" as you asked .", " ")
}

// stream writes server-sent events slowly enough to be cut.
type stream struct {
	http.ResponseWriter
	named bool
}

func (s stream) send(name string, v any) {
	if s.named {
		fmt.Fprintf(s, "event: %s\n", name)
	}
	data, _ := json.Marshal(v)
	fmt.Fprintf(s, "data: %s\n\n", data)
	s.ResponseWriter.(http.Flusher).Flush()
	time.Sleep(time.Millisecond)
}

type object = map[string]any

func (w *world) openai(rw http.ResponseWriter, r *http.Request) {
	var req struct {
		Messages []struct {
			Role       string
			Content    any
			ToolCallID string `json:"tool_call_id"`
			ToolCalls  []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		if !errors.Is(err, io.ErrUnexpectedEOF) && r.Context().Err() == nil { // else its sender was killed
			w.complain(nil, "openai: %v", err)
		}
		return
	}
	var t turn
	var open []string
	for i, m := range req.Messages {
		if m.Role == "tool" {
			if len(open) == 0 || open[0] != m.ToolCallID {
				w.complain(req, "openai: message %d answers %q, want %q", i, m.ToolCallID, open)
				open = []string{m.ToolCallID}
			}
			open = open[1:]
			t.results++
			continue
		}
		if len(open) > 0 {
			w.complain(req, "openai: message %d follows calls %q without their results", i, open)
		}
		open = nil
		switch m.Role {
		case "user":
			for _, text := range texts(m.Content) {
				t.user(text)
			}
		case "assistant":
			if len(m.ToolCalls) == 0 && len(texts(m.Content)) == 0 {
				w.complain(req, "openai: message %d is empty", i)
			}
			for _, c := range m.ToolCalls {
				if !json.Valid([]byte(c.Function.Arguments)) {
					w.complain(req, "openai: arguments %q", c.Function.Arguments)
				}
				open = append(open, c.ID)
			}
		}
	}
	if len(open) > 0 {
		w.complain(req, "openai: calls %q have no results", open)
	}
	rw.Header().Set("Content-Type", "text/event-stream")
	s := stream{rw, false}
	chunk := func(delta object, finish any) {
		s.send("", object{"id": "x", "object": "chat.completion.chunk", "choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}}})
	}
	if t.calls() {
		for i, name := range []string{"charge", "ship"} {
			chunk(object{"tool_calls": []object{{"index": i, "id": t.callID(name), "type": "function", "function": object{"name": name, "arguments": ""}}}}, nil)
			chunk(object{"tool_calls": []object{{"index": i, "function": object{"arguments": `{"token":"` + t.token + `"}`}}}}, nil)
		}
		chunk(object{}, "tool_calls")
	} else {
		for _, word := range t.answer() {
			chunk(object{"content": word}, nil)
		}
		chunk(object{}, "stop")
	}
	fmt.Fprint(rw, "data: [DONE]\n\n")
}

// texts are the texts of a message's content, in either of its forms.
func texts(content any) []string {
	switch c := content.(type) {
	case string:
		return []string{c}
	case []any:
		var out []string
		for _, part := range c {
			if p, ok := part.(object); ok {
				if text, ok := p["text"].(string); ok {
					out = append(out, text)
				}
			}
		}
		return out
	}
	return nil
}

func (w *world) anthropic(rw http.ResponseWriter, r *http.Request) {
	var req struct {
		Messages []struct {
			Role    string
			Content any
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		if !errors.Is(err, io.ErrUnexpectedEOF) && r.Context().Err() == nil { // else its sender was killed
			w.complain(nil, "anthropic: %v", err)
		}
		return
	}
	var t turn
	var open []string
	for i, m := range req.Messages {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			w.complain(req, "anthropic: message %d is the %s's, want the %s's", i, m.Role, want)
		}
		blocks, _ := m.Content.([]any)
		if len(blocks) == 0 && len(texts(m.Content)) == 0 {
			w.complain(req, "anthropic: message %d is empty", i)
		}
		for _, text := range texts(m.Content) {
			if m.Role == "user" {
				t.user(text)
			}
		}
		if m.Role == "user" {
			for _, b := range blocks {
				if b := b.(object); b["type"] == "tool_result" {
					if len(open) == 0 || open[0] != b["tool_use_id"] {
						w.complain(req, "anthropic: message %d answers %v, want %q", i, b["tool_use_id"], open)
						break
					}
					open = open[1:]
					t.results++
				}
			}
			if len(open) > 0 {
				w.complain(req, "anthropic: message %d leaves calls %q without results", i, open)
			}
			open = nil
			continue
		}
		for _, b := range blocks {
			switch b := b.(object); b["type"] {
			case "tool_use":
				open = append(open, b["id"].(string))
			case "thinking":
				if b["thinking"] != "hm " || b["signature"] != "sig-"+fmt.Sprint(len("hm ")) {
					w.complain(req, "anthropic: message %d has a thinking block that was not sent", i)
				}
			}
		}
	}
	if len(open) > 0 {
		w.complain(req, "anthropic: calls %q have no results", open)
	}
	rw.Header().Set("Content-Type", "text/event-stream")
	w.speak(stream{rw, true}, &t)
}

// speak streams an Anthropic answer: a signed thought, then calls or text.
func (w *world) speak(s stream, t *turn) {
	s.send("message_start", object{"type": "message_start", "message": object{"id": "m", "type": "message", "role": "assistant", "model": "scripted", "content": []any{}, "usage": object{"input_tokens": 1, "output_tokens": 1}}})
	block := func(i int, start object, deltas ...object) {
		s.send("content_block_start", object{"type": "content_block_start", "index": i, "content_block": start})
		for _, d := range deltas {
			s.send("content_block_delta", object{"type": "content_block_delta", "index": i, "delta": d})
		}
		s.send("content_block_stop", object{"type": "content_block_stop", "index": i})
	}
	block(0, object{"type": "thinking", "thinking": "", "signature": ""},
		object{"type": "thinking_delta", "thinking": "hm "}, object{"type": "signature_delta", "signature": "sig-3"})
	stop := "end_turn"
	if t.calls() {
		stop = "tool_use"
		for i, name := range []string{"charge", "ship"} {
			block(i+1, object{"type": "tool_use", "id": t.callID(name), "name": name, "input": object{}},
				object{"type": "input_json_delta", "partial_json": `{"token":`}, object{"type": "input_json_delta", "partial_json": `"` + t.token + `"}`})
		}
	} else {
		var deltas []object
		for _, word := range t.answer() {
			deltas = append(deltas, object{"type": "text_delta", "text": word})
		}
		block(1, object{"type": "text", "text": ""}, deltas...)
	}
	s.send("message_delta", object{"type": "message_delta", "delta": object{"stop_reason": stop}, "usage": object{"output_tokens": 5}})
	s.send("message_stop", object{"type": "message_stop"})
}
