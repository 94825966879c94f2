package examples_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The README has a line for each program, with a command that runs it.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, m := range regexp.MustCompile("(?m)^\\| \\[([a-z]+)\\]\\(([a-z]+)\\) \\|.*`go run ./examples/([a-z]+) run .*-m \"[^\"]+\"` \\|$").FindAllStringSubmatch(string(text), -1) {
		if m[1] != m[2] || m[1] != m[3] {
			t.Errorf("a line names %s, leads to %s and runs %s", m[1], m[2], m[3])
		}
		told = append(told, m[1])
	}
	slices.Sort(told)
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var programs []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			programs = append(programs, e.Name())
		}
	}
	if diff := cmp.Diff(programs, told); diff != "" {
		t.Errorf("programs in the README (-folders +lines):\n%s", diff)
	}
}
