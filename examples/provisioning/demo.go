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
// It decides from the conversation alone, so it goes on after a crash as a real
// model would.
func newDemo() *script.Provider { return script.New(script.Func(decide)) }

// scriptedNote is in every reply, so that nobody takes it for a model's.
const scriptedNote = "\n\n(This reply was scripted: no model was asked.)"

var customerNumber = regexp.MustCompile(`cus_[0-9]+`)

func decide(req *model.Request) script.Turn {
	if results := script.LastResults(req); len(results) > 0 && script.Step(req) > 0 {
		return script.Say(report(results[0]) + scriptedNote)
	}
	customer := customerNumber.FindString(strings.ToLower(script.LastUser(req)))
	if customer == "" {
		return script.Say("For which customer? Please give me the number, such as cus_7." + scriptedNote)
	}
	return script.Call("provision_workspace", ProvisionInput{CustomerID: customer})
}

func report(result model.Block) string {
	var p Provisioned
	if err := json.Unmarshal([]byte(result.Text), &p); result.IsError || err != nil {
		return "That did not work: " + result.Text
	}
	return fmt.Sprintf("The workspace is ready: tenant %s with %d projects.", p.TenantID, p.Projects)
}
