// Package cli makes a command-line program of agents.
//
//	func main() {
//		cli.Main(cli.App{Agents: []*flue.Agent{{Name: "order-assistant", Render: OrderAssistant}}})
//	}
//
// The program has the command run, which sends one message and prints the reply,
// and the command serve, which serves the agents over HTTP. Both keep
// conversations in a SQLite file, so that a conversation goes on with the next
// command, and work that was cut short is taken up again. The command inspect
// shows what is kept, also beside a server, and repair lets a damaged conversation
// go on.
//
// The package reads flags, the environment, an env file and nothing else; it
// never prints a key. A program that needs more than it offers opens a
// [flue.Runtime] itself.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
)

// An App describes a program of agents. Only Agents is needed, or a Setup that
// sets them.
type App struct {
	// Name is the program's name in its messages, and the default name of the
	// file that keeps its conversations. Default: the name of the executable.
	Name string

	// Summary says in one line what the program is for.
	Summary string

	// Example is a message that the program's help shows how to send.
	// Default: "Hello".
	Example string

	// Agents are the agents of the program.
	Agents []*flue.Agent

	// Providers are model providers by the name that specifiers use. They come
	// before those that the environment sets up; see package model/providers.
	Providers map[string]model.Provider

	// ModelMiddleware and Catalog are those of [flue.Config]. The default of
	// Catalog is [catalog.Lookup].
	ModelMiddleware []model.Middleware
	Catalog         func(provider, id string) (model.Info, bool)

	// StrictModels is that of [flue.Config].
	StrictModels bool

	// Demo, if set, answers in place of a provider that has no key in the
	// environment, so that the program can be tried at once. It should be a
	// scripted model; people are told that it is one, and which variable to
	// set. If Demo is nil the use of such a provider is an error that says so.
	Demo model.Provider

	// Flags are the program's own. Every command accepts them.
	Flags *flag.FlagSet

	// Setup, if set, is called once when flags and environment have been read,
	// and before any agent runs. It opens what the agents need, and may set
	// every field of app but Flags. The function that it returns, if any,
	// releases all that when the agents have stopped.
	Setup func(ctx context.Context, app *App) (release func() error, err error)

	// Routes, if set, adds the program's own routes to those of serve, such as
	// one that decides on approvals. Patterns under /agents/ and /health are
	// taken.
	Routes func(mux *http.ServeMux, rt *flue.Runtime)

	// Middleware, if set, is put around the HTTP handler of serve, Routes
	// included, but not around the health checks. It is the place for
	// authentication.
	Middleware func(http.Handler) http.Handler

	// Version is what --version prints. Default: what the build recorded.
	Version string
}

// The exit codes.
const (
	exitFailed     = 1
	exitAborted    = 130 // as a shell has it for a program that SIGINT ended
	exitTerminated = 143 // and for SIGTERM
)

// Main runs the program with the arguments of the process and exits. It does
// not return.
//
// The first interrupt (Ctrl-C) or SIGTERM ends the command in order, the second
// ends the process at once; whatever the agents were doing is then taken up
// again when the program is started the next time.
func Main(app App) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// It lives as long as the process, which this function ends.
	go func() {
		cancel(stopped(<-signals))
		os.Exit(exitCode(stopped(<-signals)))
	}()
	os.Exit(Run(ctx, app, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// stopped returns the reason for a context that a signal ends.
func stopped(s os.Signal) error {
	if s == syscall.SIGTERM {
		return errTerminated
	}
	return errInterrupted
}

var (
	errInterrupted = errors.New("interrupted")
	errTerminated  = errors.New("terminated")
)

// Run runs the program with the arguments, without the name of the program, and
// returns the exit code: 0 if the command did what it was asked to, 130 if the
// run was aborted, 1 if anything else went wrong.
//
// When ctx ends, run aborts what it has asked for and serve shuts down; both
// return when that is done. The variables of the env file are set in the
// environment of the process.
func Run(ctx context.Context, app App, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	stderr = &serial{w: stderr}
	p := &program{app: app, in: stdin, out: stdout, err: stderr}
	if p.app.Name == "" {
		p.app.Name = executable()
	}
	if p.app.Example == "" {
		p.app.Example = "Hello"
	}
	err := p.execute(ctx, args)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", p.app.Name, err)
	}
	return exitCode(err)
}

func executable() string {
	path, err := os.Executable()
	if err != nil {
		return "flue"
	}
	return strings.TrimSuffix(filepath.Base(path), ".exe")
}

// An exitError is an error that decides the exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func exitCode(err error) int {
	var e *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.code
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return exitAborted
	case errors.Is(err, errTerminated):
		return exitTerminated
	}
	return exitFailed
}
