package engine_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// What a provider cannot be told of a tool is told once, however many turns and
// conversations offer the tool, and again when its schema is another one.
func TestLossesAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.losses = []model.Loss{{Tool: "search", Path: "/anyOf", Text: "gone"}, {Tool: "search", Path: "/not", Text: "gone too"}}
		w.reply = func(_ context.Context, _ *model.Request, yield func(model.Event, error) bool) { say(yield, "Hello.") }
		w.tools = []engine.Tool{{Spec: model.Tool{Name: "search"}}, {Spec: model.Tool{Name: "now"}}}
		e := w.start(t, memstore.New())
		defer stop(t, e)
		other := store.Address{Agent: "chat", ID: "c2"}
		settled(t, e, chat, send(t, e, chat, "one"))
		settled(t, e, chat, send(t, e, chat, "two"))
		settled(t, e, other, send(t, e, other, "three"))

		told := w.told(engine.EventSchemaReduced)
		if len(told) != 1 || told[0].Tool != "search" || told[0].Model != "test/m" || len(told[0].Losses) != 2 || told[0].Instance != chat {
			t.Fatalf("told %+v, want the two losses of search once", told)
		}
		w.tools[0].Spec.Schema = json.RawMessage(`{"type":"object"}`)
		settled(t, e, chat, send(t, e, chat, "four"))
		if n := len(w.told(engine.EventSchemaReduced)); n != 2 {
			t.Errorf("told %d times after the schema changed, want 2", n)
		}
	})
}

// told returns the events of one type.
func (w *world) told(typ engine.EventType) []engine.Event {
	var events []engine.Event
	for _, ev := range w.seen() {
		if ev.Type == typ {
			events = append(events, ev)
		}
	}
	return events
}
