package engine_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"slices"
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
	// fallbacks are the models of the default render beside test/m, compaction
	// its settings, and infos what is known of models.
	fallbacks  []string
	compaction *journal.Compaction
	infos      map[string]model.Info
	// limits bound what a response of the default render may use.
	limits *journal.Budget
	// render, if set, replaces the default one.
	render func(v engine.View) (*engine.Plan, error)
	budget engine.Budget
	info   model.Info
	events []engine.Event
	losses []model.Loss
	every  int           // see engine.Config.CheckpointEvery
	cache  int           // see engine.Config.CacheBytes
	merge  time.Duration // see engine.Config.MergeAfter
	log    *slog.Logger

	only []store.Address // see engine.Config.Only

	concurrent, backlog int // see engine.Config.Concurrent and Backlog
	memory              func() uint64
	memoryLimit         int64
	node                string
	watch               func(engine.Event) // called for each event, on the goroutine that does the work
	clock               func() time.Time   // of the process; nil for the usual one
}

// newWorld returns a world whose engines keep a checkpoint of every append, so
// that whoever comes next reads that.
func newWorld() *world {
	return &world{every: 1, budget: engine.Budget{MaxAttempts: 10, Timeout: time.Hour}, results: map[string]bool{}}
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

// did returns the effects so far.
func (w *world) did() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.effects)
}

// asked returns how many model calls there were so far.
func (w *world) asked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls
}

// seen returns the events that were told so far.
func (w *world) seen() []engine.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

func (w *world) observe(ev engine.Event) {
	w.mu.Lock()
	w.events = append(w.events, ev)
	w.mu.Unlock()
	if w.watch != nil {
		w.watch(ev)
	}
}

// Render and Budget make the world its only agent.
func (w *world) Render(_ context.Context, v engine.View) (*engine.Plan, error) {
	if w.render != nil {
		return w.render(v)
	}
	return &engine.Plan{Settings: journal.Settings{Model: "test/m", Fallbacks: w.fallbacks, Compaction: w.compaction, Budget: w.limits}, Instructions: "be brief", Tools: w.tools}, nil
}

func (w *world) Budget() engine.Budget { return w.budget }

// Resolve and Stream make it the model, too.
func (w *world) Resolve(spec string) (engine.Model, error) {
	p, id := model.SplitSpecifier(spec)
	if p != "test" {
		return engine.Model{}, fmt.Errorf("no provider %q", p)
	}
	info, ok := w.infos[id]
	if !ok {
		info = w.info
	}
	return engine.Model{Provider: w, Losses: w, Origin: model.Origin{Provider: p, Model: id}, Info: info}, nil
}

func (w *world) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	w.mu.Lock()
	w.calls++
	w.last = req
	w.mu.Unlock()
	return func(yield func(model.Event, error) bool) { w.reply(ctx, req, yield) }
}

func (w *world) Losses([]model.Tool) []model.Loss { return w.losses }

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
		Log: cmp.Or(w.log, testLog()), CheckpointEvery: w.every, CacheBytes: w.cache, MergeAfter: w.merge,
		Concurrent: w.concurrent, Backlog: w.backlog, Memory: w.memory, MemoryLimit: w.memoryLimit, Node: w.node, Only: w.only,
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
		Address: addr, Submission: id, Identity: []byte(body[:min(len(body), 100)]), Origin: "direct",
		Message: journal.Message{Kind: journal.User, Body: body},
	}); err != nil {
		t.Fatalf("admitting %.100q: %v", body, err)
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
	return slices.Concat(batches(t, s, addr)...)
}

// batches reads an instance's whole journal, batch by batch.
func batches(t testing.TB, s store.Store, addr store.Address) (out [][]journal.Record) {
	t.Helper()
	for b, err := range store.Batches(context.Background(), s, addr, -1) {
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, batch.Records)
	}
	return out
}

// asked returns the text of the last user message that the model was shown,
// and how many tool results follow it.
func asked(req *model.Request) (text string, results int) {
	for _, m := range req.Messages {
		switch {
		case m.Role == model.RoleUser && m.Blocks[0].Kind == model.Text && !strings.HasPrefix(m.Blocks[0].Text, "<") && !strings.HasPrefix(m.Blocks[0].Text, "[Older messages"):
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
