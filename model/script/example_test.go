package script_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// show prints an answer.
func show(p model.Provider, req *model.Request) {
	for event, err := range p.Stream(context.Background(), req) {
		switch e := event.(type) {
		case model.BlockDone:
			if e.Block.Kind == model.ToolCall {
				fmt.Println("call:", e.Block.Name, e.Block.Arguments)
			} else {
				fmt.Println("text:", e.Block.Text)
			}
		case model.Done:
			fmt.Println("done:", e.Stop, "by", e.Model)
		}
		if err != nil {
			fmt.Println("error:", err)
		}
	}
}

func ask(text string) *model.Request {
	return &model.Request{Model: "any", Messages: []model.Message{
		{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: text}}},
	}}
}

// One turn for each call.
func ExampleNew() {
	p := script.New(
		script.Fail(&model.Error{Class: model.Retryable, Message: "overloaded"}),
		script.Say("Let me look.").Call("lookup_order", map[string]string{"orderId": "ORD-1"}),
		script.Say("It has shipped."),
	)
	for range 3 {
		show(p, ask("Where is ORD-1?"))
	}
	// Output:
	// error: model provider scripted: overloaded
	// text: Let me look.
	// call: lookup_order {"orderId":"ORD-1"}
	// done: tool_use by scripted
	// text: It has shipped.
	// done: stop by scripted
}

// A script that decides from the conversation gives the same answers after a
// restart, and to any number of conversations.
func ExampleFunc() {
	p := script.New(script.Func(func(req *model.Request) script.Turn {
		switch text := script.LastUser(req); {
		case strings.Contains(text, "order") && script.Step(req) == 0:
			return script.Call("lookup_order", `{"orderId":"ORD-1"}`)
		case script.Step(req) > 0:
			return script.Say("The tool says: " + script.LastResults(req)[0].Text)
		default:
			return script.Say("You said: " + text)
		}
	}))
	show(p, ask("hello"))
	req := ask("my order?")
	show(p, req)
	req.Messages = append(req.Messages,
		model.Message{Role: model.RoleAssistant, Blocks: []model.Block{{Kind: model.ToolCall, CallID: "1", Name: "lookup_order"}}},
		model.Message{Role: model.RoleTool, Blocks: []model.Block{{Kind: model.ToolResult, CallID: "1", Text: "shipped"}}})
	show(p, req)
	// Output:
	// text: You said: hello
	// done: stop by scripted
	// call: lookup_order {"orderId":"ORD-1"}
	// done: tool_use by scripted
	// text: The tool says: shipped
	// done: stop by scripted
}
