package flue

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/flue-go/flue/internal/engine"
)

// An Event tells an observer what happened, or is happening. Which fields are set
// depends on its Type; docs/events.md has a table of them.
type Event = engine.Event

// A LogLine is a line that a tool or a hook logged; see [Log].
type LogLine = engine.LogLine

// EventType names what an [Event] tells.
type EventType = engine.EventType

// A SummaryError is the error of an [EventCompacted] that tells that no summary could
// be had: of which models, what to do about it, and when the next is asked for.
type SummaryError = engine.SummaryError

// MaxEventText bounds each text of an [Event], in bytes. One that is longer is
// cut, which Cut says.
const MaxEventText = engine.MaxEventText

// The types of event.
const (
	EventAdmitted       = engine.EventAdmitted       // a submission was accepted
	EventAttemptStarted = engine.EventAttemptStarted // a try at it began; Reason says why when it is not the first
	EventReleased       = engine.EventReleased       // a try was given up because the runtime closes
	EventRecovered      = engine.EventRecovered      // work that was interrupted is taken up; Reason says how
	EventSettled        = engine.EventSettled        // a submission ended
	EventIdle           = engine.EventIdle           // an instance has nothing left to do
	EventDamaged        = engine.EventDamaged        // an instance's journal cannot be continued
	EventStalled        = engine.EventStalled        // work comes no further; told again as long as that lasts
	EventLeaseLapsed    = engine.EventLeaseLapsed    // this process could not renew its lease, and its work has stopped; of no instance
	EventLeaseRenewed   = engine.EventLeaseRenewed   // the lease is renewed after that, and the work goes on; of no instance
	EventOverloaded     = engine.EventOverloaded     // new messages are refused, because there is more to do than the process can take on; of no instance
	EventRelieved       = engine.EventRelieved       // they are accepted again after that; of no instance

	EventMessage = engine.EventMessage // a message entered the conversation

	EventTurnStarted = engine.EventTurnStarted // a model call began
	EventTurnRequest = engine.EventTurnRequest // what the model is shown; only if it was asked for
	EventTurnRetry   = engine.EventTurnRetry   // a model call failed and is made again after Took
	EventTurnDone    = engine.EventTurnDone    // the model call ended
	EventFallback    = engine.EventFallback    // a model failed, and the next of its fallbacks takes its place

	EventSchemaReduced = engine.EventSchemaReduced // a model is told less of a tool's arguments than they are checked for; once for each tool and provider

	EventText          = engine.EventText          // the model wrote text; like the next two only if deltas were asked for
	EventReasoning     = engine.EventReasoning     // the model reasoned
	EventToolArguments = engine.EventToolArguments // the model wrote a piece of a call's arguments

	EventToolStarted = engine.EventToolStarted // a tool call began
	EventToolDone    = engine.EventToolDone    // a tool call has its outcome
	EventLog         = engine.EventLog         // a tool or a hook logged a line

	EventCompactionStarted = engine.EventCompactionStarted // the older part of a conversation is about to be summarized for the model
	EventCompacted         = engine.EventCompacted         // it has been, or Error says why it could not be

	EventDropped = engine.EventDropped // the observer was too slow for so many events as Dropped says
)

// ObserveOptions says which events an observer gets. The zero value stands for
// those of all instances, without deltas and requests.
type ObserveOptions = engine.ObserveOptions

// Observe returns what happens in this runtime from now on, in all instances or in
// those that the options name:
//
//	for ev := range rt.Observe(ctx, flue.ObserveOptions{}) {
//		if ev.Type == flue.EventSettled && ev.Outcome == "failed" {
//			log.Printf("%s of %s has failed: %v", ev.Submission, ev.Instance, ev.Error)
//		}
//	}
//
// It subscribes before it returns, so that nothing is missed that happens before
// the loop. The loop ends when ctx ends, or when the runtime is closed and all is
// told. It can run once. To leave it unsubscribes.
//
// All events but deltas are told after what they tell is durable; the events of
// one instance come in order. No work waits for an observer. Events that do not
// fit into its buffer are dropped, and an EventDropped in their place says how
// many. Events are for the process that does the work: another one that shares
// the store sees its own only, and nobody sees those of the past.
func (rt *Runtime) Observe(ctx context.Context, o ObserveOptions) iter.Seq[Event] {
	return rt.engine.Observe(ctx, o)
}

// observed is the goroutine that calls Config.Observe.
type observed struct {
	done    chan struct{} // closed when it has ended; nil if there is none
	stop    context.CancelFunc
	panics  int
	log     *slog.Logger
	observe func(Event)
}

func (o *observed) start(e *engine.Engine, observe func(Event), log *slog.Logger) {
	if observe == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	o.observe, o.log, o.stop, o.done = observe, log, stop, make(chan struct{})
	events := e.Observe(ctx, ObserveOptions{})
	go func() {
		defer close(o.done)
		for ev := range events {
			o.call(ev)
		}
	}()
}

// loggedPanics bounds how often it is logged that an observer panics.
const loggedPanics = 10

func (o *observed) call(ev Event) {
	defer func() {
		if p := recover(); p != nil {
			if o.panics++; o.panics <= loggedPanics {
				o.log.Error("the observer panicked; work goes on", "event", string(ev.Type), "panic", p, "stack", string(debug.Stack()))
			}
		}
	}()
	o.observe(ev)
}

// How long an observer may take for what it has not been told when the runtime
// closes: until the context of the closing ends, within these bounds.
const (
	minObservePatience = 2 * time.Second
	maxObservePatience = 10 * time.Second
)

// wait returns when the observer has been told everything. One that does not come
// to an end is left behind: it gets no further event.
func (o *observed) wait(ctx context.Context) error {
	if o.done == nil {
		return nil
	}
	defer o.stop()
	least, most := time.NewTimer(minObservePatience), time.NewTimer(maxObservePatience)
	defer least.Stop()
	defer most.Stop()
	var ended <-chan struct{}
	for {
		select {
		case <-o.done:
			return nil
		case <-least.C:
			ended = ctx.Done()
			continue
		case <-most.C:
		case <-ended:
		}
		return errors.New("flue: closing the runtime: Config.Observe has not returned and is left behind")
	}
}
