package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/flue-go/flue/store"
)

var checkpointChecks = []check{
	{
		name: "CheckpointNone",
		rule: "an instance without a checkpoint, and one that does not exist, fail with ErrNotFound",
		run: func(k *kit) {
			cs := k.checkpointer()
			_, err := cs.Checkpoint(k.Context(), addr, math.MaxInt64)
			k.refused("Checkpoint of an instance that does not exist", err, store.ErrNotFound)
			k.owned(addr, "n1")
			_, err = cs.Checkpoint(k.Context(), addr, math.MaxInt64)
			k.refused("Checkpoint of an instance that has none", err, store.ErrNotFound)
		},
	},
	{
		name: "CheckpointNewestTwo",
		rule: "the two newest checkpoints are kept, and found by the highest offset that is wanted",
		run: func(k *kit) {
			l := k.ownedWith(9)
			for _, offset := range []int64{0, 3, 5, 9} {
				k.save(l, offset, fmt.Sprint("at ", offset))
			}
			k.checkpoints("after four were saved", map[int64]int64{math.MaxInt64: 9, 9: 9, 8: 5, 5: 5, 4: -1, 0: -1, -1: -1})
		},
	},
	{
		name: "CheckpointAgain",
		rule: "a checkpoint replaces the one at its offset and those above, which its owner does not know",
		run: func(k *kit) {
			l := k.ownedWith(9)
			k.save(l, 4, "at 4")
			k.save(l, 8, "another")
			k.save(l, 8, "at 8")
			k.checkpoints("after one was saved again", map[int64]int64{math.MaxInt64: 8, 7: 4})
			k.save(l, 6, "at 6")
			k.save(l, 4, "at 4")
			k.checkpoints("after a lower one was saved", map[int64]int64{math.MaxInt64: 4, 3: -1})
		},
	},
	{
		name: "CheckpointFence",
		rule: "only the current owner can save a checkpoint",
		run: func(k *kit) {
			cs := k.checkpointer()
			l := k.ownedWith(3)
			k.save(l, 2, "at 2")
			unknown := l
			unknown.Address = other(1)
			k.refused("SaveCheckpoint of an instance that does not exist", cs.SaveCheckpoint(k.Context(), unknown, store.Checkpoint{}), store.ErrFenced)
			k.take("n1", addr)
			k.refused("SaveCheckpoint with an old lease", cs.SaveCheckpoint(k.Context(), l, store.Checkpoint{Offset: 3, Data: []byte("late")}), store.ErrFenced)
			k.checkpoints("after one was refused", map[int64]int64{math.MaxInt64: 2})
		},
	},
	{
		name: "CheckpointBounds",
		rule: "a checkpoint beyond the head, below the start or larger than the limit is refused and changes nothing",
		run: func(k *kit) {
			cs := k.checkpointer()
			l := k.ownedWith(3)
			k.save(l, 1, "at 1")
			for _, tt := range []struct {
				what string
				c    store.Checkpoint
				want error
			}{
				{"beyond the head", store.Checkpoint{Offset: 4}, store.ErrInvalid},
				{"below the start", store.Checkpoint{Offset: -1}, store.ErrInvalid},
				{"too large", store.Checkpoint{Offset: 2, Data: make([]byte, store.MaxCheckpoint+1)}, store.ErrTooLarge},
			} {
				k.refused("SaveCheckpoint "+tt.what, cs.SaveCheckpoint(k.Context(), l, tt.c), tt.want)
			}
			k.checkpoints("after three were refused", map[int64]int64{math.MaxInt64: 1})
		},
	},
	{
		name: "CheckpointIsNoWrite",
		rule: "a checkpoint changes nothing of its instance, and nothing of others",
		run: func(k *kit) {
			cs := k.checkpointer()
			l := k.ownedWith(3)
			k.admit(admission(other(1), "s1"))
			for _, a := range []store.Address{addr, other(1)} {
				k.unchanged("SaveCheckpoint", a, []string{"s1"}, func() { k.save(l, 3, "at 3") })
			}
			_, err := cs.Checkpoint(k.Context(), other(1), math.MaxInt64)
			k.refused("Checkpoint of another instance", err, store.ErrNotFound)
			if offset := k.append(l, "next"); offset != 4 {
				k.Errorf("the batch after a checkpoint is at %d, want 4", offset)
			}
		},
	},
	{
		name: "CheckpointKeepsNoReference",
		rule: "a store keeps its own copy of a checkpoint, an empty one and a large one included",
		run: func(k *kit) {
			cs := k.checkpointer()
			l := k.ownedWith(3)
			data := []byte("at 2")
			if err := cs.SaveCheckpoint(k.Context(), l, store.Checkpoint{Offset: 2, Data: data}); err != nil {
				k.Fatal(err)
			}
			copy(data, "....")
			k.checkpoints("after the caller has changed its bytes", map[int64]int64{math.MaxInt64: 2})
			for i, n := range []int{0, 5 << 20} {
				want := string(fill("large", n))
				if n == 0 {
					want = ""
				}
				k.save(l, int64(2+i), want)
				if c, err := cs.Checkpoint(k.Context(), addr, math.MaxInt64); err != nil || string(c.Data) != want {
					k.Errorf("Checkpoint of %d bytes: %d bytes, %v", n, len(c.Data), err)
				}
			}
		},
	},
	{
		name: "CheckpointEnded",
		rule: "calls with an ended context and on a closed store do nothing",
		run: func(k *kit) {
			cs := k.checkpointer()
			l := k.ownedWith(3)
			ctx, cancel := context.WithCancel(k.Context())
			cancel()
			k.refused("SaveCheckpoint", cs.SaveCheckpoint(ctx, l, store.Checkpoint{}), context.Canceled)
			_, err := cs.Checkpoint(ctx, addr, math.MaxInt64)
			k.refused("Checkpoint", err, context.Canceled)
			k.checkpoints("after the context has ended", map[int64]int64{math.MaxInt64: -1})
			if err := k.Close(); err != nil {
				k.Fatal(err)
			}
			k.refused("SaveCheckpoint", cs.SaveCheckpoint(k.Context(), l, store.Checkpoint{}), store.ErrClosed)
			_, err = cs.Checkpoint(k.Context(), addr, math.MaxInt64)
			k.refused("Checkpoint", err, store.ErrClosed)
		},
	},
	{
		name:    "CheckpointReopen",
		rule:    "after reopening a checkpoint is what was saved, if it is there, and an old owner can save none",
		persist: true,
		run: func(k *kit) {
			l := k.ownedWith(5)
			k.save(l, 3, "at 3")
			k.save(l, 5, "at 5")
			k.Store = k.opts.Reopen(k.T, k.Store)
			cs := k.checkpointer()
			for _, atMost := range []int64{math.MaxInt64, 4} {
				c, err := cs.Checkpoint(k.Context(), addr, atMost)
				if err != nil && !errors.Is(err, store.ErrNotFound) {
					k.Errorf("Checkpoint: %v", err)
				}
				if err == nil && string(c.Data) != fmt.Sprint("at ", c.Offset) {
					k.Errorf("Checkpoint at %d is %q", c.Offset, c.Data)
				}
			}
			newer := k.take("n1", addr) // without it the old owner may be the current one
			k.refused("SaveCheckpoint with a lease from before", cs.SaveCheckpoint(k.Context(), l, store.Checkpoint{Offset: 5}), store.ErrFenced)
			k.save(newer, 4, "at 4")
		},
	},
	{
		name: "CheckpointConcurrent",
		rule: "checkpoints may be saved and read while batches are appended",
		run: func(k *kit) {
			l := k.ownedWith(3)
			concurrently(3, func(i int) {
				for n := range 20 {
					switch i {
					case 0:
						k.append(l, "batch")
					case 1:
						k.save(l, int64(n%4), fmt.Sprint("at ", n%4))
					default:
						c, err := k.checkpointer().Checkpoint(k.Context(), addr, math.MaxInt64)
						if err != nil && !errors.Is(err, store.ErrNotFound) || err == nil && string(c.Data) != fmt.Sprint("at ", c.Offset) {
							k.Errorf("Checkpoint: %d %q, %v", c.Offset, c.Data, err)
						}
					}
				}
			})
			if n := len(k.journal(addr)); n != 24 {
				k.Errorf("%d batches, want 24", n)
			}
		},
	},
}

// checkpointer is the store's other face. A check of a store that has none is
// skipped.
func (k *kit) checkpointer() store.Checkpointer {
	k.Helper()
	cs, ok := k.Store.(store.Checkpointer)
	if !ok {
		k.Skip("the store keeps no checkpoints: it is no store.Checkpointer")
	}
	return cs
}

// ownedWith is an instance whose head is at an offset.
func (k *kit) ownedWith(head int64) store.Lease {
	k.Helper()
	k.checkpointer()
	l := k.owned(addr, "n1")
	for k.append(l, "batch") < head { // after the birth and the admission
	}
	return l
}

func (k *kit) save(l store.Lease, offset int64, data string) {
	k.Helper()
	if err := k.checkpointer().SaveCheckpoint(k.Context(), l, store.Checkpoint{Offset: offset, Data: []byte(data)}); err != nil {
		k.Errorf("SaveCheckpoint at %d: %v", offset, err)
	}
}

// checkpoints fails the test unless the checkpoint at or below each offset is
// the one at the other, or there is none if that is -1.
func (k *kit) checkpoints(when string, want map[int64]int64) {
	k.Helper()
	for atMost, offset := range want {
		c, err := k.checkpointer().Checkpoint(k.Context(), addr, atMost)
		switch {
		case offset < 0:
			k.refused(fmt.Sprintf("%s: Checkpoint at or below %d", when, atMost), err, store.ErrNotFound)
		case err != nil || c.Offset != offset || string(c.Data) != fmt.Sprint("at ", offset):
			k.Errorf("%s: Checkpoint at or below %d: %d %q, %v; want %d", when, atMost, c.Offset, c.Data, err, offset)
		}
	}
}
