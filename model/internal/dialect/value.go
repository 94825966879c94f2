package dialect

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// A value is a JSON value that keeps the order of its members. Values are not
// changed once something else refers to them.
type value struct {
	kind  jsontext.Kind // of the first token: '{', '[', '"', '0', 't', 'f' or 'n'
	raw   string        // the JSON of a scalar
	names []string      // of an object's members
	items []*value      // members or elements
	at    string        // JSON Pointer of the value in the tool's schema
}

// maxNesting bounds the levels of a schema, which each cost its whole path.
const maxNesting = 200

var errNesting = errors.New("nested too deep")

// parse reads a schema that was compacted before.
func parse(raw []byte) (*value, error) {
	return read(jsontext.NewDecoder(bytes.NewReader(raw)), "")
}

func read(d *jsontext.Decoder, at string) (*value, error) {
	if d.StackDepth() > maxNesting {
		return nil, errNesting
	}
	token, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	v := &value{kind: token.Kind(), at: at}
	switch v.kind {
	case '{':
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			key := name.String()
			item, err := read(d, at+"/"+escape(key))
			if err != nil {
				return nil, err
			}
			v.names, v.items = append(v.names, key), append(v.items, item)
		}
		_, err = d.ReadToken()
	case '[':
		for d.PeekKind() != ']' {
			item, err := read(d, at+"/"+strconv.Itoa(len(v.items)))
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, item)
		}
		_, err = d.ReadToken()
	case '"':
		v.raw = string(quote(token.String()))
	default:
		v.raw = token.String()
	}
	return v, err
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// escape is a name as a JSON Pointer has it.
func escape(name string) string { return pointerEscapes.Replace(name) }

// quote is s as a JSON string, without the escaping of HTML.
func quote(s string) []byte {
	b, err := jsontext.AppendQuote(nil, s)
	if err != nil { // invalid UTF-8 was replaced
		return b
	}
	return b
}

func text(s string) *value    { return &value{kind: '"', raw: string(quote(s))} }
func literal(s string) *value { return &value{kind: jsontext.Kind(s[0]), raw: s} }
func number(n int) *value     { return &value{kind: '0', raw: strconv.Itoa(n)} }
func list(items ...*value) *value {
	return &value{kind: '[', items: items}
}

// object returns an empty object that stands for what is at.
func object(at string) *value { return &value{kind: '{', at: at} }

// schemaOf returns a schema with a type.
func schemaOf(at, typ string) *value { return object(at).set("type", text(typ)) }

func (v *value) is(k jsontext.Kind) bool { return v != nil && v.kind == k }

// str returns the text of a string, and "" for anything else.
func (v *value) str() string {
	if !v.is('"') {
		return ""
	}
	var s string
	_ = json.Unmarshal([]byte(v.raw), &s)
	return s
}

// strs returns the strings of a list.
func (v *value) strs() []string {
	var all []string
	if v.is('[') {
		for _, item := range v.items {
			if item.is('"') {
				all = append(all, item.str())
			}
		}
	}
	return all
}

func texts(all []string) *value {
	l := list()
	for _, s := range all {
		l.items = append(l.items, text(s))
	}
	return l
}

// get returns the member of an object, or nil.
func (v *value) get(name string) *value {
	if v.is('{') {
		if i := slices.Index(v.names, name); i >= 0 {
			return v.items[i]
		}
	}
	return nil
}

func (v *value) has(name string) bool { return v.get(name) != nil }

// set adds a member, or replaces it in its place. It changes v, which must not
// be shared yet, and returns it.
func (v *value) set(name string, item *value) *value {
	if i := slices.Index(v.names, name); i >= 0 {
		v.items[i] = item
		return v
	}
	v.names, v.items = append(v.names, name), append(v.items, item)
	return v
}

// remove takes a member away. Like set it changes v.
func (v *value) remove(name string) {
	if i := slices.Index(v.names, name); i >= 0 {
		v.names, v.items = slices.Delete(v.names, i, i+1), slices.Delete(v.items, i, i+1)
	}
}

// copy returns an object that can be changed without v being changed.
func (v *value) copy() *value {
	c := *v
	c.names, c.items = slices.Clone(v.names), slices.Clone(v.items)
	return &c
}

// without returns v without the members named.
func (v *value) without(names ...string) *value {
	c := object(v.at)
	for i, name := range v.names {
		if !slices.Contains(names, name) {
			c.names, c.items = append(c.names, name), append(c.items, v.items[i])
		}
	}
	return c
}

// json appends the JSON of v.
func (v *value) json(b []byte) []byte {
	switch v.kind {
	case '{':
		b = append(b, '{')
		for i, item := range v.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(b, quote(v.names[i])...), ':')
			b = item.json(b)
		}
		return append(b, '}')
	case '[':
		b = append(b, '[')
		for i, item := range v.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.json(b)
		}
		return append(b, ']')
	}
	return append(b, v.raw...)
}

func (v *value) String() string { return string(v.json(nil)) }

// same reports whether two values have the same JSON.
func same(a, b *value) bool { return a == b || a.String() == b.String() }
