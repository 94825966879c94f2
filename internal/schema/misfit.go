package schema

import (
	textual "encoding"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// decode decodes JSON and returns as a [*ValidationError] what does not fit the
// value that into points to. A method of that value may panic.
func decode(raw []byte, into any) error {
	err := json.Unmarshal(raw, into, decoding)
	if err == nil {
		return nil
	}
	doc, syntax := parse(string(raw))
	if t := reflect.TypeOf(into); syntax == nil && t != nil && t.Kind() == reflect.Pointer {
		bad := &ValidationError{}
		if bad.add(misfits(doc, t.Elem())); len(bad.Problems) > 0 {
			return bad
		}
	}
	return fmt.Errorf("decoding: %w", err)
}

// misfits lists what a Go type cannot hold of a document, beyond what a schema
// says of it: a time that is none, an integer with too many digits. Decoding
// ends at the first such value; this goes on to the others. It decodes once
// more, and is called only when something is wrong.
func misfits(doc *document, t reflect.Type) (problems []Problem, more int) {
	c := collector{root: doc.root}
	hook := json.WithUnmarshalers(json.UnmarshalFromFunc(c.decode))
	if err := json.Unmarshal(doc.bytes(), reflect.New(t).Interface(), hook); err != nil {
		c.add("", nil, err)
	}
	return c.problems, c.more
}

// A collector decodes value by value and notes those that do not fit.
type collector struct {
	root     *value
	problems []Problem
	more     int
}

// decode decodes a value that has no parts, or that reads its parts itself. It
// leaves the others to the JSON package, which comes back with their parts.
func (c *collector) decode(dec *jsontext.Decoder, into any) error {
	switch dec.PeekKind() {
	case 'n':
		return errors.ErrUnsupported // null fits everything
	case '{', '[':
		if !readsItself(into) {
			return errors.ErrUnsupported
		}
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into, decoding); err != nil {
		c.add(dec.StackPointer(), raw, err)
	}
	return nil
}

func readsItself(v any) bool {
	switch v.(type) {
	case stdjson.Unmarshaler, json.UnmarshalerFrom:
		return true
	}
	return false
}

// add notes in terms of the document why a value does not fit a Go type.
func (c *collector) add(at jsontext.Pointer, raw jsontext.Value, err error) {
	if len(c.problems) == MaxProblems {
		c.more++
		return
	}
	p := Problem{Message: "cannot be read: " + err.Error()}
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.As(err, &semantic):
		p.Message = wantedOf(semantic)
		if raw == nil {
			at, raw = semantic.JSONPointer, semantic.JSONValue
		}
	case errors.As(err, &syntactic) && errors.Is(err, jsontext.ErrDuplicateName):
		at, p.Message = syntactic.JSONPointer, "means the same as a name before it"
	}
	p.Message = clip(p.Message, maxMessage)
	p.Path = c.root.place(string(at)).String()
	if doc, err := parse(string(raw)); err == nil {
		p.Got = showGot(doc.root)
	}
	c.problems = append(c.problems, p)
}

// wantedOf says what a type takes that has refused a value.
func wantedOf(e *json.SemanticError) string {
	t := e.GoType
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == nil:
		return "cannot be read"
	case t == reflect.TypeFor[time.Time]():
		return "expected " + formats["date-time"].phrase
	case t == reflect.TypeFor[time.Duration]():
		return "expected " + durationPhrase
	case e.Err != nil && reflect.PointerTo(t).Implements(reflect.TypeFor[textual.TextUnmarshaler]()):
		return e.Err.Error()
	case isBytes(t) && t.Kind() == reflect.Array:
		return fmt.Sprintf("expected %s in base64", count(t.Len(), "byte"))
	case isBytes(t):
		return "expected base64"
	case errors.Is(e.Err, strconv.ErrRange):
		return "must be " + span(t)
	case e.Err != nil:
		return e.Err.Error()
	}
	return fmt.Sprintf("does not fit the type %v", t)
}

// isBytes reports whether the JSON of a type is base64.
func isBytes(t reflect.Type) bool {
	return (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) && t.Elem() == reflect.TypeFor[byte]()
}

// span names the numbers that a type can hold.
func span(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		low := int64(math.MinInt64) >> (64 - t.Bits())
		return fmt.Sprintf("from %d to %d", low, -(low + 1))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return fmt.Sprintf("from 0 to %d", uint64(math.MaxUint64)>>(64-t.Bits()))
	case reflect.Float32:
		return "from -3.4e38 to 3.4e38"
	case reflect.Float64:
		return "from -1.7e308 to 1.7e308"
	}
	return "smaller"
}
