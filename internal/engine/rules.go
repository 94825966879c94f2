package engine

import (
	"fmt"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
)

// misplaced says which rule of a stream an event breaks, or nothing. A provider,
// or what is put around one, may be anybody's: the fold would refuse what it made
// of such an answer, which is a mistake of the driver's, and not of one call's.
func (t *openTurn) misplaced(ev model.Event) string {
	var index int
	var kind model.BlockKind
	switch ev := ev.(type) {
	case model.Delta:
		if ev.Kind == model.ToolCall { // it is for observers
			return ""
		}
		index, kind = ev.Index, ev.Kind
	case model.BlockDone:
		index, kind = ev.Index, ev.Block.Kind
	default:
		return ""
	}
	if index < 0 || index >= journal.MaxBlocks {
		return fmt.Sprintf("the provider sent block %d of an answer, which may have %d", index, journal.MaxBlocks)
	}
	switch kind {
	case model.Text, model.Reasoning, model.ToolCall:
	default:
		return fmt.Sprintf("the provider sent a block of the kind %q, which no answer has", head(string(kind), maxReason))
	}
	switch b := t.block(index); {
	case b.ended:
		return fmt.Sprintf("the provider went on with block %d after its end", index)
	case b.Kind != "" && string(b.Kind) != string(kind):
		return fmt.Sprintf("the provider sent block %d as %s and as %s", index, b.Kind, kind)
	}
	return ""
}
