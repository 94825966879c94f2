package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/flue-go/flue/examples/support/escalation"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// newDemo returns the model that answers when there is no key for a real one.
// What it does depends on the tools that it is offered, as with a real model.
func newDemo() *script.Provider { return script.New(script.Func(decide)) }

// scriptedNote is in every reply, so that nobody takes it for a model's.
const scriptedNote = "\n\n(This reply was scripted: no model was asked.)"

var (
	orderNumber = regexp.MustCompile(`R-[0-9]+`)
	wantsPerson = regexp.MustCompile(`(?i)\b(person|human|somebody|manager)\b`)
	wantsReturn = regexp.MustCompile(`(?i)\b(return|broken|wrong)`)
)

func decide(req *model.Request) script.Turn {
	text, results := latest(req)
	order := orderNumber.FindString(strings.ToUpper(text))
	offered := func(name string) bool {
		return slices.ContainsFunc(req.Tools, func(t model.Tool) bool { return t.Name == name })
	}
	switch {
	case len(results) > 0 && results[0].Name == "find_order" && !results[0].IsError && wantsReturn.MatchString(text):
		return script.Call("register_return", ReturnInput{order, reason(text)})
	case len(results) > 0:
		return script.Say(results[0].Text + scriptedNote)
	case offered("add_to_case"):
		return script.Call("add_to_case", escalation.Note{Text: text})
	case wantsPerson.MatchString(text):
		return script.Call("escalate", escalation.Input{Reason: escalation.Asked, Summary: "The customer says: " + text})
	case order != "" && offered("find_order"):
		return script.Call("find_order", OrderInput{order})
	case offered("find_order"):
		return script.Say("Which order would you like to return? Please give me its number, such as R-1." + scriptedNote)
	}
	return script.Say("The return is registered. Is there anything that a person should look at?" + scriptedNote)
}

// latest returns what a person has said last, and what tools have answered since
// then, newest first.
func latest(req *model.Request) (person string, results []model.Block) {
	for _, m := range slices.Backward(req.Messages) {
		for _, b := range m.Blocks {
			switch {
			case m.Role == model.RoleTool:
				results = append(results, b)
			case m.Role == model.RoleUser && !strings.HasPrefix(b.Text, "<signal "):
				return b.Text, results
			}
		}
	}
	return "", results
}

func reason(text string) string {
	text = strings.ToLower(text)
	for _, r := range []string{"broken", "wrong"} {
		if strings.Contains(text, r) {
			return r
		}
	}
	return "unwanted"
}
