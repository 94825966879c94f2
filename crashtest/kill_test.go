package crashtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/internal/linear"
	"github.com/flue-go/flue/store/sqlite"
)

// A trial is one run of the proof.
type trial struct {
	kills       int
	acts        int           // how many requests a life makes at most before it ends, however slow the machine is
	soonest     time.Duration // after the server is ready
	latest      time.Duration
	burst       int // see client
	maxAttempts int
}

func TestKill(t *testing.T) {
	kills := 500
	if testing.Short() {
		kills = 25
	}
	kills = int(variable(t, "FLUE_KILLS", int64(kills)))
	trial{kills: kills, acts: 24, latest: 400 * time.Millisecond, burst: 5, maxAttempts: 10_000}.run(t)
}

// With the usual bound on attempts no message may fail either, as long as lives
// are long enough to get something done.
func TestKillUsualAttempts(t *testing.T) {
	kills := 40
	if testing.Short() {
		kills = 5
	}
	trial{kills: kills, soonest: 150 * time.Millisecond, latest: 300 * time.Millisecond, burst: 2}.run(t)
}

// variable is the number in the environment variable, or else the usual one.
func variable(t *testing.T, name string, usual int64) int64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return usual
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// A run is what a trial is made of while it runs.
type run struct {
	trial
	*complaints
	t      *testing.T
	world  *world
	file   string
	client *client
	rng    *rand.Rand
	seed   uint64

	began   int // lives
	resumed [][]time.Duration
	drain   chan struct{} // closed when clients should begin nothing more

	mu            sync.Mutex
	conversations []*conversation
}

func (tr trial) run(t *testing.T) {
	seed := uint64(variable(t, "FLUE_SEED", time.Now().UnixNano()))
	t.Logf("FLUE_SEED=%d", seed)
	c := &complaints{t: t}
	r := &run{
		trial: tr, complaints: c, t: t, world: newWorld(t, c), file: filepath.Join(t.ArtifactDir(), "flue.db"),
		client: &client{complaints: c, lives: newLives(), http: newClient(), burst: tr.burst},
		rng:    rand.New(rand.NewPCG(seed, 0)), seed: seed, drain: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	for i := range 3 * perAgent {
		clients.Go(func() { r.converse(ctx, i) })
	}
	start := time.Now()
	for i := 0; i < tr.kills && !r.any(); i++ {
		r.cycle()
	}
	took := time.Since(start)
	t.Logf("%d kills in %.1f s: %.0f a minute", r.began, took.Seconds(), float64(r.began)/took.Minutes())

	last := r.begin()
	if !last.await() {
		last.kill()
		return
	}
	r.client.lives.set(last)
	r.settle(ctx, cancel, &clients)
	r.client.lives.end(last)
	last.stop()
	r.resumed = append(r.resumed, last.resumed) // which it no longer changes
	r.audit()
	r.report()
}

// perAgent is how many conversations are held with each agent at a time.
const perAgent = 8

// converse holds one conversation after the other.
func (r *run) converse(ctx context.Context, i int) {
	rng := rand.New(rand.NewPCG(r.seed, uint64(i+1)))
	for n := 0; ctx.Err() == nil; n++ {
		select {
		case <-r.drain:
			return
		default:
		}
		c := &conversation{agent: []string{"openai", "anthropic", "shaky"}[i%3], id: fmt.Sprintf("%d-%d", i, n)}
		r.mu.Lock()
		r.conversations = append(r.conversations, c)
		r.mu.Unlock()
		r.client.converse(ctx, c, rng)
	}
}

func (r *run) begin() *life {
	l := begin(r.t, r.complaints, serverConfig{Life: r.began, File: r.file, World: r.world.http.URL, MaxAttempts: r.maxAttempts})
	r.began++
	return l
}

// cycle is one life of the server and its violent end: mostly at a random
// moment after it is ready, sometimes while it starts or while it stops.
func (r *run) cycle() {
	l := r.begin()
	how := r.rng.IntN(10)
	wait := r.soonest + time.Duration(r.rng.Int64N(int64(r.latest-r.soonest)))
	acts := int64(r.rng.IntN(r.acts + 1))
	if how == 0 {
		<-time.After(time.Duration(r.rng.Int64N(int64(60 * time.Millisecond))))
		close(l.gone)
		l.kill()
		return
	}
	if l.await() {
		r.client.lives.set(l)
		if r.acts > 0 {
			r.world.await(acts, wait)
			wait = time.Duration(r.rng.Int64N(int64(6 * time.Millisecond)))
		}
		<-time.After(wait)
		r.client.lives.end(l)
	}
	if how == 1 {
		_ = l.stdin.Close()
		<-time.After(time.Duration(r.rng.Int64N(int64(10 * time.Millisecond))))
		l.ending = true
	}
	l.kill()
	r.resumed = append(r.resumed, l.resumed)
}

// settle lets all that was sent come to its end, and then one more message in
// each conversation. It holds the histories to the promise.
func (r *run) settle(ctx context.Context, cancel context.CancelFunc, clients *sync.WaitGroup) {
	r.mu.Lock()
	limit := settleTime + time.Duration(len(r.conversations))*checkTime
	r.mu.Unlock()
	late := time.AfterFunc(limit, func() {
		r.complain("not all is settled and checked %v after the last kill", limit)
		cancel()
	})
	defer late.Stop()
	close(r.drain)
	clients.Wait()
	next := make(chan *conversation)
	for range perAgent {
		clients.Go(func() {
			for c := range next {
				s := c.add([]string{"charge+ship"})
				if r.client.send(ctx, c, s, false) {
					r.client.waitFrom(ctx, c, s)
				}
				if ctx.Err() == nil {
					r.client.checkHistory(ctx, c)
				}
			}
		})
	}
	for _, c := range r.conversations {
		next <- c
	}
	close(next)
	clients.Wait()
}

// What bounds the time in which the last life must settle everything, and then
// one more message of each conversation.
const (
	settleTime = time.Minute
	checkTime  = 100 * time.Millisecond
)

// enoughKills are so many that some must fall between the failure of a model and
// the answer of the next one.
const enoughKills = 200

// judgeTime is how long a history may be judged. It takes a second where nothing else
// runs.
const judgeTime = 2 * time.Minute

// audit holds the database to the promise.
func (r *run) audit() {
	ctx := context.Background()
	r.checkFile(ctx, r.file)
	db, err := sqlite.Open(ctx, r.file, sqlite.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			r.t.Error(err)
		}
	}()
	a := &audit{complaints: r.complaints, world: r.world, db: db, known: make(map[string]bool), phases: make(map[string]int)}
	messages := 0
	for _, c := range r.conversations {
		a.conversation(ctx, c)
		messages += len(c.sends)
	}
	a.strays()
	if err := linear.Step().Check(r.world.steps.history(), judgeTime); err != nil {
		r.complain("%v", err)
	}
	r.t.Logf("%d conversations, %d messages, %d batches, %d model calls of which %d after an interrupted answer",
		len(r.conversations), messages, a.batches, r.world.requests, r.world.resumed)
	if a.resumed == 0 {
		r.complain("no conversation has a checkpoint")
	}
	r.t.Logf("%d conversations have a checkpoint, %d batches stand for several", a.resumed, a.merged)
	if a.fell == 0 {
		r.complain("no response has turned to another model")
	}
	r.t.Logf("%d responses turned to another model; %d lives ended on the way there", a.fell, a.between)
	if a.between == 0 && r.kills >= enoughKills {
		r.complain("no life was ended between the failure of a model and the answer of the next one")
	}
	for _, phase := range interruptible {
		if r.kills >= enoughKills && a.phases[phase.String()] == 0 {
			r.complain("no work was taken up in phase %s, in %d kills", phase, r.kills)
		}
	}
	slices.Sort(a.attempts)
	r.t.Logf("%d tool calls of which %d were cut short; work was taken up in the phases %v; attempts at one message: median %d, most %d",
		a.calls, a.failed, a.phases, a.attempts[len(a.attempts)/2], a.attempts[len(a.attempts)-1])
}

// interruptible are the phases in which work is under way between two writes, so that
// hundreds of kills must hit each.
var interruptible = []fold.Phase{fold.Streaming, fold.Tools}

// report logs how soon interrupted work was taken up again, counted from the
// start of the process, and fails if that took too long.
func (r *run) report() {
	var first, all []time.Duration
	for _, ds := range r.resumed {
		if len(ds) > 0 {
			first = append(first, ds[0])
			all = append(all, ds...)
		}
	}
	if len(first) == 0 {
		r.complain("no life has taken up interrupted work")
		return
	}
	slices.Sort(first)
	slices.Sort(all)
	r.t.Logf("from exec to the first act on interrupted work: median %v, worst %v; to each such act: median %v, worst %v",
		first[len(first)/2], first[len(first)-1], all[len(all)/2], all[len(all)-1])
	if d := first[len(first)/2]; d > time.Second {
		r.complain("interrupted work was taken up after %v, want at most 1 s", d)
	}
}
