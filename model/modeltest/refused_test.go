package modeltest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/modeltest/rules"
)

func TestRefused(t *testing.T) {
	d := modeltest.Dialect{
		New: func(c *http.Client) model.Provider {
			return anthropic.New(anthropic.Config{APIKey: modeltest.Key, Client: c})
		},
		Rules: rules.Anthropic,
	}
	req := modeltest.Conversation(model.Origin{Provider: "anthropic", Model: "claude-haiku-4-5"}, nil)
	if problems := d.Refused(t.Context(), req); len(problems) > 0 {
		t.Errorf("refused: %q", problems)
	}
	d.Rules = rules.Gemini
	if problems := d.Refused(t.Context(), req); len(problems) == 0 {
		t.Error("Gemini takes a request of Anthropic's")
	}
	if problems := d.Refused(t.Context(), &model.Request{}); len(problems) != 1 || !strings.Contains(problems[0], "no request was made: ") {
		t.Errorf("a request that cannot be made: %q", problems)
	}
}
