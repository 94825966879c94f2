package engine_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store/memstore"
)

// die ends an engine as a crash does, and returns what is left in the store.
func die(t *testing.T, e *engine.Engine, s *memstore.Store) *memstore.Store {
	t.Helper()
	s = s.Reopen()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Close(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// attempts returns the ordinals of a journal's attempts.
func attempts(t *testing.T, s *memstore.Store) int {
	t.Helper()
	n := 0
	for _, r := range records(t, s, chat) {
		if _, ok := r.(*journal.Attempt); ok {
			n++
		}
	}
	return n
}

// A message that kills its process before anything is achieved gets its
// attempts, each later than the one before, and no more. The next message works.
func TestFruitlessAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.budget.MaxAttempts = 5
		asks := make(chan struct{}, 100)
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if text, _ := asked(req); text != "poison" {
				echo(ctx, req, yield)
				return
			}
			asks <- struct{}{}
			<-ctx.Done()
		}
		s := memstore.New()
		e := w.start(t, s)
		id := send(t, e, chat, "poison")
		var waits []time.Duration
		for range 5 {
			began := time.Now()
			<-asks
			waits = append(waits, time.Since(began))
			synctest.Wait() // the attempt is durable
			s = die(t, e, s)
			e = w.start(t, s)
		}
		defer stop(t, e)
		if got := settled(t, e, chat, id); got != "failed" {
			t.Errorf("settled %s", got)
		}
		if got := attempts(t, s); got != 5 {
			t.Errorf("%d attempts, want 5", got)
		}
		if waits[0] != 0 || waits[1] != 0 {
			t.Errorf("the first two attempts waited: %v", waits)
		}
		for i, least := range []time.Duration{375 * time.Millisecond, 750 * time.Millisecond, 1500 * time.Millisecond} {
			if got := waits[i+2]; got < least || got > 2*least {
				t.Errorf("attempt %d waited %v, want %v to %v", i+3, got, least, 2*least)
			}
		}
		if got := settled(t, e, chat, send(t, e, chat, "hello")); got != "completed" {
			t.Errorf("the next message settled %s", got)
		}
	})
}

// A wait counts from the attempt before it, not from the beginning of a life: also
// where no life is as long as a wait, the next attempt is made in time.
func TestAttemptsOfShortLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.budget.MaxAttempts = 7
		w.reply = func(ctx context.Context, _ *model.Request, _ func(model.Event, error) bool) { <-ctx.Done() }
		s := memstore.New()
		e := w.start(t, s)
		send(t, e, chat, "poison")
		began := time.Now()
		for attempts(t, s) < 7 && time.Since(began) < time.Hour {
			time.Sleep(100 * time.Millisecond) // simulated
			synctest.Wait()
			s = die(t, e, s)
			e = w.start(t, s)
		}
		defer stop(t, e)
		// The waits before the third to the seventh are 0.5, 1, 2, 4 and 8 s at most.
		if took := time.Since(began); took < 8*time.Second || took > 18*time.Second {
			t.Errorf("%d attempts took %v", attempts(t, s), took)
		}
	})
}

// Work that is interrupted again and again and comes further each time is not
// given up: only attempts in a row that achieve nothing count.
func TestFruitfulAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.budget.MaxAttempts = 2
		w.tools = []engine.Tool{w.tool("work", nil)}
		turns := make(chan int, 100)
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			_, results := asked(req)
			if results == 12 {
				say(yield, "done")
				return
			}
			if results > 0 && !strings.Contains(w.slow(results), "again") {
				turns <- results
				<-ctx.Done() // the first time at each turn
				return
			}
			call(yield, "work w"+string(rune('a'+results)))
		}
		s := memstore.New()
		e := w.start(t, s)
		id := send(t, e, chat, "go")
		for range 11 {
			<-turns
			synctest.Wait()
			s = die(t, e, s)
			e = w.start(t, s)
		}
		defer stop(t, e)
		if got := settled(t, e, chat, id); got != "completed" {
			t.Errorf("settled %s after %d attempts", got, attempts(t, s))
		}
		if got := attempts(t, s); got != 12 {
			t.Errorf("%d attempts, want 12", got)
		}
	})
}

// slow says "again" from the second time on that it is asked for a turn.
func (w *world) slow(turn int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := "turn " + string(rune('a'+turn))
	for _, e := range w.effects {
		if e == name {
			return "again"
		}
	}
	w.effects = append(w.effects, name)
	return "first"
}

// An abort ends the wait before the next attempt, and so does the deadline.
func TestHoldEnds(t *testing.T) {
	for _, how := range []string{"abort", "deadline"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.budget.Timeout = 5 * time.Second // within the fifth wait
				if how == "abort" {
					w.budget.Timeout = time.Hour
				}
				asks := make(chan struct{}, 100)
				w.reply = func(ctx context.Context, _ *model.Request, _ func(model.Event, error) bool) {
					asks <- struct{}{}
					<-ctx.Done()
				}
				s := memstore.New()
				e := w.start(t, s)
				id := send(t, e, chat, "poison")
				began := time.Now()
				for range 5 {
					<-asks
					synctest.Wait()
					s = die(t, e, s)
					e = w.start(t, s)
				}
				defer stop(t, e)
				if how == "abort" {
					began = time.Now()
					if _, err := e.Abort(t.Context(), chat); err != nil {
						t.Fatal(err)
					}
				}
				outcome := settled(t, e, chat, id)
				took := time.Since(began)
				if how == "abort" && (outcome != "aborted" || took > time.Second) ||
					how == "deadline" && (outcome != "failed" || took > 5500*time.Millisecond) {
					t.Errorf("settled %s after %v", outcome, took)
				}
			})
		})
	}
}
