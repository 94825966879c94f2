package schema

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Arguments returns the schema of the arguments of a tool whose function takes
// a T: the one that was written by hand, or if that is nil the one of T. An error
// says why there can be no such tool: arguments are an object, as [Schema.Object]
// has it, and T must be able to hold what a schema written by hand promises.
func Arguments[T any](byHand *Schema) (*Schema, error) {
	t := reflect.TypeFor[T]()
	if byHand == nil {
		return inferArguments(t)
	}
	if err := byHand.Object(); err != nil {
		return nil, err
	}
	if readsItself(reflect.New(t).Interface()) {
		return byHand, nil
	}
	if err := Unmarshal([]byte("{}"), reflect.New(t).Interface()); err != nil {
		return nil, fmt.Errorf("arguments are an object, which %v cannot hold: %w", t, err)
	}
	return byHand, byHand.fields(t)
}

func inferArguments(t reflect.Type) (*Schema, error) {
	s, err := ForType(t)
	if err != nil {
		return nil, err
	}
	switch s.root.kinds {
	case object:
		return s, s.Object()
	case 0:
		return nil, fmt.Errorf("%v says nothing about the arguments: use a struct, or give the schema by hand", t)
	}
	return nil, fmt.Errorf("arguments are an object and %v is %s: make it a field of a struct", t, describe(s.root))
}

// fields reports as an error a property that a struct has no field for: what
// the model writes there would be lost, and nobody told.
func (s *Schema) fields(t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	fields, err := fieldsOf(t)
	if err != nil {
		return nil // it decodes, by means that are not known here
	}
	names := make([]string, len(fields))
	known := map[string]bool{}
	for i, f := range fields {
		names[i], known[f.name] = f.name, true
	}
	for _, name := range s.root.order {
		if known[name] {
			continue
		}
		hint := ""
		if near := nearest(name, names); near != "" {
			hint = fmt.Sprintf("; it has %q, and names match exactly", near)
		}
		return fmt.Errorf("the schema has a property %q and %v has no field for it%s", name, t, hint)
	}
	return nil
}

// DecodeArguments decodes the arguments of a tool call, the text that a model
// wrote, into the value that into points to, and returns what it has decoded: one
// JSON object in the form of [Schema.Normalize]. It checks and decodes once; the
// text itself is for the caller to keep.
//
// Arguments that fit are not touched. Beyond what Normalize does, it accepts
//
//   - nothing, white space or null for no arguments,
//   - an array, object, number or boolean inside a string, once and only where
//     the schema allows no string, provided that all of the arguments fit then.
//
// Each correction is returned, to be logged. Everything else is an error for
// the model to read, a [*SyntaxError] or a [*ValidationError] with all that is
// wrong at once; no value is ever guessed, rounded or dropped. After an error the
// value may be filled in part and is not to be used.
//
// When a method of the value panics, so does DecodeArguments: that is a fault
// of the program, which the model should not be told.
func (s *Schema) DecodeArguments(arguments string, into any) (json.RawMessage, []Repair, error) {
	var repairs []Repair
	if blank := strings.Trim(arguments, " \t\r\n"); blank == "" || blank == "null" {
		arguments = "{}"
		repairs = append(repairs, Repair{Kind: EmptyArguments})
	}
	doc, err := parse(arguments)
	if err != nil {
		return nil, nil, err
	}
	for _, path := range doc.broken {
		repairs = append(repairs, Repair{Path: path, Kind: UnicodeReplaced})
	}
	clean, more, err := s.read(doc, lenient, into)
	if err != nil {
		return nil, nil, err
	}
	return clean, append(repairs, more...), nil
}

// PrepareArguments is [Schema.DecodeArguments] for a caller that wants no value.
// A panic of a method is an error here.
func (s *Schema) PrepareArguments(arguments string) (_ json.RawMessage, _ []Repair, err error) {
	scratch := s.scratch()
	if scratch != nil {
		defer recovered(&err, scratch)
	}
	return s.DecodeArguments(arguments, scratch)
}
