package dialect_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/flue-go/flue/model/internal/dialect"
)

var dialects = map[string]dialect.Dialect{
	"anthropic": dialect.Anthropic(), "openai": dialect.OpenAI(), "strict": dialect.OpenAIStrict(),
	"gemini": dialect.Gemini(), "gemini json": dialect.GeminiJSON(), "bedrock": dialect.Bedrock(),
}

// Schemas that have broken whole requests elsewhere, and what each dialect is
// sent. A dialect that is not listed is sent the schema as it is.
func TestConvert(t *testing.T) {
	type forms = map[string]string
	tests := []struct {
		name   string
		schema string
		want   forms
		losses map[string][]string // paths
		unfit  bool                // for the strict dialect
	}{
		{
			name: "nothing", schema: ``,
			want: forms{"": `{"type":"object","properties":{}}`, "strict": `{"type":"object","properties":{}}`},
		},
		{
			name: "anything", schema: `{}`,
			want: forms{"": `{"type":"object","properties":{}}`, "strict": `{"type":"object","properties":{},"required":[],"additionalProperties":false}`, "gemini": `{"type":"OBJECT","properties":{}}`},
		},
		{
			name: "no object", schema: `{"type":"string"}`,
			want:   forms{"": `{"type":"object","properties":{}}`, "strict": `{"type":"object","properties":{},"required":[],"additionalProperties":false}`, "gemini": `{"type":"OBJECT","properties":{}}`},
			losses: map[string][]string{"": {"/type"}}, unfit: true,
		},
		{
			name: "no JSON", schema: `{"type":`,
			want:   forms{"": `{"type":"object","properties":{}}`, "strict": `{"type":"object","properties":{}}`},
			losses: map[string][]string{"": {""}}, unfit: true,
		},
		{
			name:   "object or null at the root",
			schema: `{"$schema":"http://json-schema.org/draft-07/schema#","type":["object","null"],"properties":{"a":{"type":"string"}}}`,
			want: forms{
				"":       `{"type":"object","properties":{"a":{"type":"string"}}}`,
				"strict": `{"type":"object","properties":{"a":{"type":["string","null"]}},"required":["a"],"additionalProperties":false}`,
				"gemini": `{"type":"OBJECT","properties":{"a":{"type":"STRING"}}}`,
			},
		},
		{
			name:   "alternatives at the root",
			schema: `{"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["kind","x"],"additionalProperties":false},{"type":"object","properties":{"kind":{"const":"b"},"y":{"type":"boolean"}},"required":["kind"],"additionalProperties":false}]}`,
			want: forms{
				"anthropic": `{"type":"object","properties":{"kind":{"enum":["a","b"]},"x":{"type":"integer"},"y":{"type":"boolean"}},"required":["kind"],"additionalProperties":false,"description":"…"}`,
				"bedrock":   `{"type":"object","properties":{"kind":{"enum":["a","b"]},"x":{"type":"integer"},"y":{"type":"boolean"}},"required":["kind"]}`,
				"gemini":    `{"type":"OBJECT","properties":{"kind":{"type":"STRING","enum":["a","b"]},"x":{"type":"INTEGER"},"y":{"type":"BOOLEAN"}},"required":["kind"],"description":"…"}`,
			},
			losses: map[string][]string{"anthropic": {"/oneOf"}, "openai": {"/oneOf"}, "gemini": {"/oneOf"}, "gemini json": {"/oneOf"}, "strict": {"/oneOf"}, "bedrock": {"/oneOf"}},
		},
		{
			name:   "which properties are needed",
			schema: `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"anyOf":[{"required":["a"]},{"required":["b"]}]}`,
			want: forms{
				"anthropic": `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"description":"Must also fit the JSON Schema {\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}"}`,
			},
			losses: map[string][]string{"anthropic": {"/anyOf"}},
		},
		{
			name:   "reference at the root",
			schema: `{"$ref":"#/definitions/args","definitions":{"args":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}}}`,
			want: forms{
				"":       `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`,
				"strict": `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`,
				"gemini": `{"type":"OBJECT","properties":{"a":{"type":"STRING"}},"required":["a"]}`,
			},
		},
		{
			name:   "contains itself",
			schema: `{"type":"object","properties":{"root":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/n"}}}}}}`,
			want: forms{
				"anthropic":   `{"type":"object","properties":{"root":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/n"}}}}}}`,
				"gemini json": `{"type":"object","properties":{"root":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/n"}}}}}}`,
				"strict":      `{"type":"object","properties":{"root":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["root"],"additionalProperties":false,"$defs":{"n":{"type":"object","properties":{"kids":{"type":["array","null"],"items":{"$ref":"#/$defs/n"}}},"required":["kids"],"additionalProperties":false}}}`,
				"bedrock":     `{"type":"object","properties":{"root":` + strings.Repeat(`{"type":"object","properties":{"kids":{"type":"array","items":`, 4) + `{"type":"object"}` + strings.Repeat(`}}}`, 4) + `}}`,
			},
			losses: map[string][]string{"bedrock": {"/$defs/n/properties/kids/items"}, "gemini": {"/$defs/n/properties/kids/items", "/$defs/n/properties/kids/items"}},
		},
		{
			name:   "contains itself and is required",
			schema: `{"type":"object","properties":{"tree":{"$ref":"#"}},"required":["tree"]}`,
			want: forms{
				"anthropic":   `{"type":"object","properties":{"tree":{"$ref":"#/$defs/root"}},"required":["tree"],"$defs":{"root":{"type":"object","properties":{"tree":{"$ref":"#/$defs/root"}},"required":["tree"]}}}`,
				"gemini json": `{"type":"object","properties":{"tree":{"$ref":"#/$defs/root"}},"$defs":{"root":{"type":"object","properties":{"tree":{"$ref":"#/$defs/root"}}}}}`,
			},
			losses: map[string][]string{"gemini json": {"/properties/tree"}},
		},
		{
			name:   "refers to nothing",
			schema: `{"type":"object","properties":{"a":{"$ref":"#/$defs/gone","description":"A."},"b":{"$ref":"https://example.com/x.json"}},"required":["a","b"]}`,
			want:   forms{"anthropic": `{"type":"object","properties":{"a":{"description":"A."},"b":{}},"required":["a","b"]}`},
			losses: map[string][]string{"anthropic": {"/properties/a/$ref", "/properties/b/$ref"}},
			unfit:  true,
		},
		{
			name:   "null among the types",
			schema: `{"type":"object","properties":{"list":{"type":"array","items":{"type":["string","null"]}},"n":{"anyOf":[{"type":"number"},{"type":"null"}],"description":"N."},"none":{"type":"null"}},"required":["list","n","none"]}`,
			want: forms{
				"":       `{"type":"object","properties":{"list":{"type":"array","items":{"type":["string","null"]}},"n":{"anyOf":[{"type":"number"},{"type":"null"}],"description":"N."},"none":{"type":"null"}},"required":["list","n","none"]}`,
				"strict": `{"type":"object","properties":{"list":{"type":"array","items":{"type":["string","null"]}},"n":{"anyOf":[{"type":"number"},{"type":"null"}],"description":"N."},"none":{"type":"null"}},"required":["list","n","none"],"additionalProperties":false}`,
				"gemini": `{"type":"OBJECT","properties":{"list":{"type":"ARRAY","items":{"type":"STRING","nullable":true}},"n":{"type":"NUMBER","description":"N.","nullable":true},"none":{"type":"STRING","nullable":true}},"required":["list","n","none"]}`,
			},
		},
		{
			name:   "several types",
			schema: `{"type":"object","properties":{"a":{"anyOf":[{"type":"integer"},{"type":"string"}],"description":"A."},"b":{"type":["string","integer"],"minLength":1,"minimum":3}},"required":["a","b"]}`,
			want: forms{
				"anthropic": `{"type":"object","properties":{"a":{"anyOf":[{"type":"integer"},{"type":"string"}],"description":"A."},"b":{"type":["string","integer"],"minLength":1,"minimum":3}},"required":["a","b"]}`,
				"gemini":    `{"type":"OBJECT","properties":{"a":{"anyOf":[{"type":"INTEGER","description":"A."},{"type":"STRING","description":"A."}]},"b":{"anyOf":[{"type":"STRING","minLength":1},{"type":"INTEGER","minimum":3}]}},"required":["a","b"]}`,
			},
			losses: map[string][]string{"gemini json": {"/properties/b/minLength"}, "strict": {"/properties/b/minLength"}},
		},
		{
			name:   "constants",
			schema: `{"type":"object","properties":{"n":{"type":"integer","enum":[1,2,3]},"c":{"const":"x"},"m":{"enum":["a",null]},"b":{"enum":[true]}},"required":["n","c","m","b"]}`,
			want: forms{
				"anthropic":   `{"type":"object","properties":{"n":{"type":"integer","enum":[1,2,3]},"c":{"const":"x"},"m":{"enum":["a",null]},"b":{"enum":[true]}},"required":["n","c","m","b"]}`,
				"strict":      `{"type":"object","properties":{"n":{"type":"integer","enum":[1,2,3]},"c":{"type":"string","const":"x"},"m":{"type":["string","null"],"enum":["a",null]},"b":{"type":"boolean","enum":[true]}},"required":["n","c","m","b"],"additionalProperties":false}`,
				"gemini json": `{"type":"object","properties":{"n":{"type":"integer","enum":[1,2,3]},"c":{"enum":["x"]},"m":{"enum":["a",null]},"b":{"enum":[true]}},"required":["n","c","m","b"]}`,
				"gemini":      `{"type":"OBJECT","properties":{"n":{"type":"STRING","enum":["1","2","3"]},"c":{"type":"STRING","enum":["x"]},"m":{"type":"STRING","enum":["a"],"nullable":true},"b":{"type":"BOOLEAN","description":"Must also fit the JSON Schema {\"enum\":[true]}"}},"required":["n","c","m","b"]}`,
			},
			losses: map[string][]string{"gemini": {"/properties/b/enum"}},
		},
		{
			name:   "optional keys and a map",
			schema: `{"type":"object","properties":{"url":{"type":"string","format":"uri"},"headers":{"type":"object","additionalProperties":{"type":"string"}}},"required":["url"]}`,
			want: forms{
				"openai":      `{"type":"object","properties":{"url":{"type":"string","format":"uri"},"headers":{"type":"object","additionalProperties":{"type":"string"}}},"required":["url"]}`,
				"gemini json": `{"type":"object","properties":{"url":{"type":"string","description":"Must also fit the JSON Schema {\"format\":\"uri\"}"},"headers":{"type":"object","additionalProperties":{"type":"string"}}},"required":["url"]}`,
				"gemini":      `{"type":"OBJECT","properties":{"url":{"type":"STRING","description":"Must also fit the JSON Schema {\"format\":\"uri\"}"},"headers":{"type":"STRING","description":"Must also fit the JSON Schema {\"additionalProperties\":{\"type\":\"string\"}}\n\nA JSON object, written as text."}},"required":["url"]}`,
			},
			losses: map[string][]string{
				"gemini json": {"/properties/url/format"},
				"gemini":      {"/properties/url/format", "/properties/headers/additionalProperties", "/properties/headers"},
				"strict":      {"/properties/url/format", "/properties/headers/additionalProperties"},
			},
			unfit: true,
		},
		{
			name:   "an optional key",
			schema: `{"type":"object","properties":{"a":{"type":"string","description":"A."},"b":{"enum":["x","y"]},"c":{"type":"object","properties":{"d":{"type":"integer","default":3}}}},"required":["a"]}`,
			want: forms{
				"strict": `{"type":"object","properties":{"a":{"type":"string","description":"A."},"b":{"type":["string","null"],"enum":["x","y",null]},"c":{"type":["object","null"],"properties":{"d":{"type":["integer","null"],"description":"Default: 3"}},"required":["d"],"additionalProperties":false}},"required":["a","b","c"],"additionalProperties":false}`,
			},
		},
		{
			name:   "an array without items",
			schema: `{"type":"object","properties":{"a":{"type":"array"}},"required":["a"]}`,
			want: forms{
				"anthropic":   `{"type":"object","properties":{"a":{"type":"array"}},"required":["a"]}`,
				"openai":      `{"type":"object","properties":{"a":{"type":"array","items":{}}},"required":["a"]}`,
				"gemini json": `{"type":"object","properties":{"a":{"type":"array","items":{}}},"required":["a"]}`,
				"gemini":      `{"type":"OBJECT","properties":{"a":{"type":"ARRAY","items":{"anyOf":[{"type":"STRING"},{"type":"NUMBER"},{"type":"BOOLEAN"}]}}},"required":["a"]}`,
			},
			unfit: true,
		},
		{
			name:   "older drafts",
			schema: `{"type":"object","properties":{"t":{"type":"array","items":[{"type":"string"},{"type":"integer"}],"additionalItems":false},"n":{"type":"number","minimum":0,"exclusiveMinimum":true}},"dependencies":{"t":["n"]},"required":["t"],"id":"x"}`,
			want: forms{
				"anthropic":   `{"type":"object","properties":{"t":{"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"items":false},"n":{"type":"number","exclusiveMinimum":0}},"dependentRequired":{"t":["n"]},"required":["t"]}`,
				"gemini json": `{"type":"object","properties":{"t":{"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"maxItems":2,"items":{}},"n":{"type":"number","minimum":0,"description":"Must also fit the JSON Schema {\"exclusiveMinimum\":0}"}},"required":["t"],"description":"Must also fit the JSON Schema {\"dependentRequired\":{\"t\":[\"n\"]}}"}`,
			},
			losses: map[string][]string{"gemini json": {"/dependentRequired", "/properties/n/exclusiveMinimum"}},
			unfit:  true,
		},
		{
			name:   "what must fit together",
			schema: `{"type":"object","properties":{"a":{"allOf":[{"$ref":"#/$defs/x"}],"description":"A."},"b":{"allOf":[{"$ref":"#/$defs/x"},{"properties":{"q":{"type":"string"}},"required":["q"]}]}},"required":["a","b"],"$defs":{"x":{"type":"object","properties":{"p":{"type":"integer"}},"required":["p"]}}}`,
			want: forms{
				"gemini": `{"type":"OBJECT","properties":{"a":{"description":"A.","type":"OBJECT","properties":{"p":{"type":"INTEGER"}},"required":["p"]},"b":{"type":"OBJECT","properties":{"p":{"type":"INTEGER"},"q":{"type":"STRING"}},"required":["p","q"]}},"required":["a","b"]}`,
				"strict": `{"type":"object","properties":{"a":{"description":"A.","$ref":"#/$defs/x"},"b":{"type":"object","properties":{"p":{"type":"integer"},"q":{"type":"string"}},"required":["p","q"],"additionalProperties":false}},"required":["a","b"],"additionalProperties":false,"$defs":{"x":{"type":"object","properties":{"p":{"type":"integer"}},"required":["p"],"additionalProperties":false}}}`,
			},
		},
		{
			name:   "a property that cannot be named",
			schema: `{"type":"object","properties":{"$filter":{"type":"string"},"top":{"type":"integer"}},"required":["$filter"],"additionalProperties":false}`,
			want: forms{
				"anthropic": `{"type":"object","properties":{"top":{"type":"integer"}},"description":"Must also fit the JSON Schema {\"properties\":{\"$filter\":{\"type\":\"string\"}}}"}`,
				"openai":    `{"type":"object","properties":{"$filter":{"type":"string"},"top":{"type":"integer"}},"required":["$filter"],"additionalProperties":false}`,
			},
			losses: map[string][]string{"anthropic": {"/properties/$filter"}},
		},
		{
			name:   "keywords with values that they cannot have",
			schema: `{"type":"object","properties":{"a":{"type":"any","required":true,"enum":"x","minimum":null,"items":3}},"required":"a"}`,
			want:   forms{"anthropic": `{"type":"object","properties":{"a":{}}}`},
			losses: map[string][]string{"anthropic": {"/required", "/properties/a/type", "/properties/a/required", "/properties/a/enum", "/properties/a/minimum", "/properties/a/items"}},
			unfit:  true,
		},
		{
			name:   "properties that are never or always there",
			schema: `{"type":"object","properties":{"a":false,"b":true},"required":["b"]}`,
			want: forms{
				"anthropic": `{"type":"object","properties":{"a":{"not":{}},"b":{}},"required":["b"]}`,
				"gemini":    `{"type":"OBJECT","properties":{"b":{"anyOf":[{"type":"STRING"},{"type":"NUMBER"},{"type":"BOOLEAN"}]}},"required":["b"]}`,
			},
			losses: map[string][]string{"gemini": {"/properties/b"}},
			unfit:  true,
		},
	}
	for _, tt := range tests {
		for name, d := range dialects {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				got := d.Convert(json.RawMessage(tt.schema))
				want, listed := tt.want[name]
				if !listed {
					want, listed = tt.want[""]
				}
				if shown := string(got.Schema); listed && !like(shown, want) {
					t.Errorf("sent\n%s\nwant\n%s", shown, want)
				}
				var paths []string
				for _, l := range got.Losses {
					paths = append(paths, l.Path)
					if l.Text == "" || l.Tool != "" {
						t.Errorf("loss %+v", l)
					}
				}
				lost, listed := tt.losses[name]
				if !listed {
					lost, listed = tt.losses[""]
				}
				if (listed || tt.losses == nil) && !slices.Equal(paths, lost) {
					t.Errorf("losses %+v, want paths %q", got.Losses, lost)
				}
				if name == "strict" && got.Unfit != tt.unfit {
					t.Errorf("unfit = %v, want %v", got.Unfit, tt.unfit)
				}
			})
		}
	}
}

// like compares, where want may have … for any text of a string.
func like(got, want string) bool {
	before, after, ok := strings.Cut(want, "…")
	return got == want || ok && strings.HasPrefix(got, before) && strings.HasSuffix(got, after)
}
