package flue_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// With ParallelCalls 1 an agent's tools run one after another, in the order in
// which the model asked, and each sees what the one before it has written. Without
// it they run side by side.
func TestAgentParallelCalls(t *testing.T) {
	for _, tt := range []struct {
		most int
		took time.Duration
		saw  []string
	}{
		{1, 3 * time.Second, []string{"0", "1", "2"}},
		{2, 2 * time.Second, nil},
		{0, time.Second, nil},
	} {
		t.Run(fmt.Sprint(tt.most), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var order, saw []string
				agent := &flue.Agent{ParallelCalls: tt.most, Render: func(r *flue.Render) string {
					flue.UseModel(r, "fake/any")
					count := flue.UsePersistentState(r, "count", 0)
					flue.UseTool(r, flue.NewTool(flue.Tool{Name: "work", Description: "Work."}, func(ctx context.Context, in struct {
						N string `json:"n"`
					},
					) (string, error) {
						err := count.Update(ctx, func(n int) int {
							mu.Lock()
							defer mu.Unlock()
							saw = append(saw, fmt.Sprint(n))
							return n + 1
						})
						mu.Lock()
						order = append(order, in.N)
						mu.Unlock()
						pause(ctx, time.Second)
						return "did " + in.N, err
					}))
					return ""
				}}
				s := newStage(t, agent, func(req *model.Request) script.Turn {
					if req.Messages[len(req.Messages)-1].Role == model.RoleTool {
						return script.Say("done")
					}
					ask := func(n string) any { return map[string]string{"n": n} }
					return script.Call("work", ask("a")).Call("work", ask("b")).Call("work", ask("c"))
				})
				began := time.Now()
				if got := s.say("go"); got != "done" {
					t.Errorf("the answer is %q", got)
				}
				if took := time.Since(began); took != tt.took {
					t.Errorf("it took %v, want %v", took, tt.took)
				}
				if tt.saw != nil && (!slices.Equal(saw, tt.saw) || strings.Join(order, "") != "abc") {
					t.Errorf("in the order %q they saw %q", order, saw)
				}
				s.close()
			})
		})
	}
}

func TestParallelCallsMustNotBeNegative(t *testing.T) {
	_, err := flue.Open(t.Context(), flue.Config{Agents: []*flue.Agent{{Name: "a", ParallelCalls: -1, Render: func(*flue.Render) string { return "" }}}})
	if err == nil || !strings.Contains(err.Error(), "ParallelCalls is -1") {
		t.Errorf("%v", err)
	}
}
