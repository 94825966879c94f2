package schema

import (
	textual "encoding"
	stdjson "encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"reflect"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// special returns the schema of a type whose JSON is not that of its kind, or
// nil.
func special(t reflect.Type) (*value, error) {
	switch t {
	case reflect.TypeFor[time.Time]():
		return typed("string").set("format", newText("date-time")), nil
	case reflect.TypeFor[time.Duration]():
		return typed("string").set("description", newText(durationPhrase)).set("examples", newArray(newText("1m30s"))), nil
	case reflect.TypeFor[stdjson.RawMessage](), reflect.TypeFor[jsontext.Value]():
		return newObject(), nil
	case reflect.TypeFor[stdjson.Number]():
		return typed("number"), nil
	case reflect.TypeFor[big.Int]():
		return typed("integer"), nil
	case reflect.TypeFor[slog.Level]():
		return typed("string"), nil
	}
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface {
		return nil, nil
	}
	switch p := reflect.New(t).Interface().(type) {
	case Describer:
		return described(t, p)
	case stdjson.Unmarshaler, stdjson.Marshaler, json.UnmarshalerFrom, json.MarshalerTo:
		return nil, fmt.Errorf("%v has JSON methods, its own or those of an embedded field: add a method JSONSchema() json.RawMessage that says what they read and write", t)
	case textual.TextUnmarshaler:
		return typed("string"), nil
	case textual.TextMarshaler:
		return nil, fmt.Errorf("%v has MarshalText and no UnmarshalText: it is written as text but cannot be read", t)
	}
	return nil, nil
}

// isText reports whether a type reads itself from text.
func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[textual.TextUnmarshaler]())
}
