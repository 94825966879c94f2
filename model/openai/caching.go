package openai

import (
	"net/http"
	"regexp"
	"strings"
)

// isClaude recognizes Anthropic's models as OpenRouter names them. Others at
// OpenRouter keep what they have read without being told, or cannot.
func isClaude(id string) bool { return strings.HasPrefix(id, "anthropic/") }

// cacheControl marks the end of what a model shall keep.
type cacheControl struct {
	Type string `json:"type"`
}

// markForCaching marks the system prompt, which the tools come before, and the
// ends of the last two turns that are not the model's: of what a person says, or
// of a batch of results. The last but one is marked as well, since the cache looks
// back only a limited number of blocks.
//
// A mark has its place in a part. All content but the model's becomes parts, so
// that a message is the same with a mark and without.
func markForCaching(messages []message) {
	left := 2
	for i := len(messages) - 1; i >= 0; i-- {
		m := &messages[i]
		if m.Role == "assistant" {
			continue
		}
		if text, ok := m.Content.(string); ok {
			m.Content = []part{{Type: "text", Text: text}}
		}
		parts, _ := m.Content.([]part)
		first := m.Role == "system" || m.Role == "developer"
		last := i == len(messages)-1 || messages[i+1].Role == "assistant"
		switch {
		case first:
			mark(parts)
		case last && left > 0 && mark(parts):
			left--
		}
	}
}

// mark marks the last text of parts. It reports whether there is one.
func mark(parts []part) bool {
	for i := len(parts) - 1; i >= 0; i-- {
		if parts[i].Type == "text" {
			parts[i].CacheControl = &cacheControl{Type: "ephemeral"}
			return true
		}
	}
	return false
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9._-]*$`)

// withCacheKey returns header with the key of a conversation in the field of that
// name, unless the program has set it.
func withCacheKey(header http.Header, name, key string) http.Header {
	if name == "" || key == "" || header.Get(name) != "" {
		return header
	}
	if !plainKey.MatchString(key) {
		key = digest(key)
	}
	header = header.Clone()
	header.Set(name, cacheKey(key))
	return header
}
