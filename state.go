package flue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/schema"
)

// A State is one name of an instance's persistent state, as one render saw it.
// See [UsePersistentState].
type State[T any] struct {
	name     string
	value    T
	fallback T
}

// UsePersistentState reads one name of the instance's persistent state and
// returns a handle to write it with. Until the name is first written it has
// the fallback value, which is itself never stored.
//
// Values are kept as JSON. Names are unique within a render and need not be
// declared in every render; the state is the instance's, whoever declares it.
// It panics if what is stored does not fit T, which fails the submission.
func UsePersistentState[T any](r *Render, name string, fallback T) *State[T] {
	const hook = "UsePersistentState"
	r.enter(hook)
	if isBlank(name) || len(name) > maxStateName {
		r.misuse(hook, fmt.Sprintf("got the name %q", name), fmt.Sprintf("A name has 1 to %d bytes and is not blank.", maxStateName))
	}
	if r.states[name] {
		r.misuse(hook, fmt.Sprintf("got the name %q twice", name), "State names are unique within a render: read it once and share the handle.")
	}
	r.states[name] = true
	s := &State[T]{name: name, value: fallback, fallback: fallback}
	if raw, ok := r.view.Vars[name]; ok {
		v, err := decodeState[T](name, raw)
		if err != nil {
			r.misuse(hook, err.Error(), "Keep the type compatible with what instances have stored, or use another name.")
		}
		s.value = v
	}
	return s
}

// maxStateName bounds the name of a state, in bytes.
const maxStateName = 256

// MaxStateValue bounds one value of the persistent state, as JSON, in bytes.
const MaxStateValue = 1 << 20

// Value returns the value as of the render. Writes do not change it; the next
// render sees them.
func (s *State[T]) Value() T { return s.value }

// Set writes v. It must be called with the context of a running tool call.
//
// Durability: the value is stored together with the call's result, and later
// renders see it once the calls of the turn are committed. If the call is
// interrupted before it has a result, the write is lost with it; what a call
// beside it has made of the value with Update is that call's and is kept. Writing
// the current value again stores nothing.
func (s *State[T]) Set(ctx context.Context, v T) error {
	return s.Update(ctx, func(T) T { return v })
}

// Update replaces the value by what fn makes of the current one, which
// includes what this call and those running beside it have written so far. No
// write is lost: fn runs while no other write does, so it must be quick and
// must not write itself. Otherwise Update is like [State.Set].
func (s *State[T]) Update(ctx context.Context, fn func(current T) T) error {
	call := callFrom(ctx)
	if call == nil {
		return fmt.Errorf("writing state %q: %w", s.name, ErrNoCall)
	}
	err := call.Update(s.name, func(raw json.RawMessage) (json.RawMessage, error) {
		if raw == nil { // a copy: what fn does to it must not reach other instances
			var err error
			if raw, err = json.Marshal(s.fallback); err != nil {
				return nil, err
			}
		}
		current, err := decodeState[T](s.name, raw)
		if err != nil {
			return nil, err
		}
		next, err := json.Marshal(fn(current))
		if err != nil {
			return nil, err
		}
		if depth(next) > schema.MaxDepth {
			return nil, fmt.Errorf("the value is nested more than %d levels deep", schema.MaxDepth)
		}
		if len(next) > MaxStateValue {
			return nil, fmt.Errorf("the value has %d bytes as JSON, at most %d are allowed: store large data elsewhere and keep a reference", len(next), MaxStateValue)
		}
		return next, nil
	})
	if err != nil {
		return fmt.Errorf("writing state %q: %w", s.name, err)
	}
	return nil
}

func decodeState[T any](name string, raw json.RawMessage) (T, error) {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("the stored value of state %q does not fit %T: %w", name, v, err)
	}
	return v, nil
}

// Errors of what only a running tool call may do.
var (
	// ErrNoCall means that the context is not that of a tool call: the
	// function was called during a render, or with a context of its own.
	ErrNoCall = errors.New("the context does not belong to a running tool call")
	// ErrCallOver means that the tool call has ended or was given up.
	ErrCallOver = engine.ErrCallOver
)

func isBlank(s string) bool { return strings.TrimSpace(s) == "" }
