package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/cli"
	"github.com/flue-go/flue/examples/support/escalation"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// A visit is one conversation, with the tools that the model had last.
type visit struct {
	t     *testing.T
	in    *flue.Instance
	tools string
}

func newVisit(t *testing.T, shop *Shop, desk escalation.Desk, m *script.Provider) *visit {
	t.Helper()
	v := &visit{t: t}
	m.OnRequest = func(req *model.Request) {
		var names []string
		for _, tool := range req.Tools {
			names = append(names, tool.Name)
		}
		v.tools = strings.Join(names, " ")
	}
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{support(shop, desk)}, Providers: map[string]model.Provider{"anthropic": m},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(t.Context()) })
	v.in = rt.Instance("support", "ada")
	return v
}

func (v *visit) say(message string) string {
	v.t.Helper()
	receipt, err := v.in.Dispatch(v.t.Context(), flue.User(message))
	if err != nil {
		v.t.Fatal(err)
	}
	reply, err := v.in.Read(v.t.Context(), receipt.Submission)
	if err != nil {
		v.t.Fatal(err)
	}
	return strings.TrimSuffix(reply.Text, scriptedNote)
}

func TestConversation(t *testing.T) {
	shop, desk := newShop(), newDesk()
	v := newVisit(t, shop, desk, newDemo())
	for _, tt := range []struct{ say, want, tools string }{
		{"Hello!", "Which order would you like to return?", "escalate find_order"},
		{"R-9", "there is no order R-9 that could be returned", "escalate find_order"},
		{"Sorry, R-1", "Order R-1 is a hand drill and can be returned.", "escalate register_return find_order"},
		{"R-1 is broken", "The return of R-1 (broken) is registered.", "escalate"},
		{"Thanks", "The return is registered.", "escalate"},
		{"I want to talk to a person", "People take over, under the ticket T-1.", "add_to_case"},
		{"It was a gift", "Added to T-1.", "add_to_case"},
		{"And return R-2, too", "Added to T-1.", "add_to_case"},
	} {
		if got := v.say(tt.say); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%q: the model says %q, want %q", tt.say, got, tt.want)
		}
		if v.tools != tt.tools {
			t.Errorf("%q: the tools are %q in the end, want %q", tt.say, v.tools, tt.tools)
		}
	}
	if len(shop.returns) != 1 || len(desk.cases) != 1 || len(desk.notes) != 2 {
		t.Errorf("there are %d returns, %d cases and %d notes, want 1, 1 and 2", len(shop.returns), len(desk.cases), len(desk.notes))
	}
	if c := desk.cases[0]; c.Conversation != "ada" || c.Reason != escalation.Asked || !strings.Contains(c.Summary, "talk to a person") {
		t.Errorf("the case is %+v", c)
	}
}

// A model that goes ahead of the workflow finds no tool.
func TestNoShortcut(t *testing.T) {
	shop := newShop()
	v := newVisit(t, shop, newDesk(), script.New(script.Call("register_return", ReturnInput{"R-1", "broken"}),
		script.Func(func(req *model.Request) script.Turn { return script.Say(script.LastResults(req)[0].Text) })))
	if got := v.say("go"); got != "Tool register_return not found" || len(shop.returns) != 0 {
		t.Errorf("the model is told %q, and there are %d returns", got, len(shop.returns))
	}
}

// A closedDesk takes no cases.
type closedDesk struct{ *caseDesk }

func (closedDesk) Open(context.Context, escalation.Case) (string, error) {
	return "", errors.New("the desk is closed")
}

// If nobody takes over, the agent is not told that somebody has.
func TestClosedDesk(t *testing.T) {
	v := newVisit(t, newShop(), closedDesk{newDesk()}, newDemo())
	if got := v.say("I want to talk to a person"); got != "the desk is closed" || v.tools != "escalate find_order" {
		t.Errorf("the model says %q and has the tools %q", got, v.tools)
	}
}

// A conversation has one case, however often the model hands it over.
func TestOneCase(t *testing.T) {
	desk := newDesk()
	hand := escalation.Input{Reason: escalation.Urgent, Summary: "Smoke."}
	v := newVisit(t, newShop(), desk, script.New(script.Call("escalate", hand).Call("escalate", hand), script.Say("done")))
	if v.say("go"); len(desk.cases) != 1 || v.tools != "add_to_case" {
		t.Errorf("there are %d cases, and the tools are %q", len(desk.cases), v.tools)
	}
}

func TestRunWithoutKey(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "")
	t.Setenv("ANTHROPIC_BASE_URL", "")
	var stdout, stderr bytes.Buffer
	code := cli.Run(t.Context(), app(), []string{"run", "--db", ":memory:", "-m", "Order R-1 arrived broken, I want to return it"}, strings.NewReader(""), &stdout, &stderr)
	if want := "The return of R-1 (broken) is registered. Write R-1-RET on the parcel." + scriptedNote + "\n"; code != 0 || stdout.String() != want {
		t.Errorf("exit code %d and %q, want %q\n%s", code, stdout.String(), want, stderr.String())
	}
}
