package fluetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flue-go/flue"
)

// A World is what is outside of the agent's process: card networks, mail servers,
// other people's databases. It outlives the process. Each process has a handle of
// its own, which is of no use any more when the process has died.
//
// A World is safe for concurrent use.
type World struct {
	life *life
	*outside
}

// outside is the world of one run.
type outside struct {
	mu      sync.Mutex
	effects []effect
	keys    map[[2]string]bool
	shared  map[string]any
	closed  bool // what happens now no longer counts
}

func newOutside() *outside {
	return &outside{keys: make(map[[2]string]bool), shared: make(map[string]any)}
}

// An effect is something that was done to the world.
type effect struct {
	what     string
	at       place
	call     string // the key of the call, if it was made in one
	key      string // that the world was given
	absorbed bool   // the world knew the key, and did nothing
	life     int
}

// Effect does something to the world: it stands for a request to another system
// that knows no idempotency keys. What says what it is, such as "charge card"; a
// scenario that does something to several objects names them, such as
// "charge ORD-1".
//
// Pass the context of the tool call or the hook: the report says which of them it
// was. Like any request, Effect fails when the context has ended, and nothing
// happens then; nor does anything when the process has died.
func (w *World) Effect(ctx context.Context, what string) error { return w.effect(ctx, what, "") }

// EffectWithKey is [World.Effect] for a system that does the same thing only once
// for a key. An empty key is none: [flue.CallKey] is empty outside of tool calls.
func (w *World) EffectWithKey(ctx context.Context, what, key string) error {
	return w.effect(ctx, what, key)
}

func (w *World) effect(ctx context.Context, what, key string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if w.life.isDead() { // the process stands still until it is gone
		select {
		case <-ctx.Done():
		case <-w.life.closing:
		}
		return errDead
	}
	e := effect{what: what, at: whereNow(), call: flue.CallKey(ctx), key: key, life: w.life.n}
	if id := flue.CallID(ctx); id != "" {
		e.at.tool = w.life.toolOf(id)
	}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	if key != "" {
		known := [2]string{what, key}
		e.absorbed, w.keys[known] = w.keys[known], true
	}
	w.effects = append(w.effects, e)
	w.mu.Unlock()
	note := ""
	if e.absorbed {
		note = ", which was done before under its key"
	}
	w.life.run.tell("    %q in %s%s", what, e.at, note)
	return nil
}

var errDead = errors.New("fluetest: the process has died")

// Happened returns how often an effect has happened so far: it stands for asking
// the other system, before doing something again.
func (w *World) Happened(what string) int {
	n := 0
	for _, e := range w.all() {
		if e.what == what && !e.absorbed {
			n++
		}
	}
	return n
}

// Life returns which process of the run this is, from 1.
func (w *World) Life() int { return w.life.n + 1 }

func (o *outside) all() []effect {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.effects[:len(o.effects):len(o.effects)]
}

func (o *outside) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}

// Outside returns the object of a name that outlives the processes of a run, such
// as a fake of another system that keeps something. It is made when it is first
// asked for in the run.
func Outside[T any](w *World, name string, create func() T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shared[name] == nil {
		w.shared[name] = create()
	}
	v, ok := w.shared[name].(T)
	if !ok {
		panic(fmt.Sprintf("fluetest: Outside: %q is a %T, not a %v", name, w.shared[name], reflect.TypeFor[T]()))
	}
	return v
}

// A place is where in the agent something was done.
type place struct {
	unit unit
	hook string // of inHook
	tool string // of a tool call
	step stepKind
}

// A unit is the kind of code that something was done in.
type unit uint8

const (
	elsewhere  unit = iota // in a goroutine of the agent's own
	inOrdinary             // an ordinary tool
	inDurable              // a durable tool
	inHook                 // the callback of a hook
	inRender               // the agent function
)

type stepKind uint8

const (
	noStep stepKind = iota
	doStep
	doOnceStep
)

func (p place) String() string {
	var s string
	switch {
	case p.unit == inHook:
		s = "a hook of " + p.hook
	case p.unit == inRender:
		return "the agent function"
	case p.tool != "":
		s = p.tool
	case p.unit == inOrdinary, p.unit == inDurable: // with a context that is not the call's
		s = "a tool"
	default:
		s = "code outside of any call"
	}
	switch {
	case p.step == doStep:
		return "a step of " + s
	case p.step == doOnceStep:
		return "a DoOnce step of " + s
	case p.unit == inDurable:
		return s + ", outside of a step"
	case p.unit == elsewhere && p.tool != "":
		return "a goroutine of " + s
	}
	return s
}

// mayRepeat reports whether what is done here can happen again after a death
// without a mistake of the agent's.
func (p place) mayRepeat() bool {
	return p.step == doStep || p.unit == elsewhere
}

// whereNow finds out where in the agent its caller was called from. The functions
// of package flue that call an agent's code are on the stack, unless the agent has
// begun a goroutine of its own.
func whereNow() place {
	var p place
	var pcs [256]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if name, ok := strings.CutPrefix(f.Function, pkgFlue+"."); ok && p.outer(name) || !more {
			return p
		}
	}
}

var pkgFlue = reflect.TypeFor[flue.Agent]().PkgPath()

// stillRunning returns the lines of the agent's tools and hooks that are being run
// in this bubble.
func stillRunning() []string {
	buf := make([]byte, 1<<20)
	goroutines := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	here := bubbleOf(goroutines[0]) // the caller's comes first
	var out []string
	for _, goroutine := range goroutines {
		if bubbleOf(goroutine) != here {
			continue
		}
		lines := strings.Split(goroutine, "\n")
		for i, line := range lines {
			name, ok := strings.CutPrefix(line, pkgFlue+".")
			if !ok || i < 2 {
				continue
			}
			var p place
			if p.outer(name) {
				out = append(out, innermost(lines[1:i]))
				break
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// bubbleOf returns which bubble a goroutine is in, by the head of its stack.
func bubbleOf(goroutine string) string {
	head, _, _ := strings.Cut(goroutine, "\n")
	_, bubble, _ := strings.Cut(head, "synctest bubble ")
	bubble, _, _ = strings.Cut(bubble, "]")
	bubble, _, _ = strings.Cut(bubble, ",")
	return bubble
}

// innermost returns where the innermost code of a stack is that does not belong to
// the standard library. Every function of a stack has two lines: its name, and
// where it is.
func innermost(stack []string) string {
	at := ""
	for i := 1; i < len(stack); i += 2 {
		at, _, _ = strings.Cut(strings.TrimSpace(stack[i]), " ")
		if !strings.HasPrefix(at, standardLibrary()) {
			break
		}
	}
	return at[strings.LastIndex(at, "/")+1:]
}

// standardLibrary is the folder of the standard library's source, with a slash at
// its end.
func standardLibrary() string {
	f := runtime.FuncForPC(reflect.ValueOf(time.Now).Pointer())
	file, _ := f.FileLine(f.Entry())
	return strings.TrimSuffix(file, "time/time.go")
}

// outer takes note of a function of package flue, and reports whether it says in
// which unit the code is.
func (p *place) outer(function string) bool {
	name, _, _ := strings.Cut(function, "[")
	name, _, _ = strings.Cut(name, ".func")
	switch name {
	case "Do":
		p.step = doStep
	case "DoOnce":
		p.step = doOnceStep
	case "MakeTool":
		p.unit = inOrdinary
	case "MakeDurableTool":
		p.unit = inDurable
	case "UseAgentStart", "UseAgentFinish", "UseResponseStart", "UseResponseFinish":
		p.unit, p.hook = inHook, name
	case "(*Render).run":
		p.unit = inRender
	}
	return p.unit != elsewhere
}
