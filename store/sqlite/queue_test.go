package sqlite

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/store"
)

func TestQueueGroups(t *testing.T) {
	many := make([]int, 2*maxGroup+3)
	for _, tt := range []struct {
		name  string
		sizes []int // of the ops, in the order of arrival
		want  []int // members of each group
	}{
		{"one", []int{10}, []int{1}},
		{"all that wait", []int{1, 2, 3}, []int{3}},
		{"many", many, []int{maxGroup, maxGroup, 3}},
		{"large", []int{maxGroupBytes - 1, 1, 1}, []int{2, 1}},
		{"too large for a group", []int{1, 2 * maxGroupBytes, 1}, []int{1, 1, 1}},
		{"large ones in a row", []int{maxGroupBytes, maxGroupBytes, 0, 1}, []int{1, 2, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := queue{wake: make(chan struct{}, 1)}
			var order []*op
			for _, size := range tt.sizes {
				o := &op{size: size}
				order = append(order, o)
				q.push(o)
			}
			q.close()
			var got []int
			for group := q.next(nil); len(group) > 0; group = q.next(group) {
				got = append(got, len(group))
				for _, o := range group {
					if o != order[0] {
						t.Fatalf("group %d is out of order", len(got))
					}
					order = order[1:]
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
		})
	}
}

func TestQueueSkipsAbandonedOps(t *testing.T) {
	q := queue{wake: make(chan struct{}, 1)}
	ops := []*op{{}, {}, {}}
	for _, o := range ops {
		q.push(o)
	}
	ops[1].state.Store(abandoned)
	q.close()
	group := q.next(nil)
	if len(group) != 2 || group[0] != ops[0] || group[1] != ops[2] {
		t.Errorf("the group has %d members", len(group))
	}
	if group[0].state.CompareAndSwap(waiting, abandoned) {
		t.Error("a caller could give up an op that the writer has taken")
	}
	if len(q.next(group)) != 0 {
		t.Error("there is another group")
	}
}

func TestCache(t *testing.T) {
	var c cache
	name := func(i int) store.Address { return store.Address{Agent: "a", ID: fmt.Sprint(i)} }
	if c.get(name(0)) != nil {
		t.Error("an empty cache holds something")
	}
	const n = 5 * generation
	for i := range n {
		c.put(&entry{id: int64(i), addr: name(i)})
		if i > 0 && c.get(name(0)) == nil { // in use all the time
			t.Fatalf("entry 0 is gone after %d others, though it is in use", i)
		}
		if size := len(c.young) + len(c.old); size > 2*generation {
			t.Fatalf("the cache holds %d entries after %d", size, i)
		}
	}
	for i := n - generation + 1; i < n; i++ {
		if e := c.get(name(i)); e == nil || e.id != int64(i) {
			t.Fatalf("entry %d of %d is %v", i, n, e)
		}
	}
	if c.get(name(1)) != nil {
		t.Error("an entry that was not used for long is still there")
	}
}
