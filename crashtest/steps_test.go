package crashtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-json-experiment/json"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/internal/linear"
)

// stepNames are the steps of a durable call, in order. The second one must not
// happen twice.
var stepNames = []string{"first", "once", "last"}

// durable returns a tool whose work is made of steps. The ledger of steps gives
// each its value, and is told what came of it.
func (s *server) durable(name string) *flue.ToolDefinition {
	return flue.NewDurableTool(flue.Tool{Name: name, Description: "Work in steps."}, func(ctx context.Context, step *flue.Step, _ order) (string, error) {
		id := flue.CallID(ctx)
		for _, name := range stepNames {
			if err := s.step(ctx, step, stepEntry{Call: id, Step: name}); err != nil {
				return "", err
			}
		}
		return okText(id), nil
	})
}

// A stepEntry is what the ledger of steps is told.
type stepEntry struct {
	Call, Step string
	What       string
	Run        string // which names this run of the step
	By         string
	At         int64 // when, in Unix nanoseconds
	Value      string
}

// What may have happened to a step.
const (
	stepBegins = "begins" // somebody asks for its value
	stepMade   = "made"   // its function is called
	stepEnds   = "ends"   // it has returned
)

// step runs one step, and tells the ledger. A step that cannot be told of is as
// good as one whose process has died.
func (s *server) step(ctx context.Context, step *flue.Step, e stepEntry) error {
	tell := func(ctx context.Context, what, value string) (string, error) {
		e.What, e.Value, e.At = what, value, time.Now().UnixNano()
		said, err := s.post(ctx, "/steps", e)
		return string(said), err
	}
	e.By = s.by
	var err error
	if e.Run, err = tell(ctx, stepBegins, ""); err != nil {
		return err
	}
	do := flue.Do[string]
	if e.Step == "once" {
		do = flue.DoOnce[string]
	}
	value, err := do(ctx, step, e.Step, func(ctx context.Context) (string, error) {
		made, err := tell(ctx, stepMade, "")
		pause(ctx, time.Duration(s.pace)*rand.N(5*time.Millisecond))
		return made, err
	})
	if err != nil {
		return err
	}
	_, err = tell(context.WithoutCancel(ctx), stepEnds, value)
	return err
}

// steps is the ledger of steps. Like the rest of the world it survives.
type steps struct {
	*complaints
	began time.Time

	mu       sync.Mutex
	runs     []*porcupine.Operation // of steps, in the order in which they began
	made     map[string][]int64     // when the function of a step was called
	recorded map[string]int64       // when a step is known to have a value
}

func newSteps(c *complaints) *steps {
	return &steps{complaints: c, began: time.Now(), made: make(map[string][]int64), recorded: make(map[string]int64)}
}

func (l *steps) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	var e stepEntry
	if err := json.UnmarshalRead(r.Body, &e); err != nil {
		return // the server died while it wrote
	}
	_, _ = fmt.Fprint(rw, l.note(e)) // the server may have died by now
}

// note takes an entry, and returns what the server is told.
func (l *steps) note(e stepEntry) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := int64(time.Since(l.began))
	key := e.Call + " " + e.Step
	if e.What == stepBegins {
		l.runs = append(l.runs, &porcupine.Operation{
			Input: linear.StepRun{Key: key}, Output: linear.StepResult{}, Call: now, Return: linear.Infinity,
		})
		return strconv.Itoa(len(l.runs) - 1)
	}
	n, err := strconv.Atoi(e.Run)
	if err != nil || n < 0 || n >= len(l.runs) {
		l.complain("the step %s %s of run %q", key, e.What, e.Run)
		return ""
	}
	op := l.runs[n]
	out := op.Output.(linear.StepResult)
	switch e.What {
	case stepMade:
		// A process that was stopped just before it told may have begun in time.
		if at, ok := l.recorded[key]; ok && e.At > at {
			l.complain("the step %s was run again by %s after its value had been recorded", key, e.By)
		}
		l.made[key] = append(l.made[key], e.At)
		if e.Step == "once" && len(l.made[key]) > 1 {
			l.complain("the step %s, which must happen once, happened %d times, the last time by %s", key, len(l.made[key]), e.By)
		}
		out.Made = fmt.Sprintf("%s %d", key, len(l.made[key]))
		op.Output = out
		return out.Made
	case stepEnds:
		out.Value, out.Known = e.Value, true
		op.Output, op.Return = out, now
		if _, ok := l.recorded[key]; !ok {
			l.recorded[key] = e.At
		}
	}
	return ""
}

// finished reports whether all steps of a call have been made.
func (l *steps) finished(call string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range stepNames {
		if len(l.made[call+" "+name]) == 0 {
			return false
		}
	}
	return true
}

// strays complains of steps of calls that are not known.
func (l *steps) strays(known map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.made {
		if call, _, _ := strings.Cut(key, " "); !known[call] {
			l.complain("the step %s was made, and no journal has its call", key)
		}
	}
}

// history is what happened, as it is judged. Runs that have made nothing and are
// not known to have ended tell nothing.
func (l *steps) history() []porcupine.Operation {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []porcupine.Operation
	for _, op := range l.runs {
		if res := op.Output.(linear.StepResult); res.Known || res.Made != "" {
			out = append(out, *op)
		}
	}
	return out
}
