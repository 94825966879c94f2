package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// admission is a message that may be sent again under the same id.
func admission(addr store.Address, id, body string) engine.Admission {
	return engine.Admission{
		Address: addr, Submission: id, Identity: []byte(body), Origin: "direct",
		Message: journal.Message{Kind: journal.User, Body: body}, Repeatable: true,
	}
}

// overloads are the events that say that messages are refused, and accepted again.
func overloads(w *world) (out []string) {
	for _, ev := range w.seen() {
		switch ev.Type {
		case engine.EventOverloaded:
			out = append(out, ev.Reason)
		case engine.EventRelieved:
			out = append(out, "relieved")
		}
	}
	return out
}

// While too many conversations wait, a new message is refused before anything is
// stored. What was accepted before gets its receipt, and what belongs to work under
// way is accepted.
func TestBacklog(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		w := newWorld()
		w.concurrent, w.backlog = 1, 10
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			text, _ := asked(req)
			if text == "first" {
				pause(ctx, 10*time.Second)
			}
			say(yield, "yes")
		}
		e := w.start(t, s)
		defer stop(t, e)
		send(t, e, conversation("first"), "first")
		synctest.Wait()
		for i := range 10 {
			if _, err := e.Admit(t.Context(), admission(conversation("c%d", i), fmt.Sprint("s", i), "hello")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second) // what waits in the store is counted
		late := admission(conversation("late"), "late", "hello")
		for range 3 {
			_, err := e.Admit(t.Context(), late)
			var over *engine.OverloadError
			if !errors.As(err, &over) || over.Reason != engine.OverBacklog || over.RetryAfter < time.Second || over.RetryAfter > 30*time.Second {
				t.Fatalf("%v", err)
			}
		}
		if _, err := s.Instance(t.Context(), late.Address); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("something was stored: %v", err)
		}
		if h := e.Health(); h.Overloaded != engine.OverBacklog || h.Working != 1 || h.Waiting != 10 {
			t.Errorf("%+v", h)
		}
		// A message to a conversation that is there is refused as well, unless it was
		// accepted before.
		before, err := s.Instance(t.Context(), conversation("c3"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Admit(t.Context(), admission(conversation("c3"), "another", "hello")); err == nil {
			t.Error("another message was accepted")
		}
		r, err := e.Admit(t.Context(), admission(conversation("c3"), "s3", "hello"))
		if err != nil || !r.Duplicate || r.Submission != "s3" || r.UID != before.UID {
			t.Errorf("%+v, %v", r, err)
		}
		if _, err := e.Admit(t.Context(), admission(conversation("c3"), "s3", "something else")); !errors.Is(err, store.ErrConflict) {
			t.Errorf("%v", err)
		}
		if now, err := s.Instance(t.Context(), conversation("c3")); err != nil || now.Head != before.Head {
			t.Errorf("%+v, was %+v, %v", now, before, err)
		}
		within := admission(conversation("within"), "within", "hello")
		within.Within = true
		if _, err := e.Admit(t.Context(), within); err != nil {
			t.Errorf("a message of work under way: %v", err)
		}
		if ok, err := e.Abort(t.Context(), conversation("c9")); !ok || err != nil {
			t.Errorf("an abort: %v, %v", ok, err)
		}
		if got := overloads(w); !slices.Equal(got, []string{"backlog"}) {
			t.Errorf("%q", got)
		}
		time.Sleep(20 * time.Second)
		if got := overloads(w); !slices.Equal(got, []string{"backlog", "relieved"}) {
			t.Errorf("%q", got)
		}
		if _, err := e.Admit(t.Context(), late); err != nil {
			t.Error(err)
		}
		if got := settled(t, e, late.Address, late.Submission); got != journal.Completed {
			t.Error(got)
		}
		for i := range 9 {
			if got := settled(t, e, conversation("c%d", i), fmt.Sprint("s", i)); got != journal.Completed {
				t.Errorf("%d: %s", i, got)
			}
		}
	})
}

// A process that uses too much memory refuses messages, and works on no more
// conversations than it does. What it has accepted comes to its end.
func TestMemoryLimit(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		w := newWorld()
		var used atomic.Uint64
		w.concurrent, w.memory, w.memoryLimit = 10, used.Load, 1000
		at, most := 0, 0
		w.reply = func(ctx context.Context, _ *model.Request, yield func(model.Event, error) bool) {
			w.mu.Lock()
			at++
			most = max(most, at)
			w.mu.Unlock()
			pause(ctx, 10*time.Second)
			w.mu.Lock()
			at--
			w.mu.Unlock()
			say(yield, "yes")
		}
		e := w.start(t, s)
		defer stop(t, e)
		used.Store(1000)
		time.Sleep(2 * time.Second)
		ids := map[store.Address]string{}
		for i := range 2 {
			addr := conversation("c%d", i)
			ids[addr] = send(t, e, addr, "hello")
		}
		synctest.Wait()
		used.Store(1001)
		time.Sleep(2 * time.Second)
		var over *engine.OverloadError
		if _, err := e.Admit(t.Context(), admission(conversation("late"), "late", "hello")); !errors.As(err, &over) || over.Reason != engine.OverMemory {
			t.Fatalf("%v", err)
		}
		for i := range 6 { // they belong to work under way
			a := admission(conversation("w%d", i), fmt.Sprint("w", i), "hello")
			a.Within = true
			if _, err := e.Admit(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			ids[a.Address] = a.Submission
		}
		time.Sleep(55 * time.Second)
		w.mu.Lock()
		peak := most
		w.mu.Unlock()
		if peak != 2 {
			t.Errorf("%d conversations were worked on at the same time", peak)
		}
		// A little less is not enough, or it would be left and reached all the time.
		used.Store(960)
		time.Sleep(2 * time.Second)
		if h := e.Health(); h.Overloaded != engine.OverMemory {
			t.Errorf("%+v", h)
		}
		used.Store(900)
		time.Sleep(2 * time.Second)
		ids[conversation("late")] = send(t, e, conversation("late"), "hello")
		for addr, id := range ids {
			if got := settled(t, e, addr, id); got != journal.Completed {
				t.Errorf("%s: %s", addr, got)
			}
		}
		if got := overloads(w); !slices.Equal(got, []string{"memory", "relieved"}) {
			t.Errorf("%q", got)
		}
	})
}

// However much memory is in use, one conversation is worked on: it may be what is in
// use, and nothing else would ever free it.
func TestMemoryLimitDoesNotStop(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		w := newWorld()
		w.reply = echo
		w.memory, w.memoryLimit = func() uint64 { return 2 }, 1
		first := w.start(t, s)
		var ids []string
		for i := range 5 {
			ids = append(ids, send(t, first, conversation("c%d", i), "hello"))
		}
		for i, id := range ids {
			if got := settled(t, first, conversation("c%d", i), id); got != journal.Completed {
				t.Errorf("%d: %s", i, got)
			}
		}
		stop(t, first)
	})
}

// A limit that is left to itself is none.
func TestNoLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(), memstore.New()
		w.every, w.concurrent, w.backlog, w.memoryLimit, w.memory = -1, -1, -1, -1, func() uint64 { return 1 << 60 }
		release := make(chan struct{})
		w.reply = func(_ context.Context, _ *model.Request, yield func(model.Event, error) bool) {
			<-release
			say(yield, "yes")
		}
		e := w.start(t, s)
		defer stop(t, e)
		ids := make([]string, 1100)
		for i := range ids {
			ids[i] = send(t, e, conversation("c%d", i), "hello")
		}
		synctest.Wait()
		if h := e.Health(); h.Working != len(ids) || h.Overloaded != "" {
			t.Errorf("%+v", h)
		}
		close(release)
		for i, id := range ids {
			settled(t, e, conversation("c%d", i), id)
		}
	})
}
