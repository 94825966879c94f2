package anthropic

import "encoding/json"

// The types of a request. Optional fields are left out when zero.

type request struct {
	Model        string        `json:"model"`
	MaxTokens    int           `json:"max_tokens"`
	System       []*textBlock  `json:"system,omitempty"`
	Messages     []message     `json:"messages"`
	Tools        []tool        `json:"tools,omitempty"`
	ToolChoice   *toolChoice   `json:"tool_choice,omitempty"`
	Thinking     *thinking     `json:"thinking,omitempty"`
	OutputConfig *outputConfig `json:"output_config,omitempty"`
	Stream       bool          `json:"stream"`
}

type thinking struct {
	Type         string `json:"type"`
	BudgetTokens int    `json:"budget_tokens,omitempty"`
	Display      string `json:"display,omitempty"`
}

type outputConfig struct {
	Effort string `json:"effort,omitempty"`
}

type toolChoice struct {
	Type string `json:"type"`
}

type tool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"input_schema"`
	DeferLoading bool            `json:"defer_loading,omitempty"`
	CacheControl *cacheControl   `json:"cache_control,omitempty"`
}

type cacheControl struct {
	Type string `json:"type"`
}

// message holds content of the block types below, and opaque blocks as
// json.RawMessage.
type message struct {
	Role    string `json:"role"`
	Content []any  `json:"content"`
}

type textBlock struct {
	Type         string        `json:"type"`
	Text         string        `json:"text"`
	CacheControl *cacheControl `json:"cache_control,omitempty"`
}

type imageBlock struct {
	Type         string        `json:"type"`
	Source       imageSource   `json:"source"`
	CacheControl *cacheControl `json:"cache_control,omitempty"`
}

type imageSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"` // encoding/json writes base64
}

type toolUseBlock struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

type toolResultBlock struct {
	Type         string        `json:"type"`
	ToolUseID    string        `json:"tool_use_id"`
	Content      any           `json:"content"` // a string or []toolReference
	IsError      bool          `json:"is_error,omitempty"`
	CacheControl *cacheControl `json:"cache_control,omitempty"`

	loads []tool // what the references stand for
}

type toolReference struct {
	Type     string `json:"type"`
	ToolName string `json:"tool_name"`
}

// The types of a stream. Fields that may be absent are pointers where absence
// and zero differ.

type streamEvent struct {
	Type         string          `json:"type"`
	Index        int             `json:"index"`
	Message      streamMessage   `json:"message"`
	ContentBlock json.RawMessage `json:"content_block"`
	Delta        streamDelta     `json:"delta"`
	Usage        streamUsage     `json:"usage"`
	Error        json.RawMessage `json:"error"`
}

type streamMessage struct {
	Model string      `json:"model"`
	Usage streamUsage `json:"usage"`
}

type streamDelta struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Thinking    string `json:"thinking"`
	Signature   string `json:"signature"`
	PartialJSON string `json:"partial_json"`
	StopReason  string `json:"stop_reason"`
}

type streamUsage struct {
	Input         *int `json:"input_tokens"`
	Output        *int `json:"output_tokens"`
	CacheRead     *int `json:"cache_read_input_tokens"`
	CacheWrite    *int `json:"cache_creation_input_tokens"`
	OutputDetails struct {
		Thinking *int `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// startBlock is what the start of a content block says.
type startBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
}

// opaque is the form of model.Block.Opaque: a thinking block as it was received,
// and the fingerprint of what the model had read when it wrote the block.
type opaque struct {
	Block  json.RawMessage `json:"block"`
	Prefix string          `json:"prefix,omitempty"`
}
