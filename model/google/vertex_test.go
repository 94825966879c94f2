package google_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/google"
	"github.com/flue-go/flue/model/modeltest"
)

// endless returns a client whose answer is the stream given and then nothing,
// until the call ends.
func endless(stream string) *http.Client {
	return &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: 200, Request: r, Header: http.Header{"Content-Type": {"text/event-stream"}},
			Body: io.NopCloser(io.MultiReader(strings.NewReader(stream), silent{r.Context()})),
		}, nil
	})}
}

type silent struct{ ctx context.Context }

func (s silent) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func token(context.Context) (string, error) { return "ya29.token", nil }

func TestAddresses(t *testing.T) {
	gemini := func(c google.Config) func(*http.Client) model.Provider {
		return func(client *http.Client) model.Provider {
			c.APIKey, c.Client = "key", client
			return google.New(c)
		}
	}
	vertex := func(c google.VertexConfig) func(*http.Client) model.Provider {
		return func(client *http.Client) model.Provider {
			c.Token, c.Client = token, client
			return google.NewVertex(c)
		}
	}
	for _, tt := range []struct {
		name  string
		new   func(*http.Client) model.Provider
		model string
		want  string
	}{
		{"Gemini", gemini(google.Config{}), "gemini-3.5-flash", "https://generativelanguage.googleapis.com/v1beta/models/gemini-3.5-flash:streamGenerateContent?alt=sse"},
		{"Gemini, with the prefix", gemini(google.Config{}), "models/gemini-3.5-flash", "https://generativelanguage.googleapis.com/v1beta/models/gemini-3.5-flash:streamGenerateContent?alt=sse"},
		{"Gemini, tuned", gemini(google.Config{}), "tunedModels/mine", "https://generativelanguage.googleapis.com/v1beta/tunedModels/mine:streamGenerateContent?alt=sse"},
		{"a gateway with a query", gemini(google.Config{BaseURL: "http://h/google/v1?zone=a&alt=json"}), "m", "http://h/google/v1/models/m:streamGenerateContent?alt=sse&zone=a"},
		{"Vertex", vertex(google.VertexConfig{Project: "p-1"}), "gemini-3.5-flash", "https://aiplatform.googleapis.com/v1/projects/p-1/locations/global/publishers/google/models/gemini-3.5-flash:streamGenerateContent?alt=sse"},
		{"Vertex, region", vertex(google.VertexConfig{Project: "p-1", Location: "europe-west4"}), "m@001", "https://europe-west4-aiplatform.googleapis.com/v1/projects/p-1/locations/europe-west4/publishers/google/models/m@001:streamGenerateContent?alt=sse"},
		{"Vertex, multi-region", vertex(google.VertexConfig{Project: "p-1", Location: "eu"}), "m", "https://aiplatform.eu.rep.googleapis.com/v1/projects/p-1/locations/eu/publishers/google/models/m:streamGenerateContent?alt=sse"},
		{"Vertex, own endpoint", vertex(google.VertexConfig{Project: "42", Location: "us-central1"}), "endpoints/123", "https://us-central1-aiplatform.googleapis.com/v1/projects/42/locations/us-central1/endpoints/123:streamGenerateContent?alt=sse"},
		{"Vertex, base URL", vertex(google.VertexConfig{Project: "p", BaseURL: "http://h/v1beta1/"}), "m", "http://h/v1beta1/projects/p/locations/global/publishers/google/models/m:streamGenerateContent?alt=sse"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, last := play(shortAnswer)
			req := modeltest.Hello()
			req.Model = tt.model
			if _, err := modeltest.Collect(t, tt.new(client).Stream(t.Context(), req)); err != nil {
				t.Fatal(err)
			}
			r, _ := last()
			if got := r.URL.String(); got != tt.want {
				t.Errorf("address = %s\nwant %s", got, tt.want)
			}
			key, auth := r.Header.Get("X-Goog-Api-Key"), r.Header.Get("Authorization")
			if strings.HasPrefix(tt.name, "Vertex") != (auth == "Bearer ya29.token" && key == "") || strings.HasPrefix(tt.name, "Vertex") == (key == "key" && auth == "") {
				t.Errorf("key %q, authorization %q", key, auth)
			}
		})
	}
}

func TestFlawedConfig(t *testing.T) {
	hello := modeltest.Hello()
	nameless, odd, up := modeltest.Hello(), modeltest.Hello(), modeltest.Hello()
	nameless.Model, odd.Model, up.Model = "", "a:b?c", "tunedModels/../../x"
	for _, tt := range []struct {
		name  string
		p     *google.Provider
		req   *model.Request
		class model.Class
		part  string
	}{
		{"no key", google.New(google.Config{}), hello, model.Auth, "GEMINI_API_KEY"},
		{"base URL", google.New(google.Config{BaseURL: "h", APIKey: "k"}), hello, model.Invalid, "base URL"},
		{"no model", google.New(google.Config{APIKey: "k"}), nameless, model.Invalid, "no model"},
		{"odd model", google.New(google.Config{APIKey: "k"}), odd, model.Invalid, "model"},
		{"model that climbs", google.New(google.Config{APIKey: "k"}), up, model.Invalid, "model"},
		{"no messages", google.New(google.Config{APIKey: "k"}), &model.Request{Model: "m"}, model.Invalid, "no messages"},
		{"no project", google.NewVertex(google.VertexConfig{Token: token}), hello, model.Invalid, "project"},
		{"odd project", google.NewVertex(google.VertexConfig{Token: token, Project: "a/b"}), hello, model.Invalid, "project"},
		{"odd location", google.NewVertex(google.VertexConfig{Token: token, Project: "p", Location: "evil.test/"}), hello, model.Invalid, "location"},
		{"Claude", google.NewVertex(google.VertexConfig{Token: token, Project: "p"}), &model.Request{Model: "claude-opus-4-6", Messages: hello.Messages}, model.Invalid, "not built in"},
		{"Vertex base URL", google.NewVertex(google.VertexConfig{Token: token, Project: "p", BaseURL: "h"}), hello, model.Invalid, "base URL"},
		{"no token", google.NewVertex(google.VertexConfig{Project: "p"}), hello, model.Auth, "Token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := modeltest.Collect(t, tt.p.Stream(t.Context(), tt.req))
			var e *model.Error
			if !errors.As(err, &e) || e.Class != tt.class || !strings.Contains(e.Message, tt.part) {
				t.Errorf("error = %v, want class %s and %q", err, tt.class, tt.part)
			}
		})
	}
}

// metadataServer answers as the metadata server does, with the status and the
// body that it is given for each request.
func metadataServer(t *testing.T, asked *int, answer func(n int) (int, string)) *http.Client {
	return &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("Metadata-Flavor") != "Google" || r.URL.Host != "metadata.google.internal" {
			t.Errorf("asked %s with %v", r.URL, r.Header)
		}
		*asked++
		status, body := answer(*asked)
		return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	})}
}

func TestMetadataToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		source := google.MetadataToken(metadataServer(t, &asked, func(n int) (int, string) {
			body, _ := json.Marshal(map[string]any{"access_token": strings.Repeat("t", n), "expires_in": 3600, "token_type": "Bearer"})
			return 200, string(body)
		}))
		get := func() string {
			t.Helper()
			token, err := source(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return token
		}
		for range 2 {
			if token := get(); token != "t" || asked != 1 {
				t.Errorf("token %q, asked %d times: want the first one again", token, asked)
			}
		}
		time.Sleep(59*time.Minute + time.Second)
		if token := get(); token != "tt" || asked != 2 {
			t.Errorf("token %q, asked %d times: want another one before the first expires", token, asked)
		}
	})
}

func TestMetadataTokenFails(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		body   string
		part   string
	}{
		{"no service account", 404, "not found", "service account"},
		{"something else", 200, "<html>", "something else"},
		{"no token", 200, "{}", "without a token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := 0
			source := google.MetadataToken(metadataServer(t, &asked, func(int) (int, string) { return tt.status, tt.body }))
			if _, err := source(t.Context()); err == nil || !strings.Contains(err.Error(), tt.part) {
				t.Errorf("error = %v, want %q", err, tt.part)
			}
			// A failure is not kept.
			if _, _ = source(t.Context()); asked != 2 {
				t.Errorf("asked %d times", asked)
			}
		})
	}
}

// A caller that waits for another one's token does not wait longer than its own
// context.
func TestMetadataTokenGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := google.MetadataToken(&http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})})
		done := make(chan struct{})
		go func() {
			defer close(done)
			start := time.Now()
			if _, err := source(t.Context()); err == nil || time.Since(start) > 10*time.Second {
				t.Errorf("gave up after %v with %v", time.Since(start), err)
			}
		}()
		synctest.Wait()
		cause := errors.New("aborted")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if _, err := source(ctx); !errors.Is(err, cause) {
			t.Errorf("error = %v, want the context's cause", err)
		}
		<-done
	})
}
