package crashtest

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/shutdown"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store/postgres"
)

// replicaVar makes the test binary one of several servers on one database. Its
// value is a replicaConfig.
const replicaVar = "FLUE_CRASHTEST_REPLICA"

func init() { children[replicaVar] = serveReplica }

type replicaConfig struct {
	Node        string
	Database    string // URL
	World       string // URL of what survives
	Holds       string // the file that tells what it does with ownership
	LeaseMS     int64
	MaxAttempts int   // zero for the default
	Pace        int   // see server
	AheadMS     int64 // of the process's clock
}

func (c *replicaConfig) lease() time.Duration { return time.Duration(c.LeaseMS) * time.Millisecond }

// serveReplica serves until it is told to end by SIGTERM, as orchestrators do.
func serveReplica(encoded string) error {
	var cfg replicaConfig
	if err := json.Unmarshal([]byte(encoded), &cfg); err != nil {
		return err
	}
	ctx, stop := untilOrphaned()
	defer stop()
	ctx, stop = signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	s := &server{
		by: cfg.Node, world: cfg.World, maxAttempts: cfg.MaxAttempts, pace: cfg.Pace, http: newClient(),
		log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	return s.replicate(ctx, cfg)
}

func (s *server) replicate(ctx context.Context, cfg replicaConfig) (err error) {
	db, err := postgres.Open(ctx, cfg.Database, postgres.Options{Log: s.log, Timeout: max(cfg.lease(), 2*time.Second)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	holds, err := os.OpenFile(cfg.Holds, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, holds.Close()) }()
	rc := s.config()
	rc.Store, rc.Node, rc.LeaseTTL = &holder{Store: db, out: holds}, cfg.Node, cfg.lease()
	rc.Agents = append(rc.Agents, s.plain()...)
	rc.Providers["plain"] = script.New(script.Func(plainModel))
	ahead := time.Duration(cfg.AheadMS) * time.Millisecond
	rt, err := flue.Open(engine.WithClock(ctx, func() time.Time { return time.Now().Add(ahead) }), rc)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err = errors.Join(err, rt.Close(ctx))
	}()
	// It ends as the command serve does.
	return serve(ctx, rt, rc.Agents, func(srv *http.Server) error {
		rt.Drain()
		time.Sleep(rand.N(drainDelay))
		// Connections that the balancer has made and not used yet are waited for.
		if err := shutdown.Server(srv, rt, time.Second); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return nil
	})
}

// drainDelay is how long a replica still takes requests at most when it has been told
// to end.
const drainDelay = 500 * time.Millisecond

// The agents whose histories are judged: echo answers at once, held ends by an
// abort only, and steps calls a durable tool.
var plainAgents = []string{"echo", "held", "steps"}

func (s *server) plain() []*flue.Agent {
	work := s.durable("work")
	var as []*flue.Agent
	for _, name := range plainAgents {
		as = append(as, &flue.Agent{
			Name: name, Durability: flue.Durability{MaxAttempts: s.maxAttempts},
			Render: func(r *flue.Render) string {
				flue.UseModel(r, "plain/"+name)
				if name == "steps" {
					flue.UseTool(r, work)
				}
				return name
			},
		})
	}
	return as
}

// plainModel looks at nothing but the request, so it says the same in every
// process.
func plainModel(req *model.Request) script.Turn {
	switch {
	case req.Model == "held":
		return script.Hang()
	case req.Model == "steps" && script.Step(req) == 0:
		return script.Call("work", order{Token: script.LastUser(req), Amount: 1})
	}
	return script.Say("re: " + script.LastUser(req))
}
