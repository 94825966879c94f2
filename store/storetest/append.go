package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/flue-go/flue/store"
)

var appendChecks = []check{
	{
		name: "AppendOrder",
		rule: "An owner's batches get the next offsets, in the order of its calls, and carry its epoch.",
		run:  checkAppendOrder,
	},
	{
		name: "IntakeBesideAppends",
		rule: "Batches of intake and of the owner share one sequence without gaps or repeats, and a reader never sees one without all before it.",
		run:  checkIntakeBesideAppends,
	},
	{
		name: "Fenced",
		rule: "An append under a lease that is not the current one is refused with ErrFenced and writes nothing, not even its settlements.",
		run:  checkFenced,
	},
	{
		name: "TakeEndsOldAppends",
		rule: "Once a takeover has returned, no append of the earlier owner lands.",
		run:  checkTakeEndsOldAppends,
	},
	{
		name: "Settle",
		rule: "A settlement is written with its batch, once; one of an unknown or settled submission is refused with ErrSettled, and its whole batch with it.",
		run:  checkSettle,
	},
	{
		name: "RacingSettlements",
		rule: "Of concurrent settlements of one submission exactly one succeeds.",
		run:  checkRacingSettlements,
	},
	{
		name: "RefusalsSpareNeighbours",
		rule: "A refused write does not disturb the writes beside it.",
		run:  checkRefusalsSpareNeighbours,
	},
	{
		name: "ManyInstances",
		rule: "A thousand instances can be written at the same time, and each has its own journal afterwards.",
		run:  checkManyInstances,
	},
}

func checkAppendOrder(k *kit) {
	l := k.owned(addr, "n1")
	want := []string{"birth by s1", "admit s1"}
	for i := range 20 {
		p := fmt.Sprint("work ", i)
		equal(k, "offset", k.append(l, p), int64(len(want)))
		want = append(want, p)
	}
	equal(k, "offset of an empty batch", k.append(l, ""), int64(len(want)))
	equal(k, "journal", k.payloads(addr), append(want, ""))
	for _, b := range k.journal(addr)[2:] {
		equal(k, "epoch", b.Epoch, l.Epoch)
	}
	equal(k, "head", k.instance(addr).Head, int64(len(want)))
}

func checkIntakeBesideAppends(k *kit) {
	const writers, each = 4, 50
	l := k.owned(addr, "n1")
	stop := make(chan struct{})
	readers := make(chan struct{})
	go func() { // reads while the writers run
		defer close(readers)
		next := int64(0)
		for {
			p, err := k.Read(k.Context(), addr, next-1, 7)
			if err != nil {
				k.Errorf("Read: %v", err)
				return
			}
			for _, b := range p.Batches {
				if b.Offset != next || b.Offset > p.Head {
					k.Errorf("read batch %d, want %d, with head %d", b.Offset, next, p.Head)
					return
				}
				next++
			}
			if len(p.Batches) == 0 {
				select {
				case <-stop:
					return
				default:
				}
			}
		}
	}()
	var offsets [2 + 2*writers*each]atomic.Int32
	concurrently(2*writers, func(g int) {
		last := int64(-1)
		for i := range each {
			name := fmt.Sprintf("%d-%d", g, i)
			var offset int64
			var err error
			if g%2 == 0 {
				var r store.Receipt
				r, err = k.Admit(k.Context(), admission(addr, name))
				offset = r.Offset
			} else {
				offset, err = k.Append(k.Context(), l, store.Write{Payload: []byte(name)})
			}
			if err != nil {
				k.Errorf("write %s: %v", name, err)
				return
			}
			if offset <= last || offset >= int64(len(offsets)) {
				k.Errorf("write %s got offset %d after %d", name, offset, last)
				return
			}
			offsets[offset].Add(1)
			last = offset
		}
	})
	close(stop)
	<-readers
	for i := range offsets[2:] {
		if n := offsets[2+i].Load(); n != 1 {
			k.Errorf("offset %d was given %d times", 2+i, n)
		}
	}
	equal(k, "batches", len(k.journal(addr)), len(offsets))
}

func checkFenced(k *kit) {
	l := k.owned(addr, "n1")
	k.admit(admission(other(1), "s1"))
	elsewhere := k.take("n1", other(1))
	for elsewhere.Epoch == l.Epoch { // epochs may be counted by instance
		elsewhere = k.take("n1", other(1))
	}
	refuse := func(what string, l store.Lease) {
		k.Helper()
		k.unchanged(what, addr, []string{"s1"}, func() {
			_, err := k.Append(k.Context(), l, store.Write{
				Payload: []byte(what), Settle: []store.Settlement{{Submission: "s1", Outcome: "completed"}},
			})
			k.refused("append "+what, err, store.ErrFenced)
		})
	}
	with := func(change func(*store.Lease)) store.Lease {
		c := l
		change(&c)
		return c
	}
	refuse("without a lease", store.Lease{Address: addr})
	refuse("with no epoch", with(func(l *store.Lease) { l.Epoch = 0 }))
	refuse("with an older epoch", with(func(l *store.Lease) { l.Epoch-- }))
	refuse("with a newer epoch", with(func(l *store.Lease) { l.Epoch++ }))
	refuse("as another node", with(func(l *store.Lease) { l.Node = "n2" }))
	refuse("with another instance's lease", with(func(l *store.Lease) { l.Epoch = elsewhere.Epoch }))
	_, err := k.Append(k.Context(), with(func(l *store.Lease) { l.ID = "missing" }), store.Write{})
	k.refused("append to a missing instance", err, store.ErrFenced)

	newer := k.take("n1", addr)
	refuse("after a takeover by the same node", l)
	k.append(newer, "work")
	if err := k.Release(k.Context(), newer); err != nil {
		k.Fatal(err)
	}
	refuse("after release", newer)
	refuse("with the first lease after release", l)
	k.append(k.take("n2", addr), "done", store.Settlement{Submission: "s1", Outcome: "completed"})
}

func checkTakeEndsOldAppends(k *kit) {
	k.owned(addr, "n1")
	for range 20 {
		l := k.take("n1", addr)
		var taken atomic.Bool
		done := make(chan struct{})
		var running sync.WaitGroup
		running.Add(4)
		go func() {
			defer close(done)
			concurrently(4, func(int) {
				for i := 0; ; i++ {
					if i == 2 {
						running.Done()
					}
					late := taken.Load()
					_, err := k.Append(k.Context(), l, store.Write{Payload: []byte("work")})
					if err != nil {
						k.refused("append by the earlier owner", err, store.ErrFenced)
						if i < 2 {
							running.Done()
						}
						return
					}
					if late {
						k.Errorf("an append by the earlier owner succeeded after the takeover")
						return
					}
				}
			})
		}()
		running.Wait()
		newer := k.take("n1", addr)
		taken.Store(true)
		head := k.instance(addr).Head
		equal(k, "offset of the new owner's first append", k.append(newer, "mine"), head+1)
		<-done
		equal(k, "head after the earlier owner gave up", k.instance(addr).Head, head+1)
	}
	last := int64(0)
	for _, b := range k.journal(addr) {
		if b.Epoch != 0 && b.Epoch < last {
			k.Fatalf("batch %d has epoch %d after %d", b.Offset, b.Epoch, last)
		}
		last = max(last, b.Epoch)
	}
}

func checkSettle(k *kit) {
	l := k.owned(addr, "n1")
	for _, id := range []string{"s2", "s3", "s4"} {
		k.admit(admission(addr, id))
	}
	k.admit(admission(other(1), "elsewhere"))
	ids := []string{"s1", "s2", "s3", "s4"}
	equal(k, "unsettled", k.instance(addr).Unsettled, 4)

	at := k.append(l, "end", store.Settlement{Submission: "s2", Outcome: "failed"})
	equal(k, "submission", k.submission(addr, "s2"), store.Submission{
		ID: "s2", Offset: 2, AcceptedAt: accepted, Outcome: "failed", SettledAt: at,
	})
	equal(k, "unsettled", k.instance(addr).Unsettled, 3)

	for name, settle := range map[string][]string{
		"settled":                     {"s2"},
		"unknown":                     {"s9"},
		"of another instance":         {"elsewhere"},
		"the same twice":              {"s1", "s1"},
		"one open and one settled":    {"s1", "s2"},
		"several open and one unkown": {"s1", "s3", "s4", "s9"},
	} {
		var w store.Write
		for _, id := range settle {
			w.Settle = append(w.Settle, store.Settlement{Submission: id, Outcome: "completed"})
		}
		k.unchanged(name, addr, ids, func() {
			_, err := k.Append(k.Context(), l, w)
			k.refused("settlement of "+name, err, store.ErrSettled)
		})
	}

	at = k.append(l, "end", store.Settlement{Submission: "s4", Outcome: "completed"}, store.Settlement{Submission: "s1", Outcome: "aborted"})
	equal(k, "s1", k.submission(addr, "s1"), store.Submission{ID: "s1", Offset: 1, AcceptedAt: accepted, Outcome: "aborted", SettledAt: at})
	equal(k, "s4", k.submission(addr, "s4"), store.Submission{ID: "s4", Offset: 4, AcceptedAt: accepted, Outcome: "completed", SettledAt: at})
	equal(k, "unsettled", k.instance(addr).Unsettled, 1)
}

func checkRacingSettlements(k *kit) {
	const n = 16
	l := k.owned(addr, "n1")
	errs := make([]error, n)
	concurrently(n, func(i int) {
		_, errs[i] = k.Append(k.Context(), l, store.Write{
			Payload: []byte(fmt.Sprint(i)), Settle: []store.Settlement{{Submission: "s1", Outcome: fmt.Sprint(i)}},
		})
	})
	won := -1
	for i, err := range errs {
		if err != nil {
			k.refused("settlement", err, store.ErrSettled)
			continue
		}
		if won >= 0 {
			k.Errorf("settlements %d and %d both succeeded", won, i)
		}
		won = i
	}
	sub := k.submission(addr, "s1")
	equal(k, "outcome", sub.Outcome, fmt.Sprint(won))
	equal(k, "journal", k.payloads(addr), []string{"birth by s1", "admit s1", fmt.Sprint(won)})
}

func checkRefusalsSpareNeighbours(k *kit) {
	const n = 64
	leases := make([]store.Lease, n)
	for i := range leases {
		leases[i] = k.owned(other(i), "n1")
		if i%2 == 1 {
			leases[i].Epoch-- // no longer anybody's
		}
	}
	for round := range 4 {
		concurrently(n, func(i int) {
			_, err := k.Append(k.Context(), leases[i], store.Write{Payload: []byte(fmt.Sprint(round))})
			if i%2 == 1 {
				k.refused("append under an old lease", err, store.ErrFenced)
			} else if err != nil {
				k.Errorf("append beside refused ones: %v", err)
			}
		})
	}
	for i := range n {
		want := []string{"birth by s1", "admit s1"}
		if i%2 == 0 {
			want = append(want, "0", "1", "2", "3")
		}
		equal(k, "journal", k.payloads(other(i)), want)
	}
}

func checkManyInstances(k *kit) {
	const n = 1000
	k.renew("n1")
	concurrently(n, func(i int) {
		a := admission(other(i), "s1")
		a.Node = "n1"
		r, err := k.Admit(k.Context(), a)
		if err != nil || r.Lease == nil {
			k.Errorf("Admit to instance %d: %+v, %v", i, r, err)
			return
		}
		w := store.Write{Payload: []byte(fmt.Sprint("work of ", i))}
		if _, err := k.Append(k.Context(), *r.Lease, w); err != nil {
			k.Errorf("Append to instance %d: %v", i, err)
		}
		w = store.Write{Payload: []byte("end"), Settle: []store.Settlement{{Submission: "s1", Outcome: "completed"}}}
		if _, err := k.Append(k.Context(), *r.Lease, w); err != nil {
			k.Errorf("settle in instance %d: %v", i, err)
		}
		if err := k.Release(k.Context(), *r.Lease); err != nil {
			k.Errorf("Release of instance %d: %v", i, err)
		}
	})
	for i := range n {
		equal(k, "journal", k.payloads(other(i)), []string{"birth by s1", "admit s1", fmt.Sprint("work of ", i), "end"})
		equal(k, "unsettled", k.instance(other(i)).Unsettled, 0)
	}
}
