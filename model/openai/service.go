package openai

import (
	"context"
	"net/url"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/dialect"
	"github.com/flue-go/flue/model/internal/exchange"
)

// The APIs, as they continue a base URL.
const (
	chatPath      = "chat/completions"
	responsesPath = "responses"
)

// A service is a server and what is known of it, for either API.
type service struct {
	name     string
	official bool // the server is OpenAI's own
	azure    bool // the server is Azure OpenAI
	config   Config
	quirks   quirks
	endpoint exchange.Endpoint
	schemas  *dialect.Table
	enforced *dialect.Table // schemas that the server enforces; nil when it is not asked to
	err      error          // a flaw of the Config, reported by each call

	// deployment returns the URL for a model where each has its own; nil elsewhere.
	deployment func(model string) (*url.URL, bool)
}

// newService returns the service that offers the API at path.
func newService(c Config, path string) service {
	if c.Name == "" {
		c.Name = "openai"
	}
	if c.BaseURL == "" {
		c.BaseURL = DefaultBaseURL
	}
	s := service{name: c.Name, schemas: dialect.NewTable(dialect.OpenAI())}
	if c.StrictTools {
		s.enforced = dialect.NewTable(dialect.OpenAIStrict())
	}
	base, err := exchange.ParseBase(c.BaseURL, "")
	if err != nil {
		s.err = s.invalid(err.Error())
		return s
	}
	s.official = base.Hostname() == "api.openai.com"
	s.azure = c.APIVersion != "" || azureHost(base.Hostname())
	u := base.JoinPath(path)
	if s.azure {
		u, s.deployment = azureURL(base, c.APIVersion, path)
	}
	if c.Server == ServerByAddress {
		c.Server = serverAt(base)
	}
	s.quirks = quirksOf(c.Server)
	c.MaxTokens = c.MaxTokens || s.quirks.maxTokens
	c.ReplayReasoning = c.ReplayReasoning || s.quirks.replay
	if c.CacheKeyHeader == "" {
		c.CacheKeyHeader = s.quirks.keyHeader
	}
	switch {
	case s.official, s.azure && undated(c.APIVersion):
		c.PromptCacheKey = true
	case c.Server == ServerXAI && path == responsesPath: // where it has a field in place of the header
		c.PromptCacheKey, c.CacheKeyHeader = true, ""
	}
	own := map[string]string{}
	switch {
	case c.APIKey == "" || c.Token != nil:
	case s.azure:
		own["Api-Key"] = c.APIKey
	default:
		own["Authorization"] = "Bearer " + c.APIKey
	}
	header := exchange.Header(own, c.Headers)
	secrets := exchange.Secrets(header)
	if (s.official || s.azure) && c.Token == nil && len(secrets) == 0 {
		s.err = &model.Error{Provider: c.Name, Class: model.Auth, Message: missingKey(s.azure)}
	}
	s.config = c
	s.endpoint = exchange.Endpoint{
		Provider: c.Name, URL: u, Header: header, Token: c.Token, Client: exchange.NewClient(c.Client), Classify: classify,
		Secrets: secrets, IdleTimeout: c.IdleTimeout, FirstTimeout: c.FirstTimeout, ContentTimeout: c.ContentTimeout,
	}
	return s
}

func missingKey(azure bool) string {
	if azure {
		return "no API key; set APIKey or Token in the provider's Config"
	}
	return "no API key; set OPENAI_API_KEY, or APIKey in the provider's Config"
}

func (s *service) invalid(message string) error {
	return &model.Error{Provider: s.name, Class: model.Invalid, Message: message}
}

// check returns what is wrong with a call before it is made.
func (s *service) check(req *model.Request) error {
	switch {
	case s.err != nil:
		return s.err
	case req.Model == "":
		return s.invalid("the request names no model")
	case len(req.Messages) == 0:
		return s.invalid("the request has no messages")
	}
	return nil
}

// open sends body, which was made of req.
func (s *service) open(ctx context.Context, req *model.Request, body []byte) (*exchange.Stream, error) {
	e := s.endpoint
	e.Header = withCacheKey(e.Header, s.config.CacheKeyHeader, req.CacheKey)
	if s.deployment != nil {
		u, ok := s.deployment(req.Model)
		if !ok {
			return nil, s.invalid("the model must be the name of a deployment, without a slash")
		}
		e.URL = u
	}
	return e.Open(ctx, body)
}

// classify says what the codes mean that only these services have.
func classify(code string) model.Class {
	switch code {
	case "invalid_prompt", // the words say that it was flagged
		"bio_policy", "cyber_policy", "misalignment_policy_violation", "image_content_policy_violation":
		return model.Filtered
	case "server_is_overloaded", "slow_down":
		return model.Overloaded
	case "usage_not_included":
		return model.Quota
	case "data_residency_mismatch", "invalid_encrypted_content", "unsupported_parameter", "unsupported_value",
		"invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url", "invalid_image_mode",
		"image_too_large", "image_too_small", "image_parse_error", "image_file_too_large", "image_file_not_found",
		"unsupported_image_media_type", "empty_image_file", "failed_to_download_image":
		return model.Invalid
	}
	return ""
}

// Name implements [model.Named].
func (s *service) Name() string { return s.name }
