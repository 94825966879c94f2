package deps

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// pure says which packages of the standard library, and of others, those
// packages may import whose results must depend on their arguments alone. What
// a journal means must be the same on every machine, for ever: there is no
// clock in these lists, no chance, no file and no network. A package may know
// the type of a time, as journal does, but TestPure refuses it the clock.
var pure = map[string][]string{
	"journal": {
		"bytes", "errors", "fmt", "slices", "time", "unicode/utf8",
		"github.com/go-json-experiment/json", "github.com/go-json-experiment/json/jsontext",
	},
	"internal/fold": {
		"cmp", "crypto/sha256", "encoding/hex", "encoding/json", "errors", "fmt", "maps", "math", "slices", "strconv", "strings",
		"github.com/go-json-experiment/json/jsontext",
	},
	"internal/project": {
		"bytes", "encoding/base64", "errors", "fmt", "maps", "slices", "strings", "unicode/utf8",
		"github.com/go-json-experiment/json", "github.com/go-json-experiment/json/jsontext",
	},
}

func TestPure(t *testing.T) {
	seen := 0
	for _, p := range list(t) {
		name := short(p.ImportPath)
		imports, listed := pure[name]
		if !listed {
			continue
		}
		seen++
		for _, imported := range p.Imports {
			if !strings.HasPrefix(imported, module+"/") && !slices.Contains(imports, imported) {
				t.Errorf("%s imports %s, and must be pure", name, imported)
			}
		}
		for _, use := range uses(t, p, "time") {
			if slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Local"}, use.name) {
				t.Errorf("%s: %s uses the clock of its machine: time.%s", use.at, name, use.name)
			}
		}
	}
	if seen != len(pure) {
		t.Errorf("%d of %d packages exist", seen, len(pure))
	}
}

// What only tests need must not be in a program, not even through another
// package.
func TestProgramsHoldNoTests(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", module, module+"/cli", module+"/cmd/flue", module+"/examples/orders").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, module+"/journal") {
		t.Fatal("go list -deps names no dependency")
	}
	for _, dep := range deps {
		local, ours := strings.CutPrefix(dep, module+"/")
		switch {
		case dep == "testing", strings.HasPrefix(dep, "testing/"), strings.HasPrefix(dep, "github.com/google/go-cmp/"), strings.HasPrefix(dep, "pgregory.net/"):
			t.Errorf("a program depends on %s", dep)
		case ours && (strings.HasSuffix(local, "test") || strings.HasPrefix(local, "conformance") || strings.HasPrefix(local, "store/storetest")):
			t.Errorf("a program depends on %s, which is for tests", local)
		}
	}
}
