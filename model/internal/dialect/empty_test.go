package dialect

import (
	"encoding/json"
	"testing"
)

// A schema may do without properties and still take arguments.
func TestEmpty(t *testing.T) {
	for schema, want := range map[string]bool{
		``:                                  true,
		`{"type":"object","properties":{}}`: true,
		`{"type":"object","description":"none","additionalProperties":false}`:                true,
		`{"type":"object","additionalProperties":{"type":"string"}}`:                         false,
		`{"type":"object","patternProperties":{"^x-":{"type":"string"}}}`:                    false,
		`{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":true}`: false,
		`7`: true, // and the loss says so
	} {
		if got := GeminiJSON().Convert(json.RawMessage(schema)).Empty; got != want {
			t.Errorf("Empty of %s = %v, want %v", schema, got, want)
		}
	}
}
