package crashtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/openai"
	"github.com/flue-go/flue/store/sqlite"
)

// serverVar makes the test binary the server that is killed. Its value is a
// serverConfig.
const serverVar = "FLUE_CRASHTEST_SERVER"

type serverConfig struct {
	Life        int    // counts from zero
	File        string // the database
	World       string // URL of what survives
	MaxAttempts int    // zero for the default
}

// children are the programs that the test binary is too, by the variables that make
// it one.
var children = map[string]func(config string) error{
	serverVar: serveConfig,
	herdVar:   serveHerd,
	talkVar:   holdTalk,
}

func TestMain(m *testing.M) {
	for name, serve := range children {
		config := os.Getenv(name)
		if config == "" {
			continue
		}
		if err := serve(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func serveConfig(encoded string) error {
	var cfg serverConfig
	if err := json.Unmarshal([]byte(encoded), &cfg); err != nil {
		return err
	}
	ctx, stop := untilOrphaned()
	defer stop()
	s := &server{
		by: strconv.Itoa(cfg.Life), world: cfg.World, maxAttempts: cfg.MaxAttempts, http: newClient(),
		log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}
	return s.run(ctx, cfg.File)
}

// untilOrphaned returns a context that ends when the standard input does, so that
// a program never outlives the test.
func untilOrphaned() (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return ctx, stop
}

// A server is one life of the program under test. It says on standard output
// where it listens, and when work that an earlier life left is taken up.
type server struct {
	by          string // the life's name, for the ledger
	world       string // URL of what survives
	maxAttempts int    // zero for the default
	pace        int    // how slow tools are; zero is as fast as one
	log         *slog.Logger
	http        *http.Client
}

func (s *server) run(ctx context.Context, file string) (err error) {
	db, err := sqlite.Open(ctx, file, sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	cfg := s.config()
	cfg.Store = db
	rt, err := flue.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = errors.Join(err, rt.Close(ctx))
	}()
	return serve(ctx, rt, cfg.Agents, (*http.Server).Close)
}

// config is what all servers run, but for the store.
func (s *server) config() flue.Config {
	return flue.Config{
		Agents: []*flue.Agent{s.agent("openai"), s.agent("anthropic"), s.agent("shaky", "openai/"+modelOf["openai"])},
		Providers: map[string]model.Provider{
			"openai":    openai.New(openai.Config{BaseURL: s.world + "/openai", APIKey: "key", Client: s.http}),
			"shaky":     openai.New(openai.Config{Name: "shaky", BaseURL: s.world + "/shaky", APIKey: "key", Client: s.http}),
			"anthropic": anthropic.New(anthropic.Config{BaseURL: s.world + "/anthropic", APIKey: "key", Client: s.http}),
		},
		Log: s.log, Observe: observe, RetryBase: 5 * time.Millisecond,
		CheckpointEvery: 7, // so that most lives begin with one, and kills fall into some
		MergeAfter:      300 * time.Millisecond,
	}
}

// serve serves the agents until ctx ends, and says where.
func serve(ctx context.Context, rt *flue.Runtime, agents []*flue.Agent, end func(*http.Server) error) error {
	mux := http.NewServeMux()
	for _, a := range agents {
		mux.Handle("/agents/"+a.Name+"/", http.StripPrefix("/agents/"+a.Name, rt.Handler(a.Name)))
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	fmt.Printf("ready http://%s\n", ln.Addr())
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		return end(srv)
	}
}

// newClient returns a client that keeps a connection for each conversation.
func newClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	return &http.Client{Transport: t}
}

// observe says that work which was interrupted is taken up. It is called when
// the record of that is durable.
func observe(ev flue.Event) {
	if ev.Type == flue.EventAttemptStarted && ev.Attempt > 1 {
		fmt.Println("resumed " + ev.Instance.String())
	}
}

type order struct {
	Token  string `json:"token"`
	Amount int    `json:"amount" min:"1"`
}

// agent returns the agent that uses the model of the provider. All agents have
// the same three tools. Charge keeps in the instance's state which calls it has
// made; ship keeps nothing; pack is durable.
func (s *server) agent(provider string, fallbacks ...string) *flue.Agent {
	ship := flue.NewTool(flue.Tool{Name: "ship", Description: "Ship an order."}, func(ctx context.Context, _ order) (string, error) {
		return okText(flue.CallID(ctx)), s.effect(ctx, "ship")
	})
	pack := s.durable("pack")
	render := func(r *flue.Render) string {
		flue.UseModel(r, provider+"/"+modelOf[provider], flue.ModelOptions{Fallbacks: fallbacks})
		charges := flue.UsePersistentState(r, "charges", []string{})
		flue.UseTool(r, ship)
		flue.UseTool(r, pack)
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "charge", Description: "Charge for an order."}, func(ctx context.Context, _ order) (string, error) {
			id := flue.CallID(ctx)
			if err := s.effect(ctx, "charge"); err != nil {
				return "", err
			}
			err := charges.Update(ctx, func(ids []string) []string { return append(slices.Clip(ids), id) })
			return okText(id), err
		}))
		return "Handle what you are asked to handle."
	}
	return &flue.Agent{Name: provider, Render: render, Durability: flue.Durability{MaxAttempts: s.maxAttempts}}
}

// effect is what a tool does to the world. It takes up to 20 ms, or as many times
// that as the pace is.
func (s *server) effect(ctx context.Context, tool string) error {
	entry := ledgerEntry{Call: flue.CallID(ctx), Key: flue.CallKey(ctx), Tool: tool, By: s.by, At: time.Now().UnixNano()}
	if err := s.tell(ctx, entry); err != nil {
		return err
	}
	select {
	case <-time.After(time.Duration(max(s.pace, 1)) * rand.N(20*time.Millisecond)):
	case <-ctx.Done():
		return ctx.Err()
	}
	entry.Finished = true
	return s.tell(ctx, entry)
}

func (s *server) tell(ctx context.Context, entry ledgerEntry) error {
	_, err := s.post(ctx, "/ledger", entry)
	return err
}

// post tells the world something and returns what it says.
func (s *server) post(ctx context.Context, path string, v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.world+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	data, err = io.ReadAll(resp.Body)
	return data, errors.Join(err, resp.Body.Close())
}
