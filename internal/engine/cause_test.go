package engine_test

import (
	"context"
	"testing"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// Whatever an agent's code does, what led to it is durable by then: a process
// that dies in the middle knows when it comes back that it was there.
func TestEffectsComeAfterTheirCause(t *testing.T) {
	w := newWorld()
	s := memstore.New()
	has := func(what string, is func(journal.Record) bool) {
		t.Helper()
		for _, r := range records(t, s, chat) {
			if is(r) {
				return
			}
		}
		t.Errorf("%s runs, and what led to it is not in the journal", what)
	}
	attempted := func(r journal.Record) bool { _, ok := r.(*journal.Attempt); return ok }
	turn := func(stop journal.Stop) func(journal.Record) bool {
		return func(r journal.Record) bool { d, ok := r.(*journal.TurnDone); return ok && d.Stop == stop }
	}
	hook := func(name string, is func(journal.Record) bool) []engine.Hook {
		return []engine.Hook{{Name: name, Run: func(context.Context, *engine.Work) error { has(name, is); return nil }}}
	}
	w.tools = []engine.Tool{w.tool("work", func(context.Context, *engine.Work) engine.Result {
		has("a call", turn(journal.StopToolUse))
		return engine.Result{Content: "ok"}
	})}
	w.render = func(engine.View) (*engine.Plan, error) {
		return &engine.Plan{
			Settings: journal.Settings{Model: "test/m"}, Tools: w.tools,
			ResponseStart: hook("a response start hook", attempted), Start: hook("a start hook", attempted),
			Finish: hook("a finish hook", turn(journal.StopEnd)), ResponseFinish: hook("a response finish hook", turn(journal.StopEnd)),
		}, nil
	}
	w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
		if _, results := asked(req); results == 0 {
			call(yield, "work a", "work b")
			return
		}
		say(yield, "done")
	}
	e := w.start(t, s)
	defer stop(t, e)
	if got := settled(t, e, chat, send(t, e, chat, "go")); got != "completed" {
		t.Errorf("settled %s", got)
	}
}

// Readers see nothing before it is durable: at the moment of each write they see
// the journal as it is without it.
func TestReadersSeeWhatIsDurable(t *testing.T) {
	w := newWorld()
	script(w)
	durable := memstore.New()
	fs := faultstore.New(durable)
	e := w.start(t, fs)
	defer stop(t, e)
	looked := 0
	fs.SetHook(func(ctx context.Context, p faultstore.Point) error {
		if p.Done || p.Op != faultstore.Append {
			return nil
		}
		inst, err := durable.Instance(ctx, p.Address)
		if err != nil {
			t.Error(err)
			return nil
		}
		u, err := e.Updates(ctx, p.Address, -1, 1000)
		if err != nil {
			t.Error(err)
			return nil
		}
		if looked++; u.Next > inst.Head {
			t.Errorf("readers see offset %d while the journal ends at %d", u.Next, inst.Head)
		}
		return nil
	})
	if got := settled(t, e, chat, send(t, e, chat, "finish")); got != "completed" || looked < 2 {
		t.Errorf("settled %s after %d looks", got, looked)
	}
}
