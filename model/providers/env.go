package providers

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/google"
)

// The variables of any provider, known or not: FLUE_PROVIDER_MY_GATEWAY_BASE_URL
// is the base URL of the provider "my-gateway".
const (
	prefix        = "FLUE_PROVIDER_"
	suffixBaseURL = "_BASE_URL"
	suffixKey     = "_API_KEY"
	suffixAPI     = "_API"
	suffixServer  = "_SERVER"
	suffixCache   = "_CACHE_KEY"
)

// FromEnv returns the providers that the environment sets up, given as
// [os.Environ] has it, by the names that specifiers use. Each known service is
// there: one that lacks its key, and is no local one, as a [*model.Unavailable]
// that says which variable to set.
//
// A service's own variables are those of the official clients, see [Known] and
// docs/models.md. Beside them, FLUE_PROVIDER_<NAME>_BASE_URL, _API_KEY, _API
// ("openai", the default, "openai-responses", "anthropic" or "google"), _SERVER
// and _CACHE_KEY make a provider of any other name, or change that of a known one.
// The name is in capitals, with "_" for "-".
//
// It fails for a variable that means nothing. No error has a variable's value.
func FromEnv(environ []string) (map[string]model.Provider, error) {
	env := make(map[string]string)
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok {
			env[name] = value
		}
	}
	given, err := own(env)
	if err != nil {
		return nil, err
	}
	out := make(map[string]model.Provider)
	for _, s := range table() {
		p, err := s.fromEnv(env, given[s.Name])
		if err != nil {
			return nil, err
		}
		out[s.Name] = p
		delete(given, s.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		a := given[name]
		if a.BaseURL == "" {
			return nil, fmt.Errorf("provider %s has no address: set %s", name, variable(name, suffixBaseURL))
		}
		out[name] = Service{Name: name, API: OpenAI}.New(*a)
	}
	return out, nil
}

// fromEnv makes the provider of a known service from its own variables, and from
// what was given for its name.
func (s Service) fromEnv(env map[string]string, given *Access) (model.Provider, error) {
	var a Access
	if given != nil {
		a = *given
	}
	for _, v := range s.BaseURLs {
		if value := env[v]; value != "" && a.BaseURL == "" {
			if s.Name == "ollama" {
				value = ollamaURL(value)
			}
			if err := checkURL(v, value); err != nil {
				return nil, err
			}
			a.BaseURL = value
		}
	}
	for _, v := range s.Keys {
		if a.Key == "" {
			a.Key = strings.TrimSpace(env[v]) // a file that holds a key ends with a line break
		}
	}
	switch s.Name {
	case "google-vertex":
		if given != nil && given.Key != "" { // not to be taken for the project, which is in the address
			return nil, fmt.Errorf("variable %s: Vertex AI has no keys; set GOOGLE_CLOUD_ACCESS_TOKEN, or neither to use the metadata server", variable(s.Name, suffixKey))
		}
		return s.vertex(env, a), nil
	case "azure-openai":
		return s.azure(env, a), nil
	case "openai":
		// Other servers under OpenAI's name offer Chat Completions for sure.
		if a.BaseURL != "" && a.API == "" && !sameHost(a.BaseURL, s.BaseURL) {
			a.API = OpenAI
		}
	}
	if s.API != "" && a.Key == "" && a.BaseURL == "" && !s.Local {
		return &model.Unavailable{Name: s.Name, Variables: s.Keys}, nil
	}
	return s.New(a), nil
}

// vertex takes the token from the environment, or else from the metadata server
// that programs on Google Cloud have.
func (s Service) vertex(env map[string]string, a Access) model.Provider {
	a.Project, a.Key = a.Key, ""
	if a.Project == "" {
		return &model.Unavailable{Name: s.Name, Variables: s.Keys}
	}
	a.Location = env["GOOGLE_CLOUD_LOCATION"]
	a.Token = google.MetadataToken(a.Client)
	if token := env["GOOGLE_CLOUD_ACCESS_TOKEN"]; token != "" {
		a.Token = func(context.Context) (string, error) { return token, nil }
	}
	return s.New(a)
}

// azure needs an address as well as a key. Only the API that is called v1 has
// Responses for every model.
func (s Service) azure(env map[string]string, a Access) model.Provider {
	if a.Key == "" || a.BaseURL == "" {
		return &model.Unavailable{Name: s.Name, Variables: []string{s.Keys[0] + " and " + s.BaseURLs[0]}}
	}
	for _, v := range [...]string{"AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION"} {
		if a.APIVersion == "" {
			a.APIVersion = env[v]
		}
	}
	if dated := strings.HasPrefix(a.APIVersion, "20"); a.API == "" && dated {
		a.API = OpenAI
	}
	return s.New(a)
}

// sameHost reports whether two URLs name the same host.
func sameHost(a, b string) bool {
	u, err := url.Parse(a)
	v, err2 := url.Parse(b)
	return err == nil && err2 == nil && u.Host == v.Host
}

// ollamaURL is the base URL for the address in OLLAMA_HOST, which need not have a
// scheme or a port and may be the one that a server listens on.
func ollamaURL(host string) string {
	if !strings.Contains(host, "://") {
		host = "http://" + host
	}
	u, err := url.Parse(host)
	if err != nil {
		return host
	}
	if u.Port() == "" && u.Scheme == "http" {
		u.Host += ":11434"
	}
	if name := u.Hostname(); name == "0.0.0.0" || name == "" {
		u.Host = "127.0.0.1:" + u.Port()
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1"
	}
	return u.String()
}

// own reads the FLUE_PROVIDER variables, by provider.
func own(env map[string]string) (map[string]*Access, error) {
	found := make(map[string]*Access)
	for _, v := range slices.Sorted(maps.Keys(env)) {
		rest, ok := strings.CutPrefix(v, prefix)
		if !ok {
			continue
		}
		suffix := ""
		for _, s := range [...]string{suffixBaseURL, suffixKey, suffixAPI, suffixServer, suffixCache} {
			if strings.HasSuffix(rest, s) {
				suffix = s
				break
			}
		}
		name := strings.ReplaceAll(strings.ToLower(strings.TrimSuffix(rest, suffix)), "_", "-")
		if suffix == "" || name == "" {
			return nil, fmt.Errorf("variable %s is not one of %s<NAME>%s, %s, %s, %s and %s", v, prefix, suffixBaseURL, suffixKey, suffixAPI, suffixServer, suffixCache)
		}
		if found[name] == nil {
			found[name] = &Access{}
		}
		if err := found[name].set(v, suffix, env[v]); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// set takes the value of one variable.
func (a *Access) set(variable, suffix, value string) error {
	switch suffix {
	case suffixBaseURL:
		a.BaseURL = value
		return checkURL(variable, value)
	case suffixKey:
		a.Key = strings.TrimSpace(value)
	case suffixAPI:
		a.API = API(value)
		if known := []API{OpenAI, OpenAIResponses, Anthropic, Google}; value != "" && !slices.Contains(known, a.API) {
			return fmt.Errorf("variable %s: use one of %q", variable, known)
		}
	case suffixServer:
		s, ok := Lookup(value)
		if value != "" && (!ok || s.Server == "") {
			return fmt.Errorf("variable %s: use one of %s", variable, strings.Join(servers(), ", "))
		}
		a.Server = s.Server
	case suffixCache:
		if value != "" && value != cacheKeyField && !headerName.MatchString(value) {
			return fmt.Errorf("variable %s: use %s, or the name of a header that begins with x-", variable, cacheKeyField)
		}
		a.CacheKey = value
	}
	return nil
}

// cacheKeyField is the field of OpenAI's APIs for the key of a conversation.
const cacheKeyField = "prompt_cache_key"

var headerName = regexp.MustCompile(`^[Xx]-[A-Za-z0-9-]+$`)

// servers are the names of the services that do something in their own way.
func servers() []string {
	var names []string
	for _, s := range Known() {
		if s.Server != "" {
			names = append(names, s.Name)
		}
	}
	return names
}

func variable(provider, suffix string) string {
	return prefix + strings.ReplaceAll(strings.ToUpper(provider), "-", "_") + suffix
}

// checkURL checks a base URL if there is one. It does not show it, since it may
// have a password in it.
func checkURL(variable, value string) error {
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("variable %s is not a URL that begins with https:// or http://", variable)
	}
	return nil
}
