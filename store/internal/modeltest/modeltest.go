// Package modeltest runs random sequences of calls on a store and compares
// every answer with that of a simple model.
//
// It checks one caller at a time; races are for package storetest.
package modeltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/flue-go/flue/store"
)

// Check runs random sequences on stores of open. reopen ends a store as a crash
// would and opens the same data again; it may be nil.
func Check(t *testing.T, open func(t *testing.T) store.Store, reopen func(t *testing.T, s store.Store) store.Store) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{t: t, reopen: reopen, store: open(t), model: newModel()}
		defer func() {
			if err := m.store.Close(); err != nil {
				rt.Errorf("Close: %v", err)
			}
		}()
		rt.Repeat(map[string]func(*rapid.T){
			"admit":   m.admit,
			"abort":   m.abort,
			"append":  m.append,
			"prune":   m.prune,
			"claim":   m.claim,
			"take":    m.take,
			"renew":   m.renew,
			"lapse":   m.lapse,
			"release": m.release,
			"read":    m.read,
			"reopen":  m.restart,
			"":        m.compare,
		})
		for _, addr := range addrs {
			m.compareOne(rt, addr)
		}
	})
}

// The small worlds that arguments are drawn from, so that they often meet.
var (
	addrs       = []store.Address{{Agent: "a", ID: "1"}, {Agent: "a", ID: "2"}, {Agent: "b", ID: "1"}}
	submissions = []string{"s1", "s2", "s3", "s4", "s5"}
	nodes       = []string{"n1", "n2"}
)

type machine struct {
	t      *testing.T
	reopen func(*testing.T, store.Store) store.Store
	store  store.Store
	model  *model
	leases []store.Lease // all that were ever given
	births int
}

func (m *machine) ctx() context.Context { return m.t.Context() }

func pick[T any](t *rapid.T, what string, from []T) T {
	return from[rapid.IntRange(0, len(from)-1).Draw(t, what)]
}

func same(t *rapid.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-model +store):\n%s", what, diff)
	}
}

func sameError(t *rapid.T, what string, got, want error) {
	t.Helper()
	var gc, wc *store.ConditionError
	if errors.As(want, &wc) && errors.As(got, &gc) {
		same(t, what, *gc, *wc)
		return
	}
	if !errors.Is(got, want) {
		t.Fatalf("%s: error %v, the model says %v", what, got, want)
	}
}

// given notes a lease and checks it against the one that the model expects.
func (m *machine) given(t *rapid.T, what string, l store.Lease) {
	t.Helper()
	for _, old := range m.leases {
		if old.Epoch >= l.Epoch && old.Address == l.Address {
			t.Fatalf("%s: epoch %d, but %d was given before", what, l.Epoch, old.Epoch)
		}
	}
	m.leases = append(m.leases, l)
	m.model.own(l)
}

func (m *machine) admit(t *rapid.T) {
	m.births++
	a := &store.Admission{
		Address:    pick(t, "addr", addrs),
		Submission: pick(t, "submission", submissions),
		Identity:   []byte(pick(t, "identity", []string{"i1", "i1", "i1", "i2"})),
		AcceptedAt: time.Now(),
		Payload:    []byte(rapid.StringN(0, 8, 32).Draw(t, "payload")),
		Birth:      &store.Birth{UID: fmt.Sprint("uid", m.births), Incarnation: fmt.Sprint("inc", m.births), Payload: []byte("birth")},
		Node:       pick(t, "node", append(nodes, "")),
	}
	switch rapid.IntRange(0, 5).Draw(t, "condition") {
	case 0:
		a.Condition.Create = true
	case 1:
		a.Condition.UID = "uid0"
	case 2:
		if in := m.model.instances[a.Address]; in != nil {
			a.Condition.UID = in.row.UID
		}
	case 3:
		a.Birth = nil
	}
	want, wantErr := m.model.admit(a)
	got, err := m.store.Admit(m.ctx(), a)
	sameError(t, "Admit", err, wantErr)
	if err != nil {
		return
	}
	lease := got.Lease
	got.Lease = nil
	same(t, "receipt", got, want.Receipt)
	if (lease != nil) != want.give {
		t.Fatalf("Admit gave the lease %v, the model gives one: %v", lease, want.give)
	}
	if lease != nil {
		same(t, "lease", *lease, store.Lease{Address: a.Address, Node: a.Node, Epoch: lease.Epoch})
		m.given(t, "Admit", *lease)
	}
}

func (m *machine) abort(t *rapid.T) {
	addr := pick(t, "addr", addrs)
	want := m.model.abort(addr, []byte("abort"))
	got, err := m.store.Abort(m.ctx(), addr, []byte("abort"))
	if err != nil {
		t.Fatalf("Abort: %v", err)
	}
	same(t, "Abort", got, want)
}

func (m *machine) append(t *rapid.T) {
	if len(m.leases) == 0 {
		t.Skip("no leases yet")
	}
	// Mostly a late one, to be current often.
	i := len(m.leases) - 1 - rapid.IntRange(0, len(m.leases)-1).Draw(t, "lease")
	l := m.leases[i]
	w := store.Write{Payload: []byte(rapid.StringN(0, 8, 32).Draw(t, "payload"))}
	for _, id := range rapid.SliceOfN(rapid.SampledFrom(submissions), 0, 2).Draw(t, "settle") {
		w.Settle = append(w.Settle, store.Settlement{Submission: id, Outcome: pick(t, "outcome", []string{"completed", "failed"})})
	}
	want, wantErr := m.model.append(l, w)
	got, err := m.store.Append(m.ctx(), l, w)
	sameError(t, "Append", err, wantErr)
	same(t, "offset", got, want)
}

func (m *machine) prune(t *rapid.T) {
	p, ok := m.store.(store.Pruner)
	if !ok || len(m.leases) == 0 {
		t.Skip("nothing can be pruned")
	}
	l := m.leases[len(m.leases)-1-rapid.IntRange(0, len(m.leases)-1).Draw(t, "lease")]
	var runs []store.Run
	for range rapid.IntRange(1, 2).Draw(t, "n") {
		from := int64(rapid.IntRange(0, 10).Draw(t, "from"))
		runs = append(runs, store.Run{From: from, To: from + int64(rapid.IntRange(0, 4).Draw(t, "length")), Payload: []byte("pruned")})
	}
	sameError(t, "Prune", p.Prune(m.ctx(), l, runs), m.model.prune(l, runs))
}

func (m *machine) claim(t *rapid.T) {
	node := pick(t, "node", nodes)
	limit := rapid.IntRange(0, 4).Draw(t, "limit")
	agents := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 2, rapid.ID[string]).Draw(t, "agents")
	want, wantErr := m.model.claimable(node, agents)
	got, err := m.store.Claim(m.ctx(), node, limit, agents...)
	sameError(t, "Claim", err, wantErr)
	if len(got) != min(limit, len(want)) {
		t.Fatalf("Claim of %q with limit %d gave %v, claimable are %v", agents, limit, got, want)
	}
	for _, l := range got {
		i := slices.Index(want, l.Address)
		if i < 0 || l.Node != node {
			t.Fatalf("Claim gave %+v, claimable are %v", l, want)
		}
		want = slices.Delete(want, i, i+1) // nor twice
		m.given(t, "Claim", l)
	}
}

func (m *machine) take(t *rapid.T) {
	node, addr := pick(t, "node", nodes), pick(t, "addr", addrs)
	wantErr := m.model.take(node, addr)
	l, err := m.store.Take(m.ctx(), node, addr)
	sameError(t, "Take", err, wantErr)
	if err == nil {
		same(t, "lease", l, store.Lease{Address: addr, Node: node, Epoch: l.Epoch})
		m.given(t, "Take", l)
	}
}

func (m *machine) renew(t *rapid.T) {
	node := pick(t, "node", nodes)
	if err := m.store.Renew(m.ctx(), node, time.Hour); err != nil {
		t.Fatalf("Renew: %v", err)
	}
	m.model.nodes[node] = true
}

// lapse renews a lease for so short a time that it is over.
func (m *machine) lapse(t *rapid.T) {
	node := pick(t, "node", nodes)
	if err := m.store.Renew(m.ctx(), node, time.Nanosecond); err != nil {
		t.Fatalf("Renew: %v", err)
	}
	delete(m.model.nodes, node)
}

func (m *machine) release(t *rapid.T) {
	if len(m.leases) == 0 {
		t.Skip("no leases yet")
	}
	var ls []store.Lease
	for range rapid.IntRange(1, 3).Draw(t, "n") {
		ls = append(ls, m.leases[len(m.leases)-1-rapid.IntRange(0, len(m.leases)-1).Draw(t, "lease")])
	}
	if err := m.store.Release(m.ctx(), ls...); err != nil {
		t.Fatalf("Release: %v", err)
	}
	for _, l := range ls {
		m.model.release(l)
	}
}

func (m *machine) read(t *rapid.T) {
	addr := pick(t, "addr", addrs)
	after := int64(rapid.IntRange(-2, 12).Draw(t, "after"))
	limit := rapid.IntRange(0, 6).Draw(t, "limit")
	want, wantErr := m.model.read(addr, after, limit)
	got, err := m.store.Read(m.ctx(), addr, after, limit)
	sameError(t, "Read", err, wantErr)
	same(t, "instance of the page", got.Instance, want.Instance)
	sameBatches(t, got.Batches, want.Batches)
}

func sameBatches(t *rapid.T, got, want []store.Batch) {
	t.Helper()
	if !slices.EqualFunc(got, want, func(a, b store.Batch) bool {
		return a.Offset == b.Offset && a.Span == b.Span && a.Epoch == b.Epoch && string(a.Payload) == string(b.Payload)
	}) {
		same(t, "batches", got, want)
	}
}

func (m *machine) restart(t *rapid.T) {
	if m.reopen == nil {
		t.Skip("the store cannot be reopened")
	}
	m.store = m.reopen(m.t, m.store)
	m.model.restart()
}

// compare compares what can be seen of some instance, after every step.
func (m *machine) compare(t *rapid.T) { m.compareOne(t, pick(t, "compare", addrs)) }

func (m *machine) compareOne(t *rapid.T, addr store.Address) {
	want, wantErr := m.model.read(addr, -1, 0)
	in, err := m.store.Instance(m.ctx(), addr)
	sameError(t, "Instance", err, wantErr)
	same(t, "instance", in, want.Instance)
	if err != nil {
		return
	}
	p, err := m.store.Read(m.ctx(), addr, -1, 0)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	sameBatches(t, p.Batches, want.Batches)
	for _, id := range submissions {
		want, wantErr := m.model.submission(addr, id)
		got, err := m.store.Submission(m.ctx(), addr, id)
		sameError(t, "Submission", err, wantErr)
		same(t, "submission", got, want)
	}
}
