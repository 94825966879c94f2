package google

import (
	"net/http"
	"regexp"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/dialect"
	"github.com/flue-go/flue/model/internal/exchange"
)

// DefaultLocation is where Vertex AI is asked when no location is configured:
// wherever there is capacity.
const DefaultLocation = "global"

// VertexConfig configures a [Provider] of Vertex AI. Project and Token are
// needed.
type VertexConfig struct {
	// Project is the id or the number of the Google Cloud project that pays.
	Project string

	// Location is a region such as "europe-west4", one of the multi-regions "us"
	// and "eu", or "global". It decides which host is asked, and with that where
	// the data goes. Default: [DefaultLocation].
	Location string

	// Token returns an access token for the scope
	// https://www.googleapis.com/auth/cloud-platform. It is asked before each
	// call. [MetadataToken] is one for programs that run on Google Cloud.
	Token model.TokenSource

	// BaseURL replaces the host that Location decides. It is where the API is,
	// with the version but without the /projects/… that is added to it.
	BaseURL string

	// Name is the provider's name in errors and in the origin of messages; see
	// Config.Name. Default: "google-vertex".
	Name string

	// Client, the timeouts and Headers are as in Config.
	Client         *http.Client
	IdleTimeout    time.Duration
	FirstTimeout   time.Duration
	ContentTimeout time.Duration
	Headers        map[string]string
}

var (
	projectName  = regexp.MustCompile(`^[a-z0-9][a-z0-9.:-]*$`)
	locationName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)
)

// NewVertex returns a Provider of Vertex AI. A flawed VertexConfig is reported
// by the first call, as a [model.Error] of class Invalid, a missing Token as one
// of class Auth.
func NewVertex(c VertexConfig) *Provider {
	if c.Name == "" {
		c.Name = "google-vertex"
	}
	if c.Location == "" {
		c.Location = DefaultLocation
	}
	p := &Provider{name: c.Name, vertex: true, schemas: dialect.NewTable(dialect.GeminiJSON())}
	switch {
	case !projectName.MatchString(c.Project):
		p.err = p.invalid("no project, or one that is none; set Project in the provider's VertexConfig to the id of a Google Cloud project")
		return p
	case !locationName.MatchString(c.Location):
		p.err = p.invalid("the location is none; set Location in the provider's VertexConfig to a region, us, eu or global")
		return p
	}
	if c.BaseURL == "" {
		c.BaseURL = "https://" + vertexHost(c.Location) + "/v1"
	}
	p.connect(c.BaseURL, exchange.Endpoint{
		Header: exchange.Header(nil, c.Headers), Client: exchange.NewClient(c.Client), Token: c.Token,
		IdleTimeout: c.IdleTimeout, FirstTimeout: c.FirstTimeout, ContentTimeout: c.ContentTimeout,
	})
	if p.err != nil {
		return p
	}
	p.endpoint.URL = p.endpoint.URL.JoinPath("projects", c.Project, "locations", c.Location)
	if !p.authorized() {
		p.err = &model.Error{Provider: c.Name, Class: model.Auth, Message: "no source of tokens; set Token in the provider's VertexConfig"}
	}
	return p
}

// vertexHost returns the host that serves a location.
func vertexHost(location string) string {
	switch location {
	case "global":
		return "aiplatform.googleapis.com"
	case "us", "eu":
		return "aiplatform." + location + ".rep.googleapis.com"
	}
	return location + "-aiplatform.googleapis.com"
}
