// Catalog is an agent whose tool asks a server that may hang. The tool is
// bounded: when its time is up the model is told so and goes on.
//
//	go run ./examples/catalog run -m "What does KET-01 cost?"
//	go run ./examples/catalog run --timeout 2s -m "What does HNG-01 cost?"
//
// The catalog is a server that the program starts for itself, which hangs when it
// is asked for HNG-01, or the one whose address is given with --catalog. With
// ANTHROPIC_API_KEY in the environment or in .env the agent asks Claude. Without
// one a scripted demo model answers, and says so.
package main

import (
	"context"
	"flag"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/cli"
)

func main() { cli.Main(app()) }

func app() cli.App {
	flags := flag.NewFlagSet("catalog", flag.ContinueOnError)
	address := flags.String("catalog", "", "`URL` of the catalog (default one of the program's own)")
	timeout := flags.Duration("timeout", 15*time.Second, "`time` that one look into the catalog may take")
	return cli.App{
		Name:    "catalog",
		Summary: "An assistant that looks products up in a catalog",
		Example: "What does KET-01 cost?",
		Flags:   flags,
		Demo:    newDemo(),
		Setup: func(ctx context.Context, app *cli.App) (func() error, error) {
			base, release, err := open(ctx, *address)
			if err != nil {
				return nil, err
			}
			app.Agents = []*flue.Agent{assistant(base, *timeout)}
			return release, nil
		},
	}
}
