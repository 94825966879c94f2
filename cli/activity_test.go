package cli

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

func TestActivity(t *testing.T) {
	own, other := store.Address{Agent: "a", ID: "1"}, store.Address{Agent: "a", ID: "2"}
	damage := errors.New("torn")
	halfWay := &engine.LogLine{Level: slog.LevelWarn, Message: "half way", Attrs: []slog.Attr{slog.Int("n", 1)}}
	tests := []struct {
		name   string
		events []flue.Event
		want   []string
	}{
		{
			"a first attempt is no news",
			[]flue.Event{{Type: flue.EventAdmitted}, {Type: flue.EventAttemptStarted, Attempt: 1, Reason: "first"}, {Type: flue.EventText, Text: "x"}, {Type: flue.EventSettled}},
			nil,
		},
		{
			"an interrupted one is",
			[]flue.Event{{Type: flue.EventAttemptStarted, Attempt: 2}},
			[]string{"resume  an interrupted message, attempt 2"},
		},
		{
			"the model is named when it changes",
			[]flue.Event{{Type: flue.EventTurnStarted, Model: "p/one"}, {Type: flue.EventTurnDone}, {Type: flue.EventTurnStarted, Model: "p/one"}, {Type: flue.EventTurnStarted, Model: "p/two"}},
			[]string{"model   p/one", "model   p/two"},
		},
		{
			"a failed call and its repetition",
			[]flue.Event{
				{Type: flue.EventTurnStarted, Model: "p/one"},
				{Type: flue.EventTurnDone, Error: errors.New("529: overloaded")},
				{Type: flue.EventTurnStarted, Model: "p/one"},
				{Type: flue.EventTurnDone},
				{Type: flue.EventTurnStarted, Model: "p/one"},
			},
			[]string{"model   p/one", "error   529: overloaded", "retry   p/one"},
		},
		{
			"a budget that is used up",
			[]flue.Event{{Type: flue.EventTurnStarted, Model: "p/one", Budget: &flue.ExhaustedBudget{Scope: journal.ScopeInstance, Limit: journal.LimitTurns}}},
			[]string{"budget  used up: turns of the instance; the model concludes", "model   p/one"},
		},
		{
			"tools",
			[]flue.Event{
				{Type: flue.EventToolStarted, Tool: "t", Input: `{"a":1}`},
				{Type: flue.EventLog, Tool: "t", Log: halfWay},
				{Type: flue.EventToolDone, Tool: "t", OK: true, Text: "fine", Took: 1500 * time.Microsecond},
				{Type: flue.EventToolDone, Tool: "t", Text: "bad", Took: 90 * time.Second},
			},
			[]string{`call    t {"a":1}`, "log     t WARN half way n=1", "result  t (2ms) fine", "failed  t (1m30s) bad"},
		},
		{
			"text that would act on a terminal",
			[]flue.Event{{Type: flue.EventToolStarted, Tool: "t\x1b[2J", Input: "a\r\nb\tc\x07\u202edesrever\u009b1m\xff"}},
			[]string{"call    t\ufffd[2J a  b c\ufffd\ufffddesrever\ufffd1m\ufffd"},
		},
		{
			"text that is long",
			[]flue.Event{{Type: flue.EventToolDone, Tool: "t", OK: true, Text: strings.Repeat("ö", shownRunes) + "end"}},
			[]string{"result  t (<1ms) " + strings.Repeat("ö", shownRunes) + "…"},
		},
		{
			"other instances",
			[]flue.Event{{Instance: other, Type: flue.EventAttemptStarted}, {Instance: other, Type: flue.EventToolStarted, Tool: "t"}, {Instance: other, Type: flue.EventAttemptStarted}, {Instance: other, Type: flue.EventDamaged, Error: damage}},
			[]string{"resume  unfinished work of agents/a/2"},
		},
		{
			"damage",
			[]flue.Event{{Type: flue.EventDamaged, Error: damage}},
			[]string{"(told of the damage: torn)"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			var told string
			a := newActivity(&out, own, &models{}, func(err error) { told = "(told of the damage: " + err.Error() + ")\n" })
			for _, ev := range tt.events {
				if ev.Instance == (store.Address{}) {
					ev.Instance = own
				}
				a.observe(ev)
			}
			a.close()
			a.observe(flue.Event{Type: flue.EventToolStarted, Instance: own, Tool: "late"})
			want := ""
			for _, line := range tt.want {
				want += line + "\n"
			}
			if diff := cmp.Diff(want, out.String()+told); diff != "" {
				t.Errorf("activity (-want +got):\n%s", diff)
			}
		})
	}
}

// A terminal that does not take what it is sent does not hold up the agents.
func TestActivityNeverBlocks(t *testing.T) {
	r, w := io.Pipe()
	own := store.Address{Agent: "a", ID: "1"}
	a := newActivity(w, own, &models{}, nil)
	const events = 3 * waitingLines
	for range events {
		a.observe(flue.Event{Type: flue.EventToolStarted, Instance: own, Tool: "t", Input: "{}"})
	}
	shown := make(chan string, 1)
	go func() {
		text, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		shown <- string(text)
	}()
	a.close()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got := <-shown
	lines, left := strings.Count(got, "call    t {}\n"), 0
	for _, m := range regexp.MustCompile(`(?m)^\((\d+) lines? left out\)$`).FindAllStringSubmatch(got, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		left += n
	}
	if lines < waitingLines || lines+left != events {
		t.Errorf("%d lines were shown and %d said to be left out, of %d", lines, left, events)
	}
}
