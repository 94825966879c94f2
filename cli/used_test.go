package cli

import (
	"bytes"
	"testing"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
)

// What the models of a run have used is told at its end, that of others and of a
// script is not.
func TestActivityTellsWhatWasUsed(t *testing.T) {
	own, other := store.Address{Agent: "a", ID: "1"}, store.Address{Agent: "a", ID: "2"}
	usage := model.Usage{Input: 1000, Output: 200, CacheRead: 11_000}
	for _, tt := range []struct {
		name   string
		events []flue.Event
		want   string
	}{
		{"nothing", nil, ""},
		{"a call that failed", []flue.Event{{Type: flue.EventTurnDone, Cost: model.Expense{Unknown: 1}}}, ""},
		{
			"two calls and two summaries",
			[]flue.Event{
				{Type: flue.EventTurnStarted, Model: "p/m"},
				{Type: flue.EventTurnDone, Usage: usage, Cost: model.Expense{Dollars: 0.25}},
				{Type: flue.EventTurnDone, Usage: model.Usage{Output: 1}, Cost: model.Expense{Unknown: 1}},
				{Type: "compaction", Model: "p/small", Usage: model.Usage{Input: 500, Output: 9}, Cost: model.Expense{Dollars: 0.25}},
				{Type: "compaction", Model: "p/small", Cost: model.Expense{Unknown: 1, AtMost: 0.5}}, // one that was cut
				{Type: "compaction"}, // nothing was used
			},
			"model   p/m\nused    4 model calls, 12,500 tokens in (11,000 from the cache), 210 out, $0.5000 and 2 calls of unknown cost (estimated at no more than $0.5000)\n",
		},
		{
			"a script and another conversation",
			[]flue.Event{
				{Type: flue.EventTurnStarted, Model: "scripted/m"},
				{Type: flue.EventTurnDone, Usage: usage},
				{Type: flue.EventTurnDone, Instance: other, Usage: usage},
			},
			"demo    Replies come from a scripted demo model, not from scripted/m.\ndemo    Set KEY in the environment or in .env to use the real model.\n",
		},
	} {
		var out bytes.Buffer
		m := &models{missing: map[string]*model.Unavailable{"scripted": {Variables: []string{"KEY"}}}}
		a := newActivity(&out, own, m, nil)
		for _, ev := range tt.events {
			if ev.Instance == (store.Address{}) {
				ev.Instance = own
			}
			a.observe(ev)
		}
		a.tellUsed()
		a.close()
		if out.String() != tt.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.name, out.String(), tt.want)
		}
	}
}
