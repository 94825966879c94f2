package anthropic

import (
	"encoding/json"
	"slices"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/dialect"
	"github.com/flue-go/flue/model/internal/history"
)

// A toolSet holds the tools of a request: those that the model has from the
// start, and those that a tool result loads.
type toolSet struct {
	loaded   []tool
	deferred []tool
	loads    map[string][]tool // the deferred ones, by the call whose result loads them
}

func (s toolSet) all() []tool { return slices.Concat(s.loaded, s.deferred) }

// tools divides the tools of req. Messages are those of req, normalized.
//
// A tool that came in the middle of the conversation is deferred where that is
// possible: its definition is then no part of what the model reads before the
// first message, and what is cached of that stays valid.
func (p *Provider) tools(req *model.Request, messages []model.Message, names *dialect.Names) toolSet {
	offered := history.OrderTools(req.Tools, messages)
	var s toolSet
	if p.official && req.Info.DeferredTools {
		s = p.divide(offered, names, loadable(offered, messages))
	}
	if len(s.loaded) == 0 { // the API refuses a request in which all tools are deferred
		s = p.divide(offered, names, nil)
	}
	return s
}

// divide defers those of offered that are listed.
func (p *Provider) divide(offered []model.Tool, names *dialect.Names, deferred map[string]bool) toolSet {
	s := toolSet{loads: map[string][]tool{}}
	for _, o := range offered {
		t := tool{Name: names.Alias(o.Name), Description: o.Description, InputSchema: p.schemas.Convert(o).Schema}
		if !deferred[o.Name] {
			s.loaded = append(s.loaded, t)
			continue
		}
		t.DeferLoading = true
		s.deferred = append(s.deferred, t)
		s.loads[o.After] = append(s.loads[o.After], t)
	}
	return s
}

// standIn offers a request without tools those that its history calls, and
// forbids to call any: the API refuses calls in a request that offers nothing.
func (r *request) standIn(messages []model.Message, names *dialect.Names) {
	seen := map[string]bool{}
	for _, m := range messages {
		for _, b := range m.Blocks {
			if name := names.Alias(b.Name); b.Kind == model.ToolCall && !seen[name] {
				seen[name] = true
				r.Tools = append(r.Tools, tool{Name: name, InputSchema: json.RawMessage(`{"type":"object","properties":{}}`)})
			}
		}
	}
	if len(r.Tools) > 0 {
		r.ToolChoice = &toolChoice{Type: "none"}
	}
}

// loadable names the tools that a result among messages can load. A failed
// result cannot, since it may hold nothing but text, and a tool that was called
// before it was loaded would leave a call to nothing.
func loadable(offered []model.Tool, messages []model.Message) map[string]bool {
	waiting := map[string][]string{} // names by call
	for _, t := range offered {
		if t.After != "" {
			waiting[t.After] = append(waiting[t.After], t.Name)
		}
	}
	names, called := map[string]bool{}, map[string]bool{}
	for _, m := range messages {
		for _, b := range m.Blocks {
			switch {
			case b.Kind == model.ToolCall:
				called[b.Name] = true
			case b.Kind == model.ToolResult && !b.IsError:
				for _, name := range waiting[b.CallID] {
					names[name] = names[name] || !called[name]
				}
				delete(waiting, b.CallID)
			}
		}
	}
	return names
}

// result converts a tool result. One that loads tools holds nothing but the
// references to them, which is all that the API accepts beside them; its text
// then follows in a block of its own.
func (c *converter) result(b model.Block) (result *toolResultBlock, text *textBlock) {
	id := history.SafeID(b.CallID, maxCallID, true)
	result = &toolResultBlock{Type: "tool_result", ToolUseID: id, Content: b.Text, IsError: b.IsError}
	loads := c.loads[b.CallID]
	if len(loads) == 0 || b.IsError {
		return result, nil
	}
	delete(c.loads, b.CallID) // once is enough
	references := make([]toolReference, len(loads))
	for i, t := range loads {
		references[i] = toolReference{Type: "tool_reference", ToolName: t.Name}
	}
	result.Content, result.loads = references, loads
	return result, &textBlock{Type: "text", Text: "Result of tool call " + id + ":\n" + b.Text}
}
