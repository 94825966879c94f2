package schema

import (
	"maps"
	"math/big"
	"slices"
	"strings"
)

// kind is the kind of a JSON value. The kinds are bits so that a set of them
// is a kind too.
type kind uint8

const (
	null kind = 1 << iota
	boolean
	number
	text
	array
	object

	anyKind = null | boolean | number | text | array | object
)

// value is one JSON value. Numbers keep their literal, so that none is rounded.
type value struct {
	kind  kind
	truth bool
	text  string   // contents of a string, literal of a number
	keys  []string // names of an object's members, unique
	items []*value // elements of an array; values of an object's members, parallel to keys

	index map[string]int // of the keys of an object that has indexFrom or more
}

// indexFrom is the number of members from which an object has an index.
const indexFrom = 16

func newText(s string) *value         { return &value{kind: text, text: s} }
func newNumber(literal string) *value { return &value{kind: number, text: literal} }
func newObject() *value               { return &value{kind: object} }
func newArray(items ...*value) *value { return &value{kind: array, items: items} }
func newBool(b bool) *value           { return &value{kind: boolean, truth: b} }

// find returns the position of a member, or -1. It changes nothing, so that
// the parts of a schema may be read concurrently.
func (v *value) find(key string) int {
	if v.index == nil {
		return slices.Index(v.keys, key)
	}
	if i, ok := v.index[key]; ok {
		return i
	}
	return -1
}

// get returns the member named key, or nil.
func (v *value) get(key string) *value {
	if v.kind != object {
		return nil
	}
	if i := v.find(key); i >= 0 {
		return v.items[i]
	}
	return nil
}

// set adds or replaces a member.
func (v *value) set(key string, member *value) *value {
	if i := v.find(key); i >= 0 {
		v.items[i] = member
		return v
	}
	v.addKey(key)
	v.items = append(v.items, member)
	return v
}

// addKey adds the name of a member whose value is about to be added.
func (v *value) addKey(key string) {
	v.keys = append(v.keys, key)
	switch {
	case v.index != nil:
		v.index[key] = len(v.keys) - 1
	case len(v.keys) >= indexFrom:
		v.reindex()
	}
}

func (v *value) reindex() {
	v.index = nil
	if len(v.keys) < indexFrom {
		return
	}
	v.index = make(map[string]int, len(v.keys))
	for i, key := range v.keys {
		v.index[key] = i
	}
}

// drop removes the members for which gone reports true.
func (v *value) drop(gone func(i int) bool) {
	kept := 0
	for i := range v.keys {
		if gone(i) {
			continue
		}
		v.keys[kept], v.items[kept] = v.keys[i], v.items[i]
		kept++
	}
	v.keys, v.items = v.keys[:kept], v.items[:kept]
	v.reindex()
}

// clone returns a copy that shares nothing which can change.
func (v *value) clone() *value {
	c := &value{kind: v.kind, truth: v.truth, text: v.text, keys: slices.Clone(v.keys), index: maps.Clone(v.index)}
	if v.items != nil {
		c.items = make([]*value, len(v.items))
		for i, item := range v.items {
			c.items[i] = item.clone()
		}
	}
	return c
}

// rat is the exact value of a number. The parser bounds literals, so that it
// cannot become huge.
func (v *value) rat() *big.Rat {
	r, ok := new(big.Rat).SetString(v.text)
	if !ok { // not reachable: the parser admits no other literal
		return new(big.Rat)
	}
	return r
}

// plainInteger reports whether the literal is written as an integer, which
// is what a Go integer can be decoded from.
func (v *value) plainInteger() bool {
	return !strings.ContainsAny(v.text, ".eE") && v.text != "-0"
}

// integer reports whether a number has no fraction: 5, 5.0 and 5e2 have none.
func (v *value) integer() bool {
	return v.kind == number && (v.plainInteger() || v.rat().IsInt())
}

// equal compares as JSON Schema does: numbers by value, objects without order.
func (v *value) equal(w *value) bool {
	if v.kind != w.kind || len(v.items) != len(w.items) {
		return false
	}
	switch v.kind {
	case boolean:
		return v.truth == w.truth
	case number:
		return v.text == w.text || v.rat().Cmp(w.rat()) == 0
	case text:
		return v.text == w.text
	case array:
		return slices.EqualFunc(v.items, w.items, (*value).equal)
	case object:
		for i, key := range v.keys {
			other := w.get(key)
			if other == nil || !v.items[i].equal(other) {
				return false
			}
		}
	}
	return true
}

// append writes v as compact JSON. Text is written as it is: only quotes,
// backslashes and control characters are escaped.
func (v *value) append(b []byte) []byte {
	switch v.kind {
	case null:
		return append(b, "null"...)
	case boolean:
		if v.truth {
			return append(b, "true"...)
		}
		return append(b, "false"...)
	case number:
		return append(b, v.text...)
	case text:
		return appendQuoted(b, v.text)
	case array:
		b = append(b, '[')
		for i, item := range v.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.append(b)
		}
		return append(b, ']')
	default:
		b = append(b, '{')
		for i, item := range v.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendQuoted(b, v.keys[i]), ':')
			b = item.append(b)
		}
		return append(b, '}')
	}
}

func appendQuoted(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(b, s[start:]...), '"')
}

// canonical writes v so that equal values have equal bytes.
func (v *value) canonical(b []byte) []byte {
	switch v.kind {
	case number:
		return append(b, v.rat().RatString()...)
	case array:
		b = append(b, '[')
		for _, item := range v.items {
			b = append(item.canonical(b), ',')
		}
		return append(b, ']')
	case object:
		order := make([]int, len(v.keys))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(i, j int) int { return strings.Compare(v.keys[i], v.keys[j]) })
		b = append(b, '{')
		for _, i := range order {
			b = append(appendQuoted(b, v.keys[i]), ':')
			b = append(v.items[i].canonical(b), ',')
		}
		return append(b, '}')
	default:
		return v.append(b)
	}
}
