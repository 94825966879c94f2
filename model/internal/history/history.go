// Package history puts a conversation into a form that every provider accepts.
//
// Providers refuse a whole request for one flaw in its history, and the flaw
// stays in the history: a call without a result, a result without a call, an
// empty text, arguments that are no JSON, half a surrogate pair. A refusal of
// that kind ends a conversation for good, so the codecs send what [Normalize]
// returns, never the conversation as it is.
package history

import (
	"strconv"
	"strings"

	"github.com/flue-go/flue/model"
)

// Texts that stand in for what a provider requires and a conversation lacks.
const (
	noContent = "(no content)"
	noResult  = "No result was recorded for this call."
	noOutput  = "(no output)"
	noStart   = "(The beginning of this conversation is not shown.)"
	goOn      = "Continue."
)

// Normalize returns messages in an equivalent form that holds to these rules:
//
//   - The first message is a user message and the last one is not an assistant's.
//   - User messages hold text and images, at least one, and none follows another.
//   - Assistant messages hold reasoning, text and calls, and at least one call or
//     text that is not blank. Reasoning and blank text are kept, since a codec
//     may have to know of them; it decides what can be sent.
//   - Call ids are unique: a call with the id of an earlier one gets another,
//     which is the same each time. A message with calls is followed by one tool
//     message that holds exactly one result for each call, in the order of the
//     calls. There are no other tool messages.
//   - No text of a user message and no result is blank.
//
// The messages given are not changed.
func Normalize(messages []model.Message) []model.Message {
	n := normalizer{results: gather(messages), ids: map[string]int{}}
	for at, m := range messages {
		if m.Role == model.RoleAssistant {
			n.assistant(at, m)
		} else {
			n.user(m)
		}
	}
	switch last := len(n.out) - 1; {
	case last < 0 && len(messages) > 0:
		n.append(model.RoleUser, text(noContent))
	case last >= 0 && n.out[last].Role == model.RoleAssistant:
		n.append(model.RoleUser, text(goOn))
	}
	return n.out
}

type normalizer struct {
	out     []model.Message
	results results
	ids     map[string]int // how many calls of an earlier message have the id
}

// unique returns the id of a call that no earlier one has.
func (n *normalizer) unique(id string) string {
	for alias := id; ; {
		n.ids[id]++
		if n.ids[id] > 1 || id == "" {
			alias = id + "_" + strconv.Itoa(n.ids[id])
		}
		if alias == id || n.ids[alias] == 0 {
			if alias != id {
				n.ids[alias]++
			}
			return alias
		}
	}
}

// append adds content to the last message when that is a user message too.
func (n *normalizer) append(role model.Role, blocks ...model.Block) {
	if last := len(n.out) - 1; last >= 0 && role == model.RoleUser && n.out[last].Role == role {
		n.out[last].Blocks = append(n.out[last].Blocks, blocks...)
		return
	}
	n.out = append(n.out, model.Message{Role: role, Blocks: blocks})
}

// user adds what a user message, or a tool message, holds beside tool results.
func (n *normalizer) user(m model.Message) {
	var blocks []model.Block
	for _, b := range m.Blocks {
		if b.Kind == model.Image || b.Kind == model.Text && !Blank(b.Text) {
			blocks = append(blocks, b)
		}
	}
	if len(blocks) == 0 && m.Role == model.RoleTool {
		return
	}
	if len(blocks) == 0 {
		blocks = append(blocks, text(noContent))
	}
	n.append(model.RoleUser, blocks...)
}

// assistant adds an assistant message and the results of its calls.
func (n *normalizer) assistant(at int, m model.Message) {
	var kept, answers []model.Block
	calls := map[string]bool{}
	sendable := false
	for _, b := range m.Blocks {
		switch b.Kind {
		case model.Reasoning:
			kept = append(kept, b)
		case model.Text:
			kept = append(kept, b)
			sendable = sendable || !Blank(b.Text)
		case model.ToolCall:
			if calls[b.CallID] {
				continue
			}
			calls[b.CallID] = true
			answer := n.results.take(at, b.CallID)
			b.CallID = n.unique(b.CallID)
			answer.CallID = b.CallID
			kept, answers = append(kept, b), append(answers, answer)
			sendable = true
		}
	}
	if !sendable {
		return
	}
	if len(n.out) == 0 {
		n.append(model.RoleUser, text(noStart))
	}
	n.out = append(n.out, model.Message{Role: model.RoleAssistant, Blocks: kept, Origin: m.Origin})
	if len(answers) > 0 {
		n.append(model.RoleTool, answers...)
	}
}

// results holds, for each call id, the positions of its calls and the results
// recorded for it, in the order of the conversation.
type results map[string][]entry

type entry struct {
	at     int // index of the message
	result model.Block
	call   bool
	taken  bool
}

func gather(messages []model.Message) results {
	r := results{}
	for at, m := range messages {
		for _, b := range m.Blocks {
			switch {
			case b.Kind == model.ToolCall && m.Role == model.RoleAssistant:
				r[b.CallID] = append(r[b.CallID], entry{at: at, call: true})
			case b.Kind == model.ToolResult:
				r[b.CallID] = append(r[b.CallID], entry{at: at, result: b})
			}
		}
	}
	return r
}

// take returns the first result for the call at message at: one that comes
// after the call and before the next call of the same id.
func (r results) take(at int, id string) model.Block {
	for i := range r[id] {
		e := &r[id][i]
		switch {
		case e.at <= at || e.taken:
		case e.call:
			return model.Block{Kind: model.ToolResult, CallID: id, Text: noResult, IsError: true}
		default:
			e.taken = true
			b := e.result
			if Blank(b.Text) {
				b.Text = noOutput
			}
			return b
		}
	}
	return model.Block{Kind: model.ToolResult, CallID: id, Text: noResult, IsError: true}
}

func text(s string) model.Block { return model.Block{Kind: model.Text, Text: s} }

// Blank reports whether s is empty or white space, which no provider accepts as
// a text of its own.
func Blank(s string) bool { return strings.TrimSpace(s) == "" }
