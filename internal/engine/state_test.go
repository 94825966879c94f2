package engine_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store/memstore"
)

// Of two calls side by side that write the same value, the first is killed
// before it returns and the second succeeds. The value must be there.
func TestSameWriteBesideAnInterruptedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.tools = []engine.Tool{w.tool("approve", func(ctx context.Context, c *engine.Call) engine.Result {
			if c.ID == "b" {
				time.Sleep(time.Second) // after a
			}
			err := c.Update("approved", func(json.RawMessage) (json.RawMessage, error) { return json.RawMessage("true"), nil })
			if err != nil {
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
