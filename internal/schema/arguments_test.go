package schema_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	oracle "github.com/google/jsonschema-go/jsonschema"

	"github.com/flue-go/flue/internal/schema"
)

func mustParse(t testing.TB, doc string) *schema.Schema {
	t.Helper()
	s, err := schema.Parse(json.RawMessage(doc))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What models get wrong, and what becomes of it.
func TestPrepareArguments(t *testing.T) {
	const (
		now     = `{"type":"object","properties":{},"additionalProperties":false}`
		search  = `{"type":"object","properties":{"queries":{"type":"array","items":{"type":"string"}},"target":{"oneOf":[{"type":"object","properties":{"kind":{"const":"agent"},"name":{"type":"string"}},"required":["kind","name"]},{"type":"object","properties":{"kind":{"const":"all"}},"required":["kind"],"additionalProperties":false}]}},"required":["queries"]}`
		options = `{"type":"object","properties":{"maxBytes":{"type":"integer"},"auto_open":{"type":"boolean"},"content":{"type":"string"},"note":{"type":"string"}},"additionalProperties":false}`
		numNull = `{"type":"object","properties":{"value":{"anyOf":[{"type":"number"},{"type":"null"}]}},"required":["value"]}`
		strNull = `{"type":"object","properties":{"value":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["value"]}`
		strNum  = `{"type":"object","properties":{"value":{"anyOf":[{"type":"string"},{"type":"number"}]}},"required":["value"]}`
		numStr  = `{"type":"object","properties":{"value":{"anyOf":[{"type":"number"},{"type":"string"}]}},"required":["value"]}`
		need    = `{"type":"object","properties":{"path":{"type":"string"}},"required":["path"],"additionalProperties":false}`

		strictOpenAI = `{"type":"object","properties":{"url":{"type":"string","format":"uri"},"headers":{"type":"object","additionalProperties":{"type":"string"}}},"required":["url"]}`
	)
	unionOf := func(arms ...string) string {
		return `{"type":"object","properties":{"value":{"anyOf":[` + strings.Join(arms, ",") + `]}},"required":["value"]}`
	}
	tests := []struct {
		name, schema, in string
		want             string // empty for an error
		repairs          string
		problem          string // what the error says
	}{
		{"empty", now, "", `{}`, "empty", ""},
		{"blank", now, "   ", `{}`, "empty", ""},
		{"null", now, "null", `{}`, "empty", ""},
		{"empty, with a required field", need, "", "", "", "path"},
		{"array in a string", search, `{"queries":"[\"test\"]"}`, `{"queries":["test"]}`, "decoded queries", ""},
		{"object in a string, in a union", search, `{"queries":[],"target":"{\"kind\":\"agent\",\"name\":\"r\"}"}`, `{"queries":[],"target":{"kind":"agent","name":"r"}}`, "decoded target", ""},
		{"number in a string", options, `{"maxBytes":"200000"}`, `{"maxBytes":200000}`, "decoded maxBytes", ""},
		{"boolean in a string", options, `{"auto_open":"false"}`, `{"auto_open":false}`, "decoded auto_open", ""},
		{"a word is no boolean", options, `{"auto_open":"no"}`, "", "", "auto_open"},
		{"text stays text", options, `{"content":"[1,2]","note":"7"}`, `{"content":"[1,2]","note":"7"}`, "", ""},
		{"null for an optional field", options, `{"note":null}`, `{}`, "null note", ""},
		{"null that is allowed: number", numNull, `{"value":null}`, `{"value":null}`, "", ""},
		{"null that is allowed: string", strNull, `{"value":null}`, `{"value":null}`, "", ""},
		{"text where text or number fits", strNum, `{"value":"7"}`, `{"value":"7"}`, "", ""},
		{"the same, in the other order", numStr, `{"value":"7"}`, `{"value":"7"}`, "", ""},
		{"big integers stay whole", options, `{"maxBytes":12345678901234567890}`, `{"maxBytes":12345678901234567890}`, "", ""},
		{"glued objects", need, `{"path":"a"}{"path":"b"}`, "", "", "second value"},
		{"not an object: array", need, `[1,2]`, "", "", "object"},
		{"not an object: string", need, `"hi"`, "", "", "object"},
		{"trailing comma", need, `{"path": "a.txt", }`, "", "", "comma"},
		{"cut short", need, `{"path":"a.t`, "", "", ""},
		{"control characters", need, "{\"path\":\"a\x07b\x0b\"}", "", "", ""},
		{"half a surrogate pair", need, `{"path":"\ud83d"}`, `{"path":"�"}`, "unicode path", ""},
		{"broken UTF-8", need, "{\"path\":\"a\xff\"}", `{"path":"a�"}`, "unicode path", ""},
		{"duplicate keys", need, `{"path":"a","path":"b"}`, "", "", "path"},
		{"wrong case", need, `{"Path":"a"}`, "", "", "path"},
		{"misspelt", need, `{"pth":"a"}`, "", "", "path"},
		{"an integer with a fraction of zero", options, `{"maxBytes":5.0}`, `{"maxBytes":5}`, "", ""},
		{"an integer with an exponent", options, `{"maxBytes": 1e3}`, `{"maxBytes":1000}`, "", ""},
		{"a fraction", options, `{"maxBytes":1.5}`, "", "", "expected an integer"},
		{"all of it in a string", options, `"{\"note\":\"x\"}"`, `{"note":"x"}`, "decoded", ""},
		{"twice encoded, inside and out", search, `"{\"queries\":\"[]\"}"`, `{"queries":[]}`, "decoded, decoded queries", ""},
		{"an array in a string at the root", need, `"[1,2]"`, "", "", "expected an object"},
		{"a string in a string is not decoded", options, `{"maxBytes":"\"7\""}`, "", "", "maxBytes"},
		{"no decoding where something else is wrong", search, `{"queries":"[1]"}`, "", "", "expected an array"},
		{"a union that wants no string", unionOf(`{"type":"array"}`, `{"type":"null"}`), `{"value":"[1]"}`, `{"value":[1]}`, "decoded value", ""},
		{"the same, in the other order", unionOf(`{"type":"null"}`, `{"type":"array"}`), `{"value":"[1]"}`, `{"value":[1]}`, "decoded value", ""},
		{"a string that fits no arm stays", unionOf(`{"type":"string","minLength":9}`, `{"type":"array"}`), `{"value":"[1]"}`, "", "", "value"},
		{"the same, in the other order", unionOf(`{"type":"array"}`, `{"type":"string","minLength":9}`), `{"value":"[1]"}`, "", "", "value"},
		{"true or null is not decoded", unionOf(`{"type":"boolean"}`, `{"type":"null"}`), `{"value":"true"}`, "", "", "value"},
		{"the arm that is meant decides", unionOf(`{"properties":{"kind":{"const":"a"},"p":{"type":"array"}}}`, `{"properties":{"kind":{"const":"b"},"p":{"type":"string"}}}`), `{"value":{"kind":"a","p":"[1]"}}`, `{"value":{"kind":"a","p":[1]}}`, "decoded value.p", ""},
		{"the other arm is not touched", unionOf(`{"properties":{"kind":{"const":"a"},"p":{"type":"array"}}}`, `{"properties":{"kind":{"const":"b"},"p":{"type":"string"}}}`), `{"value":{"kind":"b","p":"[1]"}}`, `{"value":{"kind":"b","p":"[1]"}}`, "", ""},
		{"null for a map that may be absent", strictOpenAI, `{"url":"https://a.example","headers":null}`, `{"url":"https://a.example"}`, "null headers", ""},
		{"null for a required field", need, `{"path":null}`, "", "", "path: expected a string, got null"},
		{"null elements stay", search, `{"queries":[null]}`, "", "", "queries[0]"},
		{"a fitting document keeps its bytes", options, " {\"note\" : \"\\u0041 <&>\"}\n", `{"note" : "\u0041 <&>"}`, "", ""},
		{"deep", need, strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, repairs, err := mustParse(t, tt.schema).PrepareArguments(tt.in)
			if tt.want == "" {
				var v *schema.ValidationError
				var syn *schema.SyntaxError
				if !errors.As(err, &v) && !errors.As(err, &syn) {
					t.Fatalf("error %v, want one for a model", err)
				}
				if !strings.Contains(err.Error(), tt.problem) || len(err.Error()) > 4000 {
					t.Errorf("error %q, want it to have %q", err, tt.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			var said []string
			for _, r := range repairs {
				said = append(said, r.String())
			}
			if diff := cmp.Diff(tt.repairs, strings.Join(said, ", ")); diff != "" {
				t.Errorf("repairs (-want +got):\n%s", diff)
			}
		})
	}
}

// The validator that the MCP SDK uses must agree about what fits.
func TestAgainstOracle(t *testing.T) {
	schemas := []string{
		`{"type":"object","properties":{"a":{"type":"integer","minimum":1,"maximum":5},"b":{"type":"array","items":{"enum":["x","y"]},"minItems":1,"uniqueItems":true}},"required":["a"],"additionalProperties":false}`,
		`{"type":"object","properties":{"root":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/n"}}},"additionalProperties":false}}}`,
		`{"type":"object","anyOf":[{"required":["a"]},{"required":["b"]}],"properties":{"a":{"const":1},"b":{"type":["string","null"],"maxLength":2}},"patternProperties":{"^x-":{"type":"number"}}}`,
		`{"type":"object","if":{"properties":{"a":{"const":1}},"required":["a"]},"then":{"required":["b"]},"else":{"not":{"required":["b"]}},"propertyNames":{"maxLength":4}}`,
	}
	documents := []string{
		`{}`, `{"a":1}`, `{"a":0}`, `{"a":1.5}`, `{"a":5,"b":["x"]}`, `{"a":5,"b":["x","x"]}`, `{"a":5,"b":[]}`, `{"a":"1"}`, `{"b":null}`, `{"b":"abc"}`, `{"b":"ab"}`,
		`{"root":{"kids":[{"kids":[]},{}]}}`, `{"root":{"kids":[{"x":1}]}}`, `{"root":1}`, `{"a":1,"b":"x"}`, `{"a":2,"b":"x"}`, `{"x-n":1,"a":1}`, `{"x-n":"1","a":1}`, `{"longer":1}`, `[]`, `1`,
	}
	for _, doc := range schemas {
		ours := mustParse(t, doc)
		var raw oracle.Schema
		if err := json.Unmarshal([]byte(doc), &raw); err != nil {
			t.Fatal(err)
		}
		theirs, err := raw.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents {
			var v any
			if err := json.Unmarshal([]byte(d), &v); err != nil {
				t.Fatal(err)
			}
			got, want := ours.Validate(json.RawMessage(d)), theirs.Validate(v)
			if (got == nil) != (want == nil) {
				t.Errorf("%s against %s: we say %v, the oracle %v", d, doc, got, want)
			}
		}
	}
}

func FuzzPrepareArguments(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"a":"1","b":[{"c":null}]}`, `{"a":"\ud83d"}`, "{\"a\":\"\xff\"}", `{"a":1}{`, `{"a":1e999}`, `{"a":-990e999}`, `{"a":5.0}`} {
		f.Add(seed)
	}
	s, err := schema.Parse(json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"array","items":{"type":"object","properties":{"c":{"type":["string","null"]}}}},"d":{"anyOf":[{"type":"boolean"},{"type":"object"}]}}}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out, _, err := s.PrepareArguments(in)
		if err != nil {
			return
		}
		if !json.Valid(out) {
			t.Fatalf("%q became %q, which is not JSON", in, out)
		}
		again, repairs, err := s.PrepareArguments(string(out))
		if err != nil || len(repairs) > 0 || string(again) != string(out) {
			t.Fatalf("%q became %q, and that %q (%v, %v)", in, out, again, repairs, err)
		}
	})
}
