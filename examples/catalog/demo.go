package main

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// newDemo returns the model that answers when there is no key for a real one.
func newDemo() *script.Provider { return script.New(script.Func(decide)) }

// scriptedNote is in every reply, so that nobody takes it for a model's.
const scriptedNote = "\n\n(This reply was scripted: no model was asked.)"

var productNumber = regexp.MustCompile(`[A-Z]{3}-[0-9]{2}`)

func decide(req *model.Request) script.Turn {
	if results := script.LastResults(req); len(results) > 0 && script.Step(req) > 0 {
		return script.Say(report(results[0]) + scriptedNote)
	}
	sku := productNumber.FindString(strings.ToUpper(script.LastUser(req)))
	if sku == "" {
		return script.Say("Which product? Please give me its number, such as KET-01." + scriptedNote)
	}
	return script.Call("lookup_catalog", LookupInput{SKU: sku})
}

func report(result model.Block) string {
	var p Product
	if err := json.Unmarshal([]byte(result.Text), &p); result.IsError || err != nil {
		return "I could not look it up: " + result.Text
	}
	return "The " + p.Name + " costs " + p.Price + "."
}
