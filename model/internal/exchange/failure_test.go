package exchange

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/flue-go/flue/model"
)

func TestFailureClass(t *testing.T) {
	tests := []struct {
		name   string
		status int
		body   string
		class  model.Class
	}{
		{"timeout", 408, ``, model.Retryable},
		{"conflict", 409, ``, model.Retryable},
		{"too early", 425, ``, model.Retryable},
		{"rate limit", 429, `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`, model.Retryable},
		{"overloaded", 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, model.Retryable},
		{"server error", 500, `{"type":"error","error":{"type":"api_error","message":"Internal server error"}}`, model.Retryable},
		{"server error that mentions the context window", 500, `{"error":{"message":"context window service down"}}`, model.Retryable},
		{"quota", 429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`, model.Invalid},
		{"billing", 402, `{"type":"error","error":{"type":"billing_error","message":"pay"}}`, model.Invalid},
		{"unauthorized", 401, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`, model.Auth},
		{"forbidden", 403, ``, model.Auth},
		{"not found", 404, `{"error":{"message":"The model does not exist","code":"model_not_found"}}`, model.Invalid},
		{"bad request", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"messages: at least one message is required"}}`, model.Invalid},
		{"unprocessable", 422, `{"detail":[{"loc":["body","tools"],"msg":"field required"}]}`, model.Invalid},
		{"payload too large", 413, ``, model.Overflow},
		{"Anthropic", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210001 tokens > 200000 maximum"}}`, model.Overflow},
		{"Anthropic with output", 400, `{"error":{"message":"input length and ` + "`max_tokens`" + ` exceed context limit: 190000 + 20000 > 200000"}}`, model.Overflow},
		{"OpenAI", 400, `{"error":{"message":"Your input exceeds the limit","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, model.Overflow},
		{"vLLM", 400, `{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000.","type":"BadRequestError","code":400}`, model.Overflow},
		{"llama.cpp", 400, `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}`, model.Overflow},
		{"xAI", 400, `{"code":"invalid","error":"This model's maximum prompt length is 131072 but the request contains 200000 tokens."}`, model.Overflow},
		{"Groq", 400, `{"error":{"message":"Please reduce the length of the messages or completion."}}`, model.Overflow},
		{"Gemini", 400, `[{"error":{"code":400,"message":"The input token count (2000000) exceeds the maximum number of tokens allowed (1048575).","status":"INVALID_ARGUMENT"}}]`, model.Overflow},
		{"token rate smaller than the request", 429, `{"error":{"message":"Request too large for gpt on tokens per min (TPM): Limit 30000, Requested 40000.","code":"rate_limit_exceeded"}}`, model.Overflow},
		{"rate limit with overflow words", 429, `{"error":{"message":"too many tokens per minute"}}`, model.Retryable},
		{"router wraps its provider", 400, `{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"prompt is too long: 1 tokens"}}}`, model.Overflow},
		{"in a stream: overloaded", 0, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, model.Retryable},
		{"in a stream: invalid", 0, `{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`, model.Invalid},
		{"in a stream: numbered", 0, `{"error":{"code":502,"message":"upstream failed"}}`, model.Retryable},
		{"in a stream: numbered refusal", 0, `{"error":{"code":403,"message":"no access"}}`, model.Auth},
		{"in a stream: key", 0, `{"error":{"code":"invalid_api_key","message":"no"}}`, model.Auth},
		{"in a stream: unknown", 0, `{"error":"something"}`, model.Retryable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := parseFailure([]byte(tt.body))
			if tt.status != 0 {
				f.status = tt.status
			}
			if got := f.class(); got != tt.class {
				t.Errorf("class = %s, want %s (parsed %+v)", got, tt.class, f)
			}
		})
	}
}

func TestFailureMessage(t *testing.T) {
	for _, tt := range []struct{ body, want string }{
		{`{"error":{"message":"a"}}`, "a"},
		{`{"error":"b"}`, "b"},
		{`{"message":"c"}`, "c"},
		{`{"detail":"d"}`, "d"},
		{`[{"error":{"message":"e"}}]`, "e"},
		{`{"error":{"message":{"text":"f"}}}`, `{"text":"f"}`},
		{`{"error":{"type":"overloaded_error"}}`, "overloaded_error"},
		{"plain \x00 text", "plain   text"},
		{``, "the server reported a failure and did not say which"},
		{`{"error":{"mess`, "the server reported a failure and did not say which"},
	} {
		e := &Endpoint{Provider: "p"}
		if got := e.failure(parseFailure([]byte(tt.body))).Message; got != tt.want {
			t.Errorf("message of %s = %q, want %q", tt.body, got, tt.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "7", 7 * time.Second},
		{"Retry-After", "0.5", 500 * time.Millisecond},
		{"Retry-After", "Mon, 30 Nov 2026 12:00:30 GMT", 30 * time.Second},
		{"Retry-After", "Mon, 30 Nov 2026 11:00:00 GMT", 0},
		{"Retry-After", "Mon, 30 Nov 2099 11:00:00 GMT", time.Hour},
		{"Retry-After", "999999999999999999999", time.Hour},
		{"Retry-After", "-5", 0},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "Inf", time.Hour},
		{"Retry-After", "soon", 0},
		{"Retry-After-Ms", "1500", 1500 * time.Millisecond},
		{"X-Other", "7", 0},
	} {
		h := http.Header{}
		h.Set(tt.name, tt.value)
		if got := retryAfter(h, now); got != tt.want {
			t.Errorf("%s: %s = %v, want %v", tt.name, tt.value, got, tt.want)
		}
	}
	both := http.Header{"Retry-After": {"9"}, "Retry-After-Ms": {"20"}}
	if got := retryAfter(both, now); got != 20*time.Millisecond {
		t.Errorf("the finer header must win, got %v", got)
	}
}

func FuzzParseFailure(f *testing.F) {
	for _, s := range []string{`{"error":{"message":"a","code":429}}`, `[{"error":"x"}]`, `{"detail":[1]}`, "<html>", ""} {
		f.Add([]byte(s), 400)
	}
	f.Fuzz(func(t *testing.T, body []byte, status int) {
		fail := parseFailure(body)
		fail.status = status
		e := (&Endpoint{Provider: "p", Secrets: []string{"secret"}}).failure(fail)
		if e.Message == "" || len(e.Message) > maxMessage+8 || !utf8.ValidString(e.Message) || strings.Contains(e.Message, "secret") {
			t.Errorf("message %q of %q", e.Message, body)
		}
	})
}
