package engine

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
)

// An Event tells an observer what happened to an instance, or is happening.
// Which fields are set depends on the type. Texts are cut to [MaxEventText]
// bytes. The bytes of images and other attachments are in none of them, and
// nothing in them may be changed: observers share it.
type Event struct {
	Type       EventType
	Time       time.Time
	Instance   store.Address
	Submission string // the one that is being worked on, or that is concerned

	Origin      string // submission_queued, submission_running: how the message came, direct or dispatch
	Traceparent string // likewise: the W3C trace context of the sender, if it sent one
	Attempt     int    // submission_running, submission_recovery: its ordinal; turn_retry: failures in a row
	MaxAttempts int    // submission_running: how many in a row may achieve nothing
	Reason      string // submission_running, submission_recovery, attempt_released, instance_stalled, overloaded, tool of a call that did not end by itself: why

	Turn     string         // of the turn or of the call that it made
	Model    string         // turn_start, turn_request, turn: provider/model; model_fallback: the one to go on with; schema_reduced: the one that is told less
	Answered string         // turn: the model that answered, if it is another one
	Thinking model.Thinking // turn_start: the effort that was asked for
	Request  *model.Request // turn_request: what the model is shown, see ObserveOptions
	Omitted  int            // turn_request: how many of its oldest messages are left out
	Stop     string         // turn: how it ended
	Finish   string         // turn: the provider's own word for that
	First    time.Duration  // turn: from its start to the first piece of the answer
	Block    int            // text_delta, thinking_delta, toolcall_delta: which block of the answer

	Call  string // tool_start, tool, toolcall_delta, log
	Tool  string // likewise, and schema_reduced
	Hook  string // log: the hook whose callback logged
	Input string // tool_start: the arguments
	OK    bool   // tool: it did not fail
	Log   *LogLine

	Purpose     string               // message: why it is there; see journal.Purpose
	Signal      string               // message: the type of a signal, empty for a person's message
	Attachments []journal.Attachment // message: what came with it, without the bytes

	// Text is what was streamed (deltas), the whole text of the answer (turn),
	// what the model reads of a result (tool), or the body (message).
	Text string
	Cut  bool // a text is longer than the event shows

	// Took is how long it has taken (turn, tool, and submission_settled: since this
	// process took the submission up), or how long the runtime waits
	// (turn_retry, instance_stalled: has waited).
	Took time.Duration

	Usage      model.Usage              // turn; submission_settled: of all turns of the response
	Cost       model.Expense            // likewise
	Outcome    string                   // submission_settled
	AnsweredBy string                   // submission_settled: the submission whose response answers it
	Losses     []model.Loss             // schema_reduced: what the model cannot be told of the tool's arguments
	Budget     *journal.ExhaustedBudget // submission_settled: the limit that ended the response; turn_start: the one for which the turn is the last
	Dropped    int                      // events_dropped: how many
	Error      error                    // what went wrong; for this side only

	// compaction_start and compaction: how many tokens the next request has before
	// it, and how many messages the model is shown; the same after it, zero if
	// nothing was compacted. Reason says why it is made, Model who was asked for the
	// summary, Error why there is none, and Usage, Cost and Took what it took.
	TokensBefore, TokensAfter     int
	MessagesBefore, MessagesAfter int
}

// MaxEventText bounds each text of an event, in bytes.
const MaxEventText = 16 << 10

// EventType names what happened.
type EventType string

// The types of event. Where Flue has an event of the same meaning it has the same
// name.
const (
	EventAdmitted       EventType = "submission_queued"
	EventAttemptStarted EventType = "submission_running"
	EventReleased       EventType = "attempt_released"
	EventRecovered      EventType = "submission_recovery"
	EventSettled        EventType = "submission_settled"
	EventIdle           EventType = "idle"
	EventDamaged        EventType = "instance_damaged"
	EventStalled        EventType = "instance_stalled"
	EventLeaseLapsed    EventType = "lease_lapsed"  // of the process, as the next one
	EventLeaseRenewed   EventType = "lease_renewed" // after it had lapsed
	EventOverloaded     EventType = "overloaded"    // new messages are refused
	EventRelieved       EventType = "relieved"      // they are accepted again

	EventMessage EventType = "message"

	EventTurnStarted EventType = "turn_start"
	EventTurnRequest EventType = "turn_request"
	EventTurnRetry   EventType = "turn_retry"
	EventTurnDone    EventType = "turn"
	EventFallback    EventType = "model_fallback"

	EventSchemaReduced EventType = "schema_reduced"

	EventText          EventType = "text_delta"
	EventReasoning     EventType = "thinking_delta"
	EventToolArguments EventType = "toolcall_delta"

	EventToolStarted EventType = "tool_start"
	EventToolDone    EventType = "tool"
	EventLog         EventType = "log"

	EventCompactionStarted EventType = "compaction_start"
	EventCompacted         EventType = "compaction"

	EventDropped EventType = "events_dropped"
)

// isDelta reports whether events of the type are told while a model answers,
// many for each turn.
func (t EventType) isDelta() bool {
	return t == EventText || t == EventReasoning || t == EventToolArguments
}

// bound cuts the texts of the event to what an event may hold.
func (ev *Event) bound() {
	for _, text := range []*string{&ev.Text, &ev.Input} {
		if len(*text) > MaxEventText {
			*text, ev.Cut = head(*text, MaxEventText), true
		}
		*text = strings.ToValidUTF8(*text, "\uFFFD")
	}
}

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
