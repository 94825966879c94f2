package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store/memstore"
)

// open runs the assistant with a model in place of Claude.
func open(t *testing.T, shop *Shop, m model.Provider) *flue.Runtime {
	t.Helper()
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{assistant(shop)}, Providers: map[string]model.Provider{"anthropic": m}, Store: memstore.New(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return rt
}

// ask sends a message and returns the reply.
func ask(t *testing.T, in *flue.Instance, message string) string {
	t.Helper()
	receipt, err := in.Dispatch(t.Context(), flue.User(message))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := in.Read(t.Context(), receipt.Submission)
	if err != nil {
		t.Fatal(err)
	}
	return reply.Text
}

func TestDemoConversation(t *testing.T) {
	shop := newShop(t, inMemory)
	in := open(t, shop, newDemo()).Instance("order-assistant", "customer-1")
	for _, turn := range []struct{ ask, want string }{
		{"Hello!", "I can look an order up, or refund one"},
		{"Where is order ORD-2024-0042?", "Order ORD-2024-0042 (pour-over kettle, 89.00 EUR) has been shipped and should arrive by 2024-12-02."},
		{"I want my money back.", "Was order ORD-2024-0042 damaged, did you not receive it, or have you changed your mind?"},
		{"A refund, because I changed my mind.", "That did not work: order ORD-2024-0042 is shipped, and only delivered orders can be refunded."},
		{"What about ord-2024-0041?", "Order ORD-2024-0041 (stoneware teapot, 64.50 EUR) was delivered on 2024-11-22."},
		{"Refund it please, it was broken.", "Refund RF-000001 over 64.50 EUR is on its way to you."},
		{"Refund it again, it was broken!", "That did not work: order ORD-2024-0041 was refunded already"},
		{"And where is it?", "was refunded: refund RF-000001, 64.50 EUR."},
		{"Where is ORD-2024-0099?", "That did not work: there is no order ORD-2024-0099"},
		{"Where is ORD-2024-0043?", "is being packed and should arrive by 2024-12-05."},
		{"Where is ORD-2024-0044?", "is cancelled."},
	} {
		got := ask(t, in, turn.ask)
		if !strings.Contains(got, turn.want) || !strings.HasSuffix(got, "(This reply was scripted: no model was asked.)") {
			t.Errorf("%q\n got %q\nwant %q, and that it is scripted", turn.ask, got, turn.want)
		}
	}
	if n := refunds(t, shop); n != 1 {
		t.Errorf("there are %d refunds, want 1", n)
	}
}

// What a model gets wrong never reaches the shop.
func TestBadArguments(t *testing.T) {
	tests := []struct{ name, tool, arguments, want string }{
		{"reason", "refund_order", `{"orderId":"ORD-2024-0041","reason":"bored"}`, "reason"},
		{"no reason", "refund_order", `{"orderId":"ORD-2024-0041"}`, "reason"},
		{"number", "lookup_order", `{"orderId":"42"}`, "orderId"},
		{"no number", "lookup_order", `{}`, "orderId"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			shop := newShop(t, inMemory)
			m := script.New(script.Call(tt.tool, tt.arguments), script.Func(func(req *model.Request) script.Turn {
				result := script.LastResults(req)[0]
				if !result.IsError {
					t.Error("the arguments were accepted")
				}
				return script.Say(result.Text)
			}))
			got := ask(t, open(t, shop, m).Instance("order-assistant", "a"), "go")
			if !strings.Contains(got, "Validation failed") || !strings.Contains(got, tt.want) {
				t.Errorf("the model is told %q, want what is wrong with %s", got, tt.want)
			}
			if n := refunds(t, shop); n != 0 {
				t.Errorf("there are %d refunds, want none", n)
			}
		})
	}
}

// The refund is recorded under the key of the call that asked for it, so that
// it can be issued once only.
func TestRefundIsTiedToItsCall(t *testing.T) {
	shop := newShop(t, inMemory)
	in := open(t, shop, newDemo()).Instance("order-assistant", "a")
	ask(t, in, "Refund ORD-2024-0041, it was damaged")
	var recorded string
	if err := shop.db.QueryRowContext(t.Context(), "SELECT call_id FROM refunds").Scan(&recorded); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(recorded, "call_") || len(recorded) != len("call_")+32 {
		t.Errorf("the refund is recorded under %q, want a call's key", recorded)
	}
}

func TestSchemas(t *testing.T) {
	shop := newShop(t, inMemory)
	var s struct {
		Required   []string
		Properties map[string]struct {
			Description, Pattern string
			Enum                 []string
		}
	}
	if err := json.Unmarshal(refundOrder(shop).InputSchema(), &s); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"damaged", "not_received", "changed_mind"}, s.Properties["reason"].Enum); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	if p := s.Properties["orderId"]; p.Pattern == "" || !strings.Contains(p.Description, "ORD-2024-0042") {
		t.Errorf("orderId is %+v, want a pattern and an example", p)
	}
	if diff := cmp.Diff([]string{"orderId", "reason"}, s.Required); diff != "" {
		t.Errorf("required (-want +got):\n%s", diff)
	}
}
