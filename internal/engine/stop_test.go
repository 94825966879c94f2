package engine_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store/memstore"
)

// The journal keeps the provider's own word for why an answer ended, within
// bounds, and a refusal without a word is the content filter's failure.
func TestReasonOfTheEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		done   model.Done
		say    string
		reason string
		class  model.Class
	}{
		"word":         {model.Done{Stop: model.StopEnd, Reason: "end_turn"}, "Hello.", "end_turn", ""},
		"none":         {model.Done{Stop: model.StopEnd}, "Hello.", "", ""},
		"long, broken": {model.Done{Stop: model.StopEnd, Reason: "\xff" + strings.Repeat("é", 1000)}, "Hello.", strings.Repeat("é", 63), ""},
		"cut off":      {model.Done{Stop: model.StopFiltered, Reason: "SAFETY"}, "I can", "SAFETY", ""},
		"refused":      {model.Done{Stop: model.StopFiltered, Reason: "refusal"}, "", "refusal", model.Filtered},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(), memstore.New()
				w.reply = func(_ context.Context, _ *model.Request, yield func(model.Event, error) bool) {
					if tt.say != "" && !yield(model.BlockDone{Block: model.Block{Kind: model.Text, Text: tt.say}}, nil) {
						return
					}
					yield(tt.done, nil)
				}
				e := w.start(t, s)
				defer stop(t, e)
				settled(t, e, chat, send(t, e, chat, "hi"))
				for _, r := range records(t, s, chat) {
					done, ok := r.(*journal.TurnDone)
					if !ok {
						continue
					}
					class := model.Class("")
					if done.Error != nil {
						class = model.Class(done.Error.Class)
					}
					if done.Reason != tt.reason || class != tt.class {
						t.Errorf("reason %q, class %q; want %q, %q", done.Reason, class, tt.reason, tt.class)
					}
					if w.calls != 1 {
						t.Errorf("%d calls", w.calls)
					}
				}
			})
		})
	}
}
