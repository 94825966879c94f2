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

var (
	deployment = regexp.MustCompile(`(?i)deploy ([a-z-]+) (v[0-9.]+[0-9])`)
	quoted     = regexp.MustCompile(`['"](.+)['"]`)
)

func decide(req *model.Request) script.Turn {
	text := script.LastUser(req)
	if results := script.LastResults(req); len(results) > 0 && script.Step(req) > 0 {
		return script.Say(report(results[0]) + scriptedNote)
	}
	if m := deployment.FindStringSubmatch(text); m != nil {
		return script.Call("deploy_service", DeployInput{m[1], m[2]})
	}
	if m := quoted.FindStringSubmatch(text); m != nil {
		return script.Call("search_code", SearchInput{m[1]})
	}
	return script.Say(`Say "Deploy web v1.4.0", or ask where something in quotes is in the code.` + scriptedNote)
}

func report(result model.Block) string {
	if result.IsError {
		return "That did not work: " + result.Text
	}
	var d Deployment
	if err := json.Unmarshal([]byte(result.Text), &d); err == nil && d.ID > 0 {
		return fmt.Sprintf("Deployment %d: %s is at %s.", d.ID, d.Service, d.Version)
	}
	var f Found
	if err := json.Unmarshal([]byte(result.Text), &f); err != nil || f.Matches == 0 {
		return "There is nothing like that in the code."
	}
	return fmt.Sprintf("Lines that have it: %d, in %s.", f.Matches, strings.Join(f.Files, ", "))
}
