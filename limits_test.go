package flue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// With one place an instance may ask another one and wait for its answer, wherever
// it does that, and so may that one.
func TestWaitForAnotherInstanceWithOnePlace(t *testing.T) {
	const depth = 3
	for _, where := range []string{"a tool", "a durable tool's step", "a start hook", "a finish hook", "an observer of the start", "an observer of the end"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *stage
				ask := func(ctx context.Context, id string) (string, error) {
					var n int
					if id != "one" {
						if _, err := fmt.Sscan(id, &n); err != nil || n == depth {
							return "the last", err
						}
					}
					next := s.rt.Instance("actor", fmt.Sprint(n+1))
					r, err := next.Dispatch(ctx, flue.User("go"))
					if err != nil {
						return "", err
					}
					reply, err := next.Read(ctx, r.Submission)
					if err != nil {
						return "", err
					}
					s.note("%s has heard %s from %d", id, reply.Text, n+1)
					return reply.Text, nil
				}
				s = newLimitedStage(t, &flue.Agent{Render: func(r *flue.Render) string {
					flue.UseModel(r, "fake/any")
					id := r.InstanceID()
					switch where {
					case "a tool":
						flue.UseTool(r, flue.NewTool(flue.Tool{Name: "ask", Description: "Ask."}, func(ctx context.Context, _ struct{}) (string, error) {
							return ask(ctx, id)
						}))
					case "a durable tool's step":
						flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "ask", Description: "Ask."}, func(ctx context.Context, step *flue.Step, _ struct{}) (string, error) {
							return flue.Do(ctx, step, "ask", func(ctx context.Context) (string, error) { return ask(ctx, id) })
						}))
					case "a start hook":
						flue.UseAgentStart(r, func(ctx context.Context, _ *flue.AgentStart) error {
							_, err := ask(ctx, id)
							return err
						})
					case "a finish hook":
						flue.UseAgentFinish(r, func(ctx context.Context, _ *flue.AgentFinish) error {
							_, err := ask(ctx, id)
							return err
						})
					case "an observer of the start":
						flue.UseResponseStart(r, func(ctx context.Context, _ *flue.ResponseStart) (flue.Metadata, error) {
							_, err := ask(ctx, id)
							return nil, err
						})
					case "an observer of the end":
						flue.UseResponseFinish(r, func(ctx context.Context, _ *flue.ResponseFinish) (flue.Metadata, error) {
							_, err := ask(ctx, id)
							return nil, err
						})
					}
					return ""
				}}, flue.Limits{Concurrent: 1}, func(req *model.Request) script.Turn {
					if strings.Contains(where, "tool") && req.Messages[len(req.Messages)-1].Role != model.RoleTool {
						return script.Call("ask", struct{}{})
					}
					return script.Say("yes")
				})
				defer s.close()
				if got := s.say("go"); got != "yes" {
					t.Errorf("%q", got)
				}
				if got := s.noted(); len(got) != depth || !strings.HasPrefix(got[depth-1], "one has heard") {
					t.Errorf("%q", got)
				}
				synctest.Wait()
				if h := s.rt.Health(t.Context()); h.Working != 0 || h.Waiting != 0 {
					t.Errorf("%d places are taken, %d wait", h.Working, h.Waiting)
				}
			})
		})
	}
}
