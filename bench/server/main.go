// Command server is what the benchmarks measure: a plain agent and one with a
// tool, on SQLite or PostgreSQL with full durability, whose model is a server on
// loopback that speaks the OpenAI chat completions API.
//
//	go run ./bench/server -db /tmp/bench.db -addr 127.0.0.1:3000 -model http://127.0.0.1:9090/v1
//	go run ./bench/server -db postgres://postgres@127.0.0.1/bench -addr 127.0.0.1:3000 -model http://127.0.0.1:9090/v1
//
// Any number of them can share a PostgreSQL database. It serves /agents/chat,
// /agents/tool, /health, /commits, which says how many commits its store has made,
// and /debug/pprof for profiles.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/openai"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/postgres"
	"github.com/flue-go/flue/store/sqlite"
)

type lookupInput struct {
	OrderID string `json:"orderId"`
}

type orderStatus struct {
	OrderID string `json:"orderId"`
	Status  string `json:"status"`
	ETA     string `json:"eta"`
}

var lookupOrder = flue.NewTool(flue.Tool{
	Name:        "lookup_order",
	Description: "Look up one order by id and return its current status.",
}, func(ctx context.Context, in lookupInput) (orderStatus, error) {
	switch ms, ok := strings.CutPrefix(in.OrderID, "sleep:"); {
	case ok:
		n, err := strconv.Atoi(ms)
		if err != nil {
			return orderStatus{}, fmt.Errorf("order id %q: want sleep:<milliseconds>", in.OrderID)
		}
		select {
		case <-time.After(time.Duration(n) * time.Millisecond):
		case <-ctx.Done():
			return orderStatus{}, ctx.Err()
		}
	case in.OrderID == "throw":
		return orderStatus{}, errors.New("order service down")
	}
	return orderStatus{OrderID: in.OrderID, Status: "shipped", ETA: "2026-01-01"}, nil
})

func chat(r *flue.Render) string {
	flue.UseModel(r, "mock/m1")
	return "You are a helpful assistant. Keep replies short."
}

func tool(r *flue.Render) string {
	flue.UseModel(r, "mock/m1")
	flue.UseTool(r, lookupOrder)
	return "Help customers check the status of their orders."
}

func main() {
	db := flag.String("db", "bench.db", "the database: a file of SQLite, or a URL of PostgreSQL")
	addr := flag.String("addr", "127.0.0.1:3000", "where to listen")
	url := flag.String("model", "http://127.0.0.1:9090/v1", "base URL of the model server")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := run(log, *db, *addr, *url); err != nil {
		log.Error("serving", "error", err)
		os.Exit(1)
	}
}

func run(log *slog.Logger, db, addr, url string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := open(ctx, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	rt, err := flue.Open(ctx, flue.Config{
		Agents:    []*flue.Agent{{Name: "chat", Render: chat}, {Name: "tool", Render: tool}},
		Providers: map[string]model.Provider{"mock": provider(url)},
		Catalog:   func(string, string) (model.Info, bool) { return model.Info{ContextWindow: 200_000}, true },
		Store:     s, Log: log,
		Node: fmt.Sprint("bench-", os.Getpid()), // there may be several
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err = errors.Join(err, rt.Close(ctx))
	}()
	srv := &http.Server{Handler: routes(rt, s), ReadHeaderTimeout: 10 * time.Second}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	select {
	case <-ctx.Done():
		return srv.Close()
	case err := <-served:
		return err
	}
}

// A database is a store that counts its commits.
type database interface {
	store.Store
	Commits() int64
}

func open(ctx context.Context, db string) (database, error) {
	if strings.Contains(db, "://") {
		return postgres.Open(ctx, db, postgres.Options{Migrate: true})
	}
	return sqlite.Open(ctx, db, sqlite.Options{})
}

// provider keeps enough connections to the model server for the largest load.
func provider(url string) model.Provider {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost, t.MaxIdleConns = 1024, 1024
	return openai.New(openai.Config{Name: "mock", BaseURL: url, APIKey: "sk-mock", Client: &http.Client{Transport: t}})
}

func routes(rt *flue.Runtime, s database) *http.ServeMux {
	mux := http.NewServeMux()
	for _, name := range []string{"chat", "tool"} {
		mux.Handle("/agents/"+name+"/", http.StripPrefix("/agents/"+name, rt.Handler(name)))
	}
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /commits", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, s.Commits()) })
	mux.HandleFunc("GET /memory", func(w http.ResponseWriter, _ *http.Request) {
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Fprintf(w, `{"heapAlloc":%d,"sys":%d,"goroutines":%d}`, m.HeapAlloc, m.Sys, runtime.NumGoroutine())
	})
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	return mux
}
