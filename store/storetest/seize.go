package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/flue-go/flue/store"
)

var seizeChecks = []check{
	{
		name: "Seize",
		rule: "an instance can be taken from a live node, whose lease is not current any more, and which can take it back only once it is free",
		run: func(k *kit) {
			s := k.seizer()
			first := k.owned(addr, "n1")
			k.append(first, "work")
			k.renew("operator")
			l, err := s.Seize(k.Context(), "operator", addr)
			if err != nil || l.Node != "operator" || l.Address != addr || l.Epoch <= first.Epoch {
				k.Fatalf("Seize = %+v, %v after epoch %d", l, err, first.Epoch)
			}
			k.unchanged("an append by the owner before", addr, []string{"s1"}, func() {
				_, err := k.Append(k.Context(), first, store.Write{Payload: []byte("late")})
				k.refused("Append by the owner before", err, store.ErrFenced)
			})
			_, err = k.Take(k.Context(), "n1", addr)
			k.refused("Take by the owner before", err, store.ErrOwned)
			if ls := k.claim("n1", 10); len(ls) > 0 {
				k.Errorf("a claim gave %v", ls)
			}
			k.append(l, "mended")
			if err := k.Release(k.Context(), first, l); err != nil {
				k.Fatal(err)
			}
			if again := k.take("n1", addr); again.Epoch <= l.Epoch {
				k.Errorf("the epoch after it is %d, and it had %d", again.Epoch, l.Epoch)
			}
		},
	},
	{
		name: "SeizeFree",
		rule: "an instance that nobody owns, or the node itself, can be seized as it can be taken",
		run: func(k *kit) {
			s := k.seizer()
			_, err := s.Seize(k.Context(), "n1", addr)
			k.refused("Seize of a missing instance", err, store.ErrNotFound)
			k.admit(admission(addr, "s1"))
			_, err = s.Seize(k.Context(), "n1", addr)
			k.refused("Seize without a lease", err, store.ErrNoLease)
			k.renew("n1")
			first, err := s.Seize(k.Context(), "n1", addr)
			if err != nil {
				k.Fatal(err)
			}
			k.append(first, "work")
			second, err := s.Seize(k.Context(), "n1", addr)
			if err != nil || second.Epoch <= first.Epoch {
				k.Fatalf("Seize = %+v, %v after epoch %d", second, err, first.Epoch)
			}
			k.append(second, "more work")
			_, err = k.Append(k.Context(), first, store.Write{Payload: []byte("late")})
			k.refused("Append under the epoch before", err, store.ErrFenced)
			ctx, cancel := context.WithCancel(k.Context())
			cancel()
			if _, err := s.Seize(ctx, "n1", addr); !errors.Is(err, context.Canceled) {
				k.Errorf("Seize with a context that has ended: %v", err)
			}
		},
	},
	{
		name: "RacingSeizes",
		rule: "of several nodes that seize an instance at the same time, all get it one after the other, and only the last can write",
		run: func(k *kit) {
			const nodes = 8
			s := k.seizer()
			k.admit(admission(addr, "s1"))
			leases, errs := make([]store.Lease, nodes), make([]error, nodes)
			for i := range nodes {
				k.renew(fmt.Sprint("n", i))
			}
			concurrently(nodes, func(i int) { leases[i], errs[i] = s.Seize(k.Context(), fmt.Sprint("n", i), addr) })
			epochs, last := make(map[int64]bool), store.Lease{}
			for i, l := range leases {
				if errs[i] != nil {
					k.Fatal(errs[i])
				}
				if epochs[l.Epoch] = true; l.Epoch > last.Epoch {
					last = l
				}
			}
			equal(k, "epochs", len(epochs), nodes)
			for _, l := range leases {
				_, err := k.Append(k.Context(), l, store.Write{Payload: []byte("work")})
				if (err == nil) != (l == last) || err != nil && !errors.Is(err, store.ErrFenced) {
					k.Errorf("Append under epoch %d, of %d at last: %v", l.Epoch, last.Epoch, err)
				}
			}
		},
	},
}

// seizer returns the store as one whose instances can be seized, or skips the check.
func (k *kit) seizer() store.Seizer {
	k.Helper()
	s, ok := k.Store.(store.Seizer)
	if !ok {
		k.Skip("nothing can be taken from a live owner: it is no store.Seizer")
	}
	return s
}
