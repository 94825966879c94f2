package conformance_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/conformance/modelserver"
	"github.com/flue-go/flue/internal/faultnet"
	"github.com/flue-go/flue/internal/pgtest"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/openai"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/postgres"
)

// replicaVar makes the test binary a server. Its value is a replicaConfig.
const replicaVar = "FLUE_CONFORMANCE_REPLICA"

type replicaConfig struct {
	Name, Database, Models string
	Limits                 flue.Limits
}

// leaseTTL is how soon others go on when a replica has died. It leaves room for a
// machine that is busy with other tests.
const leaseTTL = 4 * time.Second

func TestMain(m *testing.M) {
	encoded := os.Getenv(replicaVar)
	if encoded == "" {
		os.Exit(m.Run())
	}
	var cfg replicaConfig
	err := json.Unmarshal([]byte(encoded), &cfg)
	if err == nil {
		err = cfg.serve()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve serves all agents until the process is told to end, or the test is gone.
func (cfg replicaConfig) serve() (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	db, err := postgres.Open(ctx, cfg.Database, postgres.Options{Log: log, MaxConns: 6})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	agents := make([]*flue.Agent, 0, len(mounts)+1)
	for _, a := range mounts {
		agents = append(agents, a)
	}
	rt, err := flue.Open(ctx, flue.Config{
		Agents: append(agents, timed), Store: db, Node: cfg.Name, LeaseTTL: leaseTTL, Log: log, Limits: cfg.Limits,
		Providers: map[string]model.Provider{
			"mock":  openai.New(openai.Config{BaseURL: cfg.Models + "/v1", Name: "mock"}),
			"timed": openai.New(openai.Config{BaseURL: cfg.Models + "/timed/v1", Name: "timed"}),
		},
	})
	if err != nil {
		return err
	}
	defer func() { // what runs is cut soon, and another replica goes on with it
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		err = errors.Join(err, rt.Close(ctx))
	}()
	mux := http.NewServeMux()
	for path, a := range mounts {
		mux.Handle("/agents/"+path+"/", http.StripPrefix("/agents/"+path, rt.Handler(a.Name)))
	}
	mux.Handle("/agents/timed/", http.StripPrefix("/agents/timed", rt.Handler(timed.Name)))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	fmt.Printf("http://%s\n", ln.Addr())
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return srv.Shutdown(ctx)
	}
}

// A replica is one server process.
type replica struct {
	name   string
	url    string
	cmd    *exec.Cmd
	stderr bytes.Buffer
	ended  sync.Once
	err    error // what Wait said
}

// replicas are some of them on one database, behind a balancer.
type replicas struct {
	t        *testing.T
	URL      string // of the balancer
	db       *postgres.Store
	balancer *faultnet.Balancer
	cfg      replicaConfig // but for the name
	all      []*replica    // all there have been
}

// startReplicas starts so many replicas on a fresh database.
func startReplicas(t *testing.T, n int) *replicas {
	t.Helper()
	return startBounded(t, n, flue.Limits{})
}

// startBounded is startReplicas for such that take no more on than the limits say.
func startBounded(t *testing.T, n int, limits flue.Limits) *replicas {
	t.Helper()
	database := pgtest.Database(t)
	db, err := postgres.Open(t.Context(), database, postgres.Options{Migrate: true, MaxConns: 5})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	mux := http.NewServeMux()
	mux.Handle("/v1/", new(modelserver.Server))
	mux.HandleFunc("/timed/v1/chat/completions", answerWithTimes)
	models := httptest.NewServer(mux)
	t.Cleanup(models.Close)

	rs := &replicas{t: t, db: db, balancer: faultnet.NewBalancer(n), cfg: replicaConfig{Database: database, Models: models.URL, Limits: limits}}
	front := httptest.NewServer(rs.balancer)
	rs.URL = front.URL
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
		rs.balancer.Close()
	})
	for i := range n {
		rs.start(i)
	}
	return rs
}

// start starts a replica and gives it a place behind the balancer.
func (rs *replicas) start(place int) {
	rs.t.Helper()
	cfg := rs.cfg
	cfg.Name = fmt.Sprintf("replica-%d", len(rs.all))
	r := startReplica(rs.t, cfg)
	rs.all = append(rs.all, r)
	if err := rs.balancer.Set(place, r.url); err != nil {
		rs.t.Fatal(err)
	}
}

func startReplica(t *testing.T, cfg replicaConfig) *replica {
	t.Helper()
	encoded, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{name: cfg.Name, cmd: exec.Command(os.Args[0])}
	r.cmd.Env = append(os.Environ(), replicaVar+"="+string(encoded))
	r.cmd.Stderr = &r.stderr
	stdin, err := r.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := r.wait(); err != nil && r.cmd.ProcessState.Exited() {
			t.Errorf("%s did not end well: %v", r.name, err)
		}
		if t.Failed() {
			t.Logf("%s logged:\n%s", r.name, r.stderr.String())
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("%s is not ready: %v\n%s", cfg.Name, err, r.stderr.String())
	}
	r.url = strings.TrimSpace(line)
	return r
}

// wait waits until the process has ended.
func (r *replica) wait() error {
	r.ended.Do(func() { r.err = r.cmd.Wait() })
	return r.err
}

// kill ends the process as a loss of power would.
func (r *replica) kill() {
	_ = r.cmd.Process.Kill()
	_ = r.wait()
}

// owner returns the replica that works on the conversation.
func (rs *replicas) owner(conversation string) *replica {
	rs.t.Helper()
	mount, id := path.Split(conversation)
	addr := store.Address{Agent: mounts[path.Clean(mount)].Name, ID: id}
	work, err := rs.db.Work(rs.t.Context(), 100)
	if err != nil {
		rs.t.Fatal(err)
	}
	for _, w := range work {
		if w.Address != addr {
			continue
		}
		for _, r := range rs.all {
			if r.name == w.Owner {
				return r
			}
		}
	}
	rs.t.Fatalf("nobody works on %v: %+v", addr, work)
	return nil
}

// another returns a replica that does not work on the conversation.
func (rs *replicas) another(conversation string) *replica {
	rs.t.Helper()
	owner := rs.owner(conversation)
	return rs.all[slices.IndexFunc(rs.all, func(r *replica) bool { return r != owner })]
}
