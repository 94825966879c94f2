package fluetest_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/flue-go/flue/fluetest"
)

// The page shows what is run here, and a report as it is.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("shop_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```(go|text)\n(.*?)```\n").FindAllStringSubmatch(string(page), -1)
	shown := 0
	for _, b := range blocks {
		switch b[1] {
		case "go":
			if shown++; !strings.Contains(string(source), b[2]) {
				t.Errorf("shop_test.go does not have\n%s", b[2])
			}
		case "text":
			if got := fluetest.Crash(t, oldShop()).String() + "\n"; got != b[2] {
				t.Errorf("the report is\n%s", got)
			}
		}
	}
	if shown < 4 || len(blocks) != shown+1 {
		t.Errorf("%d blocks of code and %d of text", shown, len(blocks)-shown)
	}
	for _, kind := range []fluetest.Kind{
		fluetest.Nondeterministic, fluetest.Twice, fluetest.LostSilently, fluetest.Unanswered, fluetest.Unfinished,
		fluetest.Malformed, fluetest.Outlived, fluetest.Impure, fluetest.Stuck, fluetest.Unchecked, fluetest.Unplayable,
	} {
		if !strings.Contains(string(page), string(kind)) {
			t.Errorf("the page does not say what to do about %q", kind)
		}
	}
}
