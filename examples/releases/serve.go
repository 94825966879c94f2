package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/catalog"
	"github.com/flue-go/flue/store/sqlite"
)

// routes is the whole API: the agent for developers, approvals for operators.
func routes(rt *flue.Runtime, developers, operators people, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/agents/release-manager/", developers.only(rt.Handler("release-manager")))
	mux.Handle("/api/approvals/", operators.only((&approvals{rt, log}).handler()))
	return mux
}

// serve serves the agent and the approvals until ctx ends. It opens a runtime of
// its own, as a program does that has more to offer than its agents.
func serve(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("releases serve", flag.ContinueOnError)
	addr := flags.String("addr", "127.0.0.1:3000", "`address` to listen on")
	db := flags.String("db", filepath.Join(".flue", "releases.db"), "`file` that keeps the conversations")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	developers, developer, err := required("RELEASES_DEVELOPERS", "a demo developer")
	if err != nil {
		return err
	}
	operators, operator, err := required("RELEASES_OPERATORS", "a demo operator")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(*db), 0o700); err != nil {
		return err
	}
	st, err := sqlite.Open(ctx, *db, sqlite.Options{})
	if err != nil {
		return fmt.Errorf("opening the conversations: %w", err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	rt, err := flue.Open(ctx, flue.Config{
		Agents: []*flue.Agent{releaseManager(newRegistry())}, Providers: map[string]model.Provider{"anthropic": claude()},
		Catalog: catalog.Lookup, Store: st, Log: log,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, within(15*time.Second, rt.Close)) }()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *addr)
	if err != nil {
		return err
	}
	announce(out, "http://"+listener.Addr().String(), developer, operator)
	server := &http.Server{
		Handler: routes(rt, developers, operators, log), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return errors.Join(within(5*time.Second, server.Shutdown), server.Close())
	}
}

// within calls stop with a context that ends after a time.
func within(d time.Duration, stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return stop(ctx)
}

// claude is the real model if there is a key for it, or else the demo.
func claude() model.Provider {
	if demo() {
		return newDemo()
	}
	return anthropic.New(anthropic.Config{Name: "anthropic", APIKey: os.Getenv("ANTHROPIC_API_KEY"), BaseURL: os.Getenv("ANTHROPIC_BASE_URL")})
}

// announce says what is served and, in the demo, how to try it.
func announce(out io.Writer, base, developer, operator string) {
	fmt.Fprintf(out, "releases listens on %s\n", base)
	if developer != "" {
		fmt.Fprintf(out, "\nReplies come from a scripted demo model. Ask it to publish something:\n"+
			"  curl %s/agents/release-manager/june -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' -d '{\"kind\":\"user\",\"body\":\"Publish flue 1.5.0\"}'\n", base, developer)
	}
	if operator != "" {
		fmt.Fprintf(out, "\nSee what waits in a conversation, and decide:\n"+
			"  curl %[1]s/api/approvals/june -H 'Authorization: Bearer %[2]s'\n"+
			"  curl %[1]s/api/approvals/june -H 'Authorization: Bearer %[2]s' -d '{\"approvalId\":\"…\",\"decision\":\"approve\"}'\n", base, operator)
	}
}
