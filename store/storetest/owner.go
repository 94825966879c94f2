package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/flue-go/flue/store"
)

var ownerChecks = []check{
	{
		name: "NoLease",
		rule: "A node without a live lease of its own is given nothing.",
		run:  checkNoLease,
	},
	{
		name: "Claim",
		rule: "A claim gives instances that have unsettled submissions and no live owner, up to the limit, each under a new epoch.",
		run:  checkClaim,
	},
	{
		name: "ClaimOfAgents",
		rule: "A claim that names agents gives only their instances, and as many of them as the limit allows.",
		run:  checkClaimOfAgents,
	},
	{
		name: "RacingClaims",
		rule: "Two claims never both get an instance.",
		run:  checkRacingClaims,
	},
	{
		name: "RacingTakes",
		rule: "Of several nodes that take one instance at the same time exactly one gets it.",
		run:  checkRacingTakes,
	},
	{
		name: "Take",
		rule: "A node may take an instance with or without work, and again from itself, but not from another live node.",
		run:  checkTake,
	},
	{
		name: "Release",
		rule: "A released instance can be claimed at once; leases that are not current are skipped.",
		run:  checkRelease,
	},
	{
		name: "AdmissionGives",
		rule: "An admission gives the instance to its node if no live node owns it and the node holds a lease, and a replay gives nothing.",
		run:  checkAdmissionGives,
	},
	{
		name:  "Lapse",
		rule:  "When a node's lease lapses, all it owns can be claimed by others; until somebody does, its leases stay current.",
		run:   checkLapse,
		timed: true,
	},
	{
		name:  "TakeAfterLapse",
		rule:  "An instance of a lapsed node can be taken, or given with an admission, under a newer epoch.",
		run:   checkTakeAfterLapse,
		timed: true,
	},
	{
		name:  "Renewal",
		rule:  "A node that renews in time keeps everything that it owns.",
		run:   checkRenewal,
		timed: true,
	},
	{
		name: "ContendedOwnership",
		rule: "Of several nodes that take an instance from each other, only the one with the newest epoch can write.",
		run:  checkContendedOwnership,
	},
}

func checkNoLease(k *kit) {
	k.admit(admission(addr, "s1"))
	_, err := k.Claim(k.Context(), "n1", 10)
	k.refused("Claim", err, store.ErrNoLease)
	_, err = k.Take(k.Context(), "n1", addr)
	k.refused("Take", err, store.ErrNoLease)
	a := admission(addr, "s2")
	a.Node = "n1"
	if r := k.admit(a); r.Lease != nil {
		k.Errorf("Admit gave %+v", *r.Lease)
	}
}

func checkClaim(k *kit) {
	k.renew("n1")
	equal(k, "claims of an empty store", len(k.claim("n1", 10)), 0)
	want := make(map[store.Address]bool)
	for i := range 25 {
		k.admit(admission(other(i), "s1"))
		want[other(i)] = true
	}
	// One has been settled and one is somebody's already.
	l := k.take("n1", other(3))
	k.append(l, "end", store.Settlement{Submission: "s1", Outcome: "completed"})
	if err := k.Release(k.Context(), l); err != nil {
		k.Fatal(err)
	}
	k.take("n2", other(4))
	delete(want, other(3))
	delete(want, other(4))

	equal(k, "claims with limit 0", len(k.claim("n1", 0)), 0)
	var sizes []int
	for range 4 {
		ls := k.claim("n1", 10)
		sizes = append(sizes, len(ls))
		for _, l := range ls {
			if !want[l.Address] || l.Node != "n1" || l.Epoch <= 0 {
				k.Errorf("claimed %+v", l)
			}
			delete(want, l.Address)
			k.append(l, "work")
		}
	}
	equal(k, "claims by call", sizes, []int{10, 10, 3, 0})
	equal(k, "instances that were not claimed", len(want), 0)
}

func checkClaimOfAgents(k *kit) {
	k.renew("n1")
	agents := []string{"a", "b", "a/b", "c"}
	for i := range 40 {
		k.admit(admission(store.Address{Agent: agents[i%len(agents)], ID: fmt.Sprint(i)}, "s1"))
	}
	take := func(want int, limit int, agents ...string) {
		k.Helper()
		ls := k.claim("n1", limit, agents...)
		equal(k, fmt.Sprintf("claims of %q", agents), len(ls), want)
		for _, l := range ls {
			if len(agents) > 0 && !slices.Contains(agents, l.Agent) {
				k.Errorf("a claim of %q gave %v", agents, l.Address)
			}
			k.append(l, "work")
		}
	}
	take(0, 100, "d", "A", "a ", "")
	take(7, 7, "c")
	take(3, 100, "d", "c", "c")
	take(15, 15, "a", "b")
	take(5, 100, "a", "b")
	take(10, 100)
}

func checkRacingClaims(k *kit) {
	const nodes, instances = 8, 100
	for i := range instances {
		k.admit(admission(other(i), "s1"))
	}
	var mu sync.Mutex
	claims := make(map[store.Address]int)
	concurrently(nodes, func(g int) {
		node := fmt.Sprint("n", g)
		if err := k.Renew(k.Context(), node, k.ttl()); err != nil {
			k.Errorf("Renew: %v", err)
			return
		}
		for {
			ls, err := k.Claim(k.Context(), node, 7)
			if err != nil {
				k.Errorf("Claim: %v", err)
				return
			}
			mu.Lock()
			for _, l := range ls {
				claims[l.Address]++
			}
			n := len(claims)
			mu.Unlock()
			if len(ls) == 0 || n == instances {
				return
			}
			for _, l := range ls {
				if _, err := k.Append(k.Context(), l, store.Write{Payload: []byte(node)}); err != nil {
					k.Errorf("append under a claim: %v", err)
				}
			}
		}
	})
	equal(k, "claimed instances", len(claims), instances)
	for a, n := range claims {
		if n != 1 {
			k.Errorf("%v was claimed %d times", a, n)
		}
	}
}

func checkRacingTakes(k *kit) {
	const nodes = 16
	k.admit(admission(addr, "s1"))
	leases := make([]store.Lease, nodes)
	errs := make([]error, nodes)
	for i := range nodes {
		k.renew(fmt.Sprint("n", i))
	}
	concurrently(nodes, func(i int) {
		leases[i], errs[i] = k.Take(k.Context(), fmt.Sprint("n", i), addr)
	})
	won := 0
	for i, err := range errs {
		if err != nil {
			k.refused(fmt.Sprint("Take by node ", i), err, store.ErrOwned)
			continue
		}
		won++
		k.append(leases[i], "work")
	}
	equal(k, "nodes that got the instance", won, 1)
}

func checkTake(k *kit) {
	k.renew("n1")
	k.renew("n2")
	_, err := k.Take(k.Context(), "n1", addr)
	k.refused("Take of a missing instance", err, store.ErrNotFound)

	first := k.owned(addr, "n1")
	_, err = k.Take(k.Context(), "n2", addr)
	k.refused("Take from a live node", err, store.ErrOwned)
	k.append(first, "work")
	again := k.take("n1", addr)
	if again.Epoch <= first.Epoch {
		k.Errorf("the second epoch is %d, the first %d", again.Epoch, first.Epoch)
	}
	k.append(again, "end", store.Settlement{Submission: "s1", Outcome: "completed"})
	if err := k.Release(k.Context(), again); err != nil {
		k.Fatal(err)
	}
	idle := k.take("n2", addr)
	if idle.Epoch <= again.Epoch {
		k.Errorf("the third epoch is %d, the second %d", idle.Epoch, again.Epoch)
	}
	k.append(idle, "work without a submission")
}

func checkRelease(k *kit) {
	old := k.owned(addr, "n1")
	l := k.take("n1", addr)
	k.admit(admission(other(1), "s1"))
	l1 := k.take("n1", other(1))
	k.renew("n2")
	stranger := l
	stranger.Node = "n2"
	missing := l
	missing.Address = other(9)
	if err := k.Release(k.Context()); err != nil {
		k.Errorf("Release of nothing: %v", err)
	}
	if err := k.Release(k.Context(), old, stranger, missing, store.Lease{}); err != nil {
		k.Errorf("Release of leases that are not current: %v", err)
	}
	equal(k, "claims while they are owned", len(k.claim("n2", 10)), 0)
	k.append(l, "work")

	if err := k.Release(k.Context(), old, l, missing, l1); err != nil {
		k.Errorf("Release: %v", err)
	}
	claimed := k.claim("n2", 10)
	equal(k, "claims after release", len(claimed), 2)
	before := map[store.Address]int64{l.Address: l.Epoch, l1.Address: l1.Epoch}
	for _, c := range claimed {
		if c.Epoch <= before[c.Address] {
			k.Errorf("claimed %v under epoch %d after %d", c.Address, c.Epoch, before[c.Address])
		}
	}
	if err := k.Release(k.Context(), l, l1); err != nil {
		k.Errorf("Release by the earlier owner: %v", err)
	}
	for _, c := range claimed {
		k.append(c, "work")
	}
}

func checkAdmissionGives(k *kit) {
	k.renew("n1")
	k.renew("n2")
	give := func(id, node string) *store.Lease {
		a := admission(addr, id)
		a.Node = node
		return k.admit(a).Lease
	}
	l := give("s1", "n1")
	if l == nil || l.Address != addr || l.Node != "n1" || l.Epoch <= 0 {
		k.Fatalf("the admission that creates an instance gave %+v", l)
	}
	k.append(*l, "work")
	if again := give("s1", "n1"); again != nil {
		k.Errorf("a replay gave %+v", *again)
	}
	if own := give("s2", "n1"); own != nil {
		k.Errorf("an admission by the owner gave %+v", *own)
	}
	if taken := give("s3", "n2"); taken != nil {
		k.Errorf("an admission by another node gave %+v", *taken)
	}
	k.append(*l, "work")
	if err := k.Release(k.Context(), *l); err != nil {
		k.Fatal(err)
	}
	if again := give("s1", "n2"); again != nil {
		k.Errorf("a replay to an instance without owner gave %+v", *again)
	}
	next := give("s4", "n2")
	if next == nil || next.Node != "n2" || next.Epoch <= l.Epoch {
		k.Fatalf("an admission to an idle instance gave %+v after epoch %d", next, l.Epoch)
	}
	k.append(*next, "work")
	equal(k, "claims of what was given", len(k.claim("n1", 10)), 0)
}

func checkLapse(k *kit) {
	var leases []store.Lease
	for i := range 5 {
		leases = append(leases, k.owned(other(i), "n1"))
	}
	k.elapse(k.ttl() / 2)
	k.renew("n2")
	equal(k, "claims while the owner lives", len(k.claim("n2", 10)), 0)
	k.elapse(k.ttl() / 2)
	k.renew("n2")
	k.append(leases[0], "after the lapse, before a takeover")
	_, err := k.Claim(k.Context(), "n1", 10)
	k.refused("Claim by the lapsed node", err, store.ErrNoLease)

	claimed := k.claim("n2", 10)
	equal(k, "claims after the lapse", len(claimed), len(leases))
	for _, l := range leases {
		_, err := k.Append(k.Context(), l, store.Write{Payload: []byte("too late")})
		k.refused("append by the lapsed owner", err, store.ErrFenced)
	}
	k.renew("n1")
	_, err = k.Append(k.Context(), leases[0], store.Write{Payload: []byte("too late")})
	k.refused("append by the earlier owner after it renewed", err, store.ErrFenced)
	equal(k, "claims by the earlier owner", len(k.claim("n1", 10)), 0)
	for _, l := range claimed {
		i := slices.IndexFunc(leases, func(o store.Lease) bool { return o.Address == l.Address })
		if i < 0 || l.Epoch <= leases[i].Epoch {
			k.Errorf("claimed %+v", l)
		}
		k.append(l, "work")
	}
}

func checkTakeAfterLapse(k *kit) {
	l1, l2 := k.owned(other(1), "n1"), k.owned(other(2), "n1")
	k.elapse(k.ttl())
	n1 := k.take("n2", other(1))
	a := admission(other(2), "s2")
	a.Node = "n2"
	r := k.admit(a)
	if r.Lease == nil {
		k.Fatal("the admission was not given the instance of a lapsed node")
	}
	if n1.Epoch <= l1.Epoch || r.Lease.Epoch <= l2.Epoch {
		k.Errorf("new epochs %d and %d, old ones %d and %d", n1.Epoch, r.Lease.Epoch, l1.Epoch, l2.Epoch)
	}
	for _, l := range []store.Lease{l1, l2} {
		_, err := k.Append(k.Context(), l, store.Write{Payload: []byte("too late")})
		k.refused("append by the lapsed owner", err, store.ErrFenced)
	}
	k.append(n1, "work")
	k.append(*r.Lease, "work")
}

func checkRenewal(k *kit) {
	l := k.owned(addr, "n1")
	for range 10 {
		k.elapse(k.ttl() / 2)
		k.renew("n1")
		k.renew("n2")
		_, err := k.Take(k.Context(), "n2", addr)
		k.refused("Take", err, store.ErrOwned)
		equal(k, "claims", len(k.claim("n2", 10)), 0)
	}
	k.append(l, "work")
	// A renewal may also shorten a lease.
	if err := k.Renew(k.Context(), "n1", time.Millisecond); err != nil {
		k.Fatal(err)
	}
	k.elapse(2 * time.Millisecond)
	equal(k, "claims after a short renewal", len(k.claim("n2", 10)), 1)
}

func checkContendedOwnership(k *kit) {
	const nodes, rounds = 4, 30
	k.admit(admission(addr, "s1"))
	for i := range nodes {
		k.renew(fmt.Sprint("n", i))
	}
	concurrently(nodes, func(i int) {
		node := fmt.Sprint("n", i)
		for range rounds {
			l, err := k.Take(k.Context(), node, addr)
			if err != nil {
				k.refused("Take", err, store.ErrOwned)
				continue
			}
			at := int64(-1)
			for range 3 {
				next, err := k.Append(k.Context(), l, store.Write{Payload: []byte(node)})
				if err != nil || at >= 0 && next != at+1 {
					k.Errorf("the owner's append got offset %d after %d, %v", next, at, err)
				}
				at = next
			}
			if err := k.Release(k.Context(), l); err != nil {
				k.Errorf("Release: %v", err)
			}
		}
	})
	last := int64(0)
	for _, b := range k.journal(addr)[2:] {
		if b.Epoch < last {
			k.Errorf("batch %d has epoch %d after %d", b.Offset, b.Epoch, last)
		}
		last = b.Epoch
	}
}
