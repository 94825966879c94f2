package interop_test

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"testing"

	anthropicsdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/google/go-cmp/cmp"
	openaisdk "github.com/openai/openai-go/v3"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/google"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/openai"
)

// Whatever the history, the request is one that the official SDK can say: read
// with its types and written again, it is the same.
func TestHistories(t *testing.T) {
	for _, tt := range []struct {
		name   string
		model  string
		codec  func(base string, c *http.Client) model.Provider
		params func() any
		plain  func(t *testing.T, body []byte) []byte // as the SDK writes what can be said in two ways
	}{
		{"anthropic", "claude-sonnet-4-5", func(base string, c *http.Client) model.Provider {
			return anthropic.New(anthropic.Config{BaseURL: base, APIKey: "k", Client: c})
		}, func() any { return new(anthropicsdk.MessageNewParams) }, longForm},
		{"openai", "gpt-4.1", func(base string, c *http.Client) model.Provider {
			return openai.New(openai.Config{BaseURL: base, APIKey: "k", Client: c})
		}, func() any { return new(openaisdk.ChatCompletionNewParams) }, plain},
		{"google", "gemini-2.5-flash", func(base string, c *http.Client) model.Provider {
			return google.New(google.Config{BaseURL: base, APIKey: "k", Client: c})
		}, func() any { return new(googleParams) }, withoutEmpty},
	} {
		t.Run(tt.name, func(t *testing.T) {
			own := model.Origin{Provider: tt.name, Model: tt.model}
			received := []model.Block{{Kind: model.Text, Text: "Hello."}}
			var body []byte
			p := tt.codec("http://model.test", &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				body, _ = io.ReadAll(r.Body)
				return nil, http.ErrServerClosed
			})})
			modeltest.Histories(t, func(body []byte) []string {
				want, params := standIn(body), tt.params()
				if err := json.Unmarshal(want, params); err != nil {
					return []string{"the SDK does not read it: " + err.Error()}
				}
				again, err := json.Marshal(params)
				if err != nil {
					return []string{"the SDK does not write it: " + err.Error()}
				}
				var a, b map[string]any
				_, _ = json.Unmarshal(tt.plain(t, want), &a), json.Unmarshal(again, &b)
				delete(a, "stream") // which the SDKs have elsewhere
				if len(a) == 0 || !reflect.DeepEqual(a, b) {
					return []string{"through the SDK's types (-sent +SDK): " + cmp.Diff(a, b)}
				}
				return nil
			}, own, received, func(req *model.Request) ([]byte, error) {
				for range p.Stream(t.Context(), req) {
				}
				return body, nil
			})
		})
	}
}
