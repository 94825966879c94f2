// Package providers knows model services by name: where each is, which
// environment variable has its key, which API it speaks, and what it does in its
// own way.
//
//	ps, err := providers.FromEnv(os.Environ())
//	...
//	rt, err := flue.Open(ctx, flue.Config{Providers: ps, Catalog: catalog.Lookup, ...})
//
// What FromEnv returns is a plain map, for a program to add to and to take from:
//
//	ps["gateway"] = openai.New(openai.Config{Name: "gateway", BaseURL: "https://llm.internal/v1", APIKey: key})
//	ps["groq"] = providers.Only(ps["groq"], "openai/gpt-oss-120b")
//	delete(ps, "openai")
package providers

import (
	"cmp"
	"maps"
	"net/http"
	"slices"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/google"
	"github.com/flue-go/flue/model/openai"
)

// An API is a wire format.
type API string

// The wire formats.
const (
	Anthropic       API = "anthropic"        // Anthropic Messages
	OpenAI          API = "openai"           // OpenAI Chat Completions
	OpenAIResponses API = "openai-responses" // OpenAI Responses
	Google          API = "google"           // Google generateContent, with an API key
	GoogleVertex    API = "google-vertex"    // the same on Vertex AI, with a project
)

// A Service is a provider of models by its name.
type Service struct {
	Name  string // in specifiers, such as "groq"
	Title string // for people, such as "Groq"
	API   API    // empty if the service is not built in; see Reason

	// BaseURL is where the service is, as the package of its API wants it. It is
	// empty for a service that has no address of its own.
	BaseURL string

	// Server is what is different in OpenAI's APIs, and Headers is sent with
	// each request.
	Server  openai.Server
	Headers map[string]string

	// Keys are the environment variables that may have the key; the first that
	// is set counts. Local says that the service needs none, as a rule because
	// it runs on a machine of one's own. BaseURLs are variables that may have
	// another base URL.
	Keys     []string
	Local    bool
	BaseURLs []string

	// Reason says why the service cannot be used with what is built in, and what
	// to do.
	Reason string
}

// An Access is what it takes to use a [Service].
type Access struct {
	Key   string            // the API key
	Token model.TokenSource // in place of a key, where the API has it

	// What replaces the service's own; empty leaves it.
	BaseURL string
	API     API
	Server  openai.Server

	Headers map[string]string // added to the service's own
	Client  *http.Client      // see the Config of the API's package

	Project, Location string // of GoogleVertex
	// CacheKey says how a server of one of OpenAI's APIs is told by which key it may
	// keep a conversation: in the field "prompt_cache_key", or in the header of this
	// name. Empty leaves it to what is known of the server.
	CacheKey string

	APIVersion string // of Azure OpenAI; see [openai.Config.APIVersion]
}

// Known returns the services that are known by name, in the order of their
// names. The result is the caller's.
func Known() []Service {
	all := table()
	slices.SortFunc(all, func(a, b Service) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Lookup returns the service of a name, and whether it is known.
func Lookup(name string) (Service, bool) {
	all := table()
	i := slices.IndexFunc(all, func(s Service) bool { return s.Name == name })
	if i < 0 {
		return Service{}, false
	}
	return all[i], true
}

// New returns the provider of a service, under the service's name. What is wrong
// with the access is reported by the provider, as that of the API's package
// does. A service that is not built in is a [*model.Unavailable].
func (s Service) New(a Access) model.Provider {
	base := cmp.Or(a.BaseURL, s.BaseURL)
	headers := maps.Clone(s.Headers)
	if headers == nil {
		headers = map[string]string{}
	}
	maps.Copy(headers, a.Headers)
	switch api := cmp.Or(a.API, s.API); api {
	case Anthropic:
		return anthropic.New(anthropic.Config{Name: s.Name, BaseURL: base, APIKey: a.Key, Headers: headers, Client: a.Client})
	case OpenAI, OpenAIResponses:
		c := openai.Config{
			Name: s.Name, BaseURL: base, APIKey: a.Key, Token: a.Token, Headers: headers, Client: a.Client,
			Server: cmp.Or(a.Server, s.Server), APIVersion: a.APIVersion,
		}
		if a.CacheKey == cacheKeyField {
			c.PromptCacheKey = true
		} else {
			c.CacheKeyHeader = a.CacheKey
		}
		if api == OpenAI {
			return openai.New(c)
		}
		return openai.NewResponses(c)
	case Google:
		return google.New(google.Config{Name: s.Name, BaseURL: base, APIKey: a.Key, Headers: headers, Client: a.Client})
	case GoogleVertex:
		return google.NewVertex(google.VertexConfig{
			Name: s.Name, BaseURL: base, Project: a.Project, Location: a.Location, Token: a.Token, Headers: headers, Client: a.Client,
		})
	}
	return &model.Unavailable{Name: s.Name, Reason: cmp.Or(s.Reason, "its API is not built in")}
}
