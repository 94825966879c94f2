package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/flue-go/flue"
)

// Stock is what check_inventory returns. The tags are part of its schema.
type Stock struct {
	InStock   int    `json:"inStock" min:"0" jsonschema:"pieces that can be sold now"`
	Warehouse string `json:"warehouse" enum:"porto,turku" jsonschema:"where they are"`
}

// A System answers what it has of an item. It belongs to somebody else: what it
// sends is JSON that may or may not be a Stock.
type System func(ctx context.Context, sku string) (json.RawMessage, error)

func assistant(system System) *flue.Agent {
	check := checkInventory(system)
	return &flue.Agent{
		Name: "inventory-assistant",
		Render: func(r *flue.Render) string {
			flue.UseModel(r, "anthropic/claude-haiku-4-5")
			flue.UseTool(r, check)
			return `Tell the staff of a shop how much of an item is in stock.
Check before you answer, and never guess a number. If the tool fails, say what is wrong.`
		},
	}
}

// CheckInput is what the model passes to check_inventory.
type CheckInput struct {
	SKU string `json:"sku" jsonschema:"item number, such as KETTLE-01" pattern:"^[A-Z]+-[0-9]{2}$"`
}

func checkInventory(system System) *flue.ToolDefinition {
	return flue.NewTool(flue.Tool{
		Name:        "check_inventory",
		Description: "Check the stock of one item. Use it whenever somebody asks how much there is. Returns the number of pieces and their warehouse.",
		Output:      flue.SchemaFor[Stock](),
	}, func(ctx context.Context, in CheckInput) (json.RawMessage, error) {
		return system(ctx, in.SKU)
	})
}

//go:embed stock.json
var stockJSON []byte

// stockSystem stands for a system that has been in use for long: some of its
// entries are wrong.
func stockSystem(_ context.Context, sku string) (json.RawMessage, error) {
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(stockJSON, &entries); err != nil {
		return nil, fmt.Errorf("reading the stock: %w", err)
	}
	entry, ok := entries[sku]
	if !ok {
		return nil, fmt.Errorf("there is no item %s; ask for the number on the label", sku)
	}
	return entry, nil
}
