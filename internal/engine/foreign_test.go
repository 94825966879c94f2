package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store/memstore"
)

// panicky panics where the engine asks what is known of a model.
type panicky struct {
	*world
	resolve, losses atomic.Bool
}

func (p *panicky) Resolve(spec string) (engine.Model, error) {
	if p.resolve.Load() {
		panic("a catalog that panics")
	}
	m, err := p.world.Resolve(spec)
	m.Losses = p
	return m, err
}

func (p *panicky) Losses([]model.Tool) []model.Loss {
	if p.losses.Load() {
		panic("a provider that panics")
	}
	return nil
}

// What the program says of models is its own code. If that panics the message
// fails, once, or goes on without, and the next one works.
func TestModelsThatPanic(t *testing.T) {
	for name, set := range map[string]func(*panicky, bool){
		"catalog": func(p *panicky, on bool) { p.resolve.Store(on) },
		"losses":  func(p *panicky, on bool) { p.losses.Store(on) },
	} {
		want := map[string]string{"catalog": "failed", "losses": "completed"}[name]
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &panicky{world: newWorld()}
				p.tools = []engine.Tool{p.tool("work", nil)}
				p.reply = func(_ context.Context, _ *model.Request, yield func(model.Event, error) bool) { say(yield, "fine") }
				e, err := engine.Open(context.Background(), engine.Config{
					Store: memstore.New(), Programs: map[string]engine.Program{"chat": p.world}, Models: p, Observe: p.observe, Log: testLog(),
				})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { stop(t, e) }()
				set(p, true)
				if got := settled(t, e, chat, send(t, e, chat, "go")); got != want {
					t.Errorf("settled %s, want %s", got, want)
				}
				set(p, false)
				if got := settled(t, e, chat, send(t, e, chat, "again")); got != "completed" {
					t.Errorf("the next message settled %s", got)
				}
				synctest.Wait()
				for _, ev := range p.events {
					if ev.Type == engine.EventStalled {
						t.Error(ev.Error)
					}
				}
			})
		})
	}
}
