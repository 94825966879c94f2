package openai

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/answer"
	"github.com/flue-go/flue/model/internal/dialect"
	"github.com/flue-go/flue/model/internal/exchange"
)

// A Summary says when the Responses API is asked to sum up a model's reasoning.
// OpenAI refuses that to organizations that it has not verified.
type Summary string

// The values of Summary.
const (
	// SummaryWhenAsked asks when the request sets a level of reasoning.
	SummaryWhenAsked Summary = ""
	// SummaryAlways asks whenever the model is known to reason.
	SummaryAlways Summary = "always"
	// SummaryNever does not ask.
	SummaryNever Summary = "never"
)

// Responses streams answers of the Responses API. It is safe for concurrent use.
type Responses struct{ service }

var (
	_ model.Provider     = (*Responses)(nil)
	_ model.LossReporter = (*Responses)(nil)
)

// responsesIdle is the default of Config.IdleTimeout here: a model that reasons
// without a summary is silent in the middle of its answer.
const responsesIdle = 5 * time.Minute

// responsesContent is the default of Config.ContentTimeout here, for the same
// reason: the server may send keepalives all the while.
const responsesContent = 30 * time.Minute

// NewResponses returns a Responses. A flawed Config is reported by the first
// call, as a [model.Error] of class Invalid.
//
// Two fields of the Config are of no use to it: MaxTokens and ReplayReasoning.
func NewResponses(c Config) *Responses {
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = responsesIdle
	}
	if c.ContentTimeout <= 0 {
		c.ContentTimeout = max(responsesContent, c.IdleTimeout)
	}
	return &Responses{newService(c, responsesPath)}
}

// Stream implements [model.Provider].
//
// It sends a second request when the server refuses the reasoning in the first
// one, which happens when a key of another organization is used, or the server
// behind a gateway changes. That request has no reasoning in it; without it the
// conversation could never go on.
func (p *Responses) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		out := answer.New(yield)
		if err := p.stream(ctx, req, out); err != nil {
			out.Fail(err)
		}
	}
}

func (p *Responses) stream(ctx context.Context, req *model.Request, out *answer.Builder) error {
	if err := p.check(req); err != nil {
		return err
	}
	names := dialect.OpenAINames().Names(req.Tools, req.Messages)
	body, replays := p.encode(req, names, true)
	err := p.try(ctx, req, names, body, out)
	if replays && !out.Begun() && refusesReasoning(err) {
		body, _ = p.encode(req, names, false)
		err = p.try(ctx, req, names, body, out)
	}
	return err
}

// try sends body and receives the answer.
func (p *Responses) try(ctx context.Context, req *model.Request, names *dialect.Names, body []byte, out *answer.Builder) error {
	s, err := p.open(ctx, req, body)
	if err != nil {
		return err
	}
	defer s.Close()
	out.OnContent(s.Content)
	d := responsesDecoder{
		stream: s, out: out, ids: answer.NewIDs(req.Messages), names: names, priced: p.quirks.tellsCost, items: map[int]*outputItem{},
	}
	for !out.Stopped() {
		e, err := s.Next()
		if err != nil {
			return exchange.Used(s.Fail(err), d.usage)
		}
		done, err := d.event(e)
		if err != nil {
			return exchange.Used(err, d.usage)
		}
		if done {
			s.Complete()
			return nil
		}
	}
	return nil
}

// refusesReasoning reports whether err says that the request holds reasoning
// that the server cannot read, or cannot find what belongs to it.
func refusesReasoning(err error) bool {
	var e *model.Error
	if !errors.As(err, &e) || e.Class != model.Invalid {
		return false
	}
	text := strings.ToLower(e.Message)
	for _, words := range []string{
		"encrypted content", "encrypted_content",
		"without its required", // an item that belongs to another one
		"items are not persisted",
	} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}
