package google

import (
	"encoding/json"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/history"
)

// skipSignature stands for the signature of a call that the model did not make
// itself. Google documents it for histories that come from elsewhere.
const skipSignature = "skip_thought_signature_validator"

// opaque is the form of model.Block.Opaque.
type opaque struct {
	// Signature is that of a tool call.
	Signature string `json:"signature,omitempty"`

	// Marks are the signed parts of a text, which may be pieces of it or empty.
	// The API forbids to join a signed part with another one, so the text of a
	// block, which is one, is cut at them again.
	Marks []mark `json:"marks,omitempty"`

	// Plain tells that the parts of a Reasoning block are not thoughts. It holds
	// signatures that came without text, which would make an empty Text block.
	Plain bool `json:"plain,omitempty"`
}

// A mark is a signed part: the bytes of the block's text from Start to End.
type mark struct {
	Start     int    `json:"start"`
	End       int    `json:"end"`
	Signature string `json:"signature"`
}

// open reads what a block of the model itself keeps. What does not parse is not
// ours.
func open(raw json.RawMessage) opaque {
	var o opaque
	if len(raw) == 0 || json.Unmarshal(raw, &o) != nil {
		return opaque{}
	}
	return o
}

// parts returns the parts that a Text or Reasoning block came in. Texts without a
// signature are joined. Thoughts without one are left out: they only sum up what
// the model thought, which it does not read from them, and may take for a way to
// answer.
func (o opaque) parts(b model.Block) []part {
	thought := b.Kind == model.Reasoning && !o.Plain
	var parts []part
	add := func(text, signature string) {
		if signature != "" || !thought && !history.Blank(text) {
			parts = append(parts, part{Text: &text, Thought: thought, ThoughtSignature: signature})
		}
	}
	if !o.fits(b.Text) {
		o.Marks = nil
	}
	at := 0
	for _, m := range o.Marks {
		add(b.Text[at:m.Start], "")
		add(b.Text[m.Start:m.End], m.Signature)
		at = m.End
	}
	add(b.Text[at:], "")
	return parts
}

// fits reports whether text can be the one whose parts were signed.
func (o opaque) fits(text string) bool {
	at := 0
	for _, m := range o.Marks {
		if m.Start < at || m.End < m.Start || m.End > len(text) {
			return false
		}
		at = m.End
	}
	return true
}
