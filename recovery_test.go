package flue_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// A call that is interrupted is run again, under the same key, if its tool is
// idempotent, and was when the call was made. Each decision is an event.
func TestInterruptedCallByClass(t *testing.T) {
	type class func(fn func(ctx context.Context) (string, error)) *flue.ToolDefinition
	named := flue.Tool{Name: "act", Description: "Act."}
	idempotent := named
	idempotent.Idempotent = true
	ordinary := class(func(fn func(ctx context.Context) (string, error)) *flue.ToolDefinition {
		return flue.NewTool(named, func(ctx context.Context, _ struct{}) (string, error) { return fn(ctx) })
	})
	again := class(func(fn func(ctx context.Context) (string, error)) *flue.ToolDefinition {
		return flue.NewTool(idempotent, func(ctx context.Context, _ struct{}) (string, error) { return fn(ctx) })
	})
	durable := class(func(fn func(ctx context.Context) (string, error)) *flue.ToolDefinition {
		return flue.NewDurableTool(named, func(ctx context.Context, _ *flue.Step, _ struct{}) (string, error) { return fn(ctx) })
	})
	for _, tt := range []struct {
		name          string
		before, after class
		runs          int
		reason        string
	}{
		{"ordinary", ordinary, ordinary, 1, "its outcome is unknown"},
		{"idempotent", again, again, 2, "is run again"},
		{"durable", durable, durable, 2, "is run again"},
		{"ordinary, and idempotent since a release", ordinary, again, 1, "its outcome is unknown"},
		{"ordinary, and durable since a release", ordinary, durable, 1, "its outcome is unknown"},
		{"idempotent, and ordinary since a release", again, ordinary, 1, "its outcome is unknown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *stage
				keys := map[string]int{}
				var epochs []int64
				act := func(ctx context.Context) (string, error) {
					s.note("acts")
					s.mu.Lock()
					keys[flue.CallKey(ctx)]++
					epochs = append(epochs, flue.Epoch(ctx))
					s.mu.Unlock()
					pause(ctx, 10*time.Second)
					return "acted", ctx.Err()
				}
				var released atomic.Bool
				s = newStage(t, plain(func(r *flue.Render) {
					if released.Load() {
						flue.UseTool(r, tt.after(act))
					} else {
						flue.UseTool(r, tt.before(act))
					}
				}), callThenSay("act", struct{}{}))
				defer s.close()
				id := s.send(flue.User("go"))
				time.Sleep(time.Second) // simulated: it runs
				released.Store(true)
				s.restart()
				reply, err := s.read(id)
				if err != nil {
					t.Fatal(err)
				}
				if got := len(s.noted()); got != tt.runs || len(keys) != 1 {
					t.Errorf("it ran %d times under the keys %v, want %d and one", got, keys, tt.runs)
				}
				if ok := strings.Contains(reply.Text, "acted"); ok != (tt.runs == 2) {
					t.Errorf("the model says %q", reply.Text)
				}
				if tt.runs == 2 && epochs[1] <= epochs[0] {
					t.Errorf("the epochs are %v", epochs)
				}
				told := s.observed(flue.EventRecovered)
				if len(told) != 1 || !strings.Contains(told[0].Reason, tt.reason) || told[0].Tool != "act" || told[0].Attempt != 2 || told[0].Call == "" {
					t.Errorf("the decisions are %+v", told)
				}
			})
		})
	}
}

// A model call that is cut is an event too, which says how the response goes on.
func TestCutAnswerIsTold(t *testing.T) {
	for _, tt := range []struct{ said, reason string }{
		{"", "is made again"},
		{"So far so", "goes on from what it had said"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Bool
			s := newStage(t, plain(nil), func(*model.Request) script.Turn {
				if asked.Swap(true) {
					return script.Say("good.")
				}
				if tt.said == "" {
					return script.Hang()
				}
				return script.Say(tt.said).Wait(time.Hour)
			})
			defer s.close()
			id := s.send(flue.User("go"))
			time.Sleep(5 * time.Second) // simulated: what was said is durable
			s.restart()
			if _, err := s.read(id); err != nil {
				t.Fatal(err)
			}
			told := s.observed(flue.EventRecovered)
			if len(told) != 1 || !strings.Contains(told[0].Reason, tt.reason) || told[0].Turn == "" {
				t.Errorf("the decisions are %+v", told)
			}
		})
	}
}

// Who asks while the program stops is told so, and that is no error of the
// program's: its store may be closed by then.
func TestClosedStoreIsUnavailable(t *testing.T) {
	s := newStage(t, plain(nil), sayOK)
	sub := s.send(flue.User("hello"))
	if _, err := s.read(sub); err != nil {
		t.Fatal(err)
	}
	if err := s.store.Close(); err != nil {
		t.Fatal(err)
	}
	wantUnavailable := func(what string, err error) {
		t.Helper()
		var told *flue.Error
		if !errors.As(err, &told) || told.Code != flue.CodeUnavailable {
			t.Errorf("%s: %v, want the code %s", what, err, flue.CodeUnavailable)
		}
	}
	_, err := s.in.Dispatch(t.Context(), flue.User("again"))
	wantUnavailable("a message", err)
	server := httptest.NewServer(http.StripPrefix("/agents/actor", s.rt.Handler("actor")))
	defer server.Close()
	resp, err := http.Get(server.URL + "/agents/actor/one?view=history")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the history: status %d", resp.StatusCode)
	}
}
