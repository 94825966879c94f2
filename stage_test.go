package flue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
	"github.com/flue-go/flue/wire"
)

// A stage plays one agent on a scripted model, and lets its process die and
// begin again. What is outside the process stays: the store, what the model was
// asked, what was observed.
//
// Agents on a stage use the model "fake/any" or another of the provider fake.
type stage struct {
	t     testing.TB
	agent *flue.Agent
	limit flue.Limits
	reply func(req *model.Request) script.Turn

	rt    *flue.Runtime
	in    *flue.Instance
	store *memstore.Store
	fault *faultstore.Store // what the running process writes through

	mu       sync.Mutex
	requests []*model.Request
	events   []flue.Event
	notes    []string
}

// newStage opens a runtime with the agent. The model answers with what reply
// makes of each request; it must depend on the request only.
func newStage(t testing.TB, agent *flue.Agent, reply func(req *model.Request) script.Turn) *stage {
	t.Helper()
	return newLimitedStage(t, agent, flue.Limits{}, reply)
}

// newLimitedStage is newStage with limits.
func newLimitedStage(t testing.TB, agent *flue.Agent, limits flue.Limits, reply func(req *model.Request) script.Turn) *stage {
	t.Helper()
	s := &stage{t: t, agent: agent, limit: limits, reply: reply, store: memstore.New()}
	if agent.Name == "" {
		agent.Name = "actor"
	}
	s.open()
	t.Cleanup(s.close)
	return s
}

// open begins a process.
func (s *stage) open() {
	s.t.Helper()
	s.fault = faultstore.New(s.store)
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("FLUE_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	rt, err := flue.Open(engine.WithTap(context.Background(), s.observe), flue.Config{
		Agents: []*flue.Agent{s.agent}, Providers: map[string]model.Provider{"fake": s}, Store: s.fault,
		RetryBase: time.Millisecond, Grace: 100 * time.Millisecond, Log: log,
		CheckpointEvery: 1, Limits: s.limit,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.rt, s.in = rt, rt.Instance(s.agent.Name, "one")
}

// close ends the process in an orderly way.
func (s *stage) close() {
	if s.rt == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.rt.Close(ctx); err != nil {
		s.t.Error(err)
	}
	s.rt = nil
}

// kill ends the process as SIGKILL would: what it has not written yet it never
// writes.
func (s *stage) kill() {
	s.t.Helper()
	s.store = s.store.Reopen()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.rt.Close(ctx); err != nil {
		s.t.Fatal(err)
	}
	s.rt = nil
}

// restart kills the process and begins another.
func (s *stage) restart() {
	s.t.Helper()
	s.kill()
	s.open()
}

// Stream makes the stage its own model.
func (s *stage) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	s.mu.Lock()
	s.requests = append(s.requests, req)
	s.mu.Unlock()
	return script.New(s.reply(req)).Stream(ctx, req)
}

func (s *stage) observe(ev flue.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, ev)
}

// note keeps a remark in order: what a tool or a hook did.
func (s *stage) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// noted returns the remarks so far.
func (s *stage) noted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.notes)
}

// asked returns the model's requests so far.
func (s *stage) asked() []*model.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// observed returns the events of a type so far.
func (s *stage) observed(typ flue.EventType) []flue.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.events), func(ev flue.Event) bool { return ev.Type != typ })
}

// send dispatches a message and returns its submission's id.
func (s *stage) send(m flue.Message, options ...flue.SendOptions) string {
	s.t.Helper()
	r, err := s.in.Dispatch(context.Background(), m, options...)
	if err != nil {
		s.t.Fatal(err)
	}
	return r.Submission
}

// read waits for the reply to a submission.
func (s *stage) read(submission string) (*flue.Reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.in.Read(ctx, submission)
}

// say sends a user message and returns the text of the reply to it.
func (s *stage) say(text string) string {
	s.t.Helper()
	reply, err := s.read(s.send(flue.User(text)))
	if err != nil {
		s.t.Fatal(err)
	}
	return reply.Text
}

// snapshot is the conversation as clients see it.
func (s *stage) snapshot() *wire.Snapshot {
	s.t.Helper()
	snap, err := s.in.Conversation(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	return snap
}

// records is the journal of the instance.
func (s *stage) records() []journal.Record {
	s.t.Helper()
	var out []journal.Record
	for after := int64(-1); ; {
		page, err := s.store.Read(context.Background(), store.Address{Agent: s.agent.Name, ID: "one"}, after, 100)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, b := range page.Batches {
			batch, err := journal.Decode(b.Payload)
			if err != nil {
				s.t.Fatal(err)
			}
			out = append(out, batch.Records...)
			after = b.Offset
		}
		if after >= page.Head {
			return out
		}
	}
}

// signals returns the bodies of the signals of a type that stand in the journal.
func (s *stage) signals(typ string) []string {
	s.t.Helper()
	var out []string
	for _, r := range s.records() {
		if e, ok := r.(*journal.Entry); ok && e.Message.Kind == journal.Signal && e.Message.Type == typ {
			out = append(out, e.Message.Body)
		}
	}
	return out
}

// plain is an agent of the given hooks on the stage's model.
func plain(hooks func(r *flue.Render)) *flue.Agent {
	return &flue.Agent{Name: "actor", Render: func(r *flue.Render) string {
		flue.UseModel(r, "fake/any")
		if hooks != nil {
			hooks(r)
		}
		return "Play your part."
	}}
}

// callThenSay calls the tool with the arguments upon a user message, and says
// what the tool answered.
func callThenSay(tool string, args any) func(req *model.Request) script.Turn {
	return func(req *model.Request) script.Turn {
		if script.Step(req) == 0 {
			return script.Call(tool, args)
		}
		var said []string
		for _, b := range script.LastResults(req) {
			said = append(said, b.Text)
		}
		return script.Say("it said: " + strings.Join(said, " | "))
	}
}

// sayOK answers everything with ok.
func sayOK(*model.Request) script.Turn { return script.Say("ok") }

// signalsIn returns the texts of a request's user messages that are signals of a
// type.
func signalsIn(req *model.Request, typ string) []string {
	var out []string
	for _, m := range req.Messages {
		for _, b := range m.Blocks {
			if m.Role == model.RoleUser && strings.HasPrefix(b.Text, "<") && strings.Contains(b.Text, ` type="`+typ+`"`) {
				out = append(out, b.Text)
			}
		}
	}
	return out
}

func asJSON(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}
