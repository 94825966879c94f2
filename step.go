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

// A Step makes parts of a function durable: what runs in [Do] has its result
// recorded, and is not run again when the function is. A durable tool gets one,
// and so does the callback of [UseAgentStart].
type Step struct{ work *engine.Work }

// MaxStepValue bounds the result of a step, as JSON, in bytes. Results should be
// small: store large ones elsewhere and return a reference.
const MaxStepValue = 1 << 20

// Do runs fn as the step of the name, once for the call that step belongs to.
//
// Durability: the result is recorded before Do returns it. If the process dies
// and the call is run again, a step that was recorded returns its result and fn is
// not called; the first that was not is run. A crash between the end of fn and the
// record runs fn again, so what it does outside should be idempotent; see
// [CallKey]. Where that cannot be had, use [DoOnce].
//
// State is not written in a step: its writes would be lost when the step is not
// run again. Return the value, and write it after.
//
// What Do returns went through JSON, the first time as well as later. An error of
// fn is returned as it is and not recorded. Everything that has an effect belongs
// in a step: the code between steps runs again. Steps of different names may run
// side by side.
//
// The name says which piece of work it is. Derive it from the input, never from
// time or chance, and use each once in a call; otherwise the error is a
// [*StepError] that wraps ErrStepReused. A step belongs to one call: when the
// model calls the tool again, its steps run anew.
func Do[T any](ctx context.Context, step *Step, name string, fn func(ctx context.Context) (T, error)) (T, error) {
	return userStep(ctx, step, name, false, fn)
}

// DoOnce is [Do] for what must not happen twice and cannot be made idempotent:
// it is recorded that the step begins before fn is called. If the process dies
// before the result is recorded, fn is not called again: the error is then a
// [*StepError] that wraps ErrOutcomeUnknown, and it is for the tool to find out
// what happened, or to say that it does not know.
func DoOnce[T any](ctx context.Context, step *Step, name string, fn func(ctx context.Context) (T, error)) (T, error) {
	return userStep(ctx, step, name, true, fn)
}

// reservedStep begins the names of the framework's own steps.
const reservedStep = "flue:"

func userStep[T any](ctx context.Context, step *Step, name string, once bool, fn func(ctx context.Context) (T, error)) (T, error) {
	if strings.HasPrefix(name, reservedStep) {
		var zero T
		return zero, &StepError{name, fmt.Errorf("names that begin with %q are the framework's", reservedStep)}
	}
	return doStep(ctx, step, name, once, fn)
}

// A StepError reports a step that was not run, or whose result could not be
// recorded.
type StepError struct {
	Step string
	Err  error
}

func (e *StepError) Error() string { return fmt.Sprintf("step %q: %v", e.Step, e.Err) }

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.Err }

// Code returns [CodeStep].
func (e *StepError) Code() Code { return CodeStep }

// Causes of a [StepError].
var (
	// ErrStepReused means that the call has used the name for another step.
	ErrStepReused = engine.ErrStepReused
	// ErrOutcomeUnknown means that a step of [DoOnce] was begun before a crash
	// and has no result.
	ErrOutcomeUnknown = engine.ErrOutcomeUnknown
)

func doStep[T any](ctx context.Context, step *Step, name string, once bool, fn func(ctx context.Context) (T, error)) (T, error) {
	var zero T
	switch {
	case step == nil || step.work == nil:
		return zero, &StepError{name, errors.New("there is no durability behind it: use the step that the tool or the callback was called with")}
	case !isName(name):
		return zero, &StepError{name, errors.New(nameRule)}
	}
	var failed error
	raw, err := step.work.Step(ctx, name, once, func(ctx context.Context) (json.RawMessage, error) {
		v, err := fn(inStep(ctx))
		if err != nil {
			failed = err
			return nil, err
		}
		return encodeValue("its result", v, MaxStepValue)
	})
	switch {
	case failed != nil:
		return zero, failed
	case err != nil:
		return zero, &StepError{name, err}
	}
	var out T
	if err := schema.Unmarshal(raw, &out); err != nil {
		return zero, &StepError{name, fmt.Errorf("its recorded result does not fit %T: %w", out, err)}
	}
	return out, nil
}
