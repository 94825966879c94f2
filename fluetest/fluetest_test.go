package fluetest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

func TestPath(t *testing.T) {
	deaths := []Death{{3, faultstore.After}, {12, faultstore.Late}}
	if got := path(deaths); got != "3:after,12:late" {
		t.Errorf("path = %q", got)
	}
	got, err := parsePath("3:after, 12:late")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(deaths, got); diff != "" {
		t.Errorf("parsePath (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"3", "after", "0:after", "3:sometimes", "3:after,"} {
		if _, err := parsePath(bad); err == nil {
			t.Errorf("parsePath(%q) succeeds", bad)
		}
	}
}

func TestWellFormed(t *testing.T) {
	user := model.Message{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: "go"}}}
	calls := func(ids ...string) model.Message {
		m := model.Message{Role: model.RoleAssistant}
		for _, id := range ids {
			m.Blocks = append(m.Blocks, model.Block{Kind: model.ToolCall, CallID: id})
		}
		return m
	}
	results := func(ids ...string) model.Message {
		m := model.Message{Role: model.RoleTool}
		for _, id := range ids {
			m.Blocks = append(m.Blocks, model.Block{Kind: model.ToolResult, CallID: id})
		}
		return m
	}
	tests := []struct {
		name     string
		messages []model.Message
		want     string // in the error; empty if there must be none
	}{
		{"as it should be", []model.Message{user, calls("a", "b"), results("a", "b"), user}, ""},
		{"nothing", nil, "no messages"},
		{"no results", []model.Message{user, calls("a"), user}, "message 2"},
		{"another order", []model.Message{user, calls("a", "b"), results("b", "a")}, "message 2"},
		{"twice", []model.Message{user, calls("a"), results("a"), results("a")}, "message 3"},
		{"the model's own at the end", []model.Message{user, calls()}, "own message"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := wellFormed(tt.messages)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("wellFormed = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestInterruption(t *testing.T) {
	tests := []struct {
		signal string
		want   word
		ok     bool
	}{
		{"<signal type=\"stream_interrupted\">\nIt was cut.\n</signal>", word{text: "It was cut."}, true},
		{"<signal type=\"approval_result\" approvalId=\"call_1_0\" status=\"unknown\" tool=\"pay\">\nDana approved the call call_1_0 of pay.\n</signal>", word{text: "Dana approved the call of pay.", of: "pay"}, true},
		{"<signal type=\"approval_result\" status=\"executed\" tool=\"pay\">\nIt was run.\n</signal>", word{}, false},
		{"<signal type=\"news\">\nstream_interrupted\n</signal>", word{}, false},
	}
	for _, tt := range tests {
		got, ok := interruption(tt.signal)
		if ok != tt.ok || ok && got != tt.want {
			t.Errorf("interruption(%q) = %+v, %v", tt.signal, got, ok)
		}
	}
}

func TestDescribe(t *testing.T) {
	call := func(id, name string) journal.Block {
		return journal.Block{Kind: journal.ToolCall, Call: id, Name: name}
	}
	value := []byte("true")
	tests := []struct {
		records []journal.Record
		want    string
	}{
		{[]journal.Record{&journal.Born{}, &journal.Admitted{Message: journal.Message{Kind: journal.User, Body: "go"}}}, `the acceptance of "go"`},
		{[]journal.Record{&journal.Attempt{}}, "the start of an attempt"},
		{[]journal.Record{&journal.TurnDone{Blocks: []journal.Block{call("a", "add"), call("b", "ship"), call("c", "add")}}}, "the model's call of add (2 times) and ship"},
		{[]journal.Record{&journal.Outcome{Tool: "add"}, &journal.Outcome{Tool: "add"}, &journal.ToolBatch{}}, "the outcome of add"},
		{[]journal.Record{&journal.Step{Scope: journal.CallScope("a"), Name: "one", Value: value}}, `step "one" of add`},
		{[]journal.Record{&journal.Step{Scope: journal.CallScope("a"), Name: "two"}}, `the beginning of step "two" of add`},
		{[]journal.Record{&journal.Step{Scope: journal.StartScope("s"), Name: "log", Value: value}}, `step "log" of a hook of UseAgentStart`},
		{[]journal.Record{&journal.TurnDone{Stop: journal.StopEnd}, &journal.Seam{Name: journal.SeamClosed}, &journal.Settled{}}, "the model's answer, the end of the response"},
		{[]journal.Record{&journal.Abort{}}, "the request to abort"},
	}
	c := &calls{tools: make(map[string]string)}
	for _, tt := range tests {
		payload, err := journal.Encode(journal.Batch{Records: tt.records})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.describe(payload); got != tt.want {
			t.Errorf("describe = %q, want %q", got, tt.want)
		}
	}
}
