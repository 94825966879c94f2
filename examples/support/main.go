// Support is an agent made of two custom hooks: package workflow takes it through
// the states of a return, and package escalation hands a conversation over to
// people. Both are small, and can be used by any agent.
//
//	go run ./examples/support run --id ada -m "Order R-1 arrived broken, I want to return it"
//	go run ./examples/support run --id ada -m "I want to talk to a person"
//	go run ./examples/support run --id ada -m "And it was a gift"
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
		Name:    "support",
		Summary: "An assistant for returns that knows when to call a person",
		Example: "Order R-1 arrived broken, I want to return it",
		Agents:  []*flue.Agent{support(newShop(), newDesk())},
		Demo:    newDemo(),
	}
}
