package storetest

import (
	"fmt"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/store"
)

var persistChecks = []check{
	{
		name:    "Reopen",
		rule:    "Everything that was acknowledged is there after the store is opened again, exactly as it was.",
		run:     checkReopen,
		persist: true,
	},
	{
		name:    "ReplayAfterReopen",
		rule:    "Admission stays idempotent across restarts.",
		run:     checkReplayAfterReopen,
		persist: true,
	},
	{
		name:    "EpochsAfterReopen",
		rule:    "Epochs keep rising across restarts, so that a lease from before one is never current after it.",
		run:     checkEpochsAfterReopen,
		persist: true,
	},
	{
		name:    "ClaimsAfterReopen",
		rule:    "A store that proves at open that every earlier owner is dead lets their instances be claimed at once.",
		run:     checkClaimsAfterReopen,
		persist: true,
	},
}

func (k *kit) reopen() {
	k.Helper()
	k.Store = k.opts.Reopen(k.T, k.Store)
}

func checkReopen(k *kit) {
	const n = 20
	concurrently(n, func(i int) {
		a := admission(other(i), "s1")
		a.Attachments = []store.Attachment{attachment("file", fmt.Sprint("file of ", i))}
		k.Admit(k.Context(), a)
	})
	ids := []string{"s1", "s2"}
	for i := range n {
		l := k.take("n1", other(i))
		k.append(l, "work")
		k.admit(admission(other(i), "s2"))
		if i%2 == 0 {
			k.append(l, "end", store.Settlement{Submission: "s1", Outcome: "completed"})
		}
	}
	var before, after []snapshot
	for i := range n {
		before = append(before, k.snapshot(other(i), ids...))
	}
	k.reopen()
	for i := range n {
		after = append(after, k.snapshot(other(i), ids...))
	}
	if diff := cmp.Diff(before, after); diff != "" {
		k.Errorf("what can be seen changed (-before +after):\n%s", diff)
	}
	for i := range n {
		at, err := k.Attachment(k.Context(), other(i), "file")
		if want := fmt.Sprint("file of ", i); err != nil || string(at.Data) != want {
			k.Errorf("attachment of instance %d: %q, %v", i, at.Data, err)
		}
	}
}

func checkReplayAfterReopen(k *kit) {
	want := k.admit(admission(addr, "s1"))
	want.Duplicate = true
	k.reopen()
	equal(k, "receipt", k.admit(admission(addr, "s1")), want)
	a := admission(addr, "s1")
	a.Identity = []byte("another")
	_, err := k.Admit(k.Context(), a)
	k.refused("admission with another identity", err, store.ErrConflict)
	equal(k, "offset of the next submission", k.admit(admission(addr, "s2")).Offset, 2)
}

func checkEpochsAfterReopen(k *kit) {
	l := k.owned(addr, "n1")
	for range 3 {
		k.append(l, "work")
		for range 3 {
			l = k.take("n1", addr) // without a write
		}
		k.reopen()
		if k.opts.Exclusive {
			_, err := k.Append(k.Context(), l, store.Write{Payload: []byte("too late")})
			k.refused("append under a lease from before the restart", err, store.ErrFenced)
		}
		newer := k.take("n1", addr)
		if newer.Epoch <= l.Epoch {
			k.Errorf("epoch %d after the restart, %d before it", newer.Epoch, l.Epoch)
		}
		_, err := k.Append(k.Context(), l, store.Write{Payload: []byte("too late")})
		k.refused("append under a lease from before the restart and a takeover", err, store.ErrFenced)
		l = newer
	}
}

func checkClaimsAfterReopen(k *kit) {
	if !k.opts.Exclusive {
		k.Skip("the store may be open elsewhere: Options.Exclusive is false")
	}
	const n = 10
	for i := range n {
		k.owned(other(i), "n1")
	}
	k.reopen()
	k.renew("n2")
	equal(k, "claims", len(k.claim("n2", 2*n)), n)
}
