package main

import (
	"strings"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// demo answers when there is no key for a real model. It shows that tools work,
// and claims nothing more.
func demo(req *model.Request) script.Turn {
	if results := script.LastResults(req); len(results) > 0 && script.Step(req) > 0 {
		return script.Say("The tool answers: " + results[0].Text + scriptedNote)
	}
	text := strings.ToLower(script.LastUser(req))
	for _, word := range []string{"time", "date", "day"} {
		if strings.Contains(text, word) {
			return script.Call("current_time", nil)
		}
	}
	return script.Say("I am a script and understand nothing but questions about the time." + scriptedNote)
}

// scriptedNote is in every reply, so that nobody takes it for a model's.
const scriptedNote = "\n\n(This reply was scripted: no model was asked.)"
