package schema

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The official test suite of JSON Schema, which jsonschema-go carries with it,
// decides whether what we call valid is valid. It looks at the verdict alone:
// the corrections would let a null pass that means absent.
func TestConformance(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/jsonschema-go").Output()
	if err != nil {
		t.Fatalf("find the module that has the suite: %v", err)
	}
	suite := filepath.Join(strings.TrimSpace(string(out)), "jsonschema", "testdata")
	for _, draft := range []struct{ dir, uri string }{
		{"draft2020-12", "https://json-schema.org/draft/2020-12/schema"},
		{"draft7", "http://json-schema.org/draft-07/schema#"},
	} {
		files, err := filepath.Glob(filepath.Join(suite, draft.dir, "*.json"))
		if err != nil || len(files) < 30 {
			t.Fatalf("%s: %d files of the suite, %v", draft.dir, len(files), err)
		}
		for _, file := range files {
			t.Run(draft.dir+"/"+strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
				conform(t, file, draft.uri)
			})
		}
	}
}

func conform(t *testing.T, file, draft string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var groups []struct {
		Description string
		Schema      json.RawMessage
		Tests       []struct {
			Description string
			Data        json.RawMessage
			Valid       bool
		}
	}
	if err := json.Unmarshal(data, &groups); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, g := range groups {
		root, err := parseSchema(g.Schema)
		if err != nil {
			t.Fatalf("%s: %v", g.Description, err)
		}
		if root.kind == object && root.get("$schema") == nil {
			root.set("$schema", newText(draft))
		}
		s, err := build(root)
		if err != nil {
			if !refused(err.Error()) {
				t.Errorf("%s: %v", g.Description, err)
			}
			continue
		}
		for _, tt := range g.Tests {
			doc, err := parse(string(tt.Data))
			if err != nil {
				t.Fatalf("%s: %s: %v", g.Description, tt.Description, err)
			}
			ran++
			if got, err := s.verdict(doc); err != nil || got != tt.Valid {
				t.Errorf("%s: %s: valid is %v (%v), want %v", g.Description, tt.Description, got, err, tt.Valid)
			}
		}
	}
	t.Logf("%d of the suite's cases", ran)
}

// refused reports whether an error says that a schema is of the kind that the
// package comment rules out.
func refused(msg string) bool {
	for _, why := range []string{"is not supported; use $ref", "schemas are not fetched", "not a regular expression that can be used", "default: does not fit its own schema"} {
		if strings.Contains(msg, why) {
			return true
		}
	}
	return false
}
