package crashtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/openai"
	"github.com/flue-go/flue/store/sqlite"
)

// childEnv makes the test binary the server that is killed: it holds the
// directory of the database, childWorld the URL of what survives.
const (
	childEnv   = "FLUE_CRASHTEST_DIR"
	childWorld = "FLUE_CRASHTEST_WORLD"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := serve(dir, os.Getenv(childWorld)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type order struct {
	Token string `json:"token"`
}

// agents are the same agent on two codecs. Its tools have effects, of which the
// world is told when they begin and when they end.
func agents(world string) []*flue.Agent {
	ship := flue.NewTool(flue.Tool{Name: "ship", Description: "Ship the order."}, func(ctx context.Context, in order) (string, error) {
		return "shipped " + in.Token, act(ctx, world, func() error { return nil })
	})
	var out []*flue.Agent
	for _, provider := range []string{"openai", "anthropic"} {
		out = append(out, &flue.Agent{Name: provider, Durability: flue.Durability{MaxAttempts: 1000}, Render: func(r *flue.Render) string {
			flue.UseModel(r, provider+"/scripted")
			charged := flue.UsePersistentState(r, "charged", map[string]bool{})
			flue.UseTool(r, ship)
			flue.UseTool(r, flue.NewTool(flue.Tool{Name: "charge", Description: "Charge the card."}, func(ctx context.Context, in order) (string, error) {
				return "charged " + in.Token, act(ctx, world, func() error {
					return charged.Update(ctx, func(m map[string]bool) map[string]bool { m[in.Token] = true; return m })
				})
			}))
			return "Serve the customer."
		}})
	}
	return out
}

// act does something and tells the world before and after. It takes a few
// milliseconds, so that a kill finds it at work.
func act(ctx context.Context, world string, do func() error) error {
	if err := record(ctx, world, "begin"); err != nil {
		return err
	}
	time.Sleep(4 * time.Millisecond)
	if err := do(); err != nil {
		return err
	}
	return record(ctx, world, "end")
}

// record tells the world of an effect of the call that ctx belongs to.
func record(ctx context.Context, world, phase string) error {
	res, err := http.Post(world+"/ledger?"+url.Values{"call": {flue.CallID(ctx)}, "phase": {phase}}.Encode(), "", nil)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

func serve(dir, world string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := sqlite.Open(ctx, filepath.Join(dir, "crash.db"), sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	rt, err := flue.Open(ctx, flue.Config{
		Agents: agents(world), Store: s, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Providers: map[string]model.Provider{
			"openai":    openai.New(openai.Config{BaseURL: world + "/openai/v1", APIKey: "test"}),
			"anthropic": anthropic.New(anthropic.Config{BaseURL: world + "/anthropic", APIKey: "test"}),
		},
		RetryBase: 5 * time.Millisecond,
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
	for _, a := range []string{"openai", "anthropic"} {
		mux.Handle("/"+a+"/", http.StripPrefix("/"+a, rt.Handler(a)))
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	fmt.Println("http://" + ln.Addr().String())
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		return srv.Close()
	}
}
