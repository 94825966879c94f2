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
	"github.com/flue-go/flue/store/postgres"
	"github.com/flue-go/flue/store/sqlite"
)

// A keeper is a store that the tools of an operator can look into.
type keeper interface {
	store.Store
	store.Lister
}

// defaultDB is where conversations are kept, under the working directory.
func (p *program) defaultDB() string {
	return filepath.Join(".flue", p.app.Name+".db")
}

// openStore opens the place of the conversations, which need not be there yet: it
// makes a file and its directory, and the tables in a database that has none of
// ours. Tables of an older format are brought to that of this program if migrate
// says so.
func (p *program) openStore(ctx context.Context, log *slog.Logger, migrate bool) (keeper, error) {
	switch {
	case p.place.memory:
		return memstore.New(), nil
	case p.place.shared():
		return asKeeper(p.openDatabase(ctx, log, migrate))
	}
	if err := os.MkdirAll(filepath.Dir(p.place.file), 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the conversations: %w", err)
	}
	st, err := sqlite.Open(ctx, p.place.file, sqlite.Options{})
	if errors.Is(err, store.ErrLocked) {
		return nil, fmt.Errorf("opening the conversations: %w. If that is a server, talk to it over HTTP; a file of its own is given with --db", err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the conversations: %w", err)
	}
	return st, nil
}

// asKeeper does not make a store of none.
func asKeeper(st *postgres.Store, err error) (keeper, error) {
	if err != nil {
		return nil, err
	}
	return st, nil
}

// options are those of the store in the database.
func (p place) options(log *slog.Logger) postgres.Options {
	return postgres.Options{Schema: p.schema, MaxConns: p.conns, Listen: p.listen, Log: log}
}

func (p *program) openDatabase(ctx context.Context, log *slog.Logger, migrate bool) (*postgres.Store, error) {
	o := p.place.options(log)
	version, known, err := postgres.Format(ctx, p.place.url, o)
	if err != nil {
		return nil, p.unopened(err)
	}
	switch due := version < known; {
	case due && !migrate && version > 0:
		return nil, p.unopened(p.outdated(version, known, "; serve --migrate does it at its start"))
	case due:
		// Nobody uses tables that are not there, so making them harms nobody.
		o.Migrate = true
		log.Info("bringing the tables to the format of this program", "in", p.place.String(), "from", version, "to", known)
	}
	o.Migrate = o.Migrate || migrate && version == known // which may lack what came to the format later
	st, err := postgres.Open(ctx, p.place.url, o)
	if err != nil {
		return nil, p.unopened(err)
	}
	return st, nil
}

func (p *program) unopened(err error) error {
	return fmt.Errorf("opening the conversations in %s: %w", p.place, err)
}

// outdated says that the tables are of an older format than this program's.
func (p *program) outdated(version, known int, more string) error {
	return fmt.Errorf("%w: they have format %d, and this program needs %d: bring them to it with %s migrate, once no older version uses them%s",
		store.ErrFormat, version, known, p.app.Name, more)
}

// openExisting opens conversations that are there: to read them beside whoever
// has them open, or to repair one. A file is then for this program alone.
func (p *program) openExisting(ctx context.Context, toRead bool) (keeper, error) {
	switch {
	case p.place.memory:
		return nil, fmt.Errorf("--db %s keeps nothing that could be looked at: name a file or a database", inMemory)
	case p.place.shared():
		return asKeeper(p.openFilled(ctx))
	}
	if err := p.exists(); err != nil {
		return nil, err
	}
	st, err := sqlite.Open(ctx, p.place.file, sqlite.Options{ReadOnly: toRead})
	if errors.Is(err, store.ErrLocked) {
		return nil, fmt.Errorf("opening the conversations: %w. A repair needs them for itself: stop the program that has them", err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the conversations: %w", err)
	}
	return st, nil
}

// exists fails unless there is a file.
func (p *program) exists() error {
	if _, err := os.Stat(p.place.file); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no file %s: name the place of the conversations with --db or %s", p.place.file, dbVariable)
	}
	return nil
}

// openFilled opens a database that has tables of this program's format.
func (p *program) openFilled(ctx context.Context) (*postgres.Store, error) {
	o := p.place.options(slog.New(slog.DiscardHandler))
	version, known, err := postgres.Format(ctx, p.place.url, o)
	switch {
	case err != nil:
		return nil, p.unopened(err)
	case version == 0:
		return nil, fmt.Errorf("there are no conversations in %s: name another place with --db or %s", p.place, dbVariable)
	case version < known:
		return nil, p.unopened(p.outdated(version, known, ""))
	}
	st, err := postgres.Open(ctx, p.place.url, o)
	if err != nil {
		return nil, p.unopened(err)
	}
	return st, nil
}

// openRuntime starts the agents on the store. If only is not nil, work of other
// conversations is left to others.
func (p *program) openRuntime(ctx context.Context, st store.Store, m *models, log *slog.Logger, observe func(flue.Event), http flue.HTTPLimits, limits flue.Limits, only []store.Address) (*flue.Runtime, error) {
	return flue.Open(ctx, flue.Config{
		Only:   only,
		Agents: p.app.Agents, Providers: m.providers, Middleware: p.app.ModelMiddleware, Catalog: m.lookup, Similar: catalog.Similar, StrictModels: p.app.StrictModels, Store: st,
		Node: nodeName(), Log: log, Observe: observe, HTTP: http, Limits: limits,
	})
}

// closeRuntime stops the agents, which may go on to the end of their turns for
// the time given. It may be called when ctx has ended.
func closeRuntime(ctx context.Context, rt *flue.Runtime, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return rt.Close(ctx)
}
