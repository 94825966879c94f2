package openai

import "encoding/json"

// The types of a request of the Responses API. Optional fields are left out
// when zero.

type responsesRequest struct {
	Model             string           `json:"model"`
	Instructions      string           `json:"instructions,omitempty"`
	Input             []any            `json:"input"`
	Tools             []responsesTool  `json:"tools,omitempty"`
	ToolChoice        string           `json:"tool_choice,omitempty"`
	ParallelToolCalls bool             `json:"parallel_tool_calls,omitempty"`
	Stream            bool             `json:"stream"`
	Store             bool             `json:"store"` // false: a conversation is nobody else's to keep
	Include           []string         `json:"include,omitempty"`
	Reasoning         *reasoningParams `json:"reasoning,omitempty"`
	MaxOutputTokens   int              `json:"max_output_tokens,omitempty"`
	PromptCacheKey    string           `json:"prompt_cache_key,omitempty"`
}

type reasoningParams struct {
	Effort  string `json:"effort,omitempty"`
	Summary string `json:"summary,omitempty"`
}

type responsesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      bool            `json:"strict"` // the API takes true for granted
}

// inputMessage is a message of either side. Content is a string, a list of
// inputPart, or a list of outputText for a message that carries its id.
type inputMessage struct {
	Type    string `json:"type"`
	ID      string `json:"id,omitempty"`
	Role    string `json:"role"`
	Content any    `json:"content"`
	Status  string `json:"status,omitempty"`
	Phase   string `json:"phase,omitempty"`
}

type inputPart struct {
	Type     string `json:"type"`
	Text     string `json:"text,omitempty"`
	ImageURL string `json:"image_url,omitempty"`
	Detail   string `json:"detail,omitempty"`
}

type outputText struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Annotations []any  `json:"annotations"`
}

type functionCall struct {
	Type      string `json:"type"`
	ID        string `json:"id,omitempty"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type functionOutput struct {
	Type   string `json:"type"`
	CallID string `json:"call_id"`
	Output string `json:"output"`
}

// keptItem is the form of model.Block.Opaque: of a Reasoning block the item as
// it was received, of a Text or ToolCall block what its item had beside it.
type keptItem struct {
	Item  json.RawMessage `json:"item,omitempty"`
	ID    string          `json:"id,omitempty"`
	Phase string          `json:"phase,omitempty"`
	After string          `json:"after,omitempty"` // id of the reasoning item before it
}

// The types of a stream of the Responses API.

type responseEvent struct {
	Type         string          `json:"type"`
	OutputIndex  int             `json:"output_index"`
	SummaryIndex int             `json:"summary_index"`
	Delta        string          `json:"delta"`
	Item         json.RawMessage `json:"item"`
	Response     response        `json:"response"`
	Error        json.RawMessage `json:"error"`
}

type response struct {
	Model      string            `json:"model"`
	Status     string            `json:"status"`
	Error      json.RawMessage   `json:"error"`
	Output     []json.RawMessage `json:"output"`
	Usage      *responseUsage    `json:"usage"`
	Incomplete struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
}

type responseUsage struct {
	Input        int `json:"input_tokens"`
	Output       int `json:"output_tokens"`
	InputDetails struct {
		Cached     int `json:"cached_tokens"`
		CacheWrite int `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
	OutputDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	price
}

// itemData is an item of the output, of any type.
type itemData struct {
	Type      string        `json:"type"`
	ID        string        `json:"id"`
	Status    string        `json:"status"`
	Phase     string        `json:"phase"`
	CallID    string        `json:"call_id"`
	Name      string        `json:"name"`
	Arguments arguments     `json:"arguments"`
	Content   []contentPart `json:"content"`
	Summary   []contentPart `json:"summary"`
	Encrypted string        `json:"encrypted_content"`
}

type contentPart struct {
	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
}
