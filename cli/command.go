package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A program is one run of an App.
type program struct {
	app      App
	in       io.Reader
	out, err io.Writer

	db      string // as it was given; see place
	place   place
	envFile string
	logging logging
	release func() error
}

// execute reads the flags and runs the command.
func (p *program) execute(ctx context.Context, args []string) error {
	root, err := p.command()
	if err != nil {
		return err
	}
	root.SetArgs(append([]string{}, args...)) // nil would mean those of the process
	defer func() {
		if p.release != nil {
			p.closing("the program", p.release)
		}
	}()
	called, err := root.ExecuteContextC(ctx)
	if err != nil && strings.HasPrefix(err.Error(), "unknown command") { // the library has no type for it
		err = fmt.Errorf("%w; see %s --help", err, called.CommandPath())
	}
	return err
}

// command makes the command line of the program.
func (p *program) command() (*cobra.Command, error) {
	root := &cobra.Command{
		Use:           p.app.Name,
		Short:         p.app.Summary,
		Version:       version(p.app.Version),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, c.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVar(&p.db, "db", p.defaultDB(), "`place` that keeps the conversations: a file, a postgres:// URL (better in "+dbVariable+"), or "+inMemory+" to forget them")
	flags.StringVar(&p.envFile, "env-file", defaultEnvFile, "`file` with variables, for those that are not in the environment")
	flags.TextVar(&p.logging.level, "log-level", slog.LevelInfo, "least `level` that is logged: debug, info, warn or error (run: warn)")
	flags.StringVar(&p.logging.format, "log-format", "text", "`format` of the log: text or json")
	root.AddCommand(p.runCommand(), p.serveCommand(), p.inspectCommand(), p.repairCommand(), p.compactCommand(), p.migrateCommand(), p.copyCommand(), p.modelsCommand())
	return root, p.ownFlags(root)
}

// ownFlags adds the flags of the App.
func (p *program) ownFlags(root *cobra.Command) (err error) {
	if p.app.Flags == nil {
		return nil
	}
	p.app.Flags.VisitAll(func(f *flag.Flag) {
		if taken(root, f.Name) {
			err = errors.Join(err, fmt.Errorf("cli: App.Flags has a flag %q, which every program has: rename it", f.Name))
		}
	})
	if err == nil {
		root.PersistentFlags().AddGoFlagSet(p.app.Flags)
	}
	return err
}

// taken reports whether a command has a flag of the name, or one of a single
// letter that is the same.
func taken(root *cobra.Command, name string) bool {
	if name == "help" || name == "h" || name == "version" || name == "v" {
		return true
	}
	for _, c := range append([]*cobra.Command{root}, root.Commands()...) {
		for _, flags := range [...]*pflag.FlagSet{c.PersistentFlags(), c.Flags()} {
			if flags.Lookup(name) != nil || (len(name) == 1 && flags.ShorthandLookup(name) != nil) {
				return true
			}
		}
	}
	return false
}

// setup makes ready what run and serve need.
func (p *program) setup(c *cobra.Command) error {
	if err := p.logging.validate(); err != nil {
		return err
	}
	if err := p.locate(c); err != nil {
		return err
	}
	if p.app.Setup != nil {
		release, err := p.app.Setup(c.Context(), &p.app)
		p.release = release
		if err != nil {
			return err
		}
	}
	if len(p.app.Agents) == 0 {
		return errors.New("the program has no agents: set App.Agents")
	}
	for _, a := range p.app.Agents {
		if a == nil {
			return errors.New("the program has a nil agent in App.Agents")
		}
	}
	return nil
}

// agents names the agents, for a person.
func (p *program) agents() string {
	var names []string
	for _, a := range p.app.Agents {
		names = append(names, a.Name)
	}
	return strings.Join(names, ", ")
}
