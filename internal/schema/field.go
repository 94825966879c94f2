package schema

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A field is a property that a struct has in JSON.
type field struct {
	goName   string
	name     string
	typ      reflect.Type
	tag      reflect.StructTag
	optional bool
	depth    int
}

// fieldsOf returns the properties of a struct in the order of its fields. Those
// of an embedded struct are its own; of two with one name the outer one counts.
func fieldsOf(t reflect.Type) ([]field, error) {
	var fields []field
	for _, sf := range reflect.VisibleFields(t) {
		f, ok, err := fieldOf(t, sf)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", sf.Name, err)
		}
		if !ok {
			continue
		}
		i := slices.IndexFunc(fields, func(g field) bool { return g.name == f.name })
		switch {
		case i < 0:
			fields = append(fields, f)
		case f.depth < fields[i].depth:
			fields[i] = f
		case f.depth == fields[i].depth:
			return nil, fmt.Errorf("fields %s and %s are both %q in JSON", fields[i].goName, f.goName, f.name)
		}
	}
	return fields, nil
}

// fieldOf is one field of t. It is not ok if JSON does not have it.
func fieldOf(t reflect.Type, sf reflect.StructField) (field, bool, error) {
	tag, tagged := sf.Tag.Lookup("json")
	name, options, _ := strings.Cut(tag, ",")
	switch {
	case tag == "-":
		return field{}, false, nil
	case sf.Anonymous && name == "":
		if elem := sf.Type; elem.Kind() == reflect.Struct || elem.Kind() == reflect.Pointer && elem.Elem().Kind() == reflect.Struct {
			return field{}, false, nil // its fields are visible in its stead
		}
	case !sf.IsExported():
		if tagged {
			return field{}, false, errors.New("has a json tag and is not exported")
		}
		return field{}, false, nil
	}
	if !sf.IsExported() || hidden(t, sf.Index) {
		return field{}, false, nil
	}
	if name == "" {
		name = sf.Name
	}
	f := field{goName: sf.Name, name: name, typ: sf.Type, tag: sf.Tag, depth: len(sf.Index), optional: sf.Type.Kind() == reflect.Pointer}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "omitempty", "omitzero":
			f.optional = true
		case "string":
			return field{}, false, errors.New("the json option \"string\" is not supported: use a string, or json.Number")
		}
	}
	if _, ok := sf.Tag.Lookup("default"); ok {
		f.optional = true
	}
	return f, true, nil
}

// hidden reports whether a promoted field comes through an embedded field that
// JSON gives a name, or leaves out.
func hidden(t reflect.Type, index []int) bool {
	for i := 1; i < len(index); i++ {
		if tag := t.FieldByIndex(index[:i]).Tag.Get("json"); tag == "-" || tag != "" && !strings.HasPrefix(tag, ",") {
			return true
		}
	}
	return false
}

// A constraint is a struct tag that constrains a value.
type constraint struct {
	tag     string
	keyword string // of JSON Schema
	kinds   kind   // the kinds of value that it applies to
	// elements says that on a slice it constrains the elements.
	elements bool
	// literal reads the tag's content for a value of the schema.
	literal func(s *value, content string) (*value, error)
}

func constraints() []constraint {
	return []constraint{
		{"enum", "enum", text | number, true, oneOfList},
		{"min", "minimum", number, true, numberLiteral},
		{"max", "maximum", number, true, numberLiteral},
		{"pattern", "pattern", text, true, textLiteral},
		{"format", "format", text, true, textLiteral},
		{"minLength", "minLength", text, true, numberLiteral},
		{"maxLength", "maxLength", text, true, numberLiteral},
		{"minItems", "minItems", array, false, numberLiteral},
		{"maxItems", "maxItems", array, false, numberLiteral},
		{"default", "default", anyKind, false, valueLiteral},
		{"example", "examples", anyKind, false, func(s *value, content string) (*value, error) {
			v, err := valueLiteral(s, content)
			return newArray(v), err
		}},
	}
}

// constrain adds to the schema of the field's type what the field's tags say.
func (f field) constrain(s *value) (*value, error) {
	if d := f.tag.Get("jsonschema"); d != "" {
		if s.get("$ref") != nil { // some services ignore what stands beside a reference
			s = newObject().set("allOf", newArray(s))
		}
		s.set("description", newText(d))
	}
	for _, c := range constraints() {
		content, ok := f.tag.Lookup(c.tag)
		if !ok {
			continue
		}
		target := s
		if items := s.get("items"); items != nil && c.elements {
			target = items
		}
		if k := schemaKind(target); c.kinds != anyKind && k&c.kinds == 0 {
			return nil, fmt.Errorf("the tag %s does not apply to a %v", c.tag, f.typ)
		}
		v, err := c.literal(target, content)
		if err != nil {
			return nil, fmt.Errorf("the tag %s:%q: %w", c.tag, content, err)
		}
		target.set(c.keyword, v)
	}
	return s, nil
}

// schemaKind is the kind of value that an inferred schema allows.
func schemaKind(s *value) kind {
	t := s.get("type")
	if t == nil {
		return anyKind
	}
	switch t.text {
	case "string":
		return text
	case "integer", "number":
		return number
	case "boolean":
		return boolean
	case "array":
		return array
	}
	return object
}

func textLiteral(_ *value, content string) (*value, error) { return newText(content), nil }

func numberLiteral(_ *value, content string) (*value, error) {
	doc, err := parse(content)
	if err != nil || doc.root.kind != number {
		return nil, errors.New("want a number")
	}
	return doc.root, nil
}

// valueLiteral reads text as itself where the schema wants a string, and as
// JSON elsewhere.
func valueLiteral(s *value, content string) (*value, error) {
	if schemaKind(s) == text {
		return newText(content), nil
	}
	doc, err := parse(content)
	if err != nil {
		return nil, fmt.Errorf("want JSON: %w", err)
	}
	return doc.root, nil
}

func oneOfList(s *value, content string) (*value, error) {
	list := newArray()
	for part := range strings.SplitSeq(content, ",") {
		v, err := valueLiteral(s, strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		list.items = append(list.items, v)
	}
	return list, nil
}
