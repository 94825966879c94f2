package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store/memstore"
)

// failing scripts the model: each call takes the next of the failures that its
// model has left, and succeeds when there are none. It notes which model was
// asked and when.
func failing(w *world, failures map[string][]*model.Error) {
	began := time.Now()
	w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
		w.effect("%s@%s", req.Model, time.Since(began).Round(time.Second))
		if left := failures[req.Model]; len(left) > 0 {
			failures[req.Model] = left[1:]
			yield(nil, left[0])
			return
		}
		say(yield, "from "+req.Model)
	}
}

func failure(class model.Class) *model.Error {
	return &model.Error{Provider: "test", Class: class, Message: "it is " + string(class)}
}

func times(n int, e *model.Error) []*model.Error { return slices.Repeat([]*model.Error{e}, n) }

func TestFallback(t *testing.T) {
	limited := func(wait time.Duration) *model.Error {
		e := failure(model.RateLimited)
		e.RetryAfter = wait
		return e
	}
	tests := []struct {
		name     string
		failures map[string][]*model.Error
		asked    []string // the models, in order
		fell     []string // from>to of the records
		outcome  string
		why      string // part of the settlement's error
	}{
		{name: "none", asked: []string{"m"}, outcome: "completed"},
		{
			name: "an overloaded model is left at once", failures: map[string][]*model.Error{"m": times(1, failure(model.Overloaded))},
			asked: []string{"m", "b"}, fell: []string{"test/m>test/b"}, outcome: "completed",
		},
		{
			name: "so is one whose quota is used up", failures: map[string][]*model.Error{"m": times(1, failure(model.Quota))},
			asked: []string{"m", "b"}, fell: []string{"test/m>test/b"}, outcome: "completed",
		},
		{
			name: "one failure may be chance", failures: map[string][]*model.Error{"m": times(1, failure(model.Retryable))},
			asked: []string{"m", "m"}, outcome: "completed",
		},
		{
			name: "two are an outage", failures: map[string][]*model.Error{"m": times(2, failure(model.Retryable))},
			asked: []string{"m", "m", "b"}, fell: []string{"test/m>test/b"}, outcome: "completed",
		},
		{
			name: "a short rate limit is waited for", failures: map[string][]*model.Error{"m": times(1, limited(3*time.Second))},
			asked: []string{"m", "m"}, outcome: "completed",
		},
		{
			name: "a long one is not", failures: map[string][]*model.Error{"m": times(1, limited(20*time.Second))},
			asked: []string{"m", "b"}, fell: []string{"test/m>test/b"}, outcome: "completed",
		},
		{
			name: "the chain is walked to its end, whose last model has the whole budget",
			failures: map[string][]*model.Error{
				"m": times(1, failure(model.Overloaded)), "b": times(1, failure(model.Overloaded)), "c": times(3, failure(model.Overloaded)),
			},
			asked: []string{"m", "b", "c", "c", "c", "c"}, fell: []string{"test/m>test/b", "test/b>test/c"}, outcome: "completed",
		},
		{
			name: "the last model fails",
			failures: map[string][]*model.Error{
				"m": times(1, failure(model.Overloaded)), "b": times(1, failure(model.Quota)), "c": times(4, failure(model.Retryable)),
			},
			asked: []string{"m", "b", "c", "c", "c", "c"}, fell: []string{"test/m>test/b", "test/b>test/c"}, outcome: "failed",
			why: "test/c: it is retryable (the 2 models before it have failed, too)",
		},
		{
			name: "a wrong key is not covered up", failures: map[string][]*model.Error{"m": times(1, failure(model.Auth))},
			asked: []string{"m"}, outcome: "failed", why: "it is auth",
		},
		{
			name: "nor is a request that is refused", failures: map[string][]*model.Error{"m": times(1, failure(model.Invalid))},
			asked: []string{"m"}, outcome: "failed", why: "it is invalid",
		},
		{
			name: "nor what a filter refuses", failures: map[string][]*model.Error{"m": times(1, failure(model.Filtered))},
			asked: []string{"m"}, outcome: "failed", why: "it is content_filter",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.fallbacks = []string{"test/b", "test/c"}
				failing(w, tt.failures)
				s := memstore.New()
				e := w.start(t, s)
				defer stop(t, e)
				if got := settled(t, e, chat, send(t, e, chat, "go")); got != tt.outcome {
					t.Errorf("settled %s, want %s", got, tt.outcome)
				}
				var asked []string
				for _, effect := range w.did() {
					name, _, _ := strings.Cut(effect, "@")
					asked = append(asked, name)
				}
				if !slices.Equal(asked, tt.asked) {
					t.Errorf("asked %v, want %v", w.did(), tt.asked)
				}
				var fell []string
				for _, r := range records(t, s, chat) {
					switch r := r.(type) {
					case *journal.Fallback:
						fell = append(fell, r.From+">"+r.To)
					case *journal.Settled:
						if !strings.Contains(string(r.Error), tt.why) {
							t.Errorf("settled with %s, want %q in it", r.Error, tt.why)
						}
					}
				}
				if !slices.Equal(fell, tt.fell) {
					t.Errorf("the journal says %v, want %v", fell, tt.fell)
				}
				var told []string
				for _, ev := range w.seen() {
					if ev.Type == engine.EventFallback {
						told = append(told, ev.Model)
						if !strings.Contains(ev.Reason, " failed (") {
							t.Errorf("the reason told is %q", ev.Reason)
						}
					}
				}
				if len(told) != len(tt.fell) {
					t.Errorf("the observer was told of %v", told)
				}
			})
		})
	}
}

// A response stays with the model that it has turned to; the next one begins
// with the agent's own again.
func TestFallbackLastsForTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.fallbacks = []string{"test/b"}
		w.tools = []engine.Tool{w.tool("work", nil)}
		overloaded := true
		w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
			w.effect("asked %s", req.Model)
			_, results := asked(req)
			switch {
			case req.Model == "m" && overloaded:
				overloaded = false
				yield(nil, failure(model.Overloaded))
			case results == 0:
				call(yield, fmt.Sprintf("work c%d", len(req.Messages)))
			default:
				say(yield, "done")
			}
		}
		e := w.start(t, memstore.New())
		defer stop(t, e)
		for range 2 {
			if got := settled(t, e, chat, send(t, e, chat, "go")); got != "completed" {
				t.Fatalf("settled %s", got)
			}
		}
		var asked []string
		for _, effect := range w.did() {
			if name, ok := strings.CutPrefix(effect, "asked "); ok {
				asked = append(asked, name)
			}
		}
		if want := []string{"m", "b", "b", "m", "m"}; !slices.Equal(asked, want) {
			t.Errorf("asked %v, want %v", asked, want)
		}
	})
}

// A fallback that the program does not have is told before any model is asked.
func TestUnknownFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.fallbacks = []string{"nowhere/x"}
		w.reply = echo
		s := memstore.New()
		e := w.start(t, s)
		defer stop(t, e)
		if got := settled(t, e, chat, send(t, e, chat, "go")); got != "failed" || w.calls != 0 {
			t.Errorf("settled %s after %d calls", got, w.calls)
		}
		for _, r := range records(t, s, chat) {
			if r, ok := r.(*journal.Settled); ok && !strings.Contains(string(r.Error), `fallback nowhere/x: no provider \"nowhere\"`) {
				t.Errorf("settled with %s", r.Error)
			}
		}
	})
}

// The provider's own wish to wait is honoured, and failures are bounded over the
// whole of a response.
func TestRetryPausesAndBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := failure(model.RateLimited)
		limited.RetryAfter = 42 * time.Second
		long := failure(model.RateLimited)
		long.RetryAfter = 5 * time.Minute
		w := newWorld()
		failing(w, map[string][]*model.Error{"m": {limited, long}})
		e := w.start(t, memstore.New())
		defer stop(t, e)
		if got := settled(t, e, chat, send(t, e, chat, "go")); got != "completed" {
			t.Errorf("settled %s", got)
		}
		if want := []string{"m@0s", "m@42s", "m@5m42s"}; !slices.Equal(w.did(), want) {
			t.Errorf("asked at %v, want %v", w.did(), want)
		}
		for _, ev := range w.seen() {
			if ev.Type == engine.EventStalled {
				t.Errorf("told that %s", ev.Reason)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.budget.Timeout = 1000 * time.Hour
		w.tools = []engine.Tool{w.tool("work", nil)}
		n := 0
		w.reply = func(_ context.Context, _ *model.Request, yield func(model.Event, error) bool) {
			if n++; n%2 == 1 {
				yield(nil, failure(model.Retryable))
				return
			}
			call(yield, fmt.Sprintf("work c%d", n))
		}
		e := w.start(t, memstore.New())
		defer stop(t, e)
		if got := settled(t, e, chat, send(t, e, chat, "go")); got != "failed" || n != 199 {
			t.Errorf("settled %s after %d calls; a response has a hundred failures", got, n)
		}
	})
}

// A pause that a provider asks for goes on after a restart, where it was.
func TestAskedPauseOutlivesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := failure(model.Overloaded)
		long.RetryAfter = 10 * time.Minute
		w := newWorld()
		failing(w, map[string][]*model.Error{"m": {long}})
		s := memstore.New()
		e := w.start(t, s)
		id := send(t, e, chat, "go")
		time.Sleep(4 * time.Minute)
		s = die(t, e, s)
		e = w.start(t, s)
		defer stop(t, e)
		if got := settled(t, e, chat, id); got != "completed" {
			t.Errorf("settled %s", got)
		}
		if want := []string{"m@0s", "m@10m0s"}; !slices.Equal(w.did(), want) {
			t.Errorf("asked at %v, want %v", w.did(), want)
		}
	})
}

// What a provider asks for and nobody can wait for is not waited for: the next
// model is asked, or the sender is told when to come back.
func TestPauseThatIsTooLong(t *testing.T) {
	for name, tt := range map[string]struct {
		pause, timeout time.Duration
		fallback       bool
		class          model.Class
		asked          []string
		outcome        string
	}{
		"beyond the deadline": {pause: 20 * time.Minute, timeout: 10 * time.Minute, class: model.RateLimited, asked: []string{"m@0s"}, outcome: "failed"},
		"beyond an hour":      {pause: 2 * time.Hour, timeout: 10 * time.Hour, class: model.Retryable, asked: []string{"m@0s"}, outcome: "failed"},
		"with a fallback":     {pause: 20 * time.Minute, timeout: 10 * time.Minute, fallback: true, class: model.Retryable, asked: []string{"m@0s", "b@0s"}, outcome: "completed"},
		"short enough":        {pause: 50 * time.Minute, timeout: 10 * time.Hour, class: model.Retryable, asked: []string{"m@0s", "m@50m0s"}, outcome: "completed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				long := failure(tt.class)
				long.RetryAfter = tt.pause
				w := newWorld()
				w.budget.Timeout = tt.timeout
				if tt.fallback {
					w.fallbacks = []string{"test/b"}
				}
				failing(w, map[string][]*model.Error{"m": {long}})
				s := memstore.New()
				e := w.start(t, s)
				defer stop(t, e)
				id := send(t, e, chat, "go")
				if got := settled(t, e, chat, id); got != tt.outcome || !slices.Equal(w.did(), tt.asked) {
					t.Errorf("settled %s, asked at %v, want %v", got, w.did(), tt.asked)
				}
				if end, _ := settlement(t, s, id); tt.outcome == "failed" && !strings.Contains(string(end.Error), "asks to be left alone for "+tt.pause.String()+", until 2000-01-01T") {
					t.Errorf("settled with %s", end.Error)
				}
			})
		})
	}
}
