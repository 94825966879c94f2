package flue

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/schema"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/wire"
)

// Usage counts tokens.
type Usage = model.Usage

// Expense is what model calls have cost, as far as that is known.
type Expense = model.Expense

// AgentStart is what the callback of [UseAgentStart] works with.
type AgentStart struct {
	// Step makes parts of the callback durable; see [Do].
	Step *Step

	work *engine.Work
}

// Append adds a signal to the response, which the model reads after the message
// that is being started. It is no delivery: no start hook runs for it. It fails
// for anything but a valid signal, and once the callback has returned.
func (s *AgentStart) Append(m Message) error { return appendSignal(s.work, m) }

// UseAgentStart runs fn when the agent starts to work on a delivered message:
// once for each, also for those that join a live response, before the model
// reads it. All of a message's callbacks run side by side and the model waits for
// the slowest. Never rely on what another callback writes; work that needs an
// order belongs in one.
//
// What fn appends, writes to the state and shows to clients lands at once, with
// that of the other callbacks and with the message, in the order of the hooks'
// declaration. If the process dies before that, nothing of it was ever there and
// all callbacks run again: give external systems an idempotency key, or use
// [AgentStart.Step]. An error fails the submission.
func UseAgentStart(r *Render, fn func(ctx context.Context, s *AgentStart) error) {
	const hook = "UseAgentStart"
	r.enterEvent(hook, fn == nil)
	r.start = append(r.start, engine.Hook{Name: hook, Run: func(ctx context.Context, w *engine.Work) error {
		return fn(withWork(ctx, w), &AgentStart{Step: &Step{work: w}, work: w})
	}})
}

// AgentFinish is what the callback of [UseAgentFinish] works with.
type AgentFinish struct {
	// ToolCalls are all calls that the response has made, over all turns and
	// attempts, and Usage is what it has used so far. Cost is what that cost, at
	// the prices of Config.Catalog.
	ToolCalls []ResponseToolCall
	Usage     Usage
	Cost      Expense

	// Budget is the limit that ends the response, or nil; see [UseBudget]. If one
	// does, what is appended does not send the model back to work: it reads it in
	// the next response.
	Budget *ExhaustedBudget

	work *engine.Work
}

// A ResponseToolCall is a tool call that a response has made.
type ResponseToolCall struct {
	Tool   string
	Failed bool
}

// Append sends the model back to work in the same response: it is called again,
// with the signal in front of it. It fails for anything but a valid signal, and
// once the callback has returned. A person's message is real new input: send it
// with the function of [UseDispatchMessage].
func (f *AgentFinish) Append(m Message) error { return appendSignal(f.work, m) }

// UseAgentFinish runs fn when the model has no more calls to make and the
// response is about to end. It may look at what was done, and send the model
// back to work with [AgentFinish.Append]; when the model is done again, the hooks
// run again. The response ends when all hooks have run, in the order of their
// declaration and one after another, and none has appended. Messages that wait
// join the response before its hooks run.
//
// One response may be continued 32 times; after that the submission fails rather
// than pass for a success. What the hooks of one round have made lands at once.
// If the process dies before that they run again, and a round that has landed
// never does. An error fails the submission.
func UseAgentFinish(r *Render, fn func(ctx context.Context, f *AgentFinish) error) {
	const hook = "UseAgentFinish"
	r.enterEvent(hook, fn == nil)
	r.finish = append(r.finish, engine.Hook{Name: hook, Run: func(ctx context.Context, w *engine.Work) error {
		return fn(withWork(ctx, w), &AgentFinish{ToolCalls: toolCalls(w), Usage: Usage(w.Response.Usage), Cost: engine.Expense(w.Response.Cost), Budget: w.Response.Budget, work: w})
	}})
}

// Metadata is what hooks attach to a response's message for clients to see. The
// model never does.
type Metadata = map[string]any

// ResponseStart is what the callback of [UseResponseStart] looks at.
type ResponseStart struct {
	// Metadata is what hooks declared before this one have attached.
	Metadata Metadata
}

// UseResponseStart runs fn once for each response, before its first model call
// and before the callbacks of [UseAgentStart]. Messages that join the response do
// not run it again. What fn returns is merged into the metadata of the response's
// message: objects member by member, everything else replaced by what comes
// later. The names __proto__, constructor and prototype are dropped. It may be
// nil.
//
// It is for quick looks: fn gets no way to steer the response, and writes of state,
// data and messages with its context fail. An error fails the submission.
func UseResponseStart(r *Render, fn func(ctx context.Context, s *ResponseStart) (Metadata, error)) {
	const hook = "UseResponseStart"
	r.enterEvent(hook, fn == nil)
	r.responseStart = append(r.responseStart, observer(hook, func(ctx context.Context, w *engine.Work, so Metadata) (Metadata, error) {
		return fn(ctx, &ResponseStart{Metadata: so})
	}))
}

// ResponseFinish is what the callback of [UseResponseFinish] looks at.
type ResponseFinish struct {
	// Metadata is what has been attached to the response so far, by hooks of its
	// start and by those declared before this one.
	Metadata Metadata

	// ToolCalls are all calls that the response has made, and Usage is what it
	// has used. Cost is what that cost, at the prices of Config.Catalog. All are
	// final.
	ToolCalls []ResponseToolCall
	Usage     Usage
	Cost      Expense

	// Budget is the limit that ends the response, or nil; see [UseBudget].
	Budget *ExhaustedBudget
}

// UseResponseFinish runs fn once for each response, at its real end: the hooks of
// [UseAgentFinish] have run and none has sent the model back. What it returns is
// merged into the metadata of the response's message as that of
// [UseResponseStart]. An error fails the submission.
func UseResponseFinish(r *Render, fn func(ctx context.Context, f *ResponseFinish) (Metadata, error)) {
	const hook = "UseResponseFinish"
	r.enterEvent(hook, fn == nil)
	r.responseFinish = append(r.responseFinish, observer(hook, func(ctx context.Context, w *engine.Work, so Metadata) (Metadata, error) {
		return fn(ctx, &ResponseFinish{Metadata: so, ToolCalls: toolCalls(w), Usage: Usage(w.Response.Usage), Cost: engine.Expense(w.Response.Cost), Budget: w.Response.Budget})
	}))
}

// enterEvent is enter for the event hooks, which follow the life of an
// instance's response.
func (r *Render) enterEvent(hook string, none bool) {
	r.enterRoot(hook, "A delegate's work is part of its parent's response, whose hooks see it.")
	if none {
		r.misuse(hook, "got a nil callback", "Pass the function to run, or leave the call out.")
	}
}

// observer is a hook that attaches metadata.
func observer(hook string, fn func(ctx context.Context, w *engine.Work, so Metadata) (Metadata, error)) engine.Hook {
	return engine.Hook{Name: hook, Run: func(ctx context.Context, w *engine.Work) error {
		so, err := merged(w.Response.Metadata)
		if err != nil {
			return err
		}
		add, err := fn(watching(ctx, w), w, so)
		if err != nil || len(add) == 0 {
			return err
		}
		raw, err := encodeValue("the metadata", add, MaxMetadata)
		if err != nil {
			return err
		}
		if raw, err = harmless(raw); err != nil {
			return err
		}
		return w.Attach(raw)
	}}
}

// MaxMetadata bounds what one hook may attach to a response, as JSON, in bytes.
const MaxMetadata = 256 << 10

// merged is the sum of metadata that was attached in this order.
func merged(parts []json.RawMessage) (Metadata, error) {
	sum := Metadata{}
	for _, raw := range parts {
		var part Metadata
		if err := schema.Unmarshal(raw, &part); err != nil {
			return nil, fmt.Errorf("reading the response's metadata: %w", err)
		}
		merge(sum, part)
	}
	return sum, nil
}

// merge adds the members of from to into: objects are merged member by member,
// everything else is replaced.
func merge(into, from Metadata) {
	for name, value := range from {
		old, wasObject := into[name].(map[string]any)
		object, isObject := value.(map[string]any)
		if wasObject && isObject {
			merge(old, object)
			continue
		}
		into[name] = value
	}
}

// harmless returns an object without the names that a JavaScript client must not
// see as members.
func harmless(raw json.RawMessage) (json.RawMessage, error) {
	var m Metadata
	if err := schema.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("reading the metadata: %w", err)
	}
	dropDangerous(m)
	return schema.Marshal(m)
}

func dropDangerous(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range []string{"__proto__", "constructor", "prototype"} {
			delete(v, name)
		}
		for _, member := range v {
			dropDangerous(member)
		}
	case []any:
		for _, element := range v {
			dropDangerous(element)
		}
	}
}

func toolCalls(w *engine.Work) []ResponseToolCall {
	calls := make([]ResponseToolCall, len(w.Response.Calls))
	for i, c := range w.Response.Calls {
		calls[i] = ResponseToolCall{Tool: c.Tool, Failed: c.Failed}
	}
	return calls
}

// appendSignal adds a signal that the agent's own code has written.
func appendSignal(w *engine.Work, m Message) error {
	if m.Kind != KindSignal {
		return wire.InvalidRequest("Only a signal can be appended to a response. A user message is new input: send it with the function of UseDispatchMessage.")
	}
	p := wire.Prompt{Message: m.delivery()}
	if err := p.Validate(); err != nil {
		return err
	}
	stored, _ := stored("", p.Message)
	stored.Pinned = m.Pinned
	return w.Append(stored)
}

// encodeValue is v as the journal keeps it.
func encodeValue(what string, v any, limit int) (json.RawMessage, error) {
	raw, err := schema.Marshal(v)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s cannot be kept as JSON: %w", what, err)
	case depth(raw) > schema.MaxDepth:
		return nil, fmt.Errorf("%s is nested more than %d levels deep", what, schema.MaxDepth)
	case len(raw) > limit:
		return nil, fmt.Errorf("%s has %d bytes as JSON, at most %d are allowed: store large data elsewhere and keep a reference", what, len(raw), limit)
	}
	return raw, nil
}
