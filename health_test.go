package flue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// A brokenDisk cannot read the journal of one instance.
type brokenDisk struct {
	store.Store
	of string
}

func (b *brokenDisk) Read(ctx context.Context, addr store.Address, after int64, limit int) (store.Page, error) {
	if addr.ID == b.of {
		return store.Page{}, fmt.Errorf("%w: a test says so", store.ErrCorrupt)
	}
	return b.Store.Read(ctx, addr, after, limit)
}

// A runtime says what is wrong with it, and that it is well again when it is.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fault := faultstore.New(memstore.New())
		disk := &brokenDisk{Store: fault}
		agent := &flue.Agent{Name: "actor", Render: func(r *flue.Render) string {
			flue.UseModel(r, "fake/any")
			return ""
		}}
		open := func() *flue.Runtime {
			rt, err := flue.Open(t.Context(), flue.Config{
				Agents: []*flue.Agent{agent}, Store: disk,
				Providers: map[string]model.Provider{"fake": script.New(script.Func(func(*model.Request) script.Turn { return script.Say("ok") }))},
			})
			if err != nil {
				t.Fatal(err)
			}
			return rt
		}
		rt := open()
		want := func(when string, health flue.Health, ready, alive bool, words string) {
			t.Helper()
			got := rt.Health(t.Context())
			if (got.StorePoisoned != nil) != (health.StorePoisoned != nil) || got.StorePoisoned != nil && !errors.Is(got.StorePoisoned, store.ErrPoisoned) {
				t.Errorf("%s: the store is poisoned by %v", when, got.StorePoisoned)
			}
			if got.Ready() != ready || got.Alive() != alive || got.String() != words {
				t.Errorf("%s: ready %v, alive %v: %s", when, got.Ready(), got.Alive(), got)
			}
			got.StorePoisoned, health.StorePoisoned = nil, nil
			got.Working, health.Working = 0, 0 // who has told of its end may still be leaving
			if diff := cmp.Diff(health, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		say := func(id string) error {
			r, err := rt.Dispatch(t.Context(), "actor", id, flue.User("hi"))
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = rt.Instance("actor", id).Read(ctx, r.Submission)
			return err
		}
		if err := errors.Join(say("one"), say("two")); err != nil {
			t.Fatal(err)
		}
		want("fine", flue.Health{}, true, true, "ok")

		fault.RefuseRenewals(errors.New("no"))
		time.Sleep(6 * time.Second) // simulated
		want("lapsed", flue.Health{LeaseLapsed: true}, false, true, "lease_lapsed")
		fault.RefuseRenewals(nil)
		time.Sleep(time.Second) // simulated
		want("renewed", flue.Health{}, true, true, "ok")

		disk.of = "two"
		if err := say("two"); err == nil {
			t.Error("a damaged instance answers")
		}
		want("damaged", flue.Health{Damaged: 1}, true, true, "ok")
		if err := say("one"); err != nil {
			t.Error(err)
		}

		fault.SetHook(func(_ context.Context, p faultstore.Point) error { return store.ErrPoisoned })
		if err := say("one"); err == nil {
			t.Error("a poisoned store accepts")
		}
		want("poisoned", flue.Health{Damaged: 1, StorePoisoned: store.ErrPoisoned}, false, false, "store_poisoned")
		fault.SetHook(nil)

		if err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
		want("closed", flue.Health{Damaged: 1, StorePoisoned: store.ErrPoisoned, Draining: true, Closing: true}, false, false, "store_poisoned, closing")
		disk.of = ""
		rt = open()
		want("begun anew", flue.Health{}, true, true, "ok")
		if err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The lease is as long as it is said to be: work stops after half of it.
func TestLeaseTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fault := faultstore.New(memstore.New())
		rt, err := flue.Open(t.Context(), flue.Config{Store: fault, LeaseTTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := rt.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		fault.RefuseRenewals(errors.New("no"))
		for _, tt := range []struct {
			after  time.Duration
			lapsed bool
		}{{400 * time.Millisecond, false}, {200 * time.Millisecond, true}} {
			time.Sleep(tt.after) // simulated
			if got := rt.Health(t.Context()).LeaseLapsed; got != tt.lapsed {
				t.Errorf("%v later the lease has lapsed: %v", tt.after, got)
			}
		}
		if rt, err := flue.Open(t.Context(), flue.Config{LeaseTTL: -1}); err == nil {
			t.Errorf("a runtime is opened with a lease that is over: %v", rt.Close(t.Context()))
		}
	})
}

func ExampleRuntime_Health() {
	rt, err := flue.Open(context.Background(), flue.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(rt.Health(context.Background()))
	if err := rt.Close(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(rt.Health(context.Background()))
	// Output:
	// ok
	// closing
}
