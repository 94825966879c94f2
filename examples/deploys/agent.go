package main

import (
	"context"
	"io/fs"
	"strings"
	"time"

	"github.com/flue-go/flue"
)

func assistant(fleet *Fleet, code fs.FS) *flue.Agent {
	deploy, search := deployService(fleet), searchCode(code)
	return &flue.Agent{
		Name: "deploy-assistant",
		Render: func(r *flue.Render) string {
			flue.UseModel(r, "anthropic/claude-haiku-4-5")
			flue.UseTool(r, deploy)
			flue.UseTool(r, search)
			return `Deploy services when somebody asks for it, and find things in the code.
If a tool refuses, tell the user why. Never deploy another service in place of the one that was asked for.`
		},
	}
}

// DeployInput is what the model passes to deploy_service.
type DeployInput struct {
	Service string `json:"service" jsonschema:"name of the service" minLength:"1" maxLength:"64"`
	Version string `json:"version" jsonschema:"version to deploy, such as v1.4.0" pattern:"^v[0-9]+\\.[0-9]+\\.[0-9]+$"`
}

func deployService(fleet *Fleet) *flue.ToolDefinition {
	return flue.NewTool(flue.Tool{
		Name:        "deploy_service",
		Description: "Deploy one version of one service to production. Use it only when the user asks for it. Returns the deployment, or says why it was refused.",
		Timeout:     time.Minute,
	}, func(ctx context.Context, in DeployInput) (*Deployment, error) {
		// The list is checked by the code that deploys, not here and not by the
		// instruction: whatever the model asks for, no other way leads there. The
		// key makes two requests for the same call one deployment.
		return fleet.Deploy(ctx, in.Service, in.Version, flue.CallKey(ctx))
	})
}

// SearchInput is what the model passes to search_code.
type SearchInput struct {
	Query string `json:"query" jsonschema:"text to look for, as it stands in the code" minLength:"2" maxLength:"100"`
}

// Found is what search_code returns.
type Found struct {
	Matches int      `json:"matches" min:"0" jsonschema:"lines that have the text"`
	Files   []string `json:"files" jsonschema:"files that have such lines"`
}

func searchCode(code fs.FS) *flue.ToolDefinition {
	return flue.NewTool(flue.Tool{
		Name:        "search_code",
		Description: "Search the code for a text. Use it when the user asks where something is in the code. Returns how many lines have it, and in which files.",
		Timeout:     15 * time.Second,
		Output:      flue.SchemaFor[Found](),
	}, func(ctx context.Context, in SearchInput) (Found, error) {
		found := Found{Files: []string{}}
		err := fs.WalkDir(code, ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if ctx.Err() != nil { // nobody waits for the result any more
				return context.Cause(ctx)
			}
			text, err := fs.ReadFile(code, path)
			if err != nil {
				return err
			}
			n := 0
			for line := range strings.Lines(string(text)) {
				if strings.Contains(line, in.Query) {
					n++
				}
			}
			if n > 0 {
				found.Matches += n
				found.Files = append(found.Files, path)
			}
			return nil
		})
		// People who watch see the line, the model does not. The key is what ties
		// it to the call, here and in other systems.
		flue.Log(ctx).Info("searched the code", "matches", found.Matches, "call", flue.CallKey(ctx))
		return found, err
	})
}
