package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// A Schema is a compiled JSON Schema. It does not change and is safe for
// concurrent use.
type Schema struct {
	json     json.RawMessage
	root     *node
	nodes    []*node
	defaults bool         // absent properties get their defaults
	typ      reflect.Type // what the schema was inferred from, or nil
}

// Parse compiles a schema written by hand. JSON returns the same text without
// its white space.
//
// Defaults of the schema are applied to absent properties, and each is checked
// against its own schema here. An error names the place in the schema.
func Parse(raw json.RawMessage) (*Schema, error) {
	root, err := parseSchema(raw)
	if err != nil {
		return nil, err
	}
	s, err := build(root)
	if err != nil {
		return nil, err
	}
	s.defaults = slices.ContainsFunc(s.nodes, func(n *node) bool { return n.preset != nil })
	return s, nil
}

func parseSchema(raw json.RawMessage) (*value, error) {
	if len(raw) > maxSchema {
		return nil, fmt.Errorf("schema: %d bytes, the limit is %d", len(raw), maxSchema)
	}
	doc, err := parse(string(raw))
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if n := doc.root.size(); n > maxSchemaValues {
		return nil, fmt.Errorf("schema: %d parts, the limit is %d", n, maxSchemaValues)
	}
	return doc.root, nil
}

// size counts the values in v.
func (v *value) size() int {
	n := 1
	for _, item := range v.items {
		n += item.size()
	}
	return n
}

func build(root *value) (*Schema, error) {
	n, nodes, err := compile(root)
	if err != nil {
		return nil, err
	}
	return &Schema{json: root.append(nil), root: n, nodes: nodes}, nil
}

// JSON returns the schema as it is advertised. The bytes are the same on every
// run, and they are a copy.
func (s *Schema) JSON() json.RawMessage { return bytes.Clone(s.json) }

// String returns the schema as JSON.
func (s *Schema) String() string { return string(s.json) }

// Object reports as an error why the schema cannot describe the arguments of a
// tool: model services want an object at the root, spelt out.
func (s *Schema) Object() error {
	if s.root.src.kind == object {
		for _, keyword := range []string{"$ref", "anyOf", "oneOf", "allOf", "not", "enum", "const"} {
			if s.root.src.get(keyword) != nil {
				return fmt.Errorf("schema: %s at the root is refused by model services: write type, properties and required at the root and use %s below it", keyword, keyword)
			}
		}
	}
	switch s.root.kinds {
	case object:
		return nil
	case 0:
		return errors.New(`schema: the root has no type: it must be {"type": "object", "properties": ...}`)
	}
	return fmt.Errorf("schema: the root is %s, it must be an object: make it a property of one", describe(s.root))
}

// Validate reports what is wrong with a JSON document, as a [*SyntaxError] or a
// [*ValidationError]. It accepts what [Schema.Normalize] accepts.
func (s *Schema) Validate(raw []byte) error {
	_, err := s.Normalize(raw)
	return err
}

// Normalize checks a JSON document and returns it in the form in which it
// should be stored and decoded. That is the document itself, byte for byte and
// without surrounding white space, except that
//
//   - a null for an optional property that may not be null is dropped,
//   - an absent property with a default gets it, if the schema comes from
//     [For] or [Parse],
//   - an integer that was written with a fraction or an exponent, such as 5.0,
//     is written plainly,
//   - Unicode that is not valid becomes U+FFFD.
//
// Normalize of a schema that was made by [For] also refuses what the type cannot
// hold, such as an integer with too many digits.
//
// Errors are a [*SyntaxError] or a [*ValidationError].
func (s *Schema) Normalize(raw []byte) (_ json.RawMessage, err error) {
	doc, err := parse(string(raw))
	if err != nil {
		return nil, err
	}
	scratch := s.scratch()
	if scratch != nil {
		defer recovered(&err, scratch)
	}
	clean, _, err := s.read(doc, strict, scratch)
	return clean, err
}

// scratch returns a pointer to a value of the type that the schema was inferred
// from, which says more than the schema, or nil if there is none.
func (s *Schema) scratch() any {
	if s.typ == nil {
		return nil
	}
	return reflect.New(s.typ).Interface()
}

// Decode checks a JSON document as [Schema.Normalize] does and decodes it into
// the value that into points to, as [Unmarshal] does. After an error that value
// may be filled in part.
func (s *Schema) Decode(raw []byte, into any) (err error) {
	doc, err := parse(string(raw))
	if err != nil {
		return err
	}
	defer recovered(&err, into)
	_, _, err = s.read(doc, strict, into)
	return err
}

// Decode is [Schema.Decode] for a result of type T.
func Decode[T any](s *Schema, raw []byte) (T, error) {
	var v T
	err := s.Decode(raw, &v)
	return v, err
}

// Output encodes a value as [Marshal] does and checks it as [Schema.Normalize]
// does. A nil Schema checks nothing.
func (s *Schema) Output(v any) (json.RawMessage, error) {
	raw, err := Marshal(v)
	if err != nil || s == nil {
		return raw, err
	}
	raw, err = s.Normalize(raw)
	if err != nil {
		return nil, fmt.Errorf("the value does not fit its schema: %w", err)
	}
	return raw, nil
}
