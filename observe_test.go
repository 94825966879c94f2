package flue_test

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/token"
	"log/slog"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store/memstore"
)

// observedRuntime is a runtime with an agent that answers at once.
func observedRuntime(t *testing.T, cfg flue.Config) *flue.Runtime {
	t.Helper()
	cfg.Agents = []*flue.Agent{{Name: "clerk", Render: func(r *flue.Render) string {
		flue.UseModel(r, "fake/m")
		return ""
	}}}
	cfg.Providers = map[string]model.Provider{"fake": script.New(script.Func(func(*model.Request) script.Turn { return script.Say("done") }))}
	cfg.Store = memstore.New()
	rt, err := flue.Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

func askOften(t *testing.T, rt *flue.Runtime, n int) {
	t.Helper()
	for i := range n {
		r, err := rt.Dispatch(context.Background(), "clerk", "one", flue.User(fmt.Sprint("question ", i)))
		if err != nil {
			t.Fatal(err)
		}
		if reply, err := rt.Instance("clerk", "one").Read(context.Background(), r.Submission); err != nil || reply.Text != "done" {
			t.Fatalf("question %d: %v, %v", i, reply, err)
		}
	}
}

// An observer that does not return delays no answer, and the end of the runtime
// by no more than ten seconds.
func TestObserverThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var events atomic.Int32
		rt := observedRuntime(t, flue.Config{Observe: func(flue.Event) {
			events.Add(1)
			<-release
		}})
		began := time.Now()
		askOften(t, rt, 300) // more than the buffer holds
		if took := time.Since(began); took > 0 {
			t.Errorf("the answers took %s", took)
		}
		if err := rt.Close(context.Background()); err == nil || !strings.Contains(err.Error(), "left behind") {
			t.Errorf("closing: %v", err)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("closing took %s", took)
		}
		close(release)
		synctest.Wait()
		if n := events.Load(); n != 1 {
			t.Errorf("the observer that was left behind is told %d events", n)
		}
	})
}

// An observer that panics breaks nothing, and is told the next event.
func TestObserverThatPanics(t *testing.T) {
	var log bytes.Buffer
	settled := 0
	rt := observedRuntime(t, flue.Config{
		Log: slog.New(slog.NewTextHandler(&log, nil)),
		Observe: func(ev flue.Event) {
			if ev.Type == flue.EventSettled {
				settled++
			}
			panic("no observer")
		},
	})
	askOften(t, rt, 5)
	if err := rt.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if settled != 5 {
		t.Errorf("the observer is told %d settlements of 5", settled)
	}
	if n := strings.Count(log.String(), "panic=\"no observer\""); n != 10 {
		t.Errorf("its panics are logged %d times:\n%s", n, log.String())
	}
}

func ExampleRuntime_Observe() {
	rt, err := flue.Open(context.Background(), flue.Config{
		Agents: []*flue.Agent{{Name: "clerk", Render: func(r *flue.Render) string {
			flue.UseModel(r, "demo/m")
			return "Be brief."
		}}},
		Providers: map[string]model.Provider{"demo": script.New(script.Say("Six.").Usage(model.Usage{Input: 20, Output: 3}))},
		Store:     memstore.New(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer rt.Close(ctx)
	events := rt.Observe(ctx, flue.ObserveOptions{Agent: "clerk"})
	if _, err := rt.Dispatch(ctx, "clerk", "one", flue.User("How many are left?")); err != nil {
		fmt.Println(err)
		return
	}
	for ev := range events {
		switch ev.Type {
		case flue.EventTurnDone:
			fmt.Printf("%s: %d tokens, cost %s: %s\n", ev.Model, ev.Usage.Total(), ev.Cost, ev.Text)
		case flue.EventSettled:
			fmt.Printf("%s: %s\n", ev.Instance, ev.Outcome)
			return
		}
	}
	// Output:
	// demo/m: 23 tokens, cost an unknown amount: Six.
	// agents/clerk/one: completed
}

// The page of events has every type of event by both of its names, and every field
// of an event.
func TestEventsPageIsComplete(t *testing.T) {
	data, err := os.ReadFile("docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	types := 0
	for _, decl := range declarations(t, "internal/engine") {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		for _, spec := range gen.Specs {
			v := spec.(*ast.ValueSpec)
			if kind, ok := v.Type.(*ast.Ident); !ok || kind.Name != "EventType" {
				continue
			}
			types++
			word, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(page, fmt.Sprintf("\n| `%s` | `%s` |", word, v.Names[0].Name)) {
				t.Errorf("the page has no row for `%s` | `%s`", word, v.Names[0].Name)
			}
		}
	}
	if types < 20 {
		t.Errorf("found %d types of event", types)
	}
	for field := range reflect.TypeFor[flue.Event]().Fields() {
		if !strings.Contains(page, "`"+field.Name+"`") {
			t.Errorf("the page does not mention the field `%s`", field.Name)
		}
	}
}
