package flue

import (
	"context"
	"log/slog"

	"github.com/flue-go/flue/internal/engine"
)

type callKey struct{}

func withCall(ctx context.Context, c *engine.Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// callFrom returns the tool call that ctx belongs to, or nil.
func callFrom(ctx context.Context) *engine.Call {
	c, _ := ctx.Value(callKey{}).(*engine.Call)
	return c
}

// CallID returns the id of the tool call that ctx belongs to: the id that the
// conversation shows for the call. The model's provider chose it, so it is
// unique within a response only; see [CallKey]. It is empty if ctx is not that of
// a tool call.
func CallID(ctx context.Context) string {
	if c := callFrom(ctx); c != nil {
		return c.ID
	}
	return ""
}

// CallKey returns a key for the tool call that ctx belongs to, unique among all
// calls of all instances. Pass it as the idempotency key to systems in which the
// call must act at most once. It is empty if ctx is not that of a tool call.
func CallKey(ctx context.Context) string {
	if c := callFrom(ctx); c != nil {
		return c.Key
	}
	return ""
}

// Log returns a logger for the progress of the tool call that ctx belongs to.
// Its lines become events that an observer sees; the model never does, and they
// are not stored. If ctx is not that of a tool call the lines go nowhere.
func Log(ctx context.Context) *slog.Logger {
	if c := callFrom(ctx); c != nil {
		return c.Log
	}
	return slog.New(slog.DiscardHandler)
}
