package engine_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// What the store will not take because it is too large is not tried again and
// again: its submission fails, and the next message works.
func TestWhatCannotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			echo(ctx, req, yield)
		}
		fs := faultstore.New(memstore.New())
		e := w.start(t, fs)
		defer stop(t, e)
		appends := 0
		fs.SetHook(func(_ context.Context, p faultstore.Point) error {
			if p.Op != faultstore.Append || p.Done {
				return nil
			}
			if appends++; appends == 2 {
				return fmt.Errorf("a batch: %w", store.ErrTooLarge)
			}
			return nil
		})
		if got := settled(t, e, chat, send(t, e, chat, "go")); got != "failed" {
			t.Errorf("settled %s", got)
		}
		if appends != 3 {
			t.Errorf("%d appends, want the refused one and the settlement after the first", appends)
		}
		if got := settled(t, e, chat, send(t, e, chat, "hello")); got != "completed" {
			t.Errorf("the next message settled %s", got)
		}
	})
}
