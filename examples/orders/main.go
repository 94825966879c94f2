// Orders is an agent that answers the customers of a small shop: it looks
// orders up and refunds them.
//
//	go run ./examples/orders run -m "Where is order ORD-2024-0042?"
//	go run ./examples/orders serve
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
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	path := flags.String("shop", filepath.Join(".flue", "shop.db"), "`file` with the shop's orders, or "+inMemory)
	return cli.App{
		Name:    "orders",
		Summary: "An assistant for the customers of a shop",
		Example: "Where is order ORD-2024-0042?",
		Flags:   flags,
		Demo:    newDemo(),
		Setup: func(ctx context.Context, app *cli.App) (func() error, error) {
			shop, err := OpenShop(ctx, *path)
			if err != nil {
				return nil, err
			}
			app.Agents = []*flue.Agent{assistant(shop)}
			return shop.Close, nil
		},
	}
}
