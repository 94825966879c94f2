// Package openai speaks two APIs of OpenAI: Responses, and Chat Completions,
// which many other servers offer too.
//
//	p := openai.NewResponses(openai.Config{APIKey: key})
//	azure := openai.NewResponses(openai.Config{Name: "azure", BaseURL: "https://my-resource.openai.azure.com", APIKey: key})
//	local := openai.New(openai.Config{Name: "ollama", BaseURL: "http://127.0.0.1:11434/v1"})
//
// OpenAI's own models belong on Responses: only there do they reason while tools
// are offered, and remember between the calls what they reasoned. What the codecs
// preserve, and how failures are classified, is in docs/providers.md.
//
// # Responses
//
// Nothing is kept at the server: each request carries the whole conversation and
// says store: false. What a model has reasoned comes encrypted, and goes back to
// the model that wrote it, in its place and byte for byte.
//
// # Chat Completions
//
// Reasoning that a server streams beside the text becomes Reasoning blocks. The
// API has no place for it in a later request, so it is not sent back, with three
// exceptions, each only to the model that wrote it: the text, to servers that
// insist on having it (see Config.ReplayReasoning); reasoning_details, which
// OpenRouter wants back unchanged; and the extra_content of a tool call, which
// holds Gemini's thought signature.
//
// OpenAI's own models from GPT-5.2 on refuse to reason in this API when tools
// are offered. They are asked not to: a request with tools sends them the effort
// "none".
package openai

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

// DefaultBaseURL is the address of OpenAI's own API.
const DefaultBaseURL = "https://api.openai.com/v1"

// Config configures a [Provider] or a [Responses]. Only APIKey is needed to reach OpenAI.
type Config struct {
	// BaseURL is where the API is, with the version but without the
	// /responses or /chat/completions that is added to it. For Azure OpenAI the
	// address of the resource is enough. Default: [DefaultBaseURL].
	BaseURL string

	// APIKey is sent as a bearer token, and to Azure OpenAI as an api-key. It
	// may be empty for a local server.
	APIKey string

	// Token is asked for a bearer token before each call, in place of APIKey.
	// Microsoft Entra ID's are of the scope https://cognitiveservices.azure.com/.default.
	Token model.TokenSource

	// APIVersion is for Azure OpenAI's older, dated API, such as "2024-10-21".
	// There, Chat Completions has an address for each deployment, which is
	// named like the model. Default: the API that is called v1.
	APIVersion string

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
	// codec waits for the server, not while the consumer is busy. Default: 2
	// minutes, and 5 for a Responses, whose models may reason in silence.
	IdleTimeout time.Duration

	// FirstTimeout bounds the wait for the first byte of an answer, which for
	// a model that reasons in silence includes the reasoning. Default: 5
	// minutes, or IdleTimeout if that is longer.
	FirstTimeout time.Duration

	// ContentTimeout bounds the waits within an answer in which the server sends
	// nothing but signs of life, such as pings, taken together until there is
	// content again. Default: 15 minutes, and 30 for a
	// Responses, or IdleTimeout if that is longer.
	ContentTimeout time.Duration

	// Headers are added to each request, and replace the codec's own headers of
	// the same name.
	Headers map[string]string

	// Server says which service or program answers, where its address does not.
	// It decides about what the server does in its own way, such as the names of
	// fields. Default: [ServerByAddress].
	Server Server

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

	// CacheKeyHeader names a header in which the request's CacheKey is sent, for
	// servers that keep a conversation in one place by it. Fireworks, OpenRouter
	// and xAI get theirs without being told.
	CacheKeyHeader string

	// StrictTools asks the server to hold the model to the schema of each tool,
	// where its form of schemas can say it: an object with other properties than
	// those listed, for example, it cannot. A property that may be absent is then
	// asked for as one that may be null, and its null means that it is absent.
	StrictTools bool

	// Summary says whether the Responses API is asked to sum up what a model
	// reasons, which is all that it shows of it. Default: [SummaryAuto].
	Summary Summary
}

// A Provider streams answers of the Chat Completions API. It is safe for
// concurrent use.
type Provider struct{ service }

var (
	_ model.Provider     = (*Provider)(nil)
	_ model.LossReporter = (*Provider)(nil)
)

// New returns a Provider. A flawed Config is reported by the first call, as a
// [model.Error] of class Invalid.
func New(c Config) *Provider { return &Provider{newService(c, chatPath)} }

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
	if err := p.check(req); err != nil {
		return err
	}
	names := dialect.OpenAINames().Names(req.Tools, req.Messages)
	s, err := p.open(ctx, req, p.encode(req, names))
	if err != nil {
		return err
	}
	defer s.Close()
	out.OnContent(s.Content)
	d := decoder{stream: s, out: out, ids: answer.NewIDs(req.Messages), names: names, priced: p.quirks.tellsCost}
	for !out.Stopped() {
		e, err := s.Next()
		if err == nil {
			err = d.event(e)
		} else {
			err = s.Fail(err)
		}
		switch {
		case d.stop == "" && err != nil:
			return exchange.Used(err, d.usage)
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
