// Releases is an agent that publishes releases. Those before a stable version go
// out at once; a stable one waits until a person has approved that very call.
//
//	go run ./examples/releases run -m "Publish flue 1.5.0-next.1"
//	go run ./examples/releases run --id june -m "Publish flue 1.5.0"
//	go run ./examples/releases serve
//
// The second command leaves a call that waits. The third serves the agent, and
// the API with which operators see what waits and decide; it prints commands to
// try. See serve.go.
//
// There is a second agent, which works another way: it has no tool to publish
// with until it is given the code that an operator has handed out.
//
//	go run ./examples/releases run --unlock -m "The code is DEMO-CODE-4711, publish flue 1.5.0"
//
// With ANTHROPIC_API_KEY in the environment (for run, also in .env) the program
// asks Claude, and does not start without secrets of your own:
// RELEASES_DEVELOPERS and RELEASES_OPERATORS as name=token,name=token for serve,
// RELEASES_APPROVAL_CODE for --unlock, each of 16 characters or more. Without a
// key a scripted demo model answers, and says so.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/cli"
)

func main() {
	if len(os.Args) < 2 || os.Args[1] != "serve" {
		cli.Main(app())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serve(ctx, os.Args[2:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "releases:", err)
		os.Exit(1)
	}
}

func app() cli.App {
	flags := flag.NewFlagSet("releases", flag.ContinueOnError)
	unlock := flags.Bool("unlock", false, "use the agent whose tool a code unlocks")
	return cli.App{
		Name:    "releases",
		Summary: "An assistant that publishes releases",
		Example: "Publish flue 1.5.0",
		Flags:   flags,
		Demo:    newDemo(),
		Setup: func(_ context.Context, app *cli.App) (func() error, error) {
			registry := newRegistry()
			app.Agents = []*flue.Agent{releaseManager(registry)}
			if *unlock {
				code, err := approvalCode()
				if err != nil {
					return nil, err
				}
				app.Agents = []*flue.Agent{unlockedReleases(registry, code)}
			}
			p, err := peopleOf("RELEASES_DEVELOPERS")
			if err != nil {
				return nil, err
			}
			app.Middleware = p.only // in case that the other serve is reached behind a flag
			return nil, nil
		},
	}
}
