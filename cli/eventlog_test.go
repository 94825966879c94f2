package cli

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
)

// The log does not show an estimate of what a call cost as what it cost.
func TestLogOfCosts(t *testing.T) {
	for want, cost := range map[string]model.Expense{
		" dollars=0.25":      {Dollars: 0.25},
		" dollarsAtMost=0.5": {Unknown: 1, AtMost: 0.5},
	} {
		var out bytes.Buffer
		l := eventLog{log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
		l.observe(flue.Event{Type: flue.EventTurnDone, Turn: "t", Cost: cost})
		if !strings.Contains(out.String(), want) || strings.Count(out.String(), "dollars") != 1 {
			t.Errorf("the log says %s, want%s", out.String(), want)
		}
	}
}
