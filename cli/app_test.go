package cli_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/cli"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// childVariable makes the test binary the program of testApp.
const childVariable = "FLUE_CLI_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		cli.Main(testApp())
	}
	testscript.Main(m, map[string]func(){
		"app":   func() { cli.Main(testApp()) },
		"two":   func() { app := testApp(); app.Agents = append(app.Agents, agent("second")); cli.Main(app) },
		"real":  func() { app := testApp(); app.Demo = nil; cli.Main(app) },
		"empty": func() { cli.Main(cli.App{Name: "empty"}) },
	})
}

// testApp is a program of one agent that does what it is told.
func testApp() cli.App {
	flags := flag.NewFlagSet("app", flag.ContinueOnError)
	greeting := flags.String("greeting", "hello", "`word` to greet with")
	return cli.App{
		Name: "app", Summary: "A program for tests", Version: "v1.2.3", Agents: []*flue.Agent{agent("echo")}, Demo: script.New(script.Func(obedient)), Flags: flags,
		Example: "say it's",
		Setup: func(context.Context, *cli.App) (func() error, error) {
			if *greeting == "fail" {
				return nil, errors.New("setting up on purpose failed")
			}
			return func() error {
				if *greeting != "hello" {
					return errors.New("released after " + *greeting)
				}
				return nil
			}, nil
		},
	}
}

func agent(name string) *flue.Agent {
	return &flue.Agent{
		Name: name,
		Render: func(r *flue.Render) string {
			specifier := os.Getenv("TEST_MODEL")
			if specifier == "" {
				specifier = "anthropic/claude-haiku-4-5"
			}
			flue.UseModel(r, specifier)
			flue.UseTool(r, pause)
			flue.UseTool(r, shout)
			flue.UseTool(r, breathe)
			if data := flue.UseInitialData[map[string]any](r); data != nil {
				return fmt.Sprint("data: ", data["plan"])
			}
			return "agent " + name + ", key " + os.Getenv("TEST_VALUE")
		},
	}
}

// pause marks that it runs, and goes on until it is told to stop.
var pause = flue.NewTool(flue.Tool{Name: "pause", Description: "Pause until you are stopped."},
	func(ctx context.Context, _ struct{}) (string, error) {
		if err := os.WriteFile(os.Getenv("TEST_MARK"), nil, 0o600); err != nil {
			return "", err
		}
		<-ctx.Done()
		return "", context.Cause(ctx)
	})

// breathe takes a moment.
var breathe = flue.NewTool(flue.Tool{Name: "breathe", Description: "Breathe."},
	func(ctx context.Context, _ struct{}) (string, error) {
		select {
		case <-time.After(100 * time.Millisecond):
			return "ah", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})

var shout = flue.NewTool(flue.Tool{Name: "shout", Description: "Shout."},
	func(ctx context.Context, in struct {
		Text string `json:"text"`
	},
	) (string, error) {
		flue.Log(ctx).Info("shouting", "letters", len(in.Text))
		if in.Text == "" {
			return "", errors.New("there is nothing to shout")
		}
		return strings.ToUpper(in.Text), nil
	})

// obedient is a scripted model that does what it is told.
func obedient(req *model.Request) script.Turn {
	if script.LastUser(req) == "toil" {
		return script.Call("breathe", struct{}{})
	}
	if results := script.LastResults(req); len(results) > 0 && script.Step(req) > 0 {
		return script.Say("tool: " + results[0].Text)
	}
	verb, rest, _ := strings.Cut(script.LastUser(req), " ")
	switch verb {
	case "say":
		return script.Say(rest)
	case "system":
		return script.Say(req.System)
	case "count":
		n := 0
		for _, m := range req.Messages {
			if m.Role == model.RoleUser && !strings.HasPrefix(m.Blocks[0].Text, "<signal") {
				n++
			}
		}
		return script.Say(fmt.Sprint("messages: ", n))
	case "image":
		blocks := req.Messages[len(req.Messages)-1].Blocks
		image := blocks[len(blocks)-1]
		return script.Say(fmt.Sprint(image.MediaType, " ", len(image.Data)))
	case "pause":
		return script.Call("pause", nil)
	case "shout":
		return script.Call("shout", map[string]string{"text": rest})
	case "fail":
		return script.Fail(&model.Error{Class: model.Invalid, Message: "told to fail"})
	}
	return script.Say("I do not know the word " + verb)
}
