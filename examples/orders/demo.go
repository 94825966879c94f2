package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// newDemo returns the model that answers when there is no key for a real one: a
// script that knows how customers ask about orders and how the tools answer. It
// decides from the conversation alone, so it goes on after a restart as a real
// model would.
func newDemo() *script.Provider { return script.New(script.Func(decide)) }

func decide(req *model.Request) script.Turn {
	if results := script.LastResults(req); len(results) > 0 && script.Step(req) > 0 {
		return script.Say(report(results[0]) + scriptedNote)
	}
	text := script.LastUser(req)
	order := latestOrder(req)
	switch {
	case order == "":
		return script.Say("I can look an order up, or refund one that was delivered. Please tell me its number, such as ORD-2024-0042." + scriptedNote)
	case !asksForRefund.MatchString(text):
		return script.Call("lookup_order", LookupInput{OrderID: order})
	}
	reason, ok := reasonIn(text)
	if !ok {
		return script.Say("Was order " + order + " damaged, did you not receive it, or have you changed your mind? Please ask for the refund again with the reason." + scriptedNote)
	}
	return script.Call("refund_order", RefundInput{OrderID: order, Reason: reason})
}

// scriptedNote is in every reply, so that nobody takes it for a model's.
const scriptedNote = "\n\n(This reply was scripted: no model was asked.)"

var (
	orderNumber   = regexp.MustCompile(`ORD-[0-9]{4}-[0-9]{4}`)
	asksForRefund = regexp.MustCompile(`(?i)\b(refund|money back)`)

	reasons = []struct {
		words  *regexp.Regexp
		reason Reason
	}{
		{regexp.MustCompile(`(?i)\b(damaged|broken|cracked|defective)`), Damaged},
		{regexp.MustCompile(`(?i)\b(not received|never (arrived|came|received|got)|did ?n[o']t (arrive|come|receive|get)|not arrived|missing)`), NotReceived},
		{regexp.MustCompile(`(?i)\b(changed my mind|do ?n[o']t (want|need|like)|no longer (want|need))`), ChangedMind},
	}
)

// latestOrder is the order that was named last by a person.
func latestOrder(req *model.Request) string {
	for i := len(req.Messages) - 1; i >= 0; i-- {
		if req.Messages[i].Role != model.RoleUser {
			continue
		}
		for _, b := range req.Messages[i].Blocks {
			if all := orderNumber.FindAllString(strings.ToUpper(b.Text), -1); len(all) > 0 {
				return all[len(all)-1]
			}
		}
	}
	return ""
}

func reasonIn(text string) (Reason, bool) {
	for _, r := range reasons {
		if r.words.MatchString(text) {
			return r.reason, true
		}
	}
	return "", false
}

// report says in words what a tool answered.
func report(result model.Block) string {
	if result.IsError {
		why, _, _ := strings.Cut(result.Text, ";") // what follows is for the model
		return "That did not work: " + why + "."
	}
	var r Refund
	if err := json.Unmarshal([]byte(result.Text), &r); err == nil && r.ID != "" {
		return fmt.Sprintf("Refund %s over %s is on its way to you.", r.ID, r.Amount)
	}
	var o Order
	if err := json.Unmarshal([]byte(result.Text), &o); err != nil || o.ID == "" {
		return "The shop answered: " + result.Text
	}
	return describe(&o)
}

func describe(o *Order) string {
	what := fmt.Sprintf("Order %s (%s, %s) ", o.ID, o.Item, o.Amount)
	switch {
	case o.Refund != nil:
		what += fmt.Sprintf("was refunded: refund %s, %s.", o.Refund.ID, o.Refund.Amount)
	case o.Status == Delivered:
		what += "was delivered on " + o.DeliveredOn + "."
	case o.Status == "shipped":
		what += "has been shipped and should arrive by " + o.ExpectedOn + "."
	case o.Status == "processing":
		what += "is being packed and should arrive by " + o.ExpectedOn + "."
	default:
		what += "is " + string(o.Status) + "."
	}
	return what
}
