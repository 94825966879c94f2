package flue_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/internal/pgtest"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/postgres"
	"github.com/flue-go/flue/store/sqlite"
)

// A counted store says how many commits it has made.
type counted interface {
	store.Store
	Commits() int64
}

func countedStores(t *testing.T) map[string]func(t *testing.T) counted {
	t.Helper()
	return map[string]func(t *testing.T) counted{
		"sqlite": func(t *testing.T) counted {
			s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "flue.db"), sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		"postgres": func(t *testing.T) counted {
			s, err := postgres.Open(t.Context(), pgtest.Database(t), postgres.Options{Migrate: true})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	}
}

// A message costs as many commits on one database as on the other: what it waits
// for is decided by the engine, and a store adds nothing.
func TestCommitsOnDatabases(t *testing.T) {
	tests := []struct {
		message string
		want    int64
	}{
		{"hello", 3}, // accepted; begun and put to the model; answered and settled
		{"work", 6},  // the two calls begun, each one's outcome
	}
	for name, open := range countedStores(t) {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			first, settled := make(chan struct{}, 1), make(chan string, 1)
			rt, err := flue.Open(t.Context(), flue.Config{
				Agents: []*flue.Agent{commitAgent(first)}, Store: s, Log: slog.New(slog.DiscardHandler),
				LeaseTTL:  time.Hour, // renewing it is a commit on some stores
				Providers: map[string]model.Provider{"fake": commitModel()},
				Observe: func(ev flue.Event) {
					switch ev.Type {
					case flue.EventToolDone:
						if ev.Tool == "first" {
							first <- struct{}{}
						}
					case flue.EventIdle: // the last commit has been made
						settled <- ev.Instance.ID
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close(context.WithoutCancel(t.Context()))
			for _, tt := range tests {
				for range 2 { // one that creates its instance costs no more
					before := s.Commits()
					if _, err := rt.Dispatch(t.Context(), "worker", tt.message, flue.User(tt.message)); err != nil {
						t.Fatal(err)
					}
					select {
					case <-settled:
					case <-time.After(time.Minute):
						t.Fatal("the message was not settled")
					}
					if got := s.Commits() - before; got != tt.want {
						t.Errorf("the message %q took %d commits, want %d", tt.message, got, tt.want)
					}
				}
			}
		})
	}
}

// commitAgent has two tools, of which the second one ends when the first one's
// outcome is durable: if they end at the same instant, one commit does for both.
func commitAgent(first <-chan struct{}) *flue.Agent {
	return &flue.Agent{Name: "worker", Render: func(r *flue.Render) string {
		flue.UseModel(r, "fake/m")
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "first", Description: "Is first."}, func(context.Context, struct{}) (string, error) {
			return "done", nil
		}))
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "second", Description: "Waits for the first."}, func(ctx context.Context, _ struct{}) (string, error) {
			select {
			case <-first:
				return "done", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}))
		return ""
	}}
}

func commitModel() model.Provider {
	return script.New(script.Func(func(req *model.Request) script.Turn {
		if script.LastUser(req) == "work" && script.Step(req) == 0 {
			return script.Call("first", nil).Call("second", nil)
		}
		return script.Say("done")
	}))
}
