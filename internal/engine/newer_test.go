package engine_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
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
// know: what is old in them as if it was new.
type oldStore struct {
	*memstore.Store
	known, unknown string
}

// What a version may be of.
var versioned = map[string]oldStore{
	"batches": {known: `{"v":1,`, unknown: `{"v":99,`},
	"records": {known: `{"k":"attempt","d":`, unknown: `{"k":"attempt","v":99,"d":`},
}

func (s oldStore) Read(ctx context.Context, addr store.Address, after int64, limit int) (store.Page, error) {
	page, err := s.Store.Read(ctx, addr, after, limit)
	for i, b := range page.Batches {
		if b.Epoch > 0 && addr == chat {
			page.Batches[i].Payload = bytes.Replace(b.Payload, []byte(s.known), []byte(s.unknown), 1)
		}
	}
	return page, err
}

// What a newer version has written to is left to processes of that version by those
// that cannot read it, and goes on there.
func TestNewerVersion(t *testing.T) {
	for what, as := range versioned {
		for _, h := range hearings {
			t.Run(what+"/"+h.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { leaveToNewer(t, as, h) })
			})
		}
	}
}

func leaveToNewer(t *testing.T, as oldStore, h hearing) {
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
	as.Store = durable
	old, b, c := open("old", as), open("b", durable), open("c", durable)
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
	refusesToShow(t, old.e)
	time.Sleep(time.Minute) // simulated
	d := open("d", durable)
	began = time.Now()
	if got := settled(t, d.e, chat, second); got != journal.Completed {
		t.Errorf("settled %s", got)
	}
	within(t, "the answer of who can read it", began, 35*time.Second) // the old one may have taken it once more
	if told := toldOfNewer(t, old); told != 1 || old.asked() != 1 {
		t.Errorf("the old process has told of it %d times, and made %d model calls", told, old.asked())
	}
	stop(t, old.e)
	stop(t, d.e)
}

// toldOfNewer returns how often the process has told of an instance that it leaves to
// others. None may be damaged.
func toldOfNewer(t *testing.T, n *node) (told int) {
	t.Helper()
	for _, ev := range n.seen() {
		switch ev.Type {
		case engine.EventStalled:
			told++
		case engine.EventDamaged:
			t.Errorf("%s is said to be damaged: %v", ev.Instance, ev.Error)
		}
	}
	return told
}

// refusesToShow checks that the engine shows nothing rather than what it has not
// understood.
func refusesToShow(t *testing.T, e *engine.Engine) {
	t.Helper()
	var format *journal.FormatError
	if _, err := e.Snapshot(t.Context(), chat); !errors.As(err, &format) || !format.Newer {
		t.Errorf("a snapshot of what a newer version has written: %v", err)
	}
	for after := int64(-1); ; {
		u, err := e.Updates(t.Context(), chat, after, 1)
		if errors.As(err, &format) && format.Newer {
			return
		}
		if err != nil || u.UpToDate {
			t.Errorf("updates of what a newer version has written: %+v, %v", u, err)
			return
		}
		after = u.Next
	}
}

// What this version writes with a version of its own is nothing that a program which
// does not know it takes for damage.
func TestNewerRecords(t *testing.T) {
	for _, sc := range scenarios() {
		switch sc.name {
		case "mute last turn", "answer cut by the tokens", "call in a filtered answer", "refused images":
		default:
			continue
		}
		t.Run(sc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				durable := memstore.New()
				open := func(name string, s store.Store) *node {
					w := newWorld()
					w.every = -1 // an older program cannot read the checkpoints either
					sc.script(w)
					return w.joinHearing(t, name, s, hearings[0].signals)
				}
				c := open("c", durable)
				acked, abortSent := make(map[int]bool), false
				sc.live(t, c.e, c.fs, time.Now(), acked, &abortSent)
				stop(t, c.e)

				old := open("old", oldStore{durable, `"v":2,"d":`, `"v":99,"d":`})
				next := send(t, old.e, chat, "and now")
				time.Sleep(time.Minute) // simulated
				refusesToShow(t, old.e)
				d := open("d", durable)
				if got := settled(t, d.e, chat, next); got != journal.Completed {
					t.Errorf("settled %s", got)
				}
				if told := toldOfNewer(t, old); told != 1 || old.asked() != 0 {
					t.Errorf("the old process has told of it %d times, and made %d model calls", told, old.asked())
				}
				stop(t, old.e)
				stop(t, d.e)
			})
		})
	}
}

// A hungStore does not answer when an instance is given back, once it is told to: not
// before the caller's context ends.
type hungStore struct {
	oldStore
	hang chan chan struct{} // holds what is closed when it does not answer
}

func (s *hungStore) Release(ctx context.Context, leases ...store.Lease) error {
	if slices.ContainsFunc(leases, func(l store.Lease) bool { return l.Address == chat }) {
		select {
		case hung := <-s.hang:
			close(hung)
			<-ctx.Done()
			return ctx.Err()
		default:
		}
	}
	return s.oldStore.Release(ctx, leases...)
}

// A process that waits for the store to take back what a newer version has written to
// does so no longer than it looks for work. It gives it back all the same when it begins
// to end, whatever it still works on.
func TestStopWhileGivingToNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		durable := memstore.New()
		as := versioned["records"]
		as.Store = durable
		hung := &hungStore{as, make(chan chan struct{}, 1)}
		open := func(name string, s store.Store) *node {
			w := newWorld()
			w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
				if text, _ := asked(req); text == "long" {
					pause(ctx, 5*time.Second)
				}
				echo(ctx, req, yield)
			}
			return w.joinHearing(t, name, s, hearings[0].signals)
		}
		a := open("a", durable)
		settled(t, a.e, chat, send(t, a.e, chat, "one"))
		stop(t, a.e)
		old := open("old", hung)
		next := send(t, old.e, chat, "two")
		for toldOfNewer(t, old) == 0 { // it has given it back for the first time
			time.Sleep(time.Millisecond) // simulated
		}
		synctest.Wait()
		waits := make(chan struct{})
		hung.hang <- waits
		<-waits
		send(t, old.e, conversation("busy"), "long")
		synctest.Wait()
		began := time.Now()
		old.e.Stop()
		synctest.Wait()
		b := open("b", durable)
		defer stop(t, b.e)
		if got := settled(t, b.e, chat, next); got != journal.Completed {
			t.Errorf("settled %s", got)
		}
		within(t, "the answer of who can read it", began, time.Second)
		stop(t, old.e)
		within(t, "closing", began, 6*time.Second)
	})
}
