package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store/memstore"
)

// An agent that takes the name of its model from its clients does not fill the
// memory with warnings.
func TestWarningsAreBounded(t *testing.T) {
	w := newWorld()
	w.every = 0
	var log strings.Builder
	w.log = slog.New(slog.NewTextHandler(&log, nil))
	n := 0
	w.render = func(engine.View) (*engine.Plan, error) {
		n++
		return &engine.Plan{Settings: journal.Settings{Model: fmt.Sprintf("test/m%d", n)}}, nil
	}
	w.reply = func(_ context.Context, _ *model.Request, yield func(model.Event, error) bool) { say(yield, "fine") }
	e := w.start(t, memstore.New())
	for range 1200 {
		settled(t, e, chat, send(t, e, chat, "go"))
	}
	stop(t, e)
	if n := strings.Count(log.String(), "the context window of a model is not known"); n != 1000 {
		t.Errorf("%d warnings, want 1000", n)
	}
}
