package exchange_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/exchange"
)

func TestRefusal(t *testing.T) {
	e := &exchange.Endpoint{Provider: "p", Secrets: []string{"sk-secret"}, Classify: func(code string) model.Class {
		if code == "TooManyTokens" {
			return model.Quota
		}
		return ""
	}}
	header := http.Header{"Retry-After": {"7"}, "X-Amzn-Requestid": {"r-1"}}
	for _, tt := range []struct {
		status        int
		code, message string
		class         model.Class
		want          string
	}{
		{429, "Throttling", "slow\ndown sk-secret", model.RateLimited, "slow down [redacted] (request r-1)"},
		{400, "TooManyTokens", "no more", model.Quota, "no more (request r-1)"},
		{400, "Validation", "Input is too long for requested model.", model.Overflow, "Input is too long for requested model. (request r-1)"},
		{0, "Unknown", "", model.Retryable, "Unknown (request r-1)"},
	} {
		err := e.Refusal(tt.status, tt.code, tt.message, header)
		if err.Class != tt.class || err.Message != tt.want || err.RetryAfter != 7*time.Second || err.Status != tt.status || err.Provider != "p" {
			t.Errorf("%s: %+v, want class %s and %q", tt.code, err, tt.class, tt.want)
		}
	}
	if err := e.Refusal(500, "", "", nil); err.Message != "internal server error" || err.RetryAfter != 0 {
		t.Errorf("without a header: %+v", err)
	}
}
