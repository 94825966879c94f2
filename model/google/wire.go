package google

import (
	"encoding/json"

	"github.com/flue-go/flue/model"
)

// The types of a request. Optional fields are left out when zero.

type request struct {
	SystemInstruction *content          `json:"systemInstruction,omitempty"`
	Contents          []content         `json:"contents"`
	Tools             []toolSet         `json:"tools,omitempty"`
	ToolConfig        *toolConfig       `json:"toolConfig,omitempty"`
	GenerationConfig  *generationConfig `json:"generationConfig,omitempty"`
}

type toolConfig struct {
	FunctionCallingConfig functionCallingConfig `json:"functionCallingConfig"`
}

type functionCallingConfig struct {
	Mode string `json:"mode"`
}

type content struct {
	Role  string `json:"role,omitempty"`
	Parts []part `json:"parts"`
}

// part holds exactly one of Text, InlineData, FunctionCall and FunctionResponse.
// Text is a pointer because a part may hold an empty one and a signature.
type part struct {
	Text             *string           `json:"text,omitempty"`
	Thought          bool              `json:"thought,omitempty"`
	InlineData       *blob             `json:"inlineData,omitempty"`
	FunctionCall     *functionCall     `json:"functionCall,omitempty"`
	FunctionResponse *functionResponse `json:"functionResponse,omitempty"`
	ThoughtSignature string            `json:"thoughtSignature,omitempty"`
}

type blob struct {
	MIMEType string `json:"mimeType"`
	Data     []byte `json:"data"` // encoding/json writes base64
}

type functionCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type functionResponse struct {
	ID       string            `json:"id,omitempty"`
	Name     string            `json:"name"`
	Response map[string]string `json:"response"` // "output" or "error"
}

type toolSet struct {
	FunctionDeclarations []functionDeclaration `json:"functionDeclarations"`
}

type functionDeclaration struct {
	Name                 string          `json:"name"`
	Description          string          `json:"description,omitempty"`
	ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema,omitempty"`
}

type generationConfig struct {
	MaxOutputTokens int             `json:"maxOutputTokens,omitempty"`
	ThinkingConfig  *thinkingConfig `json:"thinkingConfig,omitempty"`
}

// thinkingConfig holds a level or a budget, never both: the API refuses that.
type thinkingConfig struct {
	IncludeThoughts bool   `json:"includeThoughts,omitempty"`
	ThinkingLevel   string `json:"thinkingLevel,omitempty"`
	ThinkingBudget  *int   `json:"thinkingBudget,omitempty"`
}

// The types of a stream.

type chunk struct {
	Candidates     []candidate `json:"candidates"`
	PromptFeedback struct {
		BlockReason string `json:"blockReason"`
	} `json:"promptFeedback"`
	Usage        usage           `json:"usageMetadata"`
	ModelVersion string          `json:"modelVersion"`
	Error        json.RawMessage `json:"error"`
}

type candidate struct {
	Index   int `json:"index"`
	Content struct {
		Parts []receivedPart `json:"parts"`
	} `json:"content"`
	FinishReason  string `json:"finishReason"`
	FinishMessage string `json:"finishMessage"`
}

type receivedPart struct {
	Text             string        `json:"text"`
	Thought          bool          `json:"thought"`
	ThoughtSignature string        `json:"thoughtSignature"`
	FunctionCall     *functionCall `json:"functionCall"`
}

// usage counts tokens. A chunk may hold some of the counts, each a total so far,
// or none.
type usage struct {
	Prompt     *int `json:"promptTokenCount"` // with those that were read from the cache
	Cached     *int `json:"cachedContentTokenCount"`
	Candidates *int `json:"candidatesTokenCount"` // without the thoughts
	Thoughts   *int `json:"thoughtsTokenCount"`
	ToolUse    *int `json:"toolUsePromptTokenCount"` // what tools of the server brought in
}

func (u usage) total() model.Usage {
	n := func(count *int) int {
		if count == nil {
			return 0
		}
		return max(*count, 0)
	}
	cached, thoughts := n(u.Cached), n(u.Thoughts)
	return model.Usage{
		Input: max(0, n(u.Prompt)+n(u.ToolUse)-cached), CacheRead: cached,
		Output: n(u.Candidates) + thoughts, Reasoning: thoughts,
	}
}
