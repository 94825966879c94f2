package schema

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"time"
)

// A Describer is a type that says what its JSON looks like.
type Describer interface {
	JSONSchema() json.RawMessage
}

// For returns the schema of T. See the package comment for the rules.
func For[T any]() (*Schema, error) { return ForType(reflect.TypeFor[T]()) }

// ForType is [For] for a type that is known only at run time. An error names
// the type and the field.
func ForType(t reflect.Type) (*Schema, error) {
	in := inferrer{open: make(map[reflect.Type]bool), named: make(map[reflect.Type]string), defs: value{kind: object}}
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
	return s, nil
}

// An inferrer builds the schema of a type. Types that contain themselves become
// definitions that are referred to.
type inferrer struct {
	open  map[reflect.Type]bool   // types whose schema is being built
	named map[reflect.Type]string // those of them that contain themselves, with the name of their definition
	defs  value                   // the definitions, an object
}

// withDefs is the root with the definitions. A root that is a reference is
// spelt out: model services want an object there.
func (in *inferrer) withDefs(root *value) *value {
	if ref := root.get("$ref"); ref != nil {
		if def := in.defs.get(strings.TrimPrefix(ref.text, "#/$defs/")); def != nil {
			root = def.clone()
		}
	}
	return root.set("$defs", &in.defs)
}

func typed(name string) *value { return newObject().set("type", newText(name)) }

func (in *inferrer) infer(t reflect.Type) (*value, error) {
	if s, ok, err := special(t); ok || err != nil {
		return s, err
	}
	switch t.Kind() {
	case reflect.Pointer:
		return in.infer(t.Elem())
	case reflect.Bool:
		return typed("boolean"), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return typed("integer"), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return typed("integer").set("minimum", newNumber("0")), nil
	case reflect.Float32, reflect.Float64:
		return typed("number"), nil
	case reflect.String:
		return typed("string"), nil
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return newObject(), nil
		}
	case reflect.Slice, reflect.Array:
		return in.list(t)
	case reflect.Map:
		return in.dictionary(t)
	case reflect.Struct:
		return in.structure(t)
	}
	return nil, fmt.Errorf("%v has no JSON form: use another type, or give the schema by hand", t)
}

// special is the schema of types whose JSON is not that of their kind.
func special(t reflect.Type) (*value, bool, error) {
	switch t {
	case reflect.TypeFor[time.Time]():
		return typed("string").set("format", newText("date-time")), true, nil
	case reflect.TypeFor[time.Duration]():
		return typed("string").set("description", newText(`a duration such as "1m30s"`)), true, nil
	case reflect.TypeFor[json.RawMessage]():
		return newObject(), true, nil
	case reflect.TypeFor[json.Number]():
		return typed("number"), true, nil
	case reflect.TypeFor[big.Int]():
		return typed("integer"), true, nil
	}
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface {
		return nil, false, nil
	}
	p := reflect.New(t).Interface()
	switch p := p.(type) {
	case Describer:
		s, err := parseSchema(p.JSONSchema())
		if err != nil {
			return nil, false, fmt.Errorf("%v.JSONSchema: %w", t, err)
		}
		return s, true, nil
	case json.Unmarshaler:
		return nil, false, fmt.Errorf("%v has JSON methods of its own: add a method JSONSchema() json.RawMessage that says what they read", t)
	case encoding.TextUnmarshaler:
		return typed("string"), true, nil
	}
	return nil, false, nil
}

func (in *inferrer) list(t reflect.Type) (*value, error) {
	if t.Elem().Kind() == reflect.Uint8 {
		return typed("string").set("contentEncoding", newText("base64")), nil
	}
	items, err := in.infer(t.Elem())
	if err != nil {
		return nil, err
	}
	s := typed("array").set("items", items)
	if t.Kind() == reflect.Array {
		n := newNumber(fmt.Sprint(t.Len()))
		s.set("minItems", n).set("maxItems", n)
	}
	return s, nil
}

func (in *inferrer) dictionary(t reflect.Type) (*value, error) {
	if t.Key().Kind() != reflect.String {
		return nil, fmt.Errorf("%v: the keys of an object are strings", t)
	}
	elem, err := in.infer(t.Elem())
	if err != nil {
		return nil, err
	}
	return typed("object").set("additionalProperties", elem), nil
}

func (in *inferrer) structure(t reflect.Type) (*value, error) {
	if in.open[t] {
		if in.named[t] == "" {
			in.named[t] = fmt.Sprintf("%s%d", definitionName(t), len(in.named))
		}
		return newObject().set("$ref", newText("#/$defs/"+in.named[t])), nil
	}
	in.open[t] = true
	defer delete(in.open, t)

	props, required := newObject(), newArray()
	fields, err := fieldsOf(t)
	if err != nil {
		return nil, err
	}
	for _, f := range fields {
		s, err := in.infer(f.typ)
		if err == nil {
			s, err = f.constrain(s)
		}
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.goName, err)
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
	s.set("additionalProperties", newBool(false))
	if name := in.named[t]; name != "" {
		in.defs.set(name, s)
		return newObject().set("$ref", newText("#/$defs/"+name)), nil
	}
	return s, nil
}

// definitionName is a type's name without what a reference could not hold.
func definitionName(t reflect.Type) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, t.Name())
}
