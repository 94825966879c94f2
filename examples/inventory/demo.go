package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// newDemo returns the model that answers when there is no key for a real one.
func newDemo() *script.Provider { return script.New(script.Func(decide)) }

// scriptedNote is in every reply, so that nobody takes it for a model's.
const scriptedNote = "\n\n(This reply was scripted: no model was asked.)"

var itemNumber = regexp.MustCompile(`[A-Z]+-[0-9]{2}`)

func decide(req *model.Request) script.Turn {
	if results := script.LastResults(req); len(results) > 0 && script.Step(req) > 0 {
		return script.Say(report(results[0]) + scriptedNote)
	}
	sku := itemNumber.FindString(strings.ToUpper(script.LastUser(req)))
	if sku == "" {
		return script.Say("Which item? Please give me its number, such as KETTLE-01." + scriptedNote)
	}
	return script.Call("check_inventory", CheckInput{SKU: sku})
}

func report(result model.Block) string {
	var s Stock
	if err := json.Unmarshal([]byte(result.Text), &s); result.IsError || err != nil {
		return "I cannot give you a number. " + result.Text
	}
	return fmt.Sprintf("There are %d in %s.", s.InStock, s.Warehouse)
}
