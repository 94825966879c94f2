package crashtest

import (
	"errors"
	"fmt"
	"iter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// claude is the dialect of the Messages API.
type claude struct{}

// claudeBlock has every member that the API takes of such a conversation.
type claudeBlock struct {
	Type         string         `json:"type"`
	Text         *string        `json:"text"`
	Thinking     *string        `json:"thinking"`
	Signature    string         `json:"signature"`
	Data         string         `json:"data"`
	ID           string         `json:"id"`
	Name         string         `json:"name"`
	Input        jsontext.Value `json:"input"`
	ToolUseID    string         `json:"tool_use_id"`
	Content      string         `json:"content"`
	IsError      bool           `json:"is_error"`
	CacheControl jsontext.Value `json:"cache_control"`
}

func (claude) thoughts() bool { return true }

func (claude) parse(body []byte) ([]message, error) {
	var req struct {
		Stream    bool
		Model     string
		MaxTokens int `json:"max_tokens"`
		Messages  []struct {
			Role    string
			Content []jsontext.Value
		}
		Tools []struct{ Name string }
	}
	if err := json.Unmarshal(body, &req, json.MatchCaseInsensitiveNames(true)); err != nil {
		return nil, err
	}
	if !req.Stream || req.Model != modelOf["anthropic"] || req.MaxTokens <= 0 || len(req.Tools) != 3 {
		return nil, fmt.Errorf("stream %v, model %q, %d tools, max_tokens %d", req.Stream, req.Model, len(req.Tools), req.MaxTokens)
	}
	var ms []message
	for i, m := range req.Messages {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			return nil, fmt.Errorf("message %d is the %s's, want the %s's", i, m.Role, want)
		}
		blocks := make([]claudeBlock, len(m.Content))
		for j, raw := range m.Content {
			if err := json.Unmarshal(raw, &blocks[j], json.RejectUnknownMembers(true)); err != nil {
				return nil, fmt.Errorf("message %d, block %d: %w", i, j, err)
			}
		}
		var err error
		if m.Role == "user" {
			ms, err = claudeUser(ms, blocks)
		} else {
			ms, err = claudeAssistant(ms, blocks)
		}
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	return ms, nil
}

// claudeUser appends a user message: the results of a batch, texts, or both,
// results first.
func claudeUser(ms []message, blocks []claudeBlock) ([]message, error) {
	batch, text := message{role: "tool"}, message{role: "user"}
	for _, b := range blocks {
		switch {
		case b.Type == "text" && b.Text != nil && !blank(*b.Text):
			if text.text != "" {
				text.text += "\n\n"
			}
			text.text += *b.Text
		case b.Type == "tool_result" && text.text == "":
			batch.results = append(batch.results, result{b.ToolUseID, b.Content})
		default:
			return nil, fmt.Errorf("a block of the type %s is empty or in the wrong place", b.Type)
		}
	}
	if len(batch.results) > 0 {
		ms = append(ms, batch)
	}
	if text.text != "" {
		ms = append(ms, text)
	}
	if len(batch.results) == 0 && text.text == "" {
		return nil, errors.New("it is empty")
	}
	return ms, nil
}

// claudeAssistant appends an assistant message: thinking, then text, then
// calls, as this model always writes them.
func claudeAssistant(ms []message, blocks []claudeBlock) ([]message, error) {
	var a answer
	for i, b := range blocks {
		switch {
		case b.Type == "thinking" && i == 0 && b.Thinking != nil && b.Signature != "" && b.CacheControl == nil:
			a.thought = &thought{text: *b.Thinking, signature: b.Signature}
		case b.Type == "redacted_thinking" && i == 0 && b.Data != "" && b.CacheControl == nil:
			a.thought = &thought{data: b.Data}
		case b.Type == "text" && b.Text != nil && !blank(*b.Text) && a.text == "" && a.calls == nil:
			a.text = *b.Text
		case b.Type == "tool_use" && toolName.MatchString(b.Name) && toolName.MatchString(b.ID) && b.Input.Kind() == '{':
			a.calls = append(a.calls, call{b.ID, b.Name, string(b.Input)})
		default:
			return nil, fmt.Errorf("block %d of the type %s is empty or in the wrong place", i, b.Type)
		}
	}
	return append(ms, message{role: "assistant", answer: a}), nil
}

func (claude) speak(s *stream, a answer) {
	s.event("message_start", object{"message": object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": modelOf["anthropic"], "content": []object{},
		"stop_reason": nil, "usage": object{"input_tokens": 10, "output_tokens": 1},
	}})
	s.event("ping", object{})
	index := 0
	block := func(start object, deltas iter.Seq[object]) {
		s.event("content_block_start", object{"index": index, "content_block": start})
		for d := range deltas {
			s.event("content_block_delta", object{"index": index, "delta": d})
		}
		s.event("content_block_stop", object{"index": index})
		index++
	}
	// pieces are the deltas of a text, and what else follows them.
	pieces := func(typ, field, text string, last ...object) iter.Seq[object] {
		return func(yield func(object) bool) {
			for piece := range s.pieces(text) {
				if !yield(object{"type": typ, field: piece}) {
					return
				}
			}
			for _, d := range last {
				if !yield(d) {
					return
				}
			}
		}
	}
	switch th := a.thought; {
	case th != nil && th.data != "":
		block(object{"type": "redacted_thinking", "data": th.data}, pieces("", "", ""))
	case th != nil:
		block(object{"type": "thinking", "thinking": "", "signature": ""},
			pieces("thinking_delta", "thinking", th.text, object{"type": "signature_delta", "signature": th.signature}))
	}
	if a.text != "" {
		block(object{"type": "text", "text": ""}, pieces("text_delta", "text", a.text))
	}
	stop := "end_turn"
	for _, c := range a.calls {
		stop = "tool_use"
		block(object{"type": "tool_use", "id": c.id, "name": c.name, "input": object{}}, pieces("input_json_delta", "partial_json", c.args))
	}
	s.event("message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 5}})
	s.event("message_stop", object{})
}
