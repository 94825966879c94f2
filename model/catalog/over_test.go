package catalog_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/catalog"
)

func TestOver(t *testing.T) {
	base := func(provider, id string) (model.Info, bool) {
		return model.Info{
			Name: "Base", ContextWindow: 100, MaxOutput: 10, Reasoning: true, Levels: []model.Thinking{model.ThinkingHigh}, Cost: model.Cost{Input: 1, CacheRead: 0.1},
		}, provider == "p" && id == "m"
	}
	own := map[string]model.Info{
		"p/m":     {ContextWindow: 200, Levels: []model.Thinking{model.ThinkingLow}, Cost: model.Cost{Input: 2}},
		"p/a/new": {Name: "New", MaxOutput: 5, Images: true, DeferredTools: true, Cost: model.Cost{Free: true}},
	}
	lookup := catalog.Over(base, own)
	own["p/m"].Levels[0] = "changed" // the caller's, and no longer ours
	delete(own, "p/a/new")
	got, ok := lookup("p", "m")
	want := model.Info{
		Name: "Base", ContextWindow: 200, MaxOutput: 10, Reasoning: true, Levels: []model.Thinking{model.ThinkingLow}, Cost: model.Cost{Input: 2},
	}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("known to both: %v\n%s", ok, diff)
	}
	got.Levels[0] = "changed"
	if again, _ := lookup("p", "m"); again.Levels[0] != model.ThinkingLow {
		t.Error("a caller changed the catalog")
	}
	if _, ok := catalog.Over(base, nil)("p", "m"); !ok {
		t.Error("what only the base knows is not known")
	}
	if _, ok := lookup("p", "other"); ok {
		t.Error("what nobody knows is known")
	}
	got, ok = catalog.Over(nil, map[string]model.Info{"p/a/new": {Name: "New", MaxOutput: 5, Images: true, DeferredTools: true, Cost: model.Cost{Free: true}}})("p", "a/new")
	if diff := cmp.Diff(model.Info{Name: "New", MaxOutput: 5, Images: true, DeferredTools: true, Cost: model.Cost{Free: true}}, got); diff != "" || !ok {
		t.Errorf("known here only: %v\n%s", ok, diff)
	}
}

func TestSimilar(t *testing.T) {
	for _, tt := range []struct {
		provider, id string
		want         []string
	}{
		{"anthropic", "claude-sonnet-4.6", []string{"claude-sonnet-4-6"}},
		{"anthropic", "no-such-thing", nil},
		{"nobody", "claude-sonnet-4.6", nil},
	} {
		got := catalog.Similar(tt.provider, tt.id)
		if len(got) > len(tt.want) && tt.want != nil {
			got = got[:len(tt.want)] // what else is like it is the catalog's business
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s/%s: %s", tt.provider, tt.id, diff)
		}
	}
}

func ExampleOver() {
	lookup := catalog.Over(catalog.Lookup, map[string]model.Info{
		"ollama/qwen3:8b":            {ContextWindow: 32_768, Cost: model.Cost{Free: true}},
		"anthropic/claude-haiku-4-5": {Cost: model.Cost{Input: 0.9, Output: 4.5}}, // as negotiated
	})
	for _, m := range [][2]string{{"ollama", "qwen3:8b"}, {"anthropic", "claude-haiku-4-5"}} {
		info, _ := lookup(m[0], m[1])
		fmt.Println(info.ContextWindow, info.Cost.Expense(model.Usage{Input: 1000, Output: 100}))
	}
	// Output:
	// 32768 $0.00
	// 200000 $0.0014
}
