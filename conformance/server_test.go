package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/conformance/modelserver"
	"github.com/flue-go/flue/conformance/tap"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/openai"
	"github.com/flue-go/flue/store/sqlite"
)

// mounts are the agents of the recordings, by the path that they are under.
var mounts = map[string]*flue.Agent{
	"chat":       {Name: "Chat", Render: chat},
	"chat-think": {Name: "chat-think", Render: think},
	"tool":       {Name: "tool-agent", Render: tool},
	"schema":     {Name: "schema-agent", Render: schema, InitialData: flue.SchemaFor[issue]()},
	"durable":    {Name: "durable-agent", Render: durable},
	"brittle":    {Name: "brittle", Render: chat, Durability: flue.Durability{MaxAttempts: 1, Timeout: 5 * time.Second}},
	"broken":     {Name: "broken", Render: func(*flue.Render) string { panic("this agent cannot be rendered") }},
}

func chat(r *flue.Render) string {
	flue.UseModel(r, "mock/mock")
	return "You are a test agent."
}

func think(r *flue.Render) string {
	flue.UseModel(r, "mock/mock", flue.ModelOptions{Thinking: flue.ThinkingMedium})
	return "You are a test agent."
}

type order struct {
	OrderID string `json:"orderId" jsonschema:"order number"`
}

type orderStatus struct {
	OrderID string `json:"orderId"`
	Status  string `json:"status"`
	ETA     string `json:"eta"`
}

var lookupOrder = flue.NewTool(flue.Tool{Name: "lookup_order", Description: "Look up one order."},
	func(ctx context.Context, in order) (orderStatus, error) {
		if in.OrderID == "throw" {
			return orderStatus{}, errors.New("order service down")
		}
		if ms, ok := strings.CutPrefix(in.OrderID, "sleep:"); ok {
			n, _ := strconv.Atoi(ms)
			select {
			case <-time.After(time.Duration(n) * time.Millisecond):
			case <-ctx.Done():
				return orderStatus{}, ctx.Err()
			}
		}
		return orderStatus{in.OrderID, "shipped", "2026-01-01"}, nil
	})

// slowestFirst takes the longer the earlier the call is in its batch.
var slowestFirst = flue.NewTool(flue.Tool{Name: "slowest_first", Description: "Take some time."},
	func(ctx context.Context, _ struct{}) (string, error) {
		id := flue.CallID(ctx)
		n, _ := strconv.Atoi(id[strings.LastIndexByte(id, '_')+1:])
		select {
		case <-time.After(time.Duration(3-n) * 200 * time.Millisecond):
			return "done", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})

func tool(r *flue.Render) string {
	flue.UseTool(r, lookupOrder)
	flue.UseTool(r, slowestFirst)
	return chat(r)
}

type provisioning struct {
	Steps   int `json:"steps"`
	DelayMS int `json:"delayMs,omitempty"`
}

type provisioned struct {
	Steps int     `json:"steps"`
	MS    float64 `json:"ms"`
}

// provision runs as many steps as it is told, one after the other, and says how
// long they took.
var provision = flue.NewDurableTool(flue.Tool{Name: "provision", Description: "Provision in steps."},
	func(ctx context.Context, step *flue.Step, in provisioning) (provisioned, error) {
		began := time.Now()
		for i := range in.Steps {
			n, err := flue.Do(ctx, step, "step-"+strconv.Itoa(i), func(ctx context.Context) (int, error) {
				select {
				case <-time.After(time.Duration(in.DelayMS) * time.Millisecond):
					return i, nil
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			})
			if err != nil || n != i {
				return provisioned{}, fmt.Errorf("step %d gave %d: %w", i, n, err)
			}
		}
		return provisioned{in.Steps, float64(time.Since(began).Microseconds()) / 1000}, nil
	})

func durable(r *flue.Render) string {
	flue.UseTool(r, provision)
	return chat(r)
}

type issue struct {
	Issue float64 `json:"issue"`
}

type progress struct {
	Pct int `json:"pct"`
}

// schema has creation data, and writes what only clients see: a data part from
// its tool, and metadata at both ends of a response. Its instruction changes when
// it has worked.
func schema(r *flue.Render) string {
	count := flue.UsePersistentState(r, "count", 0)
	shown := flue.UseDataWriter[progress](r, "progress")
	flue.UseTool(r, flue.NewTool(flue.Tool{Name: "work", Description: "Do work and report progress."},
		func(ctx context.Context, _ struct{}) (string, error) {
			if err := shown.Write(ctx, progress{50}); err != nil {
				return "", err
			}
			return "done", count.Update(ctx, func(n int) int { return n + 1 })
		}))
	flue.UseResponseStart(r, func(context.Context, *flue.ResponseStart) (flue.Metadata, error) {
		return flue.Metadata{"startedBy": "schema-agent"}, nil
	})
	flue.UseResponseFinish(r, func(context.Context, *flue.ResponseFinish) (flue.Metadata, error) {
		return flue.Metadata{"finished": true}, nil
	})
	issue := flue.UseInitialData[issue](r)
	return fmt.Sprintf("%s It is about issue %v, and you have worked %d times.", chat(r), issue.Issue, count.Value())
}

// start runs a server with every agent on a database of its own, and a tap in
// front of it.
func start(t *testing.T) *tap.Tap {
	t.Helper()
	models := httptest.NewServer(new(modelserver.Server))
	t.Cleanup(models.Close)
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "flue.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	var agents []*flue.Agent
	for _, a := range mounts {
		agents = append(agents, a)
	}
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: agents, Store: db, Log: log,
		Providers: map[string]model.Provider{"mock": openai.New(openai.Config{BaseURL: models.URL + "/v1", Name: "mock"})},
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for path, a := range mounts {
		mux.Handle("/agents/"+path+"/", http.StripPrefix("/agents/"+path, rt.Handler(a.Name)))
	}
	srv := httptest.NewServer(mux)
	p, err := tap.Start(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		srv.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := rt.Close(ctx); err != nil {
			t.Errorf("closing the runtime: %v", err)
		}
	})
	return p
}

// testWriter writes to a test's log.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}
