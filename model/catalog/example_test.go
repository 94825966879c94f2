package catalog_test

import (
	"fmt"

	"github.com/flue-go/flue/model/catalog"
)

func ExampleLookup() {
	info, ok := catalog.Lookup("anthropic", "claude-haiku-4-5")
	fmt.Println(ok, info.Name)
	fmt.Println(info.ContextWindow, info.MaxOutput, info.Images, info.Reasoning)
	fmt.Printf("$%.2f in, $%.2f out\n", info.Cost.Input, info.Cost.Output)
	// Output:
	// true Claude Haiku 4.5
	// 200000 64000 true true
	// $1.00 in, $5.00 out
}

func ExampleModels() {
	for id, info := range catalog.Models("deepseek") {
		fmt.Println(id, info.ContextWindow, info.Levels)
	}
	// Output:
	// deepseek-v4-flash 1000000 [low high max]
	// deepseek-v4-pro 1000000 [low high max]
}
