package engine_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store/memstore"
)

// streams makes the model of a world answer with events, and a while after each.
func (w *world) streams(events ...model.Event) {
	w.reply = func(ctx context.Context, _ *model.Request, yield func(model.Event, error) bool) {
		for _, ev := range events {
			if !yield(ev, nil) || !pause(ctx, 2*time.Second) {
				return
			}
		}
		yield(model.Done{Stop: model.StopEnd}, nil)
	}
}

func text(i int, s string) model.Event { return model.Delta{Index: i, Kind: model.Text, Text: s} }

// A provider, or what is put around one, that breaks the rules of a stream fails
// the turn with a word about it. It does not unsettle the driver, which would call
// it again and again.
func TestStreamThatBreaksTheRules(t *testing.T) {
	for name, tt := range map[string]struct {
		events []model.Event
		want   string
	}{
		"a block changes its kind": {[]model.Event{text(0, "one"), model.Delta{Kind: model.Reasoning, Text: "two"}}, "sent block 0 as text and as reasoning"},
		"a block ends as another kind": {[]model.Event{
			text(0, "one"), model.BlockDone{Block: model.Block{Kind: model.ToolCall, CallID: "c", Name: "work"}},
		}, "sent block 0 as text and as tool_call"},
		"a block grows after its end": {[]model.Event{
			text(0, "one"), model.BlockDone{Block: model.Block{Kind: model.Text, Text: "one"}}, text(0, "two"),
		}, "went on with block 0 after its end"},
		"a negative block": {[]model.Event{text(-1, "one")}, "sent block -1"},
		"a block too many": {[]model.Event{text(1<<40, "one")}, "which may have 4096"},
		"an unknown kind":  {[]model.Event{model.BlockDone{Block: model.Block{Kind: "video", Text: "one"}}}, `of the kind "video"`},
		"a result":         {[]model.Event{model.BlockDone{Block: model.Block{Kind: model.ToolResult, CallID: "x", Text: "one"}}}, `of the kind "tool_result"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.streams(tt.events...)
				e := w.start(t, memstore.New())
				defer func() { stop(t, e) }()
				id := send(t, e, chat, "go")
				if got := settled(t, e, chat, id); got != "failed" || w.calls != 1 {
					t.Errorf("settled %s after %d calls", got, w.calls)
				}
				synctest.Wait()
				told := ""
				for _, ev := range w.seen() {
					if ev.Type == engine.EventTurnDone && ev.Error != nil {
						told = ev.Error.Error()
					}
				}
				if !strings.Contains(told, tt.want) {
					t.Errorf("the turn failed with %q, want %q in it", told, tt.want)
				}
				w.reply = func(_ context.Context, _ *model.Request, yield func(model.Event, error) bool) { say(yield, "fine") }
				if got := settled(t, e, chat, send(t, e, chat, "again")); got != "completed" {
					t.Errorf("the next message settled %s", got)
				}
			})
		})
	}
}

// The pieces of several blocks may take turns, whatever was appended in between.
func TestBlocksThatTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.streams(
			model.Delta{Kind: model.Reasoning, Text: "a "}, text(1, "one "), model.Delta{Kind: model.Reasoning, Text: "b"}, text(1, "two"),
			model.BlockDone{Block: model.Block{Kind: model.Reasoning, Text: "a b"}}, model.BlockDone{Index: 1, Block: model.Block{Kind: model.Text, Text: "one two"}},
		)
		e := w.start(t, memstore.New())
		defer func() { stop(t, e) }()
		live := follow(t, e)
		if got := settled(t, e, chat, send(t, e, chat, "go")); got != "completed" || w.calls != 1 {
			t.Fatalf("settled %s after %d calls", got, w.calls)
		}
		_, ever := live()
		if !strings.Contains(ever, "one two") || !strings.Contains(ever, "a ") || !strings.Contains(ever, "b") {
			t.Errorf("a reader was told %q", ever)
		}
		w.reply = func(_ context.Context, _ *model.Request, yield func(model.Event, error) bool) { say(yield, "fine") }
		settled(t, e, chat, send(t, e, chat, "again"))
		if b := w.last.Messages[1].Blocks; len(b) != 2 || b[0].Text != "a b" || b[1].Text != "one two" {
			t.Errorf("the model is shown %+v", b)
		}
	})
}
