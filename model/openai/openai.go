// Package openai speaks the OpenAI Chat Completions API, and with it to the
// many servers that offer the same API.
//
//	p := openai.New(openai.Config{APIKey: key})
//	local := openai.New(openai.Config{Name: "ollama", BaseURL: "http://127.0.0.1:11434/v1"})
//
// What the codec preserves, and how failures are classified, is in
// docs/providers.md.
//
// # Reasoning
//
// Reasoning that a server streams beside the text becomes Reasoning blocks. The
// API has no place for it in a later request, so it is not sent back, with three
// exceptions, each only to the model that wrote it: the text, to servers that
// insist on having it (see Config.ReplayReasoning); reasoning_details, which
// OpenRouter wants back unchanged; and the extra_content of a tool call, which
// holds Gemini's thought signature.
//
// OpenAI's own models from GPT-5.2 on refuse to reason in this API when tools
// are offered. They are asked not to: a request with tools sends the effort
// "none" to api.openai.com.
package openai

import (
	"context"
	"iter"
	"net/http"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/answer"
	"github.com/flue-go/flue/model/internal/exchange"
)

// DefaultBaseURL is the address of OpenAI's own API.
const DefaultBaseURL = "https://api.openai.com/v1"

// Config configures a [Provider]. Only APIKey is needed to reach OpenAI.
type Config struct {
	// BaseURL is where the API is, with the version but without the
	// /chat/completions that is added to it. Default: [DefaultBaseURL].
	BaseURL string

	// APIKey is sent as a bearer token. It may be empty for a local server.
	APIKey string

	// Name is the provider's name in errors and in the origin of messages: the
	// name under which it is registered and that specifiers begin with. What a
	// model sent is sent back only where the origin names this provider.
	// Default: "openai".
	Name string

	// Client sends the requests. Its Timeout must be zero, or answers that take
	// longer are cut. Redirects are never followed. Default: a client that uses
	// [http.DefaultTransport].
	Client *http.Client

	// IdleTimeout bounds the silence within an answer. It runs only while the
	// codec waits for the server, not while the consumer is busy. Default: 2 minutes.
	IdleTimeout time.Duration

	// FirstTimeout bounds the wait for the first byte of an answer, which for
	// a model that reasons in silence includes the reasoning. Default: 5
	// minutes, or IdleTimeout if that is longer.
	FirstTimeout time.Duration

	// Headers are added to each request, and replace the codec's own headers of
	// the same name.
	Headers map[string]string

	// MaxTokens sends the limit of an answer as max_tokens, for servers that do
	// not know max_completion_tokens. Servers that are known to need it get it
	// without being told.
	MaxTokens bool

	// ReplayReasoning sends reasoning back to the model that wrote it, as the
	// reasoning_content of the assistant's message. DeepSeek and Moonshot
	// refuse a request without it, and get it without being told.
	ReplayReasoning bool

	// PromptCacheKey sends the request's CacheKey as prompt_cache_key.
	// OpenAI gets it without being told; other servers may refuse the field.
	PromptCacheKey bool
}

// A Provider streams answers of the Chat Completions API. It is safe for
// concurrent use.
type Provider struct {
	name     string
	official bool // the server is OpenAI's own
	config   Config
	endpoint exchange.Endpoint
	err      error // a flaw of the Config, reported by each call
}

var _ model.Provider = (*Provider)(nil)

// New returns a Provider. A flawed Config is reported by the first call, as a
// [model.Error] of class Invalid.
func New(c Config) *Provider {
	if c.Name == "" {
		c.Name = "openai"
	}
	if c.BaseURL == "" {
		c.BaseURL = DefaultBaseURL
	}
	own := map[string]string{}
	if c.APIKey != "" {
		own["Authorization"] = "Bearer " + c.APIKey
	}
	header := exchange.Header(own, c.Headers)
	p := &Provider{name: c.Name}
	u, err := exchange.ParseBase(c.BaseURL, "chat/completions")
	if err != nil {
		p.err = p.invalid(err.Error())
		return p
	}
	switch u.Hostname() {
	case "api.openai.com":
		p.official = true
		c.PromptCacheKey = true
		if header.Get("Authorization") == "" {
			p.err = &model.Error{Provider: c.Name, Class: model.Auth, Message: "no API key; set OPENAI_API_KEY, or APIKey in the provider's Config"}
		}
	case "api.deepseek.com", "api.moonshot.ai", "api.moonshot.cn":
		c.MaxTokens, c.ReplayReasoning = true, true
	case "api.mistral.ai":
		c.MaxTokens = true
	}
	p.config = c
	p.endpoint = exchange.Endpoint{
		Provider: c.Name, URL: u, Header: header, Client: exchange.NewClient(c.Client),
		Secrets: exchange.Secrets(header), IdleTimeout: c.IdleTimeout, FirstTimeout: c.FirstTimeout,
	}
	return p
}

func (p *Provider) invalid(message string) error {
	return &model.Error{Provider: p.name, Class: model.Invalid, Message: message}
}

// Stream implements [model.Provider].
func (p *Provider) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		out := answer.New(yield)
		if err := p.stream(ctx, req, out); err != nil {
			out.Fail(err)
		}
	}
}

// epilogue bounds the wait for what comes after the finish reason: the usage
// and the end of the stream. Some servers send neither.
const epilogue = 5 * time.Second

func (p *Provider) stream(ctx context.Context, req *model.Request, out *answer.Builder) error {
	if p.err != nil {
		return p.err
	}
	body, err := p.encode(req)
	if err != nil {
		return err
	}
	s, err := p.endpoint.Open(ctx, body)
	if err != nil {
		return err
	}
	defer s.Close()
	d := decoder{stream: s, out: out, ids: answer.NewIDs(req.Messages)}
	for !out.Stopped() {
		e, err := s.Next()
		if err == nil {
			err = d.event(e)
		} else {
			err = s.Fail(err)
		}
		switch {
		case d.stop == "" && err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case d.ended || err != nil:
			// Once the reason is known, the answer is whole, and a stream that
			// breaks after that is as good as one that ends.
			d.finish()
			s.Complete()
			return nil
		case d.stop != "":
			s.Hurry(epilogue)
		}
	}
	return nil
}
