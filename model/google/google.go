// Package google speaks Google's generateContent API: to Gemini with an API key,
// and to the same models on Vertex AI with a project and a source of tokens.
//
//	gemini := google.New(google.Config{APIKey: key})
//	vertex := google.NewVertex(google.VertexConfig{Project: "my-project", Token: token})
//
// What the codec preserves, and how failures are classified, is in
// docs/providers.md.
//
// # Reasoning
//
// Gemini signs parts of an answer: a thought, a tool call, a piece of text, or a
// part that holds nothing else. Each signature is kept with its part, in
// [model.Block.Opaque], and sent back with that part to the model that wrote it
// and to no other. Models from Gemini 3 on refuse a tool call without one; a
// call that another model made gets the value that Google documents for that
// case. Summaries of thoughts are asked for and become Reasoning blocks.
//
// # Tool schemas
//
// The schema of a tool is sent as parametersJsonSchema, which takes a large part
// of JSON Schema. The older field, parameters, takes a dialect of OpenAPI in which
// references, unions and lists of types cannot be said. What neither can say is
// put in words; see [Provider.Losses].
package google

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/answer"
	"github.com/flue-go/flue/model/internal/dialect"
	"github.com/flue-go/flue/model/internal/exchange"
)

// DefaultBaseURL is the address of the Gemini API.
const DefaultBaseURL = "https://generativelanguage.googleapis.com/v1beta"

// Config configures a [Provider] of the Gemini API. Only APIKey is needed.
type Config struct {
	// BaseURL is where the API is, with the version but without the
	// /models/{model}:streamGenerateContent that is added to it. Default:
	// [DefaultBaseURL].
	BaseURL string

	// APIKey is sent in the x-goog-api-key header.
	APIKey string

	// Name is the provider's name in errors and in the origin of messages: the
	// name under which it is registered and that specifiers begin with. What a
	// model sent is sent back only where the origin names this provider.
	// Default: "google".
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
	// the same name.
	Headers map[string]string
}

// A Provider streams answers of the generateContent API. It is safe for
// concurrent use.
type Provider struct {
	name     string
	vertex   bool
	endpoint exchange.Endpoint // its URL is the base that models are below
	schemas  *dialect.Table
	err      error // a flaw of the configuration, reported by each call
}

var (
	_ model.Provider     = (*Provider)(nil)
	_ model.LossReporter = (*Provider)(nil)
)

// New returns a Provider of the Gemini API. A flawed Config is reported by the
// first call, as a [model.Error] of class Invalid, a missing key as one of class
// Auth.
func New(c Config) *Provider {
	if c.Name == "" {
		c.Name = "google"
	}
	if c.BaseURL == "" {
		c.BaseURL = DefaultBaseURL
	}
	own := map[string]string{}
	if c.APIKey != "" {
		own["X-Goog-Api-Key"] = c.APIKey
	}
	p := &Provider{name: c.Name, schemas: dialect.NewTable(dialect.GeminiJSON())}
	p.connect(c.BaseURL, exchange.Endpoint{
		Header: exchange.Header(own, c.Headers), Client: exchange.NewClient(c.Client),
		IdleTimeout: c.IdleTimeout, FirstTimeout: c.FirstTimeout, ContentTimeout: c.ContentTimeout,
	})
	if p.err == nil && p.endpoint.URL.Hostname() == "generativelanguage.googleapis.com" && !p.authorized() {
		p.err = &model.Error{Provider: c.Name, Class: model.Auth, Message: "no API key; set GEMINI_API_KEY, or APIKey in the provider's Config"}
	}
	return p
}

// connect sets the endpoint of p, which is below base.
func (p *Provider) connect(base string, e exchange.Endpoint) {
	u, err := exchange.ParseBase(base, "")
	if err != nil {
		p.err = p.invalid(err.Error())
		return
	}
	q := u.Query()
	q.Set("alt", "sse")
	u.RawQuery = q.Encode()
	e.Provider, e.URL, e.Secrets = p.name, u, exchange.Secrets(e.Header)
	p.endpoint = e
}

// authorized reports whether calls carry a credential.
func (p *Provider) authorized() bool {
	h := p.endpoint.Header
	return p.endpoint.Token != nil || h.Get("X-Goog-Api-Key") != "" || h.Get("Authorization") != ""
}

func (p *Provider) invalid(message string) error {
	return &model.Error{Provider: p.name, Class: model.Invalid, Message: message}
}

var (
	modelName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._@-]*$`)
	modelPath = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._@-]*(/[A-Za-z0-9_][A-Za-z0-9._@-]*)+$`)
)

// address returns where the model is asked. An id with a slash is a resource of
// its own, such as tunedModels/x or endpoints/123.
func (p *Provider) address(id string) (*url.URL, error) {
	id = strings.TrimPrefix(id, "models/")
	switch {
	case id == "":
		return nil, p.invalid("the request names no model")
	case modelPath.MatchString(id):
	case !modelName.MatchString(id):
		return nil, p.invalid("the request's model is not the id of a Gemini model")
	case p.vertex && strings.HasPrefix(id, "claude"):
		return nil, p.invalid("Claude has an API of its own on Vertex AI, which is not built in; ask it at Anthropic or on Bedrock")
	case p.vertex:
		id = "publishers/google/models/" + id
	default:
		id = "models/" + id
	}
	return p.endpoint.URL.JoinPath(id + ":streamGenerateContent"), nil
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

// epilogue bounds the wait for what comes after the finish reason: the end of
// the stream, and sometimes the usage before it.
const epilogue = 5 * time.Second

func (p *Provider) stream(ctx context.Context, req *model.Request, out *answer.Builder) error {
	if p.err != nil {
		return p.err
	}
	address, err := p.address(req.Model)
	if err != nil {
		return err
	}
	names := dialect.GeminiNames().Names(req.Tools, req.Messages)
	body, err := p.encode(req, names)
	if err != nil {
		return err
	}
	endpoint := p.endpoint
	endpoint.URL = address
	s, err := endpoint.Open(ctx, body)
	if err != nil {
		return err
	}
	defer s.Close()
	out.OnContent(s.Content)
	d := decoder{stream: s, out: out, ids: answer.NewIDs(req.Messages), names: names}
	for !out.Stopped() {
		e, err := s.Next()
		if err == nil {
			err = d.event(e.Data)
		} else {
			err = s.Fail(err)
		}
		switch {
		case d.stop == "" && err != nil:
			return exchange.Used(err, d.counts.total())
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			// Once the reason is known, the answer is whole, and a stream that
			// breaks after that is as good as one that ends.
			if err := d.finish(); err != nil {
				return exchange.Used(err, d.counts.total())
			}
			s.Complete()
			return nil
		case d.stop != "":
			s.Hurry(epilogue)
		}
	}
	return nil
}

// Name implements [model.Named].
func (p *Provider) Name() string { return p.name }
