package flue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// An agent, a message to it and its reply. The model is a script, so that the
// example runs without a key.
func Example() {
	type input struct {
		OrderID string `json:"orderId" jsonschema:"order number, such as ORD-2024-0042"`
	}
	lookup := flue.NewTool(flue.Tool{
		Name:        "lookup_order",
		Description: "Look up one order by its number.",
		Timeout:     15 * time.Second,
	}, func(_ context.Context, in input) (string, error) {
		return in.OrderID + " has shipped", nil
	})
	assistant := &flue.Agent{Name: "order-assistant", Render: func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		flue.UseTool(r, lookup)
		return "Help customers check the status of their orders."
	}}

	ctx := context.Background()
	rt, err := flue.Open(ctx, flue.Config{
		Agents: []*flue.Agent{assistant},
		Providers: map[string]model.Provider{"demo": script.New(
			script.Call("lookup_order", map[string]string{"orderId": "ORD-2024-0042"}),
			script.Say("Your order has shipped."),
		)},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)

	customer := rt.Instance("order-assistant", "customer-7")
	receipt, err := customer.Dispatch(ctx, flue.User("Where is order ORD-2024-0042?"))
	if err != nil {
		log.Fatal(err)
	}
	reply, err := customer.Read(ctx, receipt.Submission)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Text)
	// Output: Your order has shipped.
}

// State that a tool writes decides what the next render offers.
func ExampleUsePersistentState() {
	type approval struct {
		Code string `json:"code"`
	}
	publish := flue.NewTool(flue.Tool{Name: "publish", Description: "Publish the release."},
		func(context.Context, struct{}) (string, error) { return "published", nil })
	render := func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		approved := flue.UsePersistentState(r, "approved", false)
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "record_approval", Description: "Record the operator's approval code."},
			func(ctx context.Context, in approval) (string, error) {
				if in.Code != "4711" {
					return "Invalid approval code.", nil
				}
				return "Approved.", approved.Set(ctx, true)
			}))
		if approved.Value() {
			flue.UseTool(r, publish)
		}
		return "Publishing unlocks once an operator approves."
	}
	demo := script.Func(func(req *model.Request) script.Turn {
		if script.Step(req) == 0 {
			return script.Call("record_approval", map[string]string{"code": "4711"})
		}
		return script.Say(fmt.Sprintf("I have %d tools now.", len(req.Tools)))
	})

	ctx := context.Background()
	rt, err := flue.Open(ctx, flue.Config{
		Agents: []*flue.Agent{{Name: "release-manager", Render: render}}, Providers: map[string]model.Provider{"demo": script.New(demo)},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)
	release := rt.Instance("release-manager", "v2")
	receipt, err := release.Dispatch(ctx, flue.User("The code is 4711."))
	if err != nil {
		log.Fatal(err)
	}
	reply, err := release.Read(ctx, receipt.Submission)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Text)
	// Output: I have 2 tools now.
}

// A schema is what the model is shown and what its arguments are held to.
func ExampleToolDefinition_InputSchema() {
	type refund struct {
		OrderID string `json:"orderId" jsonschema:"order number"`
		Reason  string `json:"reason" enum:"damaged,not_received,changed_mind"`
		Note    string `json:"note,omitempty"`
	}
	tool := flue.NewTool(flue.Tool{Name: "refund_order", Description: "Refund a delivered order."},
		func(context.Context, refund) (string, error) { return "", nil })
	fmt.Println(string(tool.InputSchema()))
	// Output: {"type":"object","properties":{"orderId":{"type":"string","description":"order number"},"reason":{"type":"string","enum":["damaged","not_received","changed_mind"]},"note":{"type":"string"}},"required":["orderId","reason"],"additionalProperties":false}
}

// A handler is mounted like any other. Errors say by a code what went wrong.
func ExampleRuntime_Handler() {
	ctx := context.Background()
	rt, err := flue.Open(ctx, flue.Config{
		Agents:    []*flue.Agent{{Name: "chat", Render: func(r *flue.Render) string { flue.UseModel(r, "demo/any"); return "" }}},
		Providers: map[string]model.Provider{"demo": script.New(script.Say("hello"))},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)
	mux := http.NewServeMux()
	mux.Handle("/agents/chat/", http.StripPrefix("/agents/chat", rt.Handler("chat")))
	srv := httptest.NewServer(mux)
	defer srv.Close()

	res, err := http.Post(srv.URL+"/agents/chat/c1", "application/json", strings.NewReader(`{"kind":"user","body":"hi"}`))
	if err != nil {
		log.Fatal(err)
	}
	res.Body.Close()
	fmt.Println(res.Status)

	_, err = rt.Instance("chat", "nobody").Conversation(ctx)
	fmt.Println(errors.Is(err, &flue.Error{Code: flue.CodeConversationMissing}))
	// Output:
	// 202 Accepted
	// true
}
