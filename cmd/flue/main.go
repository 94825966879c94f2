// Flue runs a small assistant with any model, to try a provider or a key out:
//
//	flue run --model anthropic/claude-haiku-4-5 -m "What time is it?"
//	flue run --model ollama/qwen3 Hello
//	flue models groq
//
// A program with agents of its own is made with package cli.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/cli"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

func main() { cli.Main(app()) }

func app() cli.App {
	flags := flag.NewFlagSet("flue", flag.ContinueOnError)
	specifier := flags.String("model", "anthropic/claude-haiku-4-5", "`model` of the assistant, as provider/model")
	return cli.App{
		Name:    "flue",
		Summary: "A small assistant, to try models out",
		Example: "What time is it?",
		Flags:   flags,
		Demo:    script.New(script.Func(demo)),
		Setup: func(_ context.Context, app *cli.App) (func() error, error) {
			if provider, _ := model.SplitSpecifier(*specifier); provider == "" {
				return nil, fmt.Errorf(`--model %q: write it as provider/model, such as anthropic/claude-haiku-4-5`, *specifier)
			}
			app.Agents = []*flue.Agent{{Name: "assistant", Render: assistant(*specifier)}}
			return nil, nil
		},
	}
}

// assistant returns the agent function.
func assistant(specifier string) func(*flue.Render) string {
	return func(r *flue.Render) string {
		flue.UseModel(r, specifier)
		flue.UseTool(r, currentTime)
		return "You are a helpful assistant. Answer briefly, in plain text."
	}
}

// TimeInput is what the model passes to current_time.
type TimeInput struct {
	Zone string `json:"zone,omitempty" jsonschema:"IANA name of a time zone, such as Europe/Berlin; UTC if it is left out"`
}

var currentTime = flue.NewTool(flue.Tool{
	Name:        "current_time",
	Description: "Return the current date and time in a time zone. Use it whenever an answer depends on what day or time it is.",
}, func(_ context.Context, in TimeInput) (string, error) {
	zone, err := time.LoadLocation(in.Zone)
	if err != nil || in.Zone == "Local" { // which is nobody's name for a place
		return "", errors.New("there is no such time zone: use an IANA name, such as Europe/Berlin")
	}
	return time.Now().In(zone).Format("Monday, 2 January 2006, 15:04:05 MST"), nil
})
