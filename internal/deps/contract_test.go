package deps

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// contractPage has one row for each rule of the contract.
const contractPage = "../../docs/contract.md"

// A rule is a row of the page.
type rule struct {
	id, proof, deviation string
	line                 int
}

// rules reads the rows of the page: tables whose first cell is the id of a rule.
func rules(t *testing.T) []rule {
	t.Helper()
	page, err := os.ReadFile(contractPage)
	if err != nil {
		t.Fatal(err)
	}
	id := regexp.MustCompile(`^[A-E]\.\d+(\.\d+)+$`)
	var out []rule
	for i, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), "|")
		if len(cells) < 6 {
			continue
		}
		for j := range cells {
			cells[j] = strings.TrimSpace(strings.ReplaceAll(cells[j], "\x00", "|"))
		}
		if name := strings.Trim(cells[1], "`"); id.MatchString(name) {
			out = append(out, rule{id: name, proof: cells[3], deviation: cells[4], line: i + 1})
		}
	}
	if len(out) < 400 {
		t.Fatalf("the page has %d rules, which cannot be all", len(out))
	}
	return out
}

// tests returns the names of all test functions of the module: those of the root
// package as they are, others with their package in front, as in "engine.TestX".
func tests(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	root := "../.."
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "node_modules":
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv != nil {
				continue
			}
			if dir == "." {
				names[fn.Name.Name] = true
			} else {
				names[filepath.Base(dir)+"."+fn.Name.Name] = true
				names[filepath.ToSlash(dir)+"."+fn.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Every rule of the contract is proved by tests that exist, or says why there is
// nothing to prove.
func TestContractIsProved(t *testing.T) {
	known := tests(t)
	name := regexp.MustCompile(`(?:[\w/]+\.)?(?:Test|Fuzz|Example|Benchmark)\w*`)
	seen := make(map[string]bool)
	for _, r := range rules(t) {
		if seen[r.id] {
			t.Errorf("line %d: rule %s stands there twice", r.line, r.id)
		}
		seen[r.id] = true
		if strings.Contains(r.proof+r.deviation, "TODO") || strings.Contains(r.deviation, "Open:") {
			t.Errorf("line %d: rule %s is not settled: %s | %s", r.line, r.id, r.proof, r.deviation)
		}
		named := name.FindAllString(r.proof, -1)
		for _, test := range named {
			if !known[test] {
				t.Errorf("line %d: rule %s names the test %s, which does not exist", r.line, r.id, test)
			}
		}
		if len(named) == 0 && r.deviation == "" {
			t.Errorf("line %d: rule %s has neither a test nor a reason for none", r.line, r.id)
		}
	}
}
