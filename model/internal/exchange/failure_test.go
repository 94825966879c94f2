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
		{"rate limit", 429, `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`, model.RateLimited},
		{"overloaded", 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, model.Overloaded},
		{"server error", 500, `{"type":"error","error":{"type":"api_error","message":"Internal server error"}}`, model.Retryable},
		{"server error that mentions the context window", 500, `{"error":{"message":"context window service down"}}`, model.Retryable},
		{"quota", 429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`, model.Quota},
		{"billing", 402, `{"type":"error","error":{"type":"billing_error","message":"pay"}}`, model.Quota},
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
		{"rate limit with overflow words", 429, `{"error":{"message":"too many tokens per minute"}}`, model.RateLimited},
		{"router wraps its provider", 400, `{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"prompt is too long: 1 tokens"}}}`, model.Overflow},
		{"Anthropic, nothing left", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API."}}`, model.Quota},
		{"payment required", 402, ``, model.Quota},
		{"Anthropic, own limit", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."}}`, model.Quota},
		{"xAI, nothing left", 403, `{"code":"The caller does not have permission to execute the specified operation","error":"Your team has either used all available credits or reached its monthly spending limit."}`, model.Quota},
		{"Z.ai, nothing left", 429, `{"error":{"code":"1113","message":"Insufficient balance or no resource package. Please recharge."}}`, model.Quota},
		{"Moonshot, nothing left", 429, `{"error":{"type":"exceeded_current_quota_error","message":"Your account is suspended"}}`, model.Quota},
		{"down, and speaks of credits", 500, `{"error":{"message":"insufficient credits service unavailable"}}`, model.Retryable},
		{"Azure's filter", 400, `{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","code":null,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}`, model.Filtered},
		{"Anthropic's filter", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}`, model.Filtered},
		{"in a stream: Anthropic's filter", 0, `{"type":"error","error":{"type":"api_error","message":"Output blocked by content filtering policy"}}`, model.Filtered},
		{"router's moderation", 403, `{"error":{"code":403,"message":"openai/o9 requires moderation on OpenRouter.","metadata":{"reasons":["violence"],"flagged_input":"…"}}}`, model.Filtered},
		{"router with odd metadata", 429, `{"error":{"code":429,"message":"slow down","metadata":"none"}}`, model.RateLimited},
		{"content filter", 400, `{"error":{"message":"flagged","code":"content_filter"}}`, model.Filtered},
		{"busy", 503, `{"error":{"message":"The model is overloaded. Please try again later."}}`, model.Overloaded},
		{"busy, as a rate limit", 429, `{"error":{"message":"We are at capacity","type":"engine_overloaded_error"}}`, model.Overloaded},
		{"unavailable", 503, `{"error":{"message":"Service unavailable"}}`, model.Retryable},
		{"Gemini, too many requests", 429, `{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"generativelanguage.googleapis.com/generate_content_free_tier_requests","quotaId":"GenerateRequestsPerMinutePerProjectPerModel-FreeTier","quotaValue":"5"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"46s"}]}}`, model.RateLimited},
		{"Gemini, nothing left today", 429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier","quotaValue":"20"}]},{"reason":"RATE_LIMIT_EXCEEDED"},{"retryDelay":"35640s"}]}}`, model.Quota},
		{"Gemini, nothing allowed", 429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"GenerateRequestsPerMinute","quotaValue":"0"}]}]}}`, model.Quota},
		{"Groq, nothing left today", 429, `{"error":{"message":"Rate limit reached for model ` + "`llama-3.3-70b-versatile`" + ` in organization ` + "`org_x`" + ` service tier ` + "`on_demand`" + ` on tokens per day (TPD): Limit 100000, Used 99527, Requested 1143. Please try again in 9m38.016s. Need more tokens?","type":"tokens","code":"rate_limit_exceeded"}}`, model.Quota},
		{"Groq, no requests left today", 429, `{"error":{"message":"Rate limit reached on requests per day (RPD): Limit 1000, Used 1000, Requested 1. Please try again in 1m26.4s.","code":"rate_limit_exceeded"}}`, model.Quota},
		{"Groq, this minute", 429, `{"error":{"message":"Rate limit reached on tokens per minute (TPM): Limit 6000, Used 5000, Requested 1100. Please try again in 1m1s.","code":"rate_limit_exceeded"}}`, model.RateLimited},
		{"OpenAI, a day's limit that lets one in soon", 429, `{"error":{"message":"Rate limit reached for gpt-4o on requests per day (RPD): Limit 10000, Used 10000, Requested 1. Please try again in 8.64s.","code":"rate_limit_exceeded"}}`, model.RateLimited},
		{"OpenRouter, nothing left today", 429, `{"error":{"message":"Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day","code":429}}`, model.Quota},
		{"larger than a day's limit", 429, `{"error":{"message":"Request too large on tokens per day (TPD): Limit 100000, Requested 140000","code":"rate_limit_exceeded"}}`, model.Overflow},
		{"in a stream: nothing left today", 0, `{"error":{"code":"rate_limit_exceeded","message":"Rate limit reached on tokens per day (TPD). Please try again in 2h0m0s."}}`, model.Quota},
		{"down, and speaks of a day", 500, `{"error":{"message":"the requests per day counter failed"}}`, model.Retryable},
		{"Gemini, key", 400, `{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}]}}`, model.Auth},
		{"Gemini, bytes", 400, `{"error":{"code":400,"message":"Request payload size exceeds the limit: 20971520 bytes.","status":"INVALID_ARGUMENT"}}`, model.Overflow},
		{"Gemini, cancelled", 499, `{"error":{"code":499,"message":"The operation was cancelled.","status":"CANCELLED"}}`, model.Retryable},
		{"Gemini, busy", 503, `[{"error":{"code":503,"message":"This model is currently experiencing high demand.","status":"UNAVAILABLE"}}]`, model.Overloaded},
		{"in a stream: a request larger than the rate", 0, `{"error":{"code":"rate_limit_exceeded","message":"Request too large for gpt-5 on tokens per min (TPM): Limit 30000, Requested 35364."}}`, model.Overflow},
		{"in a stream: rate limit of OpenAI", 0, `{"error":{"code":"rate_limit_exceeded","message":"Rate limit reached for gpt-5. Please try again in 6.5s."}}`, model.RateLimited},
		{"in a stream: rate limit", 0, `{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}`, model.RateLimited},
		{"in a stream: Gemini", 0, `{"error":{"status":"RESOURCE_EXHAUSTED","message":"Resource exhausted"}}`, model.RateLimited},
		{"in a stream: overloaded", 0, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, model.Overloaded},
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

// Some servers say in the body how long to wait.
func TestRetryDelay(t *testing.T) {
	for delay, want := range map[string]time.Duration{
		"46s": 46 * time.Second, "34.074824224s": 34074824224, "0.5s": 500 * time.Millisecond, "99999999s": 24 * time.Hour, "-5s": 0, "soon": 0, "": 0,
	} {
		f := parseFailure([]byte(`{"error":{"code":429,"details":[7,{"retryDelay":"` + delay + `"}]}}`))
		if got := (&Endpoint{}).failure(f).RetryAfter; got != want {
			t.Errorf("delay %q is %v, want %v", delay, got, want)
		}
	}
	for _, details := range []string{`"text"`, `{"a":1}`, `[[]]`, `null`, `[{"violations":"x"}]`} {
		if f := parseFailure([]byte(`{"error":{"message":"m","details":` + details + `}}`)); f.message != "m" || f.retry != 0 {
			t.Errorf("details %s: %+v", details, f)
		}
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
		{"Retry-After", "Mon, 30 Nov 2099 11:00:00 GMT", 24 * time.Hour},
		{"Retry-After", "999999999999999999999", 24 * time.Hour},
		{"Retry-After", "-5", 0},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "Inf", 24 * time.Hour},
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
	for _, s := range []string{`{"error":{"message":"a","code":429}}`, `[{"error":"x"}]`, `{"detail":[1]}`, "<html>", "", `{"error":{"details":[{"retryDelay":"1s","violations":[{"quotaValue":"0"}]}]}}`} {
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

func TestRetryWords(t *testing.T) {
	for _, tt := range []struct {
		message string
		want    time.Duration
	}{
		{"Rate limit reached for gpt-5 on tokens per min. Please try again in 6.5s. Visit our site.", 6500 * time.Millisecond},
		{"Please try again in 28ms.", 28 * time.Millisecond},
		{"Please try again in 2m.", 2 * time.Minute},
		{"on tokens per day (TPD): Limit 100000, Used 99527, Requested 1143. Please try again in 9m38.016s. Need more tokens?", 9*time.Minute + 38016*time.Millisecond},
		{"Please try again in 6m0s.", 6 * time.Minute},
		{"Please try again in 1H2M3.5S.", time.Hour + 2*time.Minute + 3500*time.Millisecond},
		{"Please try again in 59m59.9s", 59*time.Minute + 59900*time.Millisecond},
		{"try again in 1s2x", 0},
		{"Please try again in 2 hours.", 2 * time.Hour},
		{"Please retry after 17 seconds.", 17 * time.Second},
		{"Please Retry After 1 second.", time.Second},
		{"try again in 99999999999999999999999999 minutes", 24 * time.Hour},
		{"try again in " + strings.Repeat("9", 400) + "s", 24 * time.Hour},
		{"try again in a while", 0},
		{"try again in 5 steps", 0},
		{"", 0},
	} {
		if got := retryWords(tt.message); got != tt.want {
			t.Errorf("%.60q: %v, want %v", tt.message, got, tt.want)
		}
	}
}
