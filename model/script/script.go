// Package script is a model provider that says what it is told: for tests, for
// examples, and for a program that should run without a key. It is not a model,
// and says so: its answers name the model [Model].
//
//	p := script.New(
//		script.Say("Let me look.").Call("lookup_order", map[string]string{"orderId": "ORD-1"}),
//		script.Say("It has shipped."),
//	)
//
// Each call of the provider plays the next [Turn]. A script that must give the
// same answers after a restart cannot count calls; it decides from the
// conversation, with [Func], [Step] and [LastUser].
package script

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/flue-go/flue/model"
)

// Name is the provider's name in its errors, and Model the name of the model
// in each answer.
const (
	Name  = "scripted"
	Model = "scripted"
)

// A Provider plays a script. It is safe for concurrent use; concurrent calls
// take the turns in the order in which they arrive.
type Provider struct {
	// OnRequest, when set, is called at the start of each call with its
	// request, which it must not change. It must be set before the first call.
	OnRequest func(*model.Request)

	turns []Turn
	mu    sync.Mutex
	calls int
}

var _ model.Provider = (*Provider)(nil)

// New returns a Provider that plays one of turns for each call, in order. When
// the last turn was made by [Func] it plays for every further call too;
// otherwise a call beyond the last turn fails with class Invalid.
func New(turns ...Turn) *Provider { return &Provider{turns: turns} }

// Calls returns the number of calls so far.
func (p *Provider) Calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// next returns the turn to play.
func (p *Provider) next() (Turn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.calls
	p.calls++
	if n < len(p.turns) {
		return p.turns[n], nil
	}
	if last := len(p.turns) - 1; last >= 0 && p.turns[last].decide != nil {
		return p.turns[last], nil
	}
	return Turn{}, &model.Error{Provider: Name, Class: model.Invalid, Message: fmt.Sprintf(
		"the script has %d turns and this is call %d; add a turn, or end the script with a Func", len(p.turns), n+1)}
}

// Stream implements [model.Provider].
func (p *Provider) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if p.OnRequest != nil {
			p.OnRequest(req)
		}
		turn, err := p.next()
		if err != nil {
			yield(nil, err)
			return
		}
		for depth := 0; turn.decide != nil; depth++ {
			if depth == maxDepth {
				yield(nil, &model.Error{Provider: Name, Class: model.Invalid, Message: "a Func of the script returns a Func without end"})
				return
			}
			turn = turn.decide(req)
		}
		turn.play(ctx, req, yield)
	}
}

// maxDepth bounds turns that decide to let another turn decide.
const maxDepth = 100

// Step returns the number of assistant messages since the last message of a
// person: zero when that is to be answered, one when the tools called first
// have answered, and so on.
func Step(req *model.Request) int {
	n, cut := 0, false
	for i := len(req.Messages) - 1; i >= 0; i-- {
		switch m := req.Messages[i]; {
		case m.Role == model.RoleUser && resumes(m):
			cut = true // the answer before it does not count: it is to go on
		case m.Role == model.RoleUser && narrates(m):
		case m.Role == model.RoleUser:
			return n
		case m.Role == model.RoleAssistant && cut:
			cut = false
		case m.Role == model.RoleAssistant:
			n++
		}
	}
	return n
}

// LastUser returns the text of the last user message. It passes over what the
// runtime says by itself: that an answer was cut and is to go on, that the agent's
// tools or instructions have changed, and what was said before, in a summary.
func LastUser(req *model.Request) string {
	for i := len(req.Messages) - 1; i >= 0; i-- {
		if m := req.Messages[i]; m.Role == model.RoleUser && !resumes(m) && !narrates(m) {
			return texts(m, model.Text)
		}
	}
	return ""
}

// resumes reports whether m is the runtime's word that an answer was cut.
func resumes(m model.Message) bool { return isSignal(m, "stream_interrupted", "stream_continued") }

// narrates reports whether m is the runtime's word that what the agent declares
// has changed, or its summary of what came before.
func narrates(m model.Message) bool {
	return isSignal(m, "resources", "instructions") || strings.HasPrefix(texts(m, model.Text), `<compaction type="compaction"`)
}

func isSignal(m model.Message, types ...string) bool {
	text := texts(m, model.Text)
	return slices.ContainsFunc(types, func(typ string) bool { return strings.HasPrefix(text, `<signal type="`+typ+`"`) })
}

// LastResults returns the tool results that the conversation ends with, in the
// order of the calls.
func LastResults(req *model.Request) []model.Block {
	var results []model.Block
	for i := len(req.Messages) - 1; i >= 0 && req.Messages[i].Role != model.RoleAssistant; i-- {
		var of []model.Block
		for _, b := range req.Messages[i].Blocks {
			if b.Kind == model.ToolResult {
				of = append(of, b)
			}
		}
		results = append(of, results...)
	}
	return results
}

// texts joins the texts of m's blocks of one kind.
func texts(m model.Message, kind model.BlockKind) string {
	var parts []string
	for _, b := range m.Blocks {
		if b.Kind == kind {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n")
}
