package modeltest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/flue-go/flue/model"
	rulebook "github.com/flue-go/flue/model/modeltest/rules"
)

// A Dialect is a way to ask a model: a provider, and what its service refuses.
type Dialect struct {
	New   func(client *http.Client) model.Provider
	Rules func(body []byte) []string
}

// Refused returns what the service would refuse of the request that the provider
// makes of req. Nothing is sent. It is for tests of what makes requests: whatever
// a conversation comes to, each service must take it.
func (d Dialect) Refused(ctx context.Context, req *model.Request) []string {
	var body []byte
	client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		body, _ = io.ReadAll(r.Body)
		return &http.Response{StatusCode: http.StatusTeapot, Request: r, Body: io.NopCloser(bytes.NewReader(nil))}, nil
	})}
	err := errors.New("the stream is empty")
	for _, failure := range d.New(client).Stream(ctx, req) {
		err = failure
	}
	if body == nil {
		return []string{"no request was made: " + err.Error()}
	}
	problems := d.Rules(body)
	if req.ToolsOff && rulebook.MayCall(body) {
		problems = append(problems, "the model may call a tool, and is not to")
	}
	return problems
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
