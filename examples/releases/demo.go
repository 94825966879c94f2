package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// newDemo returns the model that answers when there is no key for a real one.
func newDemo() *script.Provider { return script.New(script.Func(decide)) }

// scriptedNote is in every reply, so that nobody takes it for a model's.
const scriptedNote = "\n\n(This reply was scripted: no model was asked.)"

var (
	release  = regexp.MustCompile(`(?i)publish ([a-z][a-z0-9-]*)[ @]([0-9]+\.[0-9]+\.[0-9]+(?:-[0-9a-z.-]*[0-9a-z])?)`)
	codeWord = regexp.MustCompile(`(?i)code is ([^\s,]+)`)
)

func decide(req *model.Request) script.Turn {
	person, told, results := latest(req)
	publish := script.Say(`Say "Publish flue 1.5.0".` + scriptedNote)
	if m := release.FindStringSubmatch(person); m != nil {
		publish = script.Call("publish_release", PublishInput{m[1], m[2]})
	}
	code := codeWord.FindStringSubmatch(person)
	switch {
	case told != "":
		return script.Say(told + scriptedNote)
	case len(results) == 0 && code != nil:
		return script.Call("record_approval", CodeInput{code[1]})
	case len(results) > 0 && (results[0].Name != "record_approval" || results[0].IsError):
		return script.Say(report(results[0]) + scriptedNote)
	case !slices.ContainsFunc(req.Tools, func(t model.Tool) bool { return t.Name == "publish_release" }):
		return script.Say("I have no tool to publish with. Publishing unlocks with an operator's code." + scriptedNote)
	}
	return publish
}

// latest returns what there is to answer: what a person has said last, what came
// of an approval since then, and what tools have answered, newest first.
func latest(req *model.Request) (person, told string, results []model.Block) {
	for _, m := range slices.Backward(req.Messages) {
		for _, b := range m.Blocks {
			switch {
			case m.Role == model.RoleTool:
				results = append(results, b)
			case m.Role != model.RoleUser:
			case strings.HasPrefix(b.Text, `<signal type="approval_result"`) && told == "":
				_, told, _ = strings.Cut(b.Text, ">\n")
				told = strings.TrimSuffix(told, "\n</signal>")
			case !strings.HasPrefix(b.Text, "<signal "):
				return b.Text, told, results
			}
		}
	}
	return "", told, results
}

func report(result model.Block) string {
	if result.IsError {
		return "That did not work: " + result.Text
	}
	var out struct {
		Release
		Status     string
		ApprovalID string
	}
	if err := json.Unmarshal([]byte(result.Text), &out); err != nil {
		return result.Text
	}
	if out.Status == "pending_approval" {
		return fmt.Sprintf("The release waits for an operator's approval, which has the id %s.", out.ApprovalID)
	}
	return fmt.Sprintf("Published: %s", out.URL)
}
