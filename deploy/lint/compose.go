package lint

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// A Composition is a file of Docker Compose.
type Composition struct{ project *types.Project }

// Compose loads a file as Docker Compose does, with the variables.
func Compose(ctx context.Context, path string, env ...string) (*Composition, error) {
	o, err := cli.NewProjectOptions([]string{path}, cli.WithWorkingDirectory(filepath.Dir(path)), cli.WithEnv(env))
	if err != nil {
		return nil, err
	}
	p, err := o.LoadProject(ctx)
	if err != nil {
		return nil, err
	}
	return &Composition{p}, nil
}

// ours reports whether a service runs the program.
func ours(s types.ServiceConfig) bool { return s.Build != nil }

// Commands returns what the program is run with.
func (c *Composition) Commands() [][]string {
	var out [][]string
	for _, name := range c.project.ServiceNames() {
		if s := c.project.Services[name]; ours(s) {
			out = append(out, s.Command)
		}
	}
	return out
}

// Check holds the composition to our rules.
func (c *Composition) Check() []string {
	var f findings
	kinds := make(map[string]string) // services by what they do
	for _, name := range c.project.ServiceNames() {
		s := c.project.Services[name]
		if !pinned(s.Image) {
			f.add("%s: image %s is not pinned", name, s.Image)
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				f.add("%s: port %s is open to everybody", name, p.Published)
			}
		}
		if name != "postgres" {
			checkConfined(&f, s)
		}
		if ours(s) && len(s.Command) > 0 {
			kinds[s.Command[0]] = name
			f.checkDatabase(name, value(s, "FLUE_DB"))
		}
	}
	for _, kind := range []string{"migrate", "serve"} {
		if kinds[kind] == "" {
			f.add("nothing runs the command %s", kind)
		}
	}
	c.checkOrder(&f, kinds)
	if s, ok := c.project.Services[kinds["serve"]]; ok {
		c.checkServer(&f, s)
	}
	if len(c.project.Services["postgres"].Volumes) == 0 {
		f.add("postgres: keeps nothing")
	}
	return f
}

func value(s types.ServiceConfig, name string) string {
	if v := s.Environment[name]; v != nil {
		return *v
	}
	return ""
}

func checkConfined(f *findings, s types.ServiceConfig) {
	switch {
	case !s.ReadOnly:
		f.add("%s: may write to its image", s.Name)
	case !slices.Equal(s.CapDrop, []string{"ALL"}):
		f.add("%s: keeps capabilities", s.Name)
	case !slices.Contains(s.SecurityOpt, "no-new-privileges:true"):
		f.add("%s: may gain privileges", s.Name)
	}
}

// checkOrder checks that each service starts when what it needs is there.
func (c *Composition) checkOrder(f *findings, kinds map[string]string) {
	postgres := c.project.Services["postgres"]
	if postgres.HealthCheck == nil || len(postgres.HealthCheck.Test) == 0 {
		f.add("postgres: has no check")
	}
	migrate, serve := c.project.Services[kinds["migrate"]], c.project.Services[kinds["serve"]]
	if migrate.DependsOn["postgres"].Condition != types.ServiceConditionHealthy {
		f.add("migrate: does not wait for the database")
	}
	if serve.DependsOn[kinds["migrate"]].Condition != types.ServiceConditionCompletedSuccessfully {
		f.add("serve: does not wait for the migration")
	}
}

func (c *Composition) checkServer(f *findings, s types.ServiceConfig) {
	if s.GetScale() < 3 {
		f.add("%s: has fewer than three replicas", s.Name)
	}
	var limit int64
	if s.Deploy != nil && s.Deploy.Resources.Limits != nil {
		limit = int64(s.Deploy.Resources.Limits.MemoryBytes)
	}
	f.checkMemory(s.Name, value(s, "GOMEMLIMIT"), limit)
	takes, err := stopping(s.Command)
	if err != nil {
		f.add("%s: %v", s.Name, err)
	}
	if s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) < takes {
		f.add("%s: the program may take %v to end, and is killed before", s.Name, takes)
	}
	if _, reachable := port(s.Command); !reachable {
		f.add("%s: listens where the proxy cannot reach it", s.Name)
	}
	if s.Restart != types.RestartPolicyUnlessStopped {
		f.add("%s: is not started again when it dies", s.Name)
	}
}

// proxied returns the name and the port that the proxy's configuration sends to.
func proxied(nginx string) string {
	for line := range strings.Lines(nginx) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "server" && fields[1] != "{" {
			return strings.TrimSuffix(fields[1], ";")
		}
	}
	return ""
}
