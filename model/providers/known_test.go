package providers_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/model/catalog"
	"github.com/flue-go/flue/model/providers"
)

// docs/models.md says of how many models of each provider what is known. Run with
// -update, the test writes that.
func TestWhatIsKnownIsDocumented(t *testing.T) {
	const page, begin, end = "../../docs/models.md", "| provider | models | window |", "\n\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	table, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no table that begins with %q", page, begin)
	}
	want := known()
	if *update {
		if err := os.WriteFile(page, []byte(before+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, begin+table); diff != "" {
		t.Errorf("%s (-the catalog +the page):\n%s", page, diff)
	}
}

// known returns the table of what is known of each provider's models.
func known() string {
	var b strings.Builder
	b.WriteString("| provider | models | window | output limit | price | price of the cache | dearer long prompts | images |\n|---|---|---|---|---|---|---|---|")
	for _, s := range providers.Known() {
		var all, window, output, price, cache, long, images int
		count := func(n *int, known bool) {
			if known {
				*n++
			}
		}
		for _, info := range catalog.Models(s.Name) {
			all++
			count(&window, info.ContextWindow > 0)
			count(&output, info.MaxOutput > 0)
			count(&price, info.Cost.Free || info.Cost.Input > 0 && info.Cost.Output > 0)
			count(&cache, info.Cost.CacheRead > 0)
			count(&long, info.Cost.UpTo > 0)
			count(&images, info.Images)
		}
		fmt.Fprintf(&b, "\n| `%s` | %d | %d | %d | %d | %d | %d | %d |", s.Name, all, window, output, price, cache, long, images)
	}
	return b.String()
}
