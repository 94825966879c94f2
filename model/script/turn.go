package script

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/flue-go/flue/model"
)

// A Turn is one answer of the script. The functions of this package make a
// turn, its methods return one with something added; a Turn itself never
// changes, so that it can be shared. The zero value is an empty answer.
type Turn struct {
	steps  []step
	chunk  int // runes of a delta; zero means by word
	pace   time.Duration
	stop   model.StopReason
	usage  *model.Usage
	decide func(*model.Request) Turn
}

// A step is one thing that a turn does. Exactly one field is set, or block.
type step struct {
	block model.Block
	do    func(ctx context.Context) error
}

func (t Turn) with(s step) Turn {
	t.steps = append(slices.Clip(t.steps), s)
	return t
}

// Say returns a turn that answers with text.
func Say(text string) Turn { return Turn{}.Say(text) }

// Say adds a text block.
func (t Turn) Say(text string) Turn {
	return t.with(step{block: model.Block{Kind: model.Text, Text: text}})
}

// Think returns a turn that begins with reasoning.
func Think(text string) Turn { return Turn{}.Think(text) }

// Think adds a reasoning block.
func (t Turn) Think(text string) Turn {
	return t.with(step{block: model.Block{Kind: model.Reasoning, Text: text}})
}

// Call returns a turn that calls a tool. See [Turn.Call].
func Call(name string, args any) Turn { return Turn{}.Call(name, args) }

// Call adds a call of the tool name. A string or a [json.RawMessage] is sent as
// the arguments exactly as it is, also when it is no JSON; nil is sent as {},
// and everything else as its JSON. Call panics when args has none, as that is a
// mistake in the script.
//
// The call's id is derived from the conversation, so that the same turn in the
// same conversation always has the same one; see [Turn.ID].
func (t Turn) Call(name string, args any) Turn {
	b := model.Block{Kind: model.ToolCall, Name: name}
	switch args := args.(type) {
	case nil:
		b.Arguments = "{}"
	case string:
		b.Arguments = args
	case json.RawMessage:
		b.Arguments = string(args)
	default:
		raw, err := json.Marshal(args)
		if err != nil {
			panic(fmt.Sprintf("script: arguments of a call of %s: %v", name, err))
		}
		b.Arguments = string(raw)
	}
	return t.with(step{block: b})
}

// ID sets the id of the call added last. It panics when that was no call.
func (t Turn) ID(id string) Turn {
	last := len(t.steps) - 1
	if last < 0 || t.steps[last].block.Kind != model.ToolCall {
		panic("script: ID without a call before it")
	}
	t.steps = slices.Clone(t.steps)
	t.steps[last].block.CallID = id
	return t
}

// Fail returns a turn that fails with err.
func Fail(err error) Turn { return Turn{}.Fail(err) }

// Fail ends the answer with err, after what was added before, the last text of
// which is left unfinished. A [model.Error] without a provider gets this one's name.
func (t Turn) Fail(err error) Turn {
	return t.Do(func(context.Context) error {
		if e, ok := err.(*model.Error); ok && e.Provider == "" {
			named := *e
			named.Provider = Name
			return &named
		}
		return err
	})
}

// Cut returns a turn whose stream is cut at once.
func Cut() Turn { return Turn{}.Cut() }

// Cut ends the stream without ending the answer, as a lost connection does: with
// an error of class Retryable. The last text is left unfinished.
func (t Turn) Cut() Turn {
	return t.Fail(&model.Error{Class: model.Retryable, Message: "the stream was cut before the answer was complete"})
}

// Hang returns a turn that never answers.
func Hang() Turn { return Turn{}.Hang() }

// Hang says nothing more until the context of the call ends. The last text is
// left unfinished.
func (t Turn) Hang() Turn {
	return t.Do(func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

// Wait returns a turn that waits before it answers.
func Wait(d time.Duration) Turn { return Turn{}.Wait(d) }

// Wait adds a pause, which ends early when the context does.
func (t Turn) Wait(d time.Duration) Turn {
	return t.Do(func(ctx context.Context) error { return pause(ctx, d) })
}

// Do returns a turn that calls f before it answers.
func Do(f func(ctx context.Context) error) Turn { return Turn{}.Do(f) }

// Do adds a call of f, with the context of the model call: to wait for a test
// to be ready, for instance. An error ends the answer.
func (t Turn) Do(f func(ctx context.Context) error) Turn { return t.with(step{do: f}) }

// Chunk sets how many runes each delta of the turn has. The default is a word.
func (t Turn) Chunk(runes int) Turn {
	t.chunk = runes
	return t
}

// Pace sets a pause before each delta of the turn.
func (t Turn) Pace(d time.Duration) Turn {
	t.pace = d
	return t
}

// Stop sets the stop reason. The default is StopToolUse for a turn with calls,
// and StopEnd for others.
func (t Turn) Stop(reason model.StopReason) Turn {
	t.stop = reason
	return t
}

// Usage sets the usage. The default is an estimate of four bytes a token.
func (t Turn) Usage(u model.Usage) Turn {
	t.usage = &u
	return t
}

// Func returns a turn that f decides on, from the request. An f that looks at
// nothing else gives the same answers to the same conversation, also after a
// restart. It may be called concurrently.
func Func(f func(req *model.Request) Turn) Turn { return Turn{decide: f} }
