package engine_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/wire"
)

// What a model said in a call that failed is taken back when the call is made
// again: readers that watched, readers that come later and those who ask for the
// conversation see the answer once, and what came before it as it was.
func TestRetractedTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.tools = []engine.Tool{w.tool("work", nil)}
		failed := 0
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			_, results := asked(req)
			if results == 0 {
				yield(model.Delta{Kind: model.Text, Text: "First I work."}, nil)
				yield(model.BlockDone{Index: 0, Block: model.Block{Kind: model.Text, Text: "First I work."}}, nil)
				yield(model.BlockDone{Index: 1, Block: model.Block{Kind: model.ToolCall, Name: "work", CallID: "c1"}}, nil)
				yield(model.Done{Stop: model.StopToolUse}, nil)
				return
			}
			if failed++; failed <= 2 {
				yield(model.Delta{Kind: model.Reasoning, Text: "Let me think."}, nil)
				yield(model.Delta{Index: 1, Kind: model.Text, Text: "The answer is"}, nil)
				pause(ctx, 3*time.Second)
				yield(nil, &model.Error{Class: model.Retryable, Message: "cut"})
				return
			}
			say(yield, "The answer is 42.")
		}
		s := memstore.New()
		e := w.start(t, s)
		defer func() { stop(t, e) }()

		live := follow(t, e)
		if got := settled(t, e, chat, send(t, e, chat, "go")); got != "completed" {
			t.Fatalf("settled %s", got)
		}
		want := []string{
			`user text "go" done`, `assistant text "First I work." done`, `assistant work({}) output-available: "did c1"`,
			`assistant text "The answer is 42." done`, "settled completed",
		}
		seen, most := live()
		if !strings.Contains(most, "The answer is") {
			t.Error("the reader that watched never saw the answer that was taken back")
		}
		later, _ := follow(t, e)()
		for who, got := range map[string][]string{"a reader that watched": seen, "one that came later": later, "the conversation": transcript(t, e, chat)} {
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("%s has\n%s\nwant\n%s", who, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}

		// Another process reads the same from the journal.
		stop(t, e)
		e = w.start(t, s.Reopen())
		if got, _ := follow(t, e)(); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("the next process tells\n%s", strings.Join(got, "\n"))
		}
	})
}

// follow reads the conversation as a client does, from its start, until the
// returned function is called. That returns what the client has in the end, and
// all the text that it ever saw.
func follow(t *testing.T, e *engine.Engine) func() (has []string, ever string) {
	t.Helper()
	f := newWatcher(t, e, chat)
	return func() ([]string, string) {
		f.stop()
		return f.rest(), f.ever.String()
	}
}

// A watcher reads a conversation as a client does that follows it live.
type watcher struct {
	t      *testing.T
	e      *engine.Engine
	addr   store.Address
	cancel context.CancelFunc
	done   chan struct{}

	conversation wire.Conversation
	ever         strings.Builder // all the text that it saw
	after        int64
	begun        bool
}

// newWatcher follows a conversation from its start.
func newWatcher(t *testing.T, e *engine.Engine, addr store.Address) *watcher {
	ctx, cancel := context.WithCancel(t.Context())
	f := &watcher{t: t, e: e, addr: addr, cancel: cancel, done: make(chan struct{}), after: int64(wire.Start)}
	go func() {
		defer close(f.done)
		for ctx.Err() == nil {
			if !f.read(ctx) || e.Wait(ctx, addr, f.after) != nil {
				pauseFor(ctx, 10*time.Millisecond)
			}
		}
	}()
	return f
}

func (f *watcher) read(ctx context.Context) bool {
	read := f.e.Updates
	if f.begun {
		read = f.e.More
	}
	u, err := read(ctx, f.addr, f.after, 100)
	if err != nil {
		return false
	}
	f.begun = true
	var chunks []wire.Chunk
	if err := json.Unmarshal([]byte("["+string(u.Chunks)+"]"), &chunks); err != nil {
		f.t.Error(err)
	}
	for _, c := range chunks {
		if c.Type == wire.ChunkRetracted {
			f.t.Error("a chunk was sent that clients do not know")
		}
		if err := f.conversation.Apply(&c); err != nil {
			f.t.Error(err)
		}
		f.ever.WriteString(c.Delta)
	}
	f.after = u.Next
	return true
}

// stop ends the reading once nothing moves any more, and returns what it has
// then. It does not look again: what it was not told of is missing.
func (f *watcher) stop() []string {
	synctest.Wait()
	f.cancel()
	<-f.done
	return f.has()
}

func (f *watcher) has() []string {
	return lines(&wire.Snapshot{Messages: f.conversation.Messages, Settlements: f.conversation.Settlements})
}

// rest reads what there is after the end of the reading, and returns all.
func (f *watcher) rest() []string {
	for before := int64(-2); f.after != before; {
		before, f.begun = f.after, false
		f.read(context.Background())
	}
	return f.has()
}

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
