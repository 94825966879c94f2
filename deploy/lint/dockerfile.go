package lint

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// An Image is what a Dockerfile makes.
type Image struct {
	Build string   // the command that compiles the program
	Main  string   // the package that it compiles by default
	Run   []string // what the container runs
	User  int64

	stages   []instructions.Stage
	warnings []string
}

// Dockerfile reads a file as BuildKit does, with its linter.
func Dockerfile(text []byte) (*Image, error) {
	parsed, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	i := &Image{}
	for _, w := range parsed.Warnings {
		i.warnings = append(i.warnings, w.Short)
	}
	warn := func(rule, _, _, message string, _ []parser.Range) { i.warnings = append(i.warnings, rule+": "+message) }
	if i.stages, _, err = instructions.Parse(parsed.AST, linter.New(&linter.Config{Warn: warn})); err != nil {
		return nil, err
	}
	if len(i.stages) != 2 {
		return nil, fmt.Errorf("there are %d stages, and one to build and one to run are wanted", len(i.stages))
	}
	for _, c := range i.stages[0].Commands {
		switch c := c.(type) {
		case *instructions.ArgCommand:
			if c.Args[0].Key == "MAIN" && c.Args[0].Value != nil {
				i.Main = *c.Args[0].Value
			}
		case *instructions.RunCommand:
			if line := strings.Join(c.CmdLine, " "); strings.Contains(line, "go build") {
				i.Build = line
			}
		}
	}
	err = i.final()
	if i.Build == "" || i.Main == "" {
		err = errors.Join(err, errors.New("nothing builds the program"))
	}
	return i, err
}

// final reads what the last stage says of the container.
func (i *Image) final() error {
	var err error
	for _, c := range i.stages[1].Commands {
		switch c := c.(type) {
		case *instructions.UserCommand:
			user, _, _ := strings.Cut(c.User, ":")
			i.User, err = strconv.ParseInt(user, 10, 64)
		case *instructions.CmdCommand:
			i.Run = c.CmdLine
		case *instructions.RunCommand:
			return errors.New("the last stage has no shell to run anything with")
		}
	}
	return err
}

// Check holds the image to our rules. compiler is the version of Go that the
// module is built with.
func (i *Image) Check(compiler string) []string {
	f := findings(i.warnings)
	for _, s := range i.stages {
		if !pinned(s.BaseName) {
			f.add("image %s is not pinned", s.BaseName)
		}
	}
	if want := "golang:" + compiler + "-"; !strings.HasPrefix(i.stages[0].BaseName, want) {
		f.add("it is built with %s, and the module with Go %s", i.stages[0].BaseName, compiler)
	}
	if !strings.Contains(i.Build, "CGO_ENABLED=0 ") || !strings.Contains(i.Build, "-trimpath") {
		f.add("the program is not linked statically, or has paths of this machine in it")
	}
	if i.User <= 0 {
		f.add("it may run as root")
	}
	entry := false
	for _, c := range i.stages[1].Commands {
		if e, ok := c.(*instructions.EntrypointCommand); ok {
			entry = !e.PrependShell
		}
	}
	if !entry || len(i.Run) == 0 {
		f.add("the program is not what the container runs")
	}
	return f
}
