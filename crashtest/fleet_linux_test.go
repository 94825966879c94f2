package crashtest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flue-go/flue/internal/faultnet"
	"github.com/flue-go/flue/internal/pgtest"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/postgres"
)

// A drill is how a fleet is run.
type drill struct {
	replicas    int
	lease       time.Duration
	maxAttempts int // of the agents
	pace        int // how slow models and tools are, so that much is under way
}

// A fleet is several servers on one database, behind a balancer, with a link
// between each of them and the database.
type fleet struct {
	drill
	*complaints
	t        *testing.T
	seed     uint64
	dir      string // of logs
	diary    *os.File
	world    *world
	server   *pgtest.Server
	database string          // its URL, not over a link
	db       *postgres.Store // likewise
	balancer *faultnet.Balancer
	front    *httptest.Server
	client   *client
	replicas []*replica
	skew     time.Duration // of the database's clock
	began    time.Time
	pulse    pulse

	mu        sync.Mutex
	processes []*process // all there have been
	outages   []*span    // of the database
	troubles  []*span    // in which something was done to the network, or to the database
	handovers []handover
	pauses    []*span
	counts    map[string]int // of what was done to the fleet
	healed    time.Time      // when the last of it was over
}

// A span is a time in which something is the matter.
type span struct {
	node       string    // of what concerns one process
	began, end time.Time // end is zero while it goes on
}

// over reports whether the span and the time between two moments have one in
// common.
func (s *span) over(from, to time.Time) bool {
	return !s.began.After(to) && (s.end.IsZero() || !s.end.Before(from))
}

// newFleet begins a fleet. It ends with the test.
func newFleet(t *testing.T, d drill) *fleet {
	t.Helper()
	seed := uint64(variable(t, "FLUE_SEED", time.Now().UnixNano()))
	server := pgtest.Start(t, "fsync=off", "max_connections=200") // the machine stays
	skew := []time.Duration{-time.Hour, 0, time.Hour}[seed%3]
	if skew != 0 && !server.Skew(t, skew) {
		skew = 0
	}
	t.Logf("FLUE_SEED=%d; the database's clock is ahead by %v", seed, skew)
	c := &complaints{t: t}
	f := &fleet{
		drill: d, complaints: c, t: t, seed: seed, server: server, database: server.URL, world: newWorld(t, c),
		balancer: faultnet.NewBalancer(d.replicas), skew: skew, began: time.Now(), counts: make(map[string]int),
	}
	f.world.pace = max(d.pace, 1)
	f.keepLogs()
	var err error
	if f.db, err = postgres.Open(t.Context(), f.database, postgres.Options{Migrate: true, Timeout: time.Second, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.db.Close(); err != nil {
			t.Error(err)
		}
	})
	f.front = httptest.NewServer(f.balancer)
	t.Cleanup(func() { f.front.CloseClientConnections(); f.front.Close(); f.balancer.Close() })
	f.client = &client{
		complaints: c, lives: newLives(), http: newClient(), burst: 3,
		patience: 2 * time.Second, silence: 3 * time.Second, poll: 150 * time.Millisecond,
		shortest: 50 * time.Millisecond, longest: time.Second,
	}
	f.client.lives.set(&life{complaints: c, url: f.front.URL, gone: make(chan struct{})})
	t.Cleanup(f.end)
	var feeling sync.WaitGroup
	feeling.Go(func() { f.pulse.feel(t.Context()) })
	t.Cleanup(feeling.Wait)
	f.populate()
	return f
}

// keepLogs makes the directory of logs, which stays if the test fails.
func (f *fleet) keepLogs() {
	var err error
	if f.dir, err = os.MkdirTemp("", "flue-fleet-"); err != nil {
		f.t.Fatal(err)
	}
	if f.diary, err = os.Create(filepath.Join(f.dir, "diary")); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		_ = f.diary.Close()
		if f.t.Failed() {
			f.t.Logf("the logs of the servers are in %s", f.dir)
			return
		}
		if err := os.RemoveAll(f.dir); err != nil {
			f.t.Error(err)
		}
	})
}

// populate begins the replicas.
func (f *fleet) populate() {
	u, err := url.Parse(f.database)
	if err != nil {
		f.t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range f.drill.replicas {
		link, err := faultnet.NewLink(u.Host)
		if err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() { _ = link.Close() })
		r := &replica{f: f, place: i, link: link}
		f.replicas = append(f.replicas, r)
		all.Go(func() { r.start(f.t.Context(), r.node()) })
	}
	all.Wait()
	if f.any() {
		f.t.FailNow()
	}
}

// end ends the processes, whatever they do. If the test has failed it keeps the
// journals beside the logs.
func (f *fleet) end() {
	if f.t.Failed() {
		f.dump()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.processes {
		p.kill()
	}
}

// dump writes every journal to a file, a batch a line.
func (f *fleet) dump() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := f.db.Instances(ctx, store.Address{}, 10_000)
	if err != nil {
		f.t.Logf("the journals cannot be kept: %v", err)
		return
	}
	for _, in := range list {
		var text strings.Builder
		_, _ = fmt.Fprintf(&text, "%+v\n", in)
		for b, err := range store.Batches(ctx, f.db, in.Address, -1) {
			_, _ = fmt.Fprintf(&text, "%d to %d, epoch %d, %v: %s\n", b.Offset, b.Last(), b.Epoch, err, b.Payload)
		}
		name := filepath.Join(f.dir, in.Agent+"-"+in.ID+".journal")
		if err := os.WriteFile(name, []byte(text.String()), 0o600); err != nil {
			f.t.Log(err)
		}
	}
}

// A pulse is how late a goroutine was that wanted to run: what the machine was
// busy with otherwise.
type pulse struct {
	mu    sync.Mutex
	late  time.Duration // in sum
	worst time.Duration
}

// feel feels the pulse until ctx ends.
func (p *pulse) feel(ctx context.Context) {
	const beat = 20 * time.Millisecond
	for ctx.Err() == nil {
		began := time.Now()
		pause(ctx, beat)
		late := time.Since(began) - beat
		p.mu.Lock()
		p.late += max(late, 0)
		p.worst = max(p.worst, late)
		p.mu.Unlock()
	}
}

func (p *pulse) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("the machine let us wait for %v in sum, %v at once", short(p.late), short(p.worst))
}

func (f *fleet) keep(p *process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processes = append(f.processes, p)
}

// random returns a source of its own for one part of the fleet.
func (f *fleet) random(part uint64) *rand.Rand { return rand.New(rand.NewPCG(f.seed, part)) }

// begin notes that something begins to be the matter. The function notes that it
// is over.
func (f *fleet) begin(list *[]*span, node string) (over func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &span{node: node, began: time.Now()}
	*list = append(*list, s)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		s.end = time.Now()
	}
}

// within reports whether any of the spans has a moment of the time since then. One
// that is over counts for a while: what it broke is noticed later.
func (f *fleet) within(list *[]*span, since time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range *list {
		if s.over(since.Add(-f.lease), time.Now()) {
			return true
		}
	}
	return false
}

// troubled reports whether a process that began then may have had a reason to give
// up.
func (f *fleet) troubled(since time.Time) bool {
	return f.within(&f.troubles, since) || f.within(&f.outages, since)
}

// A handover is work that a process had when something was done to it.
type handover struct {
	store.Lease
	how string
	at  time.Time
}

// watch notes what a process owns before something is done to it, which takes so
// long that others go on with it.
func (f *fleet) watch(ctx context.Context, node, how string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	owned, err := f.db.Owned(ctx, node, store.Address{}, 10_000)
	if err != nil {
		return // the database is down, too
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range owned {
		f.handovers = append(f.handovers, handover{o.Lease, how, time.Now()})
	}
}

func (f *fleet) count(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[what]++
}

// note writes down what is done to the fleet, for who reads of a failure.
func (f *fleet) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = fmt.Fprintf(f.diary, "%s %s\n", time.Now().Format(time.RFC3339Nano), fmt.Sprintf(format, args...))
}

// TestFleet lets everything go wrong with three servers on one database, under an
// open load, and holds what is left to the promise.
func TestFleet(t *testing.T) {
	total := duration(t, "FLUE_FLEET", 12*time.Second)
	if total <= time.Minute {
		drill{replicas: 3, lease: 2 * time.Second, pace: 8}.run(t, total)
		return
	}
	// A long run is made of at least three rounds, each with a fleet of its own. One
	// in three has the lease of production.
	round := min(max(total/3, time.Minute), 4*time.Minute)
	for n, began := 0, time.Now(); time.Since(began) < total && !t.Failed(); n++ {
		d := drill{replicas: 3, lease: 2 * time.Second, pace: 8}
		if n%3 == 1 {
			d.lease = production
		}
		length := min(round, max(total-time.Since(began), time.Minute))
		t.Run(fmt.Sprintf("round %d, lease %v", n, d.lease), func(t *testing.T) { d.run(t, length) })
	}
}

// duration is that in the environment variable, or else the usual one.
func duration(t *testing.T, name string, usual time.Duration) time.Duration {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return usual
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return d
}

// production is the lease that processes have if nobody says otherwise.
const production = 10 * time.Second

// conversations is how many are held at the same time.
const conversations = 96

func (d drill) run(t *testing.T, length time.Duration) {
	f := newFleet(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), length+3*time.Minute)
	defer cancel()
	l := f.newLoad(conversations, 10)
	stop := make(chan struct{})
	time.AfterFunc(length, func() { close(stop) })
	var busy sync.WaitGroup
	busy.Go(func() { f.plague(ctx, stop, nemeses) })
	l.run(ctx, stop)
	busy.Wait()
	if f.settle(ctx, l.addresses()) {
		f.inTime(cancel, "the clients that wait to learn that all is settled", l.waiters.Wait)
		close(l.drained)
		f.inTime(cancel, "the followers to end", l.followers.Wait)
		f.inTime(cancel, "one more message to each conversation", func() { l.goOn(ctx) })
	}
	cancel()
	l.waiters.Wait()
	l.followers.Wait()
	h := f.retire()
	if !f.any() {
		l.audit(context.Background(), h)
	}
	l.report()
}

// inTime complains, and ends all, if something takes much longer than it should.
func (f *fleet) inTime(cancel context.CancelFunc, what string, wait func()) {
	late := time.AfterFunc(settleLimit, func() {
		f.complain("it takes longer than %v for %s", settleLimit, what)
		cancel()
	})
	defer late.Stop()
	wait()
}
