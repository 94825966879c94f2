package dialect_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/flue-go/flue/internal/schema"
)

// What the official test suite of JSON Schema calls valid must be accepted by the
// schema that is sent. The suite is the one that jsonschema-go carries with it.
func TestSuite(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/jsonschema-go").Output()
	if err != nil {
		t.Fatalf("find the module that has the suite: %v", err)
	}
	suite := filepath.Join(strings.TrimSpace(string(out)), "jsonschema", "testdata")
	ran := 0
	for _, draft := range []string{"draft2020-12", "draft7"} {
		files, err := filepath.Glob(filepath.Join(suite, draft, "*.json"))
		if err != nil || len(files) < 30 {
			t.Fatalf("%s: %d files of the suite, %v", draft, len(files), err)
		}
		for _, file := range files {
			t.Run(draft+"/"+strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) { ran += conform(t, file) })
		}
	}
	if ran < 1500 {
		t.Errorf("%d values were tried, want more", ran)
	}
}

// conform tries the values of a file and returns how many.
func conform(t *testing.T, file string) (ran int) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var groups []struct {
		Description string
		Schema      json.RawMessage
		Tests       []struct {
			Description string
			Data        any
			Valid       bool
		}
	}
	if err := json.Unmarshal(data, &groups); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		if strings.Contains(string(g.Schema), "http") && strings.Contains(string(g.Schema), `"$ref"`) || strings.Contains(string(g.Schema), `"$dynamic`) || strings.Contains(string(g.Schema), `"$id"`) {
			continue // refers to what is elsewhere, which a tool cannot
		}
		switch g.Description {
		case "naive replacement of $ref with its destination is not correct": // which is done below
			continue
		case "ref overrides any sibling keywords": // as in draft 7, and here as in the drafts after it
			continue
		}
		// The schema is that of a property, and what is there for its references
		// is there for all.
		whole := `{"type":"object","properties":{"x":` + strings.ReplaceAll(string(g.Schema), `"#`, `"#/properties/x`) + `}}`
		for _, name := range []string{"anthropic", "openai", "gemini json", "bedrock"} {
			sent := dialects[name].Convert(json.RawMessage(whole))
			var s jsonschema.Schema
			if err := json.Unmarshal(sent.Schema, &s); err != nil {
				t.Errorf("%s: %s: %s is no schema: %v", name, g.Description, sent.Schema, err)
				continue
			}
			resolved, err := s.Resolve(nil)
			if err != nil {
				continue // a pattern that Go does not have
			}
			for _, test := range g.Tests {
				if !test.Valid {
					continue
				}
				ran++
				if err := resolved.Validate(map[string]any{"x": test.Data}); err != nil {
					t.Errorf("%s: %s: %s: %v is valid, and refused by %s: %v", name, g.Description, test.Description, test.Data, sent.Schema, err)
				}
			}
		}
	}
	return ran
}

// What dialects ask for in another form is understood when it comes so.
func TestOtherFormsAreUnderstood(t *testing.T) {
	source := `{"type":"object","properties":{
		"q":{"type":"string"},
		"limit":{"type":"integer","enum":[10,20]},
		"headers":{"type":"object","additionalProperties":{"type":"string"}},
		"page":{"type":"object","properties":{"size":{"type":"integer"},"after":{"type":"string"}},"required":["size"]},
		"sort":{"enum":["asc","desc"]}},"required":["q"]}`
	parsed, err := schema.Parse(json.RawMessage(source))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ sent, arguments, want string }{
		"strict: null for what is absent": {
			string(dialects["strict"].Convert(json.RawMessage(strings.Replace(source, `"headers":{"type":"object","additionalProperties":{"type":"string"}},`, ``, 1))).Schema),
			`{"q":"a","limit":null,"page":{"size":3,"after":null},"sort":null}`, `{"q":"a","page":{"size":3}}`,
		},
		"Gemini: text for a number and an object": {
			"", `{"q":"a","limit":"20","headers":"{\"x\":\"y\"}"}`, `{"q":"a","limit":20,"headers":{"x":"y"}}`,
		},
	} {
		if tt.sent != "" {
			var s jsonschema.Schema
			if err := json.Unmarshal([]byte(tt.sent), &s); err != nil {
				t.Fatal(err)
			}
			resolved, err := s.Resolve(nil)
			if err != nil {
				t.Fatal(err)
			}
			var v any
			_ = json.Unmarshal([]byte(tt.arguments), &v)
			if err := resolved.Validate(v); err != nil {
				t.Errorf("%s: %s does not fit %s: %v", name, tt.arguments, tt.sent, err)
			}
		}
		var into json.RawMessage
		got, _, err := parsed.DecodeArguments(tt.arguments, &into)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s is understood as %s, %v; want %s", name, tt.arguments, got, err, tt.want)
		}
	}
}
