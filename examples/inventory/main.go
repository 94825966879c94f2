// Inventory is an agent that tells how much of an item is in stock. Its tool
// holds what the stock system answers to a schema: a wrong answer is refused, and
// the model is told why instead of what.
//
//	go run ./examples/inventory run -m "How many of KETTLE-01 are there?"
//	go run ./examples/inventory run -m "How many of TEAPOT-02 are there?"
//
// With ANTHROPIC_API_KEY in the environment or in .env it asks Claude. Without
// one a scripted demo model answers, and says so.
package main

import (
	"github.com/flue-go/flue"
	"github.com/flue-go/flue/cli"
)

func main() { cli.Main(app()) }

func app() cli.App {
	return cli.App{
		Name:    "inventory",
		Summary: "An assistant that knows what is in stock",
		Example: "How many of KETTLE-01 are there?",
		Agents:  []*flue.Agent{assistant(stockSystem)},
		Demo:    newDemo(),
	}
}
