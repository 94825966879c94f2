package main

import (
	"regexp"
	"strings"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// newDemo returns the model that answers when there is no key for a real one.
func newDemo() *script.Provider { return script.New(script.Func(decide)) }

// scriptedNote is in every reply, so that nobody takes it for a model's.
const scriptedNote = "\n\n(This reply was scripted: no model was asked.)"

var orderNumber = regexp.MustCompile(`\b[A-Z]-[0-9]+\b`)

func decide(req *model.Request) script.Turn {
	if results := script.LastResults(req); len(results) > 0 && script.Step(req) > 0 {
		return script.Say(results[0].Text + scriptedNote)
	}
	order := orderNumber.FindString(strings.ToUpper(script.LastUser(req)))
	if order == "" {
		return script.Say("Which order? Please give me its number, such as A-1." + scriptedNote)
	}
	return script.Call("lookup_customer_order", LookupInput{OrderID: order})
}
