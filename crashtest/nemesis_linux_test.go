package crashtest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/flue-go/flue/internal/faultnet"
)

// A nemesis is something bad that happens to a fleet. When do returns all is well
// again, but for what it has led to.
type nemesis struct {
	name string
	one  func(n *strike, r *replica) // to one replica, which is at the nemesis' mercy
	all  func(n *strike)             // or to the whole
}

// A strike is one time that a nemesis comes.
type strike struct {
	*fleet
	ctx context.Context
	rng *rand.Rand
}

// some returns a duration between the two parts of the lease.
func (n *strike) some(from, to float64) time.Duration {
	return time.Duration((from + n.rng.Float64()*(to-from)) * float64(n.lease))
}

func (n *strike) wait(d time.Duration) { pause(n.ctx, d) }

// chance reports true in so many of a hundred times.
func (n *strike) chance(percent int) bool { return n.rng.IntN(100) < percent }

var nemeses = []nemesis{
	{name: "kill", one: (*strike).kill},
	{name: "kill all but one", all: (*strike).massacre},
	{name: "pause", one: (*strike).freeze},
	{name: "drop", one: (*strike).drop},
	{name: "delay", one: (*strike).delay},
	{name: "cut", one: (*strike).cut},
	{name: "half open", one: (*strike).halfOpen},
	{name: "deploy", all: (*strike).deploy},
	{name: "database restarts", all: (*strike).restartDatabase},
	{name: "database is killed", all: (*strike).killDatabase},
}

// plague lets nemeses come, one after the other and sometimes two at once, until
// stop is closed. When it returns the fleet is whole.
func (f *fleet) plague(ctx context.Context, stop <-chan struct{}, which []nemesis) {
	rng := f.random(1)
	for {
		order := slices.Clone(which)
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for i := 0; i < len(order); i++ {
			select {
			case <-stop:
				return
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(rng.Int64N(int64(f.lease)))):
			}
			both := order[i : i+1]
			if i+1 < len(order) && rng.IntN(3) == 0 {
				both = order[i : i+2]
				i++
			}
			f.visit(ctx, rng, both)
		}
	}
}

// visit lets nemeses come at once, each upon another replica.
func (f *fleet) visit(ctx context.Context, rng *rand.Rand, which []nemesis) {
	victims := rng.Perm(len(f.replicas))
	var all sync.WaitGroup
	for i, n := range which {
		s := &strike{fleet: f, ctx: ctx, rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}
		all.Go(func() {
			if n.all != nil {
				f.note("%s begins", n.name)
				n.all(s)
			} else {
				r := f.replicas[victims[i]]
				r.busy.Lock()
				defer r.busy.Unlock()
				f.note("%s begins, upon %s", n.name, r.proc.node)
				n.one(s, r)
			}
			f.note("%s is over", n.name)
			f.count(n.name)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.healed = time.Now()
		})
	}
	all.Wait()
}

// kill ends a process and begins another one, half of the time under the same name.
func (n *strike) kill(r *replica) {
	node := n.slay(r)
	n.wait(n.some(0, 1.5))
	if n.chance(50) {
		node = r.node()
	}
	r.start(n.ctx, node)
}

func (n *strike) slay(r *replica) (node string) {
	node = r.proc.node
	n.watch(n.ctx, node, "kill")
	r.proc.kill()
	n.count("processes killed")
	return node
}

// massacre kills all processes but one.
func (n *strike) massacre() {
	var all sync.WaitGroup
	for _, i := range n.rng.Perm(len(n.replicas))[1:] {
		r := n.replicas[i]
		wait := n.some(0, 1.5)
		all.Go(func() {
			r.busy.Lock()
			defer r.busy.Unlock()
			n.slay(r)
			n.wait(wait)
			r.start(n.ctx, r.node())
		})
	}
	all.Wait()
}

// freeze stops a process, for less or for longer than its lease, so that it does
// not know that time has passed.
func (n *strike) freeze(r *replica) {
	p := r.proc
	n.watch(n.ctx, p.node, "pause")
	over := n.begin(&n.pauses, p.node)
	defer over()
	if err := p.signal(syscall.SIGSTOP); err != nil {
		n.complain("stopping %s: %v", p.node, err)
	}
	n.wait(n.some(0.4, 2.2))
	if err := p.signal(syscall.SIGCONT); err != nil {
		n.complain("going on with %s: %v", p.node, err)
	}
}

// drop lets nothing through between a process and the database, or nothing in one
// direction.
func (n *strike) drop(r *replica) {
	defer n.begin(&n.troubles, r.proc.node)()
	ways := [][]faultnet.Direction{{faultnet.Up, faultnet.Down}, {faultnet.Up}, {faultnet.Down}}
	n.watch(n.ctx, r.proc.node, "drop")
	r.link.Drop(ways[n.rng.IntN(len(ways))]...)
	n.wait(n.some(0.3, 2.2))
	if n.chance(50) {
		r.link.Cut() // it has taken too long for the connections to live
	}
	r.link.Pass()
}

func (n *strike) delay(r *replica) {
	defer n.begin(&n.troubles, r.proc.node)()
	r.link.Delay(time.Duration(5+n.rng.IntN(200)) * time.Millisecond)
	n.wait(n.some(0.5, 2))
	r.link.Pass()
}

// cut cuts connections a few times, also within a message.
func (n *strike) cut(r *replica) {
	defer n.begin(&n.troubles, r.proc.node)()
	for range 3 + n.rng.IntN(6) {
		switch n.rng.IntN(3) {
		case 0:
			r.link.Cut()
		case 1:
			r.link.CutWithin(faultnet.Up)
		case 2:
			r.link.CutWithin(faultnet.Down)
		}
		n.wait(time.Duration(5+n.rng.IntN(300)) * time.Millisecond)
	}
	r.link.Pass()
}

// halfOpen takes connections away from a process that the database keeps.
func (n *strike) halfOpen(r *replica) {
	defer n.begin(&n.troubles, r.proc.node)()
	for range 1 + n.rng.IntN(3) {
		r.link.HalfOpen()
		n.wait(n.some(0, 0.7))
	}
	r.link.Forget()
}

// deploy ends each process in turn as orchestrators do, and begins another one
// before that or after it.
func (n *strike) deploy() {
	first := n.chance(50) // the new one comes first
	for _, r := range n.replicas {
		r.busy.Lock()
		old := r.proc
		if first {
			r.start(n.ctx, r.node())
		}
		n.count("processes ended in order")
		n.watch(n.ctx, old.node, inTurn)
		if err := old.terminate(); err != nil && !n.troubled(time.Now()) {
			n.complain("%s did not end well: %v; see %s", old.node, err, old.log)
		}
		if !first {
			r.start(n.ctx, r.node())
		}
		r.busy.Unlock()
		if n.ctx.Err() != nil {
			return
		}
	}
}

// restartDatabase ends the database in order and begins it again.
func (n *strike) restartDatabase() {
	defer n.begin(&n.outages, "")()
	n.server.Stop(n.t)
	n.wait(n.some(0, 1))
	n.server.Start(n.t)
}

// killDatabase ends the database without order.
func (n *strike) killDatabase() {
	defer n.begin(&n.outages, "")()
	if n.chance(50) {
		n.server.Break(n.t)
	} else {
		n.server.Kill(n.t)
	}
	n.wait(n.some(0, 1))
	n.server.Start(n.t)
}
