package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
)

// An Event tells an observer what happened to an instance. Events are told
// after the fact is durable, at least once, and in order for one instance.
type Event struct {
	Type       EventType
	Time       time.Time
	Instance   store.Address
	Submission string

	Attempt int    // attempt_started: its ordinal
	Reason  string // attempt_started, released, recovered: why
	Turn    string // turn_started and later ones of the same turn

	Model   string        // turn_started: provider/model
	Stop    string        // turn_done: how it ended
	Usage   model.Usage   // turn_done
	Call    string        // tool_*, log
	Tool    string        // tool_*, log
	Hook    string        // log: the hook whose callback logged
	Input   string        // tool_started: the arguments
	Text    string        // tool_done: what the model reads; text: what was streamed
	OK      bool          // tool_done: it did not fail
	Took    time.Duration // tool_done
	Log     *LogLine      // log
	Error   error         // turn_done, tool_done, settled: what went wrong; for this side only
	Outcome string        // settled
}

// EventType names what happened.
type EventType string

// The types of event.
const (
	EventAdmitted       EventType = "submission_queued"
	EventAttemptStarted EventType = "attempt_started"
	EventReleased       EventType = "attempt_released"
	EventRecovered      EventType = "recovered"
	EventTurnStarted    EventType = "turn_started"
	EventText           EventType = "text"
	EventTurnDone       EventType = "turn_done"
	EventToolStarted    EventType = "tool_started"
	EventToolDone       EventType = "tool_done"
	EventLog            EventType = "log"
	EventSettled        EventType = "submission_settled"
	EventDamaged        EventType = "instance_damaged"
)

// A LogLine is a line that a tool or a hook logged.
type LogLine struct {
	Level   slog.Level
	Message string
	Attrs   []slog.Attr
}

// callLog is a slog.Handler that turns records into events of one work.
type callLog struct {
	emit  func(LogLine)
	attrs []slog.Attr
	group string
}

func (h *callLog) Enabled(context.Context, slog.Level) bool { return true }

func (h *callLog) Handle(_ context.Context, r slog.Record) error {
	line := LogLine{Level: r.Level, Message: r.Message, Attrs: append([]slog.Attr(nil), h.attrs...)}
	r.Attrs(func(a slog.Attr) bool {
		line.Attrs = append(line.Attrs, h.qualify(a))
		return true
	})
	h.emit(line)
	return nil
}

func (h *callLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append([]slog.Attr(nil), h.attrs...)
	for _, a := range attrs {
		c.attrs = append(c.attrs, h.qualify(a))
	}
	return &c
}

func (h *callLog) WithGroup(name string) slog.Handler {
	c := *h
	if name != "" {
		c.group = h.group + name + "."
	}
	return &c
}

func (h *callLog) qualify(a slog.Attr) slog.Attr {
	a.Key = h.group + a.Key
	return a
}
