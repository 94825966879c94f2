package cli

import (
	"context"
	"errors"
	"log/slog"
)

// An untold is a log without what a person is told anyway: why the conversation
// that they wait for failed, in the words of the log. A cause that is kept from
// clients is logged.
type untold struct {
	slog.Handler
	own string // the instance
}

// Handle implements [slog.Handler].
func (h *untold) Handle(ctx context.Context, r slog.Record) error {
	if h.told(r) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h *untold) told(r slog.Record) bool {
	own, told := false, r.Message == "a model call failed" // the activity shows it
	r.Attrs(func(a slog.Attr) bool {
		switch err, ok := a.Value.Any().(error); {
		case a.Key == "instance":
			own = a.Value.String() == h.own
		case a.Key == "error" && ok && r.Message == "a submission failed":
			told = errors.Unwrap(err) == nil
		}
		return true
	})
	return own && told
}
