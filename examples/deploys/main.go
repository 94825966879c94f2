// Deploys is an agent that deploys services, those on a list and no others, and
// that searches code. A service that is not on the list is an error that the
// model sees, and tells the user of.
//
//	go run ./examples/deploys run -m "Deploy web v1.4.0"
//	go run ./examples/deploys run -m "Deploy billing v1.4.0"
//	go run ./examples/deploys run -m "Where is 'CallKey' used?"
//
// With ANTHROPIC_API_KEY in the environment or in .env it asks Claude. Without
// one a scripted demo model answers, and says so.
package main

import (
	"context"
	"embed"
	"flag"
	"strings"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/cli"
)

// source is the code that search_code searches: that of this program.
//
//go:embed agent.go fleet.go main.go
var source embed.FS

func main() { cli.Main(app()) }

func app() cli.App {
	flags := flag.NewFlagSet("deploys", flag.ContinueOnError)
	allowed := flags.String("allow", "web,worker", "`names` of the services that may be deployed")
	return cli.App{
		Name:    "deploys",
		Summary: "An assistant that deploys services and searches code",
		Example: "Deploy web v1.4.0",
		Flags:   flags,
		Demo:    newDemo(),
		Setup: func(_ context.Context, app *cli.App) (func() error, error) {
			app.Agents = []*flue.Agent{assistant(newFleet(strings.Split(*allowed, ",")), source)}
			return nil, nil
		},
	}
}
