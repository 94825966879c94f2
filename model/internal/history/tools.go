package history

import (
	"cmp"
	"slices"

	"github.com/flue-go/flue/model"
)

// OrderTools returns tools in an order that a new one does not disturb: first
// those that were there from the start, in the order given, then those that
// came later, in the order of the results that brought them in. A result that
// is no longer among messages was before all others.
//
// The tools given are not changed.
func OrderTools(tools []model.Tool, messages []model.Message) []model.Tool {
	later := func(t model.Tool) bool { return t.After != "" }
	if !slices.ContainsFunc(tools, later) {
		return tools
	}
	places := map[string]int{} // of results, from 1 on
	for _, m := range messages {
		for _, b := range m.Blocks {
			if b.Kind == model.ToolResult && places[b.CallID] == 0 {
				places[b.CallID] = len(places) + 1
			}
		}
	}
	place := func(t model.Tool) int {
		if !later(t) {
			return -1
		}
		return places[t.After]
	}
	ordered := slices.Clone(tools)
	slices.SortStableFunc(ordered, func(a, b model.Tool) int { return cmp.Compare(place(a), place(b)) })
	return ordered
}
