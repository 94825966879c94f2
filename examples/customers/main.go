// Customers is an agent that answers customers about their own orders. Which
// customer a message comes from is said by the code that delivers it, in the
// attributes of a signal; the model cannot choose.
//
//	go run ./examples/customers run --as ada -m "Where is order A-1?"
//	go run ./examples/customers run --as ada -m "Where is order B-7?"
//	go run ./examples/customers run -m "Where is order A-1?"
//
// The second order is bob's, and the third command says for nobody. Customers
// themselves come over HTTP, each with a token of 16 characters or more. Without
// tokens nobody gets in.
//
//	CUSTOMER_TOKENS=ada=correct-horse-battery go run ./examples/customers serve
//	curl localhost:3000/agents/customer-orders/ada -H "Authorization: Bearer correct-horse-battery" -d '{"body":"Where is order A-1?"}'
//
// With ANTHROPIC_API_KEY in the environment or in .env it asks Claude. Without
// one a scripted demo model answers, and says so.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/cli"
)

func main() { cli.Main(app()) }

func app() cli.App {
	flags := flag.NewFlagSet("customers", flag.ContinueOnError)
	as := flags.String("as", "", "`customer` that the messages of the command run come from")
	return cli.App{
		Name:    "customers",
		Summary: "An assistant that shows customers their own orders",
		Example: "Where is order A-1?",
		Flags:   flags,
		Demo:    newDemo(),
		Setup: func(_ context.Context, app *cli.App) (func() error, error) {
			tokens, err := parseTokens(os.Getenv("CUSTOMER_TOKENS"))
			if err != nil {
				return nil, err
			}
			app.Agents = []*flue.Agent{customerOrders(*as)}
			app.Middleware = tokens.frontDoor
			return nil, nil
		},
	}
}
