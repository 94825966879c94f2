package openai

import (
	"encoding/json"
	"strings"
)

// The types of a request. Optional fields are left out when zero.

type request struct {
	Model               string        `json:"model"`
	Messages            []message     `json:"messages"`
	Tools               []tool        `json:"tools,omitempty"`
	ToolChoice          string        `json:"tool_choice,omitempty"`
	Stream              bool          `json:"stream"`
	StreamOptions       streamOptions `json:"stream_options"`
	Store               *bool         `json:"store,omitempty"`
	MaxCompletionTokens int           `json:"max_completion_tokens,omitempty"`
	MaxTokens           int           `json:"max_tokens,omitempty"`
	ReasoningEffort     string        `json:"reasoning_effort,omitempty"`
	ReasoningFormat     string        `json:"reasoning_format,omitempty"`
	Thinking            *thinking     `json:"thinking,omitempty"`
	PromptCacheKey      string        `json:"prompt_cache_key,omitempty"`
}

type thinking struct {
	Type string `json:"type"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type tool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      bool            `json:"strict,omitempty"`
}

// message holds as Content a string, a list of parts, or nil for an assistant
// message that has calls only.
type message struct {
	Role             string            `json:"role"`
	Name             string            `json:"name,omitempty"`
	Content          any               `json:"content"`
	ReasoningContent *string           `json:"reasoning_content,omitempty"`
	ReasoningDetails []json.RawMessage `json:"reasoning_details,omitempty"`
	ToolCalls        []toolCall        `json:"tool_calls,omitempty"`
	ToolCallID       string            `json:"tool_call_id,omitempty"`
}

type part struct {
	Type         string        `json:"type"`
	Text         string        `json:"text,omitempty"`
	ImageURL     *imageURL     `json:"image_url,omitempty"`
	CacheControl *cacheControl `json:"cache_control,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

type toolCall struct {
	ID           string          `json:"id"`
	Type         string          `json:"type"`
	Function     calledFunction  `json:"function"`
	ExtraContent json.RawMessage `json:"extra_content,omitempty"`
}

type calledFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// The types of a stream.

type chunk struct {
	Object  string          `json:"object"`
	Model   string          `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type choice struct {
	Index        int    `json:"index"`
	Delta        delta  `json:"delta"`
	FinishReason string `json:"finish_reason"`
	Usage        *usage `json:"usage"` // where Moonshot puts it
}

type delta struct {
	Content          content           `json:"content"`
	Refusal          string            `json:"refusal"`
	ReasoningContent content           `json:"reasoning_content"`
	Reasoning        content           `json:"reasoning"`
	ReasoningDetails []json.RawMessage `json:"reasoning_details"`
	ToolCalls        []toolDelta       `json:"tool_calls"`
}

type toolDelta struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string    `json:"name"`
		Arguments arguments `json:"arguments"`
	} `json:"function"`
	ExtraContent json.RawMessage `json:"extra_content"`
}

type usage struct {
	Prompt        int `json:"prompt_tokens"`
	Completion    int `json:"completion_tokens"`
	Total         int `json:"total_tokens"`
	PromptDetails struct {
		Cached     int `json:"cached_tokens"`
		CacheWrite int `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	CacheHit int `json:"prompt_cache_hit_tokens"` // DeepSeek
	Cached   int `json:"cached_tokens"`           // Moonshot

	price
}

// price is what a call cost, in the usage of a server that says so; see charged.
// Elsewhere it may be anything.
type price struct {
	Cost        json.RawMessage `json:"cost"`
	OwnKey      json.RawMessage `json:"is_byok"`
	CostDetails json.RawMessage `json:"cost_details"`
}

// content is text, which a few servers send as a list of parts, with reasoning
// among them. What it cannot read it leaves empty: a server's extra field must
// not fail its answer.
type content struct{ text, reasoning string }

func (c *content) UnmarshalJSON(raw []byte) error {
	*c = content{}
	switch {
	case len(raw) > 0 && raw[0] == '"':
		return json.Unmarshal(raw, &c.text)
	case len(raw) > 0 && raw[0] == '[':
		c.text, c.reasoning = parts(raw)
	}
	return nil
}

func parts(raw json.RawMessage) (text, reasoning string) {
	var list []struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		Thinking json.RawMessage `json:"thinking"`
	}
	if json.Unmarshal(raw, &list) != nil {
		return "", ""
	}
	var t, r strings.Builder
	for _, p := range list {
		switch p.Type {
		case "text":
			t.WriteString(p.Text)
		case "thinking":
			var c struct {
				Thinking content `json:"thinking"`
			}
			if json.Unmarshal(append(append([]byte(`{"thinking":`), p.Thinking...), '}'), &c) == nil {
				r.WriteString(c.Thinking.text)
			}
		}
	}
	return t.String(), r.String()
}

// arguments is a string of JSON, which a few servers send as JSON itself.
type arguments string

func (a *arguments) UnmarshalJSON(raw []byte) error {
	switch {
	case string(raw) == "null":
		return nil
	case len(raw) > 0 && raw[0] == '"':
		return json.Unmarshal(raw, (*string)(a))
	}
	*a = arguments(raw)
	return nil
}

// opaque is the form of model.Block.Opaque: of a Reasoning block the details,
// of a ToolCall the extra content, both as they were received.
type opaque struct {
	ReasoningDetails []json.RawMessage `json:"reasoning_details,omitempty"`
	ExtraContent     json.RawMessage   `json:"extra_content,omitempty"`
}
