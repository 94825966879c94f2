package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// What an idle instance is taken to hold is what it holds, more or less, whatever
// it is made of. The budget of those that stay in memory is counted in it.
func TestIdleSize(t *testing.T) {
	for _, tt := range []struct {
		name  string
		body  int // bytes of a message
		tools int
	}{
		{"short messages", 20, 0},
		{"long messages", 4000, 0},
		{"calls", 200, 1},
		{"many tools", 20, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := memstore.New()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.every = 64
				for i := range tt.tools {
					tool := w.tool(fmt.Sprint("work", i), func(_ context.Context, c *engine.Work) engine.Result {
						return engine.Result{Content: strings.Repeat("r", tt.body)}
					})
					tool.Spec.Description = strings.Repeat("what it does ", 20)
					w.tools = append(w.tools, tool)
				}
				w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
					if _, results := asked(req); tt.tools == 1 && results < 3 {
						call(yield, fmt.Sprintf("work0 c%d {\"n\":1}", len(req.Messages)))
						return
					}
					say(yield, strings.Repeat("answer", tt.body/6+1))
				}
				e := w.start(t, s)
				for i := range 100 {
					settled(t, e, chat, send(t, e, chat, fmt.Sprint(i, strings.Repeat(" m", tt.body/2))))
				}
				stop(t, e)
			})
			for _, shown := range []bool{false, true} {
				before := heap()
				counted := 0
				var keep []func()
				for range 10 {
					n, k, err := engine.Held(t.Context(), s, chat, shown)
					if err != nil {
						t.Fatal(err)
					}
					counted += n
					keep = append(keep, k)
				}
				held := int(heap() - before)
				for _, k := range keep {
					k()
				}
				t.Logf("shown to the model %v: %d bytes are held, %d counted", shown, held/10, counted/10)
				if counted < held*2/3 || counted > held*2 {
					t.Errorf("shown to the model %v: %d bytes are held, %d counted", shown, held/10, counted/10)
				}
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The conversation that was used last stays in memory, however large it is; of
// others only those that the budget has room for.
func TestLastOneStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply, w.every, w.cache = echo, -1, 1
		s := &counted{Store: memstore.New()}
		e := w.start(t, s)
		defer stop(t, e)
		reads := func() int {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.whole
		}
		// Who looks for work may be quicker than who has sent the first message, and
		// reads it from the journal.
		settled(t, e, chat, send(t, e, chat, "hello"))
		first := reads()
		for range 5 {
			settled(t, e, chat, send(t, e, chat, "hello"))
		}
		if n := reads() - first; n > 0 {
			t.Errorf("its journal was read %d times", n)
		}
		synctest.Wait() // until it rests
		other := store.Address{Agent: "chat", ID: "other"}
		settled(t, e, other, send(t, e, other, "hello"))
		synctest.Wait()
		before := reads()
		settled(t, e, chat, send(t, e, chat, "hello"))
		if n := reads() - before; n != 1 {
			t.Errorf("behind another one its journal was read %d times, want once", n)
		}
	})
}
