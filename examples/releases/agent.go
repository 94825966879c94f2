package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"strings"
	"time"

	"github.com/flue-go/flue"
)

// releaseManager publishes; stable versions wait for a person.
func releaseManager(registry *Registry) *flue.Agent {
	publish := publishRelease(registry)
	policy := flue.ApprovalPolicy{
		Needed:   flue.ApproveIf(func(in PublishInput) bool { return !prerelease(in.Version) }),
		Expires:  7 * 24 * time.Hour,
		Continue: true, // so that the model can say what it waits for
	}
	return &flue.Agent{
		Name: "release-manager",
		Render: func(r *flue.Render) string {
			flue.UseModel(r, "anthropic/claude-sonnet-4-6")
			flue.UseApprovalGate(r, publish, policy)
			return `Publish releases when somebody asks for it. Stable releases need an operator's approval before they go out.
While one waits, say so, and do not ask for it again.`
		},
	}
}

// unlockedReleases has no tool to publish with until an operator's code was
// recorded. What is not there cannot be called, whatever the model is told.
func unlockedReleases(registry *Registry, code string) *flue.Agent {
	publish := publishRelease(registry)
	return &flue.Agent{
		Name: "unlocked-releases",
		Render: func(r *flue.Render) string {
			flue.UseModel(r, "anthropic/claude-sonnet-4-6")
			approved := flue.UsePersistentState(r, "approved", false)
			flue.UseTool(r, recordApproval(code, approved))
			if approved.Value() {
				flue.UseTool(r, publish)
			}
			return "Prepare the release. Publishing unlocks once an operator approves."
		},
	}
}

// CodeInput is what the model passes to record_approval.
type CodeInput struct {
	Code string `json:"code" jsonschema:"the code, exactly as the user gave it" maxLength:"200"`
}

func recordApproval(code string, approved *flue.State[bool]) *flue.ToolDefinition {
	return flue.NewTool(flue.Tool{
		Name:        "record_approval",
		Description: "Record an operator's approval code for this release. Use it when the user gives you one. Says whether the code is right.",
	}, func(ctx context.Context, in CodeInput) (string, error) {
		want, got := sha256.Sum256([]byte(code)), sha256.Sum256([]byte(in.Code))
		if subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
			return "", errors.New("invalid approval code; ask the user for the right one, and do not guess")
		}
		return "Approval recorded. The publish tool is now available.", approved.Set(ctx, true)
	})
}

// PublishInput is what the model passes to publish_release.
type PublishInput struct {
	Package string `json:"package" jsonschema:"name of the package" pattern:"^[a-z][a-z0-9-]*$" maxLength:"100"`
	Version string `json:"version" jsonschema:"semantic version, such as 1.5.0 or 1.5.0-next.1" pattern:"^[0-9]+\\.[0-9]+\\.[0-9]+(-[0-9A-Za-z.-]+)?$" maxLength:"60"`
}

// prerelease reports whether a version comes before a stable one.
func prerelease(version string) bool { return strings.Contains(version, "-") }

func publishRelease(registry *Registry) *flue.ToolDefinition {
	return flue.NewTool(flue.Tool{
		Name:        "publish_release",
		Description: "Publish one version of one package. Use it only when the user asks for it. Returns where it can be had.",
		Timeout:     time.Minute,
	}, func(ctx context.Context, in PublishInput) (Release, error) {
		// A call that waited for approval has the key that it had when it was
		// asked for, so that the registry knows it again.
		return registry.Publish(ctx, in.Package, in.Version, flue.CallKey(ctx))
	})
}
