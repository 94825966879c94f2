package engine_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store/memstore"
)

// An engine that is closed in the middle of an answer leaves what was said to the
// next one, whose model goes on from there: people read nothing twice.
func TestCloseInTheMiddleOfAnAnswer(t *testing.T) {
	tests := []struct {
		name string
		said model.BlockKind
		want []string
	}{
		{"text", model.Text, []string{
			`user text "hi" done`, `assistant text "half " done`, `assistant text "of it" done`,
			`system text "The previous assistant stream was interrupted." done`,
			`system text "Continue from the durable partial assistant response." done`,
			"settled completed",
		}},
		{"reasoning only", model.Reasoning, []string{`user text "hi" done`, `assistant text "half of it" done`, "settled completed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(), memstore.New()
				w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
					switch {
					case w.asked() == 1:
						if yield(model.Delta{Kind: tt.said, Text: "half "}, nil) {
							<-ctx.Done()
						}
					case slices.ContainsFunc(req.Messages, func(m model.Message) bool { return m.Role == model.RoleAssistant }):
						say(yield, "of it")
					default:
						say(yield, "half of it")
					}
				}
				e := w.start(t, s)
				sub := send(t, e, chat, "hi")
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if err := e.Close(ctx); err != nil {
					t.Fatal(err)
				}
				e = w.start(t, s)
				defer stop(t, e)
				settled(t, e, chat, sub)
				snap, err := e.Snapshot(t.Context(), chat)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, lines(snap)); diff != "" {
					t.Errorf("the conversation (-want +got):\n%s", diff)
				}
			})
		})
	}
}
