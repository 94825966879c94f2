package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// Processes on one store are killed, end in order and lose their leases, by chance, while
// calls fail and signals are lost, and have room for little. Each message that was
// accepted is settled once, and no call of a tool is run twice. FLUE_STORMS says
// how many storms there are, and FLUE_SEED which is the first.
func TestSharedStorm(t *testing.T) {
	storms, first := stormsWanted(t, 20), seedOf(t)
	for i := range storms {
		synctest.Test(t, func(t *testing.T) { sharedStorm(t, first+uint64(i)) })
		if t.Failed() {
			t.Fatalf("in the storm of FLUE_SEED=%d", first+uint64(i))
		}
	}
}

func sharedStorm(t *testing.T, seed uint64) {
	const conversations = 6
	rng := rand.New(rand.NewPCG(seed, 3))
	durable := memstore.New()
	w := newWorld()
	w.concurrent, w.backlog = 2, 4
	w.tools = []engine.Tool{w.tool("work", func(ctx context.Context, _ *engine.Work) engine.Result {
		pause(ctx, 400*time.Millisecond)
		return engine.Result{Content: "ok"}
	})}
	w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
		text, results := asked(req)
		switch {
		case !pause(ctx, 200*time.Millisecond):
		case strings.HasPrefix(text, "work") && results == 0:
			call(yield, "work "+strings.ReplaceAll(text, " ", "-"))
		default:
			say(yield, "done with "+text)
		}
	}
	lives := 0
	join := func() *node {
		n := &node{world: w, name: fmt.Sprint("n", lives), fs: faultstore.New(durable)}
		lives++
		n.fs.SetSignals(faultstore.Signals{Lost: 0.3, Twice: 0.2, Late: 300 * time.Millisecond})
		e, err := engine.Open(context.Background(), engine.Config{
			Store: n.fs, Programs: map[string]engine.Program{"chat": w}, Models: w, Observe: w.observe, Node: n.name, Log: testLog(),
			Concurrent: w.concurrent, Backlog: w.backlog,
		})
		if err != nil {
			t.Fatal(err)
		}
		n.e = e
		n.fs.Storm(rng.Uint64(), 0.02)
		return n
	}
	nodes := []*node{join(), join(), join()}
	accepted := make(map[store.Address][]string)
	for i, began := 0, time.Now(); time.Since(began) < 90*time.Second; i++ {
		addr := store.Address{Agent: "chat", ID: fmt.Sprint("s", rng.IntN(conversations))}
		at := rng.IntN(len(nodes))
		n := nodes[at]
		switch rng.IntN(40) {
		case 0:
			n.kill(t)
			nodes[at] = join()
		case 1:
			n.e.Retire()
			time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Second)))) // simulated
			n.e.Stop()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_ = n.e.Close(ctx) // what does not stop is left behind
			cancel()
			n.fs.CrashNow()
			nodes[at] = join()
		case 2:
			n.fs.RefuseRenewals(faultstore.ErrInjected)
			time.AfterFunc(time.Duration(rng.Int64N(int64(15*time.Second))), func() { n.fs.RefuseRenewals(nil) })
		case 3, 4:
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = n.e.Abort(ctx, addr)
			cancel()
		default:
			body := fmt.Sprint([]string{"work", "say"}[rng.IntN(2)], " ", i)
			id := engine.NewSubmissionID()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := n.e.Admit(ctx, engine.Admission{
				Address: addr, Submission: id, Identity: []byte(body), Origin: "direct", Message: journal.Message{Kind: journal.User, Body: body},
			})
			cancel()
			if err == nil {
				accepted[addr] = append(accepted[addr], id)
			}
		}
		time.Sleep(time.Duration(rng.Int64N(int64(500 * time.Millisecond)))) // simulated
	}
	for _, n := range nodes {
		n.fs.RefuseRenewals(nil)
		n.fs.Calm()
		n.fs.Flush()
	}
	const most = 2 * time.Minute
	for calm := time.Now(); ; time.Sleep(200 * time.Millisecond) { // simulated
		open, err := durable.Unowned(t.Context(), 1000)
		for addr := range accepted {
			if in, err := durable.Instance(t.Context(), addr); err == nil {
				open += in.Unsettled
			}
		}
		if err == nil && open == 0 {
			break
		}
		if time.Since(calm) > most {
			t.Errorf("%d are not settled %v after the storm, %v", open, most, err)
			break
		}
	}
	stopAll(t, nodes)
	messages := 0
	for addr, ids := range accepted {
		times := make(map[string]int)
		for _, r := range records(t, durable, addr) {
			if s, ok := r.(*journal.Settled); ok {
				times[s.Submission]++
			}
		}
		for _, id := range ids {
			if messages++; times[id] != 1 {
				t.Errorf("%s of %s was settled %d times", id, addr, times[id])
			}
		}
	}
	for _, effect := range w.did() {
		if n := w.count(effect); n > 1 {
			t.Errorf("%s was done %d times", effect, n)
		}
	}
	if messages < 20 {
		t.Errorf("only %d messages were accepted", messages)
	}
}
