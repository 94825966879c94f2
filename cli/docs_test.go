package cli

import (
	"flag"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// docs/cli.md has every flag of the commands, and no other.
func TestFlagsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| .*?`(--[a-z-]+)` \\|").FindAllSubmatch(text, -1) {
		documented = append(documented, string(m[1]))
	}
	var declared []string
	p := &program{app: App{Name: "app"}, out: io.Discard, err: io.Discard}
	root, err := p.command()
	if err != nil {
		t.Fatal(err)
	}
	add := func(f *pflag.Flag) { declared = append(declared, "--"+f.Name) }
	root.PersistentFlags().VisitAll(add)
	for _, c := range root.Commands() {
		c.LocalNonPersistentFlags().VisitAll(add)
	}
	slices.Sort(documented)
	slices.Sort(declared)
	if diff := cmp.Diff(declared, documented); diff != "" {
		t.Errorf("flags (-declared +documented):\n%s", diff)
	}
	commands(t, root, string(text))
}

// A program cannot take the place of a flag that every program has.
func TestOwnFlags(t *testing.T) {
	for name, ok := range map[string]bool{"shop": true, "x": true, "db": false, "id": false, "m": false, "v": false, "help": false, "drain": false} {
		flags := flag.NewFlagSet("app", flag.ContinueOnError)
		flags.String(name, "", "")
		p := &program{app: App{Name: "app", Flags: flags}, out: io.Discard, err: io.Discard}
		if _, err := p.command(); (err == nil) != ok {
			t.Errorf("a flag %q of the program: %v", name, err)
		}
	}
}

// commands checks that each command has a heading.
func commands(t *testing.T, root *cobra.Command, text string) {
	t.Helper()
	for _, c := range root.Commands() {
		if !strings.Contains(text, "\n## "+c.Name()+"\n") {
			t.Errorf("command %s has no section", c.Name())
		}
	}
}
