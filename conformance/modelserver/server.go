// Package modelserver is a model for tests: a server that speaks the OpenAI
// Chat Completions API and answers as the message asks it to. The same message
// is always answered in the same way, whatever happened in between, so a run
// can be repeated and resumed.
package modelserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A Server is an [http.Handler] that serves POST /v1/chat/completions. The
// zero value is ready to use, by any number of requests at once.
type Server struct {
	mu       sync.Mutex
	failures map[string]int // by id
	cuts     map[string]bool
}

type request struct {
	Model    string    `json:"model"`
	Messages []message `json:"messages"`
}

type message struct {
	Role      string            `json:"role"`
	Content   json.RawMessage   `json:"content"`
	ToolCalls []json.RawMessage `json:"tool_calls"`
}

// text is the text of the content, which is a string or a list of parts.
func (m message) text() string {
	var s string
	if json.Unmarshal(m.Content, &s) == nil {
		return s
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(m.Content, &parts)
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text + "\n")
	}
	return b.String()
}

// plan returns the script of the newest message that has one, and how many
// rounds of tool calls and words of text have come after it.
func plan(ms []message) (s Script, round, said int) {
	for i := len(ms) - 1; i >= 0; i-- {
		switch m := ms[i]; m.Role {
		case "assistant":
			if len(m.ToolCalls) > 0 {
				round++
			}
			said += len(strings.Fields(m.text()))
		case "user":
			if s, ok := ParseScript(m.text()); ok {
				return s, round, said
			}
		}
	}
	s, _ = ParseScript("")
	return s, round, said
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions" {
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<20))
	var req request
	if err == nil {
		err = json.Unmarshal(body, &req)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	script, round, said := plan(req.Messages)
	if !script.GoOn {
		said = 0
	}
	if s.fails(script) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(script.FailStatus)
		_, _ = fmt.Fprintf(w, `{"error":{"message":"mock failure %d","type":"mock","code":"mock"}}`, script.FailStatus)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	a := &answer{
		w: w, rc: http.NewResponseController(w), r: r, script: script, cut: s.cut(script),
		id: fmt.Sprintf("chatcmpl-%s-%d", script.ID, round), model: req.Model,
	}
	a.pause(script.First)
	a.write(round, said)
}

func (s *Server) fails(script Script) bool {
	if script.FailStatus == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures == nil {
		s.failures = make(map[string]int)
	}
	s.failures[script.ID]++
	return s.failures[script.ID] <= script.FailCount
}

// cut returns after how many events to drop the connection, zero for never.
func (s *Server) cut(script Script) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if script.Cut == 0 || s.cuts[script.ID] {
		return 0
	}
	if s.cuts == nil {
		s.cuts = make(map[string]bool)
	}
	s.cuts[script.ID] = true
	return script.Cut
}

// An answer is one response that is being written.
type answer struct {
	w         http.ResponseWriter
	rc        *http.ResponseController
	r         *http.Request
	script    Script
	id, model string
	cut, sent int
}

func (a *answer) write(round, said int) {
	a.delta(`{"role":"assistant","content":""}`)
	if a.script.Tool != "" && round < a.script.Rounds {
		a.calls(round)
		a.end("tool_calls")
		return
	}
	a.words("reasoning_content", 0, a.script.Think)
	a.words("content", said, a.script.Text)
	a.end("stop")
}

func (a *answer) calls(round int) {
	args, _ := json.Marshal(a.script.Args) // a string is always JSON
	for i := range a.script.Parallel {
		a.delta(fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":"call_%s_%d_%d","type":"function","function":{"name":%q,"arguments":""}}]}`,
			i, a.script.ID, round, i, a.script.Tool))
		a.delta(fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]}`, i, args))
	}
}

// words says the words from one up to another.
func (a *answer) words(field string, from, n int) {
	for i := from; i < n; {
		var b strings.Builder
		for range min(a.script.Chunk, n-i) {
			fmt.Fprintf(&b, "word%d ", i)
			i++
		}
		a.delta(fmt.Sprintf(`{%q:%q}`, field, b.String()))
	}
}

func (a *answer) end(reason string) {
	a.event(fmt.Sprintf(`{"id":%q,"object":"chat.completion.chunk","created":1700000000,"model":%q,"choices":[{"index":0,"delta":{},"finish_reason":%q}]}`, a.id, a.model, reason))
	a.event(fmt.Sprintf(`{"id":%q,"object":"chat.completion.chunk","created":1700000000,"model":%q,"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":10,"total_tokens":20}}`, a.id, a.model))
	a.event("[DONE]")
}

func (a *answer) delta(delta string) {
	a.event(fmt.Sprintf(`{"id":%q,"object":"chat.completion.chunk","created":1700000000,"model":%q,"choices":[{"index":0,"delta":%s,"finish_reason":null}]}`, a.id, a.model, delta))
}

// event sends one event. It drops the connection when it is time to.
func (a *answer) event(data string) {
	if _, err := io.WriteString(a.w, "data: "+data+"\n\n"); err != nil {
		panic(http.ErrAbortHandler)
	}
	a.sent++
	if err := a.rc.Flush(); err != nil || a.sent == a.cut {
		panic(http.ErrAbortHandler)
	}
	a.pause(a.script.Delay)
}

func (a *answer) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-a.r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}
