package cli

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
)

// An activity shows a person what the agents do, one line for each thing. It
// never holds the agents up: what cannot be shown in time is left out and
// counted.
type activity struct {
	models  *models
	own     store.Address // the instance that the person talks to
	damaged func(error)   // called when its journal cannot be continued

	lines chan string
	done  chan struct{}

	mu       sync.Mutex
	closed   bool
	dropped  int
	model    string // of the latest turn
	failed   bool   // the latest turn failed
	scripted bool   // the demo has answered; read after close
	used     used   // by the models that have answered; read after close
	resuming map[store.Address]bool
}

// compacted is the type of the event that tells of a summary, which a model has
// written.
const compacted flue.EventType = "compaction"

// waitingLines is how many lines may wait to be shown.
const waitingLines = 1024

// newActivity returns an activity that writes to w until it is closed.
func newActivity(w io.Writer, own store.Address, m *models, damaged func(error)) *activity {
	a := &activity{
		models: m, own: own, damaged: damaged,
		lines: make(chan string, waitingLines), done: make(chan struct{}), resuming: make(map[store.Address]bool),
	}
	go func() {
		defer close(a.done)
		for line := range a.lines {
			fmt.Fprintln(w, line)
		}
		if a.dropped > 0 { // nobody else touches it once the lines have ended
			fmt.Fprintln(w, leftOut(a.dropped))
		}
	}()
	return a
}

// close returns when everything has been shown. Later lines are left out.
func (a *activity) close() {
	a.mu.Lock()
	if !a.closed {
		a.closed = true
		close(a.lines)
	}
	a.mu.Unlock()
	<-a.done
}

// say shows a line that no event gave rise to.
func (a *activity) say(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.show(fmt.Sprintf(format, args...))
}

// show queues lines. The activity must be locked.
func (a *activity) show(lines ...string) {
	if a.closed {
		return
	}
	if a.dropped > 0 {
		select {
		case a.lines <- leftOut(a.dropped):
			a.dropped = 0
		default:
		}
	}
	for _, line := range lines {
		select {
		case a.lines <- line:
		default:
			a.dropped++
		}
	}
}

func leftOut(n int) string { return "(" + plural(n, "line") + " left out)" }

// observe shows an event.
func (a *activity) observe(ev flue.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ev.Instance != a.own {
		if ev.Type == flue.EventAttemptStarted && !a.resuming[ev.Instance] {
			a.resuming[ev.Instance] = true
			a.show("resume  unfinished work of " + line(ev.Instance.String()))
		}
		return
	}
	switch ev.Type {
	case flue.EventAttemptStarted:
		if ev.Attempt > 1 {
			a.show(fmt.Sprintf("resume  an interrupted message, attempt %d", ev.Attempt))
		}
	case flue.EventTurnStarted:
		if ev.Budget != nil && !a.failed {
			a.show("budget  used up: " + ev.Budget.String() + "; the model concludes")
		}
		a.turn(ev)
	case flue.EventTurnDone:
		if a.failed = ev.Error != nil; a.failed {
			a.show("error   " + clip(ev.Error.Error()))
		}
		if _, scripted := a.models.scripted(a.model); !scripted {
			a.used.add(ev)
		}
	case compacted:
		if _, scripted := a.models.scripted(ev.Model); !scripted && (ev.Usage != (model.Usage{}) || ev.Cost != (model.Expense{})) {
			a.used.add(ev)
		}
	case flue.EventToolStarted:
		a.show("call    " + line(ev.Tool) + " " + clip(ev.Input))
	case flue.EventToolDone:
		word := "result  "
		if !ev.OK {
			word = "failed  "
		}
		a.show(word + line(ev.Tool) + " (" + took(ev.Took) + ") " + clip(ev.Text))
	case flue.EventLog:
		a.show("log     " + line(ev.Tool) + " " + clip(logged(ev)))
	case flue.EventDamaged:
		a.damaged(ev.Error)
	}
}

// turn says which model is called, when that is news.
func (a *activity) turn(ev flue.Event) {
	if a.failed {
		a.show("retry   " + line(ev.Model))
	}
	if a.model == ev.Model {
		return
	}
	a.model = ev.Model
	variable, scripted := a.models.scripted(ev.Model)
	if !scripted {
		a.show("model   " + line(ev.Model))
		return
	}
	a.scripted = true
	a.show(
		"demo    Replies come from a scripted demo model, not from "+line(ev.Model)+".",
		"demo    Set "+variable+" in the environment or in "+defaultEnvFile+" to use the real model.",
	)
}

// tellUsed says what the models have used, if one has said so.
func (a *activity) tellUsed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used.any() {
		a.show("used    " + a.used.String())
	}
}

// took is a duration as a person wants it.
func took(d time.Duration) string {
	if d < time.Millisecond {
		return "<1ms"
	}
	return d.Round(time.Millisecond).String()
}

// logged is a line that a tool has logged.
func logged(ev flue.Event) string {
	var b strings.Builder
	if ev.Log.Level != slog.LevelInfo {
		b.WriteString(ev.Log.Level.String() + " ")
	}
	b.WriteString(ev.Log.Message)
	for _, at := range ev.Log.Attrs {
		b.WriteString(" " + at.String())
	}
	return b.String()
}

// shownRunes bounds what is shown of an argument, a result or an error.
const shownRunes = 240

// clip makes s fit into a line.
func clip(s string) string {
	n := 0
	for i := range s {
		if n++; n > shownRunes {
			return line(s[:i]) + "…"
		}
	}
	return line(s)
}

// line makes s safe to show in one line of a terminal: models and tools may
// have put anything into it.
func line(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\r', r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
