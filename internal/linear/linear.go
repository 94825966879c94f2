// Package linear has models of what clients and owners of instances may see, and
// judges histories by them, for tests: could what they were told have come from a
// system that does one thing after another?
//
// An operation whose outcome nobody learned may have happened at any later time,
// or not at all: its Return is Infinity.
package linear

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Infinity is when operations return whose outcome nobody learned.
const Infinity = int64(1) << 62

// A Model says which histories may be. Its histories are judged in parts that have
// nothing to do with each other.
type Model struct {
	Name string
	porcupine.Model
}

// Check returns nil if the history is one that may be. It fails with the first
// part that may not, and also if it cannot be sure within the patience.
func (m Model) Check(history []porcupine.Operation, patience time.Duration) error {
	got := porcupine.CheckOperationsTimeout(m.Model, history, patience)
	if got == porcupine.Ok {
		return nil
	}
	return fmt.Errorf("%s of %d operations: %s\n%s", m.Name, len(history), got, m.explain(history, patience))
}

// explain shows the history of a part that may not be: the end of it.
func (m Model) explain(history []porcupine.Operation, patience time.Duration) string {
	const shown = 60
	for _, part := range m.Partition(history) {
		if porcupine.CheckOperationsTimeout(m.Model, part, patience) == porcupine.Ok {
			continue
		}
		slices.SortFunc(part, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		var b strings.Builder
		for _, op := range part[max(0, len(part)-shown):] {
			_, _ = fmt.Fprintf(&b, "%12d %20d %+v -> %+v\n", op.Call, op.Return, op.Input, op.Output)
		}
		return b.String()
	}
	return "every part may be by itself"
}

// partition makes parts of the operations that have the same key. Those without
// one are left out.
func partition(key func(op porcupine.Operation) string) func([]porcupine.Operation) [][]porcupine.Operation {
	return func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make(map[string][]porcupine.Operation)
		for _, op := range history {
			if k := key(op); k != "" {
				parts[k] = append(parts[k], op)
			}
		}
		return slices.Collect(maps.Values(parts))
	}
}
