package flue_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// When the process has lost its store, running code is told so by its context and
// by all that it tries after that; messages from outside are accepted; and what
// was under way goes on when the store is back.
func TestErrLeaseLapsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		errs := make(map[string]error)
		note := func(what string, err error) {
			mu.Lock()
			defer mu.Unlock()
			errs[what] = err
		}
		lives := 0
		agent := &flue.Agent{Render: func(r *flue.Render) string {
			flue.UseModel(r, "fake/any")
			dispatch := flue.UseDispatchMessage(r)
			count := flue.UsePersistentState(r, "count", 0)
			flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, step *flue.Step, _ struct{}) (string, error) {
				if lives++; lives > 1 {
					return "worked", count.Set(ctx, lives)
				}
				<-ctx.Done()
				note("cause", context.Cause(ctx))
				_, err := flue.Do(ctx, step, "late", func(context.Context) (int, error) {
					t.Error("a step was begun")
					return 0, nil
				})
				note("step", err)
				_, err = dispatch(ctx, flue.Signal("late", "x", nil))
				note("dispatch", err)
				_, err = dispatch(context.WithoutCancel(ctx), flue.Signal("late", "x", nil))
				note("dispatch without a cause", err)
				return "", ctx.Err()
			}))
			return ""
		}}
		s := newStage(t, agent, func(req *model.Request) script.Turn {
			last := req.Messages[len(req.Messages)-1]
			if last.Role == model.RoleTool {
				return script.Say("done: " + last.Blocks[0].Text)
			}
			if last.Blocks[0].Text == "go" {
				return script.Call("work", struct{}{})
			}
			return script.Say("hello")
		})
		id := s.send(flue.User("go"))
		s.fault.RefuseRenewals(errors.New("no"))
		time.Sleep(6 * time.Second) // simulated
		synctest.Wait()
		for _, what := range []string{"cause", "step", "dispatch", "dispatch without a cause"} {
			if !errors.Is(errs[what], flue.ErrLeaseLapsed) {
				t.Errorf("%s: %v", what, errs[what])
			}
		}
		if got := s.observed(flue.EventLeaseLapsed); len(got) != 1 || got[0].Error == nil || got[0].Instance.Agent != "" {
			t.Errorf("the events are %+v", got)
		}
		other, err := s.rt.Dispatch(t.Context(), "actor", "two", flue.User("hi"))
		if err != nil {
			t.Fatalf("a message is not accepted: %v", err)
		}
		s.fault.RefuseRenewals(nil)
		if reply, err := s.read(id); err != nil || reply.Text != "done: worked" {
			t.Errorf("%+v, %v", reply, err)
		}
		if reply, err := s.rt.Instance("actor", "two").Read(t.Context(), other.Submission); err != nil || reply.Text != "hello" {
			t.Errorf("%+v, %v", reply, err)
		}
		if got := s.observed(flue.EventLeaseRenewed); len(got) != 1 {
			t.Errorf("the events are %+v", got)
		}
		s.close()
	})
}
