package openai

import (
	"bytes"
	"encoding/json"
	"strings"
)

// A detail is a reasoning detail while it is being received. One that comes in
// pieces is put together, since it has to be sent back as one. Its texts are
// gathered apart: a long one comes in tens of thousands of pieces.
type detail struct {
	raw    json.RawMessage            // as it came, if it came whole
	fields map[string]json.RawMessage // nil if it is no object
	texts  map[string]*strings.Builder
}

// pieceFields are the fields of a detail that grow.
var pieceFields = [...]string{"text", "summary"}

func newDetail(raw json.RawMessage) *detail {
	d := &detail{raw: raw}
	_ = json.Unmarshal(raw, &d.fields) // what is no object has none
	return d
}

// join adds next to the detail, and reports whether it is a piece of it: they are
// when they have the same type and index and both have a text, or both a summary.
func (d *detail) join(next *detail) bool {
	x, y := d.fields, next.fields
	if x == nil || y == nil || !bytes.Equal(x["type"], y["type"]) || !bytes.Equal(x["index"], y["index"]) {
		return false
	}
	for _, field := range pieceFields {
		more, ok := readString(y[field])
		if !d.has(field) || !ok && !absent(y[field]) || !ok && absent(y["signature"]) {
			continue
		}
		b := d.text(field)
		for name, value := range y { // as they came: numbers and escapes stay what they are
			if !absent(value) {
				x[name] = value
				delete(d.texts, name)
			}
		}
		b.WriteString(more)
		d.texts[field], d.raw = b, nil
		return true
	}
	return false
}

// has reports whether the field is a string.
func (d *detail) has(field string) bool {
	_, ok := readString(d.fields[field])
	return ok || d.texts[field] != nil
}

// text returns what the field has so far.
func (d *detail) text(field string) *strings.Builder {
	b := d.texts[field]
	if b == nil {
		s, _ := readString(d.fields[field])
		b = new(strings.Builder)
		b.WriteString(s)
	}
	if d.texts == nil {
		d.texts = make(map[string]*strings.Builder)
	}
	return b
}

// whole returns the detail as it has to be sent back.
func (d *detail) whole() json.RawMessage {
	if d.raw != nil {
		return d.raw
	}
	for field, b := range d.texts {
		d.fields[field] = encode(b.String())
	}
	return encode(d.fields)
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func readString(raw json.RawMessage) (s string, ok bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}
