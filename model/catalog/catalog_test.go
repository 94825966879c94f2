package catalog_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/catalog"
)

func ExampleLookup() {
	info, ok := catalog.Lookup("anthropic", "claude-haiku-4-5-20251001")
	fmt.Println(ok, info.ContextWindow, info.Images, info.Reasoning)
	// Output: true 200000 true true
}

func TestDataIsPlausible(t *testing.T) {
	providers := catalog.Providers()
	if !slices.IsSorted(providers) || len(providers) < 20 {
		t.Errorf("providers %q", providers)
	}
	for _, want := range []string{"anthropic", "openai", "google", "openrouter", "groq", "xai", "deepseek"} {
		if !slices.Contains(providers, want) {
			t.Errorf("no provider %s", want)
		}
	}
	total := 0
	for _, p := range providers {
		last := ""
		for id, m := range catalog.Models(p) {
			total++
			if id <= last {
				t.Errorf("%s/%s follows %s", p, id, last)
			}
			last = id
			if m.ContextWindow != 0 && (m.ContextWindow < 1000 || m.ContextWindow > 20_000_000) {
				t.Errorf("%s/%s has a context window of %d", p, id, m.ContextWindow)
			}
			for _, c := range []float64{m.Cost.Input, m.Cost.Output, m.Cost.CacheRead, m.Cost.CacheWrite} {
				if c < 0 || c > 2000 {
					t.Errorf("%s/%s costs %v", p, id, m.Cost)
				}
			}
			for _, l := range m.Levels {
				if !l.Valid() || l == model.ThinkingDefault {
					t.Errorf("%s/%s has the level %q", p, id, l)
				}
			}
			if got, ok := catalog.Lookup(p, id); !ok || got.Name != m.Name {
				t.Errorf("%s/%s cannot be looked up", p, id)
			}
		}
	}
	if total < 1000 {
		t.Errorf("%d models", total)
	}
	if info, ok := catalog.Lookup("anthropic", "claude-haiku-4-5"); !ok || info.ContextWindow != 200_000 {
		t.Errorf("an id without its date: %+v", info)
	}
	if info, ok := catalog.Lookup("anthropic", "claude-none"); ok || info.ContextWindow != 0 {
		t.Errorf("a model that is not there: %+v", info)
	}
}

// The data can be made again from the version that the generator's go.mod
// names. It needs the module proxy, so it runs only when asked for.
func TestGenerated(t *testing.T) {
	if os.Getenv("FLUE_REQUIRE_ALL") == "" {
		t.Skip("set FLUE_REQUIRE_ALL=1 to generate the catalog again and compare; that fetches a module")
	}
	path := filepath.Join(t.TempDir(), "models.json.gz")
	cmd := exec.Command("go", "-C", "internal/gen", "run", ".", path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("models.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the generated data is not what the generator writes: run go generate ./model/catalog")
	}
}

func BenchmarkLookup(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		catalog.Lookup("anthropic", "claude-haiku-4-5-20251001")
	}
}
