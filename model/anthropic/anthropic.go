// Package anthropic speaks the Anthropic Messages API.
//
//	p := anthropic.New(anthropic.Config{APIKey: key})
//
// Servers that offer the same API work with another Config.BaseURL. What the
// codec preserves, and how failures are classified, is in docs/providers.md.
//
// # Reasoning
//
// Thinking blocks are kept exactly as they were received, in [model.Block.Opaque],
// and sent back unchanged to the model that wrote them: with their signatures,
// empty or redacted, and in their place. They are left out when another model
// is asked, when a block has no signature because its stream was cut, and, for
// models that tie a block to what came before it, when the system prompt, the
// tools or an earlier message differ from what the block was written after.
// Text and tool calls are always sent.
//
// # Prompt caching
//
// The system prompt, the last tool and the last two user messages are marked
// for caching. Tools are sent in the order given, behind them those that came
// in the middle of the conversation ([model.Tool.After]), in the order in which
// they came. Anthropic's own server loads the latter at their place, for models
// that can ([model.Info.DeferredTools]), and the tools before stay cached.
package anthropic

import (
	"context"
	"iter"
	"net/http"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/answer"
	"github.com/flue-go/flue/model/internal/dialect"
	"github.com/flue-go/flue/model/internal/exchange"
)

const (
	// DefaultBaseURL is the address of Anthropic's own API.
	DefaultBaseURL = "https://api.anthropic.com"

	// DefaultMaxOutput bounds an answer, in tokens, when neither the request
	// nor what is known of the model says how long it may be.
	DefaultMaxOutput = 8192

	version = "2023-06-01"
)

// Config configures a [Provider]. Only APIKey is needed to reach Anthropic.
type Config struct {
	// BaseURL is where the API is, without the /v1/messages that is added to
	// it. Default: [DefaultBaseURL].
	BaseURL string

	// APIKey is sent in the x-api-key header. A server that wants another
	// scheme gets it through Headers.
	APIKey string

	// Name is the provider's name in errors and in the origin of messages: the
	// name under which it is registered and that specifiers begin with. What a
	// model sent is sent back only where the origin names this provider.
	// Default: "anthropic".
	Name string

	// Client sends the requests. Its Timeout must be zero, or answers that take
	// longer are cut. Redirects are never followed. Default: a client that uses
	// [http.DefaultTransport].
	Client *http.Client

	// IdleTimeout bounds the silence within an answer. It runs only while the
	// codec waits for the server, not while the consumer is busy. Default: 2 minutes.
	IdleTimeout time.Duration

	// FirstTimeout bounds the wait for the first byte of an answer. Default: 5
	// minutes, or IdleTimeout if that is longer.
	FirstTimeout time.Duration

	// ContentTimeout bounds the waits within an answer in which the server sends
	// nothing but signs of life, such as pings, taken together until there is
	// content again. Default: 15 minutes, or IdleTimeout if that is longer.
	ContentTimeout time.Duration

	// Headers are added to each request, and replace the codec's own headers of
	// the same name. Beta features are asked for with "anthropic-beta".
	Headers map[string]string

	// Thinking says how reasoning is asked for. Default: [ThinkingByModel].
	Thinking ThinkingStyle
}

// A ThinkingStyle is a way to ask for reasoning.
type ThinkingStyle string

// The styles.
const (
	// ThinkingByModel chooses by the model's id: adaptive for Claude 4.6 and
	// newer, a budget for older ones and for models of other makers.
	ThinkingByModel ThinkingStyle = ""
	// ThinkingBudget sends a number of tokens to reason with.
	ThinkingBudget ThinkingStyle = "budget"
	// ThinkingAdaptive sends an effort and lets the model decide.
	ThinkingAdaptive ThinkingStyle = "adaptive"
	// ThinkingNever sends nothing about reasoning, for servers that refuse it.
	ThinkingNever ThinkingStyle = "never"
)

// A Provider streams answers of the Messages API. It is safe for concurrent use.
type Provider struct {
	name     string
	style    ThinkingStyle
	official bool // the server is Anthropic's own
	endpoint exchange.Endpoint
	schemas  *dialect.Table
	err      error // a flaw of the Config, reported by each call
}

var (
	_ model.Provider     = (*Provider)(nil)
	_ model.LossReporter = (*Provider)(nil)
)

// New returns a Provider. A flawed Config is reported by the first call, as a
// [model.Error] of class Invalid.
func New(c Config) *Provider {
	if c.Name == "" {
		c.Name = "anthropic"
	}
	if c.BaseURL == "" {
		c.BaseURL = DefaultBaseURL
	}
	own := map[string]string{"Anthropic-Version": version}
	if c.APIKey != "" {
		own["X-Api-Key"] = c.APIKey
	}
	header := exchange.Header(own, c.Headers)
	p := &Provider{name: c.Name, style: c.Thinking, schemas: dialect.NewTable(dialect.Anthropic())}
	u, err := exchange.ParseBase(c.BaseURL, "v1/messages")
	p.official = err == nil && u.Host == "api.anthropic.com"
	switch {
	case err != nil:
		p.err = p.invalid(err.Error())
	case p.official && header.Get("X-Api-Key") == "" && header.Get("Authorization") == "":
		p.err = &model.Error{Provider: c.Name, Class: model.Auth, Message: "no API key; set ANTHROPIC_API_KEY, or APIKey in the provider's Config"}
	}
	p.endpoint = exchange.Endpoint{
		Provider: c.Name, URL: u, Header: header, Client: exchange.NewClient(c.Client),
		Secrets: exchange.Secrets(header), IdleTimeout: c.IdleTimeout, FirstTimeout: c.FirstTimeout, ContentTimeout: c.ContentTimeout,
	}
	return p
}

func (p *Provider) invalid(message string) error {
	return &model.Error{Provider: p.name, Class: model.Invalid, Message: message}
}

// Losses implements [model.LossReporter].
func (p *Provider) Losses(tools []model.Tool) []model.Loss { return p.schemas.Losses(tools) }

// Stream implements [model.Provider].
func (p *Provider) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		out := answer.New(yield)
		if err := p.stream(ctx, req, out); err != nil {
			out.Fail(err)
		}
	}
}

func (p *Provider) stream(ctx context.Context, req *model.Request, out *answer.Builder) error {
	if p.err != nil {
		return p.err
	}
	names := dialect.AnthropicNames().Names(req.Tools, req.Messages)
	body, prefix, err := p.encode(req, names)
	if err != nil {
		return err
	}
	s, err := p.endpoint.Open(ctx, body)
	if err != nil {
		return err
	}
	defer s.Close()
	out.OnContent(s.Content)
	d := decoder{stream: s, out: out, ids: answer.NewIDs(req.Messages), names: names, prefix: prefix, blocks: map[int]*block{}}
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

// Name implements [model.Named].
func (p *Provider) Name() string { return p.name }
