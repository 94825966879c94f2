package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/flue-go/flue/store"
)

// sharedChecks are for stores that implement store.Sharer or store.Surveyor; others
// skip them.
var sharedChecks = []check{
	{
		name: "Signals",
		rule: "A process that listens hears that instances grow, are freed and are watched by others, and first that it may have missed some.",
		run:  checkSignals,
	},
	{
		name: "ListenEnds",
		rule: "Listen ends with its context's error, or with ErrClosed when the store is closed.",
		run:  checkListenEnds,
	},
	{
		name: "Heads",
		rule: "Heads returns the newest offsets in the order in which they are asked for, and -1 for what does not exist.",
		run:  checkHeads,
	},
	{
		name: "Owned",
		rule: "Owned lists what a node owns and has unsettled submissions, by agent and id, with leases that are current.",
		run:  checkOwned,
	},
	{
		name: "OwnedAfterLostAnswers",
		rule: "What a node was given by an answer that never came is listed as its own.",
		run:  checkOwnedAfterLostAnswers,
	},
	{
		name:  "Unowned",
		rule:  "Unowned counts the instances that have unsettled submissions and no live owner.",
		run:   checkUnowned,
		timed: true,
	},
	{
		name: "UnownedOfAgents",
		rule: "Unowned counts what Claim gives away of the same agents.",
		run:  checkUnownedOfAgents,
	},
	{
		name: "ClaimsInOrder",
		rule: "Those are claimed first that have waited longest, since they had no unsettled submission or since the latest settlement.",
		run:  checkClaimsInOrder,
	},
	{
		name:  "RenewAt",
		rule:  "RenewAt renews as Renew does, and returns what time it is by one clock that all handles have.",
		run:   checkRenewAt,
		timed: true,
	},
	{
		name:  "Nodes",
		rule:  "Nodes lists who has a lease, for how long, and how many instances it owns, with and without work.",
		run:   checkNodes,
		timed: true,
	},
	{
		name:  "Work",
		rule:  "Work lists the instances with unsettled submissions by how long they have waited for a settlement, whenever their messages say that they were accepted, and who owns them.",
		run:   checkWork,
		timed: true,
	},
	{
		name: "SeveralHandles",
		rule: "What one process writes another one reads at once; who owns an instance is one question for all of them.",
		run:  checkSeveralHandles,
	},
	{
		name: "Takeovers",
		rule: "However often an instance is taken over, an append is accepted only under the newest epoch.",
		run:  func(k *kit) { takeovers(k.T, k.handle, k.takeoversWanted()) },
	},
}

// sharer returns the store as a Sharer, or skips the check.
func (k *kit) sharer() store.Sharer {
	k.Helper()
	s, ok := k.Store.(store.Sharer)
	if !ok {
		k.Skip("the store is no store.Sharer")
	}
	return s
}

func (k *kit) surveyor() store.Surveyor {
	k.Helper()
	s, ok := k.Store.(store.Surveyor)
	if !ok {
		k.Skip("the store is no store.Surveyor")
	}
	return s
}

// handle opens the store's data once more, as another process would.
func (k *kit) handle() store.Store {
	k.Helper()
	if k.opts.Another == nil {
		k.Skip("the store cannot be opened twice: Options.Another is nil")
	}
	s := k.opts.Another(k.T, k.Store)
	k.Cleanup(func() {
		if err := s.Close(); err != nil {
			k.Errorf("Close of another handle: %v", err)
		}
	})
	return s
}

// another is handle for a Sharer.
func (k *kit) another() store.Sharer {
	k.Helper()
	k.sharer()
	s, ok := k.handle().(store.Sharer)
	if !ok {
		k.Fatal("another handle is no store.Sharer")
	}
	return s
}

// An ear listens to a store.
type ear struct {
	*kit
	heard  chan store.Signal
	ended  chan error
	cancel context.CancelFunc
}

// listen begins to listen, and returns when it has.
func (k *kit) listen(s store.Sharer) *ear {
	k.Helper()
	ctx, cancel := context.WithCancel(k.Context())
	e := &ear{kit: k, heard: make(chan store.Signal, 1000), ended: make(chan error, 1), cancel: cancel}
	var inside atomic.Bool
	go func() {
		e.ended <- s.Listen(ctx, func(sig store.Signal) {
			if !inside.CompareAndSwap(false, true) {
				k.Error("the function is called while it is being called")
			}
			select {
			case e.heard <- sig:
			default: // nobody is interested
			}
			inside.Store(false)
		})
	}()
	k.Cleanup(cancel)
	select {
	case sig := <-e.heard:
		equal(k, "the first signal", sig, store.Signal{Kind: store.Missed})
	case err := <-e.ended:
		if errors.Is(err, errors.ErrUnsupported) {
			k.Skip("the store's server sends no signals")
		}
		k.Fatalf("Listen: %v", err)
	case <-time.After(signalPatience):
		k.Fatal("Listen has told nothing")
	}
	return e
}

// signalPatience is how long a signal may take, and signalTries how often what it
// tells of is done, since a signal may be lost.
const (
	signalPatience = 5 * time.Second
	signalTries    = 3
)

// hears does something until a signal is heard of which is returns true.
func (e *ear) hears(what string, do func(), is func(store.Signal) bool) {
	e.Helper()
	for range signalTries {
		do()
		patience := time.After(signalPatience)
		for waiting := true; waiting; {
			select {
			case sig := <-e.heard:
				if is(sig) {
					return
				}
			case err := <-e.ended:
				e.Fatalf("Listen: %v", err)
			case <-patience:
				waiting = false
				e.Logf("nothing was heard of %s in %v", what, signalPatience)
			}
		}
	}
	e.Errorf("nothing was heard of %s", what)
}

func checkSignals(k *kit) {
	one, two := k.sharer(), k.another()
	// Both are as processes are: they have leases and listen.
	k.renew("n1")
	if err := two.Renew(k.Context(), "n2", time.Hour); err != nil {
		k.Fatal(err)
	}
	own, e := k.listen(one), k.listen(two)
	grown := func(head *int64) func(store.Signal) bool {
		return func(sig store.Signal) bool {
			return sig.Kind == store.Grown && sig.Address == addr && sig.Head >= *head
		}
	}
	n, head := 0, int64(0)
	admit := func(s store.Store) func() {
		return func() {
			n++
			r, err := s.Admit(k.Context(), admission(addr, fmt.Sprint("s", n)))
			if err != nil {
				k.Fatalf("Admit: %v", err)
			}
			head = r.Offset
		}
	}
	freed := func(sig store.Signal) bool {
		return sig.Kind == store.Freed && (sig.Address == addr || sig.Address == store.Address{})
	}
	e.hears("an admission that creates", admit(one), freed)
	if err := two.Watch(k.Context(), []store.Address{addr}); err != nil {
		k.Fatalf("Watch: %v", err)
	}
	e.hears("an instance without an owner", admit(one), freed)
	l := k.take("n1", addr)
	e.hears("an admission", admit(one), grown(&head))
	e.hears("an abort", func() {
		if ok, err := one.Abort(k.Context(), addr, []byte("abort")); !ok || err != nil {
			k.Fatalf("Abort = %v, %v", ok, err)
		}
		head = k.instance(addr).Head
	}, grown(&head))
	e.hears("an append", func() { head = k.append(l, "work") }, grown(&head))
	e.hears("a release", func() {
		l = k.take("n1", addr)
		if err := one.Release(k.Context(), l); err != nil {
			k.Fatal(err)
		}
	}, freed)

	// The owner hears that another process watches.
	k.take("n1", addr)
	own.hears("a reader elsewhere", func() {
		if err := two.Watch(k.Context(), []store.Address{other(1), addr}); err != nil {
			k.Fatalf("Watch: %v", err)
		}
	}, func(sig store.Signal) bool { return sig.Kind == store.Watched && sig.Address == addr })
	own.hears("an admission elsewhere", admit(two), grown(&head))
	if err := two.Watch(k.Context(), nil); err != nil {
		k.Errorf("Watch of nothing: %v", err)
	}
}

func checkListenEnds(k *kit) {
	s := k.sharer()
	e := k.listen(s)
	e.cancel()
	k.refused("Listen whose context has ended", <-e.ended, context.Canceled)
	ended, cancel := context.WithCancel(k.Context())
	cancel()
	err := s.Listen(ended, func(store.Signal) { k.Error("a signal is told after the end") })
	k.refused("Listen whose context has ended before", err, context.Canceled)

	e, second := k.listen(s), k.listen(s)
	if err := s.Close(); err != nil {
		k.Fatalf("Close: %v", err)
	}
	k.refused("Listen when the store is closed", <-e.ended, store.ErrClosed)
	k.refused("the second Listen when the store is closed", <-second.ended, store.ErrClosed)
	k.refused("Listen on a closed store", s.Listen(k.Context(), func(store.Signal) {}), store.ErrClosed)
}

func checkHeads(k *kit) {
	s := k.sharer()
	heads := func(addrs ...store.Address) []int64 {
		k.Helper()
		got, err := s.Heads(k.Context(), addrs)
		if err != nil {
			k.Fatalf("Heads: %v", err)
		}
		return got
	}
	equal(k, "heads of nothing", len(heads()), 0)
	k.admit(admission(other(1), "s1"))
	k.admit(admission(other(2), "s1"))
	l := k.take("n1", other(2))
	at := k.append(l, "work")
	equal(k, "heads", heads(other(2), other(3), other(1), other(2)), []int64{at, -1, 1, at})
	k.admit(admission(other(1), "s2"))
	equal(k, "heads after an admission", heads(other(1)), []int64{2})
	var addrs []store.Address
	var want []int64
	for i := range 600 {
		addrs = append(addrs, other(1000-i))
		want = append(want, -1)
	}
	addrs = append(addrs, other(2))
	equal(k, "heads of many", heads(addrs...), append(want, at))
}

// owns returns what the store says that a node owns.
func (k *kit) owns(node string, after store.Address, limit int) []store.Owned {
	k.Helper()
	owned, err := k.sharer().Owned(k.Context(), node, after, limit)
	if err != nil {
		k.Fatalf("Owned: %v", err)
	}
	return owned
}

func checkOwned(k *kit) {
	k.sharer()
	equal(k, "what an unknown node owns", len(k.owns("n1", store.Address{}, 10)), 0)
	ordered := []store.Address{
		{Agent: "A", ID: "z"},
		{Agent: "a", ID: "1"},
		{Agent: "a", ID: "10"},
		{Agent: "a", ID: "2"},
		{Agent: "a", ID: "\xc3\xa4"},
		{Agent: "a-b", ID: "0"},
		{Agent: "b", ID: "1"},
	}
	want := make([]store.Owned, len(ordered))
	for _, i := range []int{3, 0, 6, 2, 5, 1, 4} {
		l := k.owned(ordered[i], "n1")
		want[i] = store.Owned{Lease: l, Head: k.append(l, "work")}
	}
	k.owned(other(1), "n2")
	idle := k.owned(store.Address{Agent: "a", ID: "settled"}, "n1")
	k.append(idle, "end", store.Settlement{Submission: "s1", Outcome: "completed"})
	free := k.owned(store.Address{Agent: "a", ID: "released"}, "n1")
	if err := k.Release(k.Context(), free); err != nil {
		k.Fatal(err)
	}
	equal(k, "all", k.owns("n1", store.Address{}, 100), want)
	equal(k, "none", len(k.owns("n1", store.Address{}, 0)), 0)
	equal(k, "less than none", len(k.owns("n1", store.Address{}, -1)), 0)
	equal(k, "those of an agent", k.owns("n1", store.Address{Agent: "a"}, 2), want[1:3])
	equal(k, "after one that is not there", k.owns("n1", store.Address{Agent: "a", ID: "11"}, 100), want[3:])
	equal(k, "after the last", len(k.owns("n1", ordered[6], 100)), 0)
	for _, o := range want {
		k.append(o.Lease, "the lease is current")
	}
	k.admit(admission(ordered[6], "s2"))
	k.append(want[6].Lease, "end", store.Settlement{Submission: "s1", Outcome: "completed"})
	got := k.owns("n1", ordered[5], 100)
	if len(got) != 1 || got[0].Lease != want[6].Lease || got[0].Head != k.instance(ordered[6]).Head {
		k.Errorf("after an admission: %+v", got)
	}
	again := k.take("n1", ordered[6])
	got = k.owns("n1", ordered[5], 100)
	if len(got) != 1 || got[0].Lease != again {
		k.Errorf("after another take: %+v, want %+v", got, again)
	}
}

func checkOwnedAfterLostAnswers(k *kit) {
	s := k.sharer()
	k.admit(admission(other(1), "s1"))
	k.renew("n1")
	_ = k.claim("n1", 10) // nobody reads what it has given
	k.renew("n1")
	a := admission(other(2), "s1")
	a.Node = "n1"
	_ = k.admit(a)
	if again := k.admit(a); !again.Duplicate || again.Lease != nil {
		k.Errorf("the replay of an admission gave %+v", again)
	}
	k.renew("n1")
	equal(k, "claims of what is owned", len(k.claim("n1", 10)), 0)
	owned := k.owns("n1", store.Address{}, 10)
	equal(k, "instances that are owned", len(owned), 2)
	for _, o := range owned {
		k.append(o.Lease, "work")
	}
	k.renew("n1")
	if n, err := s.Unowned(k.Context(), 10); n != 0 || err != nil {
		k.Errorf("Unowned = %d, %v", n, err)
	}
}

func checkUnowned(k *kit) {
	s := k.sharer()
	unowned := func(limit int) int {
		k.Helper()
		n, err := s.Unowned(k.Context(), limit)
		if err != nil {
			k.Fatalf("Unowned: %v", err)
		}
		return n
	}
	equal(k, "in an empty store", unowned(10), 0)
	for i := range 5 {
		k.admit(admission(other(i), "s1"))
	}
	equal(k, "nobody's", unowned(10), 5)
	if n := unowned(3); n < 3 || n > 5 {
		k.Errorf("up to 3 there are %d", n)
	}
	l := k.take("n1", other(0))
	k.take("n1", other(1))
	equal(k, "when two are owned", unowned(10), 3)
	if err := k.Release(k.Context(), l); err != nil {
		k.Fatal(err)
	}
	equal(k, "when one is released", unowned(10), 4)
	k.take("n1", other(0))
	k.append(k.take("n1", other(2)), "end", store.Settlement{Submission: "s1", Outcome: "completed"})
	equal(k, "when one is settled", unowned(10), 2)
	k.elapse(k.ttl())
	equal(k, "when the owner has lapsed", unowned(10), 4)
	k.renew("n1")
	equal(k, "when it has renewed", unowned(10), 2)
}

func checkUnownedOfAgents(k *kit) {
	s := k.sharer()
	unowned := func(agents ...string) int {
		k.Helper()
		n, err := s.Unowned(k.Context(), 10, agents...)
		if err != nil {
			k.Fatalf("Unowned: %v", err)
		}
		return n
	}
	clerk := other(0).Agent
	for i := range 5 {
		k.admit(admission(other(i), "s1"))
	}
	for i := range 3 {
		k.admit(admission(store.Address{Agent: "stray", ID: other(i).ID}, "s1"))
	}
	k.take("n1", other(0))
	equal(k, "of all agents", unowned(), 7)
	equal(k, "of one agent", unowned(clerk), 4)
	equal(k, "of another one", unowned("stray"), 3)
	equal(k, "of two agents", unowned("stray", clerk), 7)
	equal(k, "of an agent without work", unowned("idle"), 0)
	for _, agent := range []string{"stray", clerk} {
		n := unowned(agent)
		k.renew("n1")
		equal(k, "claims of what is counted", len(k.claim("n1", 10, agent)), n)
		equal(k, "when that is claimed", unowned(agent), 0)
	}
}

func checkNodes(k *kit) {
	s := k.surveyor()
	nodes := func() map[string]store.Node {
		k.Helper()
		list, err := s.Nodes(k.Context())
		if err != nil {
			k.Fatalf("Nodes: %v", err)
		}
		if !slices.IsSortedFunc(list, func(a, b store.Node) int { return compareNames(a.Name, b.Name) }) {
			k.Errorf("the nodes are not in order: %+v", list)
		}
		m := make(map[string]store.Node)
		for _, n := range list {
			m[n.Name] = n
		}
		equal(k, "nodes that are named twice", len(list)-len(m), 0)
		return m
	}
	equal(k, "nodes of a new store", len(nodes()), 0)
	k.renew("n2")
	k.renew("n1")
	k.owned(other(1), "n1")
	l := k.owned(other(2), "n1")
	k.append(l, "end", store.Settlement{Submission: "s1", Outcome: "completed"})
	k.renew("n1")
	got := nodes()
	for name, want := range map[string]store.Node{"n1": {Owned: 2, Working: 1}, "n2": {}} {
		n := got[name]
		if n.Left <= 0 || n.Left > k.ttl() || n.Owned != want.Owned || n.Working != want.Working {
			k.Errorf("node %s is told as %+v", name, n)
		}
	}
	equal(k, "nodes", len(got), 2)
	k.elapse(k.ttl())
	k.renew("n3")
	got = nodes()
	if n := got["n1"]; n.Name == "" || n.Left > 0 || n.Owned != 2 {
		k.Errorf("the lapsed node is told as %+v", n)
	}
	if n := got["n3"]; n.Left <= 0 {
		k.Errorf("the new node is told as %+v", n)
	}
}

func compareNames(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func checkWork(k *kit) {
	s := k.surveyor()
	admit := func(a store.Address, id string, ago time.Duration) {
		k.Helper()
		ad := admission(a, id)
		ad.AcceptedAt = time.Now().Add(-ago) // by a clock that may be wrong
		k.admit(ad)
	}
	work := func(limit int) []store.Work {
		k.Helper()
		list, err := s.Work(k.Context(), limit)
		if err != nil {
			k.Fatalf("Work: %v", err)
		}
		return list
	}
	admit(other(2), "s1", -10*time.Hour)
	admit(other(1), "s1", 10*time.Hour)
	admit(other(3), "s1", 20*time.Hour)
	admit(other(4), "s1", 30*time.Hour)
	admit(other(3), "s2", time.Hour)
	admit(other(1), "s2", time.Hour)
	l := k.take("n1", other(3))
	k.append(k.take("n1", other(4)), "end", store.Settlement{Submission: "s1", Outcome: "completed"})
	lapsing := k.take("n2", other(2))
	before := time.Now()
	k.elapse(k.ttl())
	elapsed := time.Since(before)
	k.append(l, "end", store.Settlement{Submission: "s1", Outcome: "completed"})
	k.renew("n1")
	want := []store.Work{
		{Instance: k.instance(other(2)), Owner: "n2", Epoch: lapsing.Epoch},
		{Instance: k.instance(other(1))},
		{Instance: k.instance(other(3)), Owner: "n1", Epoch: l.Epoch, Live: true},
	}
	got := work(10)
	for i := range got {
		// It has waited since it was admitted, or since the settlement.
		least := elapsed - time.Second/10
		if got[i].Address == other(3) {
			least = 0
		}
		if w := got[i].Waiting; w < least || w > elapsed+time.Hour/2 {
			k.Errorf("%v has waited for %v, want at least %v", got[i].Address, w, least)
		}
		got[i].Waiting = 0
	}
	equal(k, "work", got, want)
	equal(k, "the work that has waited for longest", work(1)[0].Address, other(2))
	equal(k, "some of it", len(work(2)), 2)
	equal(k, "no work", len(work(0)), 0)
}

func checkSeveralHandles(k *kit) {
	one, two := k.Store, k.another()
	k.admit(admission(addr, "s1"))
	in, err := two.Instance(k.Context(), addr)
	if err != nil {
		k.Fatalf("Instance: %v", err)
	}
	equal(k, "the other's view", in, k.instance(addr))
	k.renew("n1")
	if err := two.Renew(k.Context(), "n2", k.ttl()); err != nil {
		k.Fatal(err)
	}
	l, err := two.Take(k.Context(), "n2", addr)
	if err != nil {
		k.Fatalf("Take: %v", err)
	}
	_, err = one.Take(k.Context(), "n1", addr)
	k.refused("Take of what another process owns", err, store.ErrOwned)
	a := admission(addr, "s2")
	a.Node = "n1"
	if r := k.admit(a); r.Lease != nil {
		k.Errorf("an admission gave what another process owns: %+v", *r.Lease)
	}
	offset, err := two.Append(k.Context(), l, store.Write{Payload: []byte("work")})
	if err != nil || offset != 3 {
		k.Errorf("the owner's append: %d, %v", offset, err)
	}
	equal(k, "journal", k.payloads(addr), []string{"birth by s1", "admit s1", "admit s2", "work"})
	if err := two.Close(); err != nil {
		k.Errorf("Close: %v", err)
	}
	k.append(l, "the handle that is closed takes no lease with it")
}

func checkClaimsInOrder(k *kit) {
	k.sharer()
	k.renew("n1")
	for _, i := range []int{3, 1, 2} {
		k.admit(admission(other(i), "s1"))
	}
	k.admit(admission(other(3), "s2")) // it waits already
	next := func(want int) store.Lease {
		k.Helper()
		ls := k.claim("n1", 1)
		if len(ls) != 1 || ls[0].Address != other(want) {
			k.Fatalf("claimed %+v, want %v", ls, other(want))
		}
		return ls[0]
	}
	release := func(l store.Lease) {
		k.Helper()
		if err := k.Release(k.Context(), l); err != nil {
			k.Fatal(err)
		}
	}
	// What is given back in the middle of a submission keeps its turn.
	l := next(3)
	k.append(l, "work")
	release(l)
	l = next(3)
	k.append(l, "end", store.Settlement{Submission: "s1", Outcome: "completed"})
	release(l)
	one := next(1)
	next(2)
	k.append(one, "end", store.Settlement{Submission: "s1", Outcome: "completed"})
	release(one)
	k.admit(admission(other(1), "s2"))
	next(3)
	next(1)
}

func checkRenewAt(k *kit) {
	t, ok := k.Store.(store.Timekeeper)
	if !ok {
		k.Skip("the store is no store.Timekeeper")
	}
	began, err := t.RenewAt(k.Context(), "n1", k.ttl())
	if err != nil {
		k.Fatalf("RenewAt: %v", err)
	}
	k.admit(admission(addr, "s1"))
	if ls := k.claim("n1", 1); len(ls) != 1 {
		k.Errorf("a node that has renewed its lease was given %v", ls)
	}
	k.elapse(k.ttl() / 2)
	other, ok := k.another().(store.Timekeeper)
	if !ok {
		k.Fatal("another handle is no store.Timekeeper")
	}
	now, err := other.RenewAt(k.Context(), "n2", k.ttl())
	if passed := now.Sub(began); err != nil || passed < k.ttl()/2-10*time.Millisecond || passed > time.Hour {
		k.Errorf("by the time of another handle %v have passed since the first call, and not about %v; %v", passed, k.ttl()/2, err)
	}
	_, err = t.RenewAt(k.Context(), "n1", 0)
	k.refused("RenewAt for no time", err, store.ErrInvalid)
}
