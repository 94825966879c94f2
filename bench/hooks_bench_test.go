package bench_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// stage opens a runtime with an agent of the given hooks, which the model
// answers at once.
func stage(b *testing.B, s store.Store, m instant, hooks func(r *flue.Render)) *flue.Instance {
	b.Helper()
	rt, err := flue.Open(context.Background(), flue.Config{
		Agents: []*flue.Agent{{Name: "bench", Render: func(r *flue.Render) string {
			flue.UseModel(r, "instant/m")
			hooks(r)
			return "Help customers."
		}}},
		Providers: providers(m), Store: s,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { shut(b, rt, s) })
	return rt.Instance("bench", "one")
}

// BenchmarkHooks is one message to its settlement on SQLite, for an agent
// without hooks that run code, with one of each, and with ten of each.
func BenchmarkHooks(b *testing.B) {
	for _, n := range []int{0, 1, 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			in := stage(b, openSQLite(b, filepath.Join(b.TempDir(), "bench.db")), instant{}, func(r *flue.Render) {
				count := flue.UsePersistentState(r, "count", 0)
				for range n {
					flue.UseResponseStart(r, func(context.Context, *flue.ResponseStart) (flue.Metadata, error) {
						return flue.Metadata{"began": true}, nil
					})
					flue.UseAgentStart(r, func(ctx context.Context, _ *flue.AgentStart) error {
						return count.Update(ctx, func(n int) int { return n + 1 })
					})
					flue.UseAgentFinish(r, func(context.Context, *flue.AgentFinish) error { return nil })
					flue.UseResponseFinish(r, func(context.Context, *flue.ResponseFinish) (flue.Metadata, error) { return nil, nil })
				}
			})
			for b.Loop() {
				prompt(b, in)
			}
		})
	}
}

// BenchmarkRender is a message on a store in memory for an agent that declares
// so many tools: what the runtime does with each render of them.
func BenchmarkRender(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var tools []*flue.ToolDefinition
			for i := range n {
				tools = append(tools, flue.NewTool(flue.Tool{Name: fmt.Sprintf("lookup_%d", i), Description: "Look an order up."},
					func(context.Context, lookupInput) (string, error) { return "shipped", nil }))
			}
			in := stage(b, memstore.New(), instant{}, func(r *flue.Render) {
				for _, t := range tools {
					flue.UseTool(r, t)
				}
			})
			for b.Loop() {
				prompt(b, in)
			}
		})
	}
}

// BenchmarkStep is one step of a durable tool, and BenchmarkData one value of a
// data part: each is durable on SQLite before the tool goes on.
func BenchmarkStep(b *testing.B) {
	inTool(b, func(r *flue.Render) func(ctx context.Context, step *flue.Step, i int) error {
		return func(ctx context.Context, step *flue.Step, i int) error {
			_, err := flue.Do(ctx, step, fmt.Sprint(i), func(context.Context) (int, error) { return i, nil })
			return err
		}
	})
}

func BenchmarkData(b *testing.B) {
	inTool(b, func(r *flue.Render) func(ctx context.Context, step *flue.Step, i int) error {
		progress := flue.UseDataWriter[int](r, "progress")
		return func(ctx context.Context, _ *flue.Step, i int) error { return progress.Write(ctx, i) }
	})
}

// inTool measures what a function does that a running tool calls.
func inTool(b *testing.B, use func(r *flue.Render) func(ctx context.Context, step *flue.Step, i int) error) {
	in := stage(b, openSQLite(b, filepath.Join(b.TempDir(), "bench.db")), instant{tools: true}, func(r *flue.Render) {
		do := use(r)
		flue.UseTool(r, flue.NewDurableTool(flue.Tool{Name: "lookup", Description: "Look an order up."},
			func(ctx context.Context, step *flue.Step, _ lookupInput) (string, error) {
				for i := 0; b.Loop(); i++ {
					if err := do(ctx, step, i); err != nil {
						return "", err
					}
				}
				return "done", nil
			}))
	})
	prompt(b, in)
}
