package providers_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/flue-go/flue/model/providers"
)

// docs/models.md has every provider with its variables, and no other.
func TestProvidersAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/models.md")
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(string(page), "| any other name |")
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|.*$").FindAllStringSubmatch(table, -1) {
		rows[m[1]] = m[0]
	}
	for _, s := range providers.Known() {
		for _, want := range append(append([]string{}, s.Keys...), s.BaseURLs...) {
			if !strings.Contains(rows[s.Name], "`"+want+"`") {
				t.Errorf("the row of %s does not have %s: %q", s.Name, want, rows[s.Name])
			}
		}
		if rows[s.Name] == "" {
			t.Errorf("there is no row of %s", s.Name)
		}
		delete(rows, s.Name)
	}
	for name := range rows {
		t.Errorf("there is no provider %s", name)
	}
}
