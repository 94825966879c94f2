package main

import (
	"context"

	"github.com/flue-go/flue"
)

// A Platform is where workspaces live. It is outside: what it has done stays
// done, whatever becomes of this process.
type Platform interface {
	// CreateTenant returns the tenant that was created under the key, and
	// creates it if there is none.
	CreateTenant(ctx context.Context, key, customerID string) (Tenant, error)
	// SeedProject makes sure that the tenant has the project.
	SeedProject(ctx context.Context, tenantID, project string) error
}

// A Tenant is a customer's part of the platform.
type Tenant struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
}

var defaultProjects = []string{"website", "mobile-app", "analytics"}

func assistant(p Platform) *flue.Agent {
	provision := provisionWorkspace(p)
	return &flue.Agent{
		Name: "provisioning-assistant",
		Render: func(r *flue.Render) string {
			flue.UseModel(r, "anthropic/claude-haiku-4-5")
			flue.UseTool(r, provision)
			return "Set up workspaces for new customers. Do it once for each customer that you are told of, and say what came of it."
		},
	}
}

// ProvisionInput is what the model passes to provision_workspace.
type ProvisionInput struct {
	CustomerID string `json:"customerId" jsonschema:"customer number, such as cus_7" pattern:"^cus_[0-9]+$"`
}

// Provisioned is what provision_workspace returns.
type Provisioned struct {
	TenantID string `json:"tenantId"`
	Projects int    `json:"projects"`
}

func provisionWorkspace(p Platform) *flue.ToolDefinition {
	return flue.NewDurableTool(flue.Tool{
		Name:        "provision_workspace",
		Description: "Set up a customer's workspace: create the tenant, then seed each default project. Returns the tenant and how many projects it has.",
	}, func(ctx context.Context, step *flue.Step, in ProvisionInput) (Provisioned, error) {
		// What has an effect is in a step, under a name that says which piece of
		// the work it is. The code between runs again after a crash.
		tenant, err := flue.Do(ctx, step, "create-tenant", func(ctx context.Context) (Tenant, error) {
			// A crash between the effect and its record runs the step once
			// more. The call's key, which stays the same, makes that harmless.
			return p.CreateTenant(ctx, flue.CallKey(ctx), in.CustomerID)
		})
		if err != nil {
			return Provisioned{}, err
		}
		for _, project := range defaultProjects {
			if _, err := flue.Do(ctx, step, "seed:"+project, func(ctx context.Context) (bool, error) {
				return true, p.SeedProject(ctx, tenant.ID, project)
			}); err != nil {
				return Provisioned{}, err
			}
		}
		return Provisioned{tenant.ID, len(defaultProjects)}, nil
	})
}
