package flue

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/flue-go/flue/internal/schema"
)

// A Schema says what a JSON value must look like. The schema that is shown to a
// model is the one that validates.
type Schema struct{ s *schema.Schema }

// SchemaFor returns the schema of a Go type: its JSON form, with the
// restrictions of the struct tags jsonschema (a description), enum, min, max,
// exclusiveMin, exclusiveMax, minLength, maxLength, minItems, maxItems, pattern,
// format (date, date-time, email, hostname, ipv4, ipv6, time, uri, uuid), default
// and example. A field that is a pointer, or has omitempty or omitzero, may be
// left out. It panics if the type has no schema or a tag is wrong, as
// regexp.MustCompile does.
func SchemaFor[T any]() *Schema {
	s, err := schema.For[T]()
	if err != nil {
		var zero T
		panic(fmt.Sprintf("flue: schema of %T: %v", zero, err))
	}
	return &Schema{s}
}

// ParseSchema returns a schema that was written by hand, as JSON Schema.
func ParseSchema(document []byte) (*Schema, error) {
	s, err := schema.Parse(document)
	if err != nil {
		return nil, fmt.Errorf("flue: parsing a schema: %w", err)
	}
	return &Schema{s}, nil
}

// MarshalJSON returns the schema as JSON Schema.
func (s *Schema) MarshalJSON() ([]byte, error) { return s.s.JSON(), nil }

// Validate reports whether a JSON document matches the schema. The error says
// where it does not, what was expected there and what came.
func (s *Schema) Validate(document json.RawMessage) error { return s.s.Validate(document) }

// misfit says where a stored value does not fit a type, and what was expected
// there, but not what is there: that may be private, and what is said goes to a
// log.
func misfit(err error) error {
	var invalid *schema.ValidationError
	if !errors.As(err, &invalid) {
		return errors.New("it is not the JSON that was expected")
	}
	quiet := &schema.ValidationError{Problems: slices.Clone(invalid.Problems)}
	for i := range quiet.Problems {
		quiet.Problems[i].Got = ""
	}
	return quiet
}
