package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/wire"
)

// A world is what is outside the engine: it survives when an engine dies.
type world struct {
	mu      sync.Mutex
	effects []string        // what tools did, in order
	results map[string]bool // calls whose tool function returned
	calls   int             // model calls
	last    *model.Request

	// reply scripts the model; it must be a function of the request.
	reply func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool)
	// tools are offered in every render.
	tools []engine.Tool
	// render, if set, replaces the default one.
	render func(v engine.View) (*engine.Plan, error)
	budget engine.Budget
	events []engine.Event
}

func newWorld() *world {
	return &world{budget: engine.Budget{MaxAttempts: 10, Timeout: time.Hour}, results: map[string]bool{}}
}

func (w *world) effect(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.effects = append(w.effects, fmt.Sprintf(format, args...))
}

func (w *world) count(effect string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, e := range w.effects {
		if e == effect {
			n++
		}
	}
	return n
}

func (w *world) observe(ev engine.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, ev)
}

// Render and Budget make the world its only agent.
func (w *world) Render(_ context.Context, v engine.View) (*engine.Plan, error) {
	if w.render != nil {
		return w.render(v)
	}
	return &engine.Plan{Settings: journal.Settings{Model: "test/m"}, Instructions: "be brief", Tools: w.tools}, nil
}

func (w *world) Budget() engine.Budget { return w.budget }

// Resolve and Stream make it the model, too.
func (w *world) Resolve(spec string) (engine.Model, error) {
	p, id := model.SplitSpecifier(spec)
	if p != "test" {
		return engine.Model{}, fmt.Errorf("no provider %q", p)
	}
	return engine.Model{Provider: w, Origin: model.Origin{Provider: p, Model: id}}, nil
}

func (w *world) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	w.mu.Lock()
	w.calls++
	w.last = req
	w.mu.Unlock()
	return func(yield func(model.Event, error) bool) { w.reply(ctx, req, yield) }
}

// say is an answer of text, one delta a word.
func say(yield func(model.Event, error) bool, text string) bool {
	for _, word := range strings.SplitAfter(text, " ") {
		if !yield(model.Delta{Kind: model.Text, Text: word}, nil) {
			return false
		}
	}
	return yield(model.BlockDone{Block: model.Block{Kind: model.Text, Text: text}}, nil) &&
		yield(model.Done{Stop: model.StopEnd, Usage: model.Usage{Input: 10, Output: 2}}, nil)
}

// call is an answer that asks for tool calls, each "name id args".
func call(yield func(model.Event, error) bool, calls ...string) bool {
	for i, c := range calls {
		f := strings.SplitN(c, " ", 3)
		b := model.Block{Kind: model.ToolCall, Name: f[0], CallID: f[1]}
		if len(f) > 2 {
			b.Arguments = f[2]
		}
		if !yield(model.BlockDone{Index: i, Block: b}, nil) {
			return false
		}
	}
	return yield(model.Done{Stop: model.StopToolUse}, nil)
}

// pause blocks a model for a while, or until its call is cut.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// tool is a tool that notes its effect and returns text.
func (w *world) tool(name string, fn func(ctx context.Context, c *engine.Work) engine.Result) engine.Tool {
	return engine.Tool{
		Spec: model.Tool{Name: name, Description: name, Schema: []byte(`{"type":"object"}`)},
		Run: func(ctx context.Context, c *engine.Work, _ string) engine.Result {
			w.effect("tool:%s", c.ID)
			if fn != nil {
				return fn(ctx, c)
			}
			return engine.Result{Content: "did " + c.ID}
		},
	}
}

var chat = store.Address{Agent: "chat", ID: "c1"}

// start opens an engine on s. The test closes it.
func (w *world) start(t testing.TB, s store.Store) *engine.Engine {
	t.Helper()
	e, err := w.open(s)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (w *world) open(s store.Store) (*engine.Engine, error) {
	return engine.Open(context.Background(), engine.Config{
		Store: s, Programs: map[string]engine.Program{"chat": w}, Models: w, Observe: w.observe,
		Log: testLog(),
	})
}

func stop(t testing.TB, e *engine.Engine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		t.Error(err)
	}
}

// send admits a user message and returns its submission's id.
func send(t testing.TB, e *engine.Engine, addr store.Address, body string) string {
	t.Helper()
	id := engine.NewSubmissionID()
	if _, err := e.Admit(context.Background(), engine.Admission{
		Address: addr, Submission: id, Identity: []byte(body), Origin: "direct",
		Message: journal.Message{Kind: journal.User, Body: body},
	}); err != nil {
		t.Fatalf("admitting %q: %v", body, err)
	}
	return id
}

// settled waits for the submission's settlement.
func settled(t testing.TB, e *engine.Engine, addr store.Address, id string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Hour)
	defer cancel()
	for {
		inst, err := e.Instance(ctx, addr)
		if err != nil {
			t.Fatal(err)
		}
		sub, err := e.Submission(ctx, addr, id)
		if err != nil {
			t.Fatal(err)
		}
		if sub.Outcome != "" {
			return sub.Outcome
		}
		if err := e.Wait(ctx, addr, inst.Head); err != nil {
			t.Fatalf("waiting for %s: %v", id, err)
		}
	}
}

// transcript is the conversation as clients see it, a line a part.
func transcript(t testing.TB, e *engine.Engine, addr store.Address) []string {
	t.Helper()
	snap, err := e.Snapshot(context.Background(), addr)
	if err != nil {
		t.Fatal(err)
	}
	return lines(snap)
}

func lines(snap *wire.Snapshot) []string {
	var out []string
	for _, m := range snap.Messages {
		for _, p := range m.Parts {
			switch p.Type {
			case wire.PartTool:
				s := fmt.Sprintf("%s %s(%s) %s", m.Role, p.ToolName, p.Input, p.State)
				if p.ErrorText != nil {
					s += ": " + *p.ErrorText
				} else {
					s += ": " + string(p.Output)
				}
				out = append(out, s)
			case wire.PartFile:
				out = append(out, fmt.Sprintf("%s file %s", m.Role, p.MediaType))
			default:
				out = append(out, fmt.Sprintf("%s %s %q %s", m.Role, p.Type, *p.Text, p.State))
			}
		}
	}
	for _, s := range snap.Settlements {
		out = append(out, "settled "+s.Outcome)
	}
	return out
}

// records reads an instance's whole journal.
func records(t testing.TB, s store.Store, addr store.Address) []journal.Record {
	t.Helper()
	var out []journal.Record
	for after := int64(-1); ; {
		page, err := s.Read(context.Background(), addr, after, 100)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page.Batches {
			batch, err := journal.Decode(b.Payload)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, batch.Records...)
			after = b.Offset
		}
		if after >= page.Head {
			return out
		}
	}
}

// asked returns the text of the last user message that the model was shown,
// and how many tool results follow it.
func asked(req *model.Request) (text string, results int) {
	for _, m := range req.Messages {
		switch {
		case m.Role == model.RoleUser && m.Blocks[0].Kind == model.Text && !strings.HasPrefix(m.Blocks[0].Text, "<"):
			text, results = m.Blocks[0].Text, 0
		case m.Role == model.RoleTool:
			results++
		}
	}
	return text, results
}

// echo answers with what was asked.
func echo(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
	text, _ := asked(req)
	say(yield, "you said "+text)
}

func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

var _ = memstore.New

// testLog is where engines log in tests: nowhere, unless one is looking into a
// failure.
func testLog() *slog.Logger {
	if os.Getenv("FLUE_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return slog.New(slog.DiscardHandler)
}
