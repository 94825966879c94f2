package bench_test

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/sqlite"
)

// instant is a model that answers at once, so that what is measured is the
// runtime. With tools it first calls one.
type instant struct{ tools bool }

func (m instant) Stream(_ context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if m.tools && req.Messages[len(req.Messages)-1].Role == model.RoleUser {
			b := model.Block{Kind: model.ToolCall, CallID: "call", Name: "lookup", Arguments: `{"id":"A1"}`}
			_ = yield(model.BlockDone{Block: b}, nil) && yield(model.Done{Stop: model.StopToolUse}, nil)
			return
		}
		const text = "Your order has been shipped and arrives on Friday."
		_ = yield(model.Delta{Kind: model.Text, Text: text}, nil) &&
			yield(model.BlockDone{Block: model.Block{Kind: model.Text, Text: text}}, nil) &&
			yield(model.Done{Stop: model.StopEnd}, nil)
	}
}

type lookupInput struct {
	ID string `json:"id"`
}

var lookup = flue.NewTool(flue.Tool{Name: "lookup", Description: "Look an order up."}, func(context.Context, lookupInput) (string, error) {
	return "shipped", nil
})

func agent(r *flue.Render) string {
	flue.UseModel(r, "instant/m")
	flue.UseTool(r, lookup)
	return "Help customers."
}

func openSQLite(b testing.TB, path string) store.Store {
	b.Helper()
	s, err := sqlite.Open(context.Background(), path, sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func open(b testing.TB, s store.Store, m model.Provider) *flue.Runtime {
	b.Helper()
	rt, err := flue.Open(context.Background(), flue.Config{
		Agents: []*flue.Agent{{Name: "bench", Render: agent}}, Providers: providers(m), Store: s,
	})
	if err != nil {
		b.Fatal(err)
	}
	return rt
}

func providers(m model.Provider) map[string]model.Provider {
	return map[string]model.Provider{"instant": m}
}

func shut(b testing.TB, rt *flue.Runtime, s store.Store) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := rt.Close(ctx); err != nil {
		b.Error(err)
	}
	if err := s.Close(); err != nil {
		b.Error(err)
	}
}

func prompt(b testing.TB, in *flue.Instance) {
	r, err := in.Dispatch(context.Background(), flue.User("Where is my order?"))
	if err == nil {
		_, err = in.Read(context.Background(), r.Submission)
	}
	if err != nil {
		b.Error(err)
	}
}

// BenchmarkPrompt is one message to its settlement, in process, on SQLite with
// full durability, with so many conversations at once.
func BenchmarkPrompt(b *testing.B) {
	for _, kind := range []string{"text", "tool"} {
		for _, conversations := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprintf("%s/%d", kind, conversations), func(b *testing.B) {
				s := openSQLite(b, filepath.Join(b.TempDir(), "bench.db"))
				rt := open(b, s, instant{tools: kind == "tool"})
				defer shut(b, rt, s)
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				b.ReportAllocs()
				b.ResetTimer()
				for c := range conversations {
					wg.Go(func() {
						in := rt.Instance("bench", fmt.Sprint("c", c))
						for left.Add(-1) >= 0 {
							prompt(b, in)
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "prompts/s")
			})
		}
	}
}

// BenchmarkTurn is one message after so many others in the same conversation.
// The store is in memory, so that what grows, if anything does, is the runtime's
// own work.
func BenchmarkTurn(b *testing.B) {
	for _, turns := range []int{1, 100, 1000, 10_000} {
		b.Run(fmt.Sprint(turns), func(b *testing.B) {
			s := memstore.New()
			rt := open(b, s, instant{})
			defer shut(b, rt, s)
			in := rt.Instance("bench", "long")
			for range turns {
				prompt(b, in)
			}
			b.ReportAllocs()
			for b.Loop() {
				prompt(b, in)
			}
		})
	}
}

// BenchmarkColdTurn is the first message to a conversation of so many turns
// after a restart: the journal is read from SQLite and folded.
func BenchmarkColdTurn(b *testing.B) {
	for _, turns := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(turns), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "bench.db")
			s := openSQLite(b, path)
			rt := open(b, s, instant{})
			for range turns {
				prompt(b, rt.Instance("bench", "long"))
			}
			shut(b, rt, s)
			for b.Loop() {
				b.StopTimer()
				s = openSQLite(b, path)
				rt = open(b, s, instant{})
				b.StartTimer()
				prompt(b, rt.Instance("bench", "long"))
				b.StopTimer()
				shut(b, rt, s)
				b.StartTimer()
			}
		})
	}
}

// BenchmarkOpen is what stands between the start of a process and its first
// answer: opening the store and the runtime.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "bench.db")
	for b.Loop() {
		s := openSQLite(b, path)
		rt := open(b, s, instant{})
		shut(b, rt, s)
	}
}

// BenchmarkIdleConversations reports what ten thousand conversations that are
// not active hold in memory.
func BenchmarkIdleConversations(b *testing.B) {
	const conversations = 10_000
	for b.Loop() {
		s := openSQLite(b, filepath.Join(b.TempDir(), "bench.db"))
		rt := open(b, s, instant{})
		before := heap()
		work := make(chan int)
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for i := range work {
					prompt(b, rt.Instance("bench", fmt.Sprint("c", i)))
				}
			})
		}
		for i := range conversations {
			work <- i
		}
		close(work)
		wg.Wait()
		b.ReportMetric(float64(heap()-before)/(1<<20), "MB/10k-idle")
		shut(b, rt, s)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
