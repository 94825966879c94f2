package answer

import (
	"crypto/rand"

	"github.com/flue-go/flue/model"
)

// IDs hands out the ids of an answer's tool calls. Some servers send no ids,
// or the same ones in each answer; an id must be unique within a conversation,
// since a result is tied to its call by nothing else.
type IDs struct {
	history []model.Message
	used    map[string]bool
}

// NewIDs returns IDs that never repeats an id of a call in history.
func NewIDs(history []model.Message) *IDs { return &IDs{history: history} }

// Take returns id when it is usable, and a new random id when it is empty or
// was used before.
func (ids *IDs) Take(id string) string {
	if ids.used == nil {
		ids.used = make(map[string]bool)
		for _, m := range ids.history {
			for _, b := range m.Blocks {
				if b.Kind == model.ToolCall {
					ids.used[b.CallID] = true
				}
			}
		}
	}
	for id == "" || ids.used[id] {
		id = "call_" + rand.Text()
	}
	ids.used[id] = true
	return id
}
