package crashtest

import (
	"fmt"
	"regexp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// openAI is the dialect of the Chat Completions API.
type openAI struct{}

// toolName is what the API accepts as the name of a tool.
var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// openAIMessage has every member that the API takes of such a conversation.
type openAIMessage struct {
	Role       string         `json:"role"`
	Content    jsontext.Value `json:"content"`
	ToolCallID string         `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func (openAI) thoughts() bool { return false }

func (openAI) parse(body []byte) ([]message, error) {
	var req struct {
		Stream   bool
		Model    string
		Messages []jsontext.Value
		Tools    []struct{ Type string }
	}
	if err := json.Unmarshal(body, &req, json.MatchCaseInsensitiveNames(true)); err != nil {
		return nil, err
	}
	if !req.Stream || req.Model != modelOf["openai"] || len(req.Tools) != 3 {
		return nil, fmt.Errorf("stream %v, model %q, %d tools", req.Stream, req.Model, len(req.Tools))
	}
	var ms []message
	for i, raw := range req.Messages {
		var m openAIMessage
		if err := json.Unmarshal(raw, &m, json.RejectUnknownMembers(true)); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		if m.Role == "system" && i == 0 {
			continue
		}
		var err error
		if ms, err = m.appendTo(ms); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	return ms, nil
}

// appendTo appends m. The messages of one batch of results become one.
func (m *openAIMessage) appendTo(ms []message) ([]message, error) {
	text, err := m.text()
	if err != nil {
		return nil, err
	}
	if (len(m.ToolCalls) > 0 && m.Role != "assistant") || (m.ToolCallID != "") != (m.Role == "tool") {
		return nil, fmt.Errorf("a message of the %s's has calls %v and call id %q", m.Role, m.ToolCalls, m.ToolCallID)
	}
	switch m.Role {
	case "user":
		return append(ms, message{role: "user", text: text}), nil
	case "tool":
		r := result{m.ToolCallID, text}
		if last := len(ms) - 1; last >= 0 && ms[last].role == "tool" {
			ms[last].results = append(ms[last].results, r)
			return ms, nil
		}
		return append(ms, message{role: "tool", results: []result{r}}), nil
	case "assistant":
		a := answer{text: text}
		for _, c := range m.ToolCalls {
			if c.Type != "function" || !toolName.MatchString(c.Function.Name) || jsontext.Value(c.Function.Arguments).Kind() != '{' || !jsontext.Value(c.Function.Arguments).IsValid() {
				return nil, fmt.Errorf("a call is not one of a function with an object: %+v", c)
			}
			a.calls = append(a.calls, call{c.ID, c.Function.Name, c.Function.Arguments})
		}
		return append(ms, message{role: "assistant", answer: a}), nil
	}
	return nil, fmt.Errorf("role %q", m.Role)
}

// text returns the content, which only an assistant's message with calls may
// lack.
func (m *openAIMessage) text() (string, error) {
	if m.Role == "assistant" && len(m.ToolCalls) > 0 && (m.Content == nil || m.Content.Kind() == 'n') {
		return "", nil
	}
	var s string
	if err := json.Unmarshal(m.Content, &s); err != nil || blank(s) {
		return "", fmt.Errorf("content %s", m.Content)
	}
	return s, nil
}

func (openAI) speak(s *stream, a answer) {
	delta := func(d object) { s.event("", openAIChunk(d, nil)) }
	delta(object{"role": "assistant", "content": ""})
	if a.thought != nil && a.thought.text != "" {
		for piece := range s.pieces(a.thought.text) {
			delta(object{"reasoning_content": piece})
		}
	}
	for piece := range s.pieces(a.text) {
		delta(object{"content": piece})
	}
	finish := "stop"
	for i, c := range a.calls {
		finish = "tool_calls"
		delta(object{"tool_calls": []object{{
			"index": i, "id": c.id, "type": "function", "function": object{"name": c.name, "arguments": ""},
		}}})
		for piece := range s.pieces(c.args) {
			delta(object{"tool_calls": []object{{"index": i, "function": object{"arguments": piece}}}})
		}
	}
	s.event("", openAIChunk(object{}, finish))
	usage := openAIChunk(nil, nil)
	usage["choices"] = []object{}
	usage["usage"] = object{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
	s.event("", usage)
	s.done()
}

func openAIChunk(delta object, finish any) object {
	return object{
		"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": modelOf["openai"],
		"choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}},
	}
}
