package crashtest

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// modelOf names the model of each agent, whose name is that of its provider.
// The second one ties its thinking blocks to all that came before them. The third
// is often overloaded, and the first takes its place then.
var modelOf = map[string]string{"openai": "gpt-4.1", "anthropic": "claude-opus-5-5", "shaky": "gpt-4.1"}

// A world is what survives when the server is killed: the model services, and
// the ledger of what tools did. Everything that is wrong with what it is told
// fails the test.
type world struct {
	*complaints
	http  *httptest.Server
	steps *steps
	pace  int // how slow the model is: by which factor its pauses are longer than 1 to 5 ms
	asked atomic.Int64
	rings chan struct{} // after each time that it was asked, for one who waits

	mu       sync.Mutex
	effects  map[string]*effect // by the id of the call, which this model never uses twice
	keys     map[string]string  // calls, by their keys
	requests int                // to the model services
	resumed  int                // of those, with an answer that was interrupted
}

// An effect is what one tool call did outside of the server.
type effect struct {
	tool     string
	key      string
	begun    []string // by which servers
	at       int64    // when it began first, in Unix nanoseconds
	finished []string // by which servers
}

func newWorld(t *testing.T, c *complaints) *world {
	w := &world{complaints: c, effects: make(map[string]*effect), keys: make(map[string]string), steps: newSteps(c), pace: 1, rings: make(chan struct{}, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /openai/chat/completions", w.model(openAI{}))
	mux.HandleFunc("POST /anthropic/v1/messages", w.model(claude{}))
	mux.HandleFunc("POST /shaky/chat/completions", overloaded(w.model(openAI{})))
	mux.HandleFunc("POST /ledger", w.ledger)
	mux.Handle("POST /steps", w.steps)
	w.http = httptest.NewServer(w.counting(mux))
	t.Cleanup(w.http.Close)
	return w
}

// counting counts what the world is asked: what the servers get done.
func (w *world) counting(serve http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.asked.Add(1)
		select {
		case w.rings <- struct{}{}:
		default:
		}
		serve.ServeHTTP(rw, r)
	})
}

// await waits until the world was asked so many times more, or for the longest time.
func (w *world) await(times int64, longest time.Duration) {
	late := time.NewTimer(longest)
	defer late.Stop()
	for until := w.asked.Load() + times; w.asked.Load() < until; {
		select {
		case <-w.rings:
		case <-late.C:
			return
		}
	}
}

// complaints are what was found to be wrong. It is safe for concurrent use.
type complaints struct {
	t  *testing.T
	mu sync.Mutex
	n  int
}

// clock is how times are told that are to be found in logs.
const clock = "15:04:05.000"

// maxComplaints is how many are told: one fault may have many consequences.
const maxComplaints = 20

func (c *complaints) complain(format string, args ...any) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n++; c.n <= maxComplaints {
		c.t.Errorf("%s: "+format, append([]any{time.Now().Format(clock)}, args...)...)
	}
}

func (c *complaints) any() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n > 0
}

// A ledgerEntry is what a tool tells the ledger.
type ledgerEntry struct {
	Call, Key, Tool string
	By              string // the server
	At              int64  // Unix nanoseconds
	Finished        bool   // it ends; otherwise it begins
}

func (w *world) ledger(rw http.ResponseWriter, r *http.Request) {
	var entry ledgerEntry
	if err := json.UnmarshalRead(r.Body, &entry); err != nil {
		return // the server died while it wrote
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.effects[entry.Call]
	if e == nil {
		e = &effect{tool: entry.Tool, key: entry.Key, at: entry.At}
		w.effects[entry.Call] = e
		if other, used := w.keys[entry.Key]; used {
			w.complain("the calls %q and %q have the same key", other, entry.Call)
		}
		w.keys[entry.Key] = entry.Call
	}
	if entry.Finished {
		e.finished = append(e.finished, entry.By)
	} else {
		e.begun = append(e.begun, entry.By)
	}
	if len(e.begun) != 1 || len(e.finished) > 1 || e.tool != entry.Tool || e.key != entry.Key {
		w.complain("the effect of call %q (%s) began in %v and finished in %v", entry.Call, entry.Tool, e.begun, e.finished)
	}
}

func (w *world) finished(call string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.effects[call]; e != nil {
		return len(e.finished) == 1
	}
	return w.steps.finished(call)
}

// A dialect is a provider's form of a conversation and of an answer.
type dialect interface {
	// parse reads a request. It fails if the provider would refuse it.
	parse(body []byte) ([]message, error)
	// speak streams an answer.
	speak(s *stream, a answer)
	// thoughts reports whether requests hold what the model thought.
	thoughts() bool
}

// model serves the scripted model in a dialect.
func (w *world) model(d dialect) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the server died while it wrote
		}
		ms, err := d.parse(body)
		var m *mind
		if err == nil {
			m, err = judge(ms, d.thoughts())
		}
		if err == nil {
			err = w.credible(ms)
		}
		if err != nil {
			w.complain("%s was sent what it would refuse: %v\n%s", r.URL.Path, err, body)
			http.Error(rw, `{"error":{"message":"refused","type":"invalid_request_error"}}`, http.StatusBadRequest)
			return
		}
		w.count(ms)
		rw.Header().Set("Content-Type", "text/event-stream")
		s := &stream{w: rw, rc: http.NewResponseController(rw), r: r, pace: w.pace}
		s.pause()
		d.speak(s, m.answer())
	}
}

// overloaded serves a model service that refuses every other call.
func overloaded(serve http.HandlerFunc) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if rand.IntN(2) == 0 {
			http.Error(rw, `{"error":{"message":"The engine is currently overloaded, please try again later","type":"server_error"}}`, http.StatusServiceUnavailable)
			return
		}
		serve(rw, r)
	}
}

// credible checks that what a tool is said to have done was done.
func (w *world) credible(ms []message) error {
	for _, m := range ms {
		for _, r := range m.results {
			if strings.HasPrefix(r.text, "ok ") && (r.text != okText(r.id) || !w.finished(r.id)) {
				return fmt.Errorf("call %s is said to have succeeded with %q; the ledger has it finished: %v", r.id, r.text, w.finished(r.id))
			}
		}
	}
	return nil
}

// okText is what a tool returns.
func okText(call string) string { return "ok " + call }

func (w *world) count(ms []message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests++
	if strings.Contains(ms[len(ms)-1].text, interruptedSignal) {
		w.resumed++
	}
}

type object map[string]any

// A stream is an answer on its way. It is slow, so that a kill finds it open.
type stream struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	r    *http.Request
	pace int
	gone bool
}

// event sends one event, with its name in it if it has one, as far as somebody
// listens.
func (s *stream) event(name string, data object) {
	head := ""
	if name != "" {
		data["type"] = name
		head = "event: " + name + "\n"
	}
	encoded, err := json.Marshal(data)
	if err != nil {
		panic(err) // objects are made of what encodes
	}
	s.write(head + "data: " + string(encoded) + "\n\n")
}

func (s *stream) done() { s.write("data: [DONE]\n\n") }

func (s *stream) write(text string) {
	if s.gone {
		return
	}
	_, err := io.WriteString(s.w, text)
	if err = errors.Join(err, s.rc.Flush()); err != nil {
		s.gone = true
	}
}

// pause lets 1 to 5 ms pass, or as many times that as the pace is.
func (s *stream) pause() {
	if s.gone {
		return
	}
	select {
	case <-time.After(time.Duration(s.pace) * (time.Millisecond + rand.N(4*time.Millisecond))):
	case <-s.r.Context().Done():
		s.gone = true
	}
}

// pieces cuts a text, differently each time. Some time passes after each piece.
func (s *stream) pieces(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for text != "" {
			n := min(len(text), 4+rand.IntN(40))
			if !yield(text[:n]) {
				return
			}
			text = text[n:]
			s.pause()
		}
	}
}
