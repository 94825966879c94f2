package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model/catalog"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/sqlite"
)

// inMemory is the --db of conversations that end with the program.
const inMemory = ":memory:"

// defaultDB is where conversations are kept, under the working directory.
func (p *program) defaultDB() string {
	return filepath.Join(".flue", p.app.Name+".db")
}

// openStore opens the store that --db names, making its directory if need be.
func (p *program) openStore(ctx context.Context) (mendable, error) {
	if p.db == inMemory {
		return memstore.New(), nil
	}
	if err := os.MkdirAll(filepath.Dir(p.db), 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the conversations: %w", err)
	}
	st, err := sqlite.Open(ctx, p.db, sqlite.Options{})
	if errors.Is(err, store.ErrLocked) {
		return nil, fmt.Errorf("opening the conversations: %w. If that is a server, talk to it over HTTP; a file of its own is given with --db", err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the conversations: %w", err)
	}
	return st, nil
}

// openRuntime starts the agents on the store.
func (p *program) openRuntime(ctx context.Context, st store.Store, m *models, log *slog.Logger, observe func(flue.Event), http flue.HTTPLimits) (*flue.Runtime, error) {
	return flue.Open(ctx, flue.Config{
		Agents: p.app.Agents, Providers: m.providers, Catalog: catalog.Lookup, Store: st,
		Log: log, Observe: observe, HTTP: http,
	})
}

// closeRuntime stops the agents, which may go on to the end of their turns for
// the time given. It may be called when ctx has ended.
func closeRuntime(ctx context.Context, rt *flue.Runtime, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return rt.Close(ctx)
}
