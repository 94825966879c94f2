// Package bedrock speaks the Converse API of Amazon Bedrock, through AWS's own
// SDK. It is a module of its own, so that only those who use it depend on AWS.
//
//	cfg, err := config.LoadDefaultConfig(ctx) // of github.com/aws/aws-sdk-go-v2/config
//	...
//	p := bedrock.New(bedrock.Config{AWS: cfg})
//
// What the codec preserves, and how failures are classified, is in
// docs/providers.md.
//
// # Reasoning
//
// Reasoning that came with a signature, or encrypted, is sent back unchanged and
// in its place to the model that wrote it; other reasoning never is, which the
// models accept. Claude 5.1 and newer refuse it when something before it has
// changed; it is left out then.
//
// # Prompt caching
//
// For the models of the Claude family that can, cache points are set behind the
// system prompt, the tools and the last two user messages. The first Nova models
// take them behind text only: behind the system prompt, and the last two user
// messages that end with text. No other models are known to take them.
package bedrock

import (
	"context"
	"iter"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/answer"
	"github.com/flue-go/flue/model/internal/dialect"
	"github.com/flue-go/flue/model/internal/exchange"
)

// Config configures a [Provider]. AWS with a region and credentials is needed.
type Config struct {
	// AWS says where and as whom the service is asked, as the SDK's
	// config.LoadDefaultConfig returns it. Its HTTP client must have no timeout,
	// or answers that take longer are cut. The SDK's retries are turned off: what
	// to do about a failure is the engine's decision.
	AWS aws.Config

	// Name is the provider's name in errors and in the origin of messages: the
	// name under which it is registered and that specifiers begin with. What a
	// model sent is sent back only where the origin names this provider.
	// Default: "amazon-bedrock".
	Name string

	// Models names the foundation model behind an id that does not show it, such
	// as the ARN of an application inference profile. What models can do is known
	// by their names.
	Models map[string]string

	// Prepare, if any, may change each request before it is sent: set a guardrail,
	// a service tier, or metadata.
	Prepare func(*bedrockruntime.ConverseStreamInput)

	// IdleTimeout bounds the silence within an answer. It runs only while the
	// codec waits for the server, not while the consumer is busy. Default: 2 minutes.
	IdleTimeout time.Duration

	// FirstTimeout bounds the wait for the first event of an answer. Default: 5
	// minutes, or IdleTimeout if that is longer.
	FirstTimeout time.Duration

	// ContentTimeout bounds the waits within an answer in which the service sends
	// nothing that is part of it, taken together until there is content again.
	// Default: 15 minutes, or IdleTimeout if that is longer.
	ContentTimeout time.Duration
}

// A Provider streams answers of the Converse API. It is safe for concurrent use.
type Provider struct {
	name     string
	aws      aws.Config
	models   map[string]string
	prepare  func(*bedrockruntime.ConverseStreamInput)
	idle     time.Duration
	first    time.Duration
	content  time.Duration
	schemas  *dialect.Table
	failures exchange.Endpoint // describes what went wrong
	err      error             // a flaw of the Config, reported by each call
}

var (
	_ model.Provider     = (*Provider)(nil)
	_ model.Checker      = (*Provider)(nil)
	_ model.LossReporter = (*Provider)(nil)
)

// New returns a Provider. A flawed Config is reported by the first call, as a
// [model.Error] of class Invalid, missing credentials as one of class Auth.
func New(c Config) *Provider {
	if c.Name == "" {
		c.Name = "amazon-bedrock"
	}
	p := &Provider{
		name: c.Name, models: c.Models, prepare: c.Prepare, idle: c.IdleTimeout, first: c.FirstTimeout, content: c.ContentTimeout,
		schemas: dialect.NewTable(dialect.Bedrock()), failures: exchange.Endpoint{Provider: c.Name, Classify: classify},
	}
	if p.idle <= 0 {
		p.idle = exchange.DefaultIdleTimeout
	}
	if p.first <= 0 {
		p.first = max(exchange.DefaultFirstTimeout, p.idle)
	}
	if p.content <= 0 {
		p.content = max(exchange.DefaultContentTimeout, p.idle)
	}
	switch {
	case c.AWS.Region == "":
		p.err = p.invalid("no region; set AWS_REGION, or AWS.Region in the provider's Config")
	case c.AWS.BearerAuthTokenProvider == nil && (c.AWS.Credentials == nil || aws.IsCredentialsProvider(c.AWS.Credentials, aws.AnonymousCredentials{})):
		p.err = &model.Error{Provider: c.Name, Class: model.Auth, Message: "no credentials; load AWS in the provider's Config with config.LoadDefaultConfig"}
	}
	if c.AWS.HTTPClient == nil {
		c.AWS.HTTPClient = awshttp.NewBuildableClient()
	}
	c.AWS.HTTPClient = transport{c.AWS.HTTPClient}
	p.aws = c.AWS
	return p
}

// client returns a client for one call. Those of one client share the reader of
// events, which is not made for that.
func (p *Provider) client() *bedrockruntime.Client {
	return bedrockruntime.NewFromConfig(p.aws, func(o *bedrockruntime.Options) { o.Retryer = aws.NopRetryer{} })
}

func (p *Provider) invalid(message string) error {
	return &model.Error{Provider: p.name, Class: model.Invalid, Message: message}
}

// Check implements [model.Checker]: it returns the flaw of the Config, if it has
// one. The service has models that are not known here, so no id is refused.
func (p *Provider) Check(string) error { return p.err }

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

// epilogue bounds the wait for what comes after the stop reason: the usage.
const epilogue = 5 * time.Second

func (p *Provider) stream(ctx context.Context, req *model.Request, out *answer.Builder) error {
	if p.err != nil {
		return p.err
	}
	names := dialect.BedrockNames().Names(req.Tools, req.Messages)
	in, prefix, err := p.encode(req, names)
	if err != nil {
		return err
	}
	s, err := p.open(ctx, in)
	if err != nil {
		return err
	}
	defer s.close()
	out.OnContent(s.drought.Reset)
	d := decoder{stream: s, out: out, ids: answer.NewIDs(req.Messages), names: names, prefix: prefix, blocks: map[int32]*block{}}
	for !out.Stopped() {
		e, err := s.next()
		if err == nil {
			err = d.event(e)
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
			return nil
		case d.stop != "":
			s.hurry(epilogue)
		}
	}
	return nil
}

// Name implements [model.Named].
func (p *Provider) Name() string { return p.name }
