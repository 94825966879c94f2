package engine_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// An oldStore shows batches of owners as those of a version that its reader does not
// know.
type oldStore struct{ *memstore.Store }

func (s oldStore) Read(ctx context.Context, addr store.Address, after int64, limit int) (store.Page, error) {
	page, err := s.Store.Read(ctx, addr, after, limit)
	for i, b := range page.Batches {
		if b.Epoch > 0 && addr == chat {
			page.Batches[i].Payload = bytes.Replace(b.Payload, []byte(`"v":1`), []byte(`"v":99`), 1)
		}
	}
	return page, err
}

// What a newer version has written to is left to processes of that version by those
// that cannot read it, and goes on there.
func TestNewerVersion(t *testing.T) {
	for _, h := range hearings {
		t.Run(h.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				durable := memstore.New()
				open := func(name string, s store.Store) *node {
					w := newWorld()
					w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
						if pause(ctx, 3*time.Second) {
							echo(ctx, req, yield)
						}
					}
					return w.joinHearing(t, name, s, h.signals)
				}
				old, b, c := open("old", oldStore{durable}), open("b", durable), open("c", durable)
				first := send(t, b.e, chat, "one")
				time.Sleep(time.Second) // simulated
				began := time.Now()
				b.kill(t)
				if got := settled(t, c.e, chat, first); got != journal.Completed {
					t.Errorf("settled %s", got)
				}
				within(t, "the takeover", began, 25*time.Second)
				stop(t, c.e)

				// Nobody is left that could read it. What it is sent is accepted, others are
				// worked on, and somebody who comes goes on with it.
				second := send(t, old.e, chat, "two")
				other := store.Address{Agent: "chat", ID: "other"}
				began = time.Now()
				if got := settled(t, old.e, other, send(t, old.e, other, "hello")); got != journal.Completed {
					t.Errorf("another instance settled %s", got)
				}
				within(t, "another instance", began, 5*time.Second)
				time.Sleep(time.Minute) // simulated
				d := open("d", durable)
				began = time.Now()
				if got := settled(t, d.e, chat, second); got != journal.Completed {
					t.Errorf("settled %s", got)
				}
				within(t, "the answer of who can read it", began, 35*time.Second) // the old one may have taken it once more
				told := 0
				for _, ev := range old.seen() {
					switch ev.Type {
					case engine.EventStalled:
						told++
					case engine.EventDamaged:
						t.Errorf("%s is said to be damaged: %v", ev.Instance, ev.Error)
					}
				}
				if told != 1 || old.asked() != 1 {
					t.Errorf("the old process has told of it %d times, and made %d model calls", told, old.asked())
				}
				stop(t, old.e)
				stop(t, d.e)
			})
		})
	}
}
