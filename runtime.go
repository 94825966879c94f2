package flue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/httpapi"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// Config says which agents a [Runtime] runs and with what.
type Config struct {
	// Agents are the agents of this runtime. Their names must be unique.
	Agents []*Agent

	// Providers are the model providers by the name that specifiers use, such
	// as "anthropic" in "anthropic/claude-haiku-4-5". Package model/providers
	// makes those that the environment has keys for. A response whose model
	// names another one, or one that cannot be used, fails before anything is
	// done for it, with a [*ModelError].
	Providers map[string]model.Provider

	// Middleware is put around every provider. The first is the outermost: it
	// sees a request first, and what comes of it last.
	Middleware []model.Middleware

	// Catalog says what is known of a model. Nil means that nothing is;
	// package model/catalog has the data of well-known ones. A model that it
	// does not know is asked all the same; that is logged, once for each.
	Catalog func(provider, id string) (model.Info, bool)

	// Similar, if set, names models like one that Catalog does not know, for
	// that log line and for the error when the provider does not have it either;
	// package model/catalog has one.
	Similar func(provider, id string) []string

	// StrictModels refuses models that nobody lists: a response whose model is
	// neither known to Catalog nor to a provider that has a list of its own (a
	// [model.Lister]) fails before anything is done for it, with a [*ModelError]
	// that says which models there are.
	StrictModels bool

	// Store keeps the journals. It is the caller's to close, after the runtime.
	// Nil means a store in memory, which forgets everything when the process
	// ends; package store/sqlite has one that does not.
	Store store.Store

	// Node names this process among those that share the store. It must differ
	// between them, and between one life of a process and the next. The default
	// does, if the store is one that several processes may have open.
	Node string

	// LeaseTTL is how long this process may be silent towards the store before
	// others take over what it works on, if others share the store. It stops its
	// work itself after half of that. Shorter means that others go on sooner after
	// a crash, and that a slow database is taken for one. Default 10 s.
	LeaseTTL time.Duration

	// Only, if not nil, are the instances whose unfinished work this runtime looks
	// for: for a program that is there for some conversations only, beside others
	// that share the store. It takes messages for all instances, and works on one
	// that nobody owns when it has sent a message to it.
	Only []store.Address

	// Log is where the runtime writes what operators should know. Nil means
	// nowhere. Message bodies, arguments and results are not written to it.
	Log *slog.Logger

	// Observe, if set, is told what happens, from the first moment on, but for
	// deltas and requests; see [Runtime.Observe], which has those too. It is called
	// on a goroutine of its own, one event at a time. However slow it is, and even
	// if it panics, no work waits for it or fails: events that it is too slow for
	// are dropped, and an EventDropped says how many.
	Observe func(Event)

	// StallAfter is how long work may come no further before observers get an
	// EventStalled, and get it again. Default 5 minutes.
	StallAfter time.Duration

	// Retries is how often in a row a model call is repeated when it failed in
	// a way that may pass. Default 3; negative means never.
	Retries int

	// RetryBase is the pause before the first repeat. It doubles with each, up
	// to a minute, and is never less than the provider asks for. A response whose
	// attempts were interrupted and achieved nothing is taken up again after a
	// quarter of it, which doubles up to half a minute. Default 2 s.
	RetryBase time.Duration

	// Grace is how long a tool or a model stream may take to return once its
	// context has ended, before it is left behind. Default 2 s.
	Grace time.Duration

	// CheckpointEvery is how many records an instance's journal grows by before
	// its state is kept as a checkpoint, from which a process can take it up
	// without reading the journal from its start. It is written beside the work,
	// and only if the store can keep any. Default 256; negative means never. With
	// 1 there is one after every append, which waits for it: tests of recovery
	// want that, and nobody else.
	CheckpointEvery int

	// MergeAfter is how old the text of an answer must be, and the answer settled,
	// before the many pieces in which it was streamed are kept as one, if the store
	// can do that. A client that had stopped reading in the middle of the text, and
	// goes on later than that, is sent the conversation instead. Default 10
	// minutes; negative means never.
	MergeAfter time.Duration

	// Limits bound what the runtime takes on at a time.
	Limits Limits

	// HTTP bounds what [Runtime.Handler] accepts.
	HTTP HTTPLimits
}

// HTTPLimits bounds what a handler accepts. The zero value means the defaults.
type HTTPLimits struct {
	// Body is the largest request body in bytes. Default 32 MiB.
	Body int64

	// TrustForwarded lets X-Forwarded-Proto and X-Forwarded-Host decide which
	// URL clients are told to read from. Set it only behind a proxy that sets
	// or removes these headers itself.
	TrustForwarded bool
}

// A Runtime runs agents. It is safe for concurrent use; a program may have
// several.
type Runtime struct {
	engine *engine.Engine
	agents map[string]*Agent
	models *models
	log    *slog.Logger
	limits HTTPLimits

	expiries expiries
	observed observed

	mu       sync.Mutex
	handlers []*httpapi.Handler
}

// Open starts a runtime. It takes up at once what earlier processes left
// unfinished in the store. It fails if an agent's definition is bad.
func Open(ctx context.Context, cfg Config) (*Runtime, error) {
	rt := &Runtime{agents: make(map[string]*Agent), log: cfg.Log, limits: cfg.HTTP}
	if rt.log == nil {
		rt.log = slog.New(slog.DiscardHandler)
	}
	programs := make(map[string]engine.Program)
	for _, a := range cfg.Agents {
		if a == nil {
			return nil, errors.New("flue: Config.Agents has a nil agent")
		}
		if err := a.validate(); err != nil {
			return nil, err
		}
		if rt.agents[a.Name] != nil {
			return nil, fmt.Errorf("flue: two agents are named %s: the name is an agent's identity and must be unique", a.Name)
		}
		rt.agents[a.Name] = a
		programs[a.Name] = program{a, rt}
	}
	if cfg.Store == nil {
		cfg.Store = memstore.New()
	}
	var err error
	if rt.models, err = newModels(&cfg, rt.log); err != nil {
		return nil, err
	}
	_, err = engine.Open(ctx, engine.Config{
		Store: cfg.Store, Programs: programs, Models: rt.models, Node: cfg.Node, Only: cfg.Only, LeaseTTL: cfg.LeaseTTL,
		Log: cfg.Log, StallAfter: cfg.StallAfter, Retries: cfg.Retries, RetryBase: cfg.RetryBase, Grace: cfg.Grace,
		CheckpointEvery: cfg.CheckpointEvery, MergeAfter: cfg.MergeAfter,
		Concurrent: cfg.Limits.Concurrent, Backlog: cfg.Limits.Backlog, MemoryLimit: cfg.Limits.Memory,

		Opened: func(e *engine.Engine) {
			rt.engine = e // a hook of what is taken up may send a message at once
			rt.observed.start(e, cfg.Observe, rt.log)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("flue: opening a runtime: %w", err)
	}
	return rt, nil
}

// Dispatch sends a message to the instance of the agent with the id; see
// [Instance.Dispatch]. The first message creates the instance.
func (rt *Runtime) Dispatch(ctx context.Context, agent, id string, m Message, options ...SendOptions) (Receipt, error) {
	return rt.Instance(agent, id).Dispatch(ctx, m, options...)
}

// Drain says that the program is about to end: the runtime is not ready any more, see
// [Health], so that load balancers send requests elsewhere, and all else goes on. It
// returns at once. Call it some seconds before [Runtime.Close].
//
// On a store that processes share the others take over: this one gives back what it
// does not work on at once, and each other instance when its response has ended. What
// it accepts from then on is theirs.
func (rt *Runtime) Drain() { rt.engine.Retire() }

// Stop begins what [Runtime.Close] waits for, and returns at once: model calls and tool
// calls that run may go on to their end, and none begins, and what is given up is given
// back so that others that share the store go on with it. Messages are still accepted
// and conversations read. Call it when the server is told to take no more requests, and
// Close when it has answered those that it had.
func (rt *Runtime) Stop() { rt.engine.Stop() }

// Close stops the runtime. Model calls and tool calls that run may go on to
// their end until ctx ends, then they are cut, and none begins; either way the
// next process that opens the store takes the responses up, without counting
// that as a failed attempt.
// Close returns an error if something ignores its context and still runs, or if
// Config.Observe does not come to an end.
//
// The streams that handlers serve end at once. Close a server before its
// runtime, so that no message is refused that could still be accepted.
func (rt *Runtime) Close(ctx context.Context) error {
	rt.mu.Lock()
	for _, h := range rt.handlers {
		h.Close()
	}
	rt.mu.Unlock()
	rt.expiries.close()
	err := rt.engine.Close(ctx)
	return errors.Join(err, rt.observed.wait(ctx))
}

// Handler serves the conversations of one agent over HTTP, in the protocol of
// @flue/sdk. It serves paths relative to where it is mounted, such as "/{id}"
// and "/{id}/abort":
//
//	mux.Handle("/agents/support/", http.StripPrefix("/agents/support", rt.Handler("support")))
//
// Who may use it is the application's to decide: wrap it. It panics if the
// runtime has no agent of that name.
func (rt *Runtime) Handler(agent string) http.Handler {
	if rt.agents[agent] == nil {
		panic(fmt.Sprintf("flue: Handler(%q): no such agent; this runtime has %s", agent, list(rt.agents)))
	}
	h := httpapi.New(httpapi.Config{
		Backend: &backend{rt, agent}, Logger: rt.log, MaxBody: rt.limits.Body, TrustForwarded: rt.limits.TrustForwarded,
	})
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.handlers = append(rt.handlers, h)
	return h
}

// list names the keys of a map for an error.
func list[V any](m map[string]V) string {
	if len(m) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
