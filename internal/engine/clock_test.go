package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// ahead is a clock that goes ahead of the true time.
func ahead(by time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(by) }
}

// The deadline of a message is that of the process that has begun it, however wrong
// the clocks of that process and of the one that takes the message over are.
func TestDeadlineOfAnotherClock(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				durable := memstore.New()
				open := func(name string, by time.Duration) *node {
					w := newWorld()
					w.clock, w.budget.Timeout = ahead(by), 10*time.Minute
					w.reply = func(ctx context.Context, _ *model.Request, yield func(model.Event, error) bool) {
						if pause(ctx, 24*time.Hour) {
							say(yield, "too late")
						}
					}
					return w.joinHearing(t, name, durable, hearings[0].signals)
				}
				a, b := open("a", skew), open("b", -skew)
				defer stop(t, b.e)
				began := time.Now()
				id := send(t, a.e, chat, "hello")
				time.Sleep(5 * time.Second) // simulated
				a.kill(t)
				time.Sleep(9 * time.Minute) // simulated
				if b.asked() != 1 {
					t.Fatalf("who has taken it over made %d model calls", b.asked())
				}
				if sub, err := b.e.Submission(t.Context(), chat, id); err != nil || sub.Outcome != "" {
					t.Fatalf("the message is over after %v: %+v, %v", time.Since(began), sub, err)
				}
				if got := settled(t, b.e, chat, id); got != journal.Failed {
					t.Errorf("settled %s", got)
				}
				if took := time.Since(began); took < 10*time.Minute-time.Second || took > 10*time.Minute+10*time.Second {
					t.Errorf("the deadline of ten minutes came after %v", took)
				}
				for at := range stamps(t, durable) {
					if at.Before(began.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
						t.Errorf("a batch is said to be of %v, which began at %v", at, began)
					}
				}
			})
		})
	}
}

// stamps yields when the batches of a journal say that they were written.
func stamps(t *testing.T, s store.Store) func(yield func(time.Time) bool) {
	t.Helper()
	var all []time.Time
	for b, err := range store.Batches(t.Context(), s, chat, -1) {
		if err != nil {
			t.Fatal(err)
		}
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, batch.At)
	}
	return slices.Values(all)
}

// Text is merged when it is old by the store's clock, not by that of who merges it.
func TestMergeByAnotherClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		durable := memstore.New()
		w := newWorld()
		w.clock, w.merge = ahead(time.Hour), time.Minute
		w.reply = func(_ context.Context, _ *model.Request, yield func(model.Event, error) bool) {
			for range 5 {
				time.Sleep(2 * time.Second) // simulated
				if !yield(model.Delta{Kind: model.Text, Text: "word "}, nil) {
					return
				}
			}
			say(yield, "the end")
		}
		n := w.joinHearing(t, "a", durable, hearings[0].signals)
		defer stop(t, n.e)
		settled(t, n.e, chat, send(t, n.e, chat, "hello"))
		before := len(batches(t, durable, chat))
		time.Sleep(50 * time.Second) // simulated
		if got := len(batches(t, durable, chat)); got != before {
			t.Errorf("the text was merged before its time: %d batches of %d", got, before)
		}
		time.Sleep(time.Minute) // simulated
		if got := len(batches(t, durable, chat)); got >= before {
			t.Errorf("the text was not merged: %d batches of %d", got, before)
		}
	})
}

// How long a provider wants to be left alone is kept by whoever takes a message over,
// however wrong the clocks are.
func TestPauseByAnotherClock(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				durable := memstore.New()
				var asked []time.Time // of both
				open := func(name string, by time.Duration) *node {
					w := newWorld()
					w.clock = ahead(by)
					w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
						if asked = append(asked, time.Now()); len(asked) > 1 {
							echo(ctx, req, yield)
							return
						}
						limited := failure(model.RateLimited)
						limited.RetryAfter = 50 * time.Second
						yield(nil, limited)
					}
					return w.joinHearing(t, name, durable, hearings[0].signals)
				}
				a, b := open("a", skew), open("b", -skew)
				defer stop(t, b.e)
				id := send(t, a.e, chat, "hello")
				time.Sleep(5 * time.Second) // simulated
				a.kill(t)
				if got := settled(t, b.e, chat, id); got != journal.Completed {
					t.Errorf("settled %s", got)
				}
				if len(asked) != 2 {
					t.Fatalf("the provider was asked at %v", asked)
				}
				if waited := asked[1].Sub(asked[0]); waited < 49*time.Second || waited > 55*time.Second {
					t.Errorf("the provider was left alone for %v", waited)
				}
			})
		})
	}
}
