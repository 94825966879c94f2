// Provisioning is an agent with a durable tool: it creates a tenant and seeds the
// tenant's default projects, each in a step. If the process dies on the way, the
// next one goes on with the step that was not finished.
//
//	go run ./examples/provisioning run -m "Set up customer cus_7"
//
// To see it, kill the program between two steps (kill -9; Ctrl-C would abort the
// work), and let it go on:
//
//	go run ./examples/provisioning run --id seven --pace 3s -m "Set up customer cus_7"
//	go run ./examples/provisioning run --id seven
//
// With ANTHROPIC_API_KEY in the environment or in .env it asks Claude. Without
// one a scripted demo model answers, and says so.
package main

import (
	"context"
	"flag"
	"path/filepath"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/cli"
)

func main() { cli.Main(app()) }

func app() cli.App {
	flags := flag.NewFlagSet("provisioning", flag.ContinueOnError)
	path := flags.String("platform", filepath.Join(".flue", "platform.json"), "`file` that holds tenants and projects")
	pace := flags.Duration("pace", 0, "`time` that the platform takes for each thing that it is asked for")
	return cli.App{
		Name:    "provisioning",
		Summary: "An assistant that sets up workspaces for customers",
		Example: "Set up customer cus_7",
		Flags:   flags,
		Demo:    newDemo(),
		Setup: func(_ context.Context, app *cli.App) (func() error, error) {
			platform, err := openPlatform(*path, *pace)
			if err != nil {
				return nil, err
			}
			app.Agents = []*flue.Agent{assistant(platform)}
			return nil, nil
		},
	}
}
