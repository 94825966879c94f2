package flue_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// compiledDocs are the pages whose Go code compiles.
var compiledDocs = []string{
	"README.md", "docs/getting-started.md", "docs/tools.md", "docs/hooks.md", "docs/approvals.md", "docs/errors.md", "docs/operations.md",
	"docs/events.md", "docs/models.md", "docs/budgets.md",
}

// A snippet is a block of Go code on a page. One that begins with a package clause
// is a complete file. Others are declarations, or statements that may use ctx, r,
// rt and in as an application has them; what they import goes without saying.
type snippet struct {
	page string
	line int
	code string
}

func (s snippet) String() string { return fmt.Sprintf("%s:%d", s.page, s.line) }

// TestDocsCompile type-checks every block of Go code of the pages.
func TestDocsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("the guides' code is compiled without -short")
	}
	imports := newDocsImporter(t)
	for _, page := range compiledDocs {
		found := snippets(t, page)
		if len(found) == 0 {
			t.Errorf("%s has no Go code", page)
		}
		for _, s := range found {
			formatted, err := format.Source([]byte(s.code))
			switch {
			case err != nil:
				t.Errorf("%v: %v", s, err)
				continue
			case string(formatted) != s.code:
				t.Errorf("%v is not formatted; want\n%s", s, formatted)
			}
			if err := imports.check(s); err != nil {
				t.Errorf("%v: %v", s, err)
			}
		}
	}
}

// snippets returns the blocks of Go code of a page.
func snippets(t *testing.T, page string) []snippet {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var out []snippet
	open := false
	for i, line := range strings.SplitAfter(string(data), "\n") {
		switch {
		case line == "```go\n":
			open = true
			out = append(out, snippet{page: page, line: i + 2})
		case open && line == "```\n":
			open = false
		case open:
			out[len(out)-1].code += line
		}
	}
	return out
}

// A docsImporter checks snippets against the packages of this module and those
// that it imports.
type docsImporter struct {
	fset *token.FileSet
	from types.Importer
}

func newDocsImporter(t *testing.T) *docsImporter {
	t.Helper()
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}",
		".", "./cli", "./model/anthropic", "./model/openai", "./model/catalog", "./model/providers", "./model/script", "./store/sqlite", "net/http", "log", "log/slog", "time", "errors")
	var problems bytes.Buffer
	list.Stderr = &problems
	out, err := list.Output()
	if err != nil {
		t.Fatalf("listing the packages: %v\n%s", err, problems.Bytes())
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[name] = file
	}
	fset := token.NewFileSet()
	return &docsImporter{fset, importer.ForCompiler(fset, "gc", func(name string) (io.ReadCloser, error) {
		file, ok := files[name]
		if !ok {
			return nil, fmt.Errorf("package %s is not listed in this test", name)
		}
		return os.Open(file)
	})}
}

// check parses a snippet and type-checks it.
func (d *docsImporter) check(s snippet) error {
	file, err := d.parse(s)
	if err != nil {
		return err
	}
	var problems []string
	conf := types.Config{Importer: d.from, Error: func(err error) {
		// A fragment shows how a value comes about and may stop there.
		if text := err.Error(); !strings.Contains(text, "declared and not used") {
			problems = append(problems, text)
		}
	}}
	if _, err := conf.Check("snippet", d.fset, []*ast.File{file}, nil); err != nil && len(problems) > 0 {
		return fmt.Errorf("%s", strings.Join(problems, "\n\t"))
	}
	return nil
}

// parse makes a file of a snippet.
func (d *docsImporter) parse(s snippet) (*ast.File, error) {
	parse := func(code string) (*ast.File, error) {
		return parser.ParseFile(d.fset, s.String(), code, parser.SkipObjectResolution)
	}
	if strings.HasPrefix(s.code, "package ") {
		return parse(s.code)
	}
	body := s.code
	if _, err := parse("package snippet\n" + body); err != nil {
		body = "func _(ctx context.Context, r *flue.Render, rt *flue.Runtime, in *flue.Instance) error {\n" + body + "\nreturn nil\n}\n"
	}
	file, err := parse("package snippet\n" + body)
	if err != nil {
		return nil, err
	}
	var header strings.Builder
	header.WriteString("package snippet\n")
	for _, name := range usedPackages(file) {
		fmt.Fprintf(&header, "import %s\n", strconv.Quote(name))
	}
	return parse(header.String() + body)
}

// usedPackages returns the packages that a file without imports speaks of.
func usedPackages(file *ast.File) []string {
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok {
			for _, name := range []string{
				"context", "encoding/json", "errors", "fmt", "iter", "log", "log/slog", "net/http", "os", "strings", "time", "github.com/flue-go/flue",
				"github.com/flue-go/flue/model", "github.com/flue-go/flue/model/anthropic", "github.com/flue-go/flue/model/catalog",
				"github.com/flue-go/flue/model/openai", "github.com/flue-go/flue/model/providers",
			} {
				if path.Base(name) == x.Name && !slices.Contains(out, name) {
					out = append(out, name)
				}
			}
		}
		return true
	})
	return out
}

// TestDocsAreComplete holds the pages to what there is: every hook is described,
// and so are every code and every type of error.
func TestDocsAreComplete(t *testing.T) {
	pages := make(map[string]string)
	for _, page := range []string{"docs/hooks.md", "docs/errors.md"} {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		pages[page] = string(data)
	}
	want := func(page, word string) {
		if !strings.Contains(pages[page], "`"+word+"`") {
			t.Errorf("%s does not mention `%s`", page, word)
		}
	}
	for _, decl := range declarations(t, ".") {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if hook, ok := strings.CutPrefix(decl.Name.Name, "Use"); ok && decl.Recv == nil && ast.IsExported(hook) {
				want("docs/hooks.md", decl.Name.Name)
			}
			if decl.Recv != nil && decl.Name.Name == "Error" {
				if star, ok := decl.Recv.List[0].Type.(*ast.StarExpr); ok {
					want("docs/errors.md", "*"+star.X.(*ast.Ident).Name)
				}
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && decl.Tok == token.VAR && strings.HasPrefix(v.Names[0].Name, "Err") {
					want("docs/errors.md", v.Names[0].Name)
				}
			}
		}
	}
	for _, decl := range declarations(t, "wire") {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		for _, spec := range gen.Specs {
			v := spec.(*ast.ValueSpec)
			if kind, ok := v.Type.(*ast.Ident); ok && kind.Name == "Code" {
				code, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				want("docs/errors.md", code)
			}
		}
	}
}

// declarations returns the exported declarations of a package's files.
func declarations(t *testing.T, dir string) []ast.Decl {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []ast.Decl
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, file.Decls...)
	}
	if len(out) == 0 {
		t.Fatalf("%s has no declarations", dir)
	}
	return out
}
