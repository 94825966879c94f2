package flue_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// What a call costs is known once it has ended, stands in the journal at the
// prices of that time, and adds up to what hooks are handed. What is not known
// is counted and never taken for nothing.
func TestCost(t *testing.T) {
	var mu sync.Mutex
	price := model.Cost{Input: 2, Output: 10}
	var told []model.Expense
	var finish, end flue.Expense
	agent := &flue.Agent{Name: "actor", Render: func(r *flue.Render) string {
		flue.UseModel(r, "fake/m")
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "raise", Description: "Doubles the price."}, func(context.Context, struct{}) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			price = model.Cost{Input: 4, Output: 20}
			return "raised", nil
		}))
		flue.UseAgentFinish(r, func(_ context.Context, f *flue.AgentFinish) error { finish = f.Cost; return nil })
		flue.UseResponseFinish(r, func(_ context.Context, f *flue.ResponseFinish) (flue.Metadata, error) {
			end = f.Cost
			return nil, nil
		})
		return ""
	}}
	used := model.Usage{Input: 1000, Output: 100}
	st := memstore.New()
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{agent}, Store: st, Log: slog.New(slog.DiscardHandler), RetryBase: time.Millisecond,
		Providers: map[string]model.Provider{"fake": script.New(
			script.Fail(&model.Error{Class: model.RateLimited, Status: 429, Message: "slow down"}),
			script.Call("raise", nil).Usage(used),
			script.Fail(&model.Error{Class: model.Retryable, Message: "the stream was cut", Usage: model.Usage{Input: 1000}}),
			script.Call("raise", nil).Usage(model.Usage{Input: 1e15}), // nonsense that must not spoil the sum
			script.Say("done").Usage(used),
		)},
		Catalog: func(string, string) (model.Info, bool) {
			mu.Lock()
			defer mu.Unlock()
			return model.Info{Cost: price}, true
		},
		Observe: func(ev flue.Event) {
			if ev.Type == flue.EventTurnDone {
				told = append(told, ev.Cost)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	r, err := rt.Dispatch(t.Context(), "actor", "one", flue.User("go"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Instance("actor", "one").Read(t.Context(), r.Submission); err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(t.Context()); err != nil { // the observer has been told everything then
		t.Fatal(err)
	}
	want := []model.Expense{{}, {Dollars: 0.003}, {Unknown: 1, AtMost: 0.004}, {Unknown: 1}, {Dollars: 0.006}}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("what the observer was told (-want +got):\n%s", diff)
	}
	var recorded []model.Expense
	for b, err := range store.Batches(t.Context(), st, store.Address{Agent: "actor", ID: "one"}, -1) {
		if err != nil {
			t.Fatal(err)
		}
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range batch.Records {
			if r, ok := r.(*journal.TurnDone); ok {
				recorded = append(recorded, engine.Expense(journal.Expense{}.Add(r.Cost, r.AtMost)))
			}
		}
	}
	if diff := cmp.Diff(want, recorded); diff != "" {
		t.Errorf("what the journal has (-want +got):\n%s", diff)
	}
	sum := flue.Expense{Dollars: 0.009, Unknown: 2, AtMost: 0.004}
	if finish != sum || end != sum {
		t.Errorf("the hooks were handed %+v and %+v, want %+v", finish, end, sum)
	}
}
