package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// Of two calls side by side that write the same value, the first is killed
// before it returns and the second succeeds. The value must be there.
func TestSameWriteBesideAnInterruptedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.tools = []engine.Tool{w.tool("approve", func(ctx context.Context, c *engine.Work) engine.Result {
			if c.ID == "b" {
				time.Sleep(time.Second) // after a
			}
			if err := c.Set("approved", json.RawMessage("true")); err != nil {
				return engine.Result{Failed: true, Content: err.Error()}
			}
			if c.ID == "a" {
				<-ctx.Done()
			}
			return engine.Result{Content: "ok"}
		})}
		w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if _, results := asked(req); results > 0 {
				say(yield, "done")
				return
			}
			call(yield, "approve a", "approve b")
		}
		s := memstore.New()
		e := w.start(t, s)
		id := send(t, e, chat, "go")
		time.Sleep(2 * time.Second) // b has its outcome, a is at work
		s = s.Reopen()
		killed, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.Close(killed); err != nil {
			t.Fatal(err)
		}
		e = w.start(t, s)
		defer stop(t, e)
		settled(t, e, chat, id)
		st := &fold.State{Head: -1}
		for _, r := range records(t, s, chat) {
			if err := st.Apply(r); err != nil {
				t.Fatal(err)
			}
		}
		if got := string(st.Vars["approved"]); got != "true" {
			t.Errorf("a call succeeded in writing true, and the state is %q", got)
		}
	})
}

// addOne adds one to the number that is the state n.
func addOne(c *engine.Work) error {
	return c.Update("n", func(raw json.RawMessage) (json.RawMessage, error) {
		n := 0
		if raw != nil {
			if err := json.Unmarshal(raw, &n); err != nil {
				return nil, err
			}
		}
		return mustJSON(n + 1), nil
	})
}

// Of two calls side by side that count, the first is lost: killed with the
// process, or left behind when the response is aborted. What the second made of
// its write must not survive, so the second is lost as well.
func TestNoWriteStandsOnALostOne(t *testing.T) {
	for _, abort := range []bool{false, true} {
		t.Run(fmt.Sprintf("abort=%v", abort), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				forever := make(chan struct{})
				defer close(forever)
				w.tools = []engine.Tool{w.tool("count", func(ctx context.Context, c *engine.Work) engine.Result {
					if c.ID == "b" {
						time.Sleep(time.Second) // after a
					}
					if err := addOne(c); err != nil {
						return engine.Result{Failed: true, Content: err.Error()}
					}
					switch {
					case c.ID == "a" && abort:
						<-forever // ignores its context
					case c.ID == "a":
						<-ctx.Done()
					}
					return engine.Result{Content: "ok"}
				})}
				w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
					if _, results := asked(req); results > 0 {
						say(yield, "done")
						return
					}
					call(yield, "count a", "count b")
				}
				s := memstore.New()
				e := w.start(t, s)
				id := send(t, e, chat, "go")
				time.Sleep(2 * time.Second) // b has returned, a is at work
				if abort {
					if _, err := e.Abort(t.Context(), chat); err != nil {
						t.Fatal(err)
					}
					settled(t, e, chat, id)
					forever <- struct{}{}
				} else {
					s = s.Reopen()
					killed, cancel := context.WithCancel(t.Context())
					cancel()
					if err := e.Close(killed); err != nil {
						t.Fatal(err)
					}
					e = w.start(t, s)
					settled(t, e, chat, id)
				}
				defer stop(t, e)
				st := &fold.State{Head: -1}
				ok := 0
				for _, r := range records(t, s, chat) {
					if err := st.Apply(r); err != nil {
						t.Fatal(err)
					}
					if o, is := r.(*journal.Outcome); is && !o.Failed {
						ok++
					}
				}
				if got := string(st.Vars["n"]); got != "" || ok != 0 {
					t.Errorf("%d calls succeeded and n is %q, want none and nothing", ok, got)
				}
			})
		})
	}
}

// The last value of a name is all that a call stores, however often it writes.
func TestRepeatedWritesAreStoredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.tools = []engine.Tool{w.tool("count", func(_ context.Context, c *engine.Work) engine.Result {
			for i := range 100 {
				if err := c.Update("n", func(json.RawMessage) (json.RawMessage, error) { return mustJSON(i), nil }); err != nil {
					return engine.Result{Failed: true, Content: err.Error()}
				}
			}
			return engine.Result{Content: "ok"}
		})}
		w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if _, results := asked(req); results == 0 {
				call(yield, "count c1")
				return
			}
			say(yield, "done")
		}
		s := memstore.New()
		e := w.start(t, s)
		defer stop(t, e)
		settled(t, e, chat, send(t, e, chat, "go"))
		for _, r := range records(t, s, chat) {
			if o, ok := r.(*journal.Outcome); ok && (len(o.Writes) != 1 || string(o.Writes[0].Value) != "99") {
				t.Errorf("the outcome stores %d writes", len(o.Writes))
			}
		}
	})
}

// A tool or render that ends its goroutine ends its call, not the conversation.
func TestGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.tools = []engine.Tool{w.tool("leave", func(context.Context, *engine.Work) engine.Result { runtime.Goexit(); return engine.Result{} })}
		w.render = func(v engine.View) (*engine.Plan, error) {
			if v.Delivery.Body == "render" {
				runtime.Goexit()
			}
			return &engine.Plan{Settings: journal.Settings{Model: "test/m"}, Tools: w.tools}, nil
		}
		w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if text, results := asked(req); text == "tool" && results == 0 {
				call(yield, "leave c1")
				return
			}
			say(yield, "fine")
		}
		e := w.start(t, memstore.New())
		defer stop(t, e)
		began := time.Now()
		for body, want := range map[string]string{"tool": "completed", "render": "failed", "other": "completed"} {
			if got := settled(t, e, chat, send(t, e, chat, body)); got != want {
				t.Errorf("%s settled %s, want %s", body, got, want)
			}
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// A store that fails twice in a row strands nothing.
func TestStoreFailsWhileTakenUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply = echo
		fs := &failingTake{Store: faultstore.New(memstore.New())}
		fs.Store.Fail(2, faultstore.Before)
		e := w.start(t, fs)
		defer stop(t, e)
		if got := settled(t, e, chat, send(t, e, chat, "hi")); got != "completed" {
			t.Errorf("settled %s", got)
		}
		if fs.failed.Load() != 2 {
			t.Errorf("Take failed %d times, want 2", fs.failed.Load())
		}
	})
}

// failingTake fails the first two times that an instance is taken.
type failingTake struct {
	*faultstore.Store
	failed atomic.Int32
}

func (f *failingTake) Take(ctx context.Context, node string, addr store.Address) (store.Lease, error) {
	if f.failed.Load() < 2 {
		f.failed.Add(1)
		return store.Lease{}, faultstore.ErrInjected
	}
	return f.Store.Take(ctx, node, addr)
}
