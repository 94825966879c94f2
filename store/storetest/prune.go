package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flue-go/flue/store"
)

var pruneChecks = []check{
	{
		name: "Prune",
		rule: "one batch stands for those of a run; everything else stays as it is",
		run: func(k *kit) {
			p := k.pruner()
			l := k.ownedOf(12)
			before := k.journal(addr)
			in, sub := k.instance(addr), k.submission(addr, "s1")
			if err := p.Prune(k.Context(), l, []store.Run{{From: 2, To: 5, Payload: []byte("two to five")}, {From: 8, To: 9}}); err != nil {
				k.Fatal(err)
			}
			want := slices.Concat(before[:2], []store.Batch{{Offset: 2, Epoch: l.Epoch, Payload: []byte("two to five"), Span: 3}},
				before[6:8], []store.Batch{{Offset: 8, Epoch: l.Epoch, Payload: []byte{}, Span: 1}}, before[10:])
			k.pruned("after two runs were pruned", want)
			equal(k, "instance", k.instance(addr), in)
			equal(k, "submission", k.submission(addr, "s1"), sub)
			if offset := k.append(l, "next"); offset != 13 {
				k.Errorf("the next batch is at %d, want 13", offset)
			}
		},
	},
	{
		name: "PruneRead",
		rule: "a page goes on behind what a batch stands for, wherever within that it is asked to begin",
		run: func(k *kit) {
			p := k.pruner()
			l := k.ownedOf(9)
			if err := p.Prune(k.Context(), l, []store.Run{{From: 3, To: 6, Payload: []byte("three")}}); err != nil {
				k.Fatal(err)
			}
			for after, want := range map[int64][]int64{-1: {0, 1, 2, 3, 7, 8, 9}, 1: {2, 3, 7, 8, 9}, 2: {3, 7, 8, 9}, 3: {7, 8, 9}, 5: {7, 8, 9}, 6: {7, 8, 9}, 7: {8, 9}, 9: nil} {
				for limit := range 4 {
					page, err := k.Read(k.Context(), addr, after, limit)
					var got []int64
					for _, b := range page.Batches {
						got = append(got, b.Offset)
					}
					some := want
					if limit > 0 {
						some = want[:min(limit, len(want))]
					}
					if err != nil || page.Head != 9 || !slices.Equal(got, some) {
						k.Errorf("Read after %d, at most %d: %v of %d, %v; want %v", after, limit, got, page.Head, err, some)
					}
				}
			}
		},
	},
	{
		name: "PruneAgain",
		rule: "what has been pruned can be pruned again, alone and with its neighbours, but not in part",
		run: func(k *kit) {
			p := k.pruner()
			l := k.ownedOf(9)
			prune := func(from, to int64) error {
				return p.Prune(k.Context(), l, []store.Run{{From: from, To: to, Payload: fmt.Appendf(nil, "%d to %d", from, to)}})
			}
			for range 2 { // as after an acknowledgement was lost
				if err := prune(3, 5); err != nil {
					k.Error(err)
				}
			}
			for _, part := range [][2]int64{{3, 4}, {4, 5}, {4, 6}, {2, 4}, {5, 7}} {
				k.refused(fmt.Sprint("Prune of a part, ", part), prune(part[0], part[1]), store.ErrInvalid)
			}
			if err := prune(3, 7); err != nil {
				k.Error(err)
			}
			if err := prune(2, 8); err != nil {
				k.Error(err)
			}
			batches := k.journal(addr)
			if n := len(batches); n != 4 || string(batches[2].Payload) != "2 to 8" || batches[2].Span != 6 {
				k.Errorf("%d batches, the third is %+v", n, batches[2])
			}
		},
	},
	{
		name: "PruneRefused",
		rule: "a run that is not made of an owner's batches below the head is refused, and nothing is changed",
		run: func(k *kit) {
			p := k.pruner()
			l := k.ownedOf(5)
			k.admit(admission(addr, "s2")) // 6
			k.append(l, "batch")           // 7
			later := k.take("n1", addr)
			k.append(later, "batch") // 8
			k.append(later, "batch") // 9
			good := store.Run{From: 2, To: 3, Payload: []byte("good")}
			for _, tt := range []struct {
				what string
				runs []store.Run
				want error
			}{
				{"with the birth", []store.Run{{From: 0, To: 3}}, store.ErrInvalid},
				{"with an admission at its start", []store.Run{{From: 1, To: 3}}, store.ErrInvalid},
				{"with an admission within", []store.Run{good, {From: 5, To: 7}}, store.ErrInvalid},
				{"of two epochs", []store.Run{good, {From: 7, To: 8}}, store.ErrInvalid},
				{"with the head", []store.Run{good, {From: 8, To: 9}}, store.ErrInvalid},
				{"beyond the head", []store.Run{good, {From: 8, To: 12}}, store.ErrInvalid},
				{"behind the head", []store.Run{good, {From: 20, To: 22}}, store.ErrInvalid},
				{"of one offset", []store.Run{good, {From: 4, To: 4}}, store.ErrInvalid},
				{"that ends before it begins", []store.Run{{From: 4, To: 3}}, store.ErrInvalid},
				{"below the start", []store.Run{{From: -3, To: 3}}, store.ErrInvalid},
				{"that overlaps another", []store.Run{good, {From: 3, To: 5}}, store.ErrInvalid},
				{"out of order", []store.Run{{From: 4, To: 5}, good}, store.ErrInvalid},
				{"of a batch that is too large", []store.Run{{From: 2, To: 3, Payload: make([]byte, store.MaxBatch+1)}}, store.ErrTooLarge},
				{"one of too many", make([]store.Run, store.MaxRuns+1), store.ErrTooLarge},
			} {
				k.unchanged("Prune of a run "+tt.what, addr, []string{"s1"}, func() {
					k.refused("Prune of a run "+tt.what, p.Prune(k.Context(), later, tt.runs), tt.want)
				})
			}
			k.unchanged("Prune with an old lease", addr, []string{"s1"}, func() {
				k.refused("Prune with an old lease", p.Prune(k.Context(), l, []store.Run{good}), store.ErrFenced)
			})
			unknown := later
			unknown.Address = other(1)
			k.refused("Prune of an instance that does not exist", p.Prune(k.Context(), unknown, []store.Run{good}), store.ErrFenced)
			ctx, cancel := context.WithCancel(k.Context())
			cancel()
			k.unchanged("Prune with an ended context", addr, []string{"s1"}, func() {
				k.refused("Prune with an ended context", p.Prune(ctx, later, []store.Run{good}), context.Canceled)
			})
			if err := p.Prune(k.Context(), later, []store.Run{good}); err != nil {
				k.Errorf("Prune of a good run: %v", err)
			}
			if err := k.Close(); err != nil {
				k.Fatal(err)
			}
			k.refused("Prune of a closed store", p.Prune(k.Context(), later, []store.Run{good}), store.ErrClosed)
		},
	},
	{
		name: "PruneKeepsNoReference",
		rule: "a store keeps its own copy of what it puts in the place of a run",
		run: func(k *kit) {
			l := k.ownedOf(9)
			payload := []byte("two")
			if err := k.pruner().Prune(k.Context(), l, []store.Run{{From: 2, To: 4, Payload: payload}}); err != nil {
				k.Fatal(err)
			}
			copy(payload, "...")
			if got := k.payloads(addr)[2]; got != "two" {
				k.Errorf("the batch is %q", got)
			}
		},
	},
	{
		name:    "PruneReopen",
		rule:    "what was pruned is so after reopening",
		persist: true,
		run: func(k *kit) {
			l := k.ownedOf(9)
			if err := k.pruner().Prune(k.Context(), l, []store.Run{{From: 2, To: 4, Payload: []byte("two")}}); err != nil {
				k.Fatal(err)
			}
			before := k.journal(addr)
			k.Store = k.opts.Reopen(k.T, k.Store)
			k.pruned("after reopening", before)
			if offset := k.append(k.take("n1", addr), "next"); offset != 10 {
				k.Errorf("the next batch is at %d, want 10", offset)
			}
		},
	},
	{
		name: "PruneConcurrent",
		rule: "journals may be read and appended to while runs are pruned",
		run: func(k *kit) {
			l := k.ownedOf(200)
			concurrently(3, func(i int) {
				for n := range int64(40) {
					switch i {
					case 0:
						k.append(l, "batch")
					case 1:
						if err := k.pruner().Prune(k.Context(), l, []store.Run{{From: 2 + 4*n, To: 5 + 4*n, Payload: []byte("batch")}}); err != nil {
							k.Errorf("Prune: %v", err)
						}
					default:
						page, err := k.Read(k.Context(), addr, 4*n+1, 0)
						next := 4*n + 2
						for _, b := range page.Batches {
							if b.Offset != next {
								err = errors.Join(err, fmt.Errorf("batch %d follows batch %d", b.Offset, next-1))
							}
							next = b.Last() + 1
						}
						if err != nil || next != page.Head+1 {
							k.Errorf("Read: up to %d of %d, %v", next-1, page.Head, err)
						}
					}
				}
			})
		},
	},
}

// pruner is the store's other face. A check of a store that has none is skipped.
func (k *kit) pruner() store.Pruner {
	k.Helper()
	p, ok := k.Store.(store.Pruner)
	if !ok {
		k.Skip("the store keeps all batches for ever: it is no store.Pruner")
	}
	return p
}

// ownedOf is an instance of a pruner whose head is at an offset. Batches above 1
// are the owner's.
func (k *kit) ownedOf(head int64) store.Lease {
	k.Helper()
	k.pruner()
	l := k.owned(addr, "n1")
	for k.append(l, "batch") < head {
	}
	return l
}

// pruned compares a journal that has been pruned.
func (k *kit) pruned(when string, want []store.Batch) {
	k.Helper()
	got := k.journal(addr)
	for i := range got {
		if len(got[i].Payload) == 0 {
			got[i].Payload = []byte{}
		}
	}
	equal(k, when, got, want)
}
