package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/flue-go/flue/internal/linear"
	"github.com/flue-go/flue/store"
)

// Takeovers makes processes take instances from each other until that has happened
// n times: leases lapse after moments, owners write on as if they knew of nothing,
// and others claim, take and are given what they own. open opens one and the same
// data each time, as another process would; the handles are closed by the caller.
//
// It fails the test unless every append was accepted or refused as if ownership
// were a lock: accepted only under the newest epoch that anybody was given, and
// refused only under an older one, or one that was given back.
func Takeovers(t *testing.T, open func(t *testing.T) store.Store, n int) {
	t.Helper()
	takeovers(t, func() store.Store { return open(t) }, n)
}

// takeoversWanted is how many takeovers a run of the suite has: as many as the
// options say, or few with -short.
func (k *kit) takeoversWanted() int {
	switch {
	case k.opts.Takeovers > 0:
		return k.opts.Takeovers
	case testing.Short():
		return 300
	}
	return 1000
}

// The field on which takeovers happen.
const (
	rivals    = 4
	prizes    = 8
	rivalTTL  = 2 * time.Millisecond
	judgement = 2 * time.Minute
)

// A contest is a history of takeovers.
type contest struct {
	*testing.T
	began time.Time
	goal  int64
	taken atomic.Int64 // times that an instance went to another node

	mu     sync.Mutex
	owners map[store.Address]store.Lease // the newest known
	ops    []porcupine.Operation
	wrote  map[string]int64 // payloads of accepted appends, and their epochs
	fenced map[string]bool  // payloads of refused ones
}

func takeovers(t *testing.T, open func() store.Store, n int) {
	t.Helper()
	c := &contest{
		T: t, began: time.Now(), goal: int64(n),
		owners: make(map[store.Address]store.Lease), wrote: make(map[string]int64), fenced: make(map[string]bool),
	}
	var handles []store.Store
	for range rivals {
		handles = append(handles, open())
	}
	for i := range prizes {
		if _, err := handles[0].Admit(t.Context(), admission(other(i), "s1")); err != nil {
			t.Fatalf("Admit: %v", err)
		}
	}
	concurrently(rivals, func(i int) {
		r := &rival{contest: c, store: handles[i], node: fmt.Sprint("n", i), rng: rand.New(rand.NewPCG(uint64(i), 1)), client: i}
		for c.taken.Load() < c.goal && !t.Failed() {
			r.act()
		}
	})
	accepted, refused := len(c.wrote), len(c.fenced)
	t.Logf("%d takeovers in %v: %d appends were accepted and %d refused", c.taken.Load(), time.Since(c.began).Round(time.Millisecond), accepted, refused)
	if t.Failed() {
		return
	}
	if refused < n/20 {
		t.Errorf("only %d appends of earlier owners were refused: nothing was tried", refused)
	}
	if err := linear.Ownership().Check(c.ops, judgement); err != nil {
		t.Error(err)
	}
	c.checkJournals(handles[0])
}

// checkJournals compares the journals with what was said of the appends.
func (c *contest) checkJournals(s store.Store) {
	found := 0
	for i := range prizes {
		last := int64(0)
		for b, err := range store.Batches(c.Context(), s, other(i), -1) {
			if err != nil {
				c.Fatalf("reading %v: %v", other(i), err)
			}
			if b.Epoch == 0 {
				continue
			}
			found++
			if b.Epoch < last {
				c.Errorf("%v: an append of epoch %d was accepted after one of epoch %d", other(i), b.Epoch, last)
			}
			last = b.Epoch
			if epoch, ok := c.wrote[string(b.Payload)]; !ok || epoch != b.Epoch {
				c.Errorf("%v has %q of epoch %d, which was acknowledged under epoch %d, %v", other(i), b.Payload, b.Epoch, epoch, ok)
			}
			if c.fenced[string(b.Payload)] {
				c.Errorf("%v has %q, which was refused", other(i), b.Payload)
			}
		}
	}
	if found != len(c.wrote) {
		c.Errorf("the journals have %d appends of %d that were acknowledged", found, len(c.wrote))
	}
}

// A rival is one process.
type rival struct {
	*contest
	store  store.Store
	node   string
	rng    *rand.Rand
	client int
	leases []store.Lease // all that it takes to be its own, and some that it knows are not
	seq    int
}

// maxLeases bounds what a rival remembers.
const maxLeases = 24

func (r *rival) act() {
	switch p := r.rng.IntN(100); {
	case p < 8: // it is paused for longer than its lease lasts
		time.Sleep(time.Duration(1+r.rng.IntN(3)) * rivalTTL)
	case p < 25:
		r.renew()
	case p < 45:
		r.renew()
		r.claim()
	case p < 55:
		r.renew()
		r.take(other(r.rng.IntN(prizes)))
	case p < 60:
		r.renew()
		r.admit(other(r.rng.IntN(prizes)))
	case p < 63:
		r.release()
	default:
		r.append()
	}
}

func (r *rival) renew() {
	if err := r.store.Renew(r.Context(), r.node, rivalTTL); err != nil {
		r.Errorf("Renew: %v", err)
	}
}

func (r *rival) now() int64 { return int64(time.Since(r.began)) }

// given notes a lease.
func (r *rival) given(call int64, l store.Lease) {
	r.record(call, linear.Hold{Instance: l.ID, Kind: linear.Take}, linear.Held{Epoch: l.Epoch})
	r.mu.Lock()
	old := r.owners[l.Address]
	if l.Epoch > old.Epoch {
		r.owners[l.Address] = l
		if old.Node != "" && old.Node != l.Node {
			r.taken.Add(1)
		}
	}
	r.mu.Unlock()
	if r.leases = append(r.leases, l); len(r.leases) > maxLeases {
		r.leases = r.leases[1:]
	}
}

func (r *rival) record(call int64, in linear.Hold, out linear.Held) {
	op := porcupine.Operation{ClientId: r.client, Input: in, Output: out, Call: call, Return: r.now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, op)
}

func (r *rival) claim() {
	call := r.now()
	leases, err := r.store.Claim(r.Context(), r.node, 1+r.rng.IntN(3))
	if err != nil && !errors.Is(err, store.ErrNoLease) {
		r.Errorf("Claim: %v", err)
	}
	for _, l := range leases {
		r.given(call, l)
	}
}

func (r *rival) take(addr store.Address) {
	call := r.now()
	l, err := r.store.Take(r.Context(), r.node, addr)
	switch {
	case err == nil:
		r.given(call, l)
	case !errors.Is(err, store.ErrNoLease) && !errors.Is(err, store.ErrOwned):
		r.Errorf("Take: %v", err)
	}
}

func (r *rival) admit(addr store.Address) {
	call := r.now()
	r.seq++
	a := admission(addr, fmt.Sprintf("%s-%d", r.node, r.seq))
	a.Node = r.node
	got, err := r.store.Admit(r.Context(), a)
	if err != nil {
		r.Errorf("Admit: %v", err)
		return
	}
	if got.Lease != nil {
		r.given(call, *got.Lease)
	}
}

func (r *rival) release() {
	if len(r.leases) == 0 {
		return
	}
	l := r.leases[r.rng.IntN(len(r.leases))]
	call := r.now()
	if err := r.store.Release(r.Context(), l); err != nil {
		r.Errorf("Release: %v", err)
	}
	r.record(call, linear.Hold{Instance: l.ID, Kind: linear.Release, Epoch: l.Epoch}, linear.Held{})
}

// append writes under one of the leases that it has had, most often the last.
func (r *rival) append() {
	if len(r.leases) == 0 {
		return
	}
	i := len(r.leases) - 1
	if r.rng.IntN(3) == 0 {
		i = r.rng.IntN(len(r.leases))
	}
	l := r.leases[i]
	r.seq++
	payload := fmt.Sprintf("%s %d", r.node, r.seq)
	call := r.now()
	_, err := r.store.Append(r.Context(), l, store.Write{Payload: []byte(payload)})
	refused := errors.Is(err, store.ErrFenced)
	if err != nil && !refused {
		r.Errorf("Append: %v", err)
		return
	}
	r.record(call, linear.Hold{Instance: l.ID, Kind: linear.Append, Epoch: l.Epoch}, linear.Held{Fenced: refused})
	r.mu.Lock()
	defer r.mu.Unlock()
	if refused {
		r.fenced[payload] = true
	} else {
		r.wrote[payload] = l.Epoch
	}
}
