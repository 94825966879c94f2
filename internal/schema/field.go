package schema

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// A field is a property that a struct has in JSON.
type field struct {
	goName   string
	name     string
	typ      reflect.Type
	tag      reflect.StructTag
	index    []int
	tagged   bool // has its name from a tag
	optional bool
}

// fieldsOf returns the properties of a struct in the order of its fields, as
// the JSON package sees them: the fields of an embedded struct without a name
// are its own, and of several with one name the outermost counts, or else the
// only one that is named by a tag.
func fieldsOf(t reflect.Type) ([]field, error) {
	// Let the JSON package object first, in its own words, to tags that it would
	// object to in the middle of a call.
	if err := json.Unmarshal([]byte("{}"), reflect.New(t).Interface()); err != nil {
		var semantic *json.SemanticError
		if errors.As(err, &semantic) && semantic.Err != nil {
			err = semantic.Err
		}
		return nil, fmt.Errorf("%v: %w", t, err)
	}
	all, err := collectFields(t)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b field) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(len(a.index), len(b.index)), btoi(b.tagged)-btoi(a.tagged))
	})
	var fields []field
	for len(all) > 0 {
		same := 1
		for same < len(all) && all[same].name == all[0].name {
			same++
		}
		if same == 1 || len(all[0].index) != len(all[1].index) || all[0].tagged != all[1].tagged {
			fields = append(fields, all[0])
		}
		all = all[same:]
	}
	slices.SortFunc(fields, func(a, b field) int { return slices.Compare(a.index, b.index) })
	return fields, nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// collectFields returns the fields of a struct and of those it embeds.
func collectFields(t reflect.Type) ([]field, error) {
	type level struct {
		typ      reflect.Type
		index    []int
		optional bool // reached through a pointer, which may be nil
		again    bool // its embedded structs have been collected
	}
	var all []field
	seen := map[reflect.Type]bool{t: true}
	for queue := []level{{typ: t}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for i := range at.typ.NumField() {
			sf := at.typ.Field(i)
			f, ok, err := fieldOf(sf)
			if err != nil {
				return nil, fmt.Errorf("field %s: %w", qualified(at.typ, sf.Name), err)
			}
			if !ok {
				continue
			}
			f.index = append(slices.Clip(at.index), i)
			f.optional = f.optional || at.optional
			if !sf.Anonymous || f.tagged {
				all = append(all, f)
				continue
			}
			embedded, pointer := sf.Type, sf.Type.Kind() == reflect.Pointer
			if pointer {
				embedded = embedded.Elem()
			}
			if pointer && !sf.IsExported() {
				return nil, fmt.Errorf("field %s: a pointer to an unexported type cannot be filled in: embed the struct itself", qualified(at.typ, sf.Name))
			}
			if !at.again {
				queue = append(queue, level{embedded, f.index, at.optional || pointer, seen[embedded]})
			}
			seen[embedded] = true
		}
	}
	return all, nil
}

// fieldOf reads the tags of one field. It is not ok if JSON leaves it out.
func fieldOf(sf reflect.StructField) (field, bool, error) {
	tag := sf.Tag.Get("json")
	if tag == "-" || !sf.IsExported() && !sf.Anonymous {
		return field{}, false, nil
	}
	name, options, _ := strings.Cut(tag, ",")
	f := field{goName: sf.Name, name: cmp.Or(name, sf.Name), typ: sf.Type, tag: sf.Tag, tagged: name != ""}
	f.optional = sf.Type.Kind() == reflect.Pointer
	for option := range strings.SplitSeq(options, ",") {
		switch option, _, _ := strings.Cut(option, ":"); option {
		case "omitempty", "omitzero":
			f.optional = true
		case "string":
			return field{}, false, errors.New(`the json option "string" is not supported: use a string, or json.Number`)
		case "embed", "inline", "unknown", "format", "case":
			return field{}, false, fmt.Errorf("the json option %q is not supported: use json.RawMessage, or a type with a JSONSchema method", option)
		}
	}
	if _, ok := sf.Tag.Lookup("default"); ok {
		f.optional = true
	}
	return f, true, nil
}
