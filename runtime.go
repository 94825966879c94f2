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
	// as "anthropic" in "anthropic/claude-haiku-4-5".
	Providers map[string]model.Provider

	// Catalog says what is known of a model. Nil means that nothing is;
	// package model/catalog has the data of well-known ones.
	Catalog func(provider, id string) (model.Info, bool)

	// Store keeps the journals. It is the caller's to close, after the runtime.
	// Nil means a store in memory, which forgets everything when the process
	// ends; package store/sqlite has one that does not.
	Store store.Store

	// Node names this process among those that share the store. The default
	// suits a store that only one process may open.
	Node string

	// Log is where the runtime writes what operators should know. Nil means
	// nowhere. Message bodies, arguments and results are not written to it.
	Log *slog.Logger

	// Observe, if set, is told what happens, after the fact is durable and in
	// order for each instance. It is called on the goroutines that do the work
	// and must not block.
	Observe func(Event)

	// Retries is how often in a row a model call is repeated when it failed in
	// a way that may pass. Default 3; negative means never.
	Retries int

	// RetryBase is the pause before the first repeat. It doubles with each, up
	// to a minute, and is never less than the provider asks for. Default 2 s.
	RetryBase time.Duration

	// Grace is how long a tool or a model stream may take to return once its
	// context has ended, before it is left behind. Default 2 s.
	Grace time.Duration

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

// An Event tells an observer what happened. Which fields are set depends on
// its Type; see the Event constants.
type Event = engine.Event

// A LogLine is a line that a tool logged; see [Log].
type LogLine = engine.LogLine

// EventType names what an [Event] tells.
type EventType = engine.EventType

// The types of event.
const (
	EventAdmitted       = engine.EventAdmitted       // a submission was accepted
	EventAttemptStarted = engine.EventAttemptStarted // a try at it began; Reason says why when it is not the first
	EventReleased       = engine.EventReleased       // a try was given up because the runtime closes
	EventRecovered      = engine.EventRecovered      // work that was interrupted is taken up; Reason says how
	EventTurnStarted    = engine.EventTurnStarted    // a model call began
	EventText           = engine.EventText           // the model wrote text
	EventTurnDone       = engine.EventTurnDone       // the model call ended
	EventToolStarted    = engine.EventToolStarted    // a tool call began
	EventToolDone       = engine.EventToolDone       // a tool call has its outcome
	EventLog            = engine.EventLog            // a tool logged a line
	EventSettled        = engine.EventSettled        // a submission ended
	EventDamaged        = engine.EventDamaged        // an instance's journal cannot be continued
)

// A Runtime runs agents. It is safe for concurrent use; a program may have
// several.
type Runtime struct {
	engine *engine.Engine
	agents map[string]*Agent
	log    *slog.Logger
	limits HTTPLimits

	expiries expiries

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
	_, err := engine.Open(ctx, engine.Config{
		Store: cfg.Store, Programs: programs, Models: models{cfg.Providers, cfg.Catalog}, Node: cfg.Node,
		Log: cfg.Log, Observe: cfg.Observe, Retries: cfg.Retries, RetryBase: cfg.RetryBase, Grace: cfg.Grace,

		Opened: func(e *engine.Engine) { rt.engine = e }, // a hook of what is taken up may send a message at once
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

// Close stops the runtime. Running responses may go on to the end of their
// turn until ctx ends, then they are cut; either way the next process that
// opens the store takes them up, without counting that as a failed attempt.
// Close returns an error if something ignores its context and still runs.
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
	return rt.engine.Close(ctx)
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
