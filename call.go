package flue

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/flue-go/flue/internal/engine"
)

type workKey struct{}

func withWork(ctx context.Context, w *engine.Work) context.Context {
	return context.WithValue(ctx, workKey{}, w)
}

// workFrom returns the tool call or hook callback that ctx belongs to, or nil.
func workFrom(ctx context.Context) *engine.Work {
	w, _ := ctx.Value(workKey{}).(*engine.Work)
	return w
}

type watchKey struct{}

// watching is withWork for a callback that only looks on. It can log; what
// writes finds no work in its context.
func watching(ctx context.Context, w *engine.Work) context.Context {
	return context.WithValue(ctx, watchKey{}, w)
}

// watcher returns the callback that looks on and that ctx belongs to, or nil.
func watcher(ctx context.Context) *engine.Work {
	w, _ := ctx.Value(watchKey{}).(*engine.Work)
	return w
}

type stepKey struct{}

// inStep marks a context as that of a step.
func inStep(ctx context.Context) context.Context { return context.WithValue(ctx, stepKey{}, true) }

// writerFrom returns the work that ctx belongs to, if it may write state.
func writerFrom(ctx context.Context) (*engine.Work, error) {
	w := workFrom(ctx)
	switch {
	case w == nil:
		return nil, ErrNoCall
	case ctx.Value(stepKey{}) != nil:
		return nil, ErrInStep
	}
	return w, nil
}

// CallID returns the id of the tool call that ctx belongs to: the id that the
// conversation shows for the call. The model's provider chose it, so it is
// unique within a response only; see [CallKey]. It is empty if ctx is not that of
// a tool call.
func CallID(ctx context.Context) string {
	if w := workFrom(ctx); w != nil {
		return w.ID
	}
	return ""
}

// CallKey returns a key for the tool call that ctx belongs to, unique among all
// calls of all instances, and the same when a durable tool's call is run again.
// Pass it as the idempotency key to systems in which the call must act at most
// once. It is empty if ctx is not that of a tool call.
func CallKey(ctx context.Context) string {
	if w := workFrom(ctx); w != nil {
		return w.Key
	}
	return ""
}

// Epoch returns the number under which this process owns the instance that ctx's
// tool call or hook callback belongs to. It grows with every change of owner, so
// a system that keeps the highest one it has seen can refuse a process that was
// replaced and does not know it yet. It is zero if ctx belongs to neither.
func Epoch(ctx context.Context) int64 {
	if w := workFrom(ctx); w != nil {
		return w.Epoch
	}
	return 0
}

// Log returns a logger for the progress of the tool call or hook callback that
// ctx belongs to. Its lines become events that an observer sees; the model never
// does, and they are not stored. With any other ctx the lines go nowhere.
func Log(ctx context.Context) *slog.Logger {
	if w := cmp.Or(workFrom(ctx), watcher(ctx)); w != nil {
		return w.Log
	}
	return slog.New(slog.DiscardHandler)
}
