package cli

import (
	"fmt"
	"io"
	"log/slog"
)

// logging is how the log is written.
type logging struct {
	level  slog.Level
	format string
}

func (l logging) validate() error {
	if l.format != "text" && l.format != "json" {
		return fmt.Errorf("--log-format %q: use text or json", l.format)
	}
	return nil
}

func (l logging) handler(w io.Writer) slog.Handler {
	o := &slog.HandlerOptions{Level: l.level}
	if l.format == "json" {
		return slog.NewJSONHandler(w, o)
	}
	return slog.NewTextHandler(w, o)
}
