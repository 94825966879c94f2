package fluetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// A tape is the store that a process writes through: it says in words what every
// write is, and when the process has died.
type tape struct {
	*faultstore.Store

	mu    sync.Mutex
	words map[int]string // by the number of the write
	dead  func(write int)
	calls *calls
}

func newTape(inner store.Store, calls *calls, dead func(write int)) *tape {
	t := &tape{Store: faultstore.New(inner), words: make(map[int]string), dead: dead, calls: calls}
	t.SetHook(t.hook)
	return t
}

type payloadKey struct{}

// Admit implements [store.Store].
func (t *tape) Admit(ctx context.Context, a *store.Admission) (store.Receipt, error) {
	return t.Store.Admit(context.WithValue(ctx, payloadKey{}, a.Payload), a)
}

// Abort implements [store.Store].
func (t *tape) Abort(ctx context.Context, addr store.Address, payload []byte) (bool, error) {
	return t.Store.Abort(context.WithValue(ctx, payloadKey{}, payload), addr, payload)
}

// Append implements [store.Store].
func (t *tape) Append(ctx context.Context, lease store.Lease, w store.Write) (int64, error) {
	return t.Store.Append(context.WithValue(ctx, payloadKey{}, w.Payload), lease, w)
}

func (t *tape) hook(ctx context.Context, p faultstore.Point) error {
	if p.Done {
		if t.Crashed() {
			t.dead(p.N)
		}
		return nil
	}
	payload, _ := ctx.Value(payloadKey{}).([]byte)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.words[p.N] = t.calls.describe(payload)
	return nil
}

// said returns what the n-th write is.
func (t *tape) said(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.words[n]
}

// calls are the tool calls of a run by their ids: a record of a step names the
// call only.
type calls struct {
	mu    sync.Mutex
	tools map[string]string // by scope
}

func (c *calls) note(id, tool string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tools[journal.CallScope(id)] = tool
}

func (c *calls) of(scope string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tools[scope]
}

// describe says what is in a batch. What only goes with something else is left
// out.
func (c *calls) describe(payload []byte) string {
	batch, err := journal.Decode(payload)
	if err != nil {
		return "a batch that cannot be read"
	}
	var first, second []string
	add := func(to *[]string, words string) {
		if !slices.Contains(*to, words) {
			*to = append(*to, words)
		}
	}
	for _, r := range batch.Records {
		if words, minor := c.record(r); minor {
			add(&second, words)
		} else {
			add(&first, words)
		}
	}
	if len(first) == 0 {
		first = second
	}
	return strings.Join(first, ", ")
}

// record says what a record is, and whether that goes without saying when there is
// more in its batch.
func (c *calls) record(r journal.Record) (words string, minor bool) {
	switch r := r.(type) {
	case *journal.Admitted:
		return "the acceptance of " + quoted(r.Message), false
	case *journal.Abort:
		return "the request to abort", false
	case *journal.Entry:
		if r.Purpose == journal.Appended {
			return "the signal " + quoted(r.Message), false
		}
		return "the beginning of " + quoted(r.Message), r.Purpose != journal.Input
	case *journal.TurnDone:
		return c.turn(r), false
	case *journal.Called:
		return "the beginning of calls", true
	case *journal.Outcome:
		return "the outcome of " + r.Tool, false
	case *journal.Step:
		return c.step(r), false
	case *journal.Data:
		return fmt.Sprintf("the data %q", r.Name), false
	case *journal.State:
		if strings.HasPrefix(r.Name, approvalState) {
			return "what has become of an approval", false
		}
		return fmt.Sprintf("the state %q", r.Name), true
	case *journal.Seam:
		switch r.Name {
		case journal.SeamCycle:
			return "what the finish hooks have made, which sends the model back", false
		case journal.SeamClosed:
			return "the end of the response", false
		}
		return "what the hooks have made", true
	case *journal.TurnStarted:
		return "the start of a model call", true
	case *journal.ToolBatch:
		return "the results of the calls", true
	case *journal.Settled:
		return "the settlement", true
	case *journal.Attempt:
		return "the start of an attempt", true
	default:
		return string(r.Kind()), true
	}
}

// approvalState begins the names of the states that hold approvals.
const approvalState = "flue:approval:"

func (c *calls) turn(r *journal.TurnDone) string {
	var tools []string
	for _, b := range r.Blocks {
		if b.Kind == journal.ToolCall {
			c.note(b.Call, b.Name)
			tools = append(tools, b.Name)
		}
	}
	switch {
	case len(tools) > 0:
		return "the model's call of " + list(tools)
	case r.Stop == journal.StopAborted:
		return "the end of an interrupted model call"
	case r.Stop == journal.StopError:
		return "the failure of a model call"
	}
	return "the model's answer"
}

func (c *calls) step(r *journal.Step) string {
	of := "a hook of UseAgentStart"
	name := r.Name
	if tool := c.of(r.Scope); tool != "" {
		of = tool
	}
	if len(r.Value) == 0 {
		return fmt.Sprintf("the beginning of step %q of %s", name, of)
	}
	return fmt.Sprintf("step %q of %s", name, of)
}

func quoted(m journal.Message) string {
	if m.Kind == journal.Signal && m.Type != "" {
		return "the signal " + m.Type
	}
	return fmt.Sprintf("%q", clip(m.Body, 30))
}

// list joins words, as often as they come.
func list(words []string) string {
	var out []string
	for i, w := range words {
		if slices.Contains(words[:i], w) {
			continue
		}
		n := 0
		for _, o := range words {
			if o == w {
				n++
			}
		}
		if n > 1 {
			w = fmt.Sprintf("%s (%d times)", w, n)
		}
		out = append(out, w)
	}
	return strings.Join(out, " and ")
}
