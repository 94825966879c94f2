package dialect_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"pgregory.net/rapid"

	"github.com/flue-go/flue/internal/schema"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/dialect"
)

// A schema that is sent must never refuse what the tool accepts, or the model
// could not make a call that is right. The strict dialect and the OpenAPI one
// are left out: they ask for some values in another form.
func TestAcceptsWhatTheToolAccepts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := encode(schemas(t, 3, "root"))
		source := compile(t, raw)
		values := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) any { return objects(t, 2) }), 1, 20).Draw(t, "values")
		for _, name := range []string{"anthropic", "openai", "gemini json", "bedrock"} {
			sent := dialects[name].Convert(raw)
			target := compile(t, sent.Schema)
			if slices.ContainsFunc(sent.Losses, func(l model.Loss) bool { return strings.HasPrefix(l.Text, "alternatives cannot be said at the root") }) {
				continue // a property is offered in the form of the alternatives that name it
			}
			for _, v := range values {
				if source.Validate(v) != nil {
					continue
				}
				if err := target.Validate(v); err != nil {
					t.Fatalf("%s: the tool accepts %s by %s, and the model is sent %s (losses %v): %v", name, encode(v), raw, sent.Schema, sent.Losses, err)
				}
			}
		}
	})
}

// compile compiles a schema with a library that shares nothing with this one.
func compile(t *rapid.T, raw []byte) *jsonschema.Resolved {
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return resolved
}

func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSpace(b.Bytes())
}

type fields = map[string]any

// schemas draws a schema of any shape, with references to two definitions and,
// where it stands inside a value, to the whole. One that refers to itself without
// a value in between says nothing, and nothing checks by it.
func schemas(t *rapid.T, depth int, place string) any {
	shape := rapid.SampledFrom([]string{"object", "array", "string", "number", "enum", "ref", "anyOf", "oneOf", "allOf", "bool", "types"}).Draw(t, "shape")
	switch {
	case place == "root":
		shape = rapid.SampledFrom([]string{"object", "object", "ref", "anyOf", "allOf"}).Draw(t, "root")
	case place == "definition":
		shape = "object"
	case depth == 0 && shape != "enum" && shape != "ref" && shape != "bool":
		shape = "string"
	}
	s := fields{}
	inside := func() any { return schemas(t, max(depth-1, 0), "inside") }
	beside := func() any { return schemas(t, max(depth-1, 0), "beside") }
	switch shape {
	case "object":
		if rapid.Bool().Draw(t, "typed") {
			s["type"] = "object"
		}
		s["properties"] = fields{"a": inside(), "b": inside()}
		s["required"] = rapid.SampledFrom([][]string{{}, {"a"}, {"a", "b"}, {"c"}}).Draw(t, "required")
		if rapid.Bool().Draw(t, "extra") {
			s["additionalProperties"] = inside()
		}
	case "array":
		s["type"] = "array"
		s["items"] = inside()
		if rapid.Bool().Draw(t, "tuple") {
			s["prefixItems"] = []any{inside()}
		}
	case "string":
		s["type"] = "string"
		s["minLength"] = rapid.IntRange(0, 2).Draw(t, "length")
	case "number":
		s["type"] = rapid.SampledFrom([]string{"number", "integer"}).Draw(t, "type")
		s["exclusiveMinimum"] = rapid.IntRange(0, 2).Draw(t, "limit")
	case "enum":
		s["enum"] = []any{"x", 1, nil}
	case "bool":
		return rapid.Bool().Draw(t, "bool")
	case "types":
		s["type"] = []string{"string", "null", "object"}
	case "ref":
		refs := []string{"#/$defs/x", "#/$defs/y"}
		if place == "inside" {
			refs = append(refs, "#")
		}
		s["$ref"] = rapid.SampledFrom(refs).Draw(t, "ref")
		s["description"] = "Refers."
	default:
		s[shape] = []any{beside(), beside()}
		if rapid.Bool().Draw(t, "base") {
			s["properties"] = fields{"a": inside()}
		}
	}
	if place == "root" {
		s["$defs"] = fields{"x": schemas(t, depth-1, "definition"), "y": fields{"type": "object", "properties": fields{"a": fields{"$ref": "#/$defs/y"}, "b": inside()}}}
	}
	return s
}

// values draws a JSON value of the little that the schemas speak of.
func values(t *rapid.T, depth int) any {
	switch n := rapid.IntRange(0, 8).Draw(t, "value"); {
	case n < 3 && depth > 0:
		return objects(t, depth)
	case n == 3 && depth > 0:
		return []any{values(t, depth-1), values(t, depth-1)}
	case n == 4:
		return []any{}
	case n == 5:
		return 1
	case n == 6:
		return "x"
	case n == 7:
		return nil
	}
	return "long"
}

func objects(t *rapid.T, depth int) any {
	o := fields{}
	for _, name := range []string{"a", "b", "c"} {
		if rapid.Bool().Draw(t, name) {
			o[name] = values(t, depth-1)
		}
	}
	return o
}

// Every dialect sends an object, within bounds, whatever it is given.
func FuzzConvert(f *testing.F) {
	for _, s := range []string{
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"allOf":[{"$ref":"#/$defs/x"}]}}}`,
		`{"anyOf":[{"$ref":"#"},{"type":"object"}]}`, `{"oneOf":[{"anyOf":[{"properties":{"a":{"const":1}}}]}]}`,
		`{"$ref":"#/properties/a","properties":{"a":{"type":["array","null"],"items":[{"enum":[1,"a",null]}]}}}`,
		`{"type":"object","required":["a","a"],"properties":{"a":{"exclusiveMaximum":3,"maximum":null}},"patternProperties":{"^x":true}}`, ``, `[]`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		for name, d := range dialects {
			got := d.Convert(json.RawMessage(raw))
			check(t, name, got)
			if again := d.Convert(json.RawMessage(raw)); !bytes.Equal(again.Schema, got.Schema) {
				t.Errorf("%s: %q becomes %s, and then %s", name, raw, got.Schema, again.Schema)
			}
		}
	})
}

func check(t *testing.T, name string, r dialect.Result) {
	t.Helper()
	var root struct {
		Type       string           `json:"type"`
		Properties *json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(r.Schema, &root); err != nil || !strings.EqualFold(root.Type, "object") || root.Properties == nil {
		t.Errorf("%s: %.300s is no schema of an object: %v", name, r.Schema, err)
	}
	if len(r.Schema) > 512<<10 || len(r.Losses) > 21 {
		t.Errorf("%s: %d bytes, %d losses", name, len(r.Schema), len(r.Losses))
	}
}

// References that are written out multiply; what comes of them is bounded.
func TestBounds(t *testing.T) {
	chain := func(kind string) string {
		var defs strings.Builder
		for i := range 40 {
			arm := fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)
			body := map[string]string{
				"properties": `{"type":"object","properties":{"a":` + arm + `,"b":` + arm + `}}`,
				"allOf":      `{"allOf":[` + arm + `,` + arm + `]}`,
				"anyOf":      `{"anyOf":[` + arm + `,` + arm + `]}`,
			}[kind]
			fmt.Fprintf(&defs, `"d%d":%s,`, i, body)
		}
		return `{"type":"object","properties":{"first":{"$ref":"#/$defs/d0"}},"$defs":{` + defs.String() + `"d40":{"type":"object","properties":{"x":{"type":"string"}}}}}`
	}
	deep := strings.Repeat(`{"type":"object","properties":{"a":`, 80) + `{"type":"string"}` + strings.Repeat(`}}`, 80)
	for name, raw := range map[string]string{
		"properties": chain("properties"), "allOf": chain("allOf"), "anyOf": chain("anyOf"), "root": strings.Replace(chain("anyOf"), `"properties":{"first":{"$ref":"#/$defs/d0"}}`, `"$ref":"#/$defs/d0"`, 1),
		"deep": deep, "too deep": strings.Repeat(`{"not":`, 5000) + `true` + strings.Repeat(`}`, 5000),
		"large": `{"type":"object","description":"` + strings.Repeat("x", 600<<10) + `"}`,
		"wide":  `{"type":"object","properties":{"z":{"enum":[` + strings.Repeat("1,", 5000) + `1]}}}`,
	} {
		for dialectName, d := range dialects {
			r := d.Convert(json.RawMessage(raw))
			check(t, name+": "+dialectName, r)
			if strings.Contains(name, "large") && len(r.Losses) == 0 {
				t.Errorf("%s: %s: nothing is reported", name, dialectName)
			}
		}
	}
}

// A schema that a dialect understands is sent as it is.
func TestLeavesAloneWhatIsUnderstood(t *testing.T) {
	type node struct {
		Name string           `json:"name" jsonschema:"its name" minLength:"1" pattern:"^[a-z]+$"`
		Kids []*node          `json:"kids,omitempty"`
		Tags map[string]int   `json:"tags,omitempty"`
		When *json.RawMessage `json:"when,omitempty"`
	}
	s, err := schema.For[struct {
		Root  node     `json:"root"`
		Order []string `json:"order" enum:"asc,desc"`
		Limit int      `json:"limit,omitempty" min:"1" default:"10"`
	}]()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"anthropic", "openai"} {
		if r := dialects[name].Convert(s.JSON()); string(r.Schema) != string(s.JSON()) || r.Losses != nil {
			t.Errorf("%s: sent\n%s\nfor\n%s\nlosses %v", name, r.Schema, s.JSON(), r.Losses)
		}
	}
}

func BenchmarkConvert(b *testing.B) {
	raw := json.RawMessage(`{"type":"object","properties":{"root":{"$ref":"#/$defs/n"},"q":{"type":["string","null"],"description":"What to look for."},"limit":{"type":"integer","minimum":1,"maximum":100}},"required":["root"],"additionalProperties":false,"$defs":{"n":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/n"}}}}}}`)
	for _, name := range []string{"anthropic", "gemini"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				dialects[name].Convert(raw)
			}
		})
	}
}
