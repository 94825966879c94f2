package fluetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store/storetest/faultstore"
	"github.com/flue-go/flue/wire"
)

// A Scenario is a conversation with an agent.
type Scenario struct {
	// Agent makes the agent of a process. It is called for each process, so that
	// what the agent keeps in memory dies with it. What the agent does outside, it
	// does to the world. An agent without a name is called "agent".
	Agent func(w *World) *flue.Agent

	// Model is the model, whatever model the agent names. It must depend on the
	// request only: package script has functions to look at one. Nil is a model
	// that answers everything with "ok".
	Model func(req *model.Request) script.Turn

	// Messages are sent one after another: each when the one before it is
	// settled, and under an idempotency key of its own, again and again until it
	// is acknowledged.
	Messages []flue.Message

	// Steps are played after the messages, in the same way. They are for what is
	// no message, such as a decision; see [Approve].
	Steps []Step

	// InitialData is sent with every message.
	InitialData any

	// Modes are the ways in which the write fails at which the process dies. Nil
	// means all of them.
	Modes []faultstore.Mode

	// Pairs is how many times the process dies twice: at a write, and at a write
	// of the process that goes on. The pairs are the same every time. Zero means
	// 20, a negative number none.
	Pairs int

	// Check, if set, is called after each run, the undisturbed one included, for
	// what only the author can know. An error is a failure.
	Check func(o *Outcome) error

	// ReportOnly leaves it to the caller to fail the test.
	ReportOnly bool
}

// An Outcome is what has come of a run.
type Outcome struct {
	// Replies are the replies to the messages and steps, in order. One is nil if
	// there was none.
	Replies []*flue.Reply

	// World is the world of the run; see [Outside].
	World *World

	// Effects says how often each effect has happened.
	Effects map[string]int

	// Conversation is what clients see in the end.
	Conversation *wire.Snapshot

	// Deaths are where the process died in this run.
	Deaths []Death
}

// A Death is a write at which a process dies, and what becomes of the write.
type Death struct {
	Write int // the n-th of the process, from 1
	Mode  faultstore.Mode
}

// String returns the death in the form that [Replay] reads, such as 3:after.
func (d Death) String() string { return fmt.Sprintf("%d:%s", d.Write, d.Mode) }

// inWords says what becomes of the write.
func (d Death) inWords() string {
	switch d.Mode {
	case faultstore.Before:
		return "it is not written"
	case faultstore.After:
		return "it is written, and the process does not learn it"
	default:
		return "it is written after the process has died"
	}
}

// path is a list of deaths in the form that [Replay] reads.
func path(deaths []Death) string {
	words := make([]string, len(deaths))
	for i, d := range deaths {
		words[i] = d.String()
	}
	return strings.Join(words, ",")
}

// parsePath reads what path writes.
func parsePath(s string) ([]Death, error) {
	var deaths []Death
	if s == "" {
		return nil, nil
	}
	for word := range strings.SplitSeq(s, ",") {
		n, mode, _ := strings.Cut(strings.TrimSpace(word), ":")
		write, err := strconv.Atoi(n)
		if err != nil || write < 1 || !slices.Contains(allModes, faultstore.Mode(mode)) {
			return nil, fmt.Errorf(`%q is no death: want the number of a write and before, after or late, such as "3:after"`, word)
		}
		deaths = append(deaths, Death{write, faultstore.Mode(mode)})
	}
	return deaths, nil
}

var allModes = []faultstore.Mode{faultstore.Before, faultstore.After, faultstore.Late}

// A Step is one thing that is done to the agent from outside.
type Step struct {
	name string
	play func(ctx context.Context, in *flue.Instance, p *part) (flue.Receipt, error)
}

// A part is a step within one run. What it remembers outlives the processes.
type part struct {
	n        int // from 0
	initial  any
	approval string // that was decided
}

// Say is the step that sends a person's chat turn.
func Say(text string) Step { return Send(flue.User(text)) }

// Send is the step that sends a message.
func Send(m flue.Message) Step {
	return Step{name: fmt.Sprintf("%q", clip(cmp.Or(m.Body, m.Type), 40)), play: func(ctx context.Context, in *flue.Instance, p *part) (flue.Receipt, error) {
		return in.Dispatch(ctx, m, flue.SendOptions{IdempotencyKey: fmt.Sprintf("fluetest:%d", p.n), InitialData: p.initial})
	}}
}

// Post is the step that sends a message and does not wait for anything but its
// acceptance. The next step comes when the agent can do no more without waiting:
// a script that takes its time, see [script.Wait], is still at it then, and a
// message joins its response.
func Post(m flue.Message) Step {
	s := Send(m)
	send := s.play
	s.play = func(ctx context.Context, in *flue.Instance, p *part) (flue.Receipt, error) {
		_, err := send(ctx, in, p)
		return flue.Receipt{}, err
	}
	return s
}

// Approve is the step that approves the call of the tool that has waited longest.
// Where a crash has kept the call from being asked for, and the model was told,
// the step is left out.
func Approve(tool string) Step {
	return Decide(tool, flue.Decision{Approve: true, By: "fluetest"})
}

// Decide is [Approve] with a decision of your own.
func Decide(tool string, d flue.Decision) Step {
	verb := "the denial"
	if d.Approve {
		verb = "the approval"
	}
	return Step{name: verb + " of " + tool, play: func(ctx context.Context, in *flue.Instance, p *part) (flue.Receipt, error) {
		if p.approval == "" {
			waiting, err := in.Approvals(ctx)
			if err != nil {
				return flue.Receipt{}, err
			}
			i := slices.IndexFunc(waiting, func(a flue.Approval) bool { return a.Tool == tool })
			if i < 0 {
				return flue.Receipt{}, errNothingWaits
			}
			p.approval = waiting[i].ID
		}
		return in.Decide(ctx, p.approval, d)
	}}
}

var errNothingWaits = errors.New("no call of the tool waits for a decision")

// Func is a step of your own. It is called again when the process died before
// what it led to was settled, so what it does must be idempotent: send under an
// idempotency key. A receipt without a submission is not waited for.
func Func(name string, fn func(ctx context.Context, in *flue.Instance) (flue.Receipt, error)) Step {
	return Step{name: name, play: func(ctx context.Context, in *flue.Instance, _ *part) (flue.Receipt, error) { return fn(ctx, in) }}
}

// Wait is the step that lets time pass, such as until an approval expires.
func Wait(d time.Duration) Step {
	return Step{name: "waiting " + d.String(), play: func(ctx context.Context, _ *flue.Instance, _ *part) (flue.Receipt, error) {
		select {
		case <-time.After(d):
			return flue.Receipt{}, nil
		case <-ctx.Done():
			return flue.Receipt{}, context.Cause(ctx)
		}
	}}
}

// steps are all steps of the scenario.
func (sc *Scenario) steps() []Step {
	var all []Step
	for _, m := range sc.Messages {
		all = append(all, Send(m))
	}
	return append(all, sc.Steps...)
}

func clip(s string, limit int) string {
	s = strings.Join(strings.Fields(s), " ")
	if runes := []rune(s); len(runes) > limit {
		return string(runes[:limit]) + "…"
	}
	return s
}
