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

func TestMain(m *testing.M) {
	if encoded := os.Getenv(serverVar); encoded != "" {
		if err := serveConfig(encoded); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func serveConfig(encoded string) error {
	s := &server{http: newClient(), log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))}
	if err := json.Unmarshal([]byte(encoded), &s.serverConfig); err != nil {
		return err
	}
	// The server ends when its standard input does, so that it never outlives
	// the test.
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return s.run(ctx)
}

// A server is one life of the program under test. It says on standard output
// where it listens, and when work that an earlier life left is taken up.
type server struct {
	serverConfig
	log  *slog.Logger
	http *http.Client
}

func (s *server) run(ctx context.Context) (err error) {
	db, err := sqlite.Open(ctx, s.File, sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rt, err := flue.Open(ctx, flue.Config{
		Agents: []*flue.Agent{s.agent("openai"), s.agent("anthropic")},
		Providers: map[string]model.Provider{
			"openai":    openai.New(openai.Config{BaseURL: s.World + "/openai", APIKey: "key", Client: s.http}),
			"anthropic": anthropic.New(anthropic.Config{BaseURL: s.World + "/anthropic", APIKey: "key", Client: s.http}),
		},
		Store: db, Log: s.log, Observe: observe, RetryBase: 5 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = errors.Join(err, rt.Close(ctx))
	}()
	mux := http.NewServeMux()
	for name := range modelOf {
		mux.Handle("/agents/"+name+"/", http.StripPrefix("/agents/"+name, rt.Handler(name)))
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
		return srv.Close()
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
// the same two tools. Charge keeps in the instance's state which calls it has
// made; ship keeps nothing.
func (s *server) agent(provider string) *flue.Agent {
	ship := flue.NewTool(flue.Tool{Name: "ship", Description: "Ship an order."}, func(ctx context.Context, _ order) (string, error) {
		return okText(flue.CallID(ctx)), s.effect(ctx, "ship")
	})
	render := func(r *flue.Render) string {
		flue.UseModel(r, provider+"/"+modelOf[provider])
		charges := flue.UsePersistentState(r, "charges", []string{})
		flue.UseTool(r, ship)
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
	return &flue.Agent{Name: provider, Render: render, Durability: flue.Durability{MaxAttempts: s.MaxAttempts}}
}

// effect is what a tool does to the world. It takes up to 20 ms.
func (s *server) effect(ctx context.Context, tool string) error {
	entry := ledgerEntry{Call: flue.CallID(ctx), Key: flue.CallKey(ctx), Tool: tool, Life: s.Life}
	if err := s.tell(ctx, entry); err != nil {
		return err
	}
	select {
	case <-time.After(rand.N(20 * time.Millisecond)):
	case <-ctx.Done():
		return ctx.Err()
	}
	entry.Finished = true
	return s.tell(ctx, entry)
}

func (s *server) tell(ctx context.Context, entry ledgerEntry) error {
	data, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.World+"/ledger", bytes.NewReader(data))
	if err != nil {
		return err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
