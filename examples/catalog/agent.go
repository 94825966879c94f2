package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/flue-go/flue"
)

func assistant(catalog *url.URL, timeout time.Duration) *flue.Agent {
	lookup := lookupCatalog(catalog, timeout)
	return &flue.Agent{
		Name: "catalog-assistant",
		Render: func(r *flue.Render) string {
			flue.UseModel(r, "anthropic/claude-haiku-4-5")
			flue.UseTool(r, lookup)
			return `Answer questions about products. Look a product up before you say anything about it.
If the catalog does not answer, say so and offer to try again later; do not try more than twice.`
		},
	}
}

// LookupInput is what the model passes to lookup_catalog. The pattern keeps it
// from reaching any other path of the server.
type LookupInput struct {
	SKU string `json:"sku" jsonschema:"product number, such as KET-01" pattern:"^[A-Z]{3}-[0-9]{2}$"`
}

// A Product is an entry of the catalog.
type Product struct {
	SKU   string `json:"sku"`
	Name  string `json:"name"`
	Price string `json:"price"`
}

// maxEntry bounds what is read of an answer, in bytes.
const maxEntry = 64 << 10

func lookupCatalog(catalog *url.URL, timeout time.Duration) *flue.ToolDefinition {
	return flue.NewTool(flue.Tool{
		Name:        "lookup_catalog",
		Description: "Look up one product in the catalog. Use it when somebody asks what a product is or costs. Returns its name and price.",
		Timeout:     timeout,
	}, func(ctx context.Context, in LookupInput) (*Product, error) {
		// The request has the call's context: when the time is up it is given up,
		// too. The call would end in time even if it were not.
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, catalog.JoinPath(in.SKU).String(), nil)
		if err != nil {
			return nil, err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		defer res.Body.Close()
		switch res.StatusCode {
		case http.StatusOK:
		case http.StatusNotFound:
			return nil, fmt.Errorf("there is no product %s; ask for the right number", in.SKU)
		default:
			return nil, fmt.Errorf("the catalog answered %s; it may work later", res.Status)
		}
		var p Product
		if err := json.NewDecoder(io.LimitReader(res.Body, maxEntry)).Decode(&p); err != nil {
			return nil, fmt.Errorf("reading the catalog's answer: %w", err)
		}
		return &p, nil
	})
}
