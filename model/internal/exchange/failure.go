package exchange

import (
	"bytes"
	"encoding/json"
	"net/http"
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
}

// failure returns the error to report for f.
func (e *Endpoint) failure(f failure) *model.Error {
	message := clean(e.redact(f.message))
	if message == "" {
		message = strings.TrimSpace(clean(f.kind + " " + f.code))
	}
	if message == "" {
		message = strings.ToLower(http.StatusText(f.status))
	}
	if message == "" {
		message = "the server reported a failure and did not say which"
	}
	return &model.Error{Provider: e.Provider, Class: f.class(), Status: f.status, Message: message}
}

// class decides what to do about f. What the server says goes before the
// status: an exhausted quota arrives as a 429, and an overflow as a 400.
func (f failure) class() model.Class {
	switch {
	case f.named("insufficient_quota", "billing_error", "billing_hard_limit_reached", "quota_exceeded"):
		return model.Invalid
	case f.overflow():
		return model.Overflow
	case f.status == http.StatusUnauthorized || f.status == http.StatusForbidden:
		return model.Auth
	case f.status == http.StatusRequestTimeout, f.status == http.StatusConflict, f.status == http.StatusTooEarly,
		f.status == http.StatusTooManyRequests, f.status >= 500:
		return model.Retryable
	case f.status >= 300:
		return model.Invalid
	case f.named("authentication_error", "permission_error", "invalid_api_key"):
		return model.Auth
	case f.named("invalid_request_error", "not_found_error", "model_not_found", "content_policy_violation", "content_filter"):
		return model.Invalid
	}
	return model.Retryable // reported inside a stream that had begun well
}

func (f failure) named(names ...string) bool {
	return slices.Contains(names, f.kind) || slices.Contains(names, f.code)
}

// overflow reports whether the request was too large for the model. Statuses
// that mean something else whatever the words are excluded; a rate limit whose
// window is smaller than the request is not, since only a smaller request helps.
func (f failure) overflow() bool {
	text := strings.ToLower(f.message)
	switch f.status {
	case http.StatusRequestEntityTooLarge:
		return true
	case http.StatusTooManyRequests:
		return strings.Contains(text, "request too large")
	case 0, http.StatusOK, http.StatusBadRequest, http.StatusUnprocessableEntity:
	default:
		return false
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
		Metadata struct {
			Raw string `json:"raw"`
		} `json:"metadata"`
	}
	if json.Unmarshal(raw, &d) != nil {
		return failure{}, false
	}
	f := failure{kind: scalar(d.Type), code: scalar(d.Code), message: words(d.Message)}
	if f.message == "" {
		f.message = words(d.Detail)
	}
	if d.Metadata.Raw != "" { // a router's copy of what its own provider said
		f.message += ": " + d.Metadata.Raw
	}
	if n, err := strconv.Atoi(f.code); err == nil && n >= 400 && n < 600 {
		f.status = n
	}
	return f, f != failure{}
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
	for _, name := range []string{"Request-Id", "X-Request-Id"} {
		if id := clean(h.Get(name)); id != "" && len(id) <= 128 {
			return id
		}
	}
	return ""
}

// maxRetryAfter bounds the wait that a server can ask for.
const maxRetryAfter = time.Hour

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
