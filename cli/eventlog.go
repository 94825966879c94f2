package cli

import (
	"context"
	"log/slog"

	"github.com/flue-go/flue"
)

// An eventLog writes what agents do to the log, without what was said: no
// message, argument or result.
type eventLog struct{ log *slog.Logger }

func (l eventLog) observe(ev flue.Event) {
	level, msg := slog.LevelDebug, string(ev.Type)
	at := []slog.Attr{slog.String("instance", ev.Instance.String()), slog.String("submission", ev.Submission)}
	switch ev.Type {
	case flue.EventAdmitted:
		level, msg = slog.LevelInfo, "message accepted"
	case flue.EventAttemptStarted:
		if ev.Attempt > 1 {
			level, msg = slog.LevelInfo, "interrupted work resumed"
		}
		at = append(at, slog.Int("attempt", ev.Attempt), slog.String("reason", ev.Reason))
	case flue.EventReleased:
		level, msg = slog.LevelInfo, "work left to the next start"
	case flue.EventTurnStarted:
		at = append(at, slog.String("turn", ev.Turn), slog.String("model", ev.Model))
		at = append(at, usedUp(ev)...)
	case flue.EventTurnRetry:
		level, msg = slog.LevelInfo, "model call is made again"
		at = append(at, slog.Int("failures", ev.Attempt), slog.Duration("wait", ev.Took), slog.Any("error", ev.Error))
	case flue.EventFallback:
		at = append(at, slog.String("model", ev.Model), slog.String("reason", ev.Reason))
	case flue.EventMessage:
		at = append(at, slog.String("purpose", ev.Purpose), slog.String("signal", ev.Signal), slog.Int("attachments", len(ev.Attachments)))
	case flue.EventTurnDone:
		at = append(at, slog.String("turn", ev.Turn), slog.String("stop", ev.Stop), slog.Int("tokens", ev.Usage.Total()), slog.Duration("took", ev.Took))
		at = append(at, dollars(ev)...)
		if ev.Error != nil {
			level, msg = slog.LevelWarn, "model call failed"
			at = append(at, slog.Any("error", ev.Error))
		}
	case flue.EventCompacted: // why one could not be is in the runtime's own log
		at = append(at, slog.String("reason", ev.Reason), slog.String("model", ev.Model), slog.Int("tokens", ev.Usage.Total()), slog.Duration("took", ev.Took))
		at = append(at, dollars(ev)...)
		if ev.Error != nil {
			at = append(at, slog.Any("error", ev.Error))
		}
	case flue.EventToolStarted:
		at = append(at, slog.String("turn", ev.Turn), slog.String("tool", ev.Tool), slog.String("call", ev.Call))
	case flue.EventToolDone:
		at = append(at, slog.String("turn", ev.Turn), slog.String("tool", ev.Tool), slog.String("call", ev.Call), slog.Bool("ok", ev.OK), slog.Duration("took", ev.Took))
	case flue.EventLog:
		l.tool(ev, at)
		return
	case flue.EventSettled:
		level, msg = slog.LevelInfo, "message settled"
		at = append(at, slog.String("outcome", ev.Outcome), slog.Int("tokens", ev.Usage.Total()), slog.Duration("took", ev.Took))
		at = append(at, usedUp(ev)...)
	case flue.EventDropped:
		level, msg = slog.LevelWarn, "events were left out of this log"
		at = []slog.Attr{slog.Int("events", ev.Dropped)}
	case flue.EventIdle, flue.EventDamaged, flue.EventStalled, flue.EventSchemaReduced,
		flue.EventLeaseLapsed, flue.EventLeaseRenewed, flue.EventOverloaded, flue.EventRelieved: // but for the first, they are in the runtime's own log
		return
	}
	l.log.LogAttrs(context.Background(), level, msg, at...)
}

// dollars tells what model calls have cost, if that is known, and otherwise an
// estimate.
func dollars(ev flue.Event) []slog.Attr {
	switch {
	case ev.Cost.Known():
		return []slog.Attr{slog.Float64("dollars", ev.Cost.Dollars)}
	case ev.Cost.AtMost > 0:
		return []slog.Attr{slog.Float64("dollarsAtMost", ev.Cost.AtMost)}
	}
	return nil
}

// usedUp names the limit of a budget that ends a response.
func usedUp(ev flue.Event) []slog.Attr {
	if ev.Budget == nil {
		return nil
	}
	return []slog.Attr{slog.String("budget", ev.Budget.String())}
}

// tool writes a line that a tool has logged, at its own level.
func (l eventLog) tool(ev flue.Event, at []slog.Attr) {
	at = append(at, slog.String("tool", ev.Tool), slog.String("call", ev.Call))
	for _, a := range ev.Log.Attrs {
		at = append(at, slog.Attr{Key: "tool." + a.Key, Value: a.Value})
	}
	l.log.LogAttrs(context.Background(), ev.Log.Level, ev.Log.Message, at...)
}
