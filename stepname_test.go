package flue_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/flue-go/flue"
)

// The callbacks of a message share the names of its steps: of two that use one
// name, one is told so, and neither gets what the other has recorded.
func TestStartCallbacksShareStepNames(t *testing.T) {
	var s *stage
	s = newStage(t, plain(func(r *flue.Render) {
		for i := range 2 {
			flue.UseAgentStart(r, func(ctx context.Context, start *flue.AgentStart) error {
				got, err := flue.Do(ctx, start.Step, "load", func(context.Context) (int, error) { return i, nil })
				switch {
				case errors.Is(err, flue.ErrStepReused):
					s.note("reused")
				case err != nil || got != i:
					s.note("callback %d got %d, %v", i, got, err)
				default:
					s.note("loaded")
				}
				return nil
			})
		}
	}), sayOK)
	if got := s.say("hello"); got != "ok" {
		t.Errorf("the model said %q", got)
	}
	got := s.noted()
	if slices.Sort(got); !slices.Equal(got, []string{"loaded", "reused"}) {
		t.Errorf("the callbacks report %q", got)
	}
}
