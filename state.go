package flue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

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
	r.enterRoot(hook, "State belongs to the instance: give the delegate what it needs in its task.")
	if !isName(name) || strings.HasPrefix(name, reservedState) {
		r.misuse(hook, fmt.Sprintf("got the name %q", name), nameRule+fmt.Sprintf(" It does not begin with %q.", reservedState))
	}
	if !r.claim(kindState, name) {
		r.misuse(hook, fmt.Sprintf("got the name %q twice", name), "State names are unique within a render: read it once and share the handle.")
	}
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

// maxName bounds the name of a state, a data part or a step, in bytes.
const maxName = 256

// nameRule is what isName asks for, in words.
var nameRule = fmt.Sprintf("A name is valid UTF-8 of 1 to %d bytes and not blank.", maxName)

// isName reports whether s can name a state, a data part or a step.
func isName(s string) bool { return !isBlank(s) && len(s) <= maxName && utf8.ValidString(s) }

// reservedState begins the names of what the framework itself keeps in the
// persistent state.
const reservedState = "flue:"

// MaxStateValue bounds one value of the persistent state, as JSON, in bytes.
const MaxStateValue = 1 << 20

// Value returns the value as of the render. Writes do not change it; the next
// render sees them.
func (s *State[T]) Value() T { return s.value }

// Set writes v. It must be called with the context of a running tool call or
// hook callback.
//
// Durability: a call's writes are stored together with its result, and later
// renders see them once the calls of the turn are committed, also when the result
// is an error; those of a hook land with everything else that the hooks of its
// seam have made. If a call is interrupted before it has a result its writes are
// lost with it. Writing the current value again stores nothing.
func (s *State[T]) Set(ctx context.Context, v T) error {
	work, err := writerFrom(ctx)
	if err != nil {
		return fmt.Errorf("writing state %q: %w", s.name, err)
	}
	raw, err := encodeValue("the value", v, MaxStateValue)
	if err == nil {
		err = work.Set(s.name, raw)
	}
	if err != nil {
		return fmt.Errorf("writing state %q: %w", s.name, err)
	}
	return nil
}

// Update replaces the value by what fn makes of the current one, which
// includes what this call and those running beside it have written so far. No
// write is lost: if another one comes between, fn is called again with what it
// wrote. So fn must depend on nothing but the current value, and must not write
// state itself. Otherwise Update is like [State.Set].
//
// A call that has seen what another one wrote gets its result only when that one
// has ended, too. If the other call is lost, so is this one: its outcome is
// unknown as well, and what it wrote is not kept.
func (s *State[T]) Update(ctx context.Context, fn func(current T) T) error {
	work, err := writerFrom(ctx)
	if err != nil {
		return fmt.Errorf("writing state %q: %w", s.name, err)
	}
	err = work.Update(s.name, func(raw json.RawMessage) (json.RawMessage, error) {
		if raw == nil { // a copy: what fn does to it must not reach other instances
			var err error
			if raw, err = schema.Marshal(s.fallback); err != nil {
				return nil, err
			}
		}
		current, err := decodeState[T](s.name, raw)
		if err != nil {
			return nil, err
		}
		return encodeValue("the value", fn(current), MaxStateValue)
	})
	if err != nil {
		return fmt.Errorf("writing state %q: %w", s.name, err)
	}
	return nil
}

func decodeState[T any](name string, raw json.RawMessage) (T, error) {
	var v T
	if err := schema.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("the stored value of state %q does not fit %T: %w", name, v, misfit(err))
	}
	return v, nil
}

// Errors of what only running code of an agent may do.
var (
	// ErrNoCall means that the context is not that of a tool call or hook
	// callback that may write: the function was called during a render, by an
	// observer of the response, or with a context of its own.
	ErrNoCall = errors.New("the context does not belong to a running tool call or hook; write from a tool or from the callback of UseAgentStart or UseAgentFinish, with the context that it was called with")
	// ErrInStep means that state was written with the context of a step. The
	// step is not run again when the call is, and the write would be lost.
	ErrInStep = errors.New("state is not written in a step, which is not run again: return the value from the step and write it after")
	// ErrCallOver means that the tool call or hook callback has ended or was
	// given up.
	ErrCallOver = engine.ErrOver
)

func isBlank(s string) bool { return strings.TrimSpace(s) == "" }
