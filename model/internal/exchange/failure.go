package exchange

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/flue-go/flue/model"
)

// A failure is what a server said went wrong.
type failure struct {
	status  int // HTTP status, or a status named inside a stream; may be zero
	kind    string
	code    string
	message string
	flagged bool          // a router says that its moderation refused
	retry   time.Duration // how long to wait, where the body says so
}

// failure returns the error to report for f.
func (e *Endpoint) failure(f failure) *model.Error {
	message := clean(e.redact(f.message))
	if message == "" {
		message = strings.TrimSpace(clean(e.redact(f.kind + " " + f.code)))
	}
	if message == "" {
		message = strings.ToLower(http.StatusText(f.status))
	}
	if message == "" {
		message = "the server reported a failure and did not say which"
	}
	return &model.Error{Provider: e.Provider, Class: e.class(f), Status: f.status, Message: message, RetryAfter: f.retry}
}

// class decides what to do about f.
func (e *Endpoint) class(f failure) model.Class {
	if e.Classify != nil {
		if class := e.Classify(f.code); class != "" {
			return class
		}
	}
	return f.class()
}

// class decides what to do about f. What the server says goes before the
// status: an exhausted quota arrives as a 429, and an overflow as a 400.
func (f failure) class() model.Class {
	switch {
	case f.spent():
		return model.Quota
	case f.overflow():
		return model.Overflow
	case f.filtered():
		return model.Filtered
	case f.status == http.StatusUnauthorized, f.status == http.StatusForbidden, f.named("API_KEY_INVALID"):
		return model.Auth
	case f.overloaded():
		return model.Overloaded
	case f.limited() && f.ofDay():
		return model.Quota
	case f.limited():
		return model.RateLimited
	case f.status == http.StatusRequestTimeout, f.status == http.StatusConflict, f.status == http.StatusTooEarly,
		f.status >= 500, f.named("ABORTED", "CANCELLED"):
		return model.Retryable
	case f.status >= 300:
		return model.Invalid
	case f.named("authentication_error", "permission_error", "invalid_api_key"):
		return model.Auth
	case f.named("invalid_request_error", "not_found_error", "model_not_found"):
		return model.Invalid
	}
	return model.Retryable // reported inside a stream that had begun well
}

// spent reports whether what was paid for is used up. The words are looked at
// only in a refusal: a server that is down may speak of anything.
func (f failure) spent() bool {
	if f.status == http.StatusPaymentRequired || f.named("insufficient_quota", "billing_error", "billing_hard_limit_reached",
		"billing_not_active", "quota_exceeded", "exceeded_current_quota_error", "insufficient_balance", "insufficient_credits", quotaOfDay) {
		return true
	}
	return f.status < 500 && f.says(
		"credit balance is too low",              // Anthropic
		"reached your specified api usage limit", // Anthropic
		"insufficient balance",                   // DeepSeek, Z.ai, MiniMax
		"insufficient credits",                   // OpenRouter
		"used all available credits",             // xAI
		"monthly spending limit",                 // xAI
	)
}

// limited reports whether too much was asked for in some time.
func (f failure) limited() bool {
	return f.status == http.StatusTooManyRequests ||
		f.status == 0 && f.named("rate_limit_error", "rate_limit_exceeded", "too_many_requests", "RESOURCE_EXHAUSTED")
}

// soon is a wait that is worth it for a limit of a day. OpenAI and Groq let the
// day's allowance come back little by little, so that the next request may be
// possible in seconds.
const soon = time.Minute

// ofDay reports whether the limit is that of a day, which waiting does not help
// against unless the server says that it does.
func (f failure) ofDay() bool {
	if f.retry > 0 && f.retry <= soon || f.says("per minute", "per-min", "per min") {
		return false
	}
	return f.says(
		"per day", // Groq, OpenAI
		"per-day", // OpenRouter
	)
}

// filtered reports whether a content filter refused.
func (f failure) filtered() bool {
	if f.flagged || f.named("content_policy_violation", "content_filter", "ResponsibleAIPolicyViolation", "data_inspection_failed") {
		return true
	}
	return f.status < 500 && f.says(
		"content filtering policy",  // Anthropic
		"content management policy", // Azure OpenAI
		"input was flagged",         // OpenRouter
	)
}

// says reports whether the message holds one of the phrases, in lower case.
func (f failure) says(phrases ...string) bool {
	text := strings.ToLower(f.message)
	return slices.ContainsFunc(phrases, func(p string) bool { return strings.Contains(text, p) })
}

// statusOverloaded is what Anthropic and others answer when they have no capacity.
const statusOverloaded = 529

// overloaded reports whether the server has no capacity, which it says by a name
// of its own or in the words of a status that alone says less.
func (f failure) overloaded() bool {
	switch {
	case f.status == statusOverloaded, f.named("overloaded_error", "engine_overloaded_error", "server_overloaded"):
		return true
	case f.status == http.StatusServiceUnavailable, f.status == http.StatusTooManyRequests, f.status == 0:
		text := strings.ToLower(f.message)
		return strings.Contains(text, "overloaded") || strings.Contains(text, "high demand") || strings.Contains(text, "at capacity")
	}
	return false
}

func (f failure) named(names ...string) bool {
	return slices.Contains(names, f.kind) || slices.Contains(names, f.code)
}

// overflow reports whether the request was too large for the model. Statuses
// that mean something else whatever the words are excluded; a rate limit whose
// window is smaller than the request is not, since only a smaller request helps.
func (f failure) overflow() bool {
	text := strings.ToLower(f.message)
	tooLarge := strings.Contains(text, "request too large")
	switch f.status {
	case http.StatusRequestEntityTooLarge:
		return true
	case http.StatusTooManyRequests:
		return tooLarge
	case 0, http.StatusOK, http.StatusBadRequest, http.StatusUnprocessableEntity:
	default:
		return false
	}
	if tooLarge && f.named("rate_limit_exceeded") { // within a stream
		return true
	}
	if f.named("context_length_exceeded", "exceed_context_size_error", "request_too_large", "model_max_prompt_tokens_exceeded", "string_above_max_length") {
		return true
	}
	return slices.ContainsFunc(overflowWords[:], func(w string) bool { return strings.Contains(text, w) })
}

// overflowWords are how servers say that a request exceeds the context window.
var overflowWords = [...]string{
	"prompt is too long",                   // Anthropic, Fireworks
	"exceed context limit",                 // Anthropic, input and max_tokens together
	"input is too long",                    // Bedrock
	"maximum context length",               // OpenAI, vLLM, Mistral, DeepSeek, OpenRouter
	"maximum prompt length",                // xAI
	"context window",                       // OpenAI, MiniMax
	"context size",                         // llama.cpp
	"context length",                       // LM Studio, Ollama
	"reduce the length of the messages",    // Groq
	"exceeds the maximum number of tokens", // Gemini
	"request payload size exceeds",         // Gemini, which counts bytes
	"exceeded model token limit",           // Moonshot
	"too many tokens",                      // Cohere
	"tokens + max_new_tokens",              // text-generation-inference
	"prompt too long",                      // Ollama cloud
}

// parseFailure finds the failure in body. Servers agree on little: the object
// may sit under "error" or at the top, inside an array, or be a plain string.
func parseFailure(body []byte) failure {
	body = bytes.TrimSpace(body)
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0]
	}
	var top struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &top) != nil {
		if bytes.HasPrefix(body, []byte("<")) || bytes.HasPrefix(body, []byte("{")) {
			return failure{} // a web page, or JSON that was cut: the status says more
		}
		return failure{message: string(body)}
	}
	if f, ok := parseDetail(top.Error); ok {
		return f
	}
	f, _ := parseDetail(body)
	return f
}

// parseDetail reads the object or the string that describes a failure.
func parseDetail(raw json.RawMessage) (failure, bool) {
	if len(raw) == 0 || string(raw) == "null" {
		return failure{}, false
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return failure{message: text}, text != ""
	}
	var d struct {
		Type     any             `json:"type"`
		Code     any             `json:"code"`
		Message  json.RawMessage `json:"message"`
		Detail   json.RawMessage `json:"detail"`
		Status   any             `json:"status"`
		Details  json.RawMessage `json:"details"`
		Metadata json.RawMessage `json:"metadata"`
	}
	if json.Unmarshal(raw, &d) != nil {
		return failure{}, false
	}
	f := failure{kind: scalar(d.Type), code: scalar(d.Code), message: words(d.Message)}
	if f.message == "" {
		f.message = words(d.Detail)
	}
	f.router(d.Metadata)
	if n, err := strconv.Atoi(f.code); err == nil && n >= 400 && n < 600 {
		f.status = n
	}
	f.retry = retryWords(f.message)
	f.google(scalar(d.Status), d.Details)
	return f, f != failure{}
}

// router adds what a router says beside the failure: a copy of what its own
// provider said, or why its moderation refused.
func (f *failure) router(metadata json.RawMessage) {
	var m struct {
		Raw     json.RawMessage `json:"raw"`
		Reasons []string        `json:"reasons"`
	}
	if json.Unmarshal(metadata, &m) != nil {
		return
	}
	f.flagged = len(m.Reasons) > 0
	if raw := words(m.Raw); raw != "" {
		f.message += ": " + raw
	}
}

// words returns a string as it is, and any other JSON value as its text.
func words(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

func scalar(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

const maxMessage = 2 << 10

// clean makes s fit for a log line: valid, bounded and without control characters.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > maxMessage {
		cut := maxMessage
		for !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s))
}

// requestID returns the id under which the provider's support finds the call.
func requestID(h http.Header) string {
	for _, name := range []string{"Request-Id", "X-Request-Id", "X-Amzn-Requestid"} {
		if id := clean(h.Get(name)); id != "" && len(id) <= 128 {
			return id
		}
	}
	return ""
}

// maxRetryAfter bounds the wait that a server can ask for.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads how long the server asks to wait: in milliseconds, in
// seconds, or until a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return wait(ms, time.Millisecond)
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		return wait(s, time.Second)
	}
	if at, err := http.ParseTime(v); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

// How servers say in words how long to wait: as a duration of Go's, such as
// "9m38.016s", or as a number and a word.
var (
	retryDuration = regexp.MustCompile(`(?i)(?:try again in|retry after) ((?:[0-9]+(?:\.[0-9]+)?(?:h|m|s|ms))+)\b`)
	retryPhrase   = regexp.MustCompile(`(?i)(?:try again in|retry after) ([0-9]+(?:\.[0-9]+)?) ?(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?)\b`)
)

// retryWords reads how long OpenAI, Azure and Groq ask to wait from their words,
// which are all there is within a stream.
func retryWords(message string) time.Duration {
	if m := retryDuration.FindStringSubmatch(message); m != nil {
		d, err := time.ParseDuration(strings.ToLower(m[1]))
		if err != nil {
			return maxRetryAfter // it has the form of one, so it is too long for one
		}
		return min(d, maxRetryAfter)
	}
	m := retryPhrase.FindStringSubmatch(message)
	if m == nil {
		return 0
	}
	n, _ := strconv.ParseFloat(m[1], 64) // too large a number is infinite
	switch unit := strings.ToLower(m[2]); {
	case unit == "ms" || strings.HasPrefix(unit, "milli"):
		return wait(n, time.Millisecond)
	case unit[0] == 'm':
		return wait(n, time.Minute)
	case unit[0] == 'h':
		return wait(n, time.Hour)
	}
	return wait(n, time.Second)
}

// wait is n units within bounds. NaN compares false with everything and is zero.
func wait(n float64, unit time.Duration) time.Duration {
	if !(n > 0) {
		return 0
	}
	if n >= float64(maxRetryAfter/unit) {
		return maxRetryAfter
	}
	return time.Duration(n * float64(unit))
}
