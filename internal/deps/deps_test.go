// Package deps has no code: its test states which package of this module may
// import which.
package deps

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/flue-go/flue"

// allowed says what each package of the module may import of the module. A
// name that ends in /... stands for a package and all below it. Do not relax a
// line to make a build pass: a package that seems to need it is in the wrong
// place. Mains and packages that only hold tests are not listed; they may import
// anything.
const allowed = `
# The durable and the public vocabulary depend on nothing of ours.
journal:
wire:
internal/schema:
internal/sse:
internal/near:

# A pure function of records.
internal/fold: journal
internal/project: journal wire

# The contracts. Anyone can implement them without the engine.
model:
store:

# Drivers import their contract, and never each other.
model/anthropic: model model/internal/... internal/sse
model/google: model model/internal/...
model/openai: model model/internal/... internal/sse
model/script: model model/internal/...
model/internal/answer: model
model/internal/claude: model
model/internal/dialect: model model/internal/history
model/internal/exchange: model internal/sse
model/internal/history: model
model/catalog: internal/near model

# The one place that knows them all.
model/providers: internal/near model model/anthropic model/google model/openai

model/modeltest: model model/modeltest/rules
model/modeltest/rules:
store/memstore: store store/internal/owners
store/sqlite: store store/internal/owners
store/postgres: store
store/storetest: internal/linear store
store/storetest/faultstore: store
store/internal/owners: store
store/internal/modeltest: store

# The engine names no driver and knows nothing of HTTP or of hooks.
internal/engine: internal/fold internal/project journal model store wire
internal/httpapi: wire
internal/shutdown:

# A database for tests.
internal/pgtest:

# The package that users see. memstore is what a runtime without a store gets.
.: internal/engine internal/httpapi internal/near internal/schema journal model store store/memstore wire

# Custom hooks of the examples: what users see, and nothing else.
examples/support/escalation: .
examples/support/workflow: .

# What authors of agents test with. It knows the public packages only.
fluetest: . internal/engine journal model model/script store store/memstore store/storetest/faultstore wire

# Networks that fail, and judges of histories, for tests.
internal/faultnet:
internal/linear: journal store

# Programs put everything together.
cli: . internal/fold internal/near internal/shutdown journal model model/catalog model/providers model/script store store/memstore store/postgres store/sqlite wire
conformance/modelserver:
conformance/tap: conformance/transcript
conformance/transcript:
`

// external says what no package but the named ones may import from elsewhere.
var external = map[string][]string{
	"net/http":                          {"internal/httpapi", "internal/faultnet", "internal/shutdown", "wire", ".", "cli", "model/anthropic", "model/google", "model/openai", "model/providers", "model/modeltest", "model/modeltest/rules", "model/internal/exchange", "model/internal/history", "conformance/modelserver", "conformance/tap", "conformance/transcript"},
	"flag":                              {"cli"},
	"testing":                           {"fluetest", "internal/pgtest", "model/modeltest", "store/storetest", "store/internal/modeltest"},
	"log":                               nil,
	"modernc.org/sqlite":                {"store/sqlite"},
	"github.com/anishathalye/porcupine": {"internal/linear", "store/storetest"},
	"github.com/spf13/cobra":            {"cli"},
	"github.com/jackc/pgx/v5":           {"store/postgres", "internal/pgtest"},
	"github.com/jackc/pgx/v5/pgconn":    {"store/postgres", "internal/pgtest"},
	"github.com/jackc/pgx/v5/pgxpool":   {"store/postgres"},
}

type pkg struct {
	Dir        string
	ImportPath string
	Name       string
	Doc        string
	GoFiles    []string
	Imports    []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=Dir,ImportPath,Name,Doc,GoFiles,Imports", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) > 0 {
			pkgs = append(pkgs, p)
		}
	}
}

// short is an import path as the table writes it.
func short(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

func parse(t *testing.T) map[string][]string {
	t.Helper()
	rules := make(map[string][]string)
	for line := range strings.SplitSeq(allowed, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, imports, ok := strings.Cut(line, ":")
		if !ok || rules[name] != nil {
			t.Fatalf("bad line %q", line)
		}
		rules[name] = append([]string{}, strings.Fields(imports)...)
	}
	return rules
}

func permits(rule []string, name string) bool {
	return slices.ContainsFunc(rule, func(r string) bool {
		tree, ok := strings.CutSuffix(r, "/...")
		return r == name || ok && (name == tree || strings.HasPrefix(name, tree+"/"))
	})
}

func TestImports(t *testing.T) {
	rules := parse(t)
	for _, p := range list(t) {
		name := short(p.ImportPath)
		if p.Name == "main" {
			continue
		}
		rule, listed := rules[name]
		delete(rules, name)
		if !listed && name != "conformance" {
			t.Errorf("package %s is not in the table: say what it may import", name)
			continue
		}
		for _, imported := range p.Imports {
			if imported == module || strings.HasPrefix(imported, module+"/") {
				if !permits(rule, short(imported)) {
					t.Errorf("%s imports %s", name, short(imported))
				}
				continue
			}
			if only, restricted := external[imported]; restricted && !slices.Contains(only, name) {
				t.Errorf("%s imports %s", name, imported)
			}
		}
	}
	for name := range rules {
		t.Errorf("the table has package %s, which does not exist", name)
	}
}

// A library that reads the environment has settings that nobody can see in the
// code that calls it, so only programs read it, and what finds a database for tests.
func TestEnvironment(t *testing.T) {
	readers := []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}
	for _, p := range list(t) {
		name := short(p.ImportPath)
		if p.Name == "main" || name == "cli" || name == "internal/pgtest" {
			continue
		}
		for _, use := range uses(t, p, "os") {
			if slices.Contains(readers, use.name) {
				t.Errorf("%s: package %s reads the environment; take a setting from the caller", use.at, name)
			}
		}
	}
}

// A use is a name of another package, where it is used.
type use struct {
	name string
	at   token.Position
}

// uses returns what the files of p use of an imported package. A file that
// imports it under another name is a fault.
func uses(t *testing.T, p pkg, imported string) []use {
	t.Helper()
	var found []use
	for _, file := range p.GoFiles {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			if name, err := strconv.Unquote(imp.Path.Value); err == nil && name == imported && imp.Name != nil {
				t.Errorf("%s: %s has another name here, which hides its use", fset.Position(imp.Pos()), imported)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == imported {
					found = append(found, use{sel.Sel.Name, fset.Position(n.Pos())})
				}
			}
			return true
		})
	}
	return found
}

func TestPackageComments(t *testing.T) {
	for _, p := range list(t) {
		base := path.Base(p.ImportPath)
		want := []string{"Package " + p.Name + " "}
		if p.Name == "main" { // both forms are usual
			want = []string{"Command " + base + " ", strings.ToUpper(base[:1]) + base[1:] + " "}
		}
		if !slices.ContainsFunc(want, func(w string) bool { return strings.HasPrefix(p.Doc, w) }) {
			t.Errorf("%s: the package comment begins %.40q, want %q", short(p.ImportPath), p.Doc, want)
		}
		if slices.Contains([]string{"util", "utils", "common", "helpers", "types", "misc"}, base) {
			t.Errorf("%s: a package is named for what it does", short(p.ImportPath))
		}
	}
}
