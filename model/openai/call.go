package openai

import (
	"encoding/json"
	"strings"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/answer"
	"github.com/flue-go/flue/model/internal/history"
)

// A call is a tool call being received. It is closed with the answer: nothing
// in the stream says that a call is complete.
type call struct {
	out   *answer.Block
	index int // the server's; -1 when it sends none
	id    string
}

// call adds a piece to the call that it belongs to, or begins a new one.
func (d *decoder) call(t toolDelta) {
	c := d.find(t)
	if c == nil {
		c = &call{out: d.out.Open(model.ToolCall), index: -1}
		if t.Index != nil {
			c.index = *t.Index
		}
		d.calls = append(d.calls, c)
	}
	if c.id == "" && t.ID != "" {
		c.id = t.ID
		c.out.CallID = d.ids.Take(t.ID)
	}
	if c.out.Name == "" { // some servers repeat the name with each piece
		c.out.Name = d.names.Name(t.Function.Name)
	}
	if len(t.ExtraContent) > 0 && string(t.ExtraContent) != "null" {
		c.out.Opaque = encode(opaque{ExtraContent: t.ExtraContent})
	}
	d.out.Append(c.out, string(t.Function.Arguments))
}

// find returns the call that t continues, or nil when t begins one. The index
// decides, except that some servers give each call the same index, or none; then
// a new id begins a call, and so do more arguments after a complete object.
func (d *decoder) find(t toolDelta) *call {
	for i := len(d.calls) - 1; i >= 0; i-- {
		c := d.calls[i]
		if t.Index != nil && c.index != *t.Index {
			continue
		}
		if t.ID != "" && c.id != "" && t.ID != c.id {
			if t.Index != nil {
				return nil
			}
			continue
		}
		if d.begins(t, c) {
			return nil
		}
		return c
	}
	return nil
}

// begins reports whether t cannot continue c, since the arguments of c are
// complete and t has more.
func (d *decoder) begins(t toolDelta, c *call) bool {
	if t.Function.Name == "" || history.Blank(string(t.Function.Arguments)) {
		return false
	}
	args := c.out.Received()
	return strings.HasSuffix(strings.TrimSpace(args), "}") && json.Valid([]byte(args))
}
