package engine_test

import (
	"context"
	"testing"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store/memstore"
)

// What a provider says that a call cost is believed, unless it makes no sense.
func TestChargedCost(t *testing.T) {
	for _, tt := range []struct {
		charged float64
		want    model.Expense
	}{
		{0, model.Expense{}},
		{0.1234567891, model.Expense{Dollars: 0.123456789}},
		{-1, model.Expense{Unknown: 1}},
		{1e12, model.Expense{Unknown: 1}},
	} {
		w := newWorld()
		w.reply = func(_ context.Context, _ *model.Request, yield func(model.Event, error) bool) {
			yield(model.Done{Stop: model.StopEnd, Charged: &tt.charged}, nil)
		}
		s := memstore.New()
		e := w.start(t, s)
		settled(t, e, chat, send(t, e, chat, "hello"))
		stop(t, e)
		for _, r := range records(t, s, chat) {
			if r, ok := r.(*journal.TurnDone); ok {
				if got := engine.Expense(journal.Expense{}.Add(r.Cost, r.AtMost)); got != tt.want {
					t.Errorf("charged %v, recorded %+v, want %+v", tt.charged, got, tt.want)
				}
			}
		}
	}
}
