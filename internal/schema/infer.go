package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// For returns the schema of T. See the package comment for the rules.
func For[T any]() (*Schema, error) { return ForType(reflect.TypeFor[T]()) }

// ForType is [For] for a type that is known only at run time. An error names
// the type and the field.
func ForType(t reflect.Type) (*Schema, error) {
	in := inferrer{open: map[reflect.Type]bool{}, named: map[reflect.Type]string{}, taken: map[string]bool{}, defs: newObject()}
	root, err := in.infer(t)
	if err != nil {
		return nil, fmt.Errorf("schema of %v: %w", t, err)
	}
	if len(in.defs.keys) > 0 {
		root = in.withDefs(root)
	}
	s, err := Parse(root.append(nil))
	if err != nil {
		return nil, fmt.Errorf("schema of %v: %w", t, err)
	}
	enforce(s.nodes)
	s.typ = t
	return s, nil
}

// An inferrer builds the schema of a type. Types that contain themselves become
// definitions that are referred to.
type inferrer struct {
	open  map[reflect.Type]bool   // types whose schema is being built
	named map[reflect.Type]string // those of them that contain themselves, with the name of their definition
	taken map[string]bool         // names of definitions
	defs  *value                  // the definitions
	count int                     // schemas built
}

// withDefs is the root with the definitions. A root that is a reference is
// spelt out: model services want an object there.
func (in *inferrer) withDefs(root *value) *value {
	if ref := root.get("$ref"); ref != nil {
		root = in.defs.get(strings.TrimPrefix(ref.text, "#/$defs/")).clone()
	}
	return root.set("$defs", in.defs)
}

func typed(name string) *value { return newObject().set("type", newText(name)) }

func (in *inferrer) infer(t reflect.Type) (*value, error) {
	if in.count++; in.count > maxSchemaValues/4 {
		return nil, errors.New("the schema becomes too large: give parts of it the type json.RawMessage")
	}
	if s, err := special(t); s != nil || err != nil {
		return s, err
	}
	switch t.Kind() {
	case reflect.Bool:
		return typed("boolean"), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return integer(-math.Ldexp(1, t.Bits()-1), math.Ldexp(1, t.Bits()-1)-1, t.Bits()), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return integer(0, math.Ldexp(1, t.Bits())-1, t.Bits()), nil
	case reflect.Float32, reflect.Float64:
		return typed("number"), nil
	case reflect.String:
		return typed("string"), nil
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return newObject(), nil
		}
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
		return in.composite(t)
	}
	return nil, fmt.Errorf("%v has no JSON form: use another type, or give the schema by hand", t)
}

// integer is the schema of an integer type. The limits of a 64-bit type say
// nothing to a model; they are left to decoding, except that of zero.
func integer(lowest, highest float64, bits int) *value {
	s := typed("integer")
	if bits < 64 || lowest == 0 {
		s.set("minimum", newNumber(strconv.FormatFloat(lowest, 'f', 0, 64)))
	}
	if bits < 64 {
		s.set("maximum", newNumber(strconv.FormatFloat(highest, 'f', 0, 64)))
	}
	return s
}

// composite infers a type that is made of others, and may be made of itself if
// it has a name.
func (in *inferrer) composite(t reflect.Type) (*value, error) {
	if name := in.named[t]; name != "" {
		return reference(name), nil
	}
	if in.open[t] {
		in.named[t] = in.name(t)
		return reference(in.named[t]), nil
	}
	in.open[t] = true
	defer delete(in.open, t)
	s, err := in.parts(t)
	if err != nil {
		return nil, err
	}
	if name := in.named[t]; name != "" {
		in.defs.set(name, s)
		return reference(name), nil
	}
	return s, nil
}

func reference(name string) *value { return newObject().set("$ref", newText("#/$defs/"+name)) }

// name returns a name for a definition: that of the type, without what a
// reference could not hold, and with a number if it is taken.
func (in *inferrer) name(t reflect.Type) string {
	base := strings.Map(func(r rune) rune {
		if r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, t.Name())
	name := base
	for i := 2; in.taken[name]; i++ {
		name = base + strconv.Itoa(i)
	}
	in.taken[name] = true
	return name
}

func (in *inferrer) parts(t reflect.Type) (*value, error) {
	switch t.Kind() {
	case reflect.Pointer:
		return in.infer(t.Elem())
	case reflect.Map:
		return in.dictionary(t)
	case reflect.Struct:
		return in.structure(t)
	}
	if t.Elem() == reflect.TypeFor[byte]() {
		return typed("string").set("contentEncoding", newText("base64")), nil
	}
	items, err := in.infer(t.Elem())
	if err != nil {
		return nil, err
	}
	s := typed("array").set("items", items)
	if t.Kind() == reflect.Array {
		n := newNumber(strconv.Itoa(t.Len()))
		s.set("minItems", n).set("maxItems", n)
	}
	return s, nil
}

func (in *inferrer) dictionary(t reflect.Type) (*value, error) {
	if t.Key().Kind() != reflect.String && !isText(t.Key()) {
		return nil, fmt.Errorf("%v: the keys of an object are strings", t)
	}
	elem, err := in.infer(t.Elem())
	if err != nil {
		return nil, err
	}
	return typed("object").set("additionalProperties", elem), nil
}

func (in *inferrer) structure(t reflect.Type) (*value, error) {
	fields, err := fieldsOf(t)
	if err != nil {
		return nil, err
	}
	props, required := newObject(), newArray()
	for _, f := range fields {
		s, err := in.infer(f.typ)
		if err == nil {
			s, err = f.constrain(s)
		}
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", qualified(t, f.goName), err)
		}
		props.set(f.name, s)
		if !f.optional {
			required.items = append(required.items, newText(f.name))
		}
	}
	s := typed("object").set("properties", props)
	if len(required.items) > 0 {
		s.set("required", required)
	}
	return s.set("additionalProperties", newBool(false)), nil
}

// qualified names a field for an error.
func qualified(t reflect.Type, field string) string {
	if t.Name() == "" {
		return field
	}
	return t.String() + "." + field
}

// A Describer is a type that says what its JSON looks like. The schema may not
// contain references, because it becomes a part of others.
type Describer interface {
	JSONSchema() json.RawMessage
}

func described(t reflect.Type, d Describer) (_ *value, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v.JSONSchema panicked on a zero value: %v", t, r)
		}
	}()
	s, err := parseSchema(d.JSONSchema())
	if err != nil {
		return nil, fmt.Errorf("%v.JSONSchema: %w", t, err)
	}
	if s.refers() {
		return nil, fmt.Errorf("%v.JSONSchema: a schema that becomes a part of another cannot have $ref, $id or $defs", t)
	}
	return s, nil
}

// refers reports whether a schema depends on where it stands.
func (v *value) refers() bool {
	for _, keyword := range []string{"$ref", "$id", "$defs", "definitions"} {
		if v.get(keyword) != nil {
			return true
		}
	}
	for _, item := range v.items {
		if item.refers() {
			return true
		}
	}
	return false
}
