package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/internal/shutdown"
)

func (p *program) serveCommand() *cobra.Command {
	s := server{program: p}
	c := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Serve the agents over HTTP",
		Long: `Serve the agents over HTTP.

Each agent is at /agents/<name>/<conversation>, in the protocol of @flue/sdk.
GET /health answers 200 with ok when the program can take messages and work on
them, and 503 with the reason if not. GET /health/live answers 503 only if it
must be started again.

Several such programs may share a PostgreSQL database, see --db: each takes any
request for any conversation, and exactly one works on it. An empty database gets
its tables at the first start; those of an older version are left to the command
migrate, or to --migrate.

The default address is 127.0.0.1:3000, with the port of the variable PORT if it
is set. There is no authentication unless the program adds it, so that other
addresses should only be reachable by who may use the agents.

An interrupt or SIGTERM ends the program in order. At once GET /health says that
it is not ready; for the time of --drain-delay it still takes requests, until
load balancers have noticed. Then it takes no more, ends the streams of its
readers, and lets model calls and tool calls that run come to their end for the
time of --drain. What is unfinished then is taken up when the program is started
the next time, or at once by others that share the database. A second signal ends
it at once.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.serve(c.Context(), c) },
	}
	flags := c.Flags()
	flags.StringVar(&s.addr, "addr", "", "`address` to listen on (default 127.0.0.1:3000)")
	flags.DurationVar(&s.drain, "drain", 15*time.Second, "`time` that running turns get at shutdown")
	flags.DurationVar(&s.delay, "drain-delay", 0, "`time` in which requests are still taken at shutdown, until load balancers send them elsewhere")
	flags.IntVar(&s.limits.Concurrent, "concurrent", 0, "`number` of conversations that are worked on at the same time; negative for no limit (default 1000)")
	flags.IntVar(&s.limits.Backlog, "backlog", 0, "`number` of conversations that may wait before messages are refused; negative for no limit (default 10000)")
	flags.StringArrayVar(&s.hosts, "host", nil, "`name` that requests to a loopback address may use beside localhost, such as that of a proxy; * for any; may be repeated")
	flags.BoolVar(&s.proxy, "trust-proxy", false, "believe X-Forwarded-Proto and X-Forwarded-Host, which a proxy in front must set or remove itself")
	flags.BoolVar(&s.migrate, "migrate", false, "bring the tables of an older version to the format of this one at the start; "+migrateVariable+"=1 does it too")
	return c
}

// migrateVariable stands for --migrate.
const migrateVariable = "FLUE_MIGRATE"

// A server is one use of the command serve.
type server struct {
	*program
	addr    string
	drain   time.Duration
	delay   time.Duration
	limits  flue.Limits
	hosts   []string
	proxy   bool
	migrate bool

	log *slog.Logger
}

// Bounds on what a client may make the server wait for, or hold.
const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = time.Minute
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10

	// requestPatience is how long requests get to be answered at shutdown.
	// Streams are ended at once.
	requestPatience = 5 * time.Second
)

func (s *server) serve(ctx context.Context, c *cobra.Command) error {
	if err := s.setup(c); err != nil {
		return err
	}
	if s.drain < 0 {
		return fmt.Errorf("--drain %s: give a time that is not negative", s.drain)
	}
	if s.delay < 0 {
		return fmt.Errorf("--drain-delay %s: give a time that is not negative", s.delay)
	}
	s.log = slog.New(s.logging.handler(s.err))
	m, err := newModels(&s.app, os.Environ())
	if err != nil {
		return err
	}
	// An address that cannot be had should be known before work is taken up.
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.address())
	if err != nil {
		return fmt.Errorf("listening on %s: %w; choose another address with --addr", s.address(), err)
	}
	defer listener.Close()
	migrate, err := chosen(migrateVariable)
	if err != nil {
		return err
	}
	st, err := s.openStore(ctx, s.log, s.migrate || migrate)
	if err != nil {
		return err
	}
	defer s.closing("the conversations", st.Close)
	rt, err := s.openRuntime(ctx, st, m, s.log, eventLog{s.log}.observe, flue.HTTPLimits{TrustForwarded: s.proxy}, s.limits, nil)
	if err != nil {
		return err
	}
	defer s.closing("the agents", func() error { return closeRuntime(ctx, rt, s.drain) })
	s.warn(rt, m, listener.Addr())
	s.announce(listener.Addr())
	return s.listen(ctx, rt, listener)
}

// address is where to listen.
func (s *server) address() string {
	if s.addr != "" {
		return s.addr
	}
	port := os.Getenv("PORT")
	if port == "" {
		port = "3000"
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// listen serves until ctx ends, and then until what was asked is answered.
func (s *server) listen(ctx context.Context, rt *flue.Runtime, listener net.Listener) error {
	srv := &http.Server{
		Handler:           s.handler(rt, listener.Addr()),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       boundUnsent,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		// No WriteTimeout: a stream lasts as long as its reader. The handler
		// bounds the time for each piece that it writes.
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	s.log.Info("shutting down", "reason", context.Cause(ctx), "delay", s.delay, "drain", s.drain)
	rt.Drain()
	if s.delay > 0 { // load balancers have not noticed yet
		delay := time.NewTimer(s.delay)
		defer delay.Stop()
		select {
		case err := <-failed:
			return fmt.Errorf("serving: %w", err)
		case <-delay.C:
		}
	}
	if err := shutdown.Server(srv, rt, requestPatience); err != nil {
		s.log.Warn("some requests were cut off", "error", err)
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

// handler routes requests to the agents.
func (s *server) handler(rt *flue.Runtime, addr net.Addr) http.Handler {
	agents := http.NewServeMux()
	for _, a := range s.app.Agents {
		prefix := "/agents/" + a.Name
		agents.Handle(prefix+"/", http.StripPrefix(prefix, rt.Handler(a.Name)))
	}
	if s.app.Routes != nil {
		s.app.Routes(agents, rt)
	}
	var h http.Handler = agents
	if s.app.Middleware != nil {
		h = s.app.Middleware(h)
	}
	if loopback(addr) {
		h = allowHosts(s.hosts, h)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", health(rt, flue.Health.Ready))
	mux.HandleFunc("GET /health/accepting", health(rt, flue.Health.Accepting))
	mux.HandleFunc("GET /health/live", health(rt, flue.Health.Alive))
	mux.Handle("/", boundBody(h))
	return mux
}

// boundBody bounds the time that a client may take to send a body. The server's
// own ReadTimeout would end streams as well.
func boundBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			// Where there is no connection to bound there is none to hold.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		next.ServeHTTP(w, r)
	})
}

// loopback reports whether only this machine can reach the address.
func loopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// allowHosts refuses requests under a name that is not that of this machine. A
// web page could otherwise have its own name resolve to a loopback address and
// talk to the agents of whoever looks at it.
func allowHosts(more []string, next http.Handler) http.Handler {
	allowed := map[string]bool{"localhost": true}
	for _, h := range more {
		allowed[strings.ToLower(h)] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		host = strings.ToLower(strings.Trim(host, "[]"))
		if ip := net.ParseIP(host); (ip == nil || !ip.IsLoopback()) && !allowed[host] && !allowed["*"] {
			http.Error(w, "this server is only for localhost; allow another name with --host", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
