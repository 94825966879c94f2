package model_test

import (
	"testing"

	"github.com/flue-go/flue/model"
)

func TestNearest(t *testing.T) {
	type levels = []model.Thinking
	tests := []struct {
		name   string
		levels levels
		want   model.Thinking
		got    model.Thinking
	}{
		{"max below xhigh", levels{model.ThinkingHigh, model.ThinkingMax}, model.ThinkingXHigh, model.ThinkingHigh},
		{"the top of the list for max", levels{model.ThinkingLow, model.ThinkingHigh}, model.ThinkingMax, model.ThinkingHigh},
		{"nothing listed", nil, model.ThinkingXHigh, model.ThinkingXHigh},
		{"default stays", levels{model.ThinkingLow}, model.ThinkingDefault, model.ThinkingDefault},
		{"listed", levels{model.ThinkingLow, model.ThinkingHigh}, model.ThinkingHigh, model.ThinkingHigh},
		{"ceiling", levels{model.ThinkingLow, model.ThinkingMedium, model.ThinkingHigh}, model.ThinkingXHigh, model.ThinkingHigh},
		{"floor", levels{model.ThinkingLow, model.ThinkingHigh}, model.ThinkingMinimal, model.ThinkingLow},
		{"off without off", levels{model.ThinkingMedium, model.ThinkingLow}, model.ThinkingOff, model.ThinkingLow},
		{"off is off", levels{model.ThinkingLow, model.ThinkingOff}, model.ThinkingOff, model.ThinkingOff},
		{"minimal is not off", levels{model.ThinkingOff, model.ThinkingHigh}, model.ThinkingMinimal, model.ThinkingHigh},
		{"ties go down", levels{model.ThinkingHigh, model.ThinkingLow}, model.ThinkingMedium, model.ThinkingLow},
		{"only off", levels{model.ThinkingOff}, model.ThinkingHigh, model.ThinkingOff},
		{"unknown levels are skipped", levels{"other", model.ThinkingHigh}, model.ThinkingXHigh, model.ThinkingHigh},
		{"unknown wish stays", levels{model.ThinkingHigh}, "ultra", "ultra"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := (model.Info{Levels: tt.levels}).Nearest(tt.want); got != tt.got {
				t.Errorf("Nearest(%q) of %v = %q, want %q", tt.want, tt.levels, got, tt.got)
			}
		})
	}
}
