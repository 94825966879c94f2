package catalog_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/catalog"
)

func TestLookup(t *testing.T) {
	adaptive := []model.Thinking{model.ThinkingLow, model.ThinkingMedium, model.ThinkingHigh}
	most := append(slices.Clone(adaptive), model.ThinkingMax)
	tests := []struct {
		name, provider, id string
		want               model.Info // zero when the model is not there
	}{
		{"exact", "anthropic", "claude-sonnet-4-5-20250929", model.Info{
			Name: "Claude Sonnet 4.5", ContextWindow: 200_000, MaxOutput: 64_000, Reasoning: true, Images: true, DeferredTools: true,
			Cost: model.Cost{Input: 3, Output: 15, CacheRead: 0.3, CacheWrite: 3.75},
		}},
		{"without its date", "anthropic", "claude-sonnet-4-5", model.Info{
			Name: "Claude Sonnet 4.5", ContextWindow: 200_000, MaxOutput: 64_000, Reasoning: true, Images: true, DeferredTools: true,
			Cost: model.Cost{Input: 3, Output: 15, CacheRead: 0.3, CacheWrite: 3.75},
		}},
		{"added to the source, with a price of short prompts", "anthropic", "claude-haiku-5-5", model.Info{
			Name: "Claude Haiku 5.5", ContextWindow: 1_000_000, MaxOutput: 128_000, Reasoning: true, Levels: adaptive, Images: true,
			Cost: model.Cost{Input: 0.1, Output: 0.5, CacheRead: 0.01, CacheWrite: 0.125, UpTo: 100_000},
		}},
		{"levels", "anthropic", "claude-sonnet-4-6", model.Info{
			Name: "Claude Sonnet 4.6", ContextWindow: 1_000_000, MaxOutput: 128_000, Reasoning: true, Levels: most, Images: true, DeferredTools: true,
			Cost: model.Cost{Input: 3, Output: 15, CacheRead: 0.3, CacheWrite: 3.75},
		}},
		{"price of reading in the place of writing", "openai", "gpt-5.5", model.Info{
			Name: "GPT-5.5", ContextWindow: 1_050_000, MaxOutput: 128_000, Reasoning: true, Images: true,
			Levels: append(append([]model.Thinking{model.ThinkingOff}, adaptive...), model.ThinkingXHigh),
			Cost:   model.Cost{Input: 5, Output: 30, CacheRead: 0.5, UpTo: 272_000},
		}},
		{"named by its id", "openai", "o3", model.Info{
			Name: "o3", ContextWindow: 200_000, Reasoning: true, Levels: adaptive, Images: true,
			Cost: model.Cost{Input: 2, Output: 8, CacheRead: 0.5},
		}},
		{"output limit not stated", "azure-openai", "gpt-4o", model.Info{
			Name: "GPT-4o", ContextWindow: 128_000, Images: true,
			Cost: model.Cost{Input: 2.5, Output: 10, CacheRead: 1.25},
		}},
		{"no such model", "anthropic", "claude-none", model.Info{}},
		{"part of an id", "anthropic", "claude-haiku", model.Info{}},
		{"model of another provider", "openai", "claude-sonnet-4-6", model.Info{}},
		{"no such provider", "nobody", "gpt-5", model.Info{}},
		{"provider by catwalk's name", "gemini", "gemini-2.5-pro", model.Info{}},
		{"behind all providers", "~", "gpt-5", model.Info{}},
		{"behind all models", "anthropic", "~", model.Info{}},
		{"empty", "", "", model.Info{}},
		{"empty id", "anthropic", "", model.Info{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := catalog.Lookup(tt.provider, tt.id)
			if want := tt.want.Name != ""; ok != want {
				t.Errorf("found: %v, want %v", ok, want)
			}
			tt.want.Known = ok // what the catalog has is known for certain
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLookupResultIsTheCallers(t *testing.T) {
	info, _ := catalog.Lookup("openai", "gpt-5")
	if len(info.Levels) == 0 {
		t.Fatal("no levels")
	}
	info.Levels[0] = "changed"
	if again, _ := catalog.Lookup("openai", "gpt-5"); again.Levels[0] == "changed" {
		t.Error("a caller changed the catalog")
	}
}

// Which models are listed is a statement of the generator, not of its source.
func TestDeferredTools(t *testing.T) {
	var got []string
	for _, p := range catalog.Providers() {
		for id, m := range catalog.Models(p) {
			if m.DeferredTools {
				got = append(got, p+"/"+id)
			}
		}
	}
	want := []string{
		"anthropic/claude-fable-5", "anthropic/claude-fable-5-1", "anthropic/claude-mythos-5", "anthropic/claude-mythos-5-1",
		"anthropic/claude-opus-4-5-20251101", "anthropic/claude-opus-4-6", "anthropic/claude-opus-4-7", "anthropic/claude-opus-4-8", "anthropic/claude-opus-5", "anthropic/claude-opus-5-5",
		"anthropic/claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4-6", "anthropic/claude-sonnet-5", "anthropic/claude-sonnet-5-5",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestProviders(t *testing.T) {
	providers := catalog.Providers()
	if !slices.IsSorted(providers) || len(slices.Compact(slices.Clone(providers))) != len(providers) {
		t.Errorf("not sorted or repeated: %q", providers)
	}
	for _, want := range []string{
		"amazon-bedrock", "anthropic", "azure-openai", "cerebras", "deepseek", "google", "google-vertex", "groq", "openai", "openrouter", "xai",
	} {
		if !slices.Contains(providers, want) {
			t.Errorf("no provider %s", want)
		}
	}
	for _, not := range []string{"azure", "bedrock", "gemini", "vertexai"} {
		if slices.Contains(providers, not) {
			t.Errorf("provider %s is not under our name", not)
		}
	}
}

func TestModelsEndsWithItsLoop(t *testing.T) {
	n := 0
	for range catalog.Models("openai") {
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d models after a break", n)
	}
	for id := range catalog.Models("nobody") {
		t.Errorf("model %s of a provider that is not there", id)
	}
}

func TestDataIsPlausible(t *testing.T) {
	total := 0
	for _, p := range catalog.Providers() {
		last := ""
		for id, m := range catalog.Models(p) {
			total++
			if id <= last {
				t.Errorf("%s/%s follows %s", p, id, last)
			}
			last = id
			checkInfo(t, p+"/"+id, m)
			if got, ok := catalog.Lookup(p, id); !ok || !cmp.Equal(got, m) {
				t.Errorf("%s/%s is looked up as %+v", p, id, got)
			}
		}
		if last == "" {
			t.Errorf("%s has no models", p)
		}
	}
	if total < 1000 {
		t.Errorf("%d models", total)
	}
}

func checkInfo(t *testing.T, spec string, m model.Info) {
	t.Helper()
	if m.Name == "" {
		t.Errorf("%s has no name", spec)
	}
	if m.ContextWindow != 0 && (m.ContextWindow < 1000 || m.ContextWindow > 20_000_000) {
		t.Errorf("%s has a context window of %d", spec, m.ContextWindow)
	}
	if m.MaxOutput < 0 || m.ContextWindow > 0 && m.MaxOutput >= m.ContextWindow {
		t.Errorf("%s has an output limit of %d and a window of %d", spec, m.MaxOutput, m.ContextWindow)
	}
	for _, c := range []float64{m.Cost.Input, m.Cost.Output, m.Cost.CacheRead, m.Cost.CacheWrite} {
		if !(c >= 0 && c <= 1000) {
			t.Errorf("%s costs %+v", spec, m.Cost)
		}
	}
	if (m.Cost.Input > 0) != (m.Cost.Output > 0) && m.Cost.Output > 0 || m.Cost.Output > 20*m.Cost.Input {
		t.Errorf("%s has prices of input and output that do not fit: %+v", spec, m.Cost)
	}
	if m.Cost.UpTo < 0 || m.ContextWindow > 0 && m.Cost.UpTo >= m.ContextWindow || m.Cost.Input == 0 && m.Cost.UpTo != 0 {
		t.Errorf("%s has prices for prompts of up to %d tokens and a window of %d", spec, m.Cost.UpTo, m.ContextWindow)
	}
	if m.Cost.CacheRead > m.Cost.Input/2 || m.Cost.CacheWrite != 0 && m.Cost.CacheWrite <= m.Cost.Input {
		t.Errorf("%s has prices of the cache that do not fit that of input: %+v", spec, m.Cost)
	}
	if len(m.Levels) > 0 && !m.Reasoning {
		t.Errorf("%s has levels %q but does not reason", spec, m.Levels)
	}
	for i, l := range m.Levels {
		if !l.Valid() || l == model.ThinkingDefault || slices.Contains(m.Levels[:i], l) {
			t.Errorf("%s has the levels %q", spec, m.Levels)
		}
	}
}

// The data can be made again from the version that the generator's go.mod
// names. That needs the module proxy, so it is done only when asked for.
func TestGenerated(t *testing.T) {
	if os.Getenv("FLUE_REQUIRE_ALL") == "" {
		t.Skip("set FLUE_REQUIRE_ALL=1 to generate the catalog again and compare; that fetches a module")
	}
	path := filepath.Join(t.TempDir(), "models.json.gz")
	for _, args := range [][]string{{"test", "./..."}, {"run", ".", path}} {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"-C", "internal/gen"}, args...)...)
		cmd.Env = append(os.Environ(), "GOTOOLCHAIN=go1.27.3") // the source asks for a newer Go than programs do
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	if !bytes.Equal(unzip(t, path), unzip(t, "models.json.gz")) {
		t.Error("the data is not what the generator writes: run go generate ./model/catalog")
	}
}

// unzip returns the content of a data file, which unlike the file is the same
// for all versions of Go.
func unzip(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestLookupAllocates(t *testing.T) {
	n := testing.AllocsPerRun(100, func() { catalog.Lookup("openai", "gpt-5") })
	if n > 1 { // the levels, which are the caller's
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLookup(b *testing.B) {
	catalog.Providers() // reads the data
	b.ReportAllocs()
	for b.Loop() {
		catalog.Lookup("openai", "gpt-5")
	}
}
