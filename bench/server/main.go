// Command server is what the benchmarks measure: a plain agent and one with a
// tool, on SQLite with full durability, whose model is a server on loopback
// that speaks the OpenAI chat completions API.
//
//	go run ./bench/server -db /tmp/bench.db -addr 127.0.0.1:3000 -model http://127.0.0.1:9090/v1
//
// It serves /agents/chat, /agents/tool, /health, and /debug/pprof for profiles.
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
	db := flag.String("db", "bench.db", "the database file")
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
	store, err := sqlite.Open(ctx, db, sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	rt, err := flue.Open(ctx, flue.Config{
		Agents:    []*flue.Agent{{Name: "chat", Render: chat}, {Name: "tool", Render: tool}},
		Providers: map[string]model.Provider{"mock": provider(url)},
		Store:     store, Log: log,
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err = errors.Join(err, rt.Close(ctx))
	}()
	srv := &http.Server{Handler: routes(rt), ReadHeaderTimeout: 10 * time.Second}
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

// provider keeps enough connections to the model server for the largest load.
func provider(url string) model.Provider {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost, t.MaxIdleConns = 1024, 1024
	return openai.New(openai.Config{Name: "mock", BaseURL: url, APIKey: "sk-mock", Client: &http.Client{Transport: t}})
}

func routes(rt *flue.Runtime) *http.ServeMux {
	mux := http.NewServeMux()
	for _, name := range []string{"chat", "tool"} {
		mux.Handle("/agents/"+name+"/", http.StripPrefix("/agents/"+name, rt.Handler(name)))
	}
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
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
