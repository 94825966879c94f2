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

// CallID returns the id of the tool call that ctx belongs to: the same id that
// the conversation shows for the call. Use it to tie what the call does in
// other systems to the call. It is empty if ctx is not that of a tool call.
func CallID(ctx context.Context) string {
	if c := callFrom(ctx); c != nil {
		return c.ID
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
